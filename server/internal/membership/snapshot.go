// Package membership has the tasks of the process's cluster, which come and go while it runs. What a change means is a
// pure function of two clusters (Snapshot.Next); readers load the present Snapshot, which does not change, without a
// lock.
package membership

import (
	"slices"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/status"
)

// Snapshot is a cluster, and the tasks that have left it. It is immutable.
type Snapshot struct {
	spec    *cluster.Spec
	version uint64
	order   []cluster.Task // that have left, the last one at the end
	left    map[cluster.Task]struct{}
}

// Spec returns the cluster; nil when it has no tasks.
func (s *Snapshot) Spec() *cluster.Spec { return s.spec }

// Version counts the changes since the start.
func (s *Snapshot) Version() uint64 { return s.version }

// Left reports whether a task was in the cluster before, and is not now. The earliest of very many are forgotten: they
// are then tasks that were never there.
func (s *Snapshot) Left(t cluster.Task) bool {
	_, left := s.left[t]
	return left
}

// Change is how a cluster differs from the one before it. Each list is sorted.
type Change struct {
	Added, Removed, Moved []cluster.Task // Moved have another address
}

// Empty reports whether nothing has changed.
func (c Change) Empty() bool { return len(c.Added)+len(c.Removed)+len(c.Moved) == 0 }

// Next returns the snapshot with another cluster, and the difference. self is the task of this process, which stays
// where it is: it listens there. A cluster without it, or with another address for it, is FailedPrecondition. A process
// beside its cluster, such as TensorFlow's evaluator, may stay there.
func (s *Snapshot) Next(spec *cluster.Spec, self cluster.Task) (*Snapshot, Change, error) {
	at, ok := spec.Address(self)
	switch was, listed := s.spec.Address(self); {
	case !ok && (listed || s.spec.Len() == 0 || spec.Len() == 0):
		return nil, Change{}, status.Errorf(status.FailedPrecondition,
			"the cluster %q does not have %v, which is this process: it cannot remove itself; stop it instead", spec, self)
	case listed && was != at:
		return nil, Change{}, status.Errorf(status.FailedPrecondition,
			"the cluster has %v, which is this process, at %s, and it was started for %s: it cannot move itself; restart it there", self, at, was)
	}
	c := Change{}
	for _, t := range spec.Tasks() {
		address, _ := spec.Address(t)
		switch was, ok := s.spec.Address(t); {
		case !ok:
			c.Added = append(c.Added, t)
		case was != address:
			c.Moved = append(c.Moved, t)
		}
	}
	for _, t := range s.spec.Tasks() {
		if _, ok := spec.Address(t); !ok {
			c.Removed = append(c.Removed, t)
		}
	}
	return s.with(spec, c.Removed), c, nil
}

// with returns the snapshot with another cluster, which tasks have left.
func (s *Snapshot) with(spec *cluster.Spec, removed []cluster.Task) *Snapshot {
	next := &Snapshot{spec: spec, version: s.version + 1, left: make(map[cluster.Task]struct{})}
	for _, t := range slices.Concat(s.order, removed) {
		if _, back := spec.Address(t); !back {
			next.order = append(next.order, t)
		}
	}
	next.order = next.order[max(0, len(next.order)-maxLeft):]
	for _, t := range next.order {
		next.left[t] = struct{}{}
	}
	return next
}
