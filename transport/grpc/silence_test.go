package grpctransport

import (
	"context"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/tryst-rdma/tryst/internal/proto/tensorflowgrpc"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
)

// relay forwards connections to a server. It can lose the server's end of them and tell the client
// nothing, as a sidecar or a port-forward whose upstream is gone: TCP is acknowledged, and no byte comes.
type relay struct {
	listener net.Listener
	backend  atomic.Pointer[string]
	accepted atomic.Int64
	up       atomic.Int64 // bytes of the clients

	mu      sync.Mutex // guards what follows
	servers map[net.Conn]struct{}
	clients map[net.Conn]struct{}
	paused  chan struct{} // closed when bytes of the servers may pass; nil if they may
	work    sync.WaitGroup
}

func newRelay(t testing.TB, backend string) *relay {
	r := &relay{listener: listen(t), servers: make(map[net.Conn]struct{}), clients: make(map[net.Conn]struct{})}
	r.backend.Store(&backend)
	r.work.Go(func() {
		for {
			c, err := r.listener.Accept()
			if err != nil {
				return
			}
			r.accepted.Add(1)
			r.work.Go(func() { r.serve(c) })
		}
	})
	t.Cleanup(func() {
		r.listener.Close()
		r.resume()
		r.lose()
		r.mu.Lock()
		for c := range r.clients {
			c.Close()
		}
		r.mu.Unlock()
		r.work.Wait()
	})
	return r
}

func (r *relay) address() string { return r.listener.Addr().String() }

func (r *relay) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", *r.backend.Load())
	if err != nil {
		return
	}
	defer server.Close()
	r.mu.Lock()
	r.servers[server], r.clients[client] = struct{}{}, struct{}{}
	r.mu.Unlock()
	r.work.Go(func() {
		buf := make([]byte, 64<<10)
		for {
			n, err := server.Read(buf)
			r.mu.Lock()
			paused := r.paused
			r.mu.Unlock()
			if paused != nil {
				<-paused
			}
			if err != nil {
				return // and the client is told nothing
			}
			_, _ = client.Write(buf[:n])
		}
	})
	buf := make([]byte, 64<<10)
	for {
		n, err := client.Read(buf)
		r.up.Add(int64(n))
		if err != nil {
			return
		}
		_, _ = server.Write(buf[:n]) // lost when the server's end is
	}
}

// lose loses the server's end of all present connections.
func (r *relay) lose() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.servers {
		c.Close()
	}
	clear(r.servers)
}

// pause holds what the servers say until resume, as a server that is stopped.
func (r *relay) pause() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.paused = make(chan struct{})
}

func (r *relay) resume() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.paused != nil {
		close(r.paused)
		r.paused = nil
	}
}

// await waits until a condition holds.
func await(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(waitLimit); !holds(); {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v", what, waitLimit)
		}
		<-time.After(time.Millisecond)
	}
}

// soonSilent are settings with which silence is found soon. A busy machine delays an answer, so the timeout is not less.
var soonSilent = DialOptions{KeepaliveTime: 100 * time.Millisecond, KeepaliveTimeout: 3 * time.Second}

// TestReceiveSurvivesASilentConnection: a relay loses the server and says nothing. The waiting receive
// is requested again over another connection.
func TestReceiveSurvivesASilentConnection(t *testing.T) {
	t.Parallel()
	c := new(testCluster)
	a := c.start(t, 0, nodeOptions{})
	r := newRelay(t, a.address)
	b := c.start(t, 1, nodeOptions{addresses: map[int]string{0: r.address()}, dial: soonSilent})
	k := a.key(b, "x")
	got := b.begin(t.Context(), 1, k)
	await(t, "the receive waits at the sender", func() bool { return a.kept.Stats().Waiting == 1 })
	r.lose()
	x := value(t, a.alloc, 1000)
	defer x.Release()
	a.send(1, k, x)
	select {
	case o := <-got:
		if o.err != nil {
			t.Fatal(o.err)
		}
		tensortest.RequireEqual(t, x, o.v.Tensor)
		o.v.Tensor.Release()
	case <-time.After(waitLimit):
		t.Fatal("the receive waits for the connection that says nothing")
	}
}

// TestContentSurvivesASilentConnection: the same in the middle of a large tensor.
func TestContentSurvivesASilentConnection(t *testing.T) {
	t.Parallel()
	c := new(testCluster)
	a := c.start(t, 0, nodeOptions{unaryLimit: 1000})
	r := newRelay(t, a.address)
	b := c.start(t, 1, nodeOptions{addresses: map[int]string{0: r.address()}, dial: soonSilent})
	k := a.key(b, "x")
	small := value(t, a.alloc, 1)
	defer small.Release()
	a.send(1, k, small)
	if o := <-b.begin(t.Context(), 1, k); o.err != nil { // the connection is up
		t.Fatal(o.err)
	} else {
		o.v.Tensor.Release()
	}
	x := value(t, a.alloc, 16<<20)
	defer x.Release()
	a.send(1, k, x)
	r.pause() // before the first byte of the content, or in it
	asked := r.up.Load()
	got := b.begin(t.Context(), 1, k)
	await(t, "a request", func() bool { return r.up.Load() > asked })
	r.lose()
	r.resume()
	o := <-got
	if o.err != nil {
		t.Fatal(o.err)
	}
	tensortest.RequireEqual(t, x, o.v.Tensor)
	o.v.Tensor.Release()
}

// plainWorker is a worker as TensorFlow's, whose values never come. Its server has neither the services
// of Tryst nor that of health, and counts the calls of others.
type plainWorker struct {
	tensorflowgrpc.UnimplementedWorkerServiceServer
	waiting, others atomic.Int64
}

func (w *plainWorker) RecvTensor(ctx context.Context, _ *tfpb.RecvTensorRequest) (*tfpb.RecvTensorResponse, error) {
	w.waiting.Add(1)
	<-ctx.Done()
	return nil, ctx.Err()
}

// servePlain serves w with gRPC's default enforcement: more than two pings in five minutes end a
// connection, as at TensorFlow's servers.
func servePlain(t *testing.T, w *plainWorker) (address string, s *grpc.Server) {
	s = grpc.NewServer(grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error {
		w.others.Add(1)
		return grpcstatus.Error(codes.Unimplemented, "unknown service")
	}))
	tensorflowgrpc.RegisterWorkerServiceServer(s, w)
	l := listen(t)
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.Serve(l) }) // ends with Stop
	t.Cleanup(func() {
		s.Stop()
		serving.Wait()
	})
	return l.Addr().String(), s
}

// TestReceiveFromASilentTensorFlowEnds: a peer that is not Tryst gets each request once, so the receive
// ends with the reason.
func TestReceiveFromASilentTensorFlowEnds(t *testing.T) {
	t.Parallel()
	w := new(plainWorker)
	at, _ := servePlain(t, w)
	r := newRelay(t, at)
	c := new(testCluster)
	b := c.start(t, 1, nodeOptions{addresses: map[int]string{0: r.address()}, dial: soonSilent})
	fake := &node{t: t, task: task(0), incarnation: 1}
	got := b.begin(t.Context(), 1, fake.key(b, "x"))
	await(t, "the receive waits at the sender", func() bool { return w.waiting.Load() == 1 })
	r.lose()
	select {
	case o := <-got:
		mustSay(t, o.err, status.Unavailable, r.address(), "has gone silent", "keepalive.time")
	case <-time.After(waitLimit):
		t.Fatal("the receive waits for the connection that says nothing")
	}
}

func mustSay(t *testing.T, err error, code status.Code, words ...string) {
	t.Helper()
	if status.CodeOf(err) != code {
		t.Fatalf("got %v, want %v", err, code)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q does not say %q", err, w)
		}
	}
}

// TestProbesDisturbNobody: a server that refuses frequent HTTP/2 pings, and has no service of Tryst,
// keeps the connection while it is probed many times, and so does the waiting call.
func TestProbesDisturbNobody(t *testing.T) {
	t.Parallel()
	w := new(plainWorker)
	at, _ := servePlain(t, w)
	r := newRelay(t, at)
	c := new(testCluster)
	b := c.start(t, 1, nodeOptions{addresses: map[int]string{0: r.address()},
		dial: DialOptions{KeepaliveTime: 5 * time.Millisecond, KeepaliveTimeout: time.Minute}})
	fake := &node{t: t, task: task(0), incarnation: 1}
	ctx, cancel := context.WithCancel(t.Context())
	got := b.begin(ctx, 1, fake.key(b, "x"))
	await(t, "twenty probes", func() bool { return w.others.Load() > 20 })
	select {
	case o := <-got:
		t.Fatalf("the call has ended: %v", o.err)
	default:
	}
	if n := r.accepted.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
	cancel()
	<-got
}

// TestStoppedServerGoesOn: a server that is stopped for less than the timeout keeps its connection.
func TestStoppedServerGoesOn(t *testing.T) {
	t.Parallel()
	c := new(testCluster)
	a := c.start(t, 0, nodeOptions{})
	r := newRelay(t, a.address)
	b := c.start(t, 1, nodeOptions{addresses: map[int]string{0: r.address()},
		dial: DialOptions{KeepaliveTime: 20 * time.Millisecond, KeepaliveTimeout: time.Minute}})
	k := a.key(b, "x")
	got := b.begin(t.Context(), 1, k)
	await(t, "the receive waits at the sender", func() bool { return a.kept.Stats().Waiting == 1 })
	r.pause()
	sent := r.up.Load()
	await(t, "a probe", func() bool { return r.up.Load() > sent })
	x := value(t, a.alloc, 10)
	defer x.Release()
	a.send(1, k, x)
	r.resume()
	o := <-got
	if o.err != nil {
		t.Fatal(o.err)
	}
	o.v.Tensor.Release()
	if n := r.accepted.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
}

// TestConnectionThatWasLeftIsWatched: a server that stops has asked its client to leave the connection
// (GOAWAY), and is then lost without a word. The call on it ends although the next connection is well.
func TestConnectionThatWasLeftIsWatched(t *testing.T) {
	t.Parallel()
	old, next := new(plainWorker), new(plainWorker)
	at, s := servePlain(t, old)
	r := newRelay(t, at)
	c := new(testCluster)
	b := c.start(t, 1, nodeOptions{addresses: map[int]string{0: r.address()}, dial: soonSilent})
	fake := &node{t: t, task: task(0), incarnation: 1}
	left := b.begin(t.Context(), 1, fake.key(b, "x"))
	await(t, "the first receive waits", func() bool { return old.waiting.Load() == 1 })
	nextAt, _ := servePlain(t, next)
	r.backend.Store(&nextAt)
	stopping := make(chan struct{})
	go func() { defer close(stopping); s.GracefulStop() }()
	defer func() { s.Stop(); <-stopping }()
	ctx, cancel := context.WithCancel(t.Context())
	second := b.begin(ctx, 1, fake.key(b, "y"))
	for old.waiting.Load()+next.waiting.Load() < 2 || next.waiting.Load() == 0 { // GOAWAY may come after the request
		again := false
		select {
		case <-second: // a request on a connection that closes may fail
			again = true
		case <-time.After(10 * time.Millisecond):
			if again = next.waiting.Load() == 0; again {
				cancel()
				<-second
			}
		}
		if again {
			cancel()
			ctx, cancel = context.WithCancel(t.Context())
			second = b.begin(ctx, 1, fake.key(b, "y"))
		}
	}
	defer cancel()
	r.mu.Lock()
	for c := range r.servers {
		if c.RemoteAddr().String() == at {
			c.Close()
			delete(r.servers, c)
		}
	}
	r.mu.Unlock()
	select {
	case o := <-left:
		mustSay(t, o.err, status.Unavailable, "has gone silent")
	case <-time.After(waitLimit):
		t.Fatal("the call on the connection that was left waits for ever")
	}
	select {
	case o := <-second:
		t.Errorf("the call on the next connection has ended, too: %v", o.err)
	default:
	}
	cancel()
	<-second
}

// TestIdleConnectionIsNotWatched: without a call that waits there is neither a probe nor a timer.
func TestIdleConnectionIsNotWatched(t *testing.T) {
	t.Parallel()
	c := new(testCluster)
	a := c.start(t, 0, nodeOptions{})
	b := c.start(t, 1, nodeOptions{dial: DialOptions{KeepaliveTime: 20 * time.Millisecond, KeepaliveTimeout: time.Minute}})
	a.gives(b, a.alloc)
	ch, err := b.conns.peer(task(0))
	if err != nil {
		t.Fatal(err)
	}
	watch := channelOf(t, ch).silence[0]
	await(t, "no timer", func() bool { return !watch.armed.Load() })
	if n := watch.calls.Load(); n != 0 {
		t.Errorf("%d calls", n)
	}
	a.gives(b, a.alloc) // sets it again
	await(t, "no timer again", func() bool { return !watch.armed.Load() })
}
