package server

import (
	"cmp"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/transporttest"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
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
				at := twoPlaces(t, func(c *Config) { c.PeerTimeout = time.Hour })
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
	at := twoPlaces(t, func(c *Config) { c.PeerTimeout = time.Hour })
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
	quick := func(c *Config) { c.PeerTimeout = 20 * time.Second }
	a := w.start(0, quick, func(c *Config) { c.Listen = listens })
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

// restarted is a pair of tasks, of which task 0 is started again and again.
type restarted struct {
	t    *testing.T
	at   func(i int) Config
	a, b *Server
	recv recvFunc
}

func newRestarted(t *testing.T, recv recvFunc, change ...func(*Config)) *restarted {
	r := &restarted{t: t, at: twoPlaces(t, change...), recv: recv}
	r.b = start(t, r.at(1), Options{})
	r.startPeer()
	return r
}

// startPeer starts a new process of task 0.
func (r *restarted) startPeer() {
	r.t.Helper()
	a, err := Start(r.t.Context(), r.at(0), Options{Allocator: tensortest.NewAllocator(r.t)})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(r.stopPeerOf(a))
	r.a = a
}

func (r *restarted) stopPeerOf(a *Server) func() {
	return func() {
		if err := a.Close(context.Background()); err != nil {
			r.t.Errorf("Close: %v", err)
		}
	}
}

func (r *restarted) stopPeer() {
	r.t.Helper()
	r.stopPeerOf(r.a)()
}

// receive receives x from task 0. Task 0 sends it if send is set.
func (r *restarted) receive(step int64, send bool) <-chan outcome {
	r.t.Helper()
	o := r.recv(r.b, step, "/job:worker/task:0", "x")
	if send {
		x := float(r.t, float32(step))
		defer x.Release()
		if err := r.a.Send(step, r.b.Task().String(), "x", x, false); err != nil {
			r.t.Fatal(err)
		}
	}
	return o
}

// works receives a value from task 0.
func (r *restarted) works(step int64, what string) {
	r.t.Helper()
	wantFloat(r.t, wait(r.t, r.receive(step, true), what), float32(step))
}

// TestFirstReceiveAfterARestartWorks, whatever the last receive from the earlier process ended
// with: the incarnation is requested again.
func TestFirstReceiveAfterARestartWorks(t *testing.T) {
	// Only one case waits for the peer timeout. It is long enough for a busy machine to connect in, since
	// the receives that have to work end with it, too.
	timeoutOf := map[string]time.Duration{"not reached": 6 * time.Second}
	for name, between := range map[string]func(r *restarted){
		"without an error": func(r *restarted) { r.stopPeer() },
		"stopped while a receive waited": func(r *restarted) {
			o := r.receive(2, false)
			r.until("the request waits", func() bool { return r.a.cache.Stats().Waiting > 0 })
			r.stopPeer()
			wantKind(r.t, wait(r.t, o, "the receive").err, status.ErrShutdown) // the answer is the server's or its cache's
		},
		"not reached": func(r *restarted) {
			r.stopPeer()
			wantError(r.t, wait(r.t, r.receive(2, false), "the receive").err, status.Unavailable)
		},
		"step aborted by the peer": func(r *restarted) {
			o := r.receive(2, false)
			r.a.AbortStep(2, status.New(status.Internal, "boom"))
			wantError(r.t, wait(r.t, o, "the receive").err, status.Internal, "boom")
			r.stopPeer()
		},
		"deadline": func(r *restarted) {
			r.stopPeer()
			ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
			defer cancel()
			_, err := r.b.Recv(ctx, 2, "/job:worker/task:0", "x")
			wantError(r.t, err, status.DeadlineExceeded)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachWay(t, func(t *testing.T, recv recvFunc) {
				timeout := cmp.Or(timeoutOf[name], time.Hour)
				r := newRestarted(t, recv, func(c *Config) { c.PeerTimeout = timeout })
				r.works(1, "a receive from the first process")
				between(r)
				first := r.a.Incarnation()
				r.startPeer()
				if r.a.Incarnation() == first {
					t.Fatal("two processes have one incarnation")
				}
				r.works(3, "the first receive after the restart")
				r.works(4, "the second receive after the restart")
			})
		})
	}
}

func (r *restarted) until(what string, is func() bool) {
	r.t.Helper()
	ticks := time.NewTicker(5 * time.Millisecond)
	defer ticks.Stop()
	for end := time.Now().Add(soon); !is(); <-ticks.C {
		if time.Now().After(end) {
			r.t.Fatalf("%s: not within %v", what, soon)
		}
	}
}

// TestFirstReceiveAfterARestartOverVerbs: the same when a channel connects the two.
func TestFirstReceiveAfterARestartOverVerbs(t *testing.T) {
	w := newVerbsTown(t, 2)
	b, a := w.start(1), w.start(0)
	w.up(b, a.Task())
	w.exchange(1, a, b, 1)
	if err := a.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	again := w.start(0)
	w.exchange(2, again, b, 2)
	w.exchange(3, again, b, 3)
}

// TestReceiveThatFailsForThisSidesReasonsKeepsTheIncarnation: the peer has not been restarted, so the
// next receive need not request its incarnation.
func TestReceiveThatFailsForThisSidesReasonsKeepsTheIncarnation(t *testing.T) {
	a, b := twoTasks(t)
	from := a.Task().String()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	late, stop := context.WithDeadline(t.Context(), time.Unix(1, 0))
	defer stop()
	known := func(what string, want bool) {
		t.Helper()
		if _, ok := b.incarnations.Known(a.Device()); ok != want {
			t.Errorf("%s: the incarnation is known: %v, want %v", what, ok, want)
		}
	}
	learn := func() {
		t.Helper()
		if n, err := b.incarnations.Request(t.Context(), 2, "x", a.Device()); err != nil || n != a.Incarnation() {
			t.Fatalf("the incarnation is %d (%v), want %d", n, err, a.Incarnation())
		}
		until(t, "it is known once all that waited have it", func() bool { _, ok := b.incarnations.Known(a.Device()); return ok })
	}
	learn()
	for what, ctx := range map[string]context.Context{"cancelled": ctx, "late": late} {
		_, err := b.Recv(ctx, 1, from, "x")
		wantError(t, err, status.CodeOf(ctx.Err()))
		known("Recv "+what, true)
		o := make(chan outcome, 1)
		b.RecvAsync(ctx, 1, from, "x", func(v rendezvous.Value, err error) { o <- outcome{v, err} })
		wantError(t, wait(t, o, "the receive").err, status.CodeOf(ctx.Err()))
		known("RecvAsync "+what, true)
	}
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, true},
		{status.New(status.ResourceExhausted, "no memory"), true},
		{status.New(status.DataLoss, "the value was dropped"), true},
		{status.New(status.InvalidArgument, "it does not fit the memory"), true},
		{status.New(status.FailedPrecondition, "the memory is in use"), true},
		{status.New(status.Cancelled, "the peer cancelled"), false},
		{status.New(status.Unavailable, "not reached"), false},
	} {
		learn()
		b.incarnations.NoteResult(t.Context(), 1, a.Device(), a.Incarnation(), c.err)
		known(fmt.Sprint(c.err), c.want)
	}
	learn()
	dst := float(t, 0)
	defer dst.Release()
	dst.Retain()
	_, err := b.RecvInto(t.Context(), 1, from, "x", dst)
	wantError(t, err, status.FailedPrecondition)
	known("RecvInto memory in use", true)
	dst.Release()
	other, err := tensor.FromBytes(tensor.Uint8, tensor.Vector(1), []byte{1})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Release()
	if err := a.Send(1, b.Task().String(), "x", other, false); err != nil {
		t.Fatal(err)
	}
	_, err = b.RecvInto(t.Context(), 1, from, "x", dst)
	wantError(t, err, status.InvalidArgument)
	known("RecvInto memory of another type", true)
	b.EndStep(1)
	b.incarnations.NoteResult(t.Context(), 1, a.Device(), a.Incarnation(), status.New(status.Aborted, "Cleanup 1"))
	known("the step has ended", true)
}
