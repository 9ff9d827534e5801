package grpctransport

import (
	"context"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tryst-rdma/tryst/cluster"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/transport"
)

// TestEndOfAConnectionIsReported: both sides report it, once for each key and task, and not before.
func TestEndOfAConnectionIsReported(t *testing.T) {
	var c testCluster
	served := make(chan string, 10)
	var late context.Context
	a := c.start(t, 0, nodeOptions{wrap: func(w transport.Worker) transport.Worker {
		return &recorder{Worker: w, got: func(ctx context.Context, _ proto.Message) {
			for _, key := range []string{"x", "y", "x"} {
				WhenDisconnected(ctx, key, func() { served <- key })
			}
			late = ctx
		}}
	}})
	b := c.start(t, 1, nodeOptions{})
	dialed := make(chan cluster.Task, 10)
	b.conns.opts.Disconnected = func(task cluster.Task) { dialed <- task }
	w, err := b.conns.Worker(a.task)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.GetStatus(t.Context(), &tfpb.GetStatusRequest{}); err != nil {
		t.Fatal(err)
	}
	if len(served) > 0 || len(dialed) > 0 {
		t.Error("the end was reported while the connection was there")
	}
	a.close()
	got := make(map[string]int)
	end := time.After(waitLimit)
	for len(got) < 2 || len(dialed) == 0 {
		select {
		case key := <-served:
			got[key]++
		case <-time.After(time.Millisecond): // look at dialed
		case <-end:
			t.Fatalf("reported: %v at the server, %d at the client", got, len(dialed))
		}
	}
	if task := <-dialed; task != a.task || got["x"] != 1 || got["y"] != 1 || len(served) > 0 {
		t.Errorf("reported: %v of %v", got, task)
	}
	now := false
	WhenDisconnected(late, "z", func() { now = true })
	if !now {
		t.Error("a connection that has ended was not reported")
	}
	WhenDisconnected(context.Background(), "z", func() { t.Error("there was no connection") })
}
