package library

import (
	"runtime"
	"testing"
)

// TestALongFunctionLeavesRoom: a function that computes for long has not the only place, also on one processor.
func TestALongFunctionLeavesRoom(t *testing.T) {
	for processors, want := range map[int]int{1: 2, 2: 2, 5: 5} {
		before := runtime.GOMAXPROCS(processors)
		got := computing()
		runtime.GOMAXPROCS(before)
		if got != want {
			t.Errorf("with %d processors, %d functions compute at once, want %d", processors, got, want)
		}
	}
}
