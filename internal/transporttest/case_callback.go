package transporttest

import (
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
)

// callbackCases: the callback of a remote receive may block and may call the rendezvous (rule
// 2 of ARCHITECTURE.md section 3).
func callbackCases() []testCase {
	return []testCase{
		{name: "Blocks", run: callbackBlocks},
		{name: "Sends", run: callbackSends},
		{name: "Receives", run: callbackReceives},
		{name: "Aborts", run: callbackAborts},
	}
}

// after starts a receive and calls f in its callback. The channel is closed when f has
// returned.
func (n *node) after(step int64, k rendezvous.Key, f func()) <-chan struct{} {
	done := make(chan struct{})
	n.in(step).RecvAsync(n.w.ctx, k, noArgs, func(v rendezvous.Value, _ rendezvous.Args, err error) {
		defer close(done)
		outcome{v, err}.release()
		if err != nil {
			n.w.Errorf("receive of %s: %v", k.Edge(), err)
			return
		}
		f()
	})
	return done
}

// callbackBlocks: a callback that waits for another receive delays no receive.
func callbackBlocks(w *world) {
	from, to := w.pair()
	first, second := w.key(from, to, "first"), w.key(from, to, "second")
	gate := make(chan struct{})
	inside := make(chan struct{})
	from.sendNumber(1, first, 1)
	done := to.after(1, first, func() {
		close(inside)
		<-gate
	})
	defer func() { w.waitClosed("the callback returns", done) }()
	defer close(gate)
	w.waitClosed("the callback runs", inside)
	for i := range 20 {
		from.sendNumber(1, second, i)
		to.recv(1, second).mustBeNumber(i)
	}
}

func callbackSends(w *world) {
	a, b := w.pair()
	ping, pong := w.key(a, b, "ping"), w.key(b, a, "pong")
	r := a.recv(1, pong)
	done := b.after(1, ping, func() { b.sendNumber(1, pong, 2) })
	a.sendNumber(1, ping, 1)
	r.mustBeNumber(2)
	w.waitClosed("the callback returns", done)
}

// callbackReceives: a callback starts a receive and waits for it.
func callbackReceives(w *world) {
	from, to := w.pair()
	first, second := w.key(from, to, "first"), w.key(from, to, "second")
	var got int
	var failed error
	done := to.after(1, first, func() {
		v, err := to.in(1).Recv(w.ctx, second, noArgs)
		if err != nil {
			failed = err
			return
		}
		defer v.Tensor.Release()
		got, _ = numberOf(v.Tensor)
	})
	from.sendNumber(1, first, 1)
	from.sendNumber(1, second, 2)
	w.waitClosed("the callback returns", done)
	if failed != nil || got != 2 {
		w.Fatalf("the receive within the callback brought %d, %v", got, failed)
	}
}

func callbackAborts(w *world) {
	from, to := w.pair()
	first, second := w.key(from, to, "first"), w.key(from, to, "second")
	other := to.recv(1, second)
	from.waiting(1)
	done := to.after(1, first, func() { to.in(1).Abort(kernelFailed()) })
	from.sendNumber(1, first, 1)
	other.mustFail(status.Internal, "node mul")
	w.waitClosed("the callback returns", done)
}
