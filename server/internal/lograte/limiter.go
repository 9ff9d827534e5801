// Package lograte keeps log lines from filling the log.
package lograte

import (
	"sync"
	"time"
)

// Pause is the shortest interval of the log lines that one Limiter lets through.
const Pause = time.Minute

// Limiter lets a log line through once in Pause.
type Limiter struct {
	mu     sync.Mutex // guards what follows
	last   time.Time
	silent int // since last
}

// Now reports whether to log, and how many lines were left out before.
func (r *Limiter) Now() (silent int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if !r.last.IsZero() && now.Sub(r.last) < Pause {
		r.silent++
		return 0, false
	}
	silent, r.silent, r.last = r.silent, 0, now
	return silent, true
}
