//go:build linux

package shm

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// shareLog logs that memory cannot be shared with a peer. Each new connection finds it out again, and
// peers may connect for ever: one reason is one line in shareLogPause, and DEBUG in between. The zero
// value is ready for use.
type shareLog struct {
	mu     sync.Mutex // guards what follows; no other lock is taken while it is held
	reason string
	until  time.Time
}

func (s *shareLog) log(l *slog.Logger, number any, err error) {
	now, level := time.Now(), slog.LevelError
	s.mu.Lock()
	if err.Error() == s.reason && now.Before(s.until) {
		level = slog.LevelDebug
	} else {
		s.reason, s.until = err.Error(), now.Add(shareLogPause)
	}
	s.mu.Unlock()
	l.Log(context.Background(), level, "shm: memory cannot be shared with the peer", "queue pair", number, "error", err)
}
