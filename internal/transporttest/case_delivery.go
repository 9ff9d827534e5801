package transporttest

import (
	"context"

	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// deliveryCases: the sender of a value learns once what became of it, and that it was received
// only after that (rendezvous.Delivery).
func deliveryCases() []testCase {
	return []testCase{
		{name: "ConfirmedAfterTheReceive", run: deliveryConfirmed},
		{name: "NotWhileInMidTransfer", run: deliveryTransferring},
		{name: "NotWhenCancelled", run: deliveryCancelled},
		{name: "OnceAfterABreak", run: deliveryCut},
		{name: "EndOfTheStep", run: deliveryEndOfStep},
		{name: "EndOfTheReceiver", run: deliveryEndOfReceiver},
	}
}

// deliver sends x by SendWait. It takes over the caller's reference.
func (n *node) deliver(step int64, k rendezvous.Key, x *tensor.Tensor) *rendezvous.Delivery {
	n.w.Helper()
	defer x.Release()
	d, err := n.in(step).SendWait(n.w.ctx, k, rendezvous.Args{}, x, false)
	if err != nil {
		n.w.Fatalf("SendWait of %s: %v", k.Edge(), err)
	}
	return d
}

// open fails the case if a value has its outcome.
func (w *world) open(d *rendezvous.Delivery, when string) {
	w.Helper()
	select {
	case <-d.Done():
		w.Errorf("%s the sender has the outcome %v", when, d.Err())
	default:
	}
}

// confirmed waits until the sender knows that a value was received.
func (w *world) confirmed(from *node, d *rendezvous.Delivery, k rendezvous.Key) {
	w.Helper()
	w.waitClosed("the sender has the outcome", d.Done())
	if d.Err() != nil {
		w.Errorf("the value was received, and the outcome is %v", d.Err())
	}
	if n := from.in(1).Unreceived(k.Dst().Task); n != 0 {
		w.Errorf("all was received, and %d bytes are counted", n)
	}
}

func deliveryConfirmed(w *world) {
	from, to := w.pair()
	k := w.key(from, to, "v")
	for i, size := range []int{8, mib} {
		d := from.deliver(1, k, w.blob(uint64(i), size)) //nolint:gosec // small
		w.settle()
		w.open(d, "before the receive")
		to.recv(1, k).mustBeBlob(uint64(i), size) //nolint:gosec // small
		w.confirmed(from, d, k)

		r := to.recv(1, k)
		from.waiting(1)
		d = from.deliver(1, k, w.blob(uint64(i), size)) //nolint:gosec // small
		r.mustBeBlob(uint64(i), size)                   //nolint:gosec // small
		w.confirmed(from, d, k)
	}
}

func deliveryTransferring(w *world) {
	from, to := w.pair()
	faults := w.faults(from)
	k := w.key(from, to, "v")
	w.warm(from, to)
	d := from.deliver(1, k, w.blob(1, mib))
	stuck := faults.HoldAfter(300 * kib)
	r := to.recv(1, k)
	w.waitClosed("the transfer is in progress", stuck)
	w.settle()
	w.open(d, "in mid transfer")
	faults.Release()
	r.mustBeBlob(1, mib)
	w.confirmed(from, d, k)
}

func deliveryCancelled(w *world) {
	from, to := w.pair()
	faults := w.faults(from)
	k := w.key(from, to, "v")
	w.warm(from, to)
	d := from.deliver(1, k, w.blob(1, mib))
	stuck := faults.HoldAfter(300 * kib)
	ctx, cancel := context.WithCancel(w.ctx)
	r := to.recvCtx(ctx, 1, k)
	w.waitClosed("the transfer is in progress", stuck)
	cancel()
	r.mustFail(status.Cancelled)
	faults.Release()
	from.keeps(0)
	w.settle()
	w.open(d, "after a cancel")
	to.recv(1, k).mustBeBlob(1, mib)
	w.confirmed(from, d, k)
}

func deliveryCut(w *world) {
	from, to := w.pair()
	faults := w.faults(from)
	k := w.key(from, to, "v")
	w.warm(from, to)
	d := from.deliver(1, k, w.blob(1, mib))
	cut := faults.CutAfter(300 * kib)
	r := to.recv(1, k)
	w.waitClosed("cut", cut)
	r.mustBeBlob(1, mib)
	w.confirmed(from, d, k)
}

func deliveryEndOfStep(w *world) {
	from, to := w.pair()
	faults := w.faults(from)
	k := w.key(from, to, "v")
	w.warm(from, to)
	matched, waits := from.deliver(1, k, w.blob(1, mib)), from.deliver(1, k, w.blob(2, mib))
	stuck := faults.HoldAfter(300 * kib)
	r := to.recv(1, k)
	w.waitClosed("the transfer is in progress", stuck)
	from.endStep(1)
	for _, d := range []*rendezvous.Delivery{matched, waits} {
		w.waitClosed("the sender has the outcome", d.Done())
		w.mustBeOfKind(d.Err(), status.ErrStepEnded, "Cleanup 1")
	}
	faults.Release()
	outcome := r.wait() // it may have come, or not
	outcome.release()
}

func deliveryEndOfReceiver(w *world) {
	from, to := w.pair()
	faults := w.faults(from)
	k := w.key(from, to, "v")
	w.warm(from, to)
	d := from.deliver(1, k, w.blob(1, mib))
	stuck := faults.HoldAfter(300 * kib)
	r := to.recv(1, k)
	w.waitClosed("the transfer is in progress", stuck)
	to.kill()
	if err := r.failure(); err == nil {
		w.Errorf("the receive of a process that was killed has not failed")
	}
	faults.Release()
	next := w.newNode(1)
	next.start(NodeOptions{})
	w.warm(from, next)
	w.waitClosed("the sender has the outcome", d.Done())
	w.mustBeOfKind(d.Err(), status.ErrPeerRestarted, "another process has taken the place of")
}
