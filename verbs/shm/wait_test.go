//go:build linux

package shm

import (
	"testing"
	"time"
)

// wait polls a condition for at most a minute.
func wait(t testing.TB, so func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !so(); {
		if time.Now().After(end) {
			t.Fatal("the condition does not come true")
		}
		timer := time.NewTimer(time.Millisecond)
		<-timer.C
	}
}
