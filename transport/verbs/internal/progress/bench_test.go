package progress

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
)

// One waiter in turn with a peer on another processor, through memory in place of
// a network: what waiting adds to a round trip, mode by mode. bare polls in a loop.
func BenchmarkPingPong(b *testing.B) {
	peer := func(b *testing.B, cq *fakeCQ) (ask func()) {
		var asked, end atomic.Bool
		done := make(chan struct{})
		go func() {
			defer close(done)
			for n := 1; !end.Load(); n++ {
				if asked.Load() {
					asked.Store(false)
					cq.complete(1)
				}
				if n%1024 == 0 {
					runtime.Gosched()
				}
			}
		}()
		b.Cleanup(func() { end.Store(true); <-done })
		return func() { asked.Store(true) }
	}
	b.Run("bare", func(b *testing.B) {
		cq := newFakeCQ()
		ask := peer(b, cq)
		wcs := make([]verbs.WC, 64)
		b.ReportAllocs()
		for b.Loop() {
			ask()
			for n := 1; ; n++ {
				if got, _ := cq.Poll(wcs); got > 0 {
					break
				}
				if n%checkEvery == 0 {
					runtime.Gosched()
				}
			}
		}
	})
	for _, mode := range allModes {
		b.Run(mode.String(), func(b *testing.B) {
			cq := newFakeCQ()
			ask := peer(b, cq)
			var w *Waiter
			q := Start(Config{CQ: cq, Mode: mode, Handle: func([]verbs.WC, time.Time) { w.Done() }})
			w = q.NewWaiter()
			b.ReportAllocs()
			for b.Loop() {
				ask()
				if err := w.Wait(b.Context()); err != nil {
					b.Fatal(err)
				}
				w.Reset()
			}
			b.StopTimer()
			s := q.Stats()
			b.ReportMetric(float64(s.Polls)/float64(b.N), "polls/op")
			b.ReportMetric(float64(s.Wakeups)/float64(b.N), "wakeups/op")
			b.ReportMetric(float64(s.Parks)/float64(b.N), "parks/op")
			if err := q.Stop(); err != nil {
				b.Error(err)
			}
		})
	}
}

// The cost of a wait whose completion is there already.
func BenchmarkWaitReady(b *testing.B) {
	for _, mode := range allModes {
		b.Run(mode.String(), func(b *testing.B) {
			cq := newFakeCQ()
			var w *Waiter
			q := Start(Config{CQ: cq, Mode: mode, Handle: func([]verbs.WC, time.Time) { w.Done() }})
			w = q.NewWaiter()
			b.ReportAllocs()
			for b.Loop() {
				cq.complete(1)
				if err := w.Wait(b.Context()); err != nil {
					b.Fatal(err)
				}
				w.Reset()
			}
			b.StopTimer()
			if err := q.Stop(); err != nil {
				b.Error(err)
			}
		})
	}
}
