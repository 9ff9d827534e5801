package server

import (
	"context"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/transporttest"
)

// TestCloseAtABreakLosesNoAcknowledgement: a receiver closes in the moment in which its channel breaks,
// and before its acknowledgement was confirmed. The sender keeps nothing for it, unless the machine rests for as long as
// Close tries to reach it (delivery.closeCall).
func TestCloseAtABreakLosesNoAcknowledgement(t *testing.T) {
	const tries = 5
	late := 0
	for range tries {
		w := newVerbsTown(t, 2)
		a, b := w.start(0), w.start(1)
		w.up(a, b.Task())
		w.up(b, a.Task())
		w.exchange(1, a, b, 1)
		w.fabric.Wires("host0", "host1").Cut()
		ticks := time.NewTicker(100 * time.Microsecond)
		for broken := false; !broken; <-ticks.C {
			for _, l := range b.Links() {
				broken = broken || l.Route != "verbs"
			}
		}
		ticks.Stop()
		began := time.Now()
		if err := b.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
		if kept := a.Kept(); kept.Kept != 0 {
			if time.Since(began) < 300*time.Millisecond {
				t.Fatalf("the sender keeps %+v", kept)
			}
			late++
		}
	}
	if late == tries {
		t.Error("Close took too long each time")
	}
}

// TestCloseDoesNotWaitForAProcessThatWasKilled, although it has not acknowledged what it got: Close would
// end with an error at its deadline.
func TestCloseDoesNotWaitForAProcessThatWasKilled(t *testing.T) {
	for range 20 {
		if closeAfterKill(t) {
			return
		}
	}
	t.Error("the acknowledgement was faster than the kill each time")
}

// closeAfterKill reports whether the value was not acknowledged.
func closeAfterKill(t *testing.T) (kept bool) {
	front := newStoppable(t) // of the sender, for what the receiver sends
	address := transporttest.FreeAddresses(t, 1)[0]
	spec, err := cluster.ParseSpec("worker=" + front.l.Addr().String() + "," + address)
	if err != nil {
		t.Fatal(err)
	}
	begin := func(i int, listen string) *Server {
		s, err := Start(t.Context(), settings(func(c *Config) {
			c.Transport, c.Cluster, c.Task, c.Listen = "grpc", spec.Lists(), cluster.Task{Job: "worker", Index: i}.String(), listen
		}), Options{})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	a, b := begin(0, "127.0.0.1:0"), begin(1, address)
	front.server.Store(a.Addr().String())
	got := b.recv(1, a.Task().String(), "x")
	value := float(t, 1)
	if err := a.Send(1, b.Task().String(), "x", value, false); err != nil {
		t.Fatal(err)
	}
	value.Release()
	wantFloat(t, wait(t, got, "the value"), 1)
	close(front.stopped)
	front.end()
	killed, cancel := context.WithCancel(context.Background())
	cancel()
	_ = b.Close(killed)
	kept = a.Kept().Kept > 0
	if err := a.Close(context.Background()); err != nil {
		t.Error(err)
	}
	return kept
}
