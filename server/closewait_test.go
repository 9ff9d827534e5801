package server

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/proto/tensorflowgrpc"
	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
)

// TestCloseEndsADeliveryThatACallbackWaitsFor: the callback of a receive from a peer may block, and
// waits for the outcome of a value that its receiver never acknowledges.
func TestCloseEndsADeliveryThatACallbackWaitsFor(t *testing.T) {
	t.Run("grpc", func(t *testing.T) {
		at := twoPlaces(t)
		b := start(t, at(1), Options{})
		a, err := Start(t.Context(), at(0), Options{Allocator: tensortest.NewAllocator(t)})
		if err != nil {
			t.Fatal(err)
		}
		closeWithAWaitingCallback(t, a, b)
	})
	t.Run("roce", func(t *testing.T) {
		needsLoopback(t, "127.0.0.1")
		w := newVerbsTown(t, 2)
		var both [2]*VerbsServer
		for i := range both {
			v, err := StartVerbs(t.Context(), w.settings(i, func(c *Config) { c.Provider, c.RDMA.Timeout = "roce", 0 }), Options{Allocator: tensortest.NewAllocator(t)})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = v.Close(context.Background()) }) // the error is what the test is about
			both[i] = v
		}
		w.up(both[0], both[1].Task())
		w.up(both[1], both[0].Task())
		closeWithAWaitingCallback(t, both[0].Server, both[1].Server)
	})
}

func closeWithAWaitingCallback(t *testing.T, a, b *Server) {
	x := float(t, 1)
	defer x.Release()
	sent := make(chan *rendezvous.Delivery, 1)
	over := make(chan struct{})
	a.RecvAsync(context.Background(), 77, b.Task().String(), "go", func(v rendezvous.Value, err error) {
		defer close(over)
		if err != nil {
			t.Errorf("receive: %v", err)
			return
		}
		v.Tensor.Release()
		d, err := a.SendWait(context.Background(), 77, b.Task().String(), "y", x, false)
		if err != nil {
			t.Errorf("SendWait: %v", err)
			return
		}
		sent <- d
		<-d.Done()
	})
	first, err := b.SendWait(t.Context(), 77, a.Task().String(), "go", x, false)
	if err != nil {
		t.Fatal(err)
	}
	d := wait(t, sent, "SendWait")
	wait(t, first.Done(), "the confirmation of the first value") // else Close of b waits for it
	conn, err := grpc.NewClient(a.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := cluster.Task{Job: cluster.ClientJob, Index: 9}
	request := rawRequest(t, rawKey(t, a.Task(), a.Incarnation(), b.Task(), "y"), &trystpb.RecvOptions{Requester: client.String(), RequesterIncarnation: 4, Id: 1, Attempt: 1})
	if _, err := tensorflowgrpc.NewWorkerServiceClient(conn).RecvTensor(t.Context(), request); err != nil {
		t.Fatal(err)
	}

	now, cancel := context.WithCancel(t.Context())
	cancel()
	closed := make(chan error, 1)
	go func() { closed <- a.Close(now) }()
	if err := wait(t, closed, "Close"); !errors.Is(err, context.Canceled) {
		t.Errorf("Close: %v, want that the value was not acknowledged", err)
	}
	wait(t, over, "the callback")
	if status.CodeOf(d.Err()) != status.Aborted {
		t.Errorf("the outcome: %v, want Aborted", d.Err())
	}
}
