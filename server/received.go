package server

import (
	"maps"
	"sync"
)

// received counts tensors by the transport that brought them.
type received struct {
	mu sync.Mutex
	by map[string]int
}

func (r *received) add(transport string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.by == nil {
		r.by = make(map[string]int)
	}
	r.by[transport]++
}

func (r *received) counts() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.by)
}
