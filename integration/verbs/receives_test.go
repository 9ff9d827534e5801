//go:build rxe && linux

package verbs_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/tryst-rdma/tryst/status"
)

// A large receive is cancelled while it is written, and another one uses its memory
// as soon as it may: its writes come on another channel, faster, so they would not
// hide what is still on its way on the first one. Where the pool is small, the
// channel is left for the memory, which is free when the queue pairs are destroyed;
// where it is not, it is so with the peer's CANCELLED. What was cancelled was not
// consumed, and is received again.
func TestRxeCancelMidWriteAndTheMemoryIsUsedAtOnce(t *testing.T) {
	w := newWorld(t, 3)
	b, c := w.launch(1, settings{}), w.launch(2, settings{})
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
			w.within(t)
			a := w.start(0, settings{ArenaLimit: tt.limit})
			for i, p := range []*process{b, c} {
				a.untilVerbs(i+1, 0)
				p.untilVerbs(0, 0)
			}
			before := a.state()
			w.step++
			x, y := w.parcel(b, a, large), w.parcel(c, a, large)
			b.send(x)
			c.send(y)
			mend := w.slow(b.device, 4<<20) // what is posted at once takes a second
			since := w.sentPackets(b.device)
			cancelled := a.recv(x)
			w.untilSent(b.device, since, 128)
			a.do(command{Op: opCancel, Of: cancelled})
			w.eventually("the memory is back", func() (string, bool) {
				n := a.state().Receiving
				return fmt.Sprintf("%d bytes are in use", n), n == 0
			})
			a.good(a.recv(y)) // there is no other memory of that size that is registered
			a.bad(status.Cancelled, "cancelled", cancelled)
			mend()
			now := a.state()
			if now.Tensors["verbs"] != 1 || len(now.Tensors) != 1 {
				t.Errorf("%v have come by these wires, want the one", now.Tensors)
			}
			if left := now.Links[1].Breaks > before.Links[1].Breaks; left != tt.leave {
				t.Errorf("the channel is %+v, before %+v", now.Links[1], before.Links[1])
			}
			a.good(a.recv(x))
			a.untilFree()
			a.close()
		})
	}
	for _, p := range []*process{b, c} {
		p.untilFree()
		p.close()
	}
}

// The sender aborts a step: who waits is told why, also who waits for what is being
// written, and other steps go on.
func TestRxeStepAbortedAtTheSender(t *testing.T) {
	w := newWorld(t, 2)
	a, b := w.startPair(settings{})
	w.step++
	x, other, later := w.parcel(b, a, large), w.parcel(b, a, large), w.parcel(b, a, 100)
	b.send(x)
	other.step, later.step = 1_000_000, 1_000_000
	b.send(other)
	var waits []int
	for range 200 {
		waits = append(waits, a.recv(w.parcel(b, a, 100)))
	}
	since := w.sentPackets(b.device)
	ofOther := []int{a.recv(later)} // waits there when the step is aborted
	written := a.recv(x)
	ofOther = append(ofOther, a.recv(other))
	w.untilSent(b.device, since, packetsBefore)
	const why = "the reader found a bad record"
	b.do(command{Op: opAbort, Step: x.step, Name: why})
	a.bad(status.DataLoss, why, waits...)
	if r := a.wait(written); r.Code != "" && r.Code != status.DataLoss.String() {
		t.Errorf("the one that was written ended with %+v", r)
	} else {
		t.Logf("the one that was written ended with %q", r.Code)
	}
	b.send(later)
	a.good(ofOther...)
	a.bad(status.DataLoss, why, a.recv(w.parcel(b, a, 100))) // too late
	w.exchangeOverVerbs(a, b)
	w.end(a, b)
}

// A send queue of 16 and a window of 8 bound what is on the way, never what is
// asked for: a thousand receives more than that, and values that are sent only
// when later ones have arrived.
func TestRxeThousandRequestsBeyondTheWindow(t *testing.T) {
	w := newWorld(t, 2)
	const depth, requests = 16, 1000 + 16
	a, b := w.startPair(settings{QueueDepth: depth, Fallback: "none"})
	before := [2]link{a.state().Links[1], b.state().Links[0]}
	ask := func(n int) (xs []parcel, ids []int) {
		w.step++
		for i := range n {
			size := int64(100)
			if i%50 == 0 {
				size = 100_000 // is written
			}
			x := w.parcel(b, a, size)
			xs, ids = append(xs, x), append(ids, a.recv(x))
		}
		return xs, ids
	}
	t.Run("all at once", func(t *testing.T) {
		w.within(t)
		xs, ids := ask(requests)
		slices.Reverse(xs)
		b.send(xs...)
		a.good(ids...)
	})
	t.Run("each value depends on the later requests", func(t *testing.T) {
		w.within(t)
		xs, ids := ask(10 * depth)
		for i, x := range slices.Backward(xs) {
			b.send(x)
			a.good(ids[i])
		}
	})
	t.Run("send queue full", func(t *testing.T) {
		w.within(t)
		w.step++
		var xs []parcel
		for range 2 * depth { // values that are there, each of more than one write
			xs = append(xs, w.parcel(b, a, 1<<20+1))
		}
		b.send(xs...)
		var ids []int
		for _, x := range xs {
			ids = append(ids, a.recv(x))
		}
		a.good(ids...)
	})
	// A side that sends more than the window breaks the channel, and all arrives over the next ones.
	for i, now := range [2]link{a.state().Links[1], b.state().Links[0]} {
		if now.Generation != before[i].Generation || now.Breaks != before[i].Breaks {
			t.Errorf("task %d: the channel was %+v, and is %+v", i, before[i], now)
		}
	}
	w.end(a, b)
}

// What is under one key has another shape in another step.
func TestRxeShapesOfOneKey(t *testing.T) {
	w := newWorld(t, 2)
	a, b := w.startPair(settings{})
	one := func(size int64) parcel {
		w.step++
		x := w.parcel(b, a, size)
		x.name = "w"
		return x
	}
	t.Run("two steps at once", func(t *testing.T) {
		w.within(t)
		for range 10 {
			x, y := one(200_000), one(300_001)
			ids := []int{a.recv(x), a.recv(y)}
			b.send(y, x)
			a.good(ids...)
		}
	})
	t.Run("another one in every step", func(t *testing.T) {
		w.within(t)
		for i := range int64(30) {
			x := one((i * 7919 * 4096 % (1 << 20)) + i%3)
			if i%2 == 0 {
				b.send(x)
			}
			id := a.recv(x)
			if i%2 != 0 {
				b.send(x)
			}
			a.good(id)
		}
	})
	if s := a.state(); len(s.Tensors) != 1 || s.Tensors["verbs"] != 50 || s.Links[1].Breaks != 0 {
		t.Errorf("%+v", s)
	}
	w.end(a, b)
}
