package worker

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/tryst-rdma/tryst/cluster"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensorproto"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// fakeSet is a KernelSet whose states only count.
type fakeSet struct {
	mu     sync.Mutex
	states []*fakeState
	err    error // of NewState
}

func (*fakeSet) Name() string         { return "fake" }
func (f *fakeSet) made() []*fakeState { f.mu.Lock(); defer f.mu.Unlock(); return f.states }
func (*fakeSet) OpDef(op string) *tfpb.OpDef {
	if op == "Neg" || op == "_Recv" {
		return &tfpb.OpDef{Name: op}
	}
	return nil
}

func (f *fakeSet) NewState() (graph.State, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return nil, f.err
	}
	s := new(fakeState)
	f.states = append(f.states, s)
	return s, nil
}

type fakeState struct {
	mu     sync.Mutex
	resets []string
	closed int
	// sessions are those that NewSession has made.
	sessions []*fakeState
}

func (s *fakeState) NewSession() graph.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := new(fakeState)
	s.sessions = append(s.sessions, one)
	return one
}

func (*fakeState) Rewrite(g *graph.Graph) (*graph.Graph, error) { return g, nil }
func (*fakeState) NewKernel(*graph.Node) (graph.Kernel, error)  { return nil, nil }
func (s *fakeState) Reset(containers []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resets = append(s.resets, strings.Join(containers, ","))
}

func (s *fakeState) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed++
}

// program is what a fake graph does when it runs.
type program func(ctx context.Context, step *graph.Step) error

// Run implements executor.
func (p program) Run(ctx context.Context, step *graph.Step) error { return p(ctx, step) }

// closing is a program that counts its ends.
type closing struct {
	program
	closed *atomic.Int64
}

// Close implements io.Closer.
func (c closing) Close() error { c.closed.Add(1); return nil }

// graphs is a worker whose graphs are programs. The name of the first node of a GraphDef chooses
// them, one for each part.
type graphs struct {
	*fixture
	set      *fakeSet
	programs map[string][]program
	closed   atomic.Int64 // parts of graphs
}

func newGraphs(t *testing.T, o Options) *graphs {
	g := &graphs{set: new(fakeSet), programs: map[string][]program{}}
	if o.Kernels == nil {
		o.Kernels = g.set
	}
	g.fixture = newFixture(t, o)
	g.compile = func(s *session, def *tfpb.GraphDef) (parts []part, err error) {
		if _, err := s.open(); err != nil {
			return nil, err
		}
		for _, p := range g.programs[def.GetNode()[0].GetName()] {
			parts = append(parts, part{device: cluster.DeviceOf(here).String(), executor: closing{p, &g.closed}})
		}
		return parts, nil
	}
	t.Cleanup(func() {
		g.Close()
		g.close()
	})
	return g
}

const testSession = "00000000000000aa"

// open makes a session.
func (g *graphs) open(req *tfpb.CreateWorkerSessionRequest) string {
	g.t.Helper()
	if req.GetSessionHandle() == "" {
		req.SessionHandle = testSession
	}
	if _, err := g.CreateWorkerSession(g.t.Context(), req); err != nil {
		g.t.Fatal(err)
	}
	return req.GetSessionHandle()
}

// register registers a graph of the programs and returns its handle.
func (g *graphs) register(session string, programs ...program) string {
	g.t.Helper()
	r, err := g.tryRegister(session, programs...)
	if err != nil {
		g.t.Fatal(err)
	}
	return r.GetGraphHandle()
}

func (g *graphs) tryRegister(session string, programs ...program) (*tfpb.RegisterGraphResponse, error) {
	name := fmt.Sprintf("program%d", len(g.programs))
	g.programs[name] = programs
	return g.RegisterGraph(g.t.Context(), registration(session, name))
}

func registration(session, name string) *tfpb.RegisterGraphRequest {
	return &tfpb.RegisterGraphRequest{
		SessionHandle: session, CreateWorkerSessionCalled: session != "",
		GraphDef: &tfpb.GraphDef{Node: []*tfpb.NodeDef{{Name: name, Op: "NoOp", Device: cluster.DeviceOf(here).String()}}},
	}
}

func running(session, handle string, step int64) *tfpb.RunGraphRequest {
	return &tfpb.RunGraphRequest{SessionHandle: session, CreateWorkerSessionCalled: session != "", GraphHandle: handle, StepId: step}
}

// inside returns the key of a value from the device here to itself.
func inside(name string) string {
	return rendezvous.CreateKey(cluster.DeviceOf(here).String(), incarnation, cluster.DeviceOf(here).String(), name, rendezvous.FrameIter{})
}

func mustKey(t testing.TB, text string) rendezvous.Key {
	t.Helper()
	k, err := rendezvous.ParseKey(text)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// scalar returns a value for a feed.
func scalar(t testing.TB, key string, x float32) *tfpb.NamedTensorProto {
	t.Helper()
	v, err := tensor.FromSlice(tensor.Shape{}, []float32{x})
	if err != nil {
		t.Fatal(err)
	}
	defer v.Release()
	p, err := tensorproto.ToProto(v)
	if err != nil {
		t.Fatal(err)
	}
	return &tfpb.NamedTensorProto{Name: key, Tensor: p}
}

// fetched returns the float that a response has under a key.
func fetched(t testing.TB, r *tfpb.RunGraphResponse, key string) float32 {
	t.Helper()
	for _, named := range r.GetRecv() {
		if named.GetName() != key {
			continue
		}
		v, err := tensorproto.FromProto(named.GetTensor(), tensor.Heap{})
		if err != nil {
			t.Fatal(err)
		}
		defer v.Release()
		x, err := tensor.Values[float32](v)
		if err != nil {
			t.Fatal(err)
		}
		return x[0]
	}
	t.Fatalf("the response %v has no %q", r, key)
	return 0
}

// double is a program that receives a value, doubles it and sends it on.
func double(t testing.TB, from, to string) program {
	in, out := mustKey(t, inside(from)), mustKey(t, inside(to))
	return func(ctx context.Context, step *graph.Step) error {
		v, err := step.Rendezvous.Recv(ctx, in, rendezvous.Args{})
		if err != nil {
			return err
		}
		defer v.Tensor.Release()
		x, err := tensor.Values[float32](v.Tensor)
		if err != nil {
			return err
		}
		y, err := tensor.FromSlice(tensor.Shape{}, []float32{2 * x[0]})
		if err != nil {
			return err
		}
		defer y.Release()
		return step.Rendezvous.Send(out, rendezvous.Args{}, y, false)
	}
}

func nothing(context.Context, *graph.Step) error { return nil }

// TestRunGraphFeedsAndFetches: RunGraph puts the values of send into the rendezvous, runs the graph,
// and returns those of recv_key.
func TestRunGraphFeedsAndFetches(t *testing.T) {
	g := newGraphs(t, Options{})
	s := g.open(&tfpb.CreateWorkerSessionRequest{})
	handle := g.register(s, double(t, "x", "y"))
	if handle != "0000000000000001" {
		t.Errorf("the first graph has the handle %q", handle)
	}
	for step := range int64(3) {
		req := running(s, handle, step+1)
		req.Send = []*tfpb.NamedTensorProto{scalar(t, inside("x"), float32(step))}
		req.RecvKey = []string{inside("y"), inside("y")}
		r, err := g.RunGraph(t.Context(), req)
		if err != nil || len(r.GetRecv()) != 1 {
			t.Fatal(r, err)
		}
		if y := fetched(t, r, inside("y")); y != 2*float32(step) {
			t.Errorf("step %d returned %v", step, y)
		}
		if _, err := g.CleanupGraph(t.Context(), &tfpb.CleanupGraphRequest{StepId: step + 1}); err != nil {
			t.Fatal(err)
		}
	}
	if n := g.manager.Steps(); n != 0 {
		t.Errorf("%d steps are left", n)
	}
	if got := g.Stats(); got.Sessions != 1 || got.Graphs != 1 || got.Steps != 3 || got.RunningSteps != 0 {
		t.Errorf("stats %+v", got)
	}
}

// TestErrorsInTheResponseBody: with store_errors_in_response_body every error that is not derived is
// in the body, with code and text; the call itself succeeds.
func TestErrorsInTheResponseBody(t *testing.T) {
	g := newGraphs(t, Options{})
	s := g.open(&tfpb.CreateWorkerSessionRequest{})
	long := strings.Repeat("x", 1<<16)
	failing := g.register(s, func(context.Context, *graph.Step) error { return status.New(status.OutOfRange, long) })
	for name, c := range map[string]struct {
		req  *tfpb.RunGraphRequest
		code status.Code
		text string
	}{
		"kernel":          {running(s, failing, 1), status.OutOfRange, long},
		"unknown session": {running("bb", failing, 2), status.Aborted, `Session handle is not found: bb. Possibly this worker ("/job:ps/replica:0/task:0") just restarted.`},
		"unknown graph":   {running(s, "cc", 3), status.Aborted, "Graph handle is not found: cc"},
		"invalid key":     {&tfpb.RunGraphRequest{SessionHandle: s, CreateWorkerSessionCalled: true, GraphHandle: failing, RecvKey: []string{"x"}}, status.InvalidArgument, ""},
		"invalid value": {&tfpb.RunGraphRequest{SessionHandle: s, CreateWorkerSessionCalled: true, GraphHandle: failing,
			Send: []*tfpb.NamedTensorProto{{Name: inside("x"), Tensor: &tfpb.TensorProto{}}}}, status.InvalidArgument, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := g.RunGraph(t.Context(), proto.CloneOf(c.req))
			wantCode(t, err, c.code, c.text)
			c.req.StoreErrorsInResponseBody = true
			c.req.StepId += 100
			r, err := g.RunGraph(t.Context(), c.req)
			if err != nil {
				t.Fatalf("the call failed: %v", err)
			}
			if r.GetStatusCode() != tfpb.Code(c.code) || c.text != "" && r.GetStatusErrorMessage() != c.text {
				t.Errorf("the body has %v %.200q, want %v %.200q", r.GetStatusCode(), r.GetStatusErrorMessage(), c.code, c.text)
			}
		})
	}
}

// TestDerivedErrorsHaveBothMarks: a derived error of a step ends the call, with the payload and the
// text that mark it, whatever store_errors_in_response_body says.
func TestDerivedErrorsHaveBothMarks(t *testing.T) {
	g := newGraphs(t, Options{})
	s := g.open(&tfpb.CreateWorkerSessionRequest{})
	handle := g.register(s, func(context.Context, *graph.Step) error {
		return status.New(status.Aborted, "Step 4 cancelled.").Derived()
	})
	req := running(s, handle, 4)
	req.StoreErrorsInResponseBody = true
	_, err := g.RunGraph(t.Context(), req)
	wantCode(t, err, status.Aborted, "")
	if !status.IsDerived(err) || status.From(err).Message() != "[_Derived_]Step 4 cancelled." {
		t.Errorf("got %v, derived %v", err, status.IsDerived(err))
	}
}

// TestRunGraphTwice: a RunGraph with the id of an earlier one is refused, without its values in the
// text.
func TestRunGraphTwice(t *testing.T) {
	g := newGraphs(t, Options{})
	s := g.open(&tfpb.CreateWorkerSessionRequest{})
	req := running(s, g.register(s, nothing), 1)
	req.RequestId, req.StoreErrorsInResponseBody = 77, true
	if r, err := g.RunGraph(t.Context(), req); err != nil || r.GetStatusCode() != tfpb.Code_OK {
		t.Fatal(r, err)
	}
	req.Send = []*tfpb.NamedTensorProto{scalar(t, inside("x"), 1)}
	r, err := g.RunGraph(t.Context(), req)
	if err != nil || r.GetStatusCode() != tfpb.Code_ABORTED ||
		r.GetStatusErrorMessage() != `The same RunGraph (Worker) request was received twice. session_handle: "00000000000000aa" graph_handle: "0000000000000001" step_id: 1 request_id: 77` {
		t.Error(r, err)
	}
	partial := running(s, req.GetGraphHandle(), 9)
	partial.IsPartial, partial.IsLastPartialRun, partial.RequestId = true, true, 77 // an id of its own kind
	for i, want := range []status.Code{status.OK, status.Aborted} {
		_, err := g.RunGraph(t.Context(), partial)
		if wantCode(t, err, want, ""); i == 1 {
			wantCode(t, err, want, "The same PartialRunGraph (Worker) request was received twice. ")
		}
	}
}

// TestTheRootErrorOfAStepIsReported: the error of one part ends the others and the receives of
// peers, and is the one that the master gets.
func TestTheRootErrorOfAStepIsReported(t *testing.T) {
	g := newGraphs(t, Options{})
	s := g.open(&tfpb.CreateWorkerSessionRequest{})
	asked := make(chan struct{})
	handle := g.register(s,
		func(ctx context.Context, step *graph.Step) error {
			<-asked
			return status.New(status.Internal, "kernel failed")
		},
		func(ctx context.Context, step *graph.Step) error {
			_, err := step.Rendezvous.Recv(ctx, mustKey(t, inside("never")), rendezvous.Args{})
			return err
		})
	peer := make(chan error)
	go func() {
		close(asked)
		_, err := g.RecvTensor(t.Context(), request(1, "never sent"))
		peer <- err
	}()
	_, err := g.RunGraph(t.Context(), running(s, handle, 1))
	wantCode(t, err, status.Internal, "kernel failed")
	if status.IsDerived(err) {
		t.Errorf("%v is derived", err)
	}
	err = <-peer
	if wantCode(t, err, status.Internal, "kernel failed"); !status.IsDerived(err) {
		t.Error("what a peer gets is not marked as derived")
	}
}

// TestFailedFetch: an output that is not valid after a successful step is Internal, with
// TensorFlow's text.
func TestFailedFetch(t *testing.T) {
	g := newGraphs(t, Options{})
	s := g.open(&tfpb.CreateWorkerSessionRequest{})
	handle := g.register(s, func(_ context.Context, step *graph.Step) error {
		return step.Rendezvous.Send(mustKey(t, inside("dead")), rendezvous.Args{}, nil, true)
	})
	req := running(s, handle, 6)
	req.RecvKey = []string{inside("dead")}
	_, err := g.RunGraph(t.Context(), req)
	wantCode(t, err, status.Internal, "Failed to fetch outputs for step 6. (Original error message: InvalidArgument: The tensor returned for "+inside("dead")+" was not valid.)")
}

// TestRegisterGraphNeedsDevices: a node without a device is refused by name.
func TestRegisterGraphNeedsDevices(t *testing.T) {
	g := newGraphs(t, Options{})
	s := g.open(&tfpb.CreateWorkerSessionRequest{})
	req := registration(s, "n")
	req.GraphDef.Node[0].Device = ""
	_, err := g.RegisterGraph(t.Context(), req)
	wantCode(t, err, status.InvalidArgument, "Missing device name in: {{node n}}")
}

// TestDeregisterGraph: a graph that was dropped is unknown; a step of it goes on.
func TestDeregisterGraph(t *testing.T) {
	g := newGraphs(t, Options{})
	s := g.open(&tfpb.CreateWorkerSessionRequest{})
	runs, goOn := make(chan struct{}), make(chan struct{})
	handle := g.register(s, func(context.Context, *graph.Step) error { close(runs); <-goOn; return nil })
	done := make(chan error)
	go func() {
		_, err := g.RunGraph(t.Context(), running(s, handle, 1))
		done <- err
	}()
	<-runs
	drop := &tfpb.DeregisterGraphRequest{GraphHandle: handle, SessionHandle: s, CreateWorkerSessionCalled: true}
	if _, err := g.DeregisterGraph(t.Context(), drop); err != nil {
		t.Error(err)
	}
	_, err := g.DeregisterGraph(t.Context(), drop)
	wantCode(t, err, status.Aborted, "Graph handle is not found: "+handle)
	_, err = g.RunGraph(t.Context(), running(s, handle, 2))
	wantCode(t, err, status.Aborted, "Graph handle is not found: "+handle)
	if n := g.closed.Load(); n != 0 {
		t.Error("the kernels were closed while a step ran")
	}
	close(goOn)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if n := g.closed.Load(); n != 1 {
		t.Errorf("the kernels were closed %d times", n)
	}
}

// TestGraphLimits: each limit refuses in words that name the setting, and what ends makes space.
func TestGraphLimits(t *testing.T) {
	one := int64(proto.Size(registration("s", "program0").GetGraphDef()))
	g := newGraphs(t, Options{Limits: Limits{Sessions: 1, Graphs: 2, GraphBytes: 3*one - 1, Steps: 1}})
	s := g.open(&tfpb.CreateWorkerSessionRequest{})
	_, err := g.CreateWorkerSession(t.Context(), &tfpb.CreateWorkerSessionRequest{SessionHandle: "other"})
	wantCode(t, err, status.ResourceExhausted, "max-sessions")

	runs, goOn := make(chan struct{}), make(chan struct{})
	slow := g.register(s, func(context.Context, *graph.Step) error { close(runs); <-goOn; return nil })
	quick := g.register(s, nothing)
	_, err = g.tryRegister(s)
	wantCode(t, err, status.ResourceExhausted, "max-graphs")
	done := make(chan error)
	go func() {
		_, err := g.RunGraph(t.Context(), running(s, slow, 1))
		done <- err
	}()
	<-runs
	_, err = g.RunGraph(t.Context(), running(s, quick, 2))
	wantCode(t, err, status.ResourceExhausted, "max-running-steps")
	close(goOn)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := g.RunGraph(t.Context(), running(s, quick, 3)); err != nil {
		t.Errorf("after the end of the other step: %v", err)
	}
	drop := &tfpb.DeregisterGraphRequest{GraphHandle: slow, SessionHandle: s, CreateWorkerSessionCalled: true}
	if _, err := g.DeregisterGraph(t.Context(), drop); err != nil {
		t.Fatal(err)
	}
	big := registration(s, strings.Repeat("b", int(2*one)))
	_, err = g.RegisterGraph(t.Context(), big)
	wantCode(t, err, status.ResourceExhausted, "max-graph-bytes")
	g.register(s, nothing)

	if _, err := g.DeleteWorkerSession(t.Context(), &tfpb.DeleteWorkerSessionRequest{SessionHandle: s}); err != nil {
		t.Fatal(err)
	}
	g.open(&tfpb.CreateWorkerSessionRequest{SessionHandle: "other"})
}

// TestARefusedGraphTakesNoSpace: a registration that fails is not counted.
func TestARefusedGraphTakesNoSpace(t *testing.T) {
	g := newGraphs(t, Options{Limits: Limits{Graphs: 1}})
	s := g.open(&tfpb.CreateWorkerSessionRequest{})
	g.set.err = status.New(status.Internal, "no state")
	_, err := g.tryRegister(s, nothing)
	wantCode(t, err, status.Internal, "no state")
	g.set.err = nil
	g.register(s, nothing)
}

// TestWorkersWithoutKernelsRefuseGraphs: without kernels the worker says what it does.
func TestWorkersWithoutKernelsRefuseGraphs(t *testing.T) {
	f := newFixture(t, Options{})
	defer f.close()
	_, err := f.CreateWorkerSession(t.Context(), &tfpb.CreateWorkerSessionRequest{SessionHandle: "a"})
	wantCode(t, err, status.Unimplemented, "CreateWorkerSession: this worker moves tensors and runs no graphs")
	_, err = f.RegisterGraph(t.Context(), registration("", "n"))
	wantCode(t, err, status.Unimplemented, "RegisterGraph")
	_, err = f.RunGraph(t.Context(), running("", "1", 1))
	wantCode(t, err, status.Unimplemented, "RunGraph")
	_, err = f.DeregisterGraph(t.Context(), &tfpb.DeregisterGraphRequest{})
	wantCode(t, err, status.Unimplemented, "DeregisterGraph")
	_, err = f.DeleteWorkerSession(t.Context(), &tfpb.DeleteWorkerSessionRequest{})
	wantCode(t, err, status.Unimplemented, "DeleteWorkerSession")
	f.Close()
}
