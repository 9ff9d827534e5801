package transporttest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/tryst-rdma/tryst/status"
)

func cancelCases() []testCase {
	return []testCase{
		{name: "Before", run: cancelBefore},
		{name: "WhileWaiting", run: cancelWaiting},
		{name: "WhileWaitingForTheStep", run: cancelWaitingForStep},
		{name: "WhileTheConnectionHangs", run: cancelStuck},
		{name: "InMidTransfer", run: cancelTransferring},
		{name: "AfterTheReceive", run: cancelAfter},
		{name: "Deadline", run: deadline},
		{name: "TwoOfFour", run: cancelTwoOfFour},
		{name: "RacingTheValue", run: cancelRacing},
		{name: "InOrderAfterwards", run: cancelInOrder},
		{name: "ManyInOrderAfterwards", run: cancelManyInOrder},
	}
}

func cancelBefore(w *world) {
	from, to := w.pair()
	k := w.key(from, to, "v")
	from.sendNumber(1, k, 7)
	ctx, cancel := context.WithCancel(w.ctx)
	cancel()
	to.recvCtx(ctx, 1, k).mustFail(status.Cancelled)
	to.recv(1, k).mustBeNumber(7)
}

func cancelWaiting(w *world) {
	from, to := w.pair()
	k := w.key(from, to, "v")
	from.in(1)
	ctx, cancel := context.WithCancel(w.ctx)
	r := to.recvCtx(ctx, 1, k)
	from.waiting(1)
	cancel()
	r.mustFail(status.Cancelled)
	from.waiting(0)
	from.sendNumber(1, k, 7)
	to.recv(1, k).mustBeNumber(7)
}

// cancelWaitingForStep: a step that was created by a peer's receive ends with it.
func cancelWaitingForStep(w *world) {
	from, to := w.pair()
	ctx, cancel := context.WithCancel(w.ctx)
	r := to.recvCtx(ctx, 1, w.key(from, to, "v"))
	from.waiting(1)
	cancel()
	r.mustFail(status.Cancelled)
	w.waitUntil("the sender has forgotten the step", func() bool { return from.Manager().Steps() == 0 })
}

// cancelStuck: the cancel cannot be sent, and perhaps not even the request. The receive ends
// nevertheless, and the late request consumes no value.
func cancelStuck(w *world) {
	from, to := w.pair()
	faults := w.faults(from)
	k := w.key(from, to, "v")
	w.warm(from, to)
	from.sendNumber(1, k, 7)
	w.waitClosed("the connection hangs", faults.HoldAfter(0))
	ctx, cancel := context.WithCancel(w.ctx)
	r := to.recvCtx(ctx, 1, k)
	w.settle()
	cancel()
	r.mustFail(status.Cancelled)
	faults.Release()
	to.recv(1, k).mustBeNumber(7)
}

// cancelTransferring: a value that was matched and half received returns to the head of its
// key's queue.
func cancelTransferring(w *world) {
	from, to := w.pair()
	faults := w.faults(from)
	k := w.key(from, to, "v")
	w.warm(from, to)
	from.send(1, k, w.blob(1, mib))
	from.send(1, k, w.blob(2, mib))
	stuck := faults.HoldAfter(300 * kib)
	ctx, cancel := context.WithCancel(w.ctx)
	r := to.recvCtx(ctx, 1, k)
	w.waitClosed("the transfer is in progress", stuck)
	cancel()
	r.mustFail(status.Cancelled)
	faults.Release()
	from.keeps(0)
	to.recv(1, k).mustBeBlob(1, mib)
	to.recv(1, k).mustBeBlob(2, mib)
}

func cancelAfter(w *world) {
	from, to := w.pair()
	k := w.key(from, to, "v")
	ctx, cancel := context.WithCancel(w.ctx)
	r := to.recvCtx(ctx, 1, k)
	from.sendNumber(1, k, 7)
	r.mustBeNumber(7)
	cancel()
	from.sendNumber(1, k, 8)
	to.recv(1, k).mustBeNumber(8)
}

func deadline(w *world) {
	from, to := w.pair()
	k := w.key(from, to, "v")
	from.in(1)
	ctx, cancel := context.WithTimeout(w.ctx, 50*time.Millisecond)
	defer cancel()
	to.recvCtx(ctx, 1, k).mustFail(status.DeadlineExceeded)
	from.waiting(0)
	from.sendNumber(1, k, 7)
	to.recv(1, k).mustBeNumber(7)
}

// cancelTwoOfFour: when two of four receives of one key are cancelled, the others get the
// next two values.
func cancelTwoOfFour(w *world) {
	from, to := w.pair()
	k := w.key(from, to, "v")
	from.in(1)
	ctx, cancel := context.WithCancel(w.ctx)
	var receives []*receive
	for i, c := range []context.Context{ctx, ctx, w.ctx, w.ctx} {
		receives = append(receives, to.recvCtx(c, 1, k))
		from.waiting(i + 1)
	}
	cancel()
	receives[0].mustFail(status.Cancelled)
	receives[1].mustFail(status.Cancelled)
	from.waiting(2)
	from.sendNumber(1, k, 0)
	from.sendNumber(1, k, 1)
	w.eachOnce(receives[2:], 2)
}

// cancelRacing: a cancel races the value, with varying delays. Either the receive or the next
// one gets the value.
func cancelRacing(w *world) {
	from, to := w.pair()
	k := w.key(from, to, "v")
	won := 0
	const rounds = 300
	for i := range rounds {
		ctx, cancel := context.WithCancel(w.ctx)
		r := to.recvCtx(ctx, 1, k)
		var both sync.WaitGroup
		both.Go(func() { from.sendNumber(1, k, i) })
		both.Go(func() {
			if i%3 > 0 { // otherwise cancel at once, before the request is sent
				spin(from, i)
			}
			cancel()
		})
		both.Wait()
		o := r.wait()
		if o.err != nil {
			w.mustBe(o.err, status.Cancelled)
			to.recv(1, k).mustBeNumber(i)
			continue
		}
		won++
		n, why := numberOf(o.value.Tensor)
		o.release()
		if n != i || why != "" {
			w.Fatalf("round %d brought %d %s", i, n, why)
		}
	}
	w.Logf("the value was first in %d of %d rounds", won, rounds)
}

// spin delays by a time that differs from round to round.
func spin(n *node, round int) {
	for range round * 7 % 40 {
		n.Cache().Stats()
	}
}

// cancelInOrder: after one or two receives of a key were cancelled at any moment and have
// ended, the next ones get the values in the order in which they were sent.
func cancelInOrder(w *world) {
	from, to := w.pair()
	const rounds, values = 150, 4
	won := 0
	for i := range rounds {
		k := w.key(from, to, fmt.Sprint("v", i))
		early := i%2 == 0 // the values are sent before the receives start
		if early {
			for n := range values {
				from.sendNumber(1, k, n)
			}
		}
		ctx, cancel := context.WithCancel(w.ctx)
		receives := []*receive{to.recvCtx(ctx, 1, k)}
		if i%4 > 1 {
			receives = append(receives, to.recvCtx(ctx, 1, k))
		}
		var both sync.WaitGroup
		if !early {
			both.Go(func() {
				for n := range values {
					from.sendNumber(1, k, n)
				}
			})
		}
		if i%3 > 0 {
			spin(from, i)
		}
		cancel()
		both.Wait()
		got := make(map[int]bool) // got by receives that were cancelled too late
		for _, r := range receives {
			o := r.wait()
			if o.err != nil {
				w.mustBe(o.err, status.Cancelled)
				continue
			}
			won++
			n, _ := numberOf(o.value.Tensor)
			o.release()
			got[n] = true
		}
		for n := range values {
			if !got[n] {
				to.recv(1, k).mustBeNumber(n)
			}
		}
	}
	w.Logf("the value was first in %d receives", won)
}

// cancelManyInOrder: more receives are cancelled than one request can report.
func cancelManyInOrder(w *world) {
	from, to := w.pair()
	faults := w.faults(from)
	k := w.key(from, to, "v")
	const n = 300
	from.in(1)
	ctx, cancel := context.WithCancel(w.ctx)
	receives := make([]*receive, n)
	for i := range receives {
		receives[i] = to.recvCtx(ctx, 1, k)
	}
	from.waiting(n)
	stuck := faults.HoldAfter(0)
	for i := range n {
		from.sendNumber(1, k, i)
	}
	w.waitClosed("the responses are in progress", stuck)
	cancel()
	for _, r := range receives {
		r.mustFail(status.Cancelled)
	}
	faults.Release()
	for i := range n {
		to.recv(1, k).mustBeNumber(i)
	}
}
