package transport

import (
	"sync"
	"testing"
	"testing/synctest"
)

// A crew runs everything at once, keeps no more goroutines than it may, and none
// after its end.
func TestCrew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(func(f func()) { f() })
		for range 3 {
			var running, all sync.WaitGroup
			release := make(chan struct{})
			for range 2 * maxResting {
				running.Add(1)
				all.Add(1)
				c.expect()
				c.Go(func() {
					defer all.Done()
					running.Done()
					<-release
				})
			}
			running.Wait() // all at once, whatever the others wait for
			close(release)
			all.Wait()
			synctest.Wait()
			if n := c.idle.Load(); n != maxResting {
				t.Errorf("%d goroutines wait, want %d", n, maxResting)
			}
		}
		c.end()
		if n := c.idle.Load(); n != 0 {
			t.Errorf("%d goroutines wait after the end", n)
		}
	})
}
