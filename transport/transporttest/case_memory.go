package transporttest

import (
	"context"

	"github.com/tryst-rdma/tryst/status"
)

// memoryCases: ARCHITECTURE.md section 4, as far as it shows from outside. That
// all memory is given back and not written to afterwards every case checks.
func memoryCases() []testCase {
	return []testCase{
		{name: "SourceIsReleasedAfterTheReceive", run: sourceReleased},
		{name: "DestinationIsTheReceivers", run: destinationIsReceivers, heap: true},
		{name: "DestinationIsFreeAfterACancel", run: destinationFree},
		{name: "AllocatorRefuses", run: allocatorRefuses, heap: true},
	}
}

// sourceReleased: without the end of the step, or another receive.
func sourceReleased(w *world) {
	from, to := w.pair()
	k := w.key(from, to, "v")
	from.send(1, k, w.blob(1, mib))
	to.recv(1, k).mustBeBlob(1, mib)
	w.released(w.source)
}

// destinationIsReceivers: the tensor received is in memory of the receiver's
// allocator, and nobody else's.
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
		w.Errorf("the receiver's allocator has given %d bytes, not the tensor's", to.memory.InUse())
	}
	if !got.Buffer().Unique() {
		w.Fatal("somebody else has a reference to what was received")
	}
	clear(got.Bytes())
	if why := checkBlob(sent, 1, 64*kib); why != "" {
		w.Errorf("writing to the received tensor has changed the sent one: %s", why)
	}
}

// destinationFree: what had arrived of a cancelled transfer is given back soon,
// while the wire is still stuck, and not written to when it goes on.
func destinationFree(w *world) {
	from, to := w.pair()
	link := w.link(from)
	k := w.key(from, to, "v")
	w.warm(from, to)
	ctx, cancel := context.WithCancel(w.ctx)
	defer cancel()
	stuck := link.HoldAfter(300 * kib)
	from.send(1, k, w.blob(1, mib))
	r := to.recvCtx(ctx, 1, k)
	w.waitClosed("the transfer is in progress", stuck)
	cancel()
	r.mustFail(status.Cancelled)
	w.released(to.memory)
	link.Release()
	again := to.recv(1, k) // into memory of the same size
	again.mustBeBlob(1, mib)
}

// allocatorRefuses: a receiver without memory is told so, and lives.
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
