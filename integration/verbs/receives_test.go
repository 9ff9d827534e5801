//go:build rxe && linux

package verbs_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/tryst-rdma/tryst/status"
)

// A large receive is cancelled while the peer writes it, and another receive gets its memory as
// soon as that is free. The second one comes over another, faster channel, so a late write of the
// first channel would corrupt it. If the pool is small, the process leaves the channel to get the
// memory: it is free when the queue pairs are destroyed. Otherwise it is free with the peer's
// CANCELLED. The cancelled receive has consumed nothing, and its value is received again.
func TestRxeCancelMidWriteThenReuseOfMemory(t *testing.T) {
	bed := newTestbed(t, 3)
	b, c := bed.launch(1, settings{}), bed.launch(2, settings{})
	b.up()
	c.up()
	for _, tt := range []struct {
		name  string
		limit int64
		leave bool
	}{
		{"a small pool", large + large/2, true},
		{"a large pool", 5 * large, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bed.within(t)
			a := bed.start(0, settings{ArenaLimit: tt.limit})
			for i, p := range []*process{b, c} {
				a.untilVerbs(i+1, 0)
				p.untilVerbs(0, 0)
			}
			before := a.state()
			bed.step++
			x, y := bed.newTensor(b, a, large), bed.newTensor(c, a, large)
			b.send(x)
			c.send(y)
			restore := bed.slow(b.device, 4<<20) // the writes that are posted at once take a second
			since := bed.sentPackets(b.device)
			cancelled := a.recv(x)
			bed.untilSent(b.device, since, 128)
			a.do(command{Op: opCancel, Of: cancelled})
			bed.eventually("the memory is free", func() (string, bool) {
				n := a.state().Receiving
				return fmt.Sprintf("%d bytes are in use", n), n == 0
			})
			a.recvOK(a.recv(y)) // no other registered memory is large enough
			a.recvFails(status.Cancelled, "cancelled", cancelled)
			restore()
			now := a.state()
			if now.Tensors["verbs"] != 1 || len(now.Tensors) != 1 {
				t.Errorf("received %v, want one tensor over verbs", now.Tensors)
			}
			if left := now.Connections[1].Breaks > before.Connections[1].Breaks; left != tt.leave {
				t.Errorf("the channel is %+v, before %+v, want that it was left: %v", now.Connections[1], before.Connections[1], tt.leave)
			}
			a.recvOK(a.recv(x))
			a.untilFree()
			a.close()
		})
	}
	for _, p := range []*process{b, c} {
		p.untilFree()
		p.close()
	}
}

// The sender aborts a step. Its receives fail with the sender's error, except one whose value is
// being written, which may also succeed. Receives of other steps continue.
func TestRxeStepAbortedAtTheSender(t *testing.T) {
	bed := newTestbed(t, 2)
	a, b := bed.startPair(settings{})
	bed.step++
	x, other, later := bed.newTensor(b, a, large), bed.newTensor(b, a, large), bed.newTensor(b, a, 100)
	b.send(x)
	other.step, later.step = 1_000_000, 1_000_000
	b.send(other)
	var waits []int
	for range 200 {
		waits = append(waits, a.recv(bed.newTensor(b, a, 100)))
	}
	since := bed.sentPackets(b.device)
	ofOther := []int{a.recv(later)} // its value is sent after the abort
	written := a.recv(x)
	ofOther = append(ofOther, a.recv(other))
	bed.untilSent(b.device, since, packetsBefore)
	const reason = "the reader found a bad record"
	b.do(command{Op: opAbort, Step: x.step, Name: reason})
	a.recvFails(status.DataLoss, reason, waits...)
	if r := a.wait(written); r.Code != "" && r.Code != status.DataLoss.String() {
		t.Errorf("the receive that was being written ended with %+v, want success or DataLoss", r)
	} else {
		t.Logf("the receive that was being written ended with %q", r.Code)
	}
	b.send(later)
	a.recvOK(ofOther...)
	a.recvFails(status.DataLoss, reason, a.recv(bed.newTensor(b, a, 100))) // begins after the abort
	bed.exchangeOverVerbs(a, b)
	bed.end(a, b)
}

// A send queue of 16 and a window of 8 limit the messages in flight, but not the requests: a
// process may have a thousand receives more, and values may depend on later ones.
func TestRxeThousandRequestsBeyondTheWindow(t *testing.T) {
	bed := newTestbed(t, 2)
	const depth, requests = 16, 1000 + 16
	a, b := bed.startPair(settings{QueueDepth: depth, Fallback: "none"})
	before := [2]connection{a.state().Connections[1], b.state().Connections[0]}
	recvMany := func(n int) (xs []testTensor, ids []int) {
		bed.step++
		for i := range n {
			size := int64(100)
			if i%50 == 0 {
				size = 100_000 // too large for an eager message
			}
			x := bed.newTensor(b, a, size)
			xs, ids = append(xs, x), append(ids, a.recv(x))
		}
		return xs, ids
	}
	t.Run("all at once", func(t *testing.T) {
		bed.within(t)
		xs, ids := recvMany(requests)
		slices.Reverse(xs)
		b.send(xs...)
		a.recvOK(ids...)
	})
	t.Run("each value is sent after the next one was received", func(t *testing.T) {
		bed.within(t)
		xs, ids := recvMany(10 * depth)
		for i, x := range slices.Backward(xs) {
			b.send(x)
			a.recvOK(ids[i])
		}
	})
	t.Run("send queue full", func(t *testing.T) {
		bed.within(t)
		bed.step++
		var xs []testTensor
		for range 2 * depth { // values that were sent before, each of more than one write
			xs = append(xs, bed.newTensor(b, a, 1<<20+1))
		}
		b.send(xs...)
		var ids []int
		for _, x := range xs {
			ids = append(ids, a.recv(x))
		}
		a.recvOK(ids...)
	})
	// A side that sends more than the window breaks the channel. Then all values would come over
	// the next one.
	for i, now := range [2]connection{a.state().Connections[1], b.state().Connections[0]} {
		if now.Generation != before[i].Generation || now.Breaks != before[i].Breaks {
			t.Errorf("task %d: the channel is %+v, want %+v as before", i, now, before[i])
		}
	}
	bed.end(a, b)
}

// The values of one key have different shapes in different steps.
func TestRxeShapesOfOneKey(t *testing.T) {
	bed := newTestbed(t, 2)
	a, b := bed.startPair(settings{})
	one := func(size int64) testTensor {
		bed.step++
		x := bed.newTensor(b, a, size)
		x.name = "w"
		return x
	}
	t.Run("two steps at once", func(t *testing.T) {
		bed.within(t)
		for range 10 {
			x, y := one(200_000), one(300_001)
			ids := []int{a.recv(x), a.recv(y)}
			b.send(y, x)
			a.recvOK(ids...)
		}
	})
	t.Run("another shape in every step", func(t *testing.T) {
		bed.within(t)
		for i := range int64(30) {
			x := one((i * 7919 * 4096 % (1 << 20)) + i%3)
			if i%2 == 0 {
				b.send(x)
			}
			id := a.recv(x)
			if i%2 != 0 {
				b.send(x)
			}
			a.recvOK(id)
		}
	})
	if s := a.state(); len(s.Tensors) != 1 || s.Tensors["verbs"] != 50 || s.Connections[1].Breaks != 0 {
		t.Errorf("state %+v, want 50 tensors over verbs and no break", s)
	}
	bed.end(a, b)
}
