package worker

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/tryst-rdma/tryst/cluster"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// closingSet has one op, Close, whose kernels count what is open. It makes as many as left says.
type closingSet struct {
	left    int
	open    atomic.Int64
	fail    func() error // instead of a kernel, when none is left
	rewrite func(*graph.Graph) *graph.Graph
}

func (*closingSet) Name() string { return "closing" }
func (*closingSet) OpDef(name string) *tfpb.OpDef {
	if name != "Close" {
		return nil
	}
	return &tfpb.OpDef{Name: name}
}
func (s *closingSet) NewState() (graph.State, error) { return s, nil }
func (s *closingSet) NewSession() graph.State        { return s }
func (*closingSet) Reset([]string)                   {}
func (*closingSet) Close()                           {}
func (s *closingSet) Rewrite(g *graph.Graph) (*graph.Graph, error) {
	if s.rewrite != nil {
		g = s.rewrite(g)
	}
	return g, nil
}
func (s *closingSet) NewKernel(*graph.Node) (graph.Kernel, error) {
	if s.left == 0 {
		return nil, s.fail()
	}
	s.left--
	s.open.Add(1)
	return closingKernel{s}, nil
}

type closingKernel struct{ s *closingSet }

func (closingKernel) Compute(*graph.Context) error { return nil }
func (k closingKernel) Close() error               { k.s.open.Add(-1); return nil }

// twoDevices registers a graph with one node on each of two devices.
func twoDevices(t *testing.T, set *closingSet) (*fixture, error) {
	f := newFixture(t, Options{Kernels: set, Session: rendezvous.NewSession(here, incarnation, 2)})
	t.Cleanup(func() {
		f.Close()
		f.close()
	})
	if _, err := f.CreateWorkerSession(t.Context(), &tfpb.CreateWorkerSessionRequest{SessionHandle: testSession}); err != nil {
		t.Fatal(err)
	}
	req := registration(testSession, "a")
	second := cluster.DeviceOf(here)
	second.Index = 1
	req.GraphDef.Node = []*tfpb.NodeDef{
		{Name: "a", Op: "Close", Device: cluster.DeviceOf(here).String()},
		{Name: "b", Op: "Close", Device: second.String()},
	}
	_, err := f.RegisterGraph(t.Context(), req)
	return f, err
}

// TestAGraphThatCannotBeRegisteredClosesItsKernels also those of the devices that had succeeded.
func TestAGraphThatCannotBeRegisteredClosesItsKernels(t *testing.T) {
	set := &closingSet{left: 1, fail: func() error { return errors.New("no kernel is left") }}
	if _, err := twoDevices(t, set); err == nil || !strings.Contains(err.Error(), "no kernel is left") {
		t.Fatalf("error %v", err)
	}
	if n := set.open.Load(); n != 0 {
		t.Errorf("%d kernels are open", n)
	}
}

// TestPartitionGraphsHaveTheNodesOfTheClient: a set may run many nodes as one, and record_partition_graphs still shows the
// nodes that the client has named.
func TestPartitionGraphsHaveTheNodesOfTheClient(t *testing.T) {
	set := &closingSet{left: 2, rewrite: func(g *graph.Graph) *graph.Graph {
		subgraph := *g.Nodes[0]
		subgraph.Name, subgraph.Def = "subgraph", &tfpb.NodeDef{Name: "subgraph", Op: "Close", Device: subgraph.Device}
		return &graph.Graph{Nodes: []*graph.Node{&subgraph}, Producer: g.Producer}
	}}
	f, err := twoDevices(t, set)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := f.RunGraph(t.Context(), &tfpb.RunGraphRequest{
		SessionHandle: testSession, CreateWorkerSessionCalled: true, GraphHandle: "0000000000000001", StepId: 1,
		ExecOpts: &tfpb.ExecutorOpts{RecordPartitionGraphs: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range resp.GetPartitionGraph() {
		for _, n := range p.GetNode() {
			names = append(names, n.GetName())
		}
	}
	if !slices.Equal(names, []string{"a", "b"}) {
		t.Errorf("the partition graphs have the nodes %q", names)
	}
}

// TestMemoryOfGraphsIsBounded: a GraphDef of some bytes may take gigabytes when it is ready to run, so
// what it expands to counts against the session, until no step runs it any more.
func TestMemoryOfGraphsIsBounded(t *testing.T) {
	set := &closingSet{left: 1000, fail: func() error { return errors.New("no kernel is left") }}
	f := newFixture(t, Options{Kernels: set, Limits: Limits{SessionBytes: 25_000_000}})
	t.Cleanup(func() {
		f.Close()
		f.close()
	})
	for _, s := range []string{testSession, "other"} {
		if _, err := f.CreateWorkerSession(t.Context(), &tfpb.CreateWorkerSessionRequest{SessionHandle: s}); err != nil {
			t.Fatal(err)
		}
	}
	register := func(session string, bytes int64) (string, error) {
		req := registration(session, "a")
		req.GraphDef.Node[0].Op = "Close"
		req.GraphDef.Node[0].Attr = map[string]*tfpb.AttrValue{"large": {Value: &tfpb.AttrValue_Tensor{Tensor: &tfpb.TensorProto{
			Dtype: tfpb.DataType_DT_INT8, TensorShape: &tfpb.TensorShapeProto{Dim: []*tfpb.TensorShapeProto_Dim{{Size: bytes}}},
		}}}}
		r, err := f.RegisterGraph(t.Context(), req)
		return r.GetGraphHandle(), err
	}
	first, err := register(testSession, 20_000_000)
	if err != nil {
		t.Fatal(err)
	}
	_, err = register(testSession, 5_000_000)
	wantCode(t, err, status.ResourceExhausted, "max-session-bytes")
	if _, err := register("other", 20_000_000); err != nil {
		t.Errorf("in another session: %v", err)
	}
	set.left = 0
	_, err = register(testSession, 4_000_000)
	wantCode(t, err, status.Unknown, "no kernel is left")
	set.left = 1000
	if _, err := register(testSession, 4_000_000); err != nil {
		t.Errorf("after a graph that was refused: %v", err)
	}

	s, err := f.sessions.find(true, testSession)
	if err != nil {
		t.Fatal(err)
	}
	defer s.release()
	g, err := s.graph(first) // a step runs it
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.DeregisterGraph(t.Context(), &tfpb.DeregisterGraphRequest{GraphHandle: first, SessionHandle: testSession, CreateWorkerSessionCalled: true}); err != nil {
		t.Fatal(err)
	}
	_, err = register(testSession, 20_000_000)
	wantCode(t, err, status.ResourceExhausted, "max-session-bytes")
	s.endRun(g)
	if _, err := register(testSession, 20_000_000); err != nil {
		t.Errorf("after the end of the step: %v", err)
	}
}

// TestGraphsThatAreMadeReadyAreBounded: each takes memory before it counts against its session. One
// whose master is gone does not wait.
func TestGraphsThatAreMadeReadyAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGraphs(t, Options{})
		s := g.open(&tfpb.CreateWorkerSessionRequest{})
		compile, ready, goOn := g.compile, 0, make(chan struct{})
		var mu sync.Mutex // guards ready
		g.compile = func(s *session, def *tfpb.GraphDef) ([]part, error) {
			mu.Lock()
			ready++
			mu.Unlock()
			<-goOn
			return compile(s, def)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var calls sync.WaitGroup
		for range maxCompiling {
			calls.Go(func() {
				if _, err := g.RegisterGraph(t.Context(), registration(s, "a")); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		calls.Go(func() {
			_, err := g.RegisterGraph(ctx, registration(s, "a"))
			wantCode(t, err, status.Cancelled, "")
		})
		calls.Go(func() {
			if _, err := g.RegisterGraph(t.Context(), registration(s, "a")); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		cancel()
		synctest.Wait()
		if ready != maxCompiling {
			t.Errorf("%d graphs are made ready at once", ready)
		}
		close(goOn)
		calls.Wait()
	})
}

// TestAPanicWhileAGraphIsRegisteredIsAnError of that call: other sessions go on.
func TestAPanicWhileAGraphIsRegisteredIsAnError(t *testing.T) {
	var none []error
	set := &closingSet{left: 1, fail: func() error { return none[len(none)] }}
	f, err := twoDevices(t, set)
	if status.CodeOf(err) != status.Internal || !strings.Contains(err.Error(), "RegisterGraph panicked, which is a bug: runtime error: index out of range") {
		t.Fatalf("error %v", err)
	}
	if n := set.open.Load(); n != 0 {
		t.Errorf("%d kernels are open", n)
	}
	if got := f.Stats(); got.Graphs != 0 {
		t.Errorf("stats %+v", got)
	}
	set.left = 2
	req := registration(testSession, "a")
	req.GraphDef.Node[0].Op = "Close"
	if _, err := f.RegisterGraph(t.Context(), req); err != nil {
		t.Errorf("the next graph: %v", err)
	}
}

// TestGraphsTakeTheMemoryOfTheProcess: those of all sessions together. It comes back with a graph that is refused or
// deregistered, and with a session.
func TestGraphsTakeTheMemoryOfTheProcess(t *testing.T) {
	pool := tensor.NewPool(tensor.PoolOptions{Limit: 25_000_000})
	set := &closingSet{left: 1000, fail: func() error { return errors.New("no kernel is left") }}
	f := newFixture(t, Options{Kernels: set, Allocator: pool})
	register := func(session string, bytes int64) (string, error) {
		req := registration(session, "a")
		req.GraphDef.Node[0].Op = "Close"
		req.GraphDef.Node[0].Attr = map[string]*tfpb.AttrValue{"large": {Value: &tfpb.AttrValue_Tensor{Tensor: &tfpb.TensorProto{
			Dtype: tfpb.DataType_DT_INT8, TensorShape: &tfpb.TensorShapeProto{Dim: []*tfpb.TensorShapeProto_Dim{{Size: bytes}}},
		}}}}
		r, err := f.RegisterGraph(t.Context(), req)
		return r.GetGraphHandle(), err
	}
	for _, s := range []string{testSession, "other"} {
		if _, err := f.CreateWorkerSession(t.Context(), &tfpb.CreateWorkerSessionRequest{SessionHandle: s}); err != nil {
			t.Fatal(err)
		}
	}
	first, err := register(testSession, 20_000_000)
	if err != nil {
		t.Fatal(err)
	}
	_, err = register("other", 20_000_000)
	wantCode(t, err, status.ResourceExhausted, "RegisterGraph: the nodes and constants of the graph take memory")
	set.left = 0
	_, err = register("other", 4_000_000)
	wantCode(t, err, status.Unknown, "no kernel is left")
	set.left = 1000
	if _, err := f.DeregisterGraph(t.Context(), &tfpb.DeregisterGraphRequest{SessionHandle: testSession, CreateWorkerSessionCalled: true, GraphHandle: first}); err != nil {
		t.Fatal(err)
	}
	if n := pool.Stats().InUse; n != 0 {
		t.Errorf("%d bytes are counted without a graph", n)
	}
	if _, err := register("other", 20_000_000); err != nil {
		t.Errorf("in the place of another graph: %v", err)
	}
	f.Close()
	f.close()
	if n := pool.Stats().InUse; n != 0 {
		t.Errorf("%d bytes are counted after the sessions", n)
	}
}
