package server

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/stats"

	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
)

// asksAgain ends a context when a call of Hello begins after a receive was refused by another process than it was for.
type asksAgain struct {
	stats.Handler
	refused atomic.Int32
	cancel  atomic.Pointer[context.CancelFunc]
}

type methodKey struct{}

func (h *asksAgain) TagRPC(ctx context.Context, info *stats.RPCTagInfo) context.Context {
	if cancel := h.cancel.Load(); cancel != nil && h.refused.Load() > 0 && strings.HasSuffix(info.FullMethodName, "/Hello") {
		(*cancel)()
		<-ctx.Done() // the question ends when no receive waits for its answer
	}
	return context.WithValue(ctx, methodKey{}, info.FullMethodName)
}

func (h *asksAgain) HandleRPC(ctx context.Context, s stats.RPCStats) {
	end, ok := s.(*stats.End)
	method, _ := ctx.Value(methodKey{}).(string)
	if ok && end.Error != nil && strings.HasSuffix(method, "/RecvTensor") && strings.Contains(end.Error.Error(), "restarted") {
		h.refused.Add(1)
	}
}

func (h *asksAgain) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (h *asksAgain) HandleConn(context.Context, stats.ConnStats)                       {}

// TestContextEndsWhileTheIncarnationIsAskedForAgain: the receive ends with its context, and not with what the present process said
// of a key of an earlier one.
func TestContextEndsWhileTheIncarnationIsAskedForAgain(t *testing.T) {
	for name, recv := range map[string]func(context.Context, *Edge, int64, func(rendezvous.Value, error)){
		"Recv": func(ctx context.Context, e *Edge, step int64, done func(rendezvous.Value, error)) {
			go func() { done(e.Recv(ctx, step)) }()
		},
		"RecvAsync": func(ctx context.Context, e *Edge, step int64, done func(rendezvous.Value, error)) {
			e.RecvAsync(ctx, step, done)
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := new(asksAgain)
			r := &restarted{t: t, at: twoPlaces(t, func(c *Config) { c.Transport = TransportGRPC })}
			r.b = start(t, r.at(1), Options{ClientStats: h})
			r.startPeer()
			e := r.b.edge(t, r.a.Task().String(), "x")
			x := float(t, 1)
			defer x.Release()
			receive := func(ctx context.Context, step int64) <-chan outcome {
				o := make(chan outcome, 1)
				recv(ctx, e, step, func(v rendezvous.Value, err error) { o <- outcome{v, err} })
				return o
			}
			if err := r.a.Send(1, r.b.Task().String(), "x", x, false); err != nil {
				t.Fatal(err)
			}
			wantFloat(t, wait(t, receive(t.Context(), 1), "a receive from the first process"), 1)
			r.stopPeer()
			r.startPeer()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			h.cancel.Store(&cancel)
			wantError(t, wait(t, receive(ctx, 2), "the receive").err, status.Cancelled)
			if h.refused.Load() == 0 {
				t.Error("the test is void: no receive was refused")
			}
		})
	}
}
