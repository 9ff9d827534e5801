package checkpoint

import (
	"sync"
	"time"
)

// counter reports progress every progressEvery, one report at a time.
type counter struct {
	total  int64
	report func(done, total int64) // nil for no reports

	mu   sync.Mutex
	done int64 // guarded by mu, as is last
	last time.Time
}

func (c *counter) add(n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done += n
	if c.report == nil {
		return
	}
	if now := time.Now(); c.done == c.total || now.Sub(c.last) >= progressEvery {
		c.last = now
		c.report(c.done, c.total)
	}
}
