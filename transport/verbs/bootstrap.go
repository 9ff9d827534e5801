package verbstransport

import (
	"context"
	"errors"

	"google.golang.org/grpc"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/bootstrap"
	"github.com/tryst-rdma/tryst/internal/handshake"
	"github.com/tryst-rdma/tryst/status"
)

// BootstrapOptions configures Register.
type BootstrapOptions struct {
	// Host returns the host of a task's address in the cluster. ok is false for a task
	// that the cluster does not have.
	Host func(cluster.Task) (host string, ok bool)
	// Answered is called with the context of a call of a peer that gets an offer. Nil does nothing.
	Answered func(ctx context.Context, peer cluster.Task)
}

// Register registers the service that answers the bootstrap calls of peers
// (PROTOCOL.md section 9). Host is required.
func (t *RdmaRemoteRendezvous) Register(s grpc.ServiceRegistrar, o BootstrapOptions) {
	bootstrap.Register(s, bootstrap.ServiceOptions{
		Self: t.opts.Task, Host: o.Host,
		Answer: func(ctx context.Context, address string, from handshake.Offer) (handshake.Offer, error) {
			own, err := t.answer(ctx, address, from)
			if err == nil && o.Answered != nil {
				o.Answered(ctx, from.Task)
			}
			return own, err
		},
	})
}

// answer answers the bootstrap call of a peer: from is its offer, address is its address.
// The caller has checked that the peer may use the name in its offer.
func (t *RdmaRemoteRendezvous) answer(ctx context.Context, address string, from handshake.Offer) (handshake.Offer, error) {
	if from.Task == t.opts.Task {
		return handshake.Offer{}, status.Errorf(status.InvalidArgument,
			"%v is the name of this process: it cannot be its own peer", from.Task)
	}
	for {
		p, err := t.peerFrom(from.Task, address, handshake.Removed)
		if errors.Is(err, errTransportClosed) {
			err = handshake.Stopping(t.opts.Task)
		}
		if err != nil {
			return handshake.Offer{}, err
		}
		offer, err := p.request(ctx, from)
		if err != errForgotten { //nolint:errorlint // never wrapped
			return offer, err
		}
	}
}
