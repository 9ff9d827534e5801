//go:build interop

package tensorflow_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/tensorflow/master"
	"github.com/tryst-rdma/tryst/internal/transporttest"
	"github.com/tryst-rdma/tryst/server"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
	"github.com/tryst-rdma/tryst/transport"
	grpctransport "github.com/tryst-rdma/tryst/transport/grpc"
)

// soon limits how long a test waits for one event.
const soon = time.Minute

// testbed is the cluster of one test.
type testbed struct {
	t        testing.TB
	server   *server.Server // task 1
	alloc    *tensortest.Allocator
	registry *prometheus.Registry

	process       *process
	tfAddress     string               // TensorFlow's address
	conns         *grpctransport.Conns // of the master, which is the test
	tf            transport.Worker     // TensorFlow's worker, as the master calls it
	tfIncarnation uint64
	session       *master.Session
}

// options configures a testbed.
type options struct {
	workerArgs []string             // further arguments of worker.py
	config     func(*server.Config) // changes the settings of the Tryst server
}

// start starts a testbed, which ends with the test.
func start(t testing.TB, o options) *testbed {
	t.Helper()
	bed := &testbed{t: t, alloc: tensortest.NewAllocator(t), registry: prometheus.NewRegistry()}

	// TensorFlow needs our address before we know its own. So a listener reserves the port until
	// our server listens.
	reserved, err := net.Listen("tcp", transporttest.FreeAddresses(t, 1)[0])
	if err != nil {
		t.Fatal(err)
	}
	ours := reserved.Addr().String()
	bed.process, bed.tfAddress = startWorker(t, append([]string{ours}, o.workerArgs...)...)
	reserved.Close()

	c := server.Config{}
	c.Listen = ours
	c.Task = cluster.Task{Job: "worker", Index: 1}.String()
	c.Cluster = map[string][]string{"worker": {bed.tfAddress, ours}}
	if o.config != nil {
		o.config(&c)
	}
	if bed.server, err = server.Start(t.Context(), c, server.Options{Allocator: bed.alloc, Registerer: bed.registry}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(bed.stopServer)

	spec, err := cluster.SpecFromLists(c.Cluster)
	if err != nil {
		t.Fatal(err)
	}
	bed.conns = grpctransport.NewConns(grpctransport.ConnsOptions{Self: cluster.ClientTask(), Spec: spec, Allocator: bed.alloc})
	t.Cleanup(func() { bed.conns.Close() })
	if bed.tf, err = bed.conns.Worker(tfTask); err != nil {
		t.Fatal(err)
	}
	bed.openSession()
	return bed
}

// in returns the testbed for a subtest.
func (bed *testbed) in(t testing.TB) *testbed {
	sub := *bed
	sub.t = t
	return &sub
}

var tfTask = cluster.Task{Job: "worker", Index: 0}

func (bed *testbed) stopServer() {
	if err := bed.server.Close(context.Background()); err != nil {
		bed.t.Errorf("server: Close: %v", err)
	}
}

// openSession makes the calls of a master before the first graph.
func (bed *testbed) openSession() {
	bed.t.Helper()
	var err error
	if bed.session, err = master.Open(bed.soon(), bed.tf, master.Options{
		Self: master.Peer{Device: device(bed, trystDevice), Incarnation: bed.server.Incarnation()},
	}); err != nil {
		bed.t.Fatal(err)
	}
	d := bed.session.Devices()[0]
	if d.Device != device(bed, tfDevice) {
		bed.t.Fatalf("TensorFlow's first device is %v, want %s", d.Device, tfDevice)
	}
	bed.tfIncarnation = d.Incarnation
	bed.t.Cleanup(func() {
		if bed.process.killed {
			return
		}
		if err := bed.session.Close(bed.soonAfterTest()); err != nil {
			bed.t.Errorf("DeleteWorkerSession: %v", err)
		}
	})
}

// soon returns a context that ends after the constant soon.
func (bed *testbed) soon() context.Context {
	ctx, cancel := context.WithTimeout(bed.t.Context(), soon)
	bed.t.Cleanup(cancel)
	return ctx
}

// soonAfterTest is soon for a cleanup, when the context of the test has ended.
func (bed *testbed) soonAfterTest() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	bed.t.Cleanup(cancel)
	return ctx
}

// metric returns the sum of the values of a gauge or counter of the server. Unless label is "", it
// counts only those that have a label with this value.
func (bed *testbed) metric(name, label string) (sum float64) {
	bed.t.Helper()
	families, err := bed.registry.Gather()
	if err != nil {
		bed.t.Fatal(err)
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

// steps returns the number of steps of the server.
func (bed *testbed) steps() float64 {
	bed.t.Helper()
	return bed.metric("tryst_steps", "")
}

// until polls until a condition holds.
func (bed *testbed) until(what string, is func() bool) {
	bed.t.Helper()
	ctx := bed.soon()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			bed.t.Fatalf("%s: not within %v", what, soon)
		}
	}
}

// await receives from c.
func await[T any](t testing.TB, c <-chan T, what string) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(soon):
		t.Fatalf("%s: nothing within %v", what, soon)
	}
	return v
}
