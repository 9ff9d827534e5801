package verbstest

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
)

// cq implements verbs.CQ. It has a lock of its own, taken after the fabric's, so polling
// does not wait for copies.
type cq struct {
	dev      *device
	pollTime time.Duration

	users int // queue pairs that use it; guarded by the fabric's lock

	filled atomic.Int32 // number of entries, for polls of an empty queue without the lock
	dead   atomic.Bool  // closed, overrun, or its device is gone

	mu       sync.Mutex // guards the fields below
	ring     []cqe
	head     int // index of the oldest entry
	n        int
	armed    armed
	event    bool // occurred, and Wait has not returned for it
	overrun  bool
	closed   bool
	waiting  bool
	returned chan struct{} // made by Close, closed when the running Wait returns

	wake chan struct{} // holds a token when event was set
	done chan struct{} // closed by Close
}

// armed is the kind of completion for which a queue raises an event.
type armed uint8

const (
	armedNot armed = iota
	armedSolicited
	armedAny
)

// cqe is a completion. When it is polled, the slots before upTo of its queue become free:
// Poll stores upTo in freed.
type cqe struct {
	wc    verbs.WC
	freed *atomic.Uint64
	upTo  uint64
	qp    *qp
}

func newCQ(d *device, size int) *cq {
	return &cq{dev: d, pollTime: d.nic.f.options.PollTime, ring: make([]cqe, size), wake: make(chan struct{}, 1), done: make(chan struct{})}
}

// push adds a completion. It returns false if the queue overran.
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
	if c.armed == armedAny || c.armed == armedSolicited && (solicited || e.wc.Status != verbs.StatusOK || c.dev.nic.f.hasBug(ignoresSolicited)) {
		c.fireLocked()
	}
	return true
}

// fireLocked raises the event that Arm requested.
func (c *cq) fireLocked() {
	c.armed = armedNot
	if c.dev.nic.f.hasBug(losesWakeUps) && !c.waiting {
		return
	}
	c.event = true
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// purge drops the completions of a queue pair, as the library of a NIC does when the queue
// pair is destroyed or reset.
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
			"it overran: more than %d completions were outstanding", len(c.ring))
	case c.dev.gone.Load():
		return 0, c.dev.goneError("poll")
	}
	return n, nil
}

// pause blocks for d. Other goroutines run meanwhile, also on virtual time.
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
	case c.armed == armedNot: // an earlier Arm(false) stays in force: specification, volume 1, 11.4.2.2
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
		return verbs.Errorf("wait", "completion queue", verbs.ErrBusy, "another goroutine is in Wait")
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
	if !f.hasBug(waitOutlivesClose) {
		close(c.done)
	}
	if returned != nil {
		<-returned
	}
	return nil
}
