//go:build linux

package shm

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/tryst-rdma/tryst/verbs"
)

// cq implements verbs.CQ. Its lock is taken last.
type cq struct {
	dev  *device
	size int

	users atomic.Int32 // queue pairs that use it, once for each of their queues

	qps    atomic.Pointer[[]*qp] // those that use it, each once for each of their queues; replaced under mu
	filled atomic.Int32          // number of entries, so that Poll of an empty queue takes no lock
	dead   atomic.Bool           // closed or overrun

	mu      sync.Mutex // guards the fields below
	ring    slots[cqe]
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

// cqe is a completion. Polling it frees the slots below freedTo.
type cqe struct {
	wc      verbs.WC
	freed   *atomic.Uint64
	freedTo uint64
	qp      *qp
}

// waiter allows one call to wait. Its owner's lock guards it.
type waiter struct {
	on       bool
	returned chan struct{} // made by Close, closed when the waiting call returns
}

// begin returns false if another call waits.
func (w *waiter) begin() bool {
	if w.on {
		return false
	}
	w.on = true
	return true
}

func (w *waiter) end() {
	w.on = false
	if w.returned != nil {
		close(w.returned)
		w.returned = nil
	}
}

// returns returns a channel that is closed when the waiting call has returned; nil if
// none waits.
func (w *waiter) returns() <-chan struct{} {
	if w.on && w.returned == nil {
		w.returned = make(chan struct{})
	}
	return w.returned
}

func newCQ(d *device, size int) *cq {
	return &cq{dev: d, size: size, wake: make(chan struct{}, 1), done: make(chan struct{})}
}

// use records that a queue pair uses the queue.
func (c *cq) use(q *qp) {
	c.users.Add(1)
	c.change(func(list []*qp) []*qp { return append(list, q) })
}

// unuse is the opposite of use.
func (c *cq) unuse(q *qp) {
	c.users.Add(-1)
	c.change(func(list []*qp) []*qp {
		i := slices.Index(list, q)
		return slices.Delete(list, i, i+1)
	})
}

// change replaces the list of queue pairs, which polls read without a lock.
func (c *cq) change(f func([]*qp) []*qp) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []*qp
	if old := c.qps.Load(); old != nil {
		list = slices.Clone(*old)
	}
	list = f(list)
	c.qps.Store(&list)
}

// drive works on the rings of the queue pairs, so that a polling goroutine need not wait for
// another one.
func (c *cq) drive() {
	list := c.qps.Load()
	if list == nil || len(*list) > maxPolled {
		return
	}
	for i, q := range *list {
		if i == 0 || q != (*list)[i-1] {
			q.poll()
		}
	}
}

// OnEvent implements verbs.CallbackCQ.
func (c *cq) OnEvent(f func()) { c.onEvent = f }

// push adds a completion; space is false if the queue is full. With call, an event is
// not delivered to Wait if there is a handler: fired then tells the caller to call
// onEvent.
func (c *cq) push(e cqe, solicited, call bool) (fired, space bool) {
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
	c.ring.grow(c.head, c.tail, c.size)
	*c.ring.at(c.tail) = e
	c.tail++
	c.filled.Store(int32(c.tail - c.head)) //nolint:gosec // at most maxCQE
	if c.armed == armedAny || c.armed == armedSolicited && (solicited || e.wc.Status != verbs.StatusOK) {
		if call && c.onEvent != nil {
			c.armed = notArmed
			return true, true
		}
		c.fireLocked()
	}
	return false, true
}

// fireLocked delivers an event to Wait.
func (c *cq) fireLocked() {
	c.armed, c.event = notArmed, true
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// purge removes the completions of a queue pair, as NIC libraries do when a queue pair
// is destroyed.
func (c *cq) purge(q *qp) {
	c.mu.Lock()
	defer c.mu.Unlock()
	kept := c.head
	for i := c.head; i < c.tail; i++ {
		if e := *c.ring.at(i); e.qp != q {
			*c.ring.at(kept) = e
			kept++
		}
	}
	c.tail = kept
	c.filled.Store(int32(c.tail - c.head)) //nolint:gosec // at most maxCQE
}

// Poll implements verbs.CQ.
func (c *cq) Poll(wcs []verbs.WC) (int, error) {
	if c.filled.Load() == 0 && !c.dead.Load() {
		if c.drive(); c.filled.Load() == 0 && !c.dead.Load() {
			return 0, nil
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return 0, verbs.Errorf("poll", "completion queue", verbs.ErrClosed, "it is closed")
	}
	n := min(len(wcs), int(c.tail-c.head)) //nolint:gosec // at most maxCQE
	for i := range n {
		e := c.ring.at(c.head)
		wcs[i] = e.wc
		e.freed.Store(e.freedTo)
		*e = cqe{}
		c.head++
	}
	c.filled.Store(int32(c.tail - c.head)) //nolint:gosec // at most maxCQE
	switch {
	case n > 0 || len(wcs) == 0:
	case c.overrun:
		return 0, verbs.Errorf("poll", "completion queue", verbs.ErrInvalid,
			"it overran: more than its %d completions were outstanding", c.size)
	}
	return n, nil
}

// Arm implements verbs.CQ.
func (c *cq) Arm(solicitedOnly bool) error {
	if err := c.arm(solicitedOnly); err != nil {
		return err
	}
	if list := c.qps.Load(); list != nil {
		for _, q := range *list {
			q.polledNoMore()
		}
	}
	return nil
}

func (c *cq) arm(solicitedOnly bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return verbs.Errorf("arm", "completion queue", verbs.ErrClosed, "it is closed")
	case !solicitedOnly:
		c.armed = armedAny
	case c.armed == notArmed: // armedAny stays: specification, volume 1, 11.4.2.2
		c.armed = armedSolicited
	}
	return nil
}

// Wait implements verbs.CQ.
func (c *cq) Wait(ctx context.Context) error {
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
		}
	}
}

// Size implements verbs.CQ.
func (c *cq) Size() int { return c.size }

// Close implements verbs.CQ.
func (c *cq) Close() error {
	c.dev.mu.Lock()
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		c.dev.mu.Unlock()
		return nil
	}
	if n := c.users.Load(); n > 0 {
		c.mu.Unlock()
		c.dev.mu.Unlock()
		return verbs.Errorf("close", "completion queue", verbs.ErrBusy, "%d queue pairs use it", n)
	}
	c.closed = true
	c.dead.Store(true)
	delete(c.dev.cqs, c)
	returned := c.waiting.returns()
	c.mu.Unlock()
	c.dev.mu.Unlock()
	close(c.done)
	if returned != nil {
		<-returned
	}
	return nil
}
