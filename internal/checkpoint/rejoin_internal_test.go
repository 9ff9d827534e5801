package checkpoint

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"

	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
	"github.com/tryst-rdma/tryst/internal/proto/trystgrpc"
	"github.com/tryst-rdma/tryst/status"
)

// restless is a server whose streams of Watch announce one version each. Some are refused.
type restless struct {
	trystgrpc.PublicationsClient
	streams int
	refuses func(stream int) bool
	told    func() // a version has been announced
}

func (r *restless) Watch(ctx context.Context, _ *trystpb.WatchRequest, _ ...grpc.CallOption) (grpc.ServerStreamingClient[trystpb.WatchResponse], error) {
	r.streams++
	return &restlessStream{ctx: ctx, of: r, refused: r.refuses(r.streams)}, nil
}

type restlessStream struct {
	grpc.ServerStreamingClient[trystpb.WatchResponse]
	ctx     context.Context
	of      *restless
	refused bool
	told    bool
}

func (s *restlessStream) Trailer() metadata.MD { return nil }

func (s *restlessStream) Recv() (*trystpb.WatchResponse, error) {
	switch {
	case s.refused:
		return nil, grpcstatus.Error(codes.ResourceExhausted, "too many watchers")
	case s.told:
		s.of.told()
		<-s.ctx.Done()
		return nil, grpcstatus.FromContextError(s.ctx.Err()).Err()
	}
	s.told = true
	return new(trystpb.WatchResponse), nil
}

// rejoin has a watcher that gets each version at once hear of a server for a second.
func rejoin(t *testing.T, refuses func(stream int) bool) (streams int, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	server := &restless{refuses: refuses}
	f := &follower{p: &Puller{client: server}, name: "w", wake: make(chan struct{}, 1)}
	server.told = func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.tell()
	}
	_, err = f.hear(ctx)
	return server.streams, err
}

// TestStreamsOfAWatcherAreBounded: a watcher that gets a thousand versions a second says so no more often than it would be
// told of them on one stream.
func TestStreamsOfAWatcherAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if n, _ := rejoin(t, func(int) bool { return false }); n < 45 || time.Duration(n) > time.Second/announceEvery+1 {
			t.Errorf("%d streams in a second", n)
		}
	})
}

// TestAWatcherThatIsBackIsRefusedForAWhile: the server counts its earlier stream still. That is no interruption, but a
// server that refuses for long is one, and so is one that refuses the first stream.
func TestAWatcherThatIsBackIsRefusedForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if n, err := rejoin(t, func(stream int) bool { return stream == 2 || stream == 3 }); n < 45 || status.CodeOf(err) == status.ResourceExhausted {
			t.Errorf("%d streams, and %v", n, err)
		}
	})
	for first, want := range map[int]int{1: 1, 2: 40} {
		synctest.Test(t, func(t *testing.T) {
			if n, err := rejoin(t, func(stream int) bool { return stream >= first }); n < want || status.CodeOf(err) != status.ResourceExhausted && n < 45 {
				t.Errorf("%d streams, and %v", n, err)
			}
		})
	}
}
