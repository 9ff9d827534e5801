package server

import "sync"

// callbacks runs the callbacks of receives, each on a goroutine of its own, so that Close can
// wait for them. A callback may start another one, also while Close waits.
type callbacks struct {
	mu   sync.Mutex // guards what follows
	n    int        // that run
	idle chan struct{}
}

// run calls f on another goroutine.
func (c *callbacks) run(f func()) {
	c.enter()
	go func() {
		defer c.leave()
		f()
	}()
}

// enter announces a callback: wait waits for it until leave.
func (c *callbacks) enter() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
}

func (c *callbacks) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n--; c.n == 0 && c.idle != nil {
		close(c.idle)
		c.idle = nil
	}
}

// wait returns when no callback runs.
func (c *callbacks) wait() {
	c.mu.Lock()
	if c.n == 0 {
		c.mu.Unlock()
		return
	}
	if c.idle == nil {
		c.idle = make(chan struct{})
	}
	idle := c.idle
	c.mu.Unlock()
	<-idle
}
