package transport

import (
	"context"

	"github.com/tryst-rdma/tryst/status"
)

// Drain waits until every value that peers were answered with has been taken.
// Errors are not waited for: who has not taken one learns that this process is
// gone. When ctx ends first it returns how much is left. It looks now and then,
// as closing is rare and nothing else has to carry a condition for it.
func (k *Kept) Drain(ctx context.Context) error {
	for {
		n, bytes := k.values()
		if n == 0 {
			return nil
		}
		if err := sleep(ctx, quietPoll); err != nil {
			return status.Errorf(status.CodeOf(err),
				"waiting for peers to take their answers: %d values of %d bytes are left", n, bytes)
		}
	}
}

// values counts the values that are kept, and their memory in bytes.
func (k *Kept) values() (n int, bytes int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, a := range k.table.askers {
		for _, e := range a.entries {
			if e.state == entryKept && e.answer.Err == nil {
				n++
				bytes += e.answer.Value.Tensor.MemorySize()
			}
		}
	}
	return n, bytes
}
