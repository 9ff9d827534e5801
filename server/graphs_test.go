package server

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/proto/tensorflowgrpc"
	"github.com/tryst-rdma/tryst/internal/tensorflow/master"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/ops"
	grpctransport "github.com/tryst-rdma/tryst/transport/grpc"
)

// openSession opens a session at a server over gRPC, as a master does.
func openSession(t *testing.T, s *Server, o master.Options) *master.Session {
	t.Helper()
	return openSessionBy(t, s, grpctransport.DialOptions{}, o)
}

// openSessionBy is openSession over connections with options.
func openSessionBy(t *testing.T, s *Server, dial grpctransport.DialOptions, o master.Options) *master.Session {
	t.Helper()
	spec, err := cluster.SpecFromLists(map[string][]string{"worker": {s.Addr().String()}})
	if err != nil {
		t.Fatal(err)
	}
	conns := grpctransport.NewConns(grpctransport.ConnsOptions{Self: cluster.ClientTask(), Spec: spec, Dial: dial})
	t.Cleanup(func() { _ = conns.Close() })
	w, err := conns.Worker(cluster.Task{Job: "worker"})
	if err != nil {
		t.Fatal(err)
	}
	session, err := master.Open(t.Context(), w, o)
	if err != nil {
		t.Fatal(err)
	}
	return session
}

func registerGraph(t *testing.T, s *master.Session, g *master.Graph) *master.Program {
	t.Helper()
	p, err := s.Register(t.Context(), g)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

var ofFloat = master.Attrs{"T": master.Type(tensor.Float32)}

// variable adds a reference variable of one float.
func variable(g *master.Graph, name string) string {
	return g.AddNamed(name, "VariableV2", master.Attrs{"dtype": master.Type(tensor.Float32), "shape": master.Shape(tensor.Shape{})})
}

// fetchedFloat returns the float that a run returned under a name, and releases it.
func fetchedFloat(t *testing.T, values map[string]*tensor.Tensor, err error, name string) float32 {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	defer values[name].Release()
	x, err := tensor.Values[float32](values[name])
	if err != nil || len(x) != 1 {
		t.Fatal(x, err)
	}
	return x[0]
}

// TestAMasterRunsGraphs: over real gRPC a master makes a session, registers graphs, and runs steps
// that change a variable, which CleanupAll drops. The metrics count it all.
func TestAMasterRunsGraphs(t *testing.T) {
	registry := prometheus.NewRegistry()
	s := start(t, settings(), Options{Kernels: ops.New(), Registerer: registry})
	session := openSession(t, s, master.Options{})
	set := session.NewGraph()
	set.Fetch("v", set.Add("assign", "Assign", ofFloat, variable(set, "v"), set.Feed("x", tensor.Float32)), tensor.Float32)
	assign := registerGraph(t, session, set)
	more := session.NewGraph()
	more.Fetch("v", more.Add("add", "AssignAdd", ofFloat, variable(more, "v"), more.Feed("x", tensor.Float32)), tensor.Float32)
	add := registerGraph(t, session, more)

	x := float(t, 5)
	defer x.Release()
	feeds := map[string]*tensor.Tensor{"x": x}
	if v, err := assign.Step(t.Context(), feeds); fetchedFloat(t, v, err, "v") != 5 {
		t.Error("the variable was not assigned")
	}
	for i := range 3 {
		if v, err := add.Step(t.Context(), feeds); fetchedFloat(t, v, err, "v") != float32(5*(i+2)) {
			t.Error("the variable was not changed")
		}
	}
	for name, want := range map[string]float64{
		"tryst_sessions": 1, "tryst_graphs": 2, "tryst_running_steps": 0, "tryst_steps_run_total": 4, "tryst_steps": 0,
	} {
		if got := gathered(t, registry, name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if _, err := s.worker.CleanupAll(t.Context(), &tfpb.CleanupAllRequest{}); err != nil {
		t.Fatal(err)
	}
	_, err := add.Step(t.Context(), feeds)
	wantStatus(t, err, status.FailedPrecondition, "v")
	if err := session.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := gathered(t, registry, "tryst_sessions"); got != 0 {
		t.Errorf("%v sessions after the end", got)
	}
}

// gathered returns the sum of a metric.
func gathered(t *testing.T, r *prometheus.Registry, name string) (sum float64) {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				sum += m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
			return sum
		}
	}
	t.Errorf("there is no metric %s", name)
	return 0
}

func wantStatus(t *testing.T, err error, code status.Code, text string) {
	t.Helper()
	if status.CodeOf(err) != code || err != nil && !strings.Contains(err.Error(), text) {
		t.Errorf("got %v, want %v with %q", err, code, text)
	}
}

// TestCloseEndsRunningSteps: the end of the server ends a step that waits for a peer, with Aborted.
func TestCloseEndsRunningSteps(t *testing.T) {
	s := start(t, settings(), Options{Kernels: ops.New()})
	session := openSession(t, s, master.Options{})
	g := session.NewGraph()
	dev := session.Devices()[0]
	g.Fetch("x", g.Recv("never", tensor.Float32, dev), tensor.Float32)
	p := registerGraph(t, session, g)
	done := make(chan error)
	go func() {
		_, err := p.Run(context.Background(), master.NewStep(), nil)
		done <- err
	}()
	ticks := time.NewTicker(time.Millisecond)
	defer ticks.Stop()
	for end := time.Now().Add(soon); s.worker.Stats().RunningSteps != 1; <-ticks.C {
		if time.Now().After(end) {
			t.Fatal("the step does not run")
		}
	}
	if err := s.Close(context.Background()); err != nil {
		t.Error(err)
	}
	wantStatus(t, <-done, status.Aborted, "")
}

// TestEdgesBetweenCPUDevices: a graph with nodes on two devices of one server is split, and a value
// goes from one to the other.
func TestEdgesBetweenCPUDevices(t *testing.T) {
	s := start(t, settings(func(c *Config) { c.CPUDevices = 2 }), Options{Kernels: ops.New()})
	session := openSession(t, s, master.Options{})
	if n := len(session.Devices()); n != 2 {
		t.Fatalf("%d devices", n)
	}
	g := session.NewGraph()
	g.Fetch("y", g.Add("sum", "AddV2", ofFloat, g.Add("twice", "AddV2", ofFloat, g.Feed("x", tensor.Float32), g.Feed("z", tensor.Float32)), g.Feed("w", tensor.Float32)), tensor.Float32)
	for _, n := range g.Def().GetNode() {
		if strings.HasPrefix(n.GetName(), "twice") {
			n.Device = session.Devices()[1].Device.String()
		}
	}
	p := registerGraph(t, session, g)
	x := float(t, 3)
	defer x.Release()
	v, err := p.Step(t.Context(), map[string]*tensor.Tensor{"x": x, "z": x, "w": x})
	if y := fetchedFloat(t, v, err, "y"); y != 9 {
		t.Errorf("y is %v", y)
	}
}

// TestNobodyEndsTheSessionsOfAnotherMaster: under mutual TLS a session in the name of a master needs
// a certificate that covers the name. Otherwise anybody could end the master's sessions as its next
// incarnation.
func TestNobodyEndsTheSessionsOfAnotherMaster(t *testing.T) {
	m := newMutualWith(t, Options{Kernels: ops.New()})
	own, other := tensorflowgrpc.NewWorkerServiceClient(m.dial(certificateOf(1))), tensorflowgrpc.NewWorkerServiceClient(m.dial(certificateOf(2)))
	victim := m.servers[1].Task().String()
	create := func(c tensorflowgrpc.WorkerServiceClient, handle, master string, incarnation int64) error {
		_, err := c.CreateWorkerSession(t.Context(), &tfpb.CreateWorkerSessionRequest{SessionHandle: handle, MasterTask: master, MasterIncarnation: incarnation})
		return err
	}
	if err := create(own, "a", victim, 1); err != nil {
		t.Fatal(err)
	}
	if code := grpcstatus.Code(create(other, "b", victim, 2)); code != codes.PermissionDenied {
		t.Errorf("another's name: %v", code)
	}
	if n := m.servers[0].worker.Stats().Sessions; n != 1 {
		t.Errorf("%d sessions", n)
	}
	if err := create(own, "c", victim, 2); err != nil {
		t.Error(err)
	}
	if err := create(other, "d", "", 0); err != nil { // names nobody
		t.Error(err)
	}
	if n := m.servers[0].worker.Stats().Sessions; n != 2 {
		t.Errorf("%d sessions, want c and d", n)
	}
}

// TestServersWithoutKernelsRefuseGraphs: a server without kernels moves tensors only, and says so.
func TestServersWithoutKernelsRefuseGraphs(t *testing.T) {
	s := start(t, settings(), Options{})
	c := tensorflowgrpc.NewWorkerServiceClient(dialRaw(t, s.Addr().String()))
	_, err := c.CreateWorkerSession(t.Context(), &tfpb.CreateWorkerSessionRequest{SessionHandle: "a"})
	if st := grpcstatus.Convert(err); st.Code() != codes.Unimplemented || !strings.Contains(st.Message(), "runs no graphs") {
		t.Error(err)
	}
}
