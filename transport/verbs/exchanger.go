package verbstransport

import (
	"context"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/handshake"
)

// Exchanger makes the bootstrap call: it sends an offer to a peer and returns the peer's
// offer, over a connection other than RDMA (PROTOCOL.md section 9). It has to be safe for
// concurrent use. Errors are *status.Error.
type Exchanger interface {
	Exchange(ctx context.Context, peer cluster.Task, own handshake.Offer) (handshake.Offer, error)
}

// Offer describes one end of a channel. The two processes exchange offers.
type Offer = handshake.Offer

// Rail is one queue pair of an Offer.
type Rail = handshake.Rail

// Inventory is what an Offer says of the devices of its process.
type Inventory = handshake.Inventory

// InventoryDevice is a device in an Inventory.
type InventoryDevice = handshake.Device
