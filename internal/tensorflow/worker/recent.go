package worker

import (
	"fmt"
	"sync"

	"github.com/tryst-rdma/tryst/status"
)

// recentIDs remembers the last request ids, so that a request repeated by a layer below the
// application has one response. It is first in, first out: a repeated id keeps its place.
type recentIDs struct {
	method string

	mu   sync.Mutex // guards the fields below
	seen map[int64]struct{}
	ring []int64
	next int
}

func newRecentIDs(method string, window int) *recentIDs {
	return &recentIDs{method: method, seen: make(map[int64]struct{}), ring: make([]int64, window)}
}

// track returns Aborted if id is remembered, and remembers it otherwise. The id 0 means that
// the caller sent none; it is never a duplicate. request is for the text of the error.
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
