package verbstransport

import (
	"sync"

	"github.com/tryst-rdma/tryst/status"
)

// shares counts what strangers make this process hold. Each source address has a share,
// and there is a total. It is safe for concurrent use.
type shares struct {
	total, each int // limits

	mu  sync.Mutex     // guards what follows; taken last
	all int            // there are
	of  map[string]int // those of each source
}

func newShares(total, each int) *shares {
	return &shares{total: total, each: each, of: make(map[string]int)}
}

// hasRoom refuses one more of a source.
func (s *shares) hasRoom(source, what string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.of[source] >= s.each:
		return status.Errorf(status.ResourceExhausted, "there are %d %s from %s already; at most %d may be", s.of[source], what, source, s.each)
	case s.all >= s.total:
		return status.Errorf(status.ResourceExhausted, "there are %d %s already; at most %d may be", s.all, what, s.total)
	}
	return nil
}

// add counts one more, for which there is room.
func (s *shares) add(source string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all++
	s.of[source]++
}

// take counts one more, or refuses it.
func (s *shares) take(source, what string) error {
	err := s.hasRoom(source, what)
	if err == nil {
		s.add(source)
	}
	return err
}

// give counts one less.
func (s *shares) give(source string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all--
	if s.of[source]--; s.of[source] == 0 {
		delete(s.of, source)
	}
}
