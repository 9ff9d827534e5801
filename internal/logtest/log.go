// Package logtest collects the log of what a test runs.
package logtest

import (
	"log/slog"
	"strings"
	"sync"
)

// Log collects a log. Its zero value is empty.
type Log struct {
	mu    sync.Mutex // guards lines
	lines strings.Builder
}

// Write implements io.Writer.
func (l *Log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines.Write(b)
}

// Count returns the number of lines that contain words.
func (l *Log) Count(words string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.lines.String(), words)
}

// String returns the log.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines.String()
}

// Logger returns a logger that writes to l.
func (l *Log) Logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }
