//go:build linux

package shm

import (
	"slices"
	"sync/atomic"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/internal/soft"
)

// cq implements verbs.CQ. A goroutine that polls it works on the rings of its queue pairs.
type cq struct {
	*soft.CQ
	// qps are those that use it, each once for each of their queues. The device's lock is held while
	// the list is replaced.
	qps atomic.Pointer[[]*qp]
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

// useLocked records that a queue pair uses the queue. The caller holds the device's lock.
func (c *cq) useLocked(q *qp) {
	var list []*qp
	if old := c.qps.Load(); old != nil {
		list = slices.Clone(*old)
	}
	list = append(list, q)
	c.qps.Store(&list)
}

// unuseLocked is the opposite of useLocked.
func (c *cq) unuseLocked(q *qp) {
	list := slices.Clone(*c.qps.Load())
	i := slices.Index(list, q)
	list = slices.Delete(list, i, i+1)
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
	if list := c.qps.Load(); list != nil {
		for _, q := range *list {
			q.polledNoMore()
		}
	}
	return nil
}
