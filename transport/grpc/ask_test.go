package grpctransport

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/tryst-rdma/tryst/internal/proto/tensorflowgrpc"
	"github.com/tryst-rdma/tryst/status"
)

// asked is a call of Ask.
type asked struct {
	sent atomic.Int64
	done chan error
	stop context.CancelFunc
}

// ask asks task 0.
func (n *node) ask(t *testing.T) *asked {
	ctx, cancel := context.WithCancel(t.Context())
	a := &asked{done: make(chan error, 1), stop: cancel}
	go func() { a.done <- n.conns.Ask(ctx, task(0), func() { a.sent.Add(1) }) }()
	t.Cleanup(cancel)
	return a
}

// connect connects to task 0, as a handshake does.
func (n *node) connect(t *testing.T) {
	t.Helper()
	conn, err := n.conns.Conn(task(0))
	if err != nil {
		t.Fatal(err)
	}
	err = conn.Invoke(t.Context(), healthpb.Health_Check_FullMethodName, new(healthpb.HealthCheckRequest), new(healthpb.HealthCheckResponse))
	if code := status.CodeOf(err); err != nil && code != status.Unimplemented {
		t.Fatal(err)
	}
	n.untilReady(t)
}

// untilReady waits until gRPC says that the connection to task 0 is up, which it does a moment after it sends a call there.
func (n *node) untilReady(t *testing.T) {
	t.Helper()
	await(t, "the connection is up", func() bool { return n.channel(t).conns[0].GetState() == connectivity.Ready })
}

// channel returns the connections to task 0.
func (n *node) channel(t *testing.T) *channel {
	t.Helper()
	ch, ok := n.conns.peers[task(0)].channel.now().(*channel)
	if !ok {
		t.Fatal("no channel")
	}
	return ch
}

// endConnections has this process close its connections to task 0.
func (n *node) endConnections(t *testing.T) *channel {
	t.Helper()
	ch := n.channel(t)
	s := ch.silence[0]
	s.mu.Lock()
	all := slices.Collect(maps.Keys(s.conns))
	s.mu.Unlock()
	for _, c := range all {
		c.silent(time.Second, time.Second)
	}
	return ch
}

// TestAskedPeerAnswers: a Tryst server and one of TensorFlow, whose value does not come; bytes of the answer are heard.
func TestAskedPeerAnswers(t *testing.T) {
	t.Parallel()
	w := new(plainWorker)
	plain, _ := servePlain(t, w)
	c := new(testCluster)
	own := c.start(t, 0, nodeOptions{}).address
	for _, address := range []string{own, plain} {
		c := new(testCluster)
		b := c.start(t, 1, nodeOptions{addresses: map[int]string{0: address}})
		b.connect(t)
		var heard time.Time
		for range 3 {
			a := b.ask(t)
			if err := <-a.done; err != nil || a.sent.Load() == 0 {
				t.Errorf("%v, sent %d", err, a.sent.Load())
			}
			now := b.conns.Peers()[0]
			if !now.Up || now.HeardAt.Equal(heard) {
				t.Errorf("%+v, before %v", now, heard)
			}
			heard = now.HeardAt
		}
	}
}

// TestStoppedPeerDoesNotAnswer: the call was sent, and ends with the peer's answer when it continues, or with its context.
func TestStoppedPeerDoesNotAnswer(t *testing.T) {
	t.Parallel()
	c := new(testCluster)
	r := newRelay(t, c.start(t, 0, nodeOptions{}).address)
	b := c.start(t, 1, nodeOptions{addresses: map[int]string{0: r.address()}})
	b.connect(t)
	r.pause()
	first, second := b.ask(t), b.ask(t)
	await(t, "the calls are sent", func() bool { return first.sent.Load() == 1 && second.sent.Load() == 1 })
	first.stop()
	if err := <-first.done; err == nil {
		t.Error("answered")
	}
	r.resume()
	if err := <-second.done; err != nil {
		t.Error(err)
	}
}

// TestAskMakesNoConnection: neither to a peer that was never called nor to one whose connection has ended, and nothing tries to make one
// after that.
func TestAskMakesNoConnection(t *testing.T) {
	t.Parallel()
	c := new(testCluster)
	r := newRelay(t, c.start(t, 0, nodeOptions{}).address)
	b := c.start(t, 1, nodeOptions{addresses: map[int]string{0: r.address()}})
	unasked := func(when string) {
		t.Helper()
		a := b.ask(t)
		if err := <-a.done; err == nil || a.sent.Load() != 0 {
			t.Errorf("%s: %v, sent %d", when, err, a.sent.Load())
		}
	}
	unasked("before the first call")
	if n := r.accepted.Load(); n > 0 || len(b.conns.Peers()) > 0 {
		t.Errorf("%d connections, peers %+v", n, b.conns.Peers())
	}
	b.connect(t)
	if err := <-b.ask(t).done; err != nil {
		t.Fatal(err)
	}
	ch := b.endConnections(t)
	await(t, "the connection has ended", func() bool { return !b.conns.Peers()[0].Up && ch.conns[0].GetState() == connectivity.Idle })
	unasked("after its end")
	if n := r.accepted.Load(); n != 1 || ch.conns[0].GetState() != connectivity.Idle {
		t.Errorf("%d connections, and the state is %v", n, ch.conns[0].GetState())
	}
}

// TestEndOfAConnectionIsNotHeard: nothing comes from a peer when this process closes the connection.
func TestEndOfAConnectionIsNotHeard(t *testing.T) {
	t.Parallel()
	c := new(testCluster)
	b := c.start(t, 1, nodeOptions{addresses: map[int]string{0: c.start(t, 0, nodeOptions{}).address}})
	b.connect(t)
	before := b.conns.Peers()[0]
	b.endConnections(t)
	await(t, "down", func() bool { return !b.conns.Peers()[0].Up })
	if after := b.conns.Peers()[0]; before.HeardAt.IsZero() || after.HeardAt.Sub(before.HeardAt) != 0 {
		t.Errorf("heard at %v, after this process closed the connection %v", before.HeardAt, after.HeardAt)
	}
}

// TestAskWaitsForACallThatThePeerAllows: a call that was not sent is no question.
func TestAskWaitsForACallThatThePeerAllows(t *testing.T) {
	t.Parallel()
	w := new(plainWorker)
	s := grpc.NewServer(grpc.MaxConcurrentStreams(1))
	tensorflowgrpc.RegisterWorkerServiceServer(s, w)
	l := listen(t)
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.Serve(l) })
	defer serving.Wait()
	defer s.Stop()
	b := new(testCluster).start(t, 1, nodeOptions{addresses: map[int]string{0: l.Addr().String()}})
	fake := &node{t: t, task: task(0), incarnation: 1}
	ctx, cancel := context.WithCancel(t.Context())
	got := b.begin(ctx, 1, fake.key(b, "x"))
	await(t, "the receive waits at the sender", func() bool { return w.waiting.Load() == 1 })
	b.untilReady(t)
	a := b.ask(t)
	again := b.ask(t)
	again.stop()
	if err := <-again.done; err == nil {
		t.Error("answered")
	}
	if a.sent.Load()+again.sent.Load() != 0 {
		t.Error("sent")
	}
	cancel()
	<-got
	if err := <-a.done; err != nil || a.sent.Load() != 1 {
		t.Errorf("%v, sent %d", err, a.sent.Load())
	}
}
