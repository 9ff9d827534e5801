package grpctransport

import (
	"context"
	"sync"
	"testing"

	"google.golang.org/grpc"

	"github.com/tryst-rdma/tryst/internal/delivery"
	"github.com/tryst-rdma/tryst/internal/tensorflow/worker"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/transport"
)

// watched records which generation was left before each look-up of a value.
type watched struct {
	*rendezvous.Manager
	mu   sync.Mutex
	left []uint64 // since the last look
	seen [][]uint64
}

func (w *watched) leave(generation uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.left = append(w.left, generation)
}

func (w *watched) RecvLocalAsync(ctx context.Context, step int64, key rendezvous.Key, done rendezvous.DoneFunc) {
	w.look()
	w.Manager.RecvLocalAsync(ctx, step, key, done)
}

func (w *watched) TakeLocal(step int64, key rendezvous.Key) (rendezvous.Value, bool) {
	w.look()
	return w.Manager.TakeLocal(step, key)
}

func (w *watched) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen, w.left = append(w.seen, w.left), nil
}

// TestLeftGenerationIsClosedFirst: the channel that an attempt reports as left is closed before its
// value is looked up (ARCHITECTURE.md section 6, rule c).
func TestLeftGenerationIsClosedFirst(t *testing.T) {
	var c testCluster
	var w *watched
	sender := c.start(t, 0, nodeOptions{serve: func(s *grpc.Server, n *node) {
		w = &watched{Manager: n.manager}
		kept := delivery.NewResponseCache(w, delivery.CacheOptions{})
		t.Cleanup(kept.Close)
		Register(s, ServiceOptions{
			Self: transport.Process{Name: n.task.String(), Incarnation: n.incarnation}, Cache: kept,
			Worker: worker.New(worker.Options{Task: n.task, Incarnation: n.incarnation, Manager: n.manager, Cache: kept}),
			LeftGeneration: func(a transport.Process, generation uint64) (func(), error) {
				if a.Name != task(1).String() {
					t.Errorf("%v has left", a)
				}
				return func() { w.leave(generation) }, nil
			},
		})
	}})
	receiver := c.start(t, 1, nodeOptions{})
	conn, err := receiver.transport.Conn(sender.task)
	if err != nil {
		t.Fatal(err)
	}
	for id, left := range []uint64{0, 7} {
		key := sender.key(receiver, "x")
		v := value(t, sender.alloc, 4)
		sender.send(1, key, v)
		v.Release()
		got, err := conn.Begin(&transport.Receive{
			Request: transport.Request{
				Requester: transport.Process{Name: receiver.task.String(), Incarnation: receiver.incarnation},
				ID:        uint64(id + 1), Attempt: 1, Step: 1, Key: key,
			},
			Peer: sender.incarnation, Left: left,
		}).Wait(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got.Tensor.Release()
	}
	if len(w.seen) != 2 || len(w.seen[0]) != 0 || len(w.seen[1]) != 1 || w.seen[1][0] != 7 {
		t.Errorf("left before each look: %v", w.seen)
	}
}
