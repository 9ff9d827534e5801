package bench

import (
	"os"
	"syscall"
	"testing"
	"time"
)

// TestProcessTimeIsWhatTheProcessHasUsed compares it with getrusage(2) of this process, before and after.
func TestProcessTimeIsWhatTheProcessHasUsed(t *testing.T) {
	own := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			t.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	for end := own() + 5*clockTick; own() < end; { // some ticks at least
	}
	before := own()
	got, known := processTime(os.Getpid())
	after := own()
	if !known || got < before-2*clockTick || got > after+clockTick { // each of the two times is rounded down
		t.Errorf("%v, %v; want %v to %v", got, known, before, after)
	}
	if _, known := processTime(-1); known {
		t.Error("a process that is not there has a time")
	}
}
