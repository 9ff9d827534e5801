package progress

import "sync/atomic"

// Stats counts the work of a Queue since Start.
type Stats struct {
	Polls       uint64
	Batches     uint64 // polls that returned completions
	Completions uint64
	Arms        uint64
	Wakeups     uint64 // of the poller
	IdleWakeups uint64 // of these, while another goroutine held the token
	Handovers   uint64 // of the token to a waiter that spun
	Calls       uint64 // times that a waiter gave the token to the poller and woke it
	Parks       uint64 // times that a waiter slept
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

// Stats returns the present counts.
func (q *Queue) Stats() Stats {
	s := &q.stats
	return Stats{
		Polls: s.polls.Load(), Batches: s.batches.Load(), Completions: s.completions.Load(), Arms: s.arms.Load(),
		Wakeups: s.wakeups.Load(), IdleWakeups: s.idleWakeups.Load(), Handovers: s.handovers.Load(), Calls: s.calls.Load(),
		Parks: s.parks.Load(),
	}
}
