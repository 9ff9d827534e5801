package transporttest

import (
	"context"

	"github.com/tryst-rdma/tryst/status"
)

// memoryCases: the parts of ARCHITECTURE.md section 4 that are visible from outside. Every
// case checks that all memory is released, and not written to afterwards.
func memoryCases() []testCase {
	return []testCase{
		{name: "SourceIsReleasedAfterTheReceive", run: sourceReleased},
		{name: "DestinationIsTheReceivers", run: destinationIsReceivers, heap: true},
		{name: "DestinationIsFreeAfterACancel", run: destinationFree},
		{name: "AllocatorRefuses", run: allocatorRefuses, heap: true},
	}
}

// sourceReleased: the sent tensor is released without the end of the step and without another
// receive.
func sourceReleased(w *world) {
	from, to := w.pair()
	k := w.key(from, to, "v")
	from.send(1, k, w.blob(1, mib))
	to.recv(1, k).mustBeBlob(1, mib)
	w.released(w.source)
}

// destinationIsReceivers: the received tensor is in memory of the receiver's allocator and has
// no other references.
func destinationIsReceivers(w *world) {
	from, to := w.pair()
	k := w.key(from, to, "v")
	sent := w.blob(1, 64*kib)
	defer sent.Release()
	if err := from.in(1).Send(k, noArgs, sent, false); err != nil {
		w.Fatal(err)
	}
	got := to.recv(1, k).value()
	defer got.Release()
	if to.memory.InUse() < 64*kib {
		w.Errorf("the receiver's allocator has allocated %d bytes, which is not the tensor's size", to.memory.InUse())
	}
	if !got.Buffer().Unique() {
		w.Fatal("the received tensor has another reference")
	}
	clear(got.Bytes())
	if why := checkBlob(sent, 1, 64*kib); why != "" {
		w.Errorf("writing to the received tensor has changed the sent one: %s", why)
	}
}

// destinationFree: the buffer of a cancelled transfer is released soon, while the connection
// still hangs. It is not written to when the flow continues.
func destinationFree(w *world) {
	from, to := w.pair()
	faults := w.faults(from)
	k := w.key(from, to, "v")
	w.warm(from, to)
	ctx, cancel := context.WithCancel(w.ctx)
	defer cancel()
	stuck := faults.HoldAfter(300 * kib)
	from.send(1, k, w.blob(1, mib))
	r := to.recvCtx(ctx, 1, k)
	w.waitClosed("the transfer is in progress", stuck)
	cancel()
	r.mustFail(status.Cancelled)
	w.released(to.memory)
	faults.Release()
	again := to.recv(1, k) // into memory of the same size
	again.mustBeBlob(1, mib)
}

// allocatorRefuses: without memory a receive ends with the allocator's error. Later receives
// work.
func allocatorRefuses(w *world) {
	from, to := w.pair()
	k := w.key(from, to, "v")
	to.memory.SetLimit(100 * kib)
	from.send(1, k, w.blob(1, mib))
	to.recv(1, k).mustFail(status.ResourceExhausted)
	k = w.key(from, to, "small")
	from.send(1, k, w.blob(2, 50*kib))
	to.recv(1, k).mustBeBlob(2, 50*kib)
}
