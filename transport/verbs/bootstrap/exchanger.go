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
// grpctransport.Conns.Conn. They stay conn's.
func NewExchanger(conn func(cluster.Task) (grpc.ClientConnInterface, error)) *Exchanger {
	return &Exchanger{conn}
}

// Exchange shows own to the process at the address of peer and returns its offer,
// vetted. It ends with ctx. Unimplemented: the peer has no verbs. FailedPrecondition:
// it and this process cannot talk by verbs, or another task is there.
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
		return handshake.Offer{}, status.Errorf(status.FailedPrecondition, "at the address of %v is %v: look at the addresses of the cluster", peer, o.Task)
	}
	return o, nil
}

// fromGRPC is the error of a call in our terms.
func fromGRPC(peer cluster.Task, err error) error {
	s := grpcstatus.Convert(err)
	if s.Code() == codes.Unimplemented {
		return status.Errorf(status.Unimplemented, "%v does not serve verbs; start it with --transport verbs", peer)
	}
	return status.Errorf(status.Code(s.Code()), "bootstrap of verbs with %v: %s", peer, status.Truncate(s.Message()))
}
