package server

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/tryst-rdma/tryst/internal/proto/tensorflowgrpc"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
)

// overRoCE starts two servers that exchange tensors over verbs, by the provider roce.
func overRoCE(t *testing.T, change ...func(*Config)) (a, b *Server) {
	t.Helper()
	needsLoopback(t, "127.0.0.1")
	w := newVerbsTown(t, 2)
	var both [2]*VerbsServer
	for i := range both {
		c := w.settings(i, append(change, func(c *Config) { c.Provider, c.RDMA.Timeout, c.RDMA.ArenaLimit = "roce", 0, 256<<20 })...)
		v, err := StartVerbs(t.Context(), c, Options{Allocator: tensortest.NewAllocator(t)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := v.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
		both[i] = v
	}
	w.up(both[0], both[1].Task())
	w.up(both[1], both[0].Task())
	return both[0].Server, both[1].Server
}

// eachTransport runs a test with two servers that are connected by each transport.
func eachTransport(t *testing.T, f func(t *testing.T, transport string, a, b *Server), change ...func(*Config)) {
	t.Run("grpc", func(t *testing.T) {
		a, b := twoTasks(t, append(change, func(c *Config) { c.Transport = TransportGRPC })...)
		f(t, "grpc", a, b)
	})
	t.Run("roce", func(t *testing.T) {
		a, b := overRoCE(t, change...)
		f(t, "verbs", a, b)
	})
}

// lent makes tensors over the same memory, and counts the bytes of those that live.
type lent struct {
	memory    []byte
	live, max atomic.Int64
}

func (l *lent) tensor(t *testing.T) *tensor.Tensor {
	n := int64(len(l.memory))
	if live := l.live.Add(n); live > l.max.Load() { // one goroutine makes them
		l.max.Store(live)
	}
	x, err := tensor.New(tensor.Uint8, tensor.Vector(len(l.memory)), tensor.NewBuffer(l.memory, func() { l.live.Add(-n) }))
	if err != nil {
		t.Error(err)
	}
	return x
}

// TestProducerStaysWithinItsBound: a producer of 4 GB is always ahead of its consumer, which takes
// the next value when the producer waits. With -short and -race it produces less.
func TestProducerStaysWithinItsBound(t *testing.T) {
	const size, ahead = 16 << 20, 3
	const bound = ahead*(size+1024) + size/2
	total := int64(producedBytes)
	if testing.Short() {
		total = 512 << 20
	}
	n := int(total / size)
	eachTransport(t, func(t *testing.T, transport string, a, b *Server) {
		l := &lent{memory: make([]byte, size)}
		step := a.NewStepID()
		e := a.edge(t, b.Task().String(), "x")
		tries := make(chan struct{}, n)
		deliveries := make(chan *rendezvous.Delivery, n)
		go func() {
			defer close(tries)
			defer close(deliveries)
			for range n {
				x := l.tensor(t)
				tries <- struct{}{}
				d, err := e.SendWait(t.Context(), step, x)
				x.Release()
				if err != nil {
					t.Error(err)
					return
				}
				deliveries <- d
			}
		}()
		before := b.metrics.Received.ByTransport()[transport]
		in := b.edge(t, a.Task().String(), "x")
		for i, tried := 0, 0; i < n; i++ {
			for ; tried < min(n, i+ahead+1); tried++ {
				<-tries
			}
			v, err := in.Recv(t.Context(), step)
			if err != nil {
				t.Fatal(err)
			}
			v.Tensor.Release()
		}
		for d := range deliveries {
			if wait(t, d.Done(), "the confirmation"); d.Err() != nil {
				t.Errorf("a value that was received: %v", d.Err())
			}
		}
		// One is in the hands of the producer, and a transport may hold what was received for a
		// moment longer.
		if most := l.max.Load(); most > bound+2*size {
			t.Errorf("%d bytes lived at once, the bound is %d", most, bound)
		}
		if got := b.metrics.Received.ByTransport()[transport] - before; got != n {
			t.Errorf("%d of %d came over %s", got, n, transport)
		}
		if left := a.manager.Find(step).Unreceived(b.Task()); left != 0 {
			t.Errorf("%d bytes are counted in the end", left)
		}
	}, func(c *Config) { c.Limits.SendBound, c.Fallback = bound, FallbackNone })
}

// TestSendWaitIsConfirmedOnceTheReceiverHasTheValue, and not before. A receive that is cancelled
// confirms nothing.
func TestSendWaitIsConfirmedOnceTheReceiverHasTheValue(t *testing.T) {
	eachTransport(t, func(t *testing.T, _ string, a, b *Server) {
		for i, size := range []int64{8, 1 << 20} {
			step := int64(i) + 1
			x := tensortest.Tensor(t, tensor.Uint8, size)
			d, err := a.SendWait(t.Context(), step, b.Task().String(), "x", x, false)
			if err != nil {
				t.Fatal(err)
			}
			for range 20 { // cancelled before, while or after the value is matched
				ctx, cancel := context.WithCancel(t.Context())
				c := make(chan outcome, 1)
				b.RecvAsync(ctx, step, a.Task().String(), "x", func(v rendezvous.Value, err error) { c <- outcome{v, err} })
				cancel()
				o := wait(t, c, "a receive that is cancelled")
				select {
				case <-d.Done():
					if o.err != nil {
						t.Fatalf("confirmed (%v), and nobody has it: %v", d.Err(), o.err)
					}
				default:
				}
				if o.err == nil { // the value came first
					o.v.Tensor.Release()
					if d, err = a.SendWait(t.Context(), step, b.Task().String(), "x", x, false); err != nil {
						t.Fatal(err)
					}
				}
			}
			v, err := b.Recv(t.Context(), step, a.Task().String(), "x")
			if err != nil {
				t.Fatal(err)
			}
			v.Tensor.Release()
			if wait(t, d.Done(), "the confirmation"); d.Err() != nil {
				t.Errorf("the outcome is %v", d.Err())
			}
		}
	})
}

// TestSendWaitOfAValueThatCannotBeEncoded: the receive ends with an error, so the value is not
// confirmed, although the peer acknowledges that error.
func TestSendWaitOfAValueThatCannotBeEncoded(t *testing.T) {
	eachTransport(t, func(t *testing.T, _ string, a, b *Server) {
		part := strings.Repeat("x", 64<<20)
		x, err := tensor.FromStrings(tensor.Vector(33), slices.Repeat([]string{part}, 33)) // more than 2 GiB in protobuf
		if err != nil {
			t.Fatal(err)
		}
		d, err := a.SendWait(t.Context(), 1, b.Task().String(), "x", x, false)
		x.Release()
		if err != nil {
			t.Fatal(err)
		}
		v, err := b.Recv(t.Context(), 1, a.Task().String(), "x")
		if err == nil {
			v.Tensor.Release()
			t.Fatal("it was received")
		}
		wait(t, d.Done(), "the outcome")
		if got, want := status.CodeOf(d.Err()), status.CodeOf(err); got != want {
			t.Errorf("the receive ended with %v, and the outcome is %v", err, d.Err())
		}
	})
}

// TestSendWaitRefuses what Send refuses, and ends with its context and its step.
func TestSendWaitRefuses(t *testing.T) {
	a, b := twoTasks(t, func(c *Config) { c.Limits.SendBound = 1024 })
	x := float(t, 1)
	defer x.Release()
	for _, c := range []struct {
		to, name string
		code     status.Code
		text     string
	}{
		{"/job:worker/task:7", "x", status.NotFound, `SendWait of edge "x"`},
		{b.Task().String(), "", status.InvalidArgument, "the edge name is empty"},
		{b.Task().String(), "publication:x", status.InvalidArgument, `SendWait of edge "publication:x"`},
	} {
		_, err := a.SendWait(t.Context(), 1, c.to, c.name, x, false)
		wantError(t, err, c.code, c.text)
	}
	_, err := a.SendWait(t.Context(), 1, b.Task().String(), "x", nil, false)
	wantError(t, err, status.InvalidArgument, "SendWait of", "no tensor")

	e := a.edge(t, b.Task().String(), "x")
	var last *rendezvous.Delivery
	for {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		d, err := e.SendWait(ctx, 1, x)
		cancel()
		if err != nil {
			wantError(t, err, status.DeadlineExceeded, "so nothing was sent", "the bound is 1024")
			break
		}
		last = d
	}
	failed := make(chan error, 1)
	go func() {
		var err error
		for err == nil { // on a busy machine the 20 ms may have passed before the bound was reached
			_, err = e.SendWait(context.Background(), 1, x)
		}
		failed <- err
	}()
	r := restarted{t: t}
	r.until("SendWait waits", func() bool { return metric(t, metricsText(a.gatherer), "tryst_waiting_sends") == 1 })
	if n := metric(t, metricsText(a.gatherer), "tryst_unreceived_bytes"); n <= 0 || n > 1024 {
		t.Errorf("%v bytes are not received, the bound is 1024", n)
	}
	a.AbortStep(1, status.New(status.Internal, "boom"))
	wantError(t, wait(t, failed, "SendWait"), status.Internal, "boom")
	wait(t, last.Done(), "the outcome")
	wantError(t, last.Err(), status.Internal, "boom")
}

// TestSendWaitToAProcessThatIsGone: the sender learns that the value was not received.
func TestSendWaitToAProcessThatIsGone(t *testing.T) {
	at := twoPlaces(t)
	a := start(t, at(0), Options{})
	first, err := Start(t.Context(), at(1), Options{})
	if err != nil {
		t.Fatal(err)
	}
	x := float(t, 1)
	defer x.Release()
	d, err := a.SendWait(t.Context(), 1, first.Task().String(), "x", x, false)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	// It receives and ends at once, so that nothing is acknowledged.
	got := first.recv(1, a.Task().String(), "x")
	o := wait(t, got, "the value")
	if o.err != nil {
		t.Fatal(o.err)
	}
	o.v.Tensor.Release()
	_ = first.Close(ctx)
	second := start(t, at(1), Options{})
	if err := a.Send(2, second.Task().String(), "x", x, false); err != nil {
		t.Fatal(err)
	}
	wantFloat(t, wait(t, second.recv(2, a.Task().String(), "x"), "a value for the next process"), 1)
	wait(t, d.Done(), "the outcome")
	if d.Err() != nil { // the acknowledgement may have gone with the end of the process
		wantError(t, d.Err(), status.Aborted, "another process has taken the place of "+first.Task().String())
	}
}

// TestSendWaitToATensorFlowPeer, which acknowledges nothing: its value is confirmed when the
// response is sent.
func TestSendWaitToATensorFlowPeer(t *testing.T) {
	s := start(t, settings(), Options{})
	conn, err := grpc.NewClient(s.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for i, size := range []int64{8, 1 << 20} {
		x := tensortest.Tensor(t, tensor.Uint8, size)
		name := fmt.Sprint("x", i)
		d, err := s.SendWait(t.Context(), 1, "/job:tf/task:0", name, x, false)
		if err != nil {
			t.Fatal(err)
		}
		key := rendezvous.CreateKey(s.Device().String(), s.Incarnation(), "/job:tf/replica:0/task:0/device:CPU:0", name, rendezvous.FrameIter{})
		resp, err := tensorflowgrpc.NewWorkerServiceClient(conn).RecvTensor(t.Context(), &tfpb.RecvTensorRequest{StepId: 1, RendezvousKey: key})
		if err != nil {
			t.Fatal(err)
		}
		if got := int64(len(resp.GetTensor().GetTensorContent())); got != size {
			t.Errorf("%d bytes, want %d", got, size)
		}
		if wait(t, d.Done(), "the outcome"); d.Err() != nil {
			t.Errorf("the outcome is %v", d.Err())
		}
	}
}

// TestMemoryThatWasSentIsWrittenAgainWhenItIsUnique: the receiver gets what was there at the send,
// also one in the same process, which shares the memory after the outcome.
func TestMemoryThatWasSentIsWrittenAgainWhenItIsUnique(t *testing.T) {
	const size, n = 1 << 20, 20
	eachTransport(t, func(t *testing.T, _ string, a, b *Server) {
		for _, to := range []*Server{b, a} {
			x, err := tensor.Make[byte](a.Allocator(), size)
			if err != nil {
				t.Fatal(err)
			}
			step := a.NewStepID()
			received := make(chan rendezvous.Value, n)
			go func() {
				defer close(received)
				for range n {
					v, err := to.Recv(t.Context(), step, a.Task().String(), "x")
					if err != nil {
						t.Error(err)
						return
					}
					received <- v
				}
			}()
			for i := range n {
				x.Bytes()[0], x.Bytes()[size-1] = byte(i), byte(i)
				d, err := a.SendWait(t.Context(), step, to.Task().String(), "x", x, false)
				if err != nil {
					t.Fatal(err)
				}
				if wait(t, d.Done(), "the outcome"); d.Err() != nil {
					t.Fatal(d.Err())
				}
				v := wait(t, received, "the value")
				shared := make(chan bool)
				go func() {
					shared <- !x.Buffer().Unique() // with a receiver in this process, until the release
					if got := v.Tensor.Bytes(); got[0] != byte(i) || got[size-1] != byte(i) {
						t.Errorf("value %d is %d to %d", i, got[0], got[size-1])
					}
					v.Tensor.Release()
				}()
				if is := wait(t, shared, "the receiver"); to == a && !is {
					t.Error("a receiver in this process does not share the memory")
				}
				if err := x.Buffer().WaitUnique(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			x.Release()
			a.EndStep(step)
			b.EndStep(step)
		}
	})
}
