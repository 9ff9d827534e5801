package grpctransport

import (
	"context"

	trystpb "github.com/tryst-rdma/tryst/proto/tryst"
)

// Hello implements trystgrpc.PeersServer.
func (s *service) Hello(context.Context, *trystpb.HelloRequest) (*trystpb.HelloResponse, error) {
	return &trystpb.HelloResponse{
		Name: s.Self.Name, Incarnation: s.Self.Incarnation, Caps: []string{capChunks},
	}, nil
}

// Cancel implements trystgrpc.PeersServer.
func (s *service) Cancel(_ context.Context, req *trystpb.CancelRequest) (*trystpb.CancelResponse, error) {
	s.Kept.Cancel(req.GetAskerIncarnation(), req.GetIds())
	return &trystpb.CancelResponse{}, nil
}
