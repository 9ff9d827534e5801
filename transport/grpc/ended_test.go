package grpctransport

import (
	"context"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/internal/tensorflow/worker"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/transport"
)

// ender ends the step when a receive has been answered with a ticket.
type ender struct {
	transport.Worker
}

func (e ender) RecvTensor(ctx context.Context, req *tfpb.RecvTensorRequest) (*transport.TensorResponse, error) {
	r, err := e.Worker.RecvTensor(ctx, req)
	if w, ok := e.Worker.(*worker.Worker); ok {
		w.EndStep(req.GetStepId())
	}
	return r, err
}

// A step that ends before the content of a ticket is fetched: the receive ends with Aborted, like
// each receive of an ended step (ARCHITECTURE.md sections 3.6 and 6).
func TestStepEndsBeforeFetch(t *testing.T) {
	var cluster testCluster
	a := cluster.start(t, 0, nodeOptions{unaryLimit: 1024, wrap: func(w transport.Worker) transport.Worker { return ender{w} }})
	b := cluster.start(t, 1, nodeOptions{})
	k := a.key(b, "big")
	v, err := tensor.New(tensor.Uint8, tensor.Vector(1<<20), tensor.NewBuffer(make([]byte, 1<<20), nil))
	if err != nil {
		t.Fatal(err)
	}
	if err := a.manager.Find(1).Send(k, rendezvous.Args{}, v, false); err != nil {
		t.Fatal(err)
	}
	v.Release()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	got, err := b.manager.Find(1).Recv(ctx, k, rendezvous.Args{})
	if err == nil {
		got.Tensor.Release()
		return
	}
	if status.CodeOf(err) != status.Aborted {
		t.Errorf("a step that has ended: %v, want Aborted", err)
	}
}
