package checkpoint

import (
	"sync"
	"time"

	"github.com/tryst-rdma/tryst/status"
)

// A server may answer and yet bring nothing: it opens a session and gives no keys, or it never answers
// a receive. No connection breaks then. So all that a pull waits for has a bound:
//
//	a question (List, Describe), the keys of a session  pull.patience
//	the next part, while parts are requested            stall
//
// What goes beyond it is a failure that may pass, as a connection that breaks.

// stall ends a session in which parts are requested and none comes. What a part needs at the slowest
// rate is added to the patience. Receives that nobody waits for, since the consumer is slow, do not
// count: the clock stands while nothing is requested.
type stall struct {
	patience time.Duration
	ended    func() // called once, when no part has come for too long

	mu sync.Mutex
	// All below are guarded by mu.
	timer     *time.Timer // nil before the first request
	requested int         // parts
	bytes     int64       // of these
	moved     time.Time   // when a part came last, or the first one was requested
	closed    bool
}

// begin takes note that a part of n bytes was requested.
func (s *stall) begin(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.requested == 0 {
		s.moved = time.Now()
	}
	s.requested++
	s.bytes += n
	s.setLocked()
}

// end takes note that such a receive has ended.
func (s *stall) end(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requested--
	s.bytes -= n
	s.moved = time.Now()
	s.setLocked()
}

// boundLocked returns how long no part may come.
func (s *stall) boundLocked() time.Duration { return s.patience + slowest(s.bytes) }

func (s *stall) setLocked() {
	switch {
	case s.closed:
	case s.requested == 0:
		s.timer.Stop()
	case s.timer == nil:
		s.timer = time.AfterFunc(time.Until(s.moved.Add(s.boundLocked())), s.fire)
	default:
		s.timer.Reset(time.Until(s.moved.Add(s.boundLocked())))
	}
}

func (s *stall) fire() {
	s.mu.Lock()
	late := !s.closed && s.requested > 0 && time.Since(s.moved) >= s.boundLocked()
	s.closed = s.closed || late
	s.mu.Unlock()
	if late {
		s.ended()
	}
}

// close stops the clock.
func (s *stall) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.timer != nil {
		s.timer.Stop()
	}
}

// slowest returns how long n bytes may take.
func slowest(n int64) time.Duration {
	return time.Duration(min(float64(n)/slowestRate*float64(time.Second), float64(slowestMax)))
}

// comparing returns how long a server may read the files of a publication that were touched, before it
// answers (compare.go).
func (m *Manifest) comparing() time.Duration {
	return min(time.Duration(float64(m.Bytes)/comparedRate*float64(time.Second)), comparedMax)
}

// stalled is the error of a session without a part.
func (p *Puller) stalled(d time.Duration) error {
	return status.Errorf(status.Unavailable, "%s answers, and has sent no requested tensor or piece for %v", p.server(), d.Round(time.Second/10))
}
