package checkpoint

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/tryst-rdma/tryst/internal/identity"
)

// endedLog logs the end of each pull, within limits: a client may open and end pulls in a loop. The zero
// value is ready for use.
type endedLog struct {
	mu       sync.Mutex // guards what follows
	since    time.Time  // begin of the minute
	lines    int        // in it, and for each address
	ofSource map[string]int
	silent   int // pulls without a line since the last line
}

// log logs the end of a pull, with its error at this side: one line for each pull, at DEBUG beyond the limits, and
// for a measurement, of which there may be hundreds a second.
func (l *endedLog) log(ctx context.Context, log *slog.Logger, pull *pullCount, end PullEnd, over string, failure error) {
	args := []any{"outcome", end.outcome(), "code", end.Code.String(), "tensors", pull.Tensors, "bytes", pull.Bytes,
		"sent_bytes", min(pull.sent.Load(), pull.Bytes), "seconds", end.Took.Round(time.Millisecond).Seconds()}
	if over != "" {
		args = append(args, "over", over)
	}
	if failure != nil {
		args = append(args, "reason", failure)
	}
	level := slog.LevelDebug
	if !isMeasurement(ctx) {
		silent, ok := l.now(identity.Address(ctx), time.Now())
		if ok {
			level = slog.LevelInfo
		}
		if silent > 0 {
			args = append(args, "not_logged", silent)
		}
	}
	log.Log(ctx, level, "a pull has ended", args...)
}

// now reports whether to log the end of a pull from an address, and how many were left out before.
func (l *endedLog) now(source string, now time.Time) (silent int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ofSource == nil || now.Sub(l.since) >= endedPause {
		l.since, l.lines, l.ofSource = now, 0, make(map[string]int)
	}
	if l.lines >= maxEndedLines || l.ofSource[source] >= maxEndedLinesOfSource {
		l.silent++
		return 0, false
	}
	l.lines++
	l.ofSource[source]++
	silent, l.silent = l.silent, 0
	return silent, true
}
