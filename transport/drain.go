package transport

import (
	"context"

	"github.com/tryst-rdma/tryst/status"
)

// Drain waits until every answer that was given has been taken: until nothing is
// kept. When ctx ends first it returns how much is left. It looks now and then,
// as closing is rare and nothing else has to carry a condition for it.
func (k *Kept) Drain(ctx context.Context) error {
	for {
		s := k.Stats()
		if s.Kept == 0 {
			return nil
		}
		if err := sleep(ctx, quietPoll); err != nil {
			return status.Errorf(status.CodeOf(err),
				"waiting for peers to take their answers: %d answers of %d bytes are left", s.Kept, s.Bytes)
		}
	}
}
