package overview

import (
	"sync"
	"time"
)

// Sampler counts traffic once each interval. Its owner closes it.
type Sampler struct {
	stop chan struct{}
	work sync.WaitGroup
	once sync.Once
}

// StartSampler starts a goroutine that adds what totals returns to t.
func StartSampler(t *Traffic, totals func() []Total) *Sampler {
	s := &Sampler{stop: make(chan struct{})}
	t.Add(time.Now(), totals())
	s.work.Go(func() {
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for {
			select {
			case <-s.stop:
				return
			case now := <-tick.C:
				t.Add(now, totals())
			}
		}
	})
	return s
}

// Close ends the goroutine and waits for it. A nil Sampler is closed.
func (s *Sampler) Close() {
	if s == nil {
		return
	}
	s.once.Do(func() { close(s.stop) })
	s.work.Wait()
}
