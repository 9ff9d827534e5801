package bootstrap

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/handshake"
	"github.com/tryst-rdma/tryst/internal/proto/tensorflowgrpc"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
)

// Exchanger shows offers to peers over gRPC. It is safe for concurrent use. Its errors are
// *status.Error.
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
	var trailer metadata.MD
	m, err := tensorflowgrpc.NewVerbsServiceClient(conn).GetRemoteAddress(ctx, toRequest(peer, own), grpc.Trailer(&trailer))
	if err != nil {
		return handshake.Offer{}, fromGRPC(peer, err, trailer)
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

// answeredKey is the trailer that marks an error as the peer's own (PROTOCOL.md section 4).
const answeredKey = "tryst-answered"

// fromGRPC converts the error of a call: a sentence of the peer, or an error of the connection.
func fromGRPC(peer cluster.Task, err error, trailer metadata.MD) error {
	s := grpcstatus.Convert(err)
	code, text := status.Code(s.Code()), status.Truncate(transport.PlainText(s.Message()))
	switch {
	case len(trailer.Get(answeredKey)) > 0:
		return status.Errorf(code, "%w", &status.Said{Peer: peer.String(), Text: text})
	case code == status.Unimplemented:
		return status.Errorf(code, "%v %w", peer, handshake.ErrNotServed)
	}
	return status.Errorf(code, "%w", &handshake.UnreachedError{Err: fmt.Errorf("bootstrap of verbs with %v: %s", peer, text)})
}
