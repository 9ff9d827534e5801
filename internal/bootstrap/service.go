package bootstrap

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/handshake"
	"github.com/tryst-rdma/tryst/internal/identity"
	"github.com/tryst-rdma/tryst/internal/proto/tensorflowgrpc"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
)

// ServiceOptions configures the service. All fields are required.
type ServiceOptions struct {
	// Self is the task of this process.
	Self cluster.Task
	// Host returns the host of a task's address in the cluster. ok is false for a task
	// that the cluster does not have.
	Host func(cluster.Task) (host string, ok bool)
	// Answer takes the validated offer of a peer, which may use its name, and the
	// address of the call (identity.Address). It returns this side's offer. It ends with ctx,
	// which has a deadline.
	Answer func(ctx context.Context, address string, from handshake.Offer) (handshake.Offer, error)
}

// Register adds the VerbsService to a server.
func Register(s grpc.ServiceRegistrar, o ServiceOptions) {
	tensorflowgrpc.RegisterVerbsServiceServer(s, &service{ServiceOptions: o})
}

type service struct {
	tensorflowgrpc.UnimplementedVerbsServiceServer
	ServiceOptions
}

// GetRemoteAddress implements tensorflowgrpc.VerbsServiceServer.
func (s *service) GetRemoteAddress(ctx context.Context, m *tfpb.GetRemoteAddressRequest) (*tfpb.GetRemoteAddressResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, handshake.CallTimeout)
	defer cancel()
	own, err := s.answer(ctx, m)
	if err != nil {
		e := status.From(err)
		_ = grpc.SetTrailer(ctx, metadata.Pairs(answeredKey, "1")) // fails only outside of a call
		return nil, e.WithMessage(status.ForPeer(e.Message()))
	}
	return toResponse(own), nil
}

func (s *service) answer(ctx context.Context, m *tfpb.GetRemoteAddressRequest) (handshake.Offer, error) {
	if t, err := cluster.ParseTask(m.GetHostName()); err == nil && t == s.Self {
		return handshake.Offer{}, status.Errorf(status.InvalidArgument,
			"the caller uses the name of this process, %v: two processes have the same name, or the address of another task is this process's", t)
	}
	from, err := fromMessage(m)
	if err != nil {
		return handshake.Offer{}, err
	}
	if meant, err := cluster.ParseTask(m.GetPeerName()); err != nil || meant != s.Self {
		return handshake.Offer{}, status.Errorf(status.FailedPrecondition, "%v called %.200q, and this is %v: check the addresses of the cluster",
			from.Task, m.GetPeerName(), s.Self)
	}
	from.For = m.GetPeerIncarnation()
	host, ok := s.Host(from.Task)
	if !ok && from.Task.Job != cluster.ClientJob {
		return handshake.Offer{}, status.Errorf(status.FailedPrecondition, "the cluster has no task %v", from.Task)
	}
	if err := identity.Of(ctx).Check(from.Task, host); err != nil {
		return handshake.Offer{}, err
	}
	return s.Answer(ctx, identity.Address(ctx), from)
}
