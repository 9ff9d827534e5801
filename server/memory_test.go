package server

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/tryst-rdma/tryst/internal/checkpoint"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
)

// filledTensor returns a tensor of size bytes, each of which is fill.
func filledTensor(t *testing.T, a tensor.Allocator, size int, fill byte) *tensor.Tensor {
	t.Helper()
	x, err := tensor.Allocate(a, tensor.Uint8, tensor.Vector(size))
	if err != nil {
		t.Fatal(err)
	}
	for i := range x.Bytes() {
		x.Bytes()[i] = fill
	}
	return x
}

// sendFilled sends a new tensor.
func sendFilled(t *testing.T, s *Server, a tensor.Allocator, step int64, to *Server, name string, size int, fill byte) {
	t.Helper()
	x := filledTensor(t, a, size, fill)
	defer x.Release()
	if err := s.Send(step, to.Task().String(), name, x, false); err != nil {
		t.Fatal(err)
	}
}

// recvInto is RecvInto, or RecvIntoAsync and a wait.
func recvInto(t *testing.T, s *Server, async bool, step int64, from *Server, name string, dst *tensor.Tensor) (Filled, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	if !async {
		return s.RecvInto(ctx, step, from.Task().String(), name, dst)
	}
	type result struct {
		f   Filled
		err error
	}
	c := make(chan result, 1)
	s.RecvIntoAsync(ctx, step, from.Task().String(), name, dst, func(f Filled, err error) { c <- result{f, err} })
	r := <-c
	return r.f, r.err
}

// TestRecvInto: a value comes into the caller's own tensor over each transport, and the result says
// which, and whether it was copied. The caller's reference is the only one afterwards.
func TestRecvInto(t *testing.T) {
	const size = 256 << 10
	for _, async := range []bool{false, true} {
		for _, transport := range []string{"verbs", "grpc", "local"} {
			t.Run(fmt.Sprintf("%s/async=%v", transport, async), func(t *testing.T) {
				w := newVerbsTown(t, 2)
				var a, b *Server
				if transport == "grpc" {
					over := func(c *Config) { c.Transport, c.Fallback = "grpc", "grpc" }
					a, b = start(t, w.settings(0, over), Options{}), start(t, w.settings(1, over), Options{})
				} else {
					va, vb := w.start(0), w.start(1)
					w.up(vb, va.Task())
					w.up(va, vb.Task())
					if a, b = va.Server, vb.Server; transport == "local" {
						a = b
					}
				}
				dst := filledTensor(t, b.Allocator(), size, 0xEE)
				defer dst.Release()
				for step := range int64(3) {
					sendFilled(t, a, a.SendAllocator(), step+1, b, "x", size, byte(step))
					f, err := recvInto(t, b, async, step+1, a, "x", dst)
					if err != nil {
						t.Fatal(err)
					}
					if bytes.Count(dst.Bytes(), []byte{byte(step)}) != size || !dst.Buffer().Unique() {
						t.Error("other content, or another reference")
					}
					if f.Transport != transport || f.ZeroCopy != (transport == "verbs") || f.Bytes != size || f.Dead {
						t.Errorf("%+v, want %s", f, transport)
					}
				}
				if b.Registered(dst) != (transport != "grpc") {
					t.Error("Registered is wrong")
				}
			})
		}
	}
}

// TestRecvIntoRefusals: memory that cannot be received into is refused before a value is consumed.
func TestRecvIntoRefusals(t *testing.T) {
	w := newVerbsTown(t, 2)
	a, b := w.start(0), w.start(1)
	w.up(b, a.Task())
	for _, async := range []bool{false, true} {
		step := int64(1)
		if async {
			step = 2
		}
		from := a.Server
		strs, err := tensor.FromStrings(tensor.Vector(1), []string{"a"})
		if err != nil {
			t.Fatal(err)
		}
		_, err = recvInto(t, b.Server, async, step, from, "x", strs)
		wantError(t, err, status.InvalidArgument, "string[1]", "plain memory")
		strs.Release()

		dst := filledTensor(t, b.Allocator(), 100<<10, 1)
		sendFilled(t, from, from.SendAllocator(), step, b.Server, "x", 200<<10, 2)
		_, err = recvInto(t, b.Server, async, step, from, "x", dst)
		wantError(t, err, status.InvalidArgument, "uint8[102400]", "uint8[204800]", `edge "x"`)
		_, err = recvInto(t, b.Server, async, step, from, ";", dst)
		wantError(t, err, status.InvalidArgument)
		dst.Retain()
		_, err = recvInto(t, b.Server, async, step, from, "x", dst)
		wantError(t, err, status.FailedPrecondition, "Unique")
		dst.Release()
		if bytes.Count(dst.Bytes(), []byte{1}) != 100<<10 {
			t.Error("the memory was written to")
		}
		dst.Release()
		o := wait(t, b.recv(step, a.Task().String(), "x"), "the value that did not fit")
		if o.err != nil || o.v.Tensor.Size() != 200<<10 {
			t.Errorf("got %v, %v", o.v.Tensor, o.err)
		}
		o.v.Tensor.Release()
	}
}

// TestRecvIntoADeadValue: it is told, and the memory is as it was.
func TestRecvIntoADeadValue(t *testing.T) {
	w := newVerbsTown(t, 2)
	a, b := w.start(0), w.start(1)
	dst := filledTensor(t, b.Allocator(), 64, 7)
	defer dst.Release()
	if err := a.Send(1, b.Task().String(), "x", nil, true); err != nil {
		t.Fatal(err)
	}
	f, err := recvInto(t, b.Server, false, 1, a.Server, "x", dst)
	if err != nil || !f.Dead || bytes.Count(dst.Bytes(), []byte{7}) != 64 {
		t.Errorf("%+v, %v", f, err)
	}
}

// TestAllocatorOutlivesTheDevice: memory of a device that goes is received into over gRPC, and
// again without a copy over the next device. The allocator gives registered memory again when
// there is a device.
func TestAllocatorOutlivesTheDevice(t *testing.T) {
	const size = 256 << 10
	w := newVerbsTown(t, 2)
	a, b := w.start(0), w.start(1)
	w.up(b, a.Task())
	allocator := b.Allocator()
	old := filledTensor(t, allocator, size, 0)
	defer old.Release()
	w.nic(1).Remove()
	until(t, "the device is known to be gone", func() bool { _, ok := b.Verbs(); return !ok })
	receive := func(step int64, dst *tensor.Tensor) Filled {
		t.Helper()
		sendFilled(t, a.Server, tensor.Heap{}, step, b.Server, "x", size, byte(step))
		f, err := recvInto(t, b.Server, false, step, a.Server, "x", dst)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Count(dst.Bytes(), []byte{byte(step)}) != size {
			t.Error("other content")
		}
		return f
	}
	if f := receive(1, old); f.ZeroCopy || f.Transport != "grpc" || b.Registered(old) {
		t.Errorf("without a device: %+v, registered %v", f, b.Registered(old))
	}
	if m := b.Memory().Receiving; m.Mapped-m.InUse-m.Absent < 0 {
		t.Errorf("%+v: less than nothing is free without a device", m)
	}
	between := filledTensor(t, allocator, size, 0)
	defer between.Release()
	receive(2, between)
	w.nic(1).Insert()
	w.up(b, a.Task())
	w.up(a, b.Task())
	now := filledTensor(t, allocator, size, 0)
	defer now.Release()
	if f := receive(3, now); !f.ZeroCopy || f.Transport != "verbs" || !b.Registered(now) {
		t.Errorf("with the device: %+v, registered %v", f, b.Registered(now))
	}
	for step, dst := range []*tensor.Tensor{old, between} {
		registered := dst == old // again, with the device that came
		if f := receive(int64(step)+4, dst); f.ZeroCopy != registered || f.Transport != "verbs" || b.Registered(dst) != registered {
			t.Errorf("memory %d of before: %+v, registered %v", step, f, b.Registered(dst))
		}
	}
}

// TestRecvIntoByAnEdge: a prepared edge receives into memory, too.
func TestRecvIntoByAnEdge(t *testing.T) {
	w := newVerbsTown(t, 2)
	a, b := w.start(0), w.start(1)
	w.up(b, a.Task())
	e, err := b.Edge(a.Task().String(), "x")
	if err != nil {
		t.Fatal(err)
	}
	dst := filledTensor(t, b.Allocator(), 64<<10, 0)
	defer dst.Release()
	for step := range int64(3) {
		sendFilled(t, a.Server, tensor.Heap{}, step+1, b.Server, "x", 64<<10, byte(step)+1)
		if f, err := e.RecvInto(t.Context(), step+1, dst); err != nil || f.Transport == rendezvous.TransportLocal || dst.Bytes()[9] != byte(step)+1 {
			t.Errorf("%+v, %v", f, err)
		}
	}
}

// TestPullIntoOwnMemory: a client pulls into memory of its Allocator, over verbs by RDMA into
// the tensors themselves, and over gRPC. A pull that was cancelled gives the memory back.
func TestPullIntoOwnMemory(t *testing.T) {
	for _, transport := range []string{"verbs", "grpc"} {
		t.Run(transport, func(t *testing.T) {
			w := newVerbsTown(t, 1)
			s := w.start(0)
			var published []*tensor.Tensor
			for i := range 5 {
				x := filledTensor(t, s.SendAllocator(), 200<<10, byte(i+1))
				defer x.Release()
				published = append(published, x.Named(fmt.Sprint("t", i)))
			}
			if _, err := s.Catalog().PublishTensors(t.Context(), "p", published...); err != nil {
				t.Fatal(err)
			}
			cfg := w.settings(0).ForClient()
			cfg.Cluster, cfg.Transport = nil, transport
			if transport == "verbs" {
				cfg.Fallback = FallbackNone // the channel may take longer than a receive waits for it
			}
			cl, err := Dial(t.Context(), cfg, s.Addr().String(), Options{Provider: w.provider(1), Allocator: tensortest.NewAllocator(t)})
			if err != nil {
				t.Fatal(err)
			}
			defer cl.Close(context.Background())
			m, err := cl.Puller().Describe(t.Context(), "p", "")
			if err != nil {
				t.Fatal(err)
			}
			into, err := checkpoint.TensorsFor(slices.Values(m.Entries), cl.Allocator())
			if err != nil {
				t.Fatal(err)
			}
			buffers := func() int64 {
				if transport == "grpc" {
					return 0
				}
				return cl.rdma.Transport.Memory().Receiving.Buffers
			}
			before := buffers()
			for round := range 3 {
				n := 0
				for x, err := range cl.Puller().Pull(t.Context(), checkpoint.PullRequest{Publication: "p", Into: into, Inflight: 1}) {
					if err != nil {
						t.Fatal(err)
					}
					if x.Buffer() != into[x.Name()].Buffer() || !tensor.Equal(x, published[n]) || cl.Registered(x) != (transport == "verbs") {
						t.Errorf("round %d: %s is in other memory, or has another content", round, x.Name())
					}
					if k := buffers(); k != before {
						t.Errorf("%d destinations beside the memory of the caller's", k-before)
					}
					n++
					x.Release()
					if round == 1 {
						break // the next tensor may be under way
					}
				}
				for name, x := range into {
					until(t, name+" has its owner's reference alone after a loop that was left", x.Buffer().Unique)
				}
			}
			for name, x := range into {
				until(t, name+" has its owner's reference alone", x.Buffer().Unique)
				x.Release()
			}
			if n := cl.Received()[transport]; n < 11 {
				t.Errorf("%d tensors came over %s", n, transport)
			}
		})
	}
}
