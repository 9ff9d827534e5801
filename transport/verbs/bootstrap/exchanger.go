package bootstrap

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/proto/tensorflowgrpc"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport/verbs/internal/handshake"
)

// Exchanger shows offers to peers over gRPC. It implements
// verbstransport.Exchanger.
type Exchanger struct {
	conn func(cluster.Task) (grpc.ClientConnInterface, error)
}

// NewExchanger returns an exchanger that takes its connections from conn, such as
// grpctransport.Conns.Conn. It does not close them.
func NewExchanger(conn func(cluster.Task) (grpc.ClientConnInterface, error)) *Exchanger {
	return &Exchanger{conn}
}

// Exchange shows own to the process at the address of peer and returns that process's
// offer, validated. It ends with ctx. Errors: Unimplemented when the peer does not serve
// verbs; FailedPrecondition when the two processes cannot use verbs, or another task runs
// at the address.
func (e *Exchanger) Exchange(ctx context.Context, peer cluster.Task, own handshake.Offer) (handshake.Offer, error) {
	conn, err := e.conn(peer)
	if err != nil {
		return handshake.Offer{}, err
	}
	m, err := tensorflowgrpc.NewVerbsServiceClient(conn).GetRemoteAddress(ctx, toRequest(peer, own))
	if err != nil {
		return handshake.Offer{}, fromGRPC(peer, err)
	}
	o, err := fromMessage(m)
	switch {
	case err != nil:
		return handshake.Offer{}, err
	case o.Task != peer:
		return handshake.Offer{}, status.Errorf(status.FailedPrecondition, "the process at the address of %v is %v: check the addresses of the cluster", peer, o.Task)
	}
	return o, nil
}

// fromGRPC converts the error of a call.
func fromGRPC(peer cluster.Task, err error) error {
	s := grpcstatus.Convert(err)
	if s.Code() == codes.Unimplemented {
		return status.Errorf(status.Unimplemented, "%v does not serve verbs; start it with --transport verbs", peer)
	}
	return status.Errorf(status.Code(s.Code()), "bootstrap of verbs with %v: %s", peer, status.Truncate(s.Message()))
}
