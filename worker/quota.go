package worker

import (
	"net"
	"sync"

	"github.com/tryst-rdma/tryst/status"
)

// quota bounds how many receives of one host wait at once, for askers that the
// table of answers does not count.
type quota struct {
	limit int

	mu    sync.Mutex // guards what follows
	count map[string]int
}

func newQuota(limit int) *quota { return &quota{limit: limit, count: make(map[string]int)} }

// take counts one receive of the host of address until release is called.
func (q *quota) take(address string) (release func(), err error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address // an address without port, as of an in-memory connection
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if n := q.count[host]; n >= q.limit {
		return nil, status.Errorf(status.ResourceExhausted,
			"%d receives of %s wait here already, the limit of max-waiting", n, host)
	}
	q.count[host]++
	return func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.count[host]--; q.count[host] == 0 {
			delete(q.count, host)
		}
	}, nil
}
