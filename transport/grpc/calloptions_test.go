package grpctransport

import (
	"context"
	"testing"
	"time"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
	"github.com/tryst-rdma/tryst/transport"
)

// The tests H10 are those of TensorFlow's CallOptions, which carry a cancel and
// a timeout into a call. A context takes their place.

// heldWorker shows the context of each call at the server. GetStatus waits for
// a word from release, or for its context.
type heldWorker struct {
	transport.Worker
	contexts chan context.Context
	release  chan struct{}
}

func (w heldWorker) GetStatus(ctx context.Context, _ *tfpb.GetStatusRequest) (*tfpb.GetStatusResponse, error) {
	w.contexts <- ctx
	select {
	case <-w.release:
		return &tfpb.GetStatusResponse{}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (w heldWorker) RecvTensor(ctx context.Context, req *tfpb.RecvTensorRequest) (*transport.TensorResponse, error) {
	w.contexts <- ctx
	return w.Worker.RecvTensor(ctx, req)
}

// held starts a server whose worker is a heldWorker, and a client of it.
func held(t *testing.T) (server, client *node, w heldWorker) {
	var c testCluster
	w.contexts, w.release = make(chan context.Context, 10), make(chan struct{})
	server = c.start(t, 0, nodeOptions{wrap: func(inner transport.Worker) transport.Worker {
		w.Worker = inner
		return w
	}})
	return server, c.start(t, 1, nodeOptions{}), w
}

// getStatus begins a call and returns where it ends.
func getStatus(ctx context.Context, t *testing.T, client, server *node) <-chan error {
	t.Helper()
	stub, err := client.conns.Worker(server.task)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := stub.GetStatus(ctx, &tfpb.GetStatusRequest{})
		ended <- err
	}()
	return ended
}

func TestH10CancelReachesTheCallUnderWay(t *testing.T) {
	server, client, w := held(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := getStatus(ctx, t, client, server)
	there := <-w.contexts
	if there.Err() != nil {
		t.Fatal("ended before the cancel:", there.Err())
	}
	cancel()
	if err := <-ended; status.CodeOf(err) != status.Cancelled {
		t.Error(err)
	}
	<-there.Done()

	// A call that begins now does not reach the server.
	if err := <-getStatus(ctx, t, client, server); status.CodeOf(err) != status.Cancelled {
		t.Error(err)
	}
	if n := len(w.contexts); n != 0 {
		t.Errorf("%d calls came to the server after the cancel", n)
	}
}

// TestH10CancelAfterTheEnd: a late cancel reaches neither another call on the
// connection, nor the value that came, nor the step.
func TestH10CancelAfterTheEnd(t *testing.T) {
	server, client, w := held(t)
	ctx, cancel := context.WithCancel(t.Context())
	first := getStatus(ctx, t, client, server)
	<-w.contexts
	w.release <- struct{}{}
	if err := <-first; err != nil {
		t.Fatal(err)
	}
	second := getStatus(t.Context(), t, client, server)
	<-w.contexts
	key := server.key(client, "x")
	x := tensortest.Tensor(t, tensor.Float32, 300)
	server.send(1, key, x)
	v, err := client.manager.Find(1).Recv(ctx, key, rendezvous.Args{})
	if err != nil {
		t.Fatal(err)
	}
	<-w.contexts

	cancel()
	server.send(1, key, x)
	next := client.recv(1, key)
	tensortest.RequireEqual(t, x, v.Tensor)
	tensortest.RequireEqual(t, x, next.Tensor)
	v.Tensor.Release()
	next.Tensor.Release()
	w.release <- struct{}{}
	if err := <-second; err != nil {
		t.Errorf("another call ended with %v", err)
	}
}

// TestH10NoDeadlineByDefault: the server sees the deadline of a call's context,
// and none when it has none. A receive never takes its own to the server: the
// receiver keeps it, since the call may be repeated, and says when it is over.
func TestH10NoDeadlineByDefault(t *testing.T) {
	server, client, w := held(t)
	limited, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	look := func(what string, want bool) {
		t.Helper()
		deadline, got := (<-w.contexts).Deadline()
		if got != want || got && time.Until(deadline) > patience {
			t.Errorf("%s: the server sees the deadline %v, %v", what, deadline, got)
		}
	}
	for name, ctx := range map[string]context.Context{"without": t.Context(), "with": limited} {
		ended := getStatus(ctx, t, client, server)
		look("a call "+name, ctx == limited)
		w.release <- struct{}{}
		if err := <-ended; err != nil {
			t.Error(err)
		}
		key := server.key(client, name)
		server.send(1, key, tensortest.Tensor(t, tensor.Float32, 300))
		v, err := client.manager.Find(1).Recv(ctx, key, rendezvous.Args{})
		if err != nil {
			t.Fatal(err)
		}
		v.Tensor.Release()
		look("a receive "+name, false)
	}
}
