package grpctransport

import (
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/connectivity"

	"github.com/tryst-rdma/tryst/cluster"
)

// PeerState is the state of the gRPC connections to a peer.
type PeerState struct {
	Task    cluster.Task
	Address string
	// Up is set while a connection is up, and Connecting while none is and one is being made.
	// Without both, the next call makes one, or a pause after a failure passes first.
	Up, Connecting bool
	// Since is when Up began or ended; zero if no connection was up yet.
	Since time.Time
	// Breaks counts how often the last connection to the peer has ended.
	Breaks uint64
	// Err is why the last attempt to connect failed; nil while a connection is up.
	Err error
	// HeardAt is when something came from the peer last on a connection that this process has made; zero if nothing has.
	HeardAt time.Time
}

// Peers returns the peers that this process has dialed, or was about to.
func (c *Conns) Peers() []PeerState {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]PeerState, 0, len(c.peers))
	for task, p := range c.peers {
		s := p.channel.state()
		s.Task = task
		all = append(all, s)
	}
	return all
}

// state returns the state of the connections to an address.
func (c *channel) state() PeerState {
	s := c.live.state()
	s.Address = c.address
	for _, conn := range c.conns {
		s.Connecting = s.Connecting || !s.Up && c.pace.waiting.Load() == 0 && conn.GetState() == connectivity.Connecting
	}
	return s
}

// live counts the connections to an address that are up. A connection is up from the first frame
// of the server until it is closed.
type live struct {
	// served is set when a server has answered at the address: then the port and the settings were
	// right.
	served atomic.Bool
	// heard is when something came last, in nanoseconds since 1970; 0 if nothing has. The end of a connection does not change it.
	heard atomic.Int64
	// over is called after a connection that was up has ended; nil for nothing.
	over func()

	mu     sync.Mutex // guards what follows, and firstFrameConn.counted and .closed
	n      int
	breaks uint64
	since  time.Time // n became 0, or more
	err    error     // of the last attempt to connect; nil while n is not 0
}

func (l *live) state() PeerState {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := PeerState{Up: l.n > 0, Since: l.since, Breaks: l.breaks, Err: l.err}
	if at := l.heard.Load(); at != 0 {
		s.HeardAt = time.Unix(0, at)
	}
	return s
}

// failed records why an attempt to connect failed.
func (l *live) failed(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.n == 0 {
		l.err = err
	}
}

// opened counts a connection.
func (l *live) opened(c *firstFrameConn) {
	l.served.Store(true)
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.closed {
		return
	}
	c.counted, l.err = true, nil
	if l.n++; l.n == 1 {
		l.since = time.Now()
	}
}

// ended counts a connection no more. gRPC may close a connection twice.
func (l *live) ended(c *firstFrameConn) {
	l.mu.Lock()
	counted := c.counted
	c.closed, c.counted = true, false
	if counted {
		if l.n--; l.n == 0 {
			l.since = time.Now()
			l.breaks++
		}
	}
	l.mu.Unlock()
	if counted && l.over != nil {
		l.over()
	}
}
