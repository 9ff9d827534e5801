package worker

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// TestAStepWhoseMasterWasGoneBeforeItBeganIsCleanedUp like one whose master goes later.
func TestAStepWhoseMasterWasGoneBeforeItBeganIsCleanedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGraphs(t, Options{})
		s := g.open(&tfpb.CreateWorkerSessionRequest{})
		handle := g.register(s, func(ctx context.Context, _ *graph.Step) error { return ctx.Err() })
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := g.RunGraph(ctx, running(s, handle, 1)); err == nil {
			t.Error("the step has run")
		}
		time.Sleep(abandonedAfter + time.Second)
		synctest.Wait()
		g.sessions.mu.Lock()
		owned := len(g.sessions.steps)
		g.sessions.mu.Unlock()
		if n := g.manager.Steps(); n != 0 || owned != 0 {
			t.Errorf("%d steps are left in the rendezvous and %d in the sessions", n, owned)
		}
	})
}

// TestNegativeStepsAreRefused: they belong to the buffers of collective operations (TestBufferKeys),
// which a foreign cleanup, a failed run or the cancel of a foreign receive would end: those of
// Groups, whose step a cleanup does not reach, too.
func TestNegativeStepsAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGraphs(t, Options{CacheRPCResponse: true})
		s := g.open(&tfpb.CreateWorkerSessionRequest{})
		handle := g.register(s, nothing)
		run := running(s, handle, -1)
		_, err := g.RunGraph(t.Context(), run)
		wantCode(t, err, status.InvalidArgument, "step_id -1 is negative")
		run.IsPartial = true
		_, err = g.RunGraph(t.Context(), run)
		wantCode(t, err, status.InvalidArgument, "step_id -1 is negative")
		_, err = g.CleanupGraph(t.Context(), &tfpb.CleanupGraphRequest{StepId: -1})
		wantCode(t, err, status.InvalidArgument, "step_id -1 is negative")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for _, id := range []int64{0, 7} {
			req := request(-1, "x")
			req.RequestId = id
			_, err = g.RecvTensor(ctx, req)
			wantCode(t, err, status.InvalidArgument, "step_id -1 is negative")
		}
		time.Sleep(2 * time.Second) // a cancelled receive aborts its step later
		synctest.Wait()
		if err := g.manager.Err(-1); err != nil {
			t.Errorf("the step of buffers has ended: %v", err)
		}
		g.send(-1, "x", 3)
		r, err := g.RecvTensor(t.Context(), asTryst(t, request(-1, "x"), 1, 1)) // a buffer is requested like this
		if got := value(t, r, err); got != 3 {
			t.Errorf("a Tryst peer received %v", got)
		}
		g.EndStep(-1)
	})
}
