package server

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/transporttest"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
	"github.com/tryst-rdma/tryst/transport"
)

// killed is a task 0 that can be killed: its peers reach its present process through a proxy.
type killed struct {
	t     *testing.T
	at    func(i int) Config
	proxy *transporttest.Proxy
}

func newKilled(t *testing.T, change ...func(*Config)) *killed {
	k := &killed{t: t, proxy: transporttest.NewProxy(t)}
	addresses := transporttest.FreeAddresses(t, 1)
	spec, err := cluster.SpecFromLists(map[string][]string{"worker": {k.proxy.Addr(), addresses[0]}})
	if err != nil {
		t.Fatal(err)
	}
	k.at = func(i int) Config {
		c := settings(change...)
		c.Cluster, c.Task, c.Listen = spec.Lists(), cluster.Task{Job: "worker", Index: i}.String(), "127.0.0.1:0"
		c.Transport = TransportGRPC // all of it passes the proxy
		if i == 1 {
			c.Listen = addresses[0]
		}
		return c
	}
	return k
}

// startPeer starts a process of task 0. It is reached after become.
func (k *killed) startPeer() *Server {
	k.t.Helper()
	a, err := Start(k.t.Context(), k.at(0), Options{})
	if err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = a.Close(ctx) // a killed process gets no acknowledgements
	})
	return a
}

// become kills the present process of task 0 and puts a into its place.
func (k *killed) become(a *Server) {
	k.t.Helper()
	k.proxy.SetTarget(a.Addr().String())
	wait(k.t, k.proxy.CutAfter(0), "the cut")
}

// knows makes b receive from a. Only a receive that begins with a known incarnation is sent to the
// next process when the known one is outdated.
func (k *killed) knows(b, a *Server) {
	k.t.Helper()
	x := float(k.t, 1)
	defer x.Release()
	if err := a.Send(1, b.Task().String(), "before", x, false); err != nil {
		k.t.Fatal(err)
	}
	v, err := b.Recv(k.t.Context(), 1, a.Task().String(), "before")
	wantFloat(k.t, outcome{v, err}, 1)
}

// wantProcessGone checks that a receive has ended because its process is gone.
func wantProcessGone(t *testing.T, o outcome) {
	t.Helper()
	if o.err == nil {
		o.v.Tensor.Release()
	}
	if status.CodeOf(o.err) != status.Aborted || !errors.Is(o.err, transport.ErrProcessGone) {
		t.Fatalf("%v, want Aborted with %q", o.err, transport.ErrProcessGone)
	}
	wantKind(t, o.err, status.ErrPeerRestarted)
}

// TestReceiveDoesNotTakeAValueOfTheNextProcess: a request waits at a process that is killed, and
// the next process sends. The receive ends with an error, since a value may be lost with the first
// process. The next receive gets the value.
func TestReceiveDoesNotTakeAValueOfTheNextProcess(t *testing.T) {
	eachWay(t, func(t *testing.T, recv recvFunc) {
		k := newKilled(t)
		first, next := k.startPeer(), k.startPeer()
		k.proxy.SetTarget(first.Addr().String())
		b := start(t, k.at(1), Options{})
		k.knows(b, first)
		o := recv(b, 1, "/job:worker/task:0", "x")
		r := restarted{t: t}
		r.until("the request waits", func() bool { return first.cache.Stats().Waiting > 0 })
		x := float(t, 7)
		defer x.Release()
		if err := next.Send(1, b.Task().String(), "x", x, false); err != nil {
			t.Fatal(err)
		}
		k.become(next)
		wantProcessGone(t, wait(t, o, "the receive"))
		wantFloat(t, wait(t, recv(b, 1, "/job:worker/task:0", "x"), "the next receive"), 7)
	})
}

// hooked is an allocator that calls a function once, before it allocates n bytes or more.
type hooked struct {
	tensor.Allocator
	n    int
	once sync.Once
	call func()
}

// Allocate implements tensor.Allocator.
func (h *hooked) Allocate(n int) (*tensor.Buffer, error) {
	if n >= h.n {
		h.once.Do(h.call)
	}
	return h.Allocator.Allocate(n)
}

// TestReceiveOfALargeTensorDoesNotTakeAValueOfTheNextProcess: the process is killed between its
// ticket and Fetch, when the receiver allocates the memory.
func TestReceiveOfALargeTensorDoesNotTakeAValueOfTheNextProcess(t *testing.T) {
	const size = 1 << 20
	eachWay(t, func(t *testing.T, recv recvFunc) {
		k := newKilled(t, func(c *Config) { c.GRPC.UnaryLimit = size / 2 })
		first, next := k.startPeer(), k.startPeer()
		k.proxy.SetTarget(first.Addr().String())
		alloc := &hooked{Allocator: tensor.Heap{}, n: size}
		b := start(t, k.at(1), Options{Allocator: alloc})
		w, err := b.conns.Worker(first.Task())
		if err != nil {
			t.Fatal(err)
		}
		alloc.call = func() {
			k.become(next)
			for t.Context().Err() == nil { // until the next process has answered
				resp, err := w.GetStatus(t.Context(), &tfpb.GetStatusRequest{})
				if err == nil && resp.GetDeviceAttributes()[0].GetIncarnation() == next.Incarnation() {
					return
				}
			}
		}
		k.knows(b, first)
		x := tensortest.Tensor(t, tensor.Uint8, size)
		for _, a := range []*Server{first, next} {
			if err := a.Send(1, b.Task().String(), "x", x, false); err != nil {
				t.Fatal(err)
			}
		}
		wantProcessGone(t, wait(t, recv(b, 1, "/job:worker/task:0", "x"), "the receive"))
		v := wait(t, recv(b, 1, "/job:worker/task:0", "x"), "the next receive")
		if v.err != nil {
			t.Fatal(v.err)
		}
		tensortest.RequireEqual(t, x, v.v.Tensor)
		v.v.Tensor.Release()
	})
}
