package delivery

import (
	"context"

	"github.com/tryst-rdma/tryst/status"
)

// Drain waits until every kept value has been acknowledged, and every value that was sent before
// its step ended, if its requester has a connection: such a requester learns from its next
// request that the step has ended, and otherwise would wait for another process to take this
// one's place. It does not wait for errors: a peer that has not got one finds that this process
// is gone. When ctx ends first it returns how much is left. It polls: closing is rare, and so nothing else has to carry a condition
// for it.
func (c *ResponseCache) Drain(ctx context.Context) error {
	for {
		n, bytes := c.values()
		if n == 0 && c.unread() == 0 {
			return nil
		}
		if err := sleep(ctx, quietPoll); err != nil {
			return status.Errorf(status.CodeOf(err),
				"waiting for peers to acknowledge their responses: %d values of %d bytes are left, and %d of steps that have ended", n, bytes, c.unread())
		}
	}
}

// values counts the values that are kept, and their memory in bytes.
func (c *ResponseCache) values() (n int, bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range c.table.requesters {
		for _, e := range a.entries {
			if e.state == entryKept && e.response.Err == nil {
				n++
				bytes += e.response.Value.Tensor.MemorySize()
			}
		}
	}
	return n, bytes
}

// unread counts the values of steps that have ended that connected requesters have not
// acknowledged.
func (c *ResponseCache) unread() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.table.requesters {
		if k.connected() {
			n += len(k.past.unread)
		}
	}
	return n
}

// sent notes that e, whose step has ended, had a value. A peer that is not Tryst need not
// acknowledge values, so nothing waits for it.
func (p *past) sent(e *entry) {
	if e.response.Err != nil || e.requester.incarnation == 0 || len(p.unread) >= maxUnread {
		return
	}
	if p.unread == nil {
		p.unread = make(map[uint64]struct{})
	}
	p.unread[e.request.ID] = struct{}{}
}
