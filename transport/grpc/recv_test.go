package grpctransport

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/proto/tensorflowgrpc"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensorproto"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
	"github.com/tryst-rdma/tryst/transport"
)

// counting counts RecvTensor.
type counting struct {
	transport.Worker
	calls *atomic.Int64
}

func (c counting) RecvTensor(ctx context.Context, req *tfpb.RecvTensorRequest) (*transport.TensorResponse, error) {
	c.calls.Add(1)
	return c.Worker.RecvTensor(ctx, req)
}

// TestM6RemoteRecvOne: a receive from another worker is one RecvTensor, and the
// value arrives; the log has it.
func TestM6RemoteRecvOne(t *testing.T) {
	var c testCluster
	var calls atomic.Int64
	a := c.start(t, 0, nodeOptions{wrap: func(w transport.Worker) transport.Worker { return counting{w, &calls} }})
	b := c.start(t, 1, nodeOptions{})
	sent := tensortest.NewAllocator(t)
	for i, n := range []int64{0, 1, 100, 256, 257, 1 << 20} {
		x := value(t, sent, n)
		key := a.key(b, "x")
		before := time.Now()
		a.send(1, key, x)
		v := b.recv(1, key)
		tensortest.RequireEqual(t, x, v.Tensor)
		x.Release()
		v.Tensor.Release()
		if got := calls.Load(); got != int64(i+1) {
			t.Errorf("%d calls of RecvTensor for %d receives", got, i+1)
		}
		log := b.log.Transfers()
		if len(log) != i+1 {
			t.Fatalf("the log has %d records of %d", len(log), i+1)
		}
		l := log[i]
		if l.Step != 1 || l.Tensor != "x" || l.Source != cluster.DeviceOf(a.task) || l.Destination != cluster.DeviceOf(b.task) ||
			l.Transport != "grpc" || l.Bytes != 4*n || l.Start.Before(before) || l.End.Before(l.Start) || l.End.After(time.Now()) {
			t.Errorf("record %+v", l)
		}
		if w := v.Arrival(); w.Transport != "grpc" || w.Device != "" || w.Bytes != 4*n || w.Attempts != 1 || w.Duration <= 0 || w.Duration > time.Since(before) {
			t.Errorf("the value says that it came as %+v", w)
		}
	}
	b.close()
	a.close()
	waitReleased(t, sent)
}

// TestEveryDType: each type and form of value arrives as it was sent.
func TestEveryDType(t *testing.T) {
	var c testCluster
	a := c.start(t, 0, nodeOptions{})
	b := c.start(t, 1, nodeOptions{})
	for i, dtype := range tensortest.AllDTypes() {
		for _, dims := range [][]int64{{}, {0}, {7}, {2, 3, 500}} {
			x := tensortest.Tensor(t, dtype, dims...)
			key := a.key(b, fmt.Sprint("x", i, len(dims)))
			dead := len(dims) == 1 && dims[0] == 0
			if err := a.manager.Find(1).Send(key, rendezvous.Args{}, x, dead); err != nil {
				t.Fatal(err)
			}
			v := b.recv(1, key)
			if dead {
				x = float32s(t, tensor.Heap{}, tensortest.Shape(t, 0)) // whatever it was
			}
			tensortest.RequireEqual(t, x, v.Tensor)
			if v.Dead != dead {
				t.Errorf("%v: dead is %v", x, v.Dead)
			}
			v.Tensor.Release()
		}
	}
}

// TestM7RemoteRecvAsyncMany: ten thousand receives under way at once all
// complete, those that came before their value and those after.
func TestM7RemoteRecvAsyncMany(t *testing.T) {
	const n = 10_000
	var c testCluster
	a := c.start(t, 0, nodeOptions{})
	b := c.start(t, 1, nodeOptions{peerTimeout: waitLimit}) // 10,000 requests may take all processors for long
	sent := tensortest.NewAllocator(t)
	x := value(t, sent, 500)
	step := b.manager.Find(1)
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	keys := make([]rendezvous.Key, n)
	for i := range keys {
		keys[i] = a.key(b, fmt.Sprint("x", i))
	}
	send := func(keys []rendezvous.Key) {
		for _, k := range keys {
			a.send(1, k, x)
		}
	}
	send(keys[:n/2])
	var wg sync.WaitGroup
	wg.Add(n)
	for _, k := range keys {
		step.RecvAsync(ctx, k, rendezvous.Args{}, func(v rendezvous.Value, _ rendezvous.Args, err error) {
			defer wg.Done()
			if err != nil {
				t.Errorf("%s: %v", k, err)
				return
			}
			if !tensor.Equal(x, v.Tensor) {
				t.Errorf("%s: another value", k)
			}
			v.Tensor.Release()
		})
	}
	send(keys[n/2:])
	wg.Wait()
	x.Release()
	b.close()
	a.close()
	waitReleased(t, sent)
}

// TestCancelConsumesNothing: a receive that is cancelled ends at once, and the
// value goes to the next one.
func TestCancelConsumesNothing(t *testing.T) {
	var c testCluster
	a := c.start(t, 0, nodeOptions{})
	b := c.start(t, 1, nodeOptions{})
	key := a.key(b, "x")
	step := b.manager.Find(1)
	for i := range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		step.RecvAsync(ctx, key, rendezvous.Args{}, func(v rendezvous.Value, _ rendezvous.Args, err error) {
			if err == nil { // it came first
				v.Tensor.Release()
				a.send(1, key, v.Tensor)
			}
			ended <- err
		})
		if i%2 == 0 {
			waiting(t, a, 1)
		}
		cancel()
		if err := <-ended; status.CodeOf(err) != status.Cancelled {
			t.Fatal(err)
		}
	}
	x := tensortest.Tensor(t, tensor.Float32, 300)
	a.send(1, key, x)
	v := b.recv(1, key)
	tensortest.RequireEqual(t, x, v.Tensor)
	v.Tensor.Release()
}

// waiting waits until n receives wait at a.
func waiting(t *testing.T, a *node, n int) {
	t.Helper()
	until(t, func() bool { return a.kept.Stats().Waiting == n }, "receives waiting at the sender")
}

// until waits until f is true. It polls every millisecond.
func until(t *testing.T, f func() bool, what string) {
	t.Helper()
	ticks := time.NewTicker(time.Millisecond)
	defer ticks.Stop()
	end := time.After(waitLimit)
	for !f() {
		select {
		case <-ticks.C:
		case <-end:
			t.Fatalf("waited in vain for: %s", what)
		}
	}
}

// tfWorker is a worker like TensorFlow's: the generated code, without Tryst's services.
type tfWorker struct {
	tensorflowgrpc.UnimplementedWorkerServiceServer
	manager *rendezvous.Manager
	mu      sync.Mutex
	asked   []*tfpb.RecvTensorRequest
	marked  chan int64
	ended   chan error // contexts of calls that ended without an answer
}

func (w *tfWorker) RecvTensor(ctx context.Context, req *tfpb.RecvTensorRequest) (*tfpb.RecvTensorResponse, error) {
	w.mu.Lock()
	w.asked = append(w.asked, req)
	w.mu.Unlock()
	key, err := rendezvous.ParseKey(req.GetRendezvousKey())
	if err != nil {
		return nil, err
	}
	v, err := w.manager.RecvLocal(ctx, req.GetStepId(), key)
	if err != nil {
		w.ended <- ctx.Err()
		return nil, err
	}
	defer v.Tensor.Release()
	p, err := tensorproto.ToProto(v.Tensor)
	return &tfpb.RecvTensorResponse{Tensor: p, IsDead: v.Dead, SendStartMicros: 1, RequireAck: true}, err
}

func (w *tfWorker) MarkRecvFinished(_ context.Context, req *tfpb.MarkRecvFinishedRequest) (*tfpb.MarkRecvFinishedResponse, error) {
	w.marked <- req.GetRequestId()
	return &tfpb.MarkRecvFinishedResponse{}, nil
}

// TestTensorFlowPeer: a peer that is not Tryst gets a request with only step, key and request id,
// a MarkRecvFinished if its response requires one, and a cancel as the end of the call.
func TestTensorFlowPeer(t *testing.T) {
	var c testCluster
	tf := &tfWorker{marked: make(chan int64, 10), ended: make(chan error, 10)}
	a := c.start(t, 0, nodeOptions{serve: func(s *grpc.Server, n *node) {
		tf.manager = n.manager
		tensorflowgrpc.RegisterWorkerServiceServer(s, tf)
	}})
	b := c.start(t, 1, nodeOptions{})
	key := a.key(b, "x")
	for i := range 3 {
		x := tensortest.Tensor(t, tensor.Float32, int64(400*i))
		a.send(1, key, x)
		v := b.recv(1, key)
		tensortest.RequireEqual(t, x, v.Tensor)
		v.Tensor.Release()
		req := tf.asked[i]
		if req.GetRequestId() == 0 || req.GetTransportOptions() != nil || req.GetStepId() != 1 || req.GetDmaOk() {
			t.Errorf("asked with %v", req)
		}
		if id := <-tf.marked; id != req.GetRequestId() {
			t.Errorf("marked %d finished, not %d", id, req.GetRequestId())
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	b.manager.Find(1).RecvAsync(ctx, key, rendezvous.Args{}, func(_ rendezvous.Value, _ rendezvous.Args, err error) { ended <- err })
	until(t, func() bool { tf.mu.Lock(); defer tf.mu.Unlock(); return len(tf.asked) == 4 }, "the fourth request")
	cancel()
	if err := <-ended; status.CodeOf(err) != status.Cancelled {
		t.Error(err)
	}
	if err := <-tf.ended; err == nil {
		t.Error("the peer's call has not ended")
	}
}

// TestTensorFlowRequester: a request without Tryst's options gets one message of any size, and
// its response is not cached.
func TestTensorFlowRequester(t *testing.T) {
	var c testCluster
	a := c.start(t, 0, nodeOptions{unaryLimit: 1000})
	b := c.start(t, 1, nodeOptions{})
	conn, err := b.conns.Conn(a.task)
	if err != nil {
		t.Fatal(err)
	}
	key := a.key(b, "x")
	x := tensortest.Tensor(t, tensor.Float32, 5000)
	a.send(1, key, x)
	resp, err := tensorflowgrpc.NewWorkerServiceClient(conn).RecvTensor(t.Context(),
		&tfpb.RecvTensorRequest{StepId: 1, RendezvousKey: key.String(), RequestId: 5})
	if err != nil {
		t.Fatal(err)
	}
	if resp.GetTransportOptions() != nil || resp.GetSendStartMicros() == 0 || resp.GetRequireAck() {
		t.Errorf("got options %v, send start %d, require_ack %v", resp.GetTransportOptions(), resp.GetSendStartMicros(), resp.GetRequireAck())
	}
	got, err := tensorproto.FromProto(resp.GetTensor(), tensor.Heap{})
	if err != nil {
		t.Fatal(err)
	}
	tensortest.RequireEqual(t, x, got)
	if s := a.kept.Stats(); s.Kept != 0 {
		t.Errorf("%d answers are kept", s.Kept)
	}
}

// TestRemoteWorkerRecvTensor: the stub alone receives whole tensors and logs them.
func TestRemoteWorkerRecvTensor(t *testing.T) {
	var c testCluster
	a := c.start(t, 0, nodeOptions{unaryLimit: 1000})
	b := c.start(t, 1, nodeOptions{})
	w, err := b.conns.Worker(a.task)
	if err != nil {
		t.Fatal(err)
	}
	key := a.key(b, "x")
	x := tensortest.Tensor(t, tensor.Float32, 5000)
	a.send(1, key, x)
	resp, err := w.RecvTensor(t.Context(), &tfpb.RecvTensorRequest{StepId: 1, RendezvousKey: key.String()})
	if err != nil {
		t.Fatal(err)
	}
	tensortest.RequireEqual(t, x, resp.Tensor)
	resp.Tensor.Release()
	if l := b.log.Transfers(); len(l) != 1 || l[0].Bytes != 20_000 {
		t.Errorf("the log has %+v", l)
	}
	if _, err = w.RecvTensor(t.Context(), &tfpb.RecvTensorRequest{RendezvousKey: "foo;bar;baz"}); status.CodeOf(err) != status.InvalidArgument {
		t.Error(err)
	}
}

// TestAllocatorRefuses: a receiver without memory for a tensor gets its own allocator's error, and
// the peer releases its copy.
func TestAllocatorRefuses(t *testing.T) {
	var c testCluster
	a := c.start(t, 0, nodeOptions{unaryLimit: 1 << 20})
	b := c.start(t, 1, nodeOptions{})
	b.alloc.SetLimit(1000)
	for _, n := range []int64{1 << 10, 1 << 20} { // whole, and in chunks
		key := a.key(b, "x")
		a.send(1, key, tensortest.Tensor(t, tensor.Float32, n))
		ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
		_, err := b.manager.Find(1).Recv(ctx, key, rendezvous.Args{})
		cancel()
		if status.CodeOf(err) != status.ResourceExhausted {
			t.Errorf("%d elements: %v", n, err)
		}
	}
	until(t, func() bool { return a.kept.Stats().Kept == 0 }, "the answers to be let go")
}

// TestSendStartIsBounded: a transfer does not begin before its request, whatever the peer's clock.
func TestSendStartIsBounded(t *testing.T) {
	log := transport.NewLog(10, nil)
	requested := time.Now()
	key, err := rendezvous.NewKey(cluster.DeviceOf(task(0)), 1, cluster.DeviceOf(task(1)), "x", rendezvous.FrameIter{})
	if err != nil {
		t.Fatal(err)
	}
	for _, micros := range []int64{0, 1, -1, math.MinInt64, math.MaxInt64} {
		(&RemoteWorker{log: log}).logTransfer(1, key, 1, requested, micros, 1)
	}
	for _, l := range log.Transfers() {
		if l.Start.Before(requested) || l.End.Before(l.Start) {
			t.Errorf("%+v", l)
		}
	}
}

// TestInterceptorReplacesResponse: a response that an interceptor replaces is released with its
// tensor.
func TestInterceptorReplacesResponse(t *testing.T) {
	alloc := tensortest.NewAllocator(t)
	m := method("s", "m", func(context.Context, *tfpb.RecvTensorRequest) (any, error) {
		return encodeResponse(&transport.TensorResponse{Tensor: value(t, alloc, 1000)}, charge{})
	})
	dec := func(any) error { return nil }
	for name, interceptor := range map[string]grpc.UnaryServerInterceptor{
		"an error": func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
			resp, err := h(ctx, req)
			if err != nil {
				t.Error(err)
			}
			return resp, status.New(status.PermissionDenied, "no")
		},
		"another answer": func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
			_, err := h(ctx, req)
			return &tfpb.RecvTensorResponse{}, err
		},
		"another request": func(ctx context.Context, _ any, _ *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
			return h(ctx, "no request")
		},
	} {
		if _, err := m.Handler(nil, t.Context(), dec, interceptor); name == "another request" && err == nil {
			t.Errorf("%s: taken", name)
		}
		if n := alloc.Outstanding(); n != 0 {
			t.Errorf("%s: %d tensors not released", name, n)
		}
	}
	resp, err := m.Handler(nil, t.Context(), dec, func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
		return h(ctx, req)
	})
	if err != nil || alloc.Outstanding() != 1 {
		t.Errorf("let through: %v, %d tensors", err, alloc.Outstanding())
	}
	if r, ok := resp.(*response); ok {
		r.drop()
	}
}
