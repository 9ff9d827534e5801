package grpctransport

import (
	"context"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
)

const forEver = 1 << 30 // times

// throughResets is a sender and a receiver with a proxy between them that resets streams.
func throughResets(t *testing.T, sender, receiver nodeOptions) (a, b *node, p *resets) {
	t.Helper()
	c := new(testCluster)
	a = c.start(t, 0, sender)
	p = newResets(t, a.address)
	receiver.addresses = map[int]string{0: p.listener.Addr().String()}
	return a, c.start(t, 1, receiver), p
}

// awaitKept waits until a node has n cached responses.
func (n *node) awaitKept(want int) {
	n.t.Helper()
	for end := time.Now().Add(waitLimit); n.kept.Stats().Kept != want; {
		if time.Now().After(end) {
			n.t.Fatalf("%d answers are kept, want %d", n.kept.Stats().Kept, want)
		}
		<-time.After(time.Millisecond)
	}
}

// TestResetOfACallLosesNothing: gRPC may end any call with various codes. Without the worker's
// trailer none of them is the worker's own error.
func TestResetOfACallLosesNothing(t *testing.T) {
	codes := []http2.ErrCode{
		http2.ErrCodeInternal, http2.ErrCodeEnhanceYourCalm, http2.ErrCodeRefusedStream, http2.ErrCodeCancel,
		http2.ErrCodeInadequateSecurity, http2.ErrCodeNo,
	}
	for _, call := range []struct {
		method string
		after  int
		large  bool // the value comes in chunks
	}{
		{method: "Hello"}, {method: "RecvTensor"}, {method: "RecvTensor", after: 1}, {method: "Fetch", large: true},
		{method: "Fetch", after: 100_000, large: true}, {method: "MarkRecvFinished"},
	} {
		t.Run(call.method, func(t *testing.T) {
			for _, code := range codes {
				unary := int64(0)
				if call.large {
					unary = 1000
				}
				a, b, p := throughResets(t, nodeOptions{unaryLimit: unary}, nodeOptions{})
				p.reset(call.method, resetRule{code: code, times: 2, after: call.after})
				x := value(t, a.alloc, 1<<16)
				k := a.key(b, "x")
				a.send(1, k, x)
				v := b.recv(1, k)
				tensortest.RequireEqual(t, x, v.Tensor)
				v.Tensor.Release()
				x.Release()
				a.awaitKept(0)
				for p.resetsOf(call.method) < 2 && t.Context().Err() == nil { // MarkRecvFinished is said again
					<-time.After(time.Millisecond)
				}
				waitReleased(t, a.alloc) // gRPC drops a message that is queued for a stream that was just reset
			}
		})
	}
}

// TestResetOfCancelLosesNothing: the value returns to its key although the cancel is reset.
func TestResetOfCancelLosesNothing(t *testing.T) {
	a, b, p := throughResets(t, nodeOptions{}, nodeOptions{})
	p.reset("Cancel", resetRule{code: http2.ErrCodeInternal, times: 2})
	// The response is in transfer when the receive is cancelled, and the proxy loses it.
	p.reset("RecvTensor", resetRule{code: http2.ErrCodeRefusedStream, times: forEver})
	x := value(t, a.alloc, 100)
	defer x.Release()
	k := a.key(b, "x")
	a.send(1, k, x)
	ctx, cancel := context.WithCancel(t.Context())
	c := b.begin(ctx, 1, k)
	a.awaitKept(1)
	cancel()
	if o := <-c; status.CodeOf(o.err) != status.Cancelled {
		t.Errorf("got %v", o.err)
	}
	a.awaitKept(0)
	p.reset("RecvTensor", resetRule{})
	v := b.recv(1, k)
	tensortest.RequireEqual(t, x, v.Tensor)
	v.Tensor.Release()
}

// TestResetForEverEndsInWords: a receive whose calls are always reset ends with an error that
// explains it. The next receive gets the value.
func TestResetForEverEndsInWords(t *testing.T) {
	for _, c := range []struct {
		method string
		code   http2.ErrCode
		want   status.Code
	}{
		{"RecvTensor", http2.ErrCodeInternal, status.Internal},
		{"RecvTensor", http2.ErrCodeInadequateSecurity, status.PermissionDenied},
		{"Fetch", http2.ErrCodeEnhanceYourCalm, status.ResourceExhausted},
		{"Hello", http2.ErrCodeInternal, status.Internal},
	} {
		a, b, p := throughResets(t, nodeOptions{unaryLimit: 1000}, nodeOptions{})
		p.reset(c.method, resetRule{code: c.code, times: forEver})
		x := value(t, a.alloc, 1<<16)
		k := a.key(b, "x")
		a.send(1, k, x)
		o := <-b.begin(t.Context(), 1, k)
		if e := status.From(o.err); status.CodeOf(e) != c.want || !strings.Contains(e.Message(), "3 times in a row") || !strings.Contains(e.Message(), a.task.String()) {
			t.Errorf("%s, %v: %v", c.method, c.code, o.err)
		}
		if n := p.resetsOf(c.method); n != 3 {
			t.Errorf("%s, %v: %d calls were made, want 3", c.method, c.code, n)
		}
		p.reset(c.method, resetRule{})
		v := b.recv(1, k)
		tensortest.RequireEqual(t, x, v.Tensor)
		v.Tensor.Release()
		x.Release()
		a.awaitKept(0)
		waitReleased(t, a.alloc)
	}
}

// TestResetsOfALargeTensorThatComesOn: a receive that gets a part of its content with each attempt
// continues, however often it is reset.
func TestResetsOfALargeTensorThatComesOn(t *testing.T) {
	a, b, p := throughResets(t, nodeOptions{unaryLimit: 1000}, nodeOptions{})
	p.reset("Fetch", resetRule{code: http2.ErrCodeInternal, times: 5, after: chunkSize + chunkSize/2})
	x := value(t, a.alloc, 8<<20/4)
	k := a.key(b, "x")
	a.send(1, k, x)
	v := b.recv(1, k)
	tensortest.RequireEqual(t, x, v.Tensor)
	v.Tensor.Release()
	if n := p.resetsOf("Fetch"); n != 5 {
		t.Errorf("%d calls were reset, want 5", n)
	}
	x.Release()
	a.awaitKept(0)
	waitReleased(t, a.alloc) // gRPC drops what it had not written of a call that was reset
}

// TestReceiverWithoutMemoryLosesNothing: the next receive, which has memory, gets the value.
func TestReceiverWithoutMemoryLosesNothing(t *testing.T) {
	for name, unary := range map[string]int64{"in one message": 0, "in chunks": 1000} {
		t.Run(name, func(t *testing.T) {
			c := new(testCluster)
			pool := tensor.NewPool(tensor.PoolOptions{Limit: 1 << 20})
			a := c.start(t, 0, nodeOptions{unaryLimit: unary})
			b := c.start(t, 1, nodeOptions{alloc: pool})
			x := value(t, a.alloc, 1<<16)
			defer x.Release()
			k := a.key(b, "x")
			a.send(1, k, x)
			full, err := pool.Allocate(900 << 10)
			if err != nil {
				t.Fatal(err)
			}
			for range 3 {
				if _, err = b.manager.Find(1).Recv(t.Context(), k, rendezvous.Args{}); status.CodeOf(err) != status.ResourceExhausted {
					t.Errorf("got %v, want ResourceExhausted", err)
				}
			}
			full.Release()
			v := b.recv(1, k)
			tensortest.RequireEqual(t, x, v.Tensor)
			v.Tensor.Release()
			a.awaitKept(0)
		})
	}
}
