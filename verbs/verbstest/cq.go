package verbstest

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
)

// cq is a completion queue. It has a lock of its own, taken after the fabric's,
// so that polling does not wait for copies.
type cq struct {
	dev      *device
	pollTime time.Duration

	users int // queue pairs on it; guarded by the fabric's lock

	filled atomic.Int32 // entries; read without the lock by polls that find nothing
	dead   atomic.Bool  // closed, overrun, or its device is gone

	mu       sync.Mutex // guards what follows
	ring     []cqe
	head     int // of the oldest entry
	n        int
	armed    armed
	event    bool // came and was not waited for
	overrun  bool
	closed   bool
	waiting  bool
	returned chan struct{} // made by Close, closed by the Wait that is under way

	wake chan struct{} // one token: look at event
	done chan struct{} // closed by Close
}

// armed is for what a queue makes an event.
type armed uint8

const (
	armedNot armed = iota
	armedSolicited
	armedAny
)

// cqe is a completion, and whose slot is free when it has been polled.
type cqe struct {
	wc    verbs.WC
	freed *atomic.Uint64
	upTo  uint64
	qp    *qp
}

func newCQ(d *device, size int) *cq {
	return &cq{dev: d, pollTime: d.nic.f.options.PollTime, ring: make([]cqe, size), wake: make(chan struct{}, 1), done: make(chan struct{})}
}

// push adds a completion and reports whether there was room.
func (c *cq) push(e cqe, solicited bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.overrun {
		return true
	}
	if c.n == len(c.ring) {
		c.overrun = true
		c.dead.Store(true)
		c.fireLocked()
		return false
	}
	at := c.head + c.n
	if at >= len(c.ring) {
		at -= len(c.ring)
	}
	c.ring[at] = e
	c.n++
	c.filled.Store(int32(c.n))
	if c.armed == armedAny || c.armed == armedSolicited && (solicited || e.wc.Status != verbs.StatusOK || c.dev.nic.f.has(ignoresSolicited)) {
		c.fireLocked()
	}
	return true
}

// fireLocked makes the event that somebody armed for.
func (c *cq) fireLocked() {
	c.armed = armedNot
	if c.dev.nic.f.has(losesWakeUps) && !c.waiting {
		return
	}
	c.event = true
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// purge drops the completions of a queue pair, as a NIC's library does when the
// queue pair is destroyed.
func (c *cq) purge(q *qp) {
	c.mu.Lock()
	defer c.mu.Unlock()
	kept := 0
	for i := range c.n {
		e := c.ring[(c.head+i)%len(c.ring)]
		if e.qp != q {
			c.ring[(c.head+kept)%len(c.ring)] = e
			kept++
		}
	}
	c.n = kept
	c.filled.Store(int32(kept))
}

// Poll implements verbs.CQ.
func (c *cq) Poll(wcs []verbs.WC) (int, error) {
	if c.filled.Load() == 0 && !c.dead.Load() && c.pollTime > 0 && len(wcs) > 0 {
		pause(c.pollTime)
	}
	if c.filled.Load() == 0 && !c.dead.Load() {
		return 0, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return 0, verbs.Errorf("poll", "completion queue", verbs.ErrClosed, "it is closed")
	case c.dev.killed.Load():
		return 0, c.dev.goneError("poll")
	}
	n := min(len(wcs), c.n)
	for i := range n {
		e := &c.ring[c.head]
		wcs[i] = e.wc
		e.freed.Store(e.upTo)
		e.qp = nil
		c.head++
		if c.head == len(c.ring) {
			c.head = 0
		}
	}
	c.n -= n
	c.filled.Store(int32(c.n))
	switch {
	case n > 0 || len(wcs) == 0:
	case c.overrun:
		return 0, verbs.Errorf("poll", "completion queue", verbs.ErrInvalid,
			"it overran: more than its %d completions were outstanding", len(c.ring))
	case c.dev.gone.Load():
		return 0, c.dev.goneError("poll")
	}
	return n, nil
}

// pause waits. On virtual time others go on meanwhile.
func pause(d time.Duration) {
	t := time.NewTimer(d)
	<-t.C
}

// Arm implements verbs.CQ.
func (c *cq) Arm(solicitedOnly bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return verbs.Errorf("arm", "completion queue", verbs.ErrClosed, "it is closed")
	case c.dev.gone.Load():
		return c.dev.goneError("arm")
	case !solicitedOnly:
		c.armed = armedAny
	case c.armed == armedNot: // "any" is not taken back: specification, volume 1, 11.4.2.2
		c.armed = armedSolicited
	}
	return nil
}

// Wait implements verbs.CQ.
func (c *cq) Wait(ctx context.Context) error {
	c.mu.Lock()
	switch {
	case c.closed:
		c.mu.Unlock()
		return verbs.Errorf("wait", "completion queue", verbs.ErrClosed, "it is closed")
	case c.waiting:
		c.mu.Unlock()
		return verbs.Errorf("wait", "completion queue", verbs.ErrBusy, "another goroutine waits")
	}
	c.waiting = true
	c.mu.Unlock()
	err := c.wait(ctx)
	c.mu.Lock()
	c.waiting = false
	if c.returned != nil {
		close(c.returned)
		c.returned = nil
	}
	c.mu.Unlock()
	return err
}

func (c *cq) wait(ctx context.Context) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		c.mu.Lock()
		event := c.event
		c.event = false
		c.mu.Unlock()
		if event {
			return nil
		}
		select {
		case <-c.wake:
		case <-ctx.Done():
			return ctx.Err()
		case <-c.done:
			return verbs.Errorf("wait", "completion queue", verbs.ErrClosed, "it was closed")
		case <-c.dev.goneSignal:
			return c.dev.goneError("wait")
		}
	}
}

// Size implements verbs.CQ.
func (c *cq) Size() int { return len(c.ring) }

// Close implements verbs.CQ.
func (c *cq) Close() error {
	f := c.dev.nic.f
	f.mu.Lock()
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		f.mu.Unlock()
		return nil
	}
	if c.users > 0 && !c.dev.killed.Load() {
		c.mu.Unlock()
		f.mu.Unlock()
		return verbs.Errorf("close", "completion queue", verbs.ErrBusy, "%d queue pairs use it", c.users)
	}
	c.closed = true
	c.dead.Store(true)
	delete(c.dev.cqs, c)
	var returned chan struct{}
	if c.waiting {
		returned = make(chan struct{})
		c.returned = returned
	}
	c.mu.Unlock()
	f.mu.Unlock()
	if !f.has(waitOutlivesClose) {
		close(c.done)
	}
	if returned != nil {
		<-returned
	}
	return nil
}
