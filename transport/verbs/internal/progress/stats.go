package progress

import "sync/atomic"

// Stats is what a Queue did since Start.
type Stats struct {
	Polls       uint64
	Batches     uint64 // polls that brought completions
	Completions uint64
	Arms        uint64
	Wakeups     uint64 // of the resident
	IdleWakeups uint64 // of these, with somebody else holding the baton
	Handovers   uint64 // from a holder to a waiter that spun
	Calls       uint64 // from a waiter to the resident
	Parks       uint64 // of waiters
}

// Add adds the counts of another queue, or of an earlier one.
func (s *Stats) Add(o Stats) {
	s.Polls += o.Polls
	s.Batches += o.Batches
	s.Completions += o.Completions
	s.Arms += o.Arms
	s.Wakeups += o.Wakeups
	s.IdleWakeups += o.IdleWakeups
	s.Handovers += o.Handovers
	s.Calls += o.Calls
	s.Parks += o.Parks
}

type stats struct {
	polls, batches, completions, arms, wakeups, idleWakeups, handovers, calls, parks atomic.Uint64
}

// Stats returns the counts at the moment.
func (q *Queue) Stats() Stats {
	s := &q.stats
	return Stats{
		Polls: s.polls.Load(), Batches: s.batches.Load(), Completions: s.completions.Load(), Arms: s.arms.Load(),
		Wakeups: s.wakeups.Load(), IdleWakeups: s.idleWakeups.Load(), Handovers: s.handovers.Load(), Calls: s.calls.Load(),
		Parks: s.parks.Load(),
	}
}
