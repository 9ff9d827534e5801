//go:build linux

package shm

import (
	"errors"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
)

// TestClosedArenaIsUnmapped: when Close of a region has returned, no peer maps its memfd.
func TestClosedArenaIsUnmapped(t *testing.T) {
	x, y := newPair(t, New(Options{}), 1<<20)
	x.post(x.to(y, 1, verbs.OpWrite, 0, 4096, 0)) // passes the descriptor
	x.ends(1, verbs.StatusOK)
	if n := y.mapped(); n != 2 { // ring and arena
		t.Fatalf("the peer maps %d memfds", n)
	}
	if err := x.mr.Close(); err != nil {
		t.Fatal(err)
	}
	if n := y.mapped(); n != 1 {
		t.Errorf("after Close the peer maps %d memfds", n)
	}
	x.post(verbs.SendWR{ID: 2, Op: verbs.OpWrite, Signaled: true}) // the connection works
	x.ends(2, verbs.StatusOK)
}

// mapped returns how many memfds of peers the device of an end maps.
func (x *testEnd) mapped() int {
	m := &as[*device](x.dev).maps
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.list)
}

// TestPeerThatKeepsAnArenaIsBanned: it loses its connection, and gets no other one.
func TestPeerThatKeepsAnArenaIsBanned(t *testing.T) {
	p := New(Options{})
	p.dropTime = 50 * time.Millisecond
	x, y := newPair(t, p, 1<<20)
	x.post(x.to(y, 1, verbs.OpWrite, 0, 4096, 0))
	x.ends(1, verbs.StatusOK)
	y.qp.drive.Lock() // the peer does nothing any more
	defer y.qp.drive.Unlock()
	start := time.Now()
	if err := x.mr.Close(); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(start); d < p.dropTime {
		t.Errorf("Close took %v, the peer has %v", d, p.dropTime)
	}
	if s, err := x.qp.State(); s != verbs.StateErr {
		t.Errorf("the queue pair is in %v (%v)", s, err)
	}
	if err := x.qp.ToReset(); err != nil {
		t.Fatal(err)
	}
	if err := x.path().Init(x.qp); err != nil {
		t.Fatal(err)
	}
	if err := x.path().Connect(x.qp, x.psn, y.endpoint()); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("connecting again: %v", err)
	}
}
