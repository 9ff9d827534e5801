package library

import (
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/tryst-rdma/tryst/status"
)

// refusalPause is the shortest time between two lines of the log about refused graphs: a caller can send
// any number of them.
const refusalPause = time.Minute

// refusals logs the graphs that are refused for what they reach.
type refusals struct {
	log *slog.Logger // nil for none

	mu     sync.Mutex // guards the fields below
	last   time.Time
	silent int // refusals since the last line
}

// refuse logs an error for which a graph is refused, and returns it.
func (s *Set) refuse(err error) error {
	r := &s.refusals
	if r.log == nil {
		return err
	}
	r.mu.Lock()
	now := time.Now()
	if !r.last.IsZero() && now.Sub(r.last) < refusalPause {
		r.silent++
		r.mu.Unlock()
		return err
	}
	reason, _, _ := strings.Cut(status.From(err).Message(), "\n") // the node is in it
	args := []any{"reason", reason}
	if r.silent > 0 {
		args = append(args, "not_logged", r.silent)
	}
	r.last, r.silent = now, 0
	r.mu.Unlock()
	r.log.Warn("refusing a graph", args...)
	return err
}
