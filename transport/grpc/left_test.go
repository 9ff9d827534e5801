package grpctransport

import (
	"context"
	"sync"
	"testing"

	"google.golang.org/grpc"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/transport"
)

// watched says before which of its calls it was told of a generation.
type watched struct {
	transport.Worker
	mu   sync.Mutex
	told []uint64 // since the last call
	seen [][]uint64
}

func (w *watched) leave(_ transport.Asker, generation uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.told = append(w.told, generation)
}

func (w *watched) RecvTensor(ctx context.Context, req *tfpb.RecvTensorRequest) (*transport.TensorResponse, error) {
	w.mu.Lock()
	w.seen, w.told = append(w.seen, w.told), nil
	w.mu.Unlock()
	return w.Worker.RecvTensor(ctx, req)
}

// TestLeftGenerationIsClosedFirst: what an attempt says of the channel that was
// left reaches the server before its worker is asked (ARCHITECTURE.md section 6,
// rule c).
func TestLeftGenerationIsClosedFirst(t *testing.T) {
	var c testCluster
	var w *watched
	sender := c.start(t, 0, nodeOptions{serve: func(s *grpc.Server, n *node) {
		w = &watched{Worker: n.worker}
		Register(s, ServiceOptions{
			Self: transport.Asker{Name: n.task.String(), Incarnation: n.incarnation}, Worker: w, Kept: n.kept,
			LeftGeneration: func(a transport.Asker, generation uint64) {
				if a.Name != task(1).String() {
					t.Errorf("%v has left", a)
				}
				w.leave(a, generation)
			},
		})
	}})
	receiver := c.start(t, 1, nodeOptions{})
	way, err := receiver.transport.Wire(sender.task)
	if err != nil {
		t.Fatal(err)
	}
	for id, left := range []uint64{0, 7} {
		key := sender.key(receiver, "x")
		v := value(t, sender.alloc, 4)
		sender.send(1, key, v)
		v.Release()
		got, err := way.Recv(t.Context(), &transport.Attempt{
			Ask: transport.Ask{
				Asker: transport.Asker{Name: receiver.task.String(), Incarnation: receiver.incarnation},
				ID:    uint64(id + 1), Attempt: 1, Step: 1, Key: key,
			},
			Peer: sender.incarnation, Left: left,
		})
		if err != nil {
			t.Fatal(err)
		}
		got.Tensor.Release()
	}
	if len(w.seen) != 2 || len(w.seen[0]) != 0 || len(w.seen[1]) != 1 || w.seen[1][0] != 7 {
		t.Errorf("told before each call: %v", w.seen)
	}
}
