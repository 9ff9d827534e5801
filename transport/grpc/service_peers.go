package grpctransport

import (
	"context"

	trystpb "github.com/tryst-rdma/tryst/proto/tryst"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
)

// Hello implements trystgrpc.PeersServer. Without a name it only answers.
func (s *service) Hello(ctx context.Context, req *trystpb.HelloRequest) (*trystpb.HelloResponse, error) {
	a := transport.Asker{Name: req.GetAsker(), Incarnation: req.GetAskerIncarnation()}
	if a != (transport.Asker{}) {
		if err := s.hello(ctx, a); err != nil {
			return nil, toGRPC(ctx, err)
		}
	}
	return &trystpb.HelloResponse{
		Name: s.Self.Name, Incarnation: s.Self.Incarnation, Caps: []string{capChunks},
	}, nil
}

func (s *service) hello(ctx context.Context, a transport.Asker) error {
	if a.Incarnation == 0 {
		return status.Errorf(status.InvalidArgument, "Hello of %q names no incarnation", a.Name)
	}
	return s.accept(ctx, a, 0)
}

// Cancel implements trystgrpc.PeersServer.
func (s *service) Cancel(ctx context.Context, req *trystpb.CancelRequest) (*trystpb.CancelResponse, error) {
	if err := s.cancel(ctx, req); err != nil {
		return nil, toGRPC(ctx, err)
	}
	return &trystpb.CancelResponse{}, nil
}

func (s *service) cancel(ctx context.Context, req *trystpb.CancelRequest) error {
	a := transport.Asker{Name: req.GetAsker(), Incarnation: req.GetAskerIncarnation()}
	if err := s.mayBe(ctx, a); err != nil {
		return err
	}
	s.Kept.Cancel(a.Incarnation, req.GetIds())
	return nil
}
