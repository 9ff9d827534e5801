package server

import (
	"context"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport/transporttest"
)

// TestEndOfAStepEndsAReceiveFromAnUnknownPeer at once, while the peer is looked for.
func TestEndOfAStepEndsAReceiveFromAnUnknownPeer(t *testing.T) {
	boom := status.New(status.DataLoss, "boom")
	for name, c := range map[string]struct {
		end  func(s *Server)
		want status.Code
	}{
		"abort": {func(s *Server) { s.AbortStep(1, boom) }, status.DataLoss},
		"end":   {func(s *Server) { s.EndStep(1) }, status.Aborted},
		"close": {func(s *Server) {
			if err := s.Close(context.Background()); err != nil {
				t.Error(err)
			}
		}, status.Aborted},
	} {
		t.Run(name, func(t *testing.T) {
			eachWay(t, func(t *testing.T, recv recvFunc) {
				at := twoPlaces(t, func(c *config.Config) { c.PeerTimeout = time.Hour })
				b := start(t, at(1), Options{})
				o := recv(b, 1, "/job:worker/task:0", "x")
				other := recv(b, 2, "/job:worker/task:0", "x")
				c.end(b)
				wantError(t, wait(t, o, "the receive").err, c.want)
				if name != "close" {
					b.EndStep(2)
				}
				wantError(t, wait(t, other, "the receive of another step").err, status.Aborted)
			})
		})
	}
}

// TestReceiveFromAnUnknownPeerEndsWithItsContext, and says so.
func TestReceiveFromAnUnknownPeerEndsWithItsContext(t *testing.T) {
	at := twoPlaces(t, func(c *config.Config) { c.PeerTimeout = time.Hour })
	b := start(t, at(1), Options{})
	for want, context := range map[status.Code]func() (context.Context, context.CancelFunc){
		status.DeadlineExceeded: func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(context.Background(), 50*time.Millisecond)
		},
		status.Cancelled: func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(context.Background())
			time.AfterFunc(50*time.Millisecond, cancel)
			return ctx, cancel
		},
	} {
		ctx, cancel := context()
		_, err := b.Recv(ctx, 1, "/job:worker/task:0", "x")
		wantError(t, err, want)
		c := make(chan outcome, 1)
		ctx, cancelToo := context()
		b.RecvAsync(ctx, 1, "/job:worker/task:0", "x", func(v rendezvous.Value, err error) { c <- outcome{v, err} })
		wantError(t, wait(t, c, "the receive").err, want)
		cancel()
		cancelToo()
	}
}

// TestPeerThatVerbsReachesIsKnownWithoutTCP: the first receive from it, and those after a
// step was aborted, need no other way than the channel.
func TestPeerThatVerbsReachesIsKnownWithoutTCP(t *testing.T) {
	w := newVerbsTown(t, 2)
	proxy := transporttest.NewProxy(t)
	listens, _ := w.spec.Address(cluster.Task{Job: "worker", Index: 0})
	other, _ := w.spec.Address(cluster.Task{Job: "worker", Index: 1})
	spec, err := cluster.SpecFromLists(map[string][]string{"worker": {proxy.Addr(), other}})
	if err != nil {
		t.Fatal(err)
	}
	w.spec = spec
	quick := func(c *config.Config) { c.PeerTimeout = time.Second }
	a := w.start(0, quick, func(c *config.Config) { c.Listen = listens })
	proxy.SetTarget(a.Addr().String())
	b := w.start(1, quick)
	w.up(b, a.Task())
	proxy.SetTarget("")
	wait(t, proxy.CutAfter(0), "the cut")
	w.exchange(1, a, b, 1)
	o := b.recv(2, a.Task().String(), "y")
	a.AbortStep(2, status.New(status.Aborted, "the step is over"))
	wantError(t, wait(t, o, "the receive of a step that was aborted").err, status.Aborted, "the step is over")
	w.exchange(3, a, b, 3)
	o = b.recv(4, a.Task().String(), "y")
	b.AbortStep(4, nil)
	wantError(t, wait(t, o, "the receive of a step that was aborted here").err, status.Aborted)
	w.exchange(5, a, b, 5)
}
