//go:build interop

package tensorflow_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/config"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/server"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
	"github.com/tryst-rdma/tryst/transport"
	grpctransport "github.com/tryst-rdma/tryst/transport/grpc"
)

// soon bounds what a test waits for; a test that needs it fails.
const soon = time.Minute

// world is the cluster of one test.
type world struct {
	t        testing.TB
	server   *server.Server // task 1
	alloc    *tensortest.Allocator
	registry *prometheus.Registry

	process       *process
	theirs        string               // TensorFlow's address
	conns         *grpctransport.Conns // of the master, which is the test
	tf            transport.Worker     // TensorFlow's, as the master calls it
	tfIncarnation uint64
	session       string
}

// options of a world; the zero value is what most tests need.
type options struct {
	workerArgs []string             // further arguments of worker.py
	config     func(*config.Config) // changes the settings of the Tryst server
}

// start starts a world that ends with the test.
func start(t testing.TB, o options) *world {
	t.Helper()
	w := &world{t: t, alloc: tensortest.NewAllocator(t), registry: prometheus.NewRegistry()}

	// TensorFlow is told our address before we know its own, so the port is
	// held until the server takes it.
	held, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ours := held.Addr().String()
	w.process, w.theirs = startWorker(t, append([]string{ours}, o.workerArgs...)...)
	held.Close()

	c := config.Default()
	c.Listen = ours
	c.Task = cluster.Task{Job: "worker", Index: 1}
	if c.Cluster, err = cluster.SpecFromLists(map[string][]string{"worker": {w.theirs, ours}}); err != nil {
		t.Fatal(err)
	}
	if o.config != nil {
		o.config(&c)
	}
	if w.server, err = server.Start(t.Context(), c, server.Options{Allocator: w.alloc, Registry: w.registry}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.stopServer)

	w.conns = grpctransport.NewConns(grpctransport.ConnsOptions{Self: cluster.ClientTask(), Spec: c.Cluster, Allocator: w.alloc})
	t.Cleanup(func() { w.conns.Close() })
	if w.tf, err = w.conns.Worker(tfTask); err != nil {
		t.Fatal(err)
	}
	w.openSession()
	return w
}

// in returns the world for a subtest.
func (w *world) in(t testing.TB) *world {
	sub := *w
	sub.t = t
	return &sub
}

var tfTask = cluster.Task{Job: "worker", Index: 0}

func (w *world) stopServer() {
	if err := w.server.Close(context.Background()); err != nil {
		w.t.Errorf("server: Close: %v", err)
	}
}

// openSession does what a master does before the first graph.
func (w *world) openSession() {
	w.t.Helper()
	ctx := w.soon()
	st, err := w.tf.GetStatus(ctx, &tfpb.GetStatusRequest{})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, d := range st.GetDeviceAttributes() {
		if d.GetName() == tfDevice {
			w.tfIncarnation = d.GetIncarnation()
		}
	}
	if w.tfIncarnation == 0 {
		w.t.Fatalf("TensorFlow has no device %s: %v", tfDevice, st)
	}
	w.session = fmt.Sprintf("%016x", rand.Uint64())
	if _, err := w.tf.CreateWorkerSession(ctx, &tfpb.CreateWorkerSessionRequest{
		SessionHandle: w.session,
		ServerDef:     &tfpb.ServerDef{Protocol: "grpc", JobName: "worker", TaskIndex: 0},
		MasterTask:    "/job:worker/replica:0/task:1", MasterIncarnation: int64(w.server.Incarnation()),
	}); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if w.process.killed {
			return
		}
		if _, err := w.tf.DeleteWorkerSession(w.soonAfterTest(), &tfpb.DeleteWorkerSessionRequest{SessionHandle: w.session}); err != nil {
			w.t.Errorf("DeleteWorkerSession: %v", err)
		}
	})
}

// soon returns a context for what should not take long.
func (w *world) soon() context.Context {
	ctx, cancel := context.WithTimeout(w.t.Context(), soon)
	w.t.Cleanup(cancel)
	return ctx
}

// soonAfterTest is soon in a cleanup.
func (w *world) soonAfterTest() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	w.t.Cleanup(cancel)
	return ctx
}

// metric returns the sum of one of the server's gauges or counters: of all its
// values, or of those that have a label of the given value.
func (w *world) metric(name, label string) (sum float64) {
	w.t.Helper()
	families, err := w.registry.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			has := label == ""
			for _, l := range m.GetLabel() {
				has = has || l.GetValue() == label
			}
			if has {
				sum += m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

// steps returns how many steps the server has.
func (w *world) steps() float64 {
	w.t.Helper()
	return w.metric("tryst_steps", "")
}

// until waits for a condition that only looking can tell.
func (w *world) until(what string, is func() bool) {
	w.t.Helper()
	ctx := w.soon()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			w.t.Fatalf("%s: not within %v", what, soon)
		}
	}
}

// await waits for what comes out of c.
func await[T any](t testing.TB, c <-chan T, what string) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(soon):
		t.Fatalf("%s: nothing within %v", what, soon)
	}
	return v
}
