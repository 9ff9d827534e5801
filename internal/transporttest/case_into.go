package transporttest

import (
	"bytes"
	"context"
	"fmt"

	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// ReceiveAllocator is a Node whose transport writes values into the receiver's memory
// without a copy, if that comes from this allocator.
type ReceiveAllocator interface {
	ReceiveAllocator() tensor.Allocator
	// ZeroCopyAbove is the size in bytes above which that is so.
	ZeroCopyAbove() int
}

// intoCases: receives into memory of the receiver's own (rendezvous.Into). Each runs with
// memory of any allocator, and with that of the transport if it has one.
func intoCases() []testCase {
	var cases []testCase
	for _, c := range []testCase{
		{name: "Sizes", run: intoSizes},
		{name: "ThatDoesNotFit", run: intoUnfit},
		{name: "Dead", run: intoDead},
		{name: "Strings", run: intoStrings},
		{name: "Again", run: intoAgain},
		{name: "InUse", run: intoInUse},
		{name: "CancelInMidTransfer", run: intoCancel},
		{name: "AbortInMidTransfer", run: intoAbort},
		{name: "CutInMidTransfer", run: intoCut},
		{name: "CutsInMidTransfer", run: intoCuts},
		{name: "ManyAtOnce", run: intoMany},
	} {
		run := c.run
		cases = append(cases, c)
		c.name, c.run = c.name+"OfTheTransport", func(w *world) {
			w.registered = true
			run(w)
		}
		cases = append(cases, c)
	}
	return cases
}

// destination is a tensor to receive into, filled with a byte that no blob has.
type destination struct {
	*tensor.Tensor
	w *world
}

const untouched = 0xEE

// destination allocates memory at a node. The case has to release it.
func (n *node) destination(dtype tensor.DType, shape tensor.Shape) destination {
	n.w.Helper()
	alloc := tensor.Allocator(n.memory)
	if n.w.registered {
		own, ok := n.Node.(ReceiveAllocator)
		if !ok {
			n.w.Skip("this transport has no memory of its own")
		}
		alloc = own.ReceiveAllocator()
	}
	x, err := tensor.Allocate(alloc, dtype, shape)
	if err != nil {
		n.w.Fatal(err)
	}
	d := destination{x, n.w}
	d.fill()
	return d
}

func (n *node) bytesToFill(size int) destination {
	return n.destination(tensor.Uint8, tensor.Vector(size))
}

func (d destination) fill() {
	for i := range d.Bytes() {
		d.Bytes()[i] = untouched
	}
}

// isUntouched fails the case if the memory was written to since fill.
func (d destination) isUntouched() {
	d.w.Helper()
	if b := d.Bytes(); bytes.Count(b, []byte{untouched}) != len(b) {
		d.w.Errorf("the memory of a %v was written to", d.Tensor)
	}
}

// isSafe waits until nothing can write to the memory.
func (d destination) isSafe() {
	d.w.Helper()
	d.w.waitUntil("the memory has no other reference", d.Buffer().Unique)
}

// recvInto starts a receive into d.
func (n *node) recvInto(ctx context.Context, step int64, k rendezvous.Key, d destination) (*receive, *rendezvous.Into) {
	n.w.Helper()
	into, err := rendezvous.NewInto(d.Tensor)
	if err != nil {
		n.w.Fatal(err)
	}
	return n.recvArgs(ctx, step, k, into.Args()), into
}

// mustFill fails the case unless the receive brings the blob into d. It releases the value.
func (r *receive) mustFill(d destination, seed uint64, size int) {
	r.w.Helper()
	x := r.value()
	if x.Buffer() != d.Buffer() {
		r.w.Errorf("receive of %s: the value is in other memory", r.key.Edge())
	}
	if why := checkBlob(d.Tensor, seed, size); why != "" {
		r.w.Errorf("receive of %s: %s", r.key.Edge(), why)
	}
	x.Release()
	if !d.Buffer().Unique() {
		r.w.Errorf("receive of %s has ended, and the memory has another reference", r.key.Edge())
	}
}

// intoSizes: values of any size arrive in the given memory, small, large and empty ones, the
// second under the same key, too.
func intoSizes(w *world) {
	from, to := w.pair()
	for i, size := range []int{0, 1, 8, 1000, 64 * kib, 300*kib + 5, mib} {
		k := w.key(from, to, fmt.Sprint("v", i))
		d := to.bytesToFill(size)
		for round := range int64(2) {
			seed := uint64(i)*2 + uint64(round)
			from.send(round+1, k, w.blob(seed, size))
			r, into := to.recvInto(w.ctx, round+1, k, d)
			r.mustFill(d, seed, size)
			own, ok := to.Node.(ReceiveAllocator)
			want := w.registered && ok && size > own.ZeroCopyAbove()
			if into.ZeroCopy() != want {
				w.Errorf("%d bytes: zero copy is %v, want %v", size, into.ZeroCopy(), want)
			}
		}
		d.Release()
	}
}

// intoUnfit: a value of another type or shape is not consumed. The next receive gets it, and
// then those that were sent later. The memory is not written to.
func intoUnfit(w *world) {
	from, to := w.pair()
	for i, size := range []int{8, mib} {
		k := w.key(from, to, fmt.Sprint("v", i))
		for j, d := range []destination{
			to.destination(tensor.Float64, tensor.Vector(size/8)), // as many bytes
			to.bytesToFill(size / 2),
			to.bytesToFill(2 * size),
			to.bytesToFill(0),
		} {
			step := int64(i*10 + j + 1)
			from.send(step, k, w.blob(1, size))
			from.send(step, k, w.blob(2, size))
			r, _ := to.recvInto(w.ctx, step, k, d)
			r.mustFail(status.InvalidArgument, d.String(), fmt.Sprintf("uint8[%d]", size))
			d.isSafe()
			d.isUntouched()
			to.recv(step, k).mustBeBlob(1, size)
			to.recv(step, k).mustBeBlob(2, size)
			d.Release()
		}
	}
}

// intoDead: a dead value leaves the memory as it was.
func intoDead(w *world) {
	from, to := w.pair()
	k := w.key(from, to, "v")
	d := to.bytesToFill(mib)
	defer d.Release()
	for step, x := range []*tensor.Tensor{nil, w.blob(1, mib)} {
		if err := from.in(int64(step)+1).Send(k, noArgs, x, true); err != nil {
			w.Fatal(err)
		}
		if x != nil {
			x.Release()
		}
		r, _ := to.recvInto(w.ctx, int64(step)+1, k, d)
		r.isDead()
		d.isSafe()
		d.isUntouched()
	}
}

// intoStrings: strings do not fit into memory, whatever their number.
func intoStrings(w *world) {
	from, to := w.pair()
	k := w.key(from, to, "v")
	d := to.bytesToFill(8)
	defer d.Release()
	x, err := tensor.FromStrings(tensor.Vector(8), []string{"a", "b", "c", "d", "e", "f", "g", "h"})
	if err != nil {
		w.Fatal(err)
	}
	want, err := x.Clone(tensor.Heap{})
	if err != nil {
		w.Fatal(err)
	}
	defer want.Release()
	from.send(1, k, x)
	r, _ := to.recvInto(w.ctx, 1, k, d)
	r.mustFail(status.InvalidArgument, "string[8]")
	d.isUntouched()
	to.recv(1, k).mustEqual(want)
}

// intoAgain: one memory serves one receive after the other.
func intoAgain(w *world) {
	from, to := w.pair()
	k := w.key(from, to, "v")
	d := to.bytesToFill(256 * kib)
	defer d.Release()
	for i := range uint64(20) {
		from.send(1, k, w.blob(i, 256*kib))
	}
	for i := range uint64(20) {
		r, _ := to.recvInto(w.ctx, 1, k, d)
		r.mustFill(d, i, 256*kib)
	}
}

// intoInUse: two receives into one memory at once: the second is refused and consumes nothing.
func intoInUse(w *world) {
	from, to := w.pair()
	k := w.key(from, to, "v")
	d := to.bytesToFill(64 * kib)
	defer d.Release()
	first, _ := to.recvInto(w.ctx, 1, k, d)
	from.waiting(1)
	second, _ := to.recvInto(w.ctx, 1, w.key(from, to, "other"), d)
	second.mustFail(status.FailedPrecondition)
	from.send(1, k, w.blob(1, 64*kib))
	first.mustFill(d, 1, 64*kib)
	from.send(1, k, w.blob(2, 64*kib))
	d.Retain() // as a Send does
	r, _ := to.recvInto(w.ctx, 1, k, d)
	r.mustFail(status.FailedPrecondition)
	d.Release()
	to.recv(1, k).mustBeBlob(2, 64*kib)
}

// stuckInto starts a receive into d that has brought a part of its value, and hangs.
func (w *world) stuckInto(ctx context.Context, from, to *node, k rendezvous.Key, d destination) (*receive, Faults) {
	w.Helper()
	faults := w.faults(from)
	w.warm(from, to)
	stuck := faults.HoldAfter(300 * kib)
	from.send(1, k, w.blob(1, mib))
	r, _ := to.recvInto(ctx, 1, k, d)
	w.waitClosed("the transfer is in progress", stuck)
	return r, faults
}

// intoCancel: a cancelled receive keeps a reference to the memory until no late write can land
// there. From then on its content does not change, also when the flow continues.
func intoCancel(w *world) {
	from, to := w.pair()
	k := w.key(from, to, "v")
	d := to.bytesToFill(mib)
	ctx, cancel := context.WithCancel(w.ctx)
	defer cancel()
	r, faults := w.stuckInto(ctx, from, to, k, d)
	cancel()
	r.mustFail(status.Cancelled)
	d.isSafe()
	d.fill()
	faults.Release()
	to.recv(1, k).mustBeBlob(1, mib)
	w.pass(2 * settleTime) // time for a late write
	d.isUntouched()
	from.send(1, k, w.blob(2, mib))
	r, _ = to.recvInto(w.ctx, 1, k, d)
	r.mustFill(d, 2, mib)
	d.Release()
}

// intoAbort: likewise when the step is aborted. The receiver may release the memory at once.
func intoAbort(w *world) {
	from, to := w.pair()
	k := w.key(from, to, "v")
	d := to.bytesToFill(mib)
	r, faults := w.stuckInto(w.ctx, from, to, k, d)
	to.Manager().AbortStep(1, status.New(status.Internal, "enough"))
	r.mustFail(status.Internal, "enough")
	d.Release()
	faults.Release()
	w.pass(2 * settleTime) // the allocator finds a late write
}

// intoCut: a transfer whose connection breaks fills the memory by its next attempt.
func intoCut(w *world) {
	from, to := w.pair()
	k := w.key(from, to, "v")
	d := to.bytesToFill(mib)
	defer d.Release()
	faults := w.faults(from)
	w.warm(from, to)
	cut := faults.CutAfter(300 * kib)
	from.send(1, k, w.blob(1, mib))
	r, _ := to.recvInto(w.ctx, 1, k, d)
	w.waitClosed("the connection is cut", cut)
	r.mustFill(d, 1, mib)
}

// intoCuts: likewise with several breaks, so that attempts over several connections, and over
// both routes of a transport that has two, write to the same memory in turn.
func intoCuts(w *world) {
	from, to := w.pair()
	k := w.key(from, to, "v")
	d := to.bytesToFill(mib)
	defer d.Release()
	faults := w.faults(from)
	w.warm(from, to)
	for i := range uint64(3) {
		faults.Throttle(mib) // the second cut comes before the end of the transfer, on a busy machine, too
		cut := faults.CutAfter(200 * kib)
		from.send(1, k, w.blob(i, mib))
		r, _ := to.recvInto(w.ctx, 1, k, d)
		w.waitClosed("the connection is cut", cut)
		cut = faults.CutAfter(100 * kib)
		w.waitClosed("the connection is cut again", cut)
		faults.Throttle(0)
		r.mustFill(d, i, mib)
	}
}

// intoMany: many receives at once, each into its own memory.
func intoMany(w *world) {
	from, to := w.pair()
	const n, size = 24, 96 * kib
	var all []destination
	var receives []*receive
	for i := range n {
		d := to.bytesToFill(size)
		k := w.key(from, to, fmt.Sprint("v", i))
		r, _ := to.recvInto(w.ctx, 1, k, d)
		all, receives = append(all, d), append(receives, r)
	}
	for i := range n {
		from.send(1, w.key(from, to, fmt.Sprint("v", i)), w.blob(uint64(i), size))
	}
	for i, r := range receives {
		r.mustFill(all[i], uint64(i), size)
		all[i].Release()
	}
}
