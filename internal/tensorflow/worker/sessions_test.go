package worker

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/delivery"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

func (g *graphs) delete(handle string) {
	g.t.Helper()
	if _, err := g.DeleteWorkerSession(g.t.Context(), &tfpb.DeleteWorkerSessionRequest{SessionHandle: handle}); err != nil {
		g.t.Fatal(err)
	}
}

// wantGone checks that a session is unknown, with TensorFlow's text and payload.
func (g *graphs) wantGone(handle string) {
	g.t.Helper()
	_, err := g.tryRegister(handle, nothing)
	wantCode(g.t, err, status.Aborted, "Session handle is not found: "+handle+`. Possibly this worker ("/job:ps/replica:0/task:0") just restarted.`)
	if _, ok := status.From(err).Payload(status.PayloadPossiblyRestarted); !ok {
		g.t.Errorf("%v has no payload of a possible restart", err)
	}
}

func TestS1CreateAndDelete(t *testing.T) {
	g := newGraphs(t, Options{})
	_, err := g.CreateWorkerSession(t.Context(), &tfpb.CreateWorkerSessionRequest{})
	wantCode(t, err, status.InvalidArgument, "Session must be non-empty.")
	s := g.open(&tfpb.CreateWorkerSessionRequest{})
	handle := g.register(s, nothing)
	g.open(&tfpb.CreateWorkerSessionRequest{}) // again: the session stays as it is
	if _, err := g.RunGraph(t.Context(), running(s, handle, 1)); err != nil {
		t.Error(err)
	}
	g.delete(s)
	g.wantGone(s)
	g.delete(s)       // twice
	g.delete("never") // unknown
	if n := g.closed.Load(); n != 1 {
		t.Errorf("%d graphs were closed with the session, want 1", n)
	}
}

// clusterDef is a ServerDef of a propagated cluster, in which this process is task 4 of trainer.
func clusterDef() *tfpb.ServerDef {
	return &tfpb.ServerDef{JobName: "trainer", TaskIndex: 4, Protocol: "grpc", Cluster: &tfpb.ClusterDef{Job: []*tfpb.JobDef{
		{Name: "trainer", Tasks: map[int32]string{4: "h4:2222", 5: "h5:2222"}},
		{Name: "chief", Tasks: map[int32]string{0: "h0:2222"}},
	}}}
}

// fakePeers is a Peers that fails all receives.
type fakePeers struct {
	self   cluster.Task
	spec   *cluster.Spec
	closed atomic.Int64
}

func (p *fakePeers) RecvFromRemoteAsync(_ int64, _ rendezvous.Key, args rendezvous.Args, done rendezvous.DoneFunc) rendezvous.Transfer {
	if done != nil {
		done(rendezvous.Value{}, args, errThroughPeers())
	}
	return doneTransfer{}
}

func errThroughPeers() error {
	return status.New(status.Unavailable, "through the peers of the session")
}

func (p *fakePeers) Close(context.Context) error { p.closed.Add(1); return nil }

type doneTransfer struct{}

func (doneTransfer) Wait(context.Context) (rendezvous.Value, error) {
	return rendezvous.Value{}, errThroughPeers()
}
func (doneTransfer) Cancel(error) {}

// TestS2ClusterSpec: with a propagated cluster the worker has the name of server_def, its devices are
// renamed and keep their incarnations, and it receives through the tasks of that cluster.
func TestS2ClusterSpec(t *testing.T) {
	var made []*fakePeers
	g := newGraphs(t, Options{NewPeers: func(self cluster.Task, spec *cluster.Spec) (Peers, error) {
		made = append(made, &fakePeers{self: self, spec: spec})
		return made[len(made)-1], nil
	}})
	s := g.open(&tfpb.CreateWorkerSessionRequest{ServerDef: clusterDef()})
	self := cluster.Task{Job: "trainer", Index: 4}
	if len(made) != 1 || made[0].self != self || made[0].spec.Len() != 3 {
		t.Fatalf("peers %+v", made)
	}
	ours, chief := "/job:trainer/replica:0/task:4/device:CPU:0", "/job:chief/replica:0/task:0/device:CPU:0"
	handle := g.register(s, func(ctx context.Context, step *graph.Step) error {
		out := rendezvous.CreateKey(ours, incarnation, chief, "out", rendezvous.FrameIter{})
		if err := step.Rendezvous.Send(mustKey(t, out), rendezvous.Args{}, nil, true); err != nil {
			return err
		}
		_, err := step.Rendezvous.Recv(ctx, mustKey(t, rendezvous.CreateKey(chief, 9, ours, "in", rendezvous.FrameIter{})), rendezvous.Args{})
		return err
	})
	// The peer asks before the step runs, by the name of the session.
	peer := make(chan error)
	go func() {
		r, err := g.RecvTensor(t.Context(), &tfpb.RecvTensorRequest{StepId: 1, RendezvousKey: rendezvous.CreateKey(ours, incarnation, chief, "out", rendezvous.FrameIter{})})
		if err == nil {
			r.Tensor.Release()
		}
		peer <- err
	}()
	done := make(chan error)
	go func() {
		_, err := g.RunGraph(t.Context(), running(s, handle, 1))
		done <- err
	}()
	if err := <-peer; err != nil && !strings.Contains(err.Error(), "through the peers") { // the step may fail first
		t.Error(err)
	}
	wantCode(t, <-done, status.Unavailable, "through the peers of the session")
	g.delete(s)
	if n := made[0].closed.Load(); n != 1 {
		t.Errorf("the peers were closed %d times", n)
	}
}

// TestTrystPeersUseTheNameOfASession: a Tryst peer may ask for values under the name that this
// process has in a session, and under no other.
func TestTrystPeersUseTheNameOfASession(t *testing.T) {
	g := newGraphs(t, Options{NewPeers: func(cluster.Task, *cluster.Spec) (Peers, error) { return new(fakePeers), nil }})
	key := rendezvous.CreateKey("/job:trainer/replica:0/task:4/device:CPU:0", incarnation, cluster.DeviceOf(there).String(), "x", rendezvous.FrameIter{})
	ask := func(id uint64) error {
		r, err := g.RecvTensor(t.Context(), asTryst(t, &tfpb.RecvTensorRequest{StepId: 1, RendezvousKey: key}, id, 1))
		if err == nil {
			r.Tensor.Release()
		}
		return err
	}
	wantCode(t, ask(1), status.InvalidArgument, "has no device")
	s := g.open(&tfpb.CreateWorkerSessionRequest{ServerDef: clusterDef()})
	handle := g.register(s, func(_ context.Context, step *graph.Step) error {
		return step.Rendezvous.Send(mustKey(t, key), rendezvous.Args{}, nil, true)
	})
	if _, err := g.RunGraph(t.Context(), running(s, handle, 1)); err != nil {
		t.Fatal(err)
	}
	if err := ask(2); err != nil {
		t.Error(err)
	}
	g.delete(s)
	wantCode(t, ask(3), status.InvalidArgument, "has no device")
}

// slowSet is a kernel set that makes a state when it may.
type slowSet struct {
	fakeSet
	begun, may chan struct{}
}

func (s *slowSet) NewState() (graph.State, error) {
	close(s.begun)
	<-s.may
	return s.fakeSet.NewState()
}

// TestKernelSetsDoNotHoldUpPeers: the key of a request is checked, with the lock of a channel, while a
// kernel set takes its time to make the shared state.
func TestKernelSetsDoNotHoldUpPeers(t *testing.T) {
	set := &slowSet{begun: make(chan struct{}), may: make(chan struct{})}
	g := newGraphs(t, Options{Kernels: set, NewPeers: func(cluster.Task, *cluster.Spec) (Peers, error) { return new(fakePeers), nil }})
	s := g.open(&tfpb.CreateWorkerSessionRequest{ServerDef: clusterDef()})
	registered := make(chan error)
	go func() {
		_, err := g.tryRegister(s, nothing)
		registered <- err
	}()
	<-set.begun
	checked := make(chan error, 1)
	go func() {
		checked <- g.CheckSource(mustKey(t, rendezvous.CreateKey("/job:trainer/replica:0/task:4/device:CPU:0", incarnation, cluster.DeviceOf(there).String(), "x", rendezvous.FrameIter{})))
	}()
	select {
	case err := <-checked:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("the check waits for the kernel set")
	}
	close(set.may)
	if err := <-registered; err != nil {
		t.Error(err)
	}
}

// TestBadClusters: a server_def that is not valid is refused by field.
func TestBadClusters(t *testing.T) {
	g := newGraphs(t, Options{})
	_, err := g.CreateWorkerSession(t.Context(), &tfpb.CreateWorkerSessionRequest{SessionHandle: "a", ServerDef: clusterDef()})
	wantCode(t, err, status.Unimplemented, "cluster_def")
	g.sessions.newPeers = func(cluster.Task, *cluster.Spec) (Peers, error) { return new(fakePeers), nil }
	for text, change := range map[string]func(*tfpb.ServerDef){
		"server_def: ":                        func(d *tfpb.ServerDef) { d.JobName = "" },
		"server_def.cluster: ":                func(d *tfpb.ServerDef) { d.Cluster.Job[0].Tasks[5] = "no address" },
		"server_def.cluster_device_filters: ": func(d *tfpb.ServerDef) { d.ClusterDeviceFilters = filters("nonsense//") },
	} {
		def := clusterDef()
		change(def)
		_, err := g.CreateWorkerSession(t.Context(), &tfpb.CreateWorkerSessionRequest{SessionHandle: "a", ServerDef: def})
		wantCode(t, err, status.InvalidArgument, "CreateWorkerSession a: "+text)
	}
	if n := g.Stats().Sessions; n != 0 {
		t.Errorf("%d sessions", n)
	}
}

// filters are device filters for task 4 of trainer.
func filters(texts ...string) *tfpb.ClusterDeviceFilters {
	return &tfpb.ClusterDeviceFilters{Jobs: []*tfpb.JobDeviceFilters{
		{Name: "chief", Tasks: map[int32]*tfpb.TaskDeviceFilters{0: {DeviceFilters: []string{"/job:nobody"}}}},
		{Name: "trainer", Tasks: map[int32]*tfpb.TaskDeviceFilters{4: {DeviceFilters: texts}}},
	}}
}

// TestDeviceFilters: a task reaches itself and the tasks that its device filters name.
func TestDeviceFilters(t *testing.T) {
	var spec *cluster.Spec
	g := newGraphs(t, Options{NewPeers: func(_ cluster.Task, s *cluster.Spec) (Peers, error) { spec = s; return new(fakePeers), nil }})
	for i, c := range []struct {
		filters []string
		tasks   int
		chief   bool
	}{
		{nil, 3, true},
		{[]string{"/job:chief"}, 2, true},
		{[]string{"/job:chief/replica:0/task:0/device:CPU:0"}, 2, true},
		{[]string{"/job:ps", "/job:trainer/task:5"}, 2, false},
		{[]string{"/job:ps"}, 1, false},
	} {
		def := clusterDef()
		def.ClusterDeviceFilters = filters(c.filters...)
		g.open(&tfpb.CreateWorkerSessionRequest{SessionHandle: strings.Repeat("a", i+1), ServerDef: def})
		_, chief := spec.Address(cluster.Task{Job: "chief"})
		if spec.Len() != c.tasks || chief != c.chief {
			t.Errorf("filters %q leave %v", c.filters, spec)
		}
	}
}

// TestS9ReplicaInTheName: the name of this process in a session has the replica of server_def, and its device
// filters do not hide it from itself.
func TestS9ReplicaInTheName(t *testing.T) {
	var made []*fakePeers
	g := newGraphs(t, Options{NewPeers: func(self cluster.Task, spec *cluster.Spec) (Peers, error) {
		made = append(made, &fakePeers{self: self, spec: spec})
		return made[len(made)-1], nil
	}})
	def := clusterDef()
	def.Replica, def.ClusterDeviceFilters = 2, filters("/job:chief")
	s := g.open(&tfpb.CreateWorkerSessionRequest{ServerDef: def})
	if self := (cluster.Task{Job: "trainer", Replica: 2, Index: 4}); len(made) != 1 || made[0].self != self || made[0].spec.Len() != 2 {
		t.Fatalf("peers %+v", made[0])
	}
	const out = "/job:trainer/replica:2/task:4/device:CPU:0"
	handle := g.register(s, func(_ context.Context, step *graph.Step) error {
		return step.Rendezvous.Send(mustKey(t, rendezvous.CreateKey(out, incarnation, cluster.DeviceOf(there).String(), "x", rendezvous.FrameIter{})), rendezvous.Args{}, nil, true)
	})
	if _, err := g.RunGraph(t.Context(), running(s, handle, 1)); err != nil {
		t.Error(err)
	}
}

// TestS3DefaultName: without a cluster the names in server_def have no effect. TensorFlow 2.21 always
// sends them.
func TestS3DefaultName(t *testing.T) {
	g := newGraphs(t, Options{})
	s := g.open(&tfpb.CreateWorkerSessionRequest{ServerDef: &tfpb.ServerDef{JobName: "trainer", TaskIndex: 4, Protocol: "grpc"}})
	handle := g.register(s, double(t, "x", "y"))
	req := running(s, handle, 1)
	req.Send = []*tfpb.NamedTensorProto{scalar(t, inside("x"), 1)}
	if _, err := g.RunGraph(t.Context(), req); err != nil {
		t.Error(err)
	}
}

// TestS4IsolatedState: isolated sessions have states of their own, which end with them; all others
// share one, which stays. CleanupAll resets the shared one.
func TestS4IsolatedState(t *testing.T) {
	g := newGraphs(t, Options{})
	for handle, isolate := range map[string]bool{"a": false, "b": false, "c": true, "d": true} {
		g.register(g.open(&tfpb.CreateWorkerSessionRequest{SessionHandle: handle, IsolateSessionState: isolate}), nothing)
		g.register(handle, nothing)
	}
	g.register("", nothing) // the legacy session shares, too
	states := g.set.made()
	if len(states) != 3 {
		t.Fatalf("%d states, want one that is shared and two isolated ones", len(states))
	}
	for _, containers := range [][]string{nil, {"x", "y"}} {
		if _, err := g.CleanupAll(t.Context(), &tfpb.CleanupAllRequest{Container: containers}); err != nil {
			t.Fatal(err)
		}
	}
	resets := 0
	for _, s := range states {
		if len(s.resets) > 0 {
			resets++
			if strings.Join(s.resets, ";") != "localhost;x,y" {
				t.Errorf("resets of %q", s.resets)
			}
		}
	}
	if resets != 1 {
		t.Errorf("%d states were reset", resets)
	}
	for _, handle := range []string{"a", "b", "c", "d"} {
		g.delete(handle)
	}
	closed, sharing := 0, 0
	for _, s := range states {
		closed += s.closed
		for _, one := range s.sessions {
			sharing++
			closed += one.closed
		}
	}
	if closed != 4 || sharing != 3 {
		t.Errorf("%d states ended with their sessions, want the isolated ones and those of two that share; %d share, want 3", closed, sharing)
	}
	g.Close()
	for _, s := range states {
		if s.closed != 1 {
			t.Errorf("a state was closed %d times", s.closed)
		}
	}
}

// TestS5RestartedMaster: the sessions of an earlier incarnation of a master end, with their steps,
// when the next one makes a session.
func TestS5RestartedMaster(t *testing.T) {
	g := newGraphs(t, Options{})
	of := func(handle, master string, incarnation int64) string {
		return g.open(&tfpb.CreateWorkerSessionRequest{SessionHandle: handle, MasterTask: master, MasterIncarnation: incarnation})
	}
	const chief, other = "/job:chief/replica:0/task:0", "/job:chief/replica:0/task:1"
	runs := make(chan struct{})
	old := of("a1", chief, 1)
	handle := g.register(old, func(ctx context.Context, _ *graph.Step) error {
		close(runs)
		<-ctx.Done()
		return status.New(status.Cancelled, "the kernel was cancelled").Derived()
	})
	done := make(chan error)
	go func() {
		_, err := g.RunGraph(t.Context(), running(old, handle, 1))
		done <- err
	}()
	<-runs
	of("a2", chief, 1) // the same incarnation keeps both
	of("b1", other, 1)
	of("c1", "", 1) // S6: without a name there is no collection
	g.register("a1", nothing)
	of("a3", chief, 2)
	wantCode(t, <-done, status.Aborted, "session a1 ended: its master "+chief+" has restarted")
	g.wantGone("a1")
	g.wantGone("a2")
	// Nobody will clean up the step that the master's end has left.
	wantCode(t, g.manager.Err(1), status.Aborted, "Cleanup 1")
	if n := g.manager.Steps(); n != 0 {
		t.Errorf("%d steps are left", n)
	}
	of("c2", "", 2)
	for _, handle := range []string{"a3", "b1", "c1", "c2"} {
		g.register(handle, nothing)
	}
}

// TestS7LegacySession: a master that makes no session uses the legacy session, which stays (S10).
func TestS7LegacySession(t *testing.T) {
	g := newGraphs(t, Options{})
	handle := g.register("", nothing)
	for _, req := range []*tfpb.RunGraphRequest{
		{GraphHandle: handle, StepId: 1},
		{GraphHandle: handle, StepId: 2, SessionHandle: "ignored"},
		{GraphHandle: handle, StepId: 3, CreateWorkerSessionCalled: true},
	} {
		if _, err := g.RunGraph(t.Context(), req); err != nil {
			t.Error(err)
		}
	}
	g.delete("")
	g.register("", nothing)
}

// TestDeletedSessionEndsItsSteps: the end of a session cancels its steps, and what it owns goes when
// the last of them has ended.
func TestDeletedSessionEndsItsSteps(t *testing.T) {
	g := newGraphs(t, Options{})
	s := g.open(&tfpb.CreateWorkerSessionRequest{IsolateSessionState: true})
	runs, goOn := make(chan struct{}), make(chan struct{})
	handle := g.register(s, func(ctx context.Context, _ *graph.Step) error {
		close(runs)
		<-ctx.Done()
		<-goOn
		return status.From(ctx.Err())
	})
	done := make(chan error)
	go func() {
		_, err := g.RunGraph(t.Context(), running(s, handle, 1))
		done <- err
	}()
	<-runs
	g.delete(s)
	if n := g.set.made()[0].closed; n != 0 {
		t.Error("the state was closed while a step ran")
	}
	if n := g.Stats().RunningSteps; n != 1 {
		t.Errorf("%d steps run while a kernel does not look at the end of its session", n)
	}
	close(goOn)
	wantCode(t, <-done, status.Aborted, "session "+s+" was deleted")
	if n := g.Stats().RunningSteps; n != 0 {
		t.Errorf("%d steps run at the end", n)
	}
	if n := g.set.made()[0].closed; n != 1 {
		t.Errorf("the state was closed %d times", n)
	}
}

// TestCloseAbortsRunningSteps: the end of the worker ends running steps with Aborted, and all later
// calls.
func TestCloseAbortsRunningSteps(t *testing.T) {
	g := newGraphs(t, Options{})
	s := g.open(&tfpb.CreateWorkerSessionRequest{})
	runs := make(chan struct{}, 2)
	block := func(ctx context.Context, _ *graph.Step) error {
		runs <- struct{}{}
		<-ctx.Done()
		return status.From(ctx.Err())
	}
	whole, legacy := running(s, g.register(s, block), 1), running("", g.register("", block), 2)
	done := make(chan error)
	for _, req := range []*tfpb.RunGraphRequest{whole, legacy} {
		go func() {
			_, err := g.RunGraph(t.Context(), req)
			done <- err
		}()
		<-runs
	}
	g.Close()
	for range 2 {
		wantCode(t, <-done, status.Aborted, "Call was aborted")
	}
	for _, handle := range []string{s, ""} {
		_, err := g.tryRegister(handle, nothing)
		wantCode(t, err, status.Aborted, "Call was aborted")
	}
	_, err := g.CreateWorkerSession(t.Context(), &tfpb.CreateWorkerSessionRequest{SessionHandle: "late"})
	wantCode(t, err, status.Aborted, "Call was aborted")
}

// TestStepsThatNobodyCleansUpAreBounded: a master that sends no CleanupGraph does not collect steps without
// bound: the oldest that has run makes room. One that runs stays, however old it is.
func TestStepsThatNobodyCleansUpAreBounded(t *testing.T) {
	g := newGraphs(t, Options{})
	s := g.open(&tfpb.CreateWorkerSessionRequest{})
	runs, goOn, done := make(chan struct{}), make(chan struct{}), make(chan error)
	slow := g.register(s, func(context.Context, *graph.Step) error { close(runs); <-goOn; return nil })
	quick := g.register(s, nothing)
	go func() {
		_, err := g.RunGraph(t.Context(), running(s, slow, 1))
		done <- err
	}()
	<-runs
	for step := range int64(maxRested + 20) {
		req := running(s, quick, step+2)
		if step%2 == 0 {
			req = partial(t, s, quick, step+2, true, nil)
		}
		if _, err := g.RunGraph(t.Context(), req); err != nil {
			t.Fatal(err)
		}
	}
	close(goOn)
	if err := <-done; err != nil {
		t.Errorf("the step that ran ended with %v", err)
	}
	if n := g.manager.Steps(); n > maxRested+10 || n < maxRested-1 {
		t.Errorf("%d steps are left, want about %d", n, maxRested)
	}
	wantCode(t, g.manager.Err(2), status.Aborted, "Cleanup 2")
	if err := g.manager.Err(1); err != nil {
		t.Errorf("the step that ran longest ended: %v", err)
	}
	for step := range int64(maxRested + 21) {
		g.EndStep(step + 1)
	}
	g.sessions.mu.Lock()
	defer g.sessions.mu.Unlock()
	if n := g.sessions.byHandle[s].rested.Len(); n != 0 || len(g.sessions.steps) != 0 {
		t.Errorf("%d steps are noted after their cleanup, and %d owned", n, len(g.sessions.steps))
	}
}

// TestAnIdleSessionMakesRoom: masters that died leave their sessions. Beyond max-sessions the one that has
// been idle for longest ends; one that a master uses does not.
func TestAnIdleSessionMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGraphs(t, Options{Limits: Limits{Sessions: 3}})
		of := func(handle string) error {
			_, err := g.CreateWorkerSession(t.Context(), &tfpb.CreateWorkerSessionRequest{SessionHandle: handle})
			return err
		}
		for _, handle := range []string{"waits", "older", "dead"} {
			if err := of(handle); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		done := make(chan error, 1)
		waits := g.register("waits", double(t, "in", "out"))
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			_, err := g.RunGraph(ctx, running("waits", waits, 1))
			done <- err
		}()
		time.Sleep(sessionIdle - 3*time.Second)
		wantCode(t, of("new"), status.ResourceExhausted, "max-sessions")
		g.register("older", nothing)
		time.Sleep(3 * time.Second)
		if err := of("new"); err != nil {
			t.Fatal(err)
		}
		g.wantGone("dead")
		wantCode(t, of("newer"), status.ResourceExhausted, "24h0m0s")
		for _, handle := range []string{"waits", "older", "new"} {
			g.register(handle, nothing)
		}
		cancel()
		if err := <-done; err == nil {
			t.Error("a request whose caller is gone succeeded")
		}
		g.Close()
		g.manager.Close()
	})
}

// TestCPUDevices: GetStatus lists each CPU device in order, with an incarnation of its own, and
// values are sent and received under each.
func TestCPUDevices(t *testing.T) {
	const n = 3
	f := &fixture{t: t}
	place := rendezvous.NewSession(here, incarnation, n)
	f.manager = rendezvous.NewManager(rendezvous.ManagerOptions{Session: place})
	f.kept = delivery.NewResponseCache(f.manager, delivery.CacheOptions{})
	f.Worker = New(Options{Task: here, Incarnation: incarnation, Session: place, Manager: f.manager, Cache: f.kept})
	defer f.close()
	r, err := f.GetStatus(t.Context(), &tfpb.GetStatusRequest{})
	if err != nil || len(r.GetDeviceAttributes()) != n {
		t.Fatal(r, err)
	}
	seen := map[uint64]bool{0: true}
	for i, d := range r.GetDeviceAttributes() {
		if d.GetName() != fmt.Sprintf("/job:ps/replica:0/task:0/device:CPU:%d", i) || d.GetDeviceType() != "CPU" || seen[d.GetIncarnation()] {
			t.Errorf("device %d is %v", i, d)
		}
		seen[d.GetIncarnation()] = true
		key := rendezvous.CreateKey(d.GetName(), d.GetIncarnation(), cluster.DeviceOf(there).String(), "x", rendezvous.FrameIter{})
		if err := f.manager.Find(1).Send(mustKey(t, key), rendezvous.Args{}, nil, true); err != nil {
			t.Fatal(err)
		}
		got, err := f.RecvTensor(t.Context(), &tfpb.RecvTensorRequest{StepId: 1, RendezvousKey: key})
		if err != nil {
			t.Fatal(err)
		}
		got.Tensor.Release()
	}
	if a := r.GetDeviceAttributes()[0].GetIncarnation(); a != incarnation {
		t.Errorf("CPU:0 has the incarnation %x, want that of the process", a)
	}
}

// FuzzServerDef: no server_def makes the worker panic, and each is either refused or gives this
// process a name and devices.
func FuzzServerDef(f *testing.F) {
	def := clusterDef()
	def.ClusterDeviceFilters = filters("/job:chief")
	for _, d := range []*tfpb.ServerDef{def, clusterDef(), {JobName: "trainer", TaskIndex: -4, Replica: -1, Cluster: clusterDef().GetCluster()}} {
		b, err := proto.Marshal(d)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	m := &sessions{place: rendezvous.NewSession(here, incarnation, 1), newPeers: func(cluster.Task, *cluster.Spec) (Peers, error) { return new(fakePeers), nil }}
	f.Fuzz(func(t *testing.T, b []byte) {
		def := new(tfpb.ServerDef)
		if proto.Unmarshal(b, def) != nil {
			return
		}
		place, peers, err := m.cluster(def)
		if err == nil && (len(place.Devices) != 1 || (peers != nil) != (len(def.GetCluster().GetJob()) > 0)) {
			t.Errorf("%v gives %v with peers %v", def, place, peers)
		}
	})
}
