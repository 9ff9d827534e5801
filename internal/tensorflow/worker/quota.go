package worker

import (
	"net"
	"sync"

	"github.com/tryst-rdma/tryst/status"
)

// quota bounds the receives of one host that wait at once, for requesters that do not use
// the response cache.
type quota struct {
	limit      int
	limitBytes int64

	mu    sync.Mutex // guards the fields below
	count map[string]waits
}

// waits counts the waiting receives of a host.
type waits struct {
	n     int
	bytes int64 // of their keys
}

func newQuota(limit int, limitBytes int64) *quota {
	return &quota{limit: limit, limitBytes: limitBytes, count: make(map[string]waits)}
}

// take counts one receive of the host in address, with a key of size bytes. The caller must
// call release when the receive ends.
func (q *quota) take(address string, size int64) (release func(), err error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address // without a port, for instance of an in-memory connection
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.count[host]
	switch {
	case now.n >= q.limit:
		return nil, status.Errorf(status.ResourceExhausted,
			"%d receives of %s wait already, the limit of max-waiting", now.n, host)
	case now.bytes+size > q.limitBytes:
		return nil, status.Errorf(status.ResourceExhausted,
			"the keys of the waiting receives of %s have %d bytes; %d more would exceed the limit of max-waiting-bytes, %d", host, now.bytes, size, q.limitBytes)
	}
	q.count[host] = waits{now.n + 1, now.bytes + size}
	return func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if now := q.count[host]; now.n > 1 {
			q.count[host] = waits{now.n - 1, now.bytes - size}
		} else {
			delete(q.count, host)
		}
	}, nil
}
