package soft

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/tryst-rdma/tryst/verbs"
)

// DrivenCQ implements verbs.DrivenCQ: a goroutine that polls it does the work of its queue pairs.
type DrivenCQ struct {
	*CQ
	// driven are the queue pairs that use it, each once for each of their queues.
	driven atomic.Pointer[[]Driven]

	mu       sync.Mutex // held while the list is replaced and while disarmed changes
	disarmed bool       // its caller polls, and each queue pair counts that as a poller
}

// Driven is a queue pair whose work a goroutine can do that polls a completion queue.
type Driven interface {
	// Drive does what there is to do, without waiting, unless another goroutine does it.
	Drive()
	// Polled changes the number of queues whose callers poll all the time. Who stops polling polls
	// once more afterwards.
	Polled(change int32)
}

// NewDrivenCQ opens a completion queue whose polls do work.
func (d *Device) NewDrivenCQ(c verbs.CQConfig) (verbs.CQ, error) {
	q, err := d.NewCQ(c)
	if err != nil {
		return nil, err
	}
	return &DrivenCQ{CQ: q}, nil
}

// Shared returns what every device has of a completion queue; nil if c is none of this kind.
func (c *DrivenCQ) Shared() *CQ {
	if c == nil {
		return nil
	}
	return c.CQ
}

// Use records that a queue pair uses the queue.
func (c *DrivenCQ) Use(q Driven) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []Driven
	if old := c.driven.Load(); old != nil {
		list = slices.Clone(*old)
	}
	list = append(list, q)
	c.driven.Store(&list)
	if c.disarmed {
		q.Polled(1)
	}
}

// Unuse is the opposite of Use, for one that is closed.
func (c *DrivenCQ) Unuse(q Driven) {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := slices.Clone(*c.driven.Load())
	i := slices.Index(list, q)
	list = slices.Delete(list, i, i+1)
	c.driven.Store(&list)
}

// Poll implements verbs.CQ.
func (c *DrivenCQ) Poll(wcs []verbs.WC) (int, error) {
	if c.Empty() {
		c.drive()
	}
	return c.CQ.Poll(wcs)
}

// drive does the work of the queue pairs.
func (c *DrivenCQ) drive() {
	list := c.driven.Load()
	if list == nil {
		return
	}
	for i, q := range *list {
		if i == 0 || q != (*list)[i-1] {
			q.Drive()
		}
	}
}

// Arm implements verbs.CQ.
func (c *DrivenCQ) Arm(solicitedOnly bool) error {
	if err := c.CQ.Arm(solicitedOnly); err != nil {
		return err
	}
	c.polls(false)
	return nil
}

// Disarm implements verbs.DrivenCQ.
func (c *DrivenCQ) Disarm() {
	c.takeArm()
	c.polls(true)
}

// polls tells the queue pairs whether the caller polls.
func (c *DrivenCQ) polls(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := c.driven.Load()
	if c.disarmed == on || on && (list == nil || len(*list) > maxDriven) {
		return
	}
	c.disarmed = on
	change := int32(1)
	if !on {
		change = -1
	}
	if list != nil {
		for _, q := range *list {
			q.Polled(change)
		}
	}
}
