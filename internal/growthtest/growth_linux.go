package growthtest

import (
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Check compares the work for inputs of the sizes n and 8n: linear work is 8 times as much, quadratic
// work 64 times. prepare returns the work for a size; only its run counts. Check measures the
// processor time of its thread, so other processes do not matter.
func Check(t testing.TB, n int, prepare func(n int) func()) {
	t.Helper()
	if !linear(t, n, prepare) {
		t.Error("the work grows faster than its input")
	}
}

// linear reports whether one of three attempts finds linear work: the collector may work on the
// thread meanwhile.
func linear(t testing.TB, n int, prepare func(n int) func()) bool {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	least := func(n int) time.Duration {
		best := time.Hour
		for range 3 {
			f := prepare(n)
			runtime.GC()
			before := threadTime(t)
			f()
			best = min(best, threadTime(t)-before)
		}
		return max(best, time.Microsecond)
	}
	for range 3 {
		small, large := least(n), least(8*n)
		if large < 28*small {
			return true
		}
		t.Logf("%d: %v, %d: %v", n, small, 8*n, large)
	}
	return false
}

func threadTime(t testing.TB) time.Duration {
	t.Helper()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now); err != nil {
		t.Fatal(err)
	}
	return time.Duration(now.Nano())
}
