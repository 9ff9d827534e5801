//go:build linux

package shm

import (
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
)

// TestCallbackMayWaitForCloseOfARegion: a callback that waits for a lock of the goroutine that closes
// a region does not keep the peer's confirmation from being read.
func TestCallbackMayWaitForCloseOfARegion(t *testing.T) {
	x, y := newPair(t, New(Options{}), 1<<20)
	x.post(x.to(y, 1, verbs.OpWrite, 0, 4096, 0)) // passes the descriptor
	x.ends(1, verbs.StatusOK)
	entered, leave := make(chan struct{}), make(chan struct{})
	as[verbs.CallbackCQ](x.cq).OnEvent(func() { close(entered); <-leave })
	if err := x.cq.Arm(false); err != nil {
		t.Fatal(err)
	}
	x.post(x.to(y, 2, verbs.OpWrite, 0, 4096, 0))
	<-entered
	start := time.Now()
	if err := x.mr.Close(); err != nil {
		t.Error(err)
	}
	if d := time.Since(start); d > 8*time.Second {
		t.Errorf("Close took %v", d)
	}
	close(leave)
	x.ends(2, verbs.StatusOK)
}

// TestRingsAreServedAfterPollsStop: the goroutine that left the rings to a poller comes back, also
// when the poller does not arm the queue.
func TestRingsAreServedAfterPollsStop(t *testing.T) {
	x, y := newPair(t, New(Options{}), 1<<20)
	y.post(y.to(x, 1, verbs.OpWrite, 0, 8, 0))
	y.ends(1, verbs.StatusOK)
	for round := range 20 {
		for start := time.Now(); time.Since(start) < 2*time.Millisecond; {
			var wcs [1]verbs.WC
			if n, err := x.cq.Poll(wcs[:]); n != 0 || err != nil {
				t.Fatal(n, err)
			}
		}
		y.post(y.to(x, verbs.WRID(round), verbs.OpWrite, 0, 8, 0))
		y.ends(verbs.WRID(round), verbs.StatusOK)
	}
}

// TestPollsDoTheWork: polls alone execute the peer's requests, while the goroutine of the queue pair
// is in a callback.
func TestPollsDoTheWork(t *testing.T) {
	x, y := newPair(t, New(Options{}), 1<<20)
	x.recv(1, 0, 64)
	entered, leave := make(chan struct{}), make(chan struct{})
	as[verbs.CallbackCQ](x.cq).OnEvent(func() { close(entered); <-leave })
	if err := x.cq.Arm(false); err != nil {
		t.Fatal(err)
	}
	y.post(y.to(x, 1, verbs.OpSend, 0, 8, 0))
	<-entered
	y.ends(1, verbs.StatusOK)
	x.ends(1, verbs.StatusOK)
	for i := range 100 {
		x.recv(2, 0, 64)
		y.post(y.to(x, verbs.WRID(i), verbs.OpSend, 0, 8, 0))
		if wc := x.polled(); wc.ID != 2 || wc.Status != verbs.StatusOK {
			t.Fatalf("%+v", wc)
		}
		y.ends(verbs.WRID(i), verbs.StatusOK)
	}
	close(leave)
}

// TestAPollingSideIsNotRung: while a side polls its disarmed queue it need not be woken, and its polls do
// the work. When it has armed the queue it is woken again.
func TestAPollingSideIsNotRung(t *testing.T) {
	x, y := newPair(t, New(Options{}), 1<<20)
	y.post(y.to(x, 1, verbs.OpWrite, 0, 8, 0)) // they are connected then
	y.ends(1, verbs.StatusOK)
	l := x.qp.live.Load()
	x.qp.pollUntil(t, func() bool { return asleep(l) })
	as[verbs.DrivenCQ](x.cq).Disarm()
	if asleep(l) {
		t.Error("a side that polls says that it must be woken")
	}
	for i := range 100 {
		x.recv(2, 0, 64)
		y.post(y.to(x, verbs.WRID(i), verbs.OpSend, 0, 8, 0))
		if wc := x.polled(); wc.ID != 2 || wc.Status != verbs.StatusOK {
			t.Fatalf("%+v", wc)
		}
		y.ends(verbs.WRID(i), verbs.StatusOK)
		if asleep(l) {
			t.Fatal("a side that polls says that it must be woken")
		}
	}
	if err := x.cq.Arm(false); err != nil {
		t.Fatal(err)
	}
	x.qp.pollUntil(t, func() bool { return asleep(l) })
	x.recv(3, 0, 64)
	y.post(y.to(x, 1, verbs.OpSend, 0, 8, 0))
	y.ends(1, verbs.StatusOK) // the goroutine of the queue pair executes it
	x.ends(3, verbs.StatusOK)
}

// TestADisarmedQueueMayOutliveItsConnection: Arm does not touch the ring of a connection that is gone.
func TestADisarmedQueueMayOutliveItsConnection(t *testing.T) {
	x, y := newPair(t, New(Options{}), 1<<20)
	y.post(y.to(x, 1, verbs.OpWrite, 0, 8, 0)) // they are connected then
	y.ends(1, verbs.StatusOK)
	as[verbs.DrivenCQ](x.cq).Disarm()
	if err := x.qp.Close(); err != nil {
		t.Fatal(err)
	}
	if err := x.cq.Arm(false); err != nil {
		t.Fatal(err)
	}
}
