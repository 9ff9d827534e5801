package verbstransport

import (
	"context"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/transport/verbs/internal/handshake"
)

// Exchanger shows an offer to a peer and returns the peer's: the bootstrap, over
// whatever wire there is beside RDMA (PROTOCOL.md section 9). It is called from
// many goroutines. Errors are *status.Error.
type Exchanger interface {
	Exchange(ctx context.Context, peer cluster.Task, own handshake.Offer) (handshake.Offer, error)
}
