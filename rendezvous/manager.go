package rendezvous

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/status"
)

// ManagerOptions define how a Manager makes the rendezvous of its steps. The
// zero value is for a process without peers, whose caller initialises each step.
type ManagerOptions struct {
	// Session initialises every step when it is made. With nil the code that
	// runs a step initialises it, as in a worker whose sessions are created
	// later.
	Session *Session
	// Remoter receives from other tasks; nil when there are none.
	Remoter Remoter
	// SendBound is the bound of SendWait: the bytes that a step has sent to a task and that
	// the task does not have yet. 0 is DefaultSendBound.
	SendBound int64
	// Publishers are searched in this order.
	Publishers []Publisher
}

// Publisher has publications: sets of tensors that do not change. A receive of
// one of its keys succeeds in every step, any number of times, and gets a
// reference to the tensor, not a copy.
type Publisher interface {
	// RecvPublished receives a published tensor. When key is not one of the
	// publisher's it returns false and does nothing. Otherwise it returns true
	// and calls done once, from any goroutine, with an error or a tensor of
	// which the callback owns a reference.
	RecvPublished(ctx context.Context, key Key, done DoneFunc) bool

	// TakePublished returns the value that RecvPublished would, with a reference of its
	// own, if it lies in memory. Otherwise, and for errors, it returns false. It calls
	// nobody.
	TakePublished(key Key) (v Value, ok bool)

	// Publishes reports whether key is one of the publisher's, so that
	// RecvPublished would return true.
	Publishes(key Key) bool
}

// Restorer is a Publisher whose values are received once. RestorePublished takes back one whose receive
// was cancelled, as Manager.Restore does.
type Restorer interface {
	Publisher
	RestorePublished(key Key, v Value) bool
}

// Manager finds the rendezvous of a step. A process has one. It may be used
// from any goroutine.
//
// A step exists from its first use until its cleanup. A step that only peers
// use, which this process has not begun, exists until the last of their receives
// has ended.
type Manager struct {
	session    *Session
	remoter    Remoter
	bound      int64
	publishers atomic.Pointer[[]Publisher]

	// mu protects the fields below. It is held for a look-up or a change of
	// the maps only, never while a method of a step runs.
	mu      sync.Mutex
	steps   map[int64]*stepEntry // the steps that exist
	over    history              // steps that ended, with the reasons
	delayed map[int64]struct{}   // steps with a pending AbortStepLater
	closed  bool                 // no step may begin any more
	closing chan struct{}        // closed when closed is set
	work    sync.WaitGroup       // goroutines of the Manager; Add needs mu and !waited
	waited  bool                 // Close waits for work
}

// stepEntry is a step in the Manager's map.
type stepEntry struct {
	r         *BaseRemote
	used      bool // this process has begun the step, through Find
	peerRecvs int  // unfinished receives of peers that began before used was set
}

// NewManager returns a Manager without steps.
func NewManager(o ManagerOptions) *Manager {
	m := &Manager{
		session: o.Session,
		remoter: o.Remoter,
		bound:   o.SendBound,
		steps:   make(map[int64]*stepEntry),
		over:    newHistory(rememberedSteps),
		delayed: make(map[int64]struct{}),
		closing: make(chan struct{}),
	}
	publishers := slices.Clone(o.Publishers)
	m.publishers.Store(&publishers)
	return m
}

// AddPublisher adds a publisher, to be searched after the present ones.
func (m *Manager) AddPublisher(s Publisher) {
	m.mu.Lock()
	defer m.mu.Unlock()
	publishers := append(slices.Clone(*m.publishers.Load()), s)
	m.publishers.Store(&publishers)
}

// RemovePublisher removes a publisher. Receives that have begun are not affected.
// It does nothing when s was not added.
func (m *Manager) RemovePublisher(s Publisher) {
	m.mu.Lock()
	defer m.mu.Unlock()
	publishers := slices.DeleteFunc(slices.Clone(*m.publishers.Load()), func(other Publisher) bool { return other == s })
	m.publishers.Store(&publishers)
}

// Find returns the rendezvous of a step, and makes it when there is none. All
// callers get the same one. For a step that has ended, by a cleanup or the end of
// the Manager, it returns a rendezvous that is aborted already.
func (m *Manager) Find(step int64) *BaseRemote {
	m.mu.Lock()
	e, err := m.findLocked(step)
	if err != nil {
		defer m.mu.Unlock()
		r := m.newStep(step)
		r.Abort(err) // r is new and has no receives: no callback runs under mu
		return r
	}
	begins := !e.used
	e.used = true
	m.mu.Unlock()
	if begins {
		e.r.beginStep()
	}
	return e.r
}

// Begin begins a step on behalf of a worker session: s has the name and the devices that this
// process has in it, and remoter, if not nil, reaches the tasks of its cluster. Receives of
// peers that came before wait for it. For a step that was begun already, Begin returns its
// rendezvous if s has the same task, and Internal otherwise. For a step that has ended it returns
// the reason.
func (m *Manager) Begin(step int64, s *Session, remoter Remoter) (*BaseRemote, error) {
	m.mu.Lock()
	e, err := m.findLocked(step)
	if err != nil {
		m.mu.Unlock()
		return nil, err
	}
	if e.used {
		m.mu.Unlock()
		return e.r, e.r.Initialize(s)
	}
	e.used = true
	e.r.setSession(s, remoter) // with the lock: Find of another goroutine returns a complete step
	m.mu.Unlock()
	e.r.beginStep()
	return e.r, nil
}

// findLocked returns the entry of a step, and makes it when there is none. For a
// step that has ended it returns the reason.
func (m *Manager) findLocked(step int64) (*stepEntry, error) {
	if e := m.steps[step]; e != nil {
		return e, nil
	}
	if m.closed {
		return nil, errShutdown()
	}
	if err := m.over.find(step); err != nil {
		return nil, err
	}
	e := &stepEntry{r: m.newStep(step)}
	m.steps[step] = e
	return e, nil
}

func (m *Manager) newStep(step int64) *BaseRemote {
	r := NewBaseRemote(step, m.remoter)
	r.bound = m.bound
	if m.session != nil {
		r.setSession(m.session, nil)
	}
	return r
}

// RecvLocalAsync receives, on behalf of a peer, a value that this task sends. In
// a step that has ended the receive ends with Aborted at once. Publications are
// searched first and make no step. In a step that this process has not begun the
// receive waits until it begins or ctx ends. The transport bounds the number of
// waiting receives.
func (m *Manager) RecvLocalAsync(ctx context.Context, step int64, key Key, done DoneFunc) {
	if err := m.stepErr(step); err != nil {
		done(Value{}, Args{}, err)
		return
	}
	for _, s := range *m.publishers.Load() {
		if s.RecvPublished(ctx, key, done) {
			return
		}
	}
	m.mu.Lock()
	e, err := m.findLocked(step)
	used := err == nil && e.used
	if err == nil && !used {
		e.peerRecvs++
	}
	m.mu.Unlock()
	switch {
	case err != nil:
		done(Value{}, Args{}, err)
	case used: // the step stays until its cleanup, so the receive is not counted
		e.r.RecvLocalAsync(ctx, key, done)
	default:
		e.r.RecvLocalAsync(ctx, key, m.counted(step, e, done))
	}
}

// TakeLocal is RecvLocalAsync for a value that is there, sent or published: it
// returns the value, with a reference, and true. Otherwise it returns false, and nothing has
// changed. It calls nobody, so it may be called with locks held that callbacks take.
func (m *Manager) TakeLocal(step int64, key Key) (v Value, ok bool) {
	m.mu.Lock()
	e := m.steps[step]
	over := e == nil && (m.closed || m.over.find(step) != nil)
	m.mu.Unlock()
	if over {
		return Value{}, false
	}
	for _, s := range *m.publishers.Load() {
		if v, ok = s.TakePublished(key); ok {
			return v, true
		}
	}
	if e == nil {
		return Value{}, false
	}
	return e.r.takeLocal(key)
}

// counted returns a callback that uncounts a peer's receive and then calls done.
func (m *Manager) counted(step int64, e *stepEntry, done DoneFunc) DoneFunc {
	return func(v Value, args Args, err error) {
		m.peerRecvEnded(step, e)
		done(v, args, err)
	}
}

// RecvLocal is RecvLocalAsync that waits.
func (m *Manager) RecvLocal(ctx context.Context, step int64, key Key) (Value, error) {
	return await(func(done DoneFunc) { m.RecvLocalAsync(ctx, step, key, done) })
}

// stepErr returns the reason for the end of a step, nil when it has not ended.
func (m *Manager) stepErr(step int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.steps[step] != nil {
		return nil
	}
	if m.closed {
		return errShutdown()
	}
	return m.over.find(step)
}

// Err returns the reason for the end of a step, nil when it has not ended. It neither makes nor
// begins the step.
func (m *Manager) Err(step int64) error {
	m.mu.Lock()
	e := m.steps[step]
	m.mu.Unlock()
	if e != nil {
		return e.r.Err()
	}
	return m.stepErr(step)
}

// peerRecvEnded uncounts a peer's receive. After the last one it removes a step
// that this process has not begun. If that step was aborted, the Manager
// remembers it as ended.
func (m *Manager) peerRecvEnded(step int64, e *stepEntry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e.peerRecvs--
	if e.peerRecvs > 0 || e.used || m.steps[step] != e {
		return
	}
	delete(m.steps, step)
	if err := e.r.Err(); err != nil {
		m.over.add(step, status.From(err))
	}
}

// Restore returns a value to its step that was matched to a peer's receive which
// was then cancelled; see Local.Restore. It returns false, and the caller keeps
// the reference, when the step has ended and when the key is a publication's,
// which belongs to no step.
func (m *Manager) Restore(step int64, key Key, v Value) bool {
	for _, s := range *m.publishers.Load() {
		if s.Publishes(key) {
			once, ok := s.(Restorer)
			return ok && once.RestorePublished(key, v)
		}
	}
	m.mu.Lock()
	e := m.steps[step]
	m.mu.Unlock()
	return e != nil && e.r.Restore(key, v)
}

// Over reports whether step has ended and is remembered: each receive of key there ends with the error that it has ended
// with. It is false for the keys of publishers, which belong to no step.
func (m *Manager) Over(step int64, key Key) bool {
	for _, s := range *m.publishers.Load() {
		if s.Publishes(key) {
			return false
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.steps[step] == nil && m.over.find(step) != nil
}

// Republishes reports whether key is a publication's, so that each receive of it gets the value.
func (m *Manager) Republishes(key Key) bool {
	for _, s := range *m.publishers.Load() {
		if s.Publishes(key) {
			_, once := s.(Restorer)
			return !once
		}
	}
	return false
}

// AbortStep aborts the rendezvous of a step, which stays until its cleanup. A
// step that does not exist is remembered as ended with err.
func (m *Manager) AbortStep(step int64, err error) {
	m.mu.Lock()
	e := m.steps[step]
	if e == nil {
		m.over.add(step, abortStatus(err))
	}
	m.mu.Unlock()
	if e != nil {
		e.r.Abort(err)
	}
}

// AbortWith aborts the steps in which something is under way with a task: a value that was sent to it and that it does
// not have, a receive from it, or a request of it. Steps of a worker session with names of its own go on. It looks at
// all values and receives that wait.
func (m *Manager) AbortWith(task cluster.Task, err error) {
	m.mu.Lock()
	steps := maps.Clone(m.steps)
	m.mu.Unlock()
	for _, e := range steps {
		if s := e.r.session.Load(); s != nil && s != m.session {
			continue
		}
		if e.r.with(task) {
			e.r.Abort(err)
		}
	}
}

// AbortStepLater aborts a step after abortDelay, with Aborted, as TensorFlow's
// worker does when a peer cancels a receive. Until then the error that caused
// the cancel can reach the client. AbortStepLater does not block.
func (m *Manager) AbortStepLater(step int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, pending := m.delayed[step]; pending || m.closed {
		return
	}
	m.delayed[step] = struct{}{}
	m.work.Go(func() {
		timer := time.NewTimer(abortDelay)
		defer timer.Stop()
		select {
		case <-m.closing:
			return
		case <-timer.C:
		}
		m.mu.Lock()
		delete(m.delayed, step)
		m.mu.Unlock()
		m.AbortStep(step, status.Errorf(status.Aborted, "Step %d cancelled.  Cancelling rendezvous.", step))
	})
}

// Cleanup aborts a step with Aborted, "Cleanup <step>", and removes it. Later
// receives of the step end with the same error.
func (m *Manager) Cleanup(step int64) {
	m.mu.Lock()
	e := m.steps[step]
	delete(m.steps, step)
	m.over.add(step, nil)
	if e != nil && !m.waited {
		m.work.Add(1) // Close waits for this call
		defer m.work.Done()
	}
	m.mu.Unlock()
	if e != nil {
		m.drop(e.r, errCleanup(step))
	}
}

// CleanupAll aborts all steps with Aborted, "Shutdown", as TensorFlow's manager
// does, and removes them. New steps may begin.
func (m *Manager) CleanupAll() {
	err := errShutdown()
	m.mu.Lock()
	steps := m.takeLocked()
	for id := range steps {
		m.over.add(id, err)
	}
	if !m.waited {
		m.work.Add(1)
		defer m.work.Done()
	}
	m.mu.Unlock()
	for _, e := range steps {
		m.drop(e.r, err)
	}
}

func (m *Manager) takeLocked() map[int64]*stepEntry {
	steps := m.steps
	m.steps = make(map[int64]*stepEntry)
	return steps
}

// drop aborts a step that was removed from the map. A goroutine waits for its
// remaining callbacks and remote receives, so that Close waits for them too.
func (m *Manager) drop(r *BaseRemote, err error) {
	r.Abort(err)
	if r.busy() {
		m.work.Go(r.Close) // the caller has added itself to work
	}
}

// Steps returns the number of steps.
func (m *Manager) Steps() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.steps)
}

// Shutdown aborts all steps with Aborted, "Shutdown", and does not wait for
// callbacks or remote receives. Later sends and receives end with the same error.
// Values that a transport has received are not affected.
func (m *Manager) Shutdown() {
	m.mu.Lock()
	if !m.closed {
		m.closed = true
		close(m.closing)
	}
	steps := maps.Clone(m.steps)
	m.mu.Unlock()
	for _, e := range steps {
		e.r.Abort(errShutdown())
	}
}

// Close calls Shutdown, and returns when no callback and no remote receive of any
// step is under way. It must not be called from a callback. It may be called more
// than once.
func (m *Manager) Close() {
	m.Shutdown()
	m.mu.Lock()
	m.waited = true
	steps := m.takeLocked()
	m.mu.Unlock()
	for _, e := range steps {
		e.r.Close()
	}
	m.work.Wait()
}

func errShutdown() *status.Error {
	return status.New(status.Aborted, "Shutdown").Derived().WithKind(status.ErrShutdown)
}
