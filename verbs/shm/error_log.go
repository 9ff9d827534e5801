//go:build linux

package shm

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// errorLog logs faults that peers cause. A peer may connect for ever and cause one each time: faults of one
// kind are one ERROR line in errorLogPause, and DEBUG in between. The zero value is ready for use.
type errorLog struct {
	mu    sync.Mutex // guards what follows; no other lock is taken while it is held
	kind  string
	until time.Time
}

func (s *errorLog) log(l *slog.Logger, kind, text string, args ...any) {
	now, level := time.Now(), slog.LevelError
	s.mu.Lock()
	if kind == s.kind && now.Before(s.until) {
		level = slog.LevelDebug
	} else {
		s.kind, s.until = kind, now.Add(errorLogPause)
	}
	s.mu.Unlock()
	l.Log(context.Background(), level, text, args...)
}

// notShared logs that memory cannot be shared with a peer, for a reason that is a kind of its own.
func (d *device) notShared(number any, reason error) {
	d.shareLog.log(d.logger, reason.Error(), "shm: memory cannot be shared with the peer", "queue_pair", number, "reason", reason)
}

// breach logs what a peer has done against the protocol. Its errors have numbers of the peer, so all of them
// are one kind.
func (d *device) breach(q *qp, err error) {
	d.breachLog.log(d.logger, "", "shm: the peer breaks the protocol of the ring", "queue_pair", q.number.String(), "peer_queue_pair", q.ends.qpns[1].String(), "reason", err)
}
