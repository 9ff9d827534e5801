package rendezvous_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/tensor"
)

// benchKeys returns 64 keys of 130 bytes.
func benchKeys(tb testing.TB, goroutine int) []rendezvous.Key {
	keys := make([]rendezvous.Key, 64)
	for i := range keys {
		keys[i] = key(tb, fmt.Sprintf("edge_%02d_%02d_of_a_name_", goroutine, i)+"xxxxxxxxxxxx")
		if n := len(keys[i].String()); n != 130 {
			tb.Fatalf("the key has %d bytes, want 130", n)
		}
	}
	return keys
}

func benchTensor(tb testing.TB) *tensor.Tensor {
	t, err := tensor.FromBytes(tensor.Int64, tensor.Shape{}, make([]byte, 8))
	if err != nil {
		tb.Fatal(err)
	}
	return t
}

// sendRecv is one matched pair, value first.
func sendRecv(r rendezvous.Rendezvous, k rendezvous.Key, t *tensor.Tensor) error {
	if err := r.Send(k, rendezvous.Args{}, t, false); err != nil {
		return err
	}
	v, err := r.Recv(context.Background(), k, rendezvous.Args{})
	if err != nil {
		return err
	}
	v.Tensor.Release()
	return nil
}

// lockedMap is the baseline: what the same keys cost in a plain map.
type lockedMap struct {
	mu sync.Mutex
	m  map[string]*tensor.Tensor
}

func (l *lockedMap) insertDelete(k string, t *tensor.Tensor) {
	l.mu.Lock()
	l.m[k] = t
	l.mu.Unlock()
	l.mu.Lock()
	delete(l.m, k)
	l.mu.Unlock()
}

func BenchmarkMatched(b *testing.B) {
	keys, t := benchKeys(b, 0), benchTensor(b)
	ours := func(r rendezvous.Rendezvous) func(b *testing.B) {
		return func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if err := sendRecv(r, keys[i%64], t); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	b.Run("ours", ours(rendezvous.NewLocal()))
	remote := rendezvous.NewBaseRemote(1, nil)
	if err := remote.Initialize(session(b)); err != nil {
		b.Fatal(err)
	}
	b.Run("ours-BaseRemote", ours(remote))
	b.Run("locked-map", func(b *testing.B) {
		b.ReportAllocs()
		l := lockedMap{m: make(map[string]*tensor.Tensor)}
		for i := 0; b.Loop(); i++ {
			l.insertDelete(keys[i%64].String(), t)
		}
	})
}

// BenchmarkMatchedParallel shares one rendezvous among goroutines with keys of
// their own. Its ns/op beside BenchmarkMatched's gives the gain, to be compared
// with the gain of maps that share nothing.
func BenchmarkMatchedParallel(b *testing.B) {
	goroutines := runtime.GOMAXPROCS(0)
	run := func(b *testing.B, body func(g, n int)) {
		b.ReportAllocs()
		var wg sync.WaitGroup
		for g := range goroutines {
			wg.Go(func() { body(g, b.N/goroutines+1) })
		}
		wg.Wait()
	}
	keys := make([][]rendezvous.Key, goroutines)
	ts := make([]*tensor.Tensor, goroutines)
	for g := range keys {
		keys[g], ts[g] = benchKeys(b, g), benchTensor(b)
	}
	b.Run("ours", func(b *testing.B) {
		r := rendezvous.NewLocal()
		run(b, func(g, n int) {
			for i := range n {
				if err := sendRecv(r, keys[g][i%64], ts[g]); err != nil {
					b.Error(err)
				}
			}
		})
	})
	b.Run("private-maps", func(b *testing.B) {
		run(b, func(g, n int) {
			l := lockedMap{m: make(map[string]*tensor.Tensor)}
			for i := range n {
				l.insertDelete(keys[g][i%64].String(), ts[g])
			}
		})
	})
}

// A local pair may allocate twice. Value first it does not allocate at all, and
// neither does a receive that waits without a cancellable context.
func TestMatchedAllocations(t *testing.T) {
	keys, x := benchKeys(t, 0), benchTensor(t)
	b := rendezvous.NewBaseRemote(1, nil)
	defer b.Close()
	if err := b.Initialize(session(t)); err != nil {
		t.Fatal(err)
	}
	release := func(v rendezvous.Value, _ rendezvous.Args, _ error) { v.Tensor.Release() }
	var err error
	for name, pair := range map[string]func(k rendezvous.Key){
		"Send, Recv": func(k rendezvous.Key) { err = sendRecv(b, k, x) },
		"Send, RecvAsync": func(k rendezvous.Key) {
			err = b.Send(k, rendezvous.Args{}, x, false)
			b.RecvAsync(context.Background(), k, rendezvous.Args{}, release)
		},
		"RecvAsync, Send": func(k rendezvous.Key) {
			b.RecvAsync(context.Background(), k, rendezvous.Args{}, release)
			err = b.Send(k, rendezvous.Args{}, x, false)
		},
	} {
		i := 0
		if n := testing.AllocsPerRun(1000, func() { pair(keys[i%64]); i++ }); n != 0 || err != nil {
			t.Errorf("%s: %v allocations, %v", name, n, err)
		}
	}
}

// BenchmarkWaiting reports the memory of a key that waits, beside its text:
// one value, one receive, one receive with a cancellable context.
func BenchmarkWaiting(b *testing.B) {
	const n = 100_000
	keys := make([]rendezvous.Key, n)
	for i := range keys {
		keys[i] = key(b, fmt.Sprintf("edge_%06d_of_a_name_", i)+"xxxxxxxxxxx")
	}
	x := benchTensor(b)
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	nop := func(v rendezvous.Value, _ rendezvous.Args, err error) {
		if err == nil {
			v.Tensor.Release()
		}
	}
	for _, c := range []struct {
		name string
		put  func(l *rendezvous.Local, k rendezvous.Key)
	}{
		{"value", func(l *rendezvous.Local, k rendezvous.Key) { _ = l.Send(k, rendezvous.Args{}, x, false) }},
		{"receive", func(l *rendezvous.Local, k rendezvous.Key) {
			l.RecvAsync(context.Background(), k, rendezvous.Args{}, nop)
		}},
		{"cancellable-receive", func(l *rendezvous.Local, k rendezvous.Key) { l.RecvAsync(ctx, k, rendezvous.Args{}, nop) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			var bytes uint64
			for b.Loop() {
				l := rendezvous.NewLocal()
				before := heap()
				for _, k := range keys {
					c.put(l, k)
				}
				bytes = heap() - before
				l.Close()
			}
			b.ReportMetric(float64(bytes)/n, "B/key")
		})
	}
	b.Run("empty-step", func(b *testing.B) {
		const steps = 1000
		var bytes uint64
		for b.Loop() {
			kept := make([]*rendezvous.BaseRemote, steps)
			before := heap()
			for i := range kept {
				kept[i] = rendezvous.NewBaseRemote(int64(i), nil)
			}
			bytes = heap() - before
			runtime.KeepAlive(kept)
		}
		b.ReportMetric(float64(bytes)/steps, "B/step")
	})
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
