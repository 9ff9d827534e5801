package progress

import (
	"context"
	"runtime"
	"time"
)

// forever is the limit of a spin that ends only with its context.
const forever time.Duration = 1<<63 - 1

// spin bounds how long a goroutine polls, or waits for the token, without a completion.
type spin struct {
	ctx   context.Context
	limit time.Duration // 0: the first poll that finds nothing ends it
	polls int
	empty int       // polls since the last completion
	since time.Time // roughly when that came
}

// goesOn counts a poll, and reports whether to make another.
func (s *spin) goesOn(found bool) bool {
	s.polls++
	switch {
	case found:
		s.empty = 0
	case s.limit == 0:
		return false
	default:
		s.empty++
	}
	if s.polls%checkEvery != 0 {
		return true
	}
	if s.polls%yieldEvery == 0 {
		runtime.Gosched()
	}
	switch now := time.Now(); {
	case s.ctx.Err() != nil:
		return false
	case s.limit == forever:
	case s.empty <= checkEvery:
		s.since = now
	default:
		return s.empty < maxEmptyPolls && now.Sub(s.since) <= s.limit
	}
	return true
}
