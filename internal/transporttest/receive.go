package transporttest

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
)

// receive is a receive in progress. The case fails if it ends twice.
type receive struct {
	w       *world
	key     rendezvous.Key
	outcome chan outcome  // takes one
	taken   chan struct{} // closed when the case has taken it
	ends    atomic.Int32
}

// outcome is the result of a receive.
type outcome struct {
	value rendezvous.Value
	err   error
}

func (o outcome) release() {
	if o.err == nil {
		o.value.Tensor.Release()
	}
}

// recv starts a receive with the context of the case.
func (n *node) recv(step int64, k rendezvous.Key) *receive { return n.recvCtx(n.w.ctx, step, k) }

func (n *node) recvCtx(ctx context.Context, step int64, k rendezvous.Key) *receive {
	return n.recvArgs(ctx, step, k, noArgs)
}

func (n *node) recvArgs(ctx context.Context, step int64, k rendezvous.Key, args rendezvous.Args) *receive {
	r := &receive{w: n.w, key: k, outcome: make(chan outcome, 1), taken: make(chan struct{})}
	n.w.mu.Lock()
	n.w.receives = append(n.w.receives, r)
	n.w.mu.Unlock()
	end := func(v rendezvous.Value, _ rendezvous.Args, err error) {
		if r.ends.Add(1) != 1 {
			n.w.Errorf("the receive of %s has ended twice, now with %v", k.Edge(), err)
			outcome{v, err}.release()
			return
		}
		r.outcome <- outcome{v, err}
	}
	if n.w.suite.Blocking {
		go func() {
			v, err := n.in(step).Recv(ctx, k, args)
			end(v, args, err)
		}()
	} else {
		n.in(step).RecvAsync(ctx, k, args, end)
	}
	return r
}

// wait returns the outcome. The caller must release its value.
func (r *receive) wait() outcome {
	r.w.Helper()
	select {
	case o := <-r.outcome:
		close(r.taken)
		r.checkArrival(o)
		return o
	case <-time.After(r.w.timeout):
		r.w.Fatalf("the receive of %s has not ended after %v", r.key.Edge(), r.w.timeout)
		panic("not reached") //nolint:forbidigo // Fatalf does not return
	}
}

// checkArrival fails the case if a value does not tell which transport has carried it.
func (r *receive) checkArrival(o outcome) {
	r.w.Helper()
	if o.err != nil {
		return
	}
	a := o.value.Arrival()
	remote := r.key.Src().Task != r.key.Dst().Task
	if a.Bytes != o.value.Tensor.Size() || a.Attempts < 1 || a.Duration < 0 || a.Transport == "" || remote == (a.Transport == rendezvous.TransportLocal) {
		r.w.Errorf("receive of %s: the value of %d bytes says that it came as %+v", r.key.Edge(), o.value.Tensor.Size(), a)
	}
}

// inProgress reports whether the receive has not ended.
func (r *receive) inProgress() bool { return r.ends.Load() == 0 }

// value returns the tensor that the receive gets. It fails the case for an error or a dead
// value.
func (r *receive) value() *tensor.Tensor {
	r.w.Helper()
	o := r.wait()
	if o.err != nil {
		r.w.Fatalf("receive of %s: %v", r.key.Edge(), o.err)
	}
	if o.value.Dead {
		o.release()
		r.w.Fatalf("receive of %s: a dead value", r.key.Edge())
	}
	return o.value.Tensor
}

// mustEqual fails the case unless the receive gets a tensor equal to want.
func (r *receive) mustEqual(want *tensor.Tensor) {
	r.w.Helper()
	x := r.value()
	defer x.Release()
	tensortest.RequireEqual(r.w, want, x)
}

// mustBeNumber fails the case unless the receive gets number want.
func (r *receive) mustBeNumber(want int) {
	r.w.Helper()
	if got := r.number(); got != want {
		r.w.Fatalf("receive of %s brought number %d, want %d", r.key.Edge(), got, want)
	}
}

// number returns the number that the receive gets.
func (r *receive) number() int {
	r.w.Helper()
	x := r.value()
	defer x.Release()
	n, why := numberOf(x)
	if why != "" {
		r.w.Fatalf("receive of %s: %s", r.key.Edge(), why)
	}
	return n
}

// mustBeBlob fails the case unless the receive gets the blob of that seed and size.
func (r *receive) mustBeBlob(seed uint64, size int) {
	r.w.Helper()
	x := r.value()
	defer x.Release()
	if why := checkBlob(x, seed, size); why != "" {
		r.w.Fatalf("receive of %s: %s", r.key.Edge(), why)
	}
}

// mustFail fails the case unless the receive ends with an error of that code whose text
// contains all of words.
func (r *receive) mustFail(code status.Code, words ...string) {
	r.w.Helper()
	r.w.mustBe(r.failure(), code, words...)
}

// mustBeAborted is mustFail with Aborted of a kind.
func (r *receive) mustBeAborted(kind error, words ...string) {
	r.w.Helper()
	r.w.mustBeOfKind(r.failure(), kind, words...)
}

// mustBeOfKind fails the case unless err is Aborted of a kind, and of no other.
func (w *world) mustBeOfKind(err, kind error, words ...string) {
	w.Helper()
	w.mustBe(err, status.Aborted, words...)
	for _, k := range []error{status.ErrPeerRestarted, status.ErrStepEnded, status.ErrShutdown} {
		if is := errors.Is(err, k); is != errors.Is(k, kind) {
			w.Errorf("errors.Is(%v, %v) is %v", err, k, is)
		}
	}
}

// failure returns the error that the receive ends with. It fails the case if there is none.
func (r *receive) failure() error {
	r.w.Helper()
	o := r.wait()
	if o.err == nil {
		o.release()
		r.w.Fatalf("receive of %s brought a value, want an error", r.key.Edge())
	}
	return o.err
}

func (w *world) mustBe(err error, code status.Code, words ...string) {
	w.Helper()
	if status.CodeOf(err) != code {
		w.Fatalf("got the error %v, want %v", err, code)
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			w.Fatalf("the error %q does not contain %q", err, word)
		}
	}
}
