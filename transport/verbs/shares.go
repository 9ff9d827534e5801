package verbstransport

import (
	"sync"

	"github.com/tryst-rdma/tryst/status"
)

// shares counts what unverified peers make this process hold. There is a limit per source
// address and a limit in total. It is safe for concurrent use.
type shares struct {
	total, each int // limits

	mu  sync.Mutex     // guards what follows; no other lock is taken while it is held
	all int            // the count in total
	of  map[string]int // the count of each source
}

func newShares(total, each int) *shares {
	return &shares{total: total, each: each, of: make(map[string]int)}
}

// check returns an error if one more of a source exceeds a limit. what describes the counted
// objects for the error text.
func (s *shares) check(source, what string) error {
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

// add counts one more, which check has allowed.
func (s *shares) add(source string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all++
	s.of[source]++
}

// take counts one more, or returns the error of check.
func (s *shares) take(source, what string) error {
	err := s.check(source, what)
	if err == nil {
		s.add(source)
	}
	return err
}

// release counts one less.
func (s *shares) release(source string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all--
	if s.of[source]--; s.of[source] == 0 {
		delete(s.of, source)
	}
}
