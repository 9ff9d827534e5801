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

// lockedMap is the yardstick: what the same keys cost in a plain map.
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
