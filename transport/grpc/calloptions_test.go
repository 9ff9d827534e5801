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

// The tests H10 correspond to TensorFlow's tests of CallOptions, which pass a cancel and a
// timeout into a call. A context does that here.

// heldWorker passes on the context of each call at the server. GetStatus waits until
// release has a value, or for its context.
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

// held starts a server with a heldWorker, and a client of it.
func held(t *testing.T) (server, client *node, w heldWorker) {
	var c testCluster
	w.contexts, w.release = make(chan context.Context, 10), make(chan struct{})
	server = c.start(t, 0, nodeOptions{wrap: func(inner transport.Worker) transport.Worker {
		w.Worker = inner
		return w
	}})
	return server, c.start(t, 1, nodeOptions{}), w
}

// getStatus begins a call. The channel that it returns gets the call's error.
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

// TestH10CancelReachesTheCallUnderWay: the cancel ends the call at both sides, and no later
// call with this context reaches the server.
func TestH10CancelReachesTheCallUnderWay(t *testing.T) {
	server, client, w := held(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := getStatus(ctx, t, client, server)
	atServer := <-w.contexts
	if atServer.Err() != nil {
		t.Fatal("the context at the server ended before the cancel:", atServer.Err())
	}
	cancel()
	if err := <-ended; status.CodeOf(err) != status.Cancelled {
		t.Errorf("got %v, want Cancelled", err)
	}
	<-atServer.Done()
	if err := <-getStatus(ctx, t, client, server); status.CodeOf(err) != status.Cancelled {
		t.Errorf("a later call: got %v, want Cancelled", err)
	}
	if n := len(w.contexts); n != 0 {
		t.Errorf("%d calls reached the server after the cancel", n)
	}
}

// TestH10CancelAfterTheEnd: a cancel after the end of a call affects neither another call on
// the connection, nor the received value, nor the step.
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

// TestH10NoDeadlineByDefault: the server sees the deadline of a call's context, and none if
// that has none. A receive never passes its deadline to the server: the call may be repeated,
// so the requester keeps the deadline and cancels.
func TestH10NoDeadlineByDefault(t *testing.T) {
	server, client, w := held(t)
	limited, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	check := func(what string, want bool) {
		t.Helper()
		deadline, got := (<-w.contexts).Deadline()
		if got != want || got && time.Until(deadline) > waitLimit {
			t.Errorf("%s: the server sees a deadline: %v (%v), want %v", what, got, deadline, want)
		}
	}
	for name, ctx := range map[string]context.Context{"without": t.Context(), "with": limited} {
		ended := getStatus(ctx, t, client, server)
		check("a call "+name, ctx == limited)
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
		check("a receive "+name, false)
	}
}
