package rendezvous

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tryst-rdma/tryst/status"
)

// ManagerOptions say how a Manager makes the rendezvous of its steps. The zero
// value is for a process without peers whose steps are initialised by whoever
// runs them.
type ManagerOptions struct {
	// Session initialises every step as soon as it exists. Nil leaves that
	// to whoever runs the step, as in a worker whose sessions come later.
	Session *Session
	// Remoter receives from other tasks; nil when there are none.
	Remoter Remoter
	// Sources are publications, asked in this order.
	Sources []Source
}

// Source answers receives of publications: sets of tensors that do not change,
// whose keys are answered in every step, by reference, as often as asked.
type Source interface {
	// RecvPublished returns false, and does nothing, when key is not one of
	// the source's. Otherwise it returns true and calls done once, from any
	// goroutine, with a reference to the tensor of its own or an error.
	RecvPublished(ctx context.Context, key Key, done DoneFunc) bool

	// TakePublished returns the value that RecvPublished would, with a reference of its
	// own, if it lies in memory. Otherwise, and for errors, it returns false. It calls
	// nobody.
	TakePublished(key Key) (v Value, ok bool)

	// Publishes reports whether a key is one of the source's: then RecvPublished would
	// answer it, if only with an error.
	Publishes(key Key) bool
}

// Manager finds the rendezvous of a step. A process has one. It may be used
// from any goroutine.
//
// A step lives from its first use until it is cleaned up. One that exists only
// because peers ask for it goes away with the last of their receives.
type Manager struct {
	session *Session
	remoter Remoter
	sources atomic.Pointer[[]Source]

	// mu protects what follows. It is held for a look-up or a change of the
	// maps, never while a step works.
	mu      sync.Mutex
	steps   map[int64]*stepEntry
	over    history            // why steps that are not in the map ended
	delayed map[int64]struct{} // steps that AbortStepLater waits for
	closed  bool               // no step may begin any more
	closing chan struct{}      // closed with it
	work    sync.WaitGroup     // goroutines of the Manager; Add needs mu and not waited
	waited  bool               // Close waits for work
}

// stepEntry is a step that lives.
type stepEntry struct {
	r      *BaseRemote
	used   bool // somebody here has it, beside the receives of peers
	asking int  // receives of peers under way that began before anybody here had it
}

// NewManager returns a Manager without steps.
func NewManager(o ManagerOptions) *Manager {
	m := &Manager{
		session: o.Session,
		remoter: o.Remoter,
		steps:   make(map[int64]*stepEntry),
		over:    newHistory(rememberedSteps),
		delayed: make(map[int64]struct{}),
		closing: make(chan struct{}),
	}
	sources := slices.Clone(o.Sources)
	m.sources.Store(&sources)
	return m
}

// AddSource adds a publication, after those that are there.
func (m *Manager) AddSource(s Source) {
	m.mu.Lock()
	defer m.mu.Unlock()
	sources := append(slices.Clone(*m.sources.Load()), s)
	m.sources.Store(&sources)
}

// RemoveSource ends a publication for receives that come later. A source that
// is not there is no mistake.
func (m *Manager) RemoveSource(s Source) {
	m.mu.Lock()
	defer m.mu.Unlock()
	sources := slices.DeleteFunc(slices.Clone(*m.sources.Load()), func(other Source) bool { return other == s })
	m.sources.Store(&sources)
}

// Find returns the rendezvous of a step, which it makes when there is none; all
// callers get the same one. A step that is over, because it was cleaned up here
// or the Manager was closed, gives one that is aborted already.
func (m *Manager) Find(step int64) *BaseRemote {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, err := m.findLocked(step)
	if err != nil {
		r := m.newStep(step)
		r.Abort(err) // nothing waits in it: no callback runs under mu
		return r
	}
	e.used = true
	return e.r
}

// findLocked returns the entry of a step, made when there is none, or why the
// step is over.
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
	if m.session != nil {
		_ = r.Initialize(m.session) // fails only when repeated
	}
	return r
}

// RecvLocalAsync asks, for a peer, for a value that this task sends. A step
// that is over ends with Aborted at once. Publications are asked first; they
// make no step. In a step that nobody here has used yet the receive waits until
// somebody does or ctx ends; how many may wait is for the transport to bound.
func (m *Manager) RecvLocalAsync(ctx context.Context, step int64, key Key, done DoneFunc) {
	if err := m.ended(step); err != nil {
		done(Value{}, Args{}, err)
		return
	}
	for _, s := range *m.sources.Load() {
		if s.RecvPublished(ctx, key, done) {
			return
		}
	}
	m.mu.Lock()
	e, err := m.findLocked(step)
	used := err == nil && e.used
	if err == nil && !used {
		e.asking++
	}
	m.mu.Unlock()
	switch {
	case err != nil:
		done(Value{}, Args{}, err)
	case used: // it stays, whoever asks
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
	for _, s := range *m.sources.Load() {
		if v, ok = s.TakePublished(key); ok {
			return v, true
		}
	}
	if e == nil {
		return Value{}, false
	}
	return e.r.takeLocal(key)
}

// counted ends the count of a peer's receive before it calls done.
func (m *Manager) counted(step int64, e *stepEntry, done DoneFunc) DoneFunc {
	return func(v Value, args Args, err error) {
		m.asked(step, e)
		done(v, args, err)
	}
}

// RecvLocal is RecvLocalAsync that waits.
func (m *Manager) RecvLocal(ctx context.Context, step int64, key Key) (Value, error) {
	return await(func(done DoneFunc) { m.RecvLocalAsync(ctx, step, key, done) })
}

// ended returns why a step is over, or nil.
func (m *Manager) ended(step int64) error {
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

// asked ends a peer's receive in the books: the last one takes a step with it
// that nobody else has. If that was aborted meanwhile, it stays so.
func (m *Manager) asked(step int64, e *stepEntry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e.asking--
	if e.asking > 0 || e.used || m.steps[step] != e {
		return
	}
	delete(m.steps, step)
	if err := e.r.Err(); err != nil {
		m.over.add(step, status.From(err))
	}
}

// Restore gives back a value that was matched to a peer's receive which was
// then cancelled; see Local.Restore. It returns false, and the caller keeps the
// reference, when the step is over, and for what is published, which is in no step.
func (m *Manager) Restore(step int64, key Key, v Value) bool {
	for _, s := range *m.sources.Load() {
		if s.Publishes(key) {
			return false
		}
	}
	m.mu.Lock()
	e := m.steps[step]
	m.mu.Unlock()
	return e != nil && e.r.Restore(key, v)
}

// AbortStep ends a step with err, as its rendezvous' Abort; it stays until it
// is cleaned up. A step that is not known yet will be over when it comes.
func (m *Manager) AbortStep(step int64, err error) {
	e := m.abortable(step, err)
	if e != nil {
		e.r.Abort(err)
	}
}

func (m *Manager) abortable(step int64, err error) *stepEntry {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.steps[step]
	if e == nil {
		m.over.add(step, abortStatus(err))
	}
	return e
}

// AbortStepLater ends a step because a TensorFlow peer gave up one of its
// receives: after a second, with Aborted, as TensorFlow's worker does, so that
// the error which came first may reach the client first. It does not block.
func (m *Manager) AbortStepLater(step int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, waits := m.delayed[step]; waits || m.closed {
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

// Cleanup ends a step with Aborted, "Cleanup <step>", and forgets it. Later
// receives for it, and later finds, end with the same error.
func (m *Manager) Cleanup(step int64) {
	m.mu.Lock()
	e := m.steps[step]
	delete(m.steps, step)
	m.over.add(step, nil)
	if e != nil && !m.waited {
		m.work.Add(1) // Close waits for what goes on here
		defer m.work.Done()
	}
	m.mu.Unlock()
	if e != nil {
		m.drop(e.r, errCleanup(step))
	}
}

// CleanupAll ends and forgets all steps with Aborted, "Shutdown", as
// TensorFlow's manager does. New steps may begin.
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

// drop aborts a step that is not in the map any more. What the transport still
// does for it is waited for in the background, so that Close can wait too.
func (m *Manager) drop(r *BaseRemote, err error) {
	r.Abort(err)
	if r.busy() {
		m.work.Go(r.Close) // its caller is counted
	}
}

// Steps returns how many steps live.
func (m *Manager) Steps() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.steps)
}

// Shutdown ends all steps with Aborted, "Shutdown", and waits for nobody. Later sends
// and receives end with the same error. Values that a transport has taken are its own.
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

// Close is Shutdown, and returns when no callback and no remote receive of any step is
// under way. It must not be called from a callback. Closing twice is harmless.
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

func errShutdown() *status.Error { return status.New(status.Aborted, "Shutdown").Derived() }
