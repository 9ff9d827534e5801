package ops

import (
	"runtime"
	"sync/atomic"
	"testing"
)

// TestAPanicOfAPartIsThatOfTheCaller, who can recover it, and comes when no part runs any more.
func TestAPanicOfAPartIsThatOfTheCaller(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	for bad := range 4 {
		var running, parts atomic.Int64
		entered := make(chan struct{})
		func() {
			defer func() {
				if p := recover(); p != "part" {
					t.Errorf("part %d: recovered %v", bad, p)
				}
				if n := running.Load(); n != 0 {
					t.Errorf("part %d: %d parts still run", bad, n)
				}
			}()
			parallel(4*grain, func(from, _ int) {
				running.Add(1)
				defer running.Add(-1)
				if parts.Add(1) == 4 {
					close(entered)
				}
				<-entered
				if from == bad*grain {
					panic("part") //nolint:forbidigo // what is tested
				}
				for range 100 {
					runtime.Gosched()
				}
			})
		}()
	}
}
