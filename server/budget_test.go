package server

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"testing"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"github.com/tryst-rdma/tryst/status"
)

// TestTensorsBeyondTheMemoryAreRefused: with what to do, one line in the log, and a metric. Registered memory counts
// with them.
func TestTensorsBeyondTheMemoryAreRefused(t *testing.T) {
	var text bytes.Buffer
	s, err := Start(t.Context(), settings(func(c *Config) { c.Memory = 1 << 30 }), Options{Logger: slog.New(slog.NewTextHandler(&text, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(t.Context())
	common := int(s.budget.Common)
	if common > 1<<30*3/4 {
		t.Fatalf("tensors may take %d of 1 GiB", common)
	}
	if _, err := s.Allocator().Allocate(common + 1); status.CodeOf(err) != status.ResourceExhausted || !strings.Contains(err.Error(), "setting memory") {
		t.Errorf("beyond the limit: %v", err)
	}
	release, err := s.budget.Reserve(int64(common) / 2)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := s.Allocator().Allocate(common/2 + 1<<20); status.CodeOf(err) != status.ResourceExhausted {
			t.Errorf("beside registered memory: %v", err)
		}
	}
	release()
	b, err := s.Allocator().Allocate(common/2 + 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	b.Release()
	if got := metric(t, metricsText(s.gatherer), "tryst_memory_refused_total"); got != 3 {
		t.Errorf("%v refusals were counted, want 3", got)
	}
	if n := strings.Count(text.String(), "memory is refused"); n != 1 {
		t.Errorf("%d lines in the log, want 1: %s", n, text.String())
	}
}

// TestSettingsBeyondTheMemoryAreWarnedAbout: the sum is in words, at the start.
func TestSettingsBeyondTheMemoryAreWarnedAbout(t *testing.T) {
	for _, limit := range []int64{0, 600 << 20} {
		var text bytes.Buffer
		start(t, settings(func(c *Config) { c.Memory, c.Limits.MaxWaitingBytes = 1<<30, limit }), Options{Logger: slog.New(slog.NewTextHandler(&text, nil))})
		warned := strings.Contains(text.String(), "lower max-waiting-bytes, or give the process more memory") && strings.Contains(text.String(), "2400MiB")
		if warned != (limit != 0) {
			t.Errorf("max-waiting-bytes %d: %s", limit, text.String())
		}
	}
}

// TestUnreadableLimitOfMemoryIsWarnedAbout: once, with the reason and what to do. That there is no limit, or no control
// group, is usual, and a setting makes it unimportant.
func TestUnreadableLimitOfMemoryIsWarnedAbout(t *testing.T) {
	const line = "the memory limit of the control group cannot be read"
	unreadable := fmt.Errorf("failed to read memory.max: %w", fs.ErrPermission)
	for _, tt := range []struct {
		err    error
		memory int64
		want   int
	}{
		{unreadable, 0, 1}, {errors.New("failed to parse memory.max value"), 0, 1}, {unreadable, 1 << 30, 0},
		{memlimit.ErrNoLimit, 0, 0}, {fmt.Errorf("v1: %w", memlimit.ErrNoCgroup), 0, 0}, {memlimit.ErrCgroupsNotSupported, 0, 0}, {nil, 0, 0},
	} {
		var text bytes.Buffer
		s := start(t, settings(func(c *Config) { c.Memory = tt.memory }), Options{
			Logger:        slog.New(slog.NewTextHandler(&text, nil)),
			memoryOfGroup: func() (uint64, error) { return 1 << 30, tt.err },
		})
		if n := strings.Count(text.String(), line); n != tt.want || tt.want > 0 && (!strings.Contains(text.String(), tt.err.Error()) || !strings.Contains(text.String(), "set memory")) {
			t.Errorf("%v: %d lines, want %d:\n%s", tt.err, n, tt.want, text.String())
		}
		if small := s.budget.Memory <= 1<<30; small != (tt.err == nil || tt.memory != 0) {
			t.Errorf("%v: the memory is %d", tt.err, s.budget.Memory)
		}
	}
}
