package worker

import (
	"context"
	"testing"

	"github.com/tryst-rdma/tryst/internal/delivery"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// BenchmarkEmptyStep is a RunGraph and its CleanupGraph without any node.
func BenchmarkEmptyStep(b *testing.B) {
	manager := rendezvous.NewManager(rendezvous.ManagerOptions{Session: rendezvous.NewSession(here, incarnation, 1)})
	kept := delivery.NewResponseCache(manager, delivery.CacheOptions{})
	w := New(Options{Task: here, Incarnation: incarnation, Manager: manager, Cache: kept, Kernels: new(fakeSet)})
	defer func() {
		w.Close()
		kept.Close()
		manager.Close()
	}()
	w.compile = func(*session, *tfpb.GraphDef) ([]part, error) {
		return []part{{executor: program(func(context.Context, *graph.Step) error { return nil })}}, nil
	}
	ctx := b.Context()
	if _, err := w.CreateWorkerSession(ctx, &tfpb.CreateWorkerSessionRequest{SessionHandle: "a"}); err != nil {
		b.Fatal(err)
	}
	g, err := w.RegisterGraph(ctx, registration("a", "n"))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for i := range b.N {
		req := running("a", g.GetGraphHandle(), int64(i+1))
		req.RequestId = int64(i + 1)
		if _, err := w.RunGraph(ctx, req); err != nil {
			b.Fatal(err)
		}
		if _, err := w.CleanupGraph(ctx, &tfpb.CleanupGraphRequest{StepId: int64(i + 1)}); err != nil {
			b.Fatal(err)
		}
	}
}
