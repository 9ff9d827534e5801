package worker

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// sessions has the worker sessions of a process, as TensorFlow's SessionMgr.
type sessions struct {
	set      graph.KernelSet
	place    *rendezvous.Session // of the process
	newPeers func(cluster.Task, *cluster.Spec) (Peers, error)
	places   func(*cluster.Spec) map[cluster.Task]cluster.Place
	limits   Limits
	legacy   *session // for masters that create none

	cleanUp func(step int64) // ends a step that no master will clean up

	open    sync.WaitGroup // sessions that are not free
	renamed atomic.Int64   // those of them that have a cluster of their own

	mu       sync.Mutex // guards what follows; taken with the lock of a channel held (named)
	byHandle map[string]*session
	live     map[*session]bool             // that are not free; steps of some that have ended run on
	masters  map[string]map[*session]int64 // sessions of a master by its task, with its incarnation
	steps    map[int64]*ownedStep          // that have run here, until they are cleaned up
	over     bool

	sharing sync.Mutex  // guards shared; held while the kernel set makes it
	shared  graph.State // of all sessions that are not isolated; nil before it is needed
}

func newSessions(o *Options) *sessions {
	m := &sessions{
		set: setFor(o.Kernels, len(o.Session.Devices)), place: o.Session, newPeers: o.NewPeers, places: o.Places, limits: o.Limits,
		byHandle: make(map[string]*session), live: make(map[*session]bool), masters: make(map[string]map[*session]int64), steps: make(map[int64]*ownedStep),
	}
	m.open.Add(1)
	m.legacy = m.make("", o.Session)
	return m
}

// make returns a session with the shared state, which open counts already.
func (m *sessions) make(handle string, place *rendezvous.Session) *session {
	s := newSession(handle, place, m.limits)
	renamed := int64(0)
	if place.Places != nil {
		renamed = 1
	}
	s.newState = m.newShared
	s.freed = func() {
		m.cleanUpAll(s)
		m.mu.Lock()
		delete(m.live, s)
		m.mu.Unlock()
		m.renamed.Add(-renamed)
		m.open.Done()
	}
	m.mu.Lock()
	m.live[s] = true
	m.mu.Unlock()
	m.renamed.Add(renamed)
	return s
}

// enter counts a session in open, unless the worker has ended.
func (m *sessions) enter() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.over {
		return errAborted()
	}
	m.open.Add(1)
	return nil
}

// newShared returns the state of a session that shares its variables: they live as long as the process.
func (m *sessions) newShared() (graph.State, error) {
	m.sharing.Lock()
	defer m.sharing.Unlock()
	if m.shared == nil {
		state, err := m.set.NewState()
		if err != nil {
			return nil, err
		}
		m.shared = state
	}
	return m.shared.NewSession(), nil
}

// reset drops the variables of containers in the shared state.
func (m *sessions) reset(containers []string) {
	m.sharing.Lock()
	shared := m.shared
	m.sharing.Unlock()
	if shared != nil {
		shared.Reset(containers)
	}
}

// create makes a session. One that exists already stays as it is, as in TensorFlow.
func (m *sessions) create(req *tfpb.CreateWorkerSessionRequest) error {
	handle := req.GetSessionHandle()
	if handle == "" {
		return status.New(status.InvalidArgument, "Session must be non-empty.")
	}
	leader, err := leaderOf(req.GetServerDef().GetDefaultSessionConfig())
	if err != nil {
		return status.From(err).WithPrefix("CreateWorkerSession " + handle + ": server_def.default_session_config")
	}
	if err := m.enter(); err != nil {
		return err
	}
	place, peers, err := m.cluster(req.GetServerDef())
	if err != nil {
		m.open.Done()
		return status.From(err).WithPrefix("CreateWorkerSession " + handle)
	}
	s := m.make(handle, place)
	s.peers, s.leader = peers, leader
	if req.GetIsolateSessionState() {
		s.newState = m.set.NewState
	}
	old, added, err := m.add(s, req)
	for _, o := range old {
		o.s.finish(status.Errorf(status.Aborted, "session %s ended: %s", o.s.handle, o.why))
	}
	if !added {
		s.finish(err)
	}
	return err
}

// replaced is a session that makes room for another.
type replaced struct {
	s   *session
	why string
}

// add enters a session, unless there is one with its handle. It takes out those of its master's
// earlier incarnations, and one that is idle when it needs the place; the caller ends them.
func (m *sessions) add(s *session, req *tfpb.CreateWorkerSessionRequest) (old []replaced, added bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.over {
		return nil, false, errAborted()
	}
	master := req.GetMasterTask()
	if master != "" {
		for other, incarnation := range m.masters[master] {
			if incarnation != req.GetMasterIncarnation() {
				m.removeLocked(other)
				old = append(old, replaced{other, "its master " + master + " has restarted"})
			}
		}
	}
	if m.byHandle[s.handle] != nil {
		return old, false, nil
	}
	if len(m.byHandle) >= m.limits.Sessions {
		idle := m.idleLocked()
		if idle == nil {
			return old, false, status.Errorf(status.ResourceExhausted,
				"CreateWorkerSession: there are %d sessions already, the limit of max-sessions, and masters have used all of them within %v; close sessions at their masters, or raise the limit", len(m.byHandle), sessionIdle)
		}
		m.removeLocked(idle)
		old = append(old, replaced{idle, fmt.Sprintf("there are as many as max-sessions allows, and its master has not used it for %v", sessionIdle)})
	}
	m.byHandle[s.handle] = s
	if master != "" {
		if m.masters[master] == nil {
			m.masters[master] = make(map[*session]int64)
		}
		m.masters[master][s] = req.GetMasterIncarnation()
	}
	return old, true, nil
}

// idleLocked returns the session that has been idle for longest, at least for sessionIdle; nil when
// there is none.
func (m *sessions) idleLocked() (longest *session) {
	before := time.Now().Add(-sessionIdle)
	for _, s := range m.byHandle {
		if used, idle := s.idleSince(); idle && !used.After(before) {
			longest, before = s, used
		}
	}
	return longest
}

func (m *sessions) removeLocked(s *session) {
	delete(m.byHandle, s.handle)
	for master, of := range m.masters {
		if delete(of, s); len(of) == 0 {
			delete(m.masters, master)
		}
	}
}

// remove ends a session. One that does not exist, and the legacy session, are no mistake.
func (m *sessions) remove(handle string) {
	m.mu.Lock()
	s := m.byHandle[handle]
	if s != nil {
		m.removeLocked(s)
	}
	m.mu.Unlock()
	if s != nil {
		s.finish(status.Errorf(status.Aborted, "session %s was deleted", handle))
	}
}

// find returns a session for a call, which calls release. created is false for masters that make
// no session: they use the legacy session.
func (m *sessions) find(created bool, handle string) (*session, error) {
	s := m.legacy
	if created && handle != "" {
		m.mu.Lock()
		s = m.byHandle[handle]
		over := m.over
		m.mu.Unlock()
		if s == nil && over {
			return nil, errAborted()
		}
	}
	if s == nil {
		return nil, status.Errorf(status.Aborted, "Session handle is not found: %s. Possibly this worker (%q) just restarted.",
			handle, m.place.Task).WithPayload(status.PayloadPossiblyRestarted, nil)
	}
	if err := s.use(); err != nil {
		return nil, err
	}
	return s, nil
}

// named returns the place of this process in a session that gives it the name task; nil when none
// does.
func (m *sessions) named(task cluster.Task) *rendezvous.Session {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.byHandle {
		if s.place.Task == task {
			return s.place
		}
	}
	return nil
}

// anyPlace reports whether f is true for the place of this process in a session that has a cluster of
// its own.
func (m *sessions) anyPlace(f func(*rendezvous.Session) bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for s := range m.live {
		if s.place.Places != nil && f(s.place) {
			return true
		}
	}
	return false
}

// count returns the numbers of sessions and of their graphs, and of the steps that run. A step counts
// until its last kernel has ended, also when its session has ended before.
func (m *sessions) count() (sessions, graphs, steps int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range append(values(m.byHandle), m.legacy) {
		s.mu.Lock()
		graphs += len(s.graphs)
		s.mu.Unlock()
	}
	for s := range m.live {
		s.mu.Lock()
		steps += s.steps
		s.mu.Unlock()
	}
	return len(m.byHandle), graphs, steps
}

func values(m map[string]*session) []*session {
	all := make([]*session, 0, len(m)+1)
	for _, s := range m {
		all = append(all, s)
	}
	return all
}

// close ends all sessions and waits until they are free. Then it frees the shared state.
func (m *sessions) close() {
	m.mu.Lock()
	if m.over {
		m.mu.Unlock()
		m.open.Wait()
		return
	}
	m.over = true
	all := append(values(m.byHandle), m.legacy)
	clear(m.byHandle)
	clear(m.masters)
	m.mu.Unlock()
	for _, s := range all {
		s.finish(errAborted())
	}
	m.open.Wait()
	if m.shared != nil {
		m.shared.Close()
	}
}

// errAborted is TensorFlow's error of calls to a worker that ends.
func errAborted() *status.Error {
	return status.New(status.Aborted, "Call was aborted").WithKind(status.ErrShutdown)
}

// cluster returns the place of this process in a session, and its peers. Without a cluster in def
// both are those of the process: its names in def have no effect then, as in TensorFlow.
func (m *sessions) cluster(def *tfpb.ServerDef) (*rendezvous.Session, Peers, error) {
	if len(def.GetCluster().GetJob()) == 0 {
		return m.place, nil, nil
	}
	task, err := cluster.ParseTask(fmt.Sprintf("/job:%s/replica:%d/task:%d", def.GetJobName(), def.GetReplica(), def.GetTaskIndex()))
	if err != nil {
		return nil, nil, status.From(err).WithPrefix("server_def")
	}
	spec, err := propagated(def, task)
	if err != nil {
		return nil, nil, err
	}
	if m.newPeers == nil {
		return nil, nil, status.New(status.Unimplemented, "server_def: this worker takes no cluster from a master; leave cluster_def of the session's config empty")
	}
	peers, err := m.newPeers(task, spec)
	if err != nil {
		return nil, nil, err
	}
	place := renamed(m.place, task)
	if m.places != nil {
		all, err := specOf(def, nil, task) // with those that filters hide here: they may see this task
		if err != nil {
			all = spec
		}
		place.Places = m.places(all)
	}
	return place, peers, nil
}

// renamed returns the devices of a process under another task name, with their incarnations.
func renamed(place *rendezvous.Session, task cluster.Task) *rendezvous.Session {
	devices := make(map[cluster.Device]uint64, len(place.Devices))
	for d, incarnation := range place.Devices {
		d.Task = task
		devices[d] = incarnation
	}
	return &rendezvous.Session{Task: task, Devices: devices, Copy: place.Copy}
}

// propagated returns the cluster in def without the tasks that its device filters hide from this
// task.
func propagated(def *tfpb.ServerDef, self cluster.Task) (*cluster.Spec, error) {
	filters, err := filtersOf(def, self)
	if err != nil {
		return nil, err
	}
	return specOf(def, filters, self)
}

// specOf returns the tasks in def that filters make visible to this task; all without filters.
func specOf(def *tfpb.ServerDef, filters []cluster.Pattern, self cluster.Task) (*cluster.Spec, error) {
	jobs := make(map[string]map[int]string)
	for _, job := range def.GetCluster().GetJob() {
		tasks := make(map[int]string)
		for index, address := range job.GetTasks() {
			t := cluster.Task{Job: job.GetName(), Index: int(index)}
			isSelf := t.Job == self.Job && t.Index == self.Index // a cluster has no replicas
			if isSelf || visible(filters, t) {
				tasks[int(index)] = address
			}
		}
		if len(tasks) > 0 {
			jobs[job.GetName()] = tasks
		}
	}
	spec, err := cluster.NewSpec(jobs)
	if err != nil {
		return nil, status.From(err).WithPrefix("server_def.cluster")
	}
	return spec, nil
}

// filtersOf returns the device filters for this task.
func filtersOf(def *tfpb.ServerDef, self cluster.Task) (filters []cluster.Pattern, err error) {
	for _, job := range def.GetClusterDeviceFilters().GetJobs() {
		if job.GetName() != self.Job {
			continue
		}
		for _, text := range job.GetTasks()[int32(self.Index)].GetDeviceFilters() { //nolint:gosec // it was an int32
			p, err := cluster.ParsePattern(text)
			if err != nil {
				return nil, status.From(err).WithPrefix("server_def.cluster_device_filters")
			}
			filters = append(filters, p)
		}
	}
	return filters, nil
}

// visible reports whether a filter names the task or a device of it. Without filters all are.
func visible(filters []cluster.Pattern, t cluster.Task) bool {
	for _, p := range filters {
		if p.Matches(cluster.Device{Task: t, Type: p.Type, Index: p.Index}) {
			return true
		}
	}
	return len(filters) == 0
}

// CreateWorkerSession makes a session for a master.
func (w *Worker) CreateWorkerSession(_ context.Context, req *tfpb.CreateWorkerSessionRequest) (*tfpb.CreateWorkerSessionResponse, error) {
	if w.sessions == nil {
		return nil, refuse("CreateWorkerSession")
	}
	if err := w.sessions.create(req); err != nil {
		return nil, err
	}
	return &tfpb.CreateWorkerSessionResponse{}, nil
}

// DeleteWorkerSession ends a session and the steps that it still runs. A session that does not
// exist is no mistake: the worker may have restarted.
func (w *Worker) DeleteWorkerSession(_ context.Context, req *tfpb.DeleteWorkerSessionRequest) (*tfpb.DeleteWorkerSessionResponse, error) {
	if w.sessions == nil {
		return nil, refuse("DeleteWorkerSession")
	}
	w.sessions.remove(req.GetSessionHandle())
	return &tfpb.DeleteWorkerSessionResponse{}, nil
}
