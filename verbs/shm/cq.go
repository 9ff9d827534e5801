//go:build linux

package shm

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/internal/soft"
)

// cq implements verbs.DrivenCQ. A goroutine that polls it works on the rings of its queue pairs.
type cq struct {
	*soft.CQ
	// qps are those that use it, each once for each of their queues.
	qps atomic.Pointer[[]*qp]

	mu       sync.Mutex // held while the list is replaced and while disarmed changes
	disarmed bool       // its caller polls, and each queue pair counts that as a poller
}

// CreateCQ implements verbs.Device.
func (d *device) CreateCQ(c verbs.CQConfig) (verbs.CQ, error) {
	q, err := d.NewCQ(c)
	if err != nil {
		return nil, err
	}
	return &cq{CQ: q}, nil
}

// shared returns what every device has of a completion queue; nil if c is none of this package.
func shared(c verbs.CQ) *soft.CQ {
	if c, ok := c.(*cq); ok {
		return c.CQ
	}
	return nil
}

// use records that a queue pair uses the queue.
func (c *cq) use(q *qp) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []*qp
	if old := c.qps.Load(); old != nil {
		list = slices.Clone(*old)
	}
	list = append(list, q)
	c.qps.Store(&list)
	if c.disarmed {
		q.polled(1)
	}
}

// unuse is the opposite of use.
func (c *cq) unuse(q *qp) {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := slices.Clone(*c.qps.Load())
	i := slices.Index(list, q)
	list = slices.Delete(list, i, i+1)
	c.qps.Store(&list)
}

// drive works on the rings of the queue pairs, so that a polling goroutine need not wait for
// another one.
func (c *cq) drive() {
	list := c.qps.Load()
	if list == nil {
		return
	}
	for i, q := range *list {
		if i == 0 || q != (*list)[i-1] {
			q.poll()
		}
	}
}

// Poll implements verbs.CQ.
func (c *cq) Poll(wcs []verbs.WC) (int, error) {
	if c.Empty() {
		c.drive()
	}
	return c.CQ.Poll(wcs)
}

// Arm implements verbs.CQ.
func (c *cq) Arm(solicitedOnly bool) error {
	if err := c.CQ.Arm(solicitedOnly); err != nil {
		return err
	}
	c.polls(false)
	return nil
}

// Disarm implements verbs.DrivenCQ.
func (c *cq) Disarm() {
	c.TakeArm()
	c.polls(true)
}

// polls tells the queue pairs whether the caller polls.
func (c *cq) polls(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := c.qps.Load()
	if c.disarmed == on || on && (list == nil || len(*list) > maxPolled) {
		return
	}
	c.disarmed = on
	change := int32(1)
	if !on {
		change = -1
	}
	if list != nil {
		for _, q := range *list {
			q.polled(change)
		}
	}
}
