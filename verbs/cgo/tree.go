//go:build linux && cgo

package libibverbs

import (
	"fmt"
	"sync"

	"github.com/tryst-rdma/tryst/verbs"
)

// tree counts, for the objects of one device, those that came from each and are
// open, so that closing in the wrong order is refused here, in words, whatever
// the driver would do.
type tree struct {
	mu     sync.Mutex // protects what follows, and all nodes of the tree
	counts verbs.Counts
}

// node is the place of an object that others come from: a device, a protection
// domain, a completion queue.
type node struct {
	users  int // objects that came from it, or use it, and are open or being made
	closed bool
}

// enter counts a new object of the kind that *count counts, under its parents:
// ErrClosed when one of them is closed.
func (t *tree) enter(count *int, parents ...*node) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range parents {
		if p.closed {
			return verbs.ErrClosed
		}
	}
	for _, p := range parents {
		p.users++
	}
	*count++
	return nil
}

// leave undoes enter: the object is gone, or was never made.
func (t *tree) leave(count *int, parents ...*node) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range parents {
		p.users--
	}
	*count--
}

// shut lets nothing new come from the node: ErrBusy while something is open that
// did. What is said about that is the caller's words, which get the counts.
func (t *tree) shut(n *node, words func(users int, c verbs.Counts) string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n.users > 0 {
		return fmt.Errorf("%w: %s", verbs.ErrBusy, words(n.users, t.counts))
	}
	n.closed = true
	return nil
}

// reopen undoes shut: the driver did not let go.
func (t *tree) reopen(n *node) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n.closed = false
}

// openCounts returns the counts.
func (t *tree) openCounts() verbs.Counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.counts
}
