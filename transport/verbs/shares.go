package verbstransport

import (
	"sync"

	"github.com/tryst-rdma/tryst/status"
)

// shares counts what unverified peers make this process hold. There is a limit per
// address and a limit in total. It is safe for concurrent use.
type shares struct {
	total, each int // limits

	mu  sync.Mutex     // guards what follows; no other lock is taken while it is held
	all int            // the count in total
	of  map[string]int // the count of each address
}

func newShares(total, each int) *shares {
	return &shares{total: total, each: each, of: make(map[string]int)}
}

// check returns an error if one more of an address exceeds a limit. what describes the counted
// objects for the error text.
func (s *shares) check(address, what string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.of[address] >= s.each:
		return status.Errorf(status.ResourceExhausted, "there are %d %s from %s already; at most %d may be", s.of[address], what, address, s.each)
	case s.all >= s.total:
		return status.Errorf(status.ResourceExhausted, "there are %d %s already; at most %d may be", s.all, what, s.total)
	}
	return nil
}

// add counts one more, which check has allowed.
func (s *shares) add(address string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all++
	s.of[address]++
}

// take counts one more, or returns the error of check.
func (s *shares) take(address, what string) error {
	err := s.check(address, what)
	if err == nil {
		s.add(address)
	}
	return err
}

// release counts one less.
func (s *shares) release(address string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all--
	if s.of[address]--; s.of[address] == 0 {
		delete(s.of, address)
	}
}
