package grpctransport

import (
	"context"

	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
	"github.com/tryst-rdma/tryst/transport"
)

// Hello implements trystgrpc.PeersServer. A request without a requester introduces no
// process; it gets the same response.
func (s *service) Hello(ctx context.Context, req *trystpb.HelloRequest) (*trystpb.HelloResponse, error) {
	a := transport.Process{Name: req.GetRequester(), Incarnation: req.GetRequesterIncarnation()}
	if a != (transport.Process{}) {
		if err := s.accept(ctx, a, 0); err != nil {
			return nil, toGRPC(ctx, err)
		}
	}
	return &trystpb.HelloResponse{
		Name: s.Self.Name, Incarnation: s.Self.Incarnation, Caps: []string{capChunks},
	}, nil
}

// Cancel implements trystgrpc.PeersServer.
func (s *service) Cancel(ctx context.Context, req *trystpb.CancelRequest) (*trystpb.CancelResponse, error) {
	if err := s.cancel(ctx, req); err != nil {
		return nil, toGRPC(ctx, err)
	}
	return &trystpb.CancelResponse{}, nil
}

func (s *service) cancel(ctx context.Context, req *trystpb.CancelRequest) error {
	a := transport.Process{Name: req.GetRequester(), Incarnation: req.GetRequesterIncarnation()}
	if err := s.accept(ctx, a, 0); err != nil {
		return err
	}
	return s.Cache.Cancel(a, req.GetIds())
}
