package overview

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
)

// watched is a Watch of one peer, which answers its probes at once until it is stopped.
type watched struct {
	*Watch
	probes  atomic.Int64
	stopped atomic.Pointer[chan struct{}] // closed when it continues
}

func startWatched(t *testing.T) *watched {
	w := new(watched)
	w.Watch = StartWatch(WatchOptions{
		Signs: func() []Sign { return []Sign{{Peer: peerTask(1)}} },
		Probe: func(ctx context.Context, _ cluster.Task, sent func()) error {
			w.probes.Add(1)
			sent()
			if c := w.stopped.Load(); c != nil {
				select {
				case <-*c:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			return nil
		},
	})
	t.Cleanup(w.Close)
	return w
}

// TestPeersAreProbedWhileSomebodyReads: and not without a reader.
func TestPeersAreProbedWhileSomebodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := startWatched(t)
		time.Sleep(time.Hour)
		if n := w.probes.Load(); n > 0 {
			t.Fatalf("%d probes without a reader", n)
		}
		for range 10 {
			begin := time.Now()
			if w.Read(t.Context()); time.Since(begin) > 0 {
				t.Errorf("a reader waits for %v", time.Since(begin))
			}
			time.Sleep(time.Second)
		}
		during := w.probes.Load()
		if during < 10 || during > 30 {
			t.Errorf("%d probes in 10 s", during)
		}
		time.Sleep(time.Hour)
		if n := w.probes.Load() - during; n > 10 {
			t.Errorf("%d probes after the last reader", n)
		}
		if len(w.Silent()) > 0 {
			t.Error("silent")
		}
	})
}

// TestTheFirstReaderSeesWhoIsSilent: it waits for the answers, for a bounded time, and others do not wait after it.
func TestTheFirstReaderSeesWhoIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := startWatched(t)
		goOn := make(chan struct{})
		w.stopped.Store(&goOn)
		begin := time.Now()
		w.Read(t.Context())
		if took := time.Since(begin); took > firstWait || len(w.Silent()) != 1 {
			t.Errorf("%v are silent after %v", w.Silent(), took)
		}
		begin = time.Now()
		if w.Read(t.Context()); time.Since(begin) > 0 {
			t.Error("the second reader waits")
		}
		changed, at := w.Changed(), w.ChangedAt()
		w.stopped.Store(nil)
		close(goOn)
		<-changed
		if took := time.Since(begin); took > lookInterval || len(w.Silent()) > 0 || !w.ChangedAt().After(at) {
			t.Errorf("%v are silent %v after the answer", w.Silent(), took)
		}
	})
}

// TestStoppedPeerIsTold: the channel of Changed is closed in time for readers who wait for it, and Close ends a probe that is not
// answered.
func TestStoppedPeerIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := startWatched(t)
		for range 3 {
			w.Read(t.Context())
			time.Sleep(time.Second)
		}
		goOn := make(chan struct{})
		w.stopped.Store(&goOn)
		begin := time.Now()
		<-w.Changed()
		if took := time.Since(begin); took > 1200*time.Millisecond || len(w.Silent()) != 1 {
			t.Errorf("told after %v", took)
		}
		w.Close()
		w.Close()
		w.Read(t.Context()) // does not wait
		(*Watch)(nil).Read(t.Context())
		(*Watch)(nil).Close()
		if (*Watch)(nil).Silent() != nil || (*Watch)(nil).Changed() != nil {
			t.Error("a Watch without peers has some")
		}
	})
}

// TestAReaderNeverWaitsForLong: whatever the looks do, while a peer does not answer, and after that the next reader.
func TestAReaderNeverWaitsForLong(t *testing.T) {
	for name, signs := range map[string]func(look int) []Sign{
		"this process is stopped in the first look":  func(look int) []Sign { return lateIf(look == 1, lookFor+time.Second) },
		"this process is stopped in the second look": func(look int) []Sign { return lateIf(look == 2, lookFor+time.Second) },
		"looks take long": func(int) []Sign { return lateIf(true, lookFor/6+time.Millisecond) },
		"looks never end": func(int) []Sign { return lateIf(true, time.Hour) },
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { readersReturn(t, signs) }) })
	}
}

// lateIf returns the sign of one peer, after a time if so.
func lateIf(late bool, d time.Duration) []Sign {
	if late {
		time.Sleep(d) // virtual time
	}
	return []Sign{{Peer: peerTask(1)}}
}

func readersReturn(t *testing.T, signs func(look int) []Sign) {
	var look atomic.Int64
	w := StartWatch(WatchOptions{
		Signs: func() []Sign { return signs(int(look.Add(1))) },
		Probe: func(ctx context.Context, _ cluster.Task, _ func()) error { <-ctx.Done(); return ctx.Err() },
	})
	defer w.Close()
	for pause := range 40 {
		begin := time.Now()
		if w.Read(t.Context()); time.Since(begin) > firstWait {
			t.Errorf("reader %d waits for %v", pause, time.Since(begin))
		}
		time.Sleep(time.Duration(pause) * lookInterval / 2) // virtual time
	}
}

// TestAReaderThatLeavesDoesNotWait: its request has ended.
func TestAReaderThatLeavesDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := startWatched(t)
		goOn := make(chan struct{})
		w.stopped.Store(&goOn)
		ctx, cancel := context.WithTimeout(t.Context(), lookInterval)
		defer cancel()
		begin := time.Now()
		if w.Read(ctx); time.Since(begin) != lookInterval {
			t.Errorf("it waits for %v", time.Since(begin))
		}
	})
}

// TestTheFirstReaderSeesEverySilentPeer of as many as can be asked in its time, not only of those that are asked at once.
func TestTheFirstReaderSeesEverySilentPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const peers = 3 * maxProbes
		w := StartWatch(WatchOptions{
			Signs: func() (all []Sign) {
				for i := range peers {
					all = append(all, Sign{Peer: peerTask(i)})
				}
				return all
			},
			Probe: func(ctx context.Context, p cluster.Task, sent func()) error {
				sent()
				if p.Index%50 == 49 || p.Index == peers-1 {
					<-ctx.Done()
					return ctx.Err()
				}
				return nil
			},
		})
		defer w.Close()
		w.Read(t.Context())
		if got := len(w.Silent()); got != peers/50+1 {
			t.Errorf("%d are silent", got)
		}
	})
}

// TestNobodyWaitsForAPeerThatCannotBeAsked: its connection allows no more calls.
func TestNobodyWaitsForAPeerThatCannotBeAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := StartWatch(WatchOptions{
			Signs: func() []Sign { return []Sign{{Peer: peerTask(1)}} },
			Probe: func(ctx context.Context, _ cluster.Task, _ func()) error { <-ctx.Done(); return ctx.Err() },
		})
		defer w.Close()
		for range 3 {
			begin := time.Now()
			if w.Read(t.Context()); time.Since(begin) > 2*lookInterval {
				t.Errorf("a reader waits for %v", time.Since(begin))
			}
			time.Sleep(2 * lookFor) // virtual time
		}
	})
}
