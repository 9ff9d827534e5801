package transporttest

import (
	"context"
	"fmt"

	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// publicationCases: the keys of a publication can be received in every step, any number of
// times, by reference (rule 1 of ARCHITECTURE.md section 3).
func publicationCases() []testCase {
	return []testCase{
		{name: "AnyNumberOfTimes", run: publishedOften},
		{name: "CancelInMidTransfer", run: publishedCancel},
		{name: "CutInMidTransfer", run: publishedCut},
		{name: "EndsForLaterReceives", run: publishedEnd},
	}
}

// publication is a rendezvous.Publisher of one tensor.
type publication struct {
	name string
	x    *tensor.Tensor
}

func (p *publication) Publishes(k rendezvous.Key) bool { return k.Edge() == p.name }

func (p *publication) TakePublished(k rendezvous.Key) (v rendezvous.Value, ok bool) {
	if k.Edge() != p.name {
		return v, false
	}
	return rendezvous.Value{Tensor: p.x.Retain()}, true
}

func (p *publication) RecvPublished(_ context.Context, k rendezvous.Key, done rendezvous.DoneFunc) bool {
	if k.Edge() != p.name {
		return false
	}
	done(rendezvous.Value{Tensor: p.x.Retain()}, rendezvous.Args{}, nil)
	return true
}

const published = 300 * kib

// publish publishes a blob under a name until the returned function is called.
func (n *node) publish(name string) (end func()) {
	p := &publication{name, n.w.blob(1, published)}
	n.Manager().AddPublisher(p)
	return func() {
		n.Manager().RemovePublisher(p)
		p.x.Release()
	}
}

func publishedOften(w *world) {
	from, a, b := w.start(0), w.start(1), w.start(2)
	defer from.publish("weights")()
	for i := range 5 {
		first := a.recv(int64(i), w.key(from, a, "weights"))
		second := b.recv(1, w.key(from, b, "weights"))
		third := b.recv(1, w.key(from, b, "weights"))
		for _, r := range []*receive{first, second, third} {
			r.mustBeBlob(1, published)
		}
	}
	if n := from.Manager().Steps(); n != 0 {
		w.Errorf("receives of a publication have made %d steps", n)
	}
}

// publishedCancel: a cancelled receive puts nothing back, since it took nothing.
func publishedCancel(w *world) {
	from, to := w.pair()
	faults := w.faults(from)
	w.warm(from, to)
	defer from.publish("weights")()
	k := w.key(from, to, "weights")
	stuck := faults.HoldAfter(published / 2)
	ctx, cancel := context.WithCancel(w.ctx)
	r := to.recvCtx(ctx, 2, k)
	w.waitClosed("the transfer is in progress", stuck)
	cancel()
	r.mustFail(status.Cancelled)
	faults.Release()
	from.keeps(0)
	to.recv(2, k).mustBeBlob(1, published)
	if n := from.Manager().Steps(); n > 1 { // the step of warm
		w.Errorf("the sender has %d steps, want 1", n)
	}
}

func publishedCut(w *world) {
	from, to := w.pair()
	faults := w.faults(from)
	w.warm(from, to)
	defer from.publish("weights")()
	cut := faults.CutAfter(published / 2)
	r := to.recv(2, w.key(from, to, "weights"))
	w.waitClosed("cut", cut)
	r.mustBeBlob(1, published)
}

// publishedEnd: a receive after the end waits for a Send, as for any key.
func publishedEnd(w *world) {
	from, to := w.pair()
	end := from.publish("weights")
	k := w.key(from, to, "weights")
	to.recv(1, k).mustBeBlob(1, published)
	end()
	ctx, cancel := context.WithCancel(w.ctx)
	r := to.recvCtx(ctx, 1, k)
	from.waiting(1)
	cancel()
	r.mustFail(status.Cancelled)
	w.waitUntil(fmt.Sprintf("%v has no step", from.task), func() bool { return from.Manager().Steps() == 0 })
}
