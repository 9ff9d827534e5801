package server

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
)

// TestEndStepThenCloseEndsReceivesAtOnce: a program that ends its step and then its server, as
// deferred calls do, while its peer is taking values. The peer's receives end with Aborted, and do
// not wait for the peer timeout. A receive that begins after the step has ended may reach nobody.
func TestEndStepThenCloseEndsReceivesAtOnce(t *testing.T) {
	t.Run("grpc", func(t *testing.T) {
		at := twoPlaces(t)
		b := start(t, at(1), Options{})
		a, err := Start(t.Context(), at(0), Options{Allocator: tensortest.NewAllocator(t)})
		if err != nil {
			t.Fatal(err)
		}
		endStepThenClose(t, a, b)
	})
	t.Run("roce", func(t *testing.T) {
		needsLoopback(t, "127.0.0.1")
		w := newVerbsTown(t, 2)
		var both [2]*VerbsServer
		for i := range both {
			v, err := StartVerbs(t.Context(), w.settings(i, func(c *Config) { c.Provider, c.RDMA.Timeout = "roce", 0 }), Options{Allocator: tensortest.NewAllocator(t)})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = v.Close(context.Background()) }) // the error is not what the test is about
			both[i] = v
		}
		w.up(both[0], both[1].Task())
		w.up(both[1], both[0].Task())
		endStepThenClose(t, both[0].Server, both[1].Server)
	})
}

func endStepThenClose(t *testing.T, a, b *Server) {
	const names, values = 4, 6
	x, err := tensor.Make[float32](tensor.Heap{}, 1<<18)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Release()
	name := func(i int) string { return string(rune('a' + i)) }
	type outcome struct {
		err  error
		late bool // it began after the step had ended
	}
	ends := make(chan outcome, names)
	var ended atomic.Bool
	var first sync.WaitGroup // receives that have had one value
	first.Add(names)
	for i := range names {
		go func() {
			for n := 0; ; n++ {
				got := b.recv(1, a.Task().String(), name(i))
				late := ended.Load() // it may have ended before this receive began
				o := <-got
				if o.err != nil {
					ends <- outcome{o.err, late}
					return
				}
				if n == 0 {
					first.Done()
				}
				o.v.Tensor.Release()
			}
		}()
	}
	for range values {
		for i := range names {
			if err := a.Send(1, b.Task().String(), name(i), x, false); err != nil {
				t.Fatal(err)
			}
		}
	}
	first.Wait()
	begin := time.Now()
	ended.Store(true)
	a.EndStep(1)
	if err := a.Close(context.WithoutCancel(t.Context())); err != nil {
		t.Errorf("Close: %v", err)
	}
	for range names {
		end := wait(t, ends, "a receive")
		if code := status.CodeOf(end.err); code != status.Aborted && (!end.late || code != status.Unavailable) {
			t.Errorf("a receive ended after %v with %v, want Aborted at once", time.Since(begin), end.err)
		}
	}
}
