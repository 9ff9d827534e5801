package tryst_test

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tryst-rdma/tryst"
	"github.com/tryst-rdma/tryst/tensor"
)

// Over each route a watcher takes the next version as what differs, double-buffered and in place.
func TestWatcherTakesADelta(t *testing.T) {
	for _, over := range []string{"grpc", "tcp", "shm", "roce"} {
		t.Run(over, func(t *testing.T) {
			if over == "shm" && runtime.GOOS != "linux" {
				t.Skip("shared memory needs Linux")
			}
			metrics := prometheus.NewRegistry()
			cfg := configOf(over)
			cfg.Listen = "127.0.0.1:0"
			s, err := tryst.Serve(t.Context(), cfg, tryst.WithRegisterer(metrics))
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close(context.Background())
			c, err := tryst.Dial(t.Context(), s.Addr().String(), configOf(over))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close(context.Background())
			for _, inPlace := range []bool{false, true} {
				followDeltas(t, s, c, inPlace)
			}
			if n := sumOf(t, metrics, "tryst_delta_stood_bytes_total"); n != 2*2*400_000 {
				t.Errorf("deltas stood for %v bytes", n)
			}
			if n := sumOf(t, metrics, "tryst_delta_bytes_total"); n < 4*2000 || n > 4*400_000/50 {
				t.Errorf("%v bytes of deltas", n)
			}
		})
	}
}

// followDeltas publishes three versions, which a watcher takes. 1 % of the elements of one of two tensors change.
func followDeltas(t *testing.T, s *tryst.Server, c *tryst.Client, inPlace bool) {
	t.Helper()
	name := map[bool]string{false: "buffered", true: "in place"}[inPlace]
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // reproducible
	all := bfloats(t, s, random)
	if _, err := s.Update(t.Context(), name, all); err != nil {
		t.Fatal(err)
	}
	var opts []tryst.WatchOption
	if inPlace {
		m, err := c.Describe(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		into, err := tryst.TensorsFor(func(yield func(tryst.TensorInfo) bool) {
			for _, e := range m.Entries {
				if !yield(e) {
					return
				}
			}
		}, c.Allocator())
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range into {
			defer x.Release()
		}
		opts = append(opts, tryst.WatchInto(into))
	}
	n := 0
	for v, err := range c.Watch(t.Context(), name, opts...) {
		if err != nil {
			t.Fatal(err)
		}
		if err := v.Apply(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i := range all {
			if !tensor.Equal(all[i], v.Tensors[i]) {
				t.Errorf("%s: tensor %d of version %d is wrong", name, i, v.Number)
			}
		}
		d := v.Summary.Deltas
		if n > 0 && (d.Sparse.Tensors != 1 || d.Nothing.Tensors != 1 || v.Summary.Received() > 400_000/50) {
			t.Errorf("%s: %d bytes came so: %+v", name, v.Summary.Received(), d)
		}
		v.Release()
		if n++; n == 3 {
			return
		}
		next := bfloats(t, s, random)
		copy(next[0].Bytes(), all[0].Bytes())
		copy(next[1].Bytes(), all[1].Bytes())
		for i := 0; i < len(next[0].Bytes()); i += 200 {
			next[0].Bytes()[i]++
		}
		all = next
		if _, err := s.Update(t.Context(), name, all); err != nil {
			t.Fatal(err)
		}
	}
}

// bfloats returns two tensors of random content.
func bfloats(t *testing.T, s *tryst.Server, random *rand.Rand) (all []*tensor.Tensor) {
	t.Helper()
	for _, name := range []string{"a", "b"} {
		x, err := tensor.Allocate(s.SendAllocator(), tensor.BFloat16, tensor.Vector(200_000))
		if err != nil {
			t.Fatal(err)
		}
		for b := x.Bytes(); len(b) >= 8; b = b[8:] {
			binary.LittleEndian.PutUint64(b, random.Uint64())
		}
		t.Cleanup(x.Release)
		all = append(all, x.Named(name))
	}
	return all
}

// sumOf returns the sum of a counter over its labels.
func sumOf(t *testing.T, g prometheus.Gatherer, name string) (sum float64) {
	t.Helper()
	all, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}
