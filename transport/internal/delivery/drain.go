package delivery

import (
	"context"

	"github.com/tryst-rdma/tryst/status"
)

// Drain waits until every kept value has been acknowledged. It does not wait for errors: a
// peer that has not got one finds that this process is gone. When ctx ends first it returns
// how much is left. It polls: closing is rare, and so nothing else has to carry a condition
// for it.
func (c *ResponseCache) Drain(ctx context.Context) error {
	for {
		n, bytes := c.values()
		if n == 0 {
			return nil
		}
		if err := sleep(ctx, quietPoll); err != nil {
			return status.Errorf(status.CodeOf(err),
				"waiting for peers to acknowledge their responses: %d values of %d bytes are left", n, bytes)
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
