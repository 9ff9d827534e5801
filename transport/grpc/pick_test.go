package grpctransport_test

import (
	"context"
	"testing"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/transporttest"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	grpctransport "github.com/tryst-rdma/tryst/transport/grpc"
)

// TestCallsPassConnectionsThatAreDown: of several connections that broke, one is
// back and the others still wait before they try again. All calls go over that
// one.
func TestCallsPassConnectionsThatAreDown(t *testing.T) {
	const connections = 3
	task := cluster.Task{Job: "worker"}
	proxy := transporttest.NewProxy(t)
	c := &suiteCluster{t: t, proxies: map[cluster.Task]*transporttest.Proxy{task: proxy}}
	n := c.Start(task, transporttest.NodeOptions{Incarnation: 1, Allocator: tensor.Heap{}})
	defer n.Kill()
	conns := grpctransport.NewConns(grpctransport.ConnsOptions{
		Resolve: c.resolve, Dial: grpctransport.DialOptions{Connections: connections},
	})
	defer conns.Close()
	w, err := conns.Worker(task)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	call := func() error {
		_, err := w.CleanupGraph(ctx, &tfpb.CleanupGraphRequest{StepId: 1})
		return err
	}
	wait := func() {
		t.Helper()
		for { // a connection that was made before the cut may have taken the call
			_, err := w.GetStatus(ctx, &tfpb.GetStatusRequest{})
			if err == nil {
				return
			}
			if status.CodeOf(err) != status.Unavailable {
				t.Fatal(err)
			}
		}
	}
	for range 2 * connections {
		wait()
	}
	for round := range 10 {
		address := proxy.Target()
		proxy.SetTarget("")
		proxy.CutAfter(0)
		for range 2 * connections { // until each has failed to connect again
			if err := call(); status.CodeOf(err) != status.Unavailable {
				t.Fatalf("round %d: a call to nobody: %v", round, err)
			}
		}
		proxy.SetTarget(address)
		wait()
		for range 2 * connections {
			if err := call(); err != nil {
				t.Fatalf("round %d: one connection is up: %v", round, err)
			}
		}
	}
}
