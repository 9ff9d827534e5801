package idle

import (
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestTimerRunsOnlyWhileThereIsSomething: the timer runs from Start until the sweep has nothing
// more to do, and again after another Start.
func TestTimerRunsOnlyWhileThereIsSomething(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left, sweeps := 3, 0
		timer := NewTimer(time.Second, func(late time.Duration) bool {
			if late != 0 {
				t.Errorf("%v late", late)
			}
			sweeps++
			left--
			return left > 0
		})
		if timer.Running() {
			t.Error("it runs before Start")
		}
		timer.Start()
		timer.Start()
		time.Sleep(time.Minute)
		synctest.Wait()
		if sweeps != 3 || timer.Running() {
			t.Errorf("%d sweeps, runs: %v", sweeps, timer.Running())
		}
		left = 1
		timer.Start()
		time.Sleep(time.Minute)
		synctest.Wait()
		if sweeps != 4 || timer.Running() {
			t.Errorf("%d sweeps after the second start, runs: %v", sweeps, timer.Running())
		}
	})
}

// TestStartDuringTheSweep: a Start while the sweep runs is not lost.
func TestStartDuringTheSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sweeps := 0
		var timer *Timer
		timer = NewTimer(time.Second, func(time.Duration) bool {
			if sweeps++; sweeps == 1 {
				timer.Start() // as by another goroutine, after this one has looked
			}
			return false
		})
		timer.Start()
		time.Sleep(time.Minute)
		synctest.Wait()
		if sweeps != 2 || timer.Running() {
			t.Errorf("%d sweeps, runs: %v", sweeps, timer.Running())
		}
	})
}
