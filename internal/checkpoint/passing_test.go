package checkpoint_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/checkpoint"
	"github.com/tryst-rdma/tryst/status"
)

// crowded is a server in front of a host that refuses calls for a while.
type crowded struct {
	refuse  atomic.Int64 // calls that are refused from now on
	trailer metadata.MD  // of a refusal
	method  string       // the only one that is refused; empty for all
}

func (c *crowded) refused(method string, setTrailer func(metadata.MD)) error {
	if c.method != "" && method != "/tryst.Publications/"+c.method || c.refuse.Add(-1) < 0 {
		return nil
	}
	setTrailer(c.trailer)
	return grpcstatus.Error(codes.ResourceExhausted, "the server takes no more calls; try again later")
}

// pullFromCrowded returns a puller of a host whose server refuses calls.
func pullFromCrowded(t *testing.T, h *host, c *crowded) *checkpoint.Puller {
	t.Helper()
	lis := bufconn.Listen(1 << 20)
	g := grpc.NewServer(
		grpc.UnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			if err := c.refused(info.FullMethod, func(md metadata.MD) { _ = grpc.SetTrailer(ctx, md) }); err != nil {
				return nil, err
			}
			return next(ctx, req)
		}),
		grpc.StreamInterceptor(func(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			if err := c.refused(info.FullMethod, s.SetTrailer); err != nil {
				return err
			}
			return next(srv, s)
		}))
	h.catalog.Register(g)
	go g.Serve(lis) //nolint:errcheck // it ends with Stop
	t.Cleanup(g.Stop)
	conn, err := grpc.NewClient("passthrough:///crowded", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	p := &place{asked: make(map[string]int)}
	p.now.Store(h)
	return checkpoint.NewPuller(checkpoint.PullerOptions{Conn: conn, Task: cluster.ClientTask(), Incarnation: 1, Receiver: p, Address: "10.0.0.1:2222"})
}

// TestPullGoesOnAfterARefusalThatPasses: a server that has no room for a call says whether the room comes back, and
// then the pull tries again, with pauses, for as long as after a lost connection. Without the mark, or without
// Retry, the refusal ends the pull.
func TestPullGoesOnAfterARefusalThatPasses(t *testing.T) {
	marked, answered := metadata.Pairs("tryst-answered", "1", "tryst-try-again", "1"), metadata.Pairs("tryst-answered", "1")
	for name, tt := range map[string]struct {
		method  string
		trailer metadata.MD
		refused int64
		retry   time.Duration
		passes  bool
	}{
		"the first question":          {"", marked, 5, 0, true},
		"the keys":                    {"Open", marked, 5, 0, true},
		"the keys, by gRPC itself":    {"Open", nil, 5, 0, true},
		"for too long":                {"", marked, 1 << 40, 20 * time.Second, false},
		"without the mark":            {"", answered, 1, 0, false},
		"the keys, without the mark":  {"Open", answered, 1, 0, false},
		"the manifest, by gRPC":       {"Describe", nil, 1, 0, false},
		"without retry":               {"", marked, 1, -1, false},
		"the keys, but without retry": {"Open", marked, 1, -1, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := published(t, model(t)...)
				c := &crowded{trailer: tt.trailer, method: tt.method}
				c.refuse.Store(tt.refused)
				puller := pullFromCrowded(t, h, c)
				var n notes
				var failure error
				begin, count := time.Now(), 0
				for x, err := range puller.Pull(t.Context(), checkpoint.PullRequest{Publication: "m", Retry: tt.retry, Interrupted: n.add}) {
					if failure = err; err == nil {
						count++
						x.Release()
					}
				}
				took := time.Since(begin)
				if tt.passes {
					must(t, failure)
					n.mustBeOne(t, "try again later")
					if count != len(model(t)) || took < 100*time.Millisecond {
						t.Errorf("%d tensors came, after %v", count, took)
					}
					return
				}
				mustBe(t, failure, status.ResourceExhausted, "try again later", "10.0.0.1:2222")
				if tried := len(n) > 0; tried != (tt.refused > 1) || tried && took < tt.retry || !tried && took > time.Second {
					t.Errorf("it was told after %v, with %d notes", took, len(n))
				}
				if used := tt.refused - max(c.refuse.Load(), 0); used > 100 {
					t.Errorf("the server was asked %d times", used)
				}
			})
		})
	}
}

// TestRefusedPartIsRequestedAgain: a receive that the server has refused for now does not end the pull.
func TestRefusedPartIsRequestedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := published(t, model(t)...)
		p, puller := at(t, h)
		var refuse atomic.Int64
		refuse.Store(3)
		full := func(string) error {
			if refuse.Add(-1) < 0 {
				return nil
			}
			return status.New(status.ResourceExhausted, "the server takes no more calls").WithPayload("tryst-try-again", nil)
		}
		p.fail.Store(&full)
		var n notes
		count := 0
		for x, err := range puller.Pull(t.Context(), checkpoint.PullRequest{Interrupted: n.add}) {
			must(t, err)
			x.Release()
			count++
		}
		n.mustBeOne(t, "takes no more calls")
		if count != len(model(t)) {
			t.Errorf("%d tensors came", count)
		}
	})
}
