package verbstest

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/internal/soft"
)

// cq implements verbs.CQ. Its lock is taken after the fabric's, so polling does not wait for copies.
type cq struct {
	dev   *device
	queue *soft.CQ // not embedded: the fabric calls nobody back

	solicited atomic.Bool // for losesWakeUps: of the last Arm, which Wait makes up for
}

// CreateCQ implements verbs.Device.
func (d *device) CreateCQ(c verbs.CQConfig) (verbs.CQ, error) {
	q, err := d.NewCQ(c)
	if err != nil {
		return nil, err
	}
	return &cq{dev: d, queue: q}, nil
}

// queueOf returns what a completion queue of a fabric has in common with others; nil if c is none.
func queueOf(c verbs.CQ) *soft.CQ {
	if c, ok := c.(*cq); ok {
		return c.queue
	}
	return nil
}

// Poll implements verbs.CQ.
func (c *cq) Poll(wcs []verbs.WC) (int, error) {
	if d := c.dev.nic.f.options.PollTime; c.queue.Empty() && d > 0 && len(wcs) > 0 {
		pause(d)
	}
	if !c.dev.killed.Load() {
		return c.queue.Poll(wcs)
	}
	if _, err := c.queue.Poll(nil); err != nil { // it is closed
		return 0, err
	}
	return 0, c.dev.Gone("poll")
}

// pause blocks for d. Other goroutines run meanwhile, also on virtual time.
func pause(d time.Duration) {
	t := time.NewTimer(d)
	<-t.C
}

// Arm implements verbs.CQ.
func (c *cq) Arm(solicitedOnly bool) error {
	switch c.dev.nic.f.bug {
	case ignoresSolicited:
		solicitedOnly = false
	case losesWakeUps:
		c.solicited.Store(solicitedOnly)
		return nil
	}
	return c.queue.Arm(solicitedOnly)
}

// Wait implements verbs.CQ.
func (c *cq) Wait(ctx context.Context) error {
	if c.dev.nic.f.hasBug(losesWakeUps) {
		if err := c.queue.Arm(c.solicited.Load()); err != nil {
			return err
		}
	}
	err := c.queue.Wait(ctx)
	if errors.Is(err, verbs.ErrClosed) && c.dev.nic.f.hasBug(waitOutlivesClose) {
		<-ctx.Done()
	}
	return err
}

// Size implements verbs.CQ.
func (c *cq) Size() int { return c.queue.Size() }

// Close implements verbs.CQ.
func (c *cq) Close() error { return c.dev.closed(c.queue.Close()) }
