package checkpoint_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/tryst-rdma/tryst/internal/checkpoint"
	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
	"github.com/tryst-rdma/tryst/internal/proto/trystgrpc"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
)

// holder is a server whose connection is well, and which holds a pull at one place.
type holder struct {
	trystgrpc.UnimplementedPublicationsServer
	describe, open func(ctx context.Context) error // hold the call; nil for an answer
	opened         func(stream grpc.ServerStreamingServer[trystpb.OpenResponse]) error
	opens          atomic.Int64
}

func (h *holder) Describe(ctx context.Context, _ *trystpb.DescribeRequest) (*trystpb.DescribeResponse, error) {
	if h.describe != nil {
		return nil, h.describe(ctx)
	}
	return &trystpb.DescribeResponse{
		Publication: &trystpb.Publication{Name: "m", Version: "1"}, DigestAlgorithm: checkpoint.XXH64,
		Tensors: []*trystpb.TensorInfo{{Name: "x", Dtype: tfpb.DataType_DT_FLOAT, Shape: []int64{1}, Bytes: 4, Digest: make([]byte, 8)}},
	}, nil
}

func (h *holder) Open(req *trystpb.OpenRequest, stream grpc.ServerStreamingServer[trystpb.OpenResponse]) error {
	h.opens.Add(1)
	if h.open != nil {
		return h.open(stream.Context())
	}
	if h.opened != nil {
		return h.opened(stream)
	}
	key := "/job:worker/replica:0/task:0/device:CPU:0;0000000000000007;" + req.GetPuller() + "/device:CPU:0;x;0:0"
	if err := stream.Send(&trystpb.OpenResponse{StepId: 5, Last: true, Keys: []*trystpb.TensorKey{{Name: "x", Key: key}}}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

// deaf is a Receiver whose receives are never answered.
type deaf struct{}

func (deaf) RecvAsync(ctx context.Context, _ int64, _ rendezvous.Key, args rendezvous.Args, done rendezvous.DoneFunc) {
	context.AfterFunc(ctx, func() { done(rendezvous.Value{}, args, context.Cause(ctx)) })
}

func (deaf) EndStep(int64) {}

func hold(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }

// TestServerThatHoldsAPullIsGivenUp: whatever place the server holds it at, and with every Retry. It
// answers on its connection all the time.
func TestServerThatHoldsAPullIsGivenUp(t *testing.T) {
	for _, c := range []struct {
		name  string
		s     *holder
		words []string
	}{
		{"never describes", &holder{describe: hold}, []string{"did not answer within"}},
		{"opens and says nothing", &holder{open: hold}, []string{"opening publication", "did not answer within"}},
		{"never answers a receive", &holder{}, []string{"answers, and has sent no requested tensor or piece for"}},
	} {
		for _, retry := range []time.Duration{-1, 5 * time.Second, checkpoint.DefaultRetry, 5 * time.Minute} {
			t.Run(c.name+" "+retry.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					puller := pullFromReceiver(t, c.s, deaf{})
					before, begin := c.s.opens.Load(), time.Now()
					var n notes
					var failure error
					for _, err := range puller.Pull(t.Context(), checkpoint.PullRequest{Publication: "m", Retry: retry, Interrupted: n.add}) {
						failure = err
					}
					mustBe(t, failure, status.Unavailable, c.words...)
					// The silence, then Retry, and at most one attempt that had begun.
					first := max(retry, time.Minute)
					if d := time.Since(begin); d < first || d > first+max(retry, 0)+25*time.Second {
						t.Errorf("it ended after %v", d)
					}
					if tries := c.s.opens.Load() - before; c.s.describe == nil && retry > 0 && tries < 2 {
						t.Errorf("%d sessions: it was not tried again", tries)
					}
					if retry > 0 && (len(n) == 0 || n[0].Err == nil) {
						t.Errorf("interruptions %+v", n)
					}
				})
			})
		}
	}
}

// TestServerThatGoesOnAfterAStallIsUsed: the session that brought nothing is left, and the next one
// brings the tensor.
func TestServerThatGoesOnAfterAStallIsUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := patterned(t, "x", 100)
		p, puller := at(t, published(t, x))
		p.deaf.Store(1)
		var n notes
		for got, err := range puller.Pull(t.Context(), checkpoint.PullRequest{Interrupted: n.add}) {
			must(t, err)
			got.Release()
		}
		n.mustBeOne(t, "has sent no requested tensor or piece for 1m0s")
	})
}

// TestMessagesWithoutKeysAreRefused: a server that sends empty messages for ever, or goes on after the
// last one, ends the pull at once.
func TestMessagesWithoutKeysAreRefused(t *testing.T) {
	endless := func(m *trystpb.OpenResponse) *holder {
		return &holder{opened: func(stream grpc.ServerStreamingServer[trystpb.OpenResponse]) error {
			for {
				if err := stream.Send(m); err != nil {
					return err
				}
			}
		}}
	}
	key := "/job:worker/replica:0/task:0/device:CPU:0;0000000000000007;/job:worker/replica:0/task:1/device:CPU:0;x;0:0"
	for _, c := range []struct {
		m    *trystpb.OpenResponse
		want string
	}{
		{&trystpb.OpenResponse{StepId: 5}, "a message without a key"},
		{&trystpb.OpenResponse{StepId: 5, Last: true, Keys: []*trystpb.TensorKey{{Name: "x", Key: key}}}, "a message after the last one"},
	} {
		puller := pullFromReceiver(t, endless(c.m), deaf{})
		for _, err := range puller.Pull(t.Context(), checkpoint.PullRequest{Publication: "m"}) {
			mustBe(t, err, status.Internal, c.want)
		}
	}
}

// TestSlowReceivesAreNoStall: parts that come whole, one in a while, keep a pull going, and so does a
// consumer that waits.
func TestSlowReceivesAreNoStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tensors := model(t)
		p, puller := at(t, published(t, tensors...))
		slow := func(string) error {
			<-time.After(checkpoint.DefaultRetry - time.Second)
			return nil
		}
		p.fail.Store(&slow)
		var n notes
		count := 0
		for x, err := range puller.Pull(t.Context(), checkpoint.PullRequest{Inflight: 1, InflightBytes: 1, Interrupted: n.add}) {
			must(t, err)
			x.Release()
			count++
			time.Sleep(5 * checkpoint.DefaultRetry)
		}
		if count != len(tensors) || len(n) > 0 {
			t.Errorf("%d tensors came, with the notes %+v", count, n)
		}
	})
}
