package graph

import (
	"sync/atomic"
	"time"
)

// A kernel is cheap while it takes less than cheapKernel. To pass a task to another goroutine takes
// about a microsecond, so it pays for the others only.
const cheapKernel = 5 * time.Microsecond

// cost is the mean time of the latest runs of a kernel. A kernel that has not run yet is not cheap.
type cost struct{ ns atomic.Int64 }

func (c *cost) cheap() bool {
	ns := c.ns.Load()
	return ns != 0 && ns < int64(cheapKernel)
}

func (c *cost) add(d time.Duration) {
	n := max(int64(d), 1)
	if old := c.ns.Load(); old != 0 {
		n = max(old+(n-old)/8, 1)
	}
	c.ns.Store(n)
}
