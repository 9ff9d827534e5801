package worker

import (
	"fmt"
	"sync"

	"github.com/tryst-rdma/tryst/status"
)

// recentWindow is how many request ids are remembered, as many as TensorFlow's
// worker remembers.
const recentWindow = 100_000

// recentIDs remembers the last request ids, so that a request which a retry
// below the application has repeated is answered once. It is first in, first
// out: seeing an id again does not make it younger.
type recentIDs struct {
	method string

	mu   sync.Mutex // guards what follows
	seen map[int64]struct{}
	ring []int64
	next int
}

func newRecentIDs(method string, window int) *recentIDs {
	return &recentIDs{method: method, seen: make(map[int64]struct{}), ring: make([]int64, window)}
}

// track refuses with Aborted an id that is remembered, and remembers it
// otherwise. The id 0 is that of a caller which gives none; it is never a
// duplicate. request is what the error shows.
func (r *recentIDs) track(id int64, request fmt.Stringer) error {
	if id == 0 {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, dup := r.seen[id]; dup {
		return status.Errorf(status.Aborted, "The same %s request was received twice. %s", r.method, request)
	}
	if old := r.ring[r.next]; old != 0 {
		delete(r.seen, old)
	}
	r.ring[r.next] = id
	r.seen[id] = struct{}{}
	r.next = (r.next + 1) % len(r.ring)
	return nil
}
