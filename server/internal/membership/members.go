package membership

import (
	"sync"
	"sync/atomic"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/status"
)

// Members is the present cluster of a process.
type Members struct {
	self cluster.Task
	now  atomic.Pointer[Snapshot]

	mu     sync.Mutex // held during a change
	closed bool
}

// New returns the members of a process that starts with a cluster; nil without one.
func New(self cluster.Task, spec *cluster.Spec) *Members {
	m := &Members{self: self}
	m.now.Store(&Snapshot{spec: spec})
	return m
}

// Now returns the present cluster.
func (m *Members) Now() *Snapshot { return m.now.Load() }

// Spec is Now().Spec().
func (m *Members) Spec() *cluster.Spec { return m.now.Load().spec }

// Set makes spec the cluster, and calls apply with the difference before the next change. Readers may see the new
// cluster before apply has run. After Close it is Aborted.
func (m *Members) Set(spec *cluster.Spec, apply func(Change)) (Change, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return Change{}, status.New(status.Aborted, "the server is closing").WithKind(status.ErrShutdown)
	}
	next, change, err := m.now.Load().Next(spec, m.self)
	if err != nil || change.Empty() {
		return change, err
	}
	m.now.Store(next)
	apply(change)
	return change, nil
}

// Close refuses changes from now on, and waits for one that is under way.
func (m *Members) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
}
