package worker

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tryst-rdma/tryst/graph"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
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
