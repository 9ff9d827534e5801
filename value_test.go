package tryst_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// overEachTransport runs a test with the two tasks of a cluster, over gRPC, over verbs, and with task 0 as both.
func overEachTransport(t *testing.T, run func(t *testing.T, tasks pair, transport, from, to string)) {
	t.Helper()
	const zero, one = "/job:worker/task:0", "/job:worker/task:1"
	for transport, start := range map[string]func(context.Context) pair{
		"grpc": startPair, "verbs": func(ctx context.Context) pair { return startVerbs(ctx) },
	} {
		t.Run(transport, func(t *testing.T) {
			tasks := start(t.Context())
			defer tasks.close(context.Background())
			run(t, tasks, transport, zero, one)
		})
		t.Run("local beside "+transport, func(t *testing.T) {
			tasks := start(t.Context())
			defer tasks.close(context.Background())
			run(t, pair{tasks.a, tasks.a}, "local", zero, zero)
		})
	}
}

// make1 returns a tensor of n bytes in memory of the server, all of them b.
func make1(t *testing.T, s *tryst.Server, n int64, b byte) *tensor.Tensor {
	t.Helper()
	x, err := tensor.Make[byte](s.Allocator(), n)
	if err != nil {
		t.Fatal(err)
	}
	for i := range x.Bytes() {
		x.Bytes()[i] = b
	}
	return x
}

// Once a Delivery is done, the sender may write to the memory again, whatever the transport and the size.
func TestMemoryIsFreeWhenTheDeliveryIsDone(t *testing.T) {
	overEachTransport(t, func(t *testing.T, tasks pair, _, from, to string) {
		out, in := tasks.a.Step(1), tasks.b.Step(1)
		defer in.Close()
		defer out.Close()
		for _, size := range []int64{0, 10, 100_000, 5 << 20} {
			x := make1(t, tasks.a, size, 1)
			for i := range 5 {
				for j := range x.Bytes() {
					x.Bytes()[j] = byte(i)
				}
				d, err := out.SendWait(t.Context(), to, "x", x)
				if err != nil {
					t.Fatal(err)
				}
				v, err := in.Recv(t.Context(), from, "x")
				if err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(v.Tensor.Bytes(), x.Bytes()) {
					t.Fatalf("%d bytes, round %d: other content", size, i)
				}
				v.Tensor.Release()
				if err := d.Wait(t.Context()); err != nil || !x.Buffer().Unique() {
					t.Fatalf("%d bytes: outcome %v, unique %v", size, err, x.Buffer().Unique())
				}
			}
			x.Release()
		}
	})
}

// A step and an edge do the same: each call of one meets that of the other, and says how the value came.
func TestStepAndEdgeMeet(t *testing.T) {
	overEachTransport(t, func(t *testing.T, tasks pair, transport, from, to string) {
		ctx := t.Context()
		outEdge, err := tasks.a.Edge(to, "x")
		if err != nil {
			t.Fatal(err)
		}
		inEdge, err := tasks.b.Edge(from, "x")
		if err != nil {
			t.Fatal(err)
		}
		if outEdge.Name() != "x" || outEdge.Peer() != to[:len("/job:worker")]+"/replica:0"+to[len("/job:worker"):]+"/device:CPU:0" {
			t.Errorf("edge %q with %q", outEdge.Name(), outEdge.Peer())
		}
		out := tasks.a.NewStep()
		in := tasks.b.Step(out.ID())
		defer in.Close()
		defer out.Close()
		x := make1(t, tasks.a, 50_000, 7)
		defer x.Release()
		dst := make1(t, tasks.b, 50_000, 0)
		defer dst.Release()
		wantValue := func(v tryst.Value, err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
			if !tensor.Equal(v.Tensor, x) || v.Dead || v.Transport != transport || v.Bytes != 50_000 || v.Attempts != 1 || (v.Device != "") != (transport == "verbs") {
				t.Errorf("%v %+v, want 50000 bytes over %s", v.Tensor, v.Arrival, transport)
			}
			v.Tensor.Release()
		}
		wantFilled := func(f tryst.Filled, err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
			if !tensor.Equal(dst, x) || !dst.Buffer().Unique() || f.ZeroCopy != (transport == "verbs") || f.Transport != transport || f.Bytes != 50_000 {
				t.Errorf("%+v, want 50000 bytes over %s", f, transport)
			}
			clear(dst.Bytes())
		}
		values, filled := make(chan func(), 1), make(chan func(), 1)
		onValue := func(v tryst.Value, err error) { values <- func() { wantValue(v, err) } }
		onFilled := func(f tryst.Filled, err error) { filled <- func() { wantFilled(f, err) } }
		sends := []func() error{
			func() error { return out.Send(to, "x", x) },
			func() error { return outEdge.Send(out, x) },
			func() error { _, err := out.SendWait(ctx, to, "x", x); return err },
			func() error { _, err := outEdge.SendWait(ctx, out, x); return err },
		}
		receives := []func(){
			func() { wantValue(in.Recv(ctx, from, "x")) },
			func() { wantValue(inEdge.Recv(ctx, in)) },
			func() { in.RecvAsync(ctx, from, "x", onValue); (<-values)() },
			func() { inEdge.RecvAsync(ctx, in, onValue); (<-values)() },
			func() { wantFilled(in.RecvInto(ctx, from, "x", dst)) },
			func() { wantFilled(inEdge.RecvInto(ctx, in, dst)) },
			func() { in.RecvIntoAsync(ctx, from, "x", dst, onFilled); (<-filled)() },
			func() { inEdge.RecvIntoAsync(ctx, in, dst, onFilled); (<-filled)() },
		}
		for _, send := range sends {
			for _, receive := range receives {
				if err := send(); err != nil {
					t.Fatal(err)
				}
				receive()
			}
		}
		if n := len(sends) * len(receives); transport != "local" && (len(tasks.b.Received()) != 1 || tasks.b.Received()[transport] != n) {
			t.Errorf("received %v, want %d over %s", tasks.b.Received(), n, transport)
		}
		if n := len(sends) * len(receives); transport != "local" && (len(tasks.a.Sent()) != 1 || tasks.a.Sent()[transport] != n) || transport == "local" && len(tasks.a.Sent()) != 0 || len(tasks.b.Sent()) != 0 && transport != "local" {
			t.Errorf("sent %v and %v, want %d over %s", tasks.a.Sent(), tasks.b.Sent(), n, transport)
		}
		for _, dead := range []func() error{func() error { return out.SendDead(to, "x") }, func() error { return outEdge.SendDead(out) }} {
			if err := dead(); err != nil {
				t.Fatal(err)
			}
			v, err := inEdge.Recv(ctx, in)
			if err != nil || !v.Dead || v.Transport != transport {
				t.Errorf("%+v, %v, want a dead value over %s", v, err, transport)
			}
			v.Tensor.Release()
		}
	})
}

func TestEdgeRefusesWhatCannotBe(t *testing.T) {
	s, err := tryst.Serve(t.Context(), tryst.Config{Listen: "127.0.0.1:0", Cluster: map[string][]string{"worker": {"127.0.0.1:1", "127.0.0.1:2"}}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(context.Background())
	for _, c := range []struct {
		peer, name string
		want       status.Code
	}{
		{"/job:worker/task:1", "x", status.OK},
		{"/job:worker/task:2", "x", status.NotFound},
		{"/job:worker/task:1", "", status.InvalidArgument},
		{"/job:worker/task:1", "a;b", status.InvalidArgument},
		{"worker 1", "x", status.InvalidArgument},
	} {
		if e, err := s.Edge(c.peer, c.name); status.CodeOf(err) != c.want || (e == nil) != (err != nil) {
			t.Errorf("%q to %q: %v, want %v", c.name, c.peer, err, c.want)
		}
	}
}

// A tensor of Allocator belongs to its holder, also when the server has ended.
func TestMemoryOutlivesItsServer(t *testing.T) {
	for _, transport := range []string{"grpc", "verbs"} {
		t.Run(transport, func(t *testing.T) {
			s, err := tryst.Serve(t.Context(), tryst.Config{Listen: "127.0.0.1:0", Transport: transport, Provider: "roce"})
			if err != nil {
				t.Fatal(err)
			}
			x := make1(t, s, 1<<20, 9)
			if err := s.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			if x.Bytes()[1<<20-1] != 9 || s.Registered(x) {
				t.Errorf("content %d, registered %v", x.Bytes()[1<<20-1], s.Registered(x))
			}
			x.Release()
		})
	}
}

// A producer notices that its consumer is absent by the context of Wait, and the value is sent all the same.
func TestDeliveryWaitWithoutAConsumer(t *testing.T) {
	overEachTransport(t, func(t *testing.T, tasks pair, _, from, to string) {
		out, in := tasks.a.Step(1), tasks.b.Step(1)
		defer in.Close()
		defer out.Close()
		x := make1(t, tasks.a, 10, 1)
		defer x.Release()
		d, err := out.SendWait(t.Context(), to, "x", x)
		if err != nil {
			t.Fatal(err)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if err := d.Wait(gone); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), `delivery of edge "x"`) || d.Err() != nil {
			t.Errorf("nobody has received it: %v; outcome %v", err, d.Err())
		}
		v, err := in.Recv(t.Context(), from, "x")
		if err != nil {
			t.Fatal(err)
		}
		v.Tensor.Release()
		if err := d.Wait(t.Context()); err != nil {
			t.Errorf("it was received: %v", err)
		}
	})
}

// With the fallback none here, and another one at the peer, the peer may fetch values over gRPC: the setting
// is about what a process receives. The producer sees it.
func TestFallbackNoneDoesNotBindTheReceiver(t *testing.T) {
	a, err := tryst.Serve(t.Context(), tryst.Config{Listen: "127.0.0.1:0", Transport: "verbs", Fallback: "none", Provider: "roce"})
	if err != nil {
		t.Fatal(err)
	}
	tasks := pair{a, startConsumer(t.Context(), a)} // over gRPC
	defer tasks.close(context.Background())
	sendOne(a, "/job:worker/task:1")
	v, err := tasks.b.Step(1).Recv(t.Context(), "/job:worker/task:0", "x")
	if err != nil {
		t.Fatal(err)
	}
	v.Tensor.Release()
	if v.Transport != "grpc" || a.Sent()["grpc"] != 1 || len(a.Sent()) != 1 {
		t.Errorf("it came over %s, and the producer says it has sent %v", v.Transport, a.Sent())
	}
}

// The states of a link have names here.
func TestLinkStates(t *testing.T) {
	a := startVerbs(t.Context())
	defer a.close(context.Background())
	sendOne(a.a, "/job:worker/task:1")
	v, err := a.b.Step(1).Recv(t.Context(), "/job:worker/task:0", "x")
	if err != nil {
		t.Fatal(err)
	}
	v.Tensor.Release()
	if l := a.b.Links()[0]; l.State != tryst.LinkUp || l.Route != "verbs" {
		t.Errorf("%+v", l)
	}
	var states []tryst.LinkState
	for _, s := range []tryst.LinkState{tryst.LinkUp, tryst.LinkConnecting, tryst.LinkDown, tryst.LinkGone} {
		if s == "" || slices.Contains(states, s) {
			t.Errorf("state %q after %q", s, states)
		}
		states = append(states, s)
	}
}
