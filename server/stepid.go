package server

import (
	"sync/atomic"

	"github.com/tryst-rdma/tryst/cluster"
)

// stepIDs draws ids of steps: an arithmetic sequence modulo 2⁶² with a random start and a
// random odd difference, so that none comes twice before all have come.
type stepIDs struct {
	start, difference uint64
	drawn             atomic.Uint64
}

func newStepIDs() *stepIDs {
	return &stepIDs{start: cluster.NewIncarnation(), difference: cluster.NewIncarnation() | 1}
}

// stepIDBits keeps these ids apart from those of pulls, which have bit 62 set.
const stepIDBits = 62

func (s *stepIDs) next() int64 {
	for {
		n := s.drawn.Add(1)
		if id := int64((s.start + n*s.difference) & (1<<stepIDBits - 1)); id != 0 { //nolint:gosec // below 2⁶²
			return id
		}
	}
}

// NewStepID returns the id of a step that this server has not used: a random positive number
// that it returns once. Two servers return the same one with a probability of 2⁻⁶² for each
// pair of ids. An id that the program chose itself, such as a small number, may be equal to it
// with the same probability.
//
// Sender and receiver use the same id. One of them draws it, for example the one that begins
// the work, and tells the others: in the call or message that begins the work, or as a tensor
// in a step whose id is agreed, such as step 0.
func (s *Server) NewStepID() int64 { return s.stepIDs.next() }
