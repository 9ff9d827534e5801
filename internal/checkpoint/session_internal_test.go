package checkpoint

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
	"github.com/tryst-rdma/tryst/internal/proto/trystgrpc"
)

// lateServer sends all keys of an Open after a delay, whatever has become of the stream.
type lateServer struct {
	trystgrpc.PublicationsClient
	grpc.ServerStreamingClient[trystpb.OpenResponse]
	ctx   context.Context
	delay time.Duration
	sent  bool
}

func (s *lateServer) Open(ctx context.Context, _ *trystpb.OpenRequest, _ ...grpc.CallOption) (grpc.ServerStreamingClient[trystpb.OpenResponse], error) {
	s.ctx = ctx
	return s, nil
}

func (s *lateServer) Recv() (*trystpb.OpenResponse, error) {
	if !s.sent {
		s.sent = true
		time.Sleep(s.delay)
		return &trystpb.OpenResponse{StepId: 1, Last: true}, nil
	}
	<-s.ctx.Done()
	return nil, s.ctx.Err()
}

func (s *lateServer) Trailer() metadata.MD { return nil }

// Keys that come when the patience has just ended are too late: the stream ends. That is no end of
// the pull.
func TestKeysThatComeTooLatePass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &lateServer{delay: time.Minute + time.Millisecond}
		p := &Puller{client: s}
		lost := func(err error) { t.Errorf("the stream was lost: %v", err) }
		got, err := p.open(t.Context(), &Manifest{}, nil, "", nil, time.Minute, false, lost)
		if got != nil || !mayPass(err) || !strings.Contains(err.Error(), "did not answer within 1m0s") {
			t.Errorf("got %v, %v", got, err)
		}
		if got != nil {
			got.cancel()
			<-got.ended
		}
	})
}
