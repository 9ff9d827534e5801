package soft

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/tryst-rdma/tryst/verbs"
)

// CQ implements verbs.CQ and verbs.CallbackCQ. Its lock is taken last.
type CQ struct {
	dev  *Device
	size int

	users atomic.Int32 // queue pairs that use it

	filled atomic.Int32 // number of entries, so that Poll of an empty queue takes no lock
	dead   atomic.Bool  // closed, overrun, or the device is gone

	mu      sync.Mutex // guards the fields below
	ring    Ring[Completion]
	head    uint64 // oldest entry
	tail    uint64
	armed   armState
	event   bool // an event that no Wait has returned
	overrun bool
	closed  bool
	waiting waiter
	onEvent func() // may be nil

	wake chan struct{} // one token, sent when event is set
	done chan struct{} // closed by Close
}

// armState is which completions cause an event.
type armState uint8

const (
	notArmed armState = iota
	armedSolicited
	armedAny
)

// Completion is an entry of a completion queue. Polling it stores FreedTo in Freed: the slots of
// the owner's queue below it are free.
type Completion struct {
	WC      verbs.WC
	Freed   *atomic.Uint64
	FreedTo uint64
	Owner   any // the queue pair, a pointer; see Purge
}

// NewCQ opens a completion queue.
func (d *Device) NewCQ(c verbs.CQConfig) (*CQ, error) {
	const op = "create CQ"
	d.Mu.Lock()
	defer d.Mu.Unlock()
	if err := d.UsableLocked(op); err != nil {
		return nil, err
	}
	switch {
	case c.Size < 1 || c.Size > d.limits.CQEntries:
		return nil, verbs.Errorf(op, d.name, verbs.ErrInvalid, "size %d is not in the range of 1 to %d", c.Size, d.limits.CQEntries)
	case len(d.cqs) >= d.limits.CQs:
		return nil, verbs.Errorf(op, d.name, verbs.ErrInvalid, "the device's limit of %d is reached", len(d.cqs))
	}
	q := &CQ{dev: d, size: c.Size, wake: make(chan struct{}, 1), done: make(chan struct{})}
	d.cqs[q] = struct{}{}
	return q, nil
}

// CreateCQ implements verbs.Device.
func (d *Device) CreateCQ(c verbs.CQConfig) (verbs.CQ, error) {
	q, err := d.NewCQ(c)
	if err != nil {
		return nil, err
	}
	return q, nil
}

// OnEvent implements verbs.CallbackCQ.
func (c *CQ) OnEvent(f func()) { c.onEvent = f }

// Call calls the handler of OnEvent, after Push has told so. The caller holds no lock that the handler
// may take.
func (c *CQ) Call() { c.onEvent() }

// Empty reports whether Poll would find nothing, without a lock.
func (c *CQ) Empty() bool { return c.filled.Load() == 0 && !c.dead.Load() }

// Push adds a completion; space is false if the queue is full. With call, an event is not
// delivered to Wait if there is a handler: fired then tells the caller to use Call.
func (c *CQ) Push(e Completion, solicited, call bool) (fired, space bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.overrun {
		return false, true
	}
	if c.tail-c.head == uint64(c.size) {
		c.overrun = true
		c.dead.Store(true)
		c.fireLocked()
		return false, false
	}
	c.ring.Grow(c.head, c.tail, c.size)
	*c.ring.At(c.tail) = e
	c.tail++
	c.filled.Store(int32(c.tail - c.head)) //nolint:gosec // at most Limits.CQEntries
	if c.armed == armedAny || c.armed == armedSolicited && (solicited || e.WC.Status != verbs.StatusOK) {
		if call && c.onEvent != nil {
			c.armed = notArmed
			return true, true
		}
		c.fireLocked()
	}
	return false, true
}

// fireLocked delivers an event to Wait.
func (c *CQ) fireLocked() {
	c.armed, c.event = notArmed, true
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Purge removes the completions of a queue pair, as NIC libraries do when a queue pair is
// destroyed.
func (c *CQ) Purge(owner any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	kept := c.head
	for i := c.head; i < c.tail; i++ {
		if e := *c.ring.At(i); e.Owner != owner {
			*c.ring.At(kept) = e
			kept++
		}
	}
	c.tail = kept
	c.filled.Store(int32(c.tail - c.head)) //nolint:gosec // at most Limits.CQEntries
}

// Poll implements verbs.CQ.
func (c *CQ) Poll(wcs []verbs.WC) (int, error) {
	if c.Empty() {
		return 0, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return 0, verbs.Errorf("poll", "completion queue", verbs.ErrClosed, "it is closed")
	}
	n := min(len(wcs), int(c.tail-c.head)) //nolint:gosec // at most Limits.CQEntries
	for i := range n {
		e := c.ring.At(c.head)
		wcs[i] = e.WC
		e.Freed.Store(e.FreedTo)
		*e = Completion{}
		c.head++
	}
	c.filled.Store(int32(c.tail - c.head)) //nolint:gosec // at most Limits.CQEntries
	switch {
	case n > 0 || len(wcs) == 0:
		return n, nil
	case c.overrun:
		return 0, verbs.Errorf("poll", "completion queue", verbs.ErrInvalid,
			"it overran: more than its %d completions were outstanding", c.size)
	}
	return 0, c.dev.Gone("poll")
}

// Arm implements verbs.CQ.
func (c *CQ) Arm(solicitedOnly bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return verbs.Errorf("arm", "completion queue", verbs.ErrClosed, "it is closed")
	}
	if err := c.dev.Gone("arm"); err != nil {
		return err
	}
	switch {
	case !solicitedOnly:
		c.armed = armedAny
	case c.armed == notArmed: // armedAny stays: specification, volume 1, 11.4.2.2
		c.armed = armedSolicited
	}
	return nil
}

// takeArm takes back what Arm requested.
func (c *CQ) takeArm() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.armed = notArmed
}

// Wait implements verbs.CQ.
func (c *CQ) Wait(ctx context.Context) error {
	c.mu.Lock()
	closed, began := c.closed, !c.closed && c.waiting.begin()
	c.mu.Unlock()
	switch {
	case closed:
		return verbs.Errorf("wait", "completion queue", verbs.ErrClosed, "it is closed")
	case !began:
		return verbs.Errorf("wait", "completion queue", verbs.ErrBusy, "another goroutine waits")
	}
	err := c.wait(ctx)
	c.mu.Lock()
	c.waiting.end()
	c.mu.Unlock()
	return err
}

func (c *CQ) wait(ctx context.Context) error {
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
			return c.dev.Gone("wait")
		}
	}
}

// Size implements verbs.CQ.
func (c *CQ) Size() int { return c.size }

// Close implements verbs.CQ.
func (c *CQ) Close() error {
	c.dev.Mu.Lock()
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		c.dev.Mu.Unlock()
		return nil
	}
	if n := c.users.Load(); n > 0 {
		c.mu.Unlock()
		c.dev.Mu.Unlock()
		return verbs.Errorf("close", "completion queue", verbs.ErrBusy, "%d queue pairs use it", n)
	}
	c.closed = true
	c.dead.Store(true)
	delete(c.dev.cqs, c)
	returned := c.waiting.returns()
	c.mu.Unlock()
	c.dev.Mu.Unlock()
	close(c.done)
	if returned != nil {
		<-returned
	}
	return nil
}
