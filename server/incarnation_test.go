package server

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/internal/transporttest"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
)

// TestEndOfAStepEndsAReceiveFromAnUnknownPeer at once, while the peer is looked for.
func TestEndOfAStepEndsAReceiveFromAnUnknownPeer(t *testing.T) {
	boom := status.New(status.DataLoss, "boom")
	for name, c := range map[string]struct {
		end  func(s *Server)
		want status.Code
	}{
		"abort": {func(s *Server) { s.AbortStep(1, boom) }, status.DataLoss},
		"end":   {func(s *Server) { s.EndStep(1) }, status.Aborted},
		"close": {func(s *Server) {
			if err := s.Close(context.Background()); err != nil {
				t.Error(err)
			}
		}, status.Aborted},
	} {
		t.Run(name, func(t *testing.T) {
			eachWay(t, func(t *testing.T, recv recvFunc) {
				at := twoPlaces(t, func(c *config.Config) { c.PeerTimeout = time.Hour })
				b := start(t, at(1), Options{})
				o := recv(b, 1, "/job:worker/task:0", "x")
				other := recv(b, 2, "/job:worker/task:0", "x")
				c.end(b)
				wantError(t, wait(t, o, "the receive").err, c.want)
				if name != "close" {
					b.EndStep(2)
				}
				wantError(t, wait(t, other, "the receive of another step").err, status.Aborted)
			})
		})
	}
}

// TestReceiveFromAnUnknownPeerEndsWithItsContext, and says so.
func TestReceiveFromAnUnknownPeerEndsWithItsContext(t *testing.T) {
	at := twoPlaces(t, func(c *config.Config) { c.PeerTimeout = time.Hour })
	b := start(t, at(1), Options{})
	for want, context := range map[status.Code]func() (context.Context, context.CancelFunc){
		status.DeadlineExceeded: func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(context.Background(), 50*time.Millisecond)
		},
		status.Cancelled: func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(context.Background())
			time.AfterFunc(50*time.Millisecond, cancel)
			return ctx, cancel
		},
	} {
		ctx, cancel := context()
		_, err := b.Recv(ctx, 1, "/job:worker/task:0", "x")
		wantError(t, err, want)
		c := make(chan outcome, 1)
		ctx, cancelToo := context()
		b.RecvAsync(ctx, 1, "/job:worker/task:0", "x", func(v rendezvous.Value, err error) { c <- outcome{v, err} })
		wantError(t, wait(t, c, "the receive").err, want)
		cancel()
		cancelToo()
	}
}

// TestPeerThatVerbsReachesIsKnownWithoutTCP: the first receive from it, and those after a
// step was aborted, need no other way than the channel.
func TestPeerThatVerbsReachesIsKnownWithoutTCP(t *testing.T) {
	w := newVerbsTown(t, 2)
	proxy := transporttest.NewProxy(t)
	listens, _ := w.spec.Address(cluster.Task{Job: "worker", Index: 0})
	other, _ := w.spec.Address(cluster.Task{Job: "worker", Index: 1})
	spec, err := cluster.SpecFromLists(map[string][]string{"worker": {proxy.Addr(), other}})
	if err != nil {
		t.Fatal(err)
	}
	w.spec = spec
	quick := func(c *config.Config) { c.PeerTimeout = time.Second }
	a := w.start(0, quick, func(c *config.Config) { c.Listen = listens })
	proxy.SetTarget(a.Addr().String())
	b := w.start(1, quick)
	w.up(b, a.Task())
	proxy.SetTarget("")
	wait(t, proxy.CutAfter(0), "the cut")
	w.exchange(1, a, b, 1)
	o := b.recv(2, a.Task().String(), "y")
	a.AbortStep(2, status.New(status.Aborted, "the step is over"))
	wantError(t, wait(t, o, "the receive of a step that was aborted").err, status.Aborted, "the step is over")
	w.exchange(3, a, b, 3)
	o = b.recv(4, a.Task().String(), "y")
	b.AbortStep(4, nil)
	wantError(t, wait(t, o, "the receive of a step that was aborted here").err, status.Aborted)
	w.exchange(5, a, b, 5)
}

// restarted is a pair of tasks, of which task 0 is started again and again.
type restarted struct {
	t    *testing.T
	at   func(i int) config.Config
	a, b *Server
	recv recvFunc
}

func newRestarted(t *testing.T, recv recvFunc, change ...func(*config.Config)) *restarted {
	r := &restarted{t: t, at: twoPlaces(t, change...), recv: recv}
	r.b = start(t, r.at(1), Options{})
	r.startPeer()
	return r
}

// startPeer starts a new process of task 0.
func (r *restarted) startPeer() {
	r.t.Helper()
	a, err := Start(r.t.Context(), r.at(0), Options{Allocator: tensortest.NewAllocator(r.t)})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(r.stopPeerOf(a))
	r.a = a
}

func (r *restarted) stopPeerOf(a *Server) func() {
	return func() {
		if err := a.Close(context.Background()); err != nil {
			r.t.Errorf("Close: %v", err)
		}
	}
}

func (r *restarted) stopPeer() {
	r.t.Helper()
	r.stopPeerOf(r.a)()
}

// receive receives x from task 0. Task 0 sends it if send is set.
func (r *restarted) receive(step int64, send bool) <-chan outcome {
	r.t.Helper()
	o := r.recv(r.b, step, "/job:worker/task:0", "x")
	if send {
		x := float(r.t, float32(step))
		defer x.Release()
		if err := r.a.Send(step, r.b.Task().String(), "x", x, false); err != nil {
			r.t.Fatal(err)
		}
	}
	return o
}

// works receives a value from task 0.
func (r *restarted) works(step int64, what string) {
	r.t.Helper()
	wantFloat(r.t, wait(r.t, r.receive(step, true), what), float32(step))
}

// TestFirstReceiveAfterARestartWorks, whatever the last receive from the earlier process ended
// with: the incarnation is requested again.
func TestFirstReceiveAfterARestartWorks(t *testing.T) {
	// Only one case waits for the peer timeout. It is long enough for a busy machine to connect in, since
	// the receives that have to work end with it, too.
	timeoutOf := map[string]time.Duration{"not reached": 3 * time.Second}
	for name, between := range map[string]func(r *restarted){
		"without an error": func(r *restarted) { r.stopPeer() },
		"stopped while a receive waited": func(r *restarted) {
			o := r.receive(2, false)
			r.until("the request waits", func() bool { return r.a.cache.Stats().Waiting > 0 })
			r.stopPeer()
			wantError(r.t, wait(r.t, o, "the receive").err, status.Aborted, "Shutdown")
		},
		"not reached": func(r *restarted) {
			r.stopPeer()
			wantError(r.t, wait(r.t, r.receive(2, false), "the receive").err, status.Unavailable)
		},
		"step aborted by the peer": func(r *restarted) {
			o := r.receive(2, false)
			r.a.AbortStep(2, status.New(status.Internal, "boom"))
			wantError(r.t, wait(r.t, o, "the receive").err, status.Internal, "boom")
			r.stopPeer()
		},
		"deadline": func(r *restarted) {
			r.stopPeer()
			ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
			defer cancel()
			_, err := r.b.Recv(ctx, 2, "/job:worker/task:0", "x")
			wantError(r.t, err, status.DeadlineExceeded)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachWay(t, func(t *testing.T, recv recvFunc) {
				timeout := cmp.Or(timeoutOf[name], time.Hour)
				r := newRestarted(t, recv, func(c *config.Config) { c.PeerTimeout = timeout })
				r.works(1, "a receive from the first process")
				between(r)
				first := r.a.Incarnation()
				r.startPeer()
				if r.a.Incarnation() == first {
					t.Fatal("two processes have one incarnation")
				}
				r.works(3, "the first receive after the restart")
				r.works(4, "the second receive after the restart")
			})
		})
	}
}

func (r *restarted) until(what string, is func() bool) {
	r.t.Helper()
	ticks := time.NewTicker(5 * time.Millisecond)
	defer ticks.Stop()
	for end := time.Now().Add(soon); !is(); <-ticks.C {
		if time.Now().After(end) {
			r.t.Fatalf("%s: not within %v", what, soon)
		}
	}
}

// TestFirstReceiveAfterARestartOverVerbs: the same when a channel connects the two.
func TestFirstReceiveAfterARestartOverVerbs(t *testing.T) {
	w := newVerbsTown(t, 2)
	b, a := w.start(1), w.start(0)
	w.up(b, a.Task())
	w.exchange(1, a, b, 1)
	if err := a.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	again := w.start(0)
	w.exchange(2, again, b, 2)
	w.exchange(3, again, b, 3)
}

// waitTest is a store of incarnations with one device, whose requests the test answers.
type waitTest struct {
	known incarnations
	d     cluster.Device
	asked []context.Context
	// answer returns what a request ends with; nil waits for the end of its context.
	answer func(context.Context) (uint64, bool, error)
	runs   sync.WaitGroup
}

func (w *waitTest) ask(ctx context.Context, _ cluster.Device) (uint64, bool, error) {
	w.asked = append(w.asked, ctx)
	if w.answer != nil {
		return w.answer(ctx)
	}
	<-ctx.Done()
	return 0, true, status.New(status.Unavailable, "nobody answers")
}

// wait makes a receive wait, and returns what it ends with.
func (w *waitTest) wait(ctx context.Context, done func(uint64, error)) *incarnationWait {
	r := &incarnationWait{known: &w.known, device: w.d, timeout: 10 * time.Second, done: done}
	n, ok, run := w.known.wait(ctx, r)
	if ok {
		done(n, nil)
		return r
	}
	if run != nil {
		w.runs.Go(func() { run(w.ask) })
	}
	r.watch(ctx)
	return r
}

// finish waits until no request runs and each receive has ended.
func (w *waitTest) finish() {
	w.runs.Wait()
	synctest.Wait()
}

// inWaitTest runs a test on virtual time.
func inWaitTest(t *testing.T, test func(t *testing.T, w *waitTest)) {
	synctest.Test(t, func(t *testing.T) {
		w := &waitTest{d: cluster.DeviceOf(cluster.Task{Job: "worker"})}
		test(t, w)
		w.finish()
	})
}

// TestReceivesShareARequestForAnIncarnation: after an error thousands of receives may need the
// incarnation of one device. One request is made for them, and it ends when none of them waits.
func TestReceivesShareARequestForAnIncarnation(t *testing.T) {
	inWaitTest(t, func(t *testing.T, w *waitTest) {
		answer := make(chan uint64)
		w.answer = func(ctx context.Context) (uint64, bool, error) {
			select {
			case n := <-answer:
				return n, false, nil
			case <-ctx.Done():
				return 0, true, ctx.Err()
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		got := 0
		var ended atomic.Int32 // the ends of contexts run at once
		count := func(_ uint64, err error) {
			wantError(t, err, status.Cancelled)
			ended.Add(1)
		}
		w.wait(ctx, count)
		for range 1000 {
			w.wait(t.Context(), func(n uint64, err error) {
				if n != 7 || err != nil {
					t.Error(n, err)
				}
				got++
			})
		}
		synctest.Wait()
		cancel() // of the first one, which started the request
		synctest.Wait()
		if len(w.asked) != 1 || ended.Load() != 1 || w.asked[0].Err() != nil {
			t.Fatalf("%d requests, %d receives have ended, the request has: %v", len(w.asked), ended.Load(), w.asked[0].Err())
		}
		answer <- 7
		w.finish()
		if got != 1000 {
			t.Errorf("%d receives got the answer", got)
		}
		w.known.suspect(w.d, 6) // of an earlier process
		if n, ok := w.known.known(w.d); n != 7 || !ok {
			t.Errorf("the incarnation is %d, known: %v", n, ok)
		}
		w.known.suspect(w.d, 7)
		if _, ok := w.known.known(w.d); ok {
			t.Error("a suspect incarnation is used")
		}
		ctx, cancel = context.WithCancel(t.Context())
		w.wait(ctx, count)
		w.wait(ctx, count)
		synctest.Wait()
		cancel()
		synctest.Wait()
		if len(w.asked) != 2 || ended.Load() != 3 || w.asked[1].Err() == nil || len(w.known.requests) != 0 {
			t.Errorf("%d requests, %d receives have ended, %d requests remain", len(w.asked), ended.Load(), len(w.known.requests))
		}
	})
}

// TestReceivesThatWaitForAnIncarnationKeepTheirOrder: receives of one key start in the order of
// their calls. One that is made while others start is behind them.
func TestReceivesThatWaitForAnIncarnationKeepTheirOrder(t *testing.T) {
	inWaitTest(t, func(t *testing.T, w *waitTest) {
		w.answer = func(context.Context) (uint64, bool, error) {
			time.Sleep(time.Second)
			return 7, false, nil
		}
		var order []int
		for i := range 100 {
			w.wait(t.Context(), func(uint64, error) {
				if i == 0 {
					if _, ok := w.known.known(w.d); ok {
						t.Error("a later receive would start at once")
					}
					w.wait(t.Context(), func(uint64, error) { order = append(order, 100) })
				}
				order = append(order, i)
			})
		}
		w.finish()
		if n, ok := w.known.known(w.d); !slices.IsSorted(order) || len(order) != 101 || n != 7 || !ok {
			t.Errorf("the order is %v; the incarnation is %d, known: %v", order, n, ok)
		}
	})
}

// TestReceiveWaitsForItsOwnPeerTimeout, not for what is left of that of an earlier one.
func TestReceiveWaitsForItsOwnPeerTimeout(t *testing.T) {
	for name, answer := range map[string]func(context.Context) (uint64, bool, error){
		"requests fail at once": func(context.Context) (uint64, bool, error) {
			return 0, true, status.New(status.Unavailable, "nobody answers")
		},
		"requests wait": nil,
	} {
		t.Run(name, func(t *testing.T) {
			inWaitTest(t, func(t *testing.T, w *waitTest) {
				w.answer = answer
				start := time.Now()
				var took [3]time.Duration
				for i := range took {
					w.wait(t.Context(), func(_ uint64, err error) {
						took[i] = time.Since(start)
						wantError(t, err, status.Unavailable, "not reached for 10s", "nobody answers")
					})
					time.Sleep(3 * time.Second)
				}
				w.finish()
				if want := [3]time.Duration{10 * time.Second, 13 * time.Second, 16 * time.Second}; took != want {
					t.Errorf("the receives ended after %v, want %v", took, want)
				}
				if len(w.known.requests) != 0 {
					t.Error("the request remains")
				}
			})
		})
	}
}

// TestLaterReceiveGetsAnAnswerAfterAnEarlierOneHasEnded.
func TestLaterReceiveGetsAnAnswerAfterAnEarlierOneHasEnded(t *testing.T) {
	inWaitTest(t, func(t *testing.T, w *waitTest) {
		up := time.Now().Add(12 * time.Second)
		w.answer = func(context.Context) (uint64, bool, error) {
			if time.Now().Before(up) {
				return 0, true, status.New(status.Unavailable, "nobody answers")
			}
			return 7, false, nil
		}
		w.wait(t.Context(), func(_ uint64, err error) { wantError(t, err, status.Unavailable) })
		time.Sleep(9 * time.Second)
		w.wait(t.Context(), func(n uint64, err error) {
			if n != 7 || err != nil {
				t.Error(n, err)
			}
		})
	})
}

// TestReceivesThatTimeOutDoNotCutRequestsShort: a peer that comes back answers after a while, and
// until then a receive times out each 10 ms.
func TestReceivesThatTimeOutDoNotCutRequestsShort(t *testing.T) {
	inWaitTest(t, func(t *testing.T, w *waitTest) {
		up, answered := time.Now().Add(12*time.Second), 0
		w.answer = func(ctx context.Context) (uint64, bool, error) {
			select {
			case <-time.After(max(time.Until(up), 50*time.Millisecond)):
				return 7, false, nil
			case <-ctx.Done():
				return 0, true, status.New(status.Unavailable, "nobody answers")
			}
		}
		for range 1500 {
			w.wait(t.Context(), func(n uint64, err error) {
				if err == nil {
					answered++
				}
			})
			time.Sleep(10 * time.Millisecond)
		}
		w.finish()
		if answered < 1000 {
			t.Errorf("%d receives of 1500 got an answer", answered)
		}
	})
}

// TestAnswerThatIsFinalEndsAllThatWait, and the next receive requests again.
func TestAnswerThatIsFinalEndsAllThatWait(t *testing.T) {
	inWaitTest(t, func(t *testing.T, w *waitTest) {
		w.answer = func(context.Context) (uint64, bool, error) {
			return 0, false, status.New(status.NotFound, "no such device")
		}
		var ended atomic.Int32
		for range 3 {
			w.wait(t.Context(), func(_ uint64, err error) {
				wantError(t, err, status.NotFound)
				ended.Add(1)
			})
		}
		w.finish()
		w.wait(t.Context(), func(_ uint64, err error) { wantError(t, err, status.NotFound) })
		w.finish()
		if ended.Load() != 3 || len(w.asked) != 2 {
			t.Errorf("%d receives have ended after %d requests", ended.Load(), len(w.asked))
		}
	})
}

// TestReceiveThatFailsForThisSidesReasonsKeepsTheIncarnation: the peer has not been restarted, so the
// next receive need not request its incarnation.
func TestReceiveThatFailsForThisSidesReasonsKeepsTheIncarnation(t *testing.T) {
	a, b := twoTasks(t)
	from := a.Task().String()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	late, stop := context.WithDeadline(t.Context(), time.Unix(1, 0))
	defer stop()
	known := func(what string, want bool) {
		t.Helper()
		if _, ok := b.known(a.Device()); ok != want {
			t.Errorf("%s: the incarnation is known: %v, want %v", what, ok, want)
		}
	}
	learn := func() {
		b.devices.m = map[cluster.Device]incarnation{a.Device(): {n: a.Incarnation()}}
	}
	learn()
	for what, ctx := range map[string]context.Context{"cancelled": ctx, "late": late} {
		_, err := b.Recv(ctx, 1, from, "x")
		wantError(t, err, status.CodeOf(ctx.Err()))
		known("Recv "+what, true)
		o := make(chan outcome, 1)
		b.RecvAsync(ctx, 1, from, "x", func(v rendezvous.Value, err error) { o <- outcome{v, err} })
		wantError(t, wait(t, o, "the receive").err, status.CodeOf(ctx.Err()))
		known("RecvAsync "+what, true)
	}
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, true},
		{status.New(status.ResourceExhausted, "no memory"), true},
		{status.New(status.DataLoss, "the value was dropped"), true},
		{status.New(status.InvalidArgument, "it does not fit the memory"), true},
		{status.New(status.FailedPrecondition, "the memory is in use"), true},
		{status.New(status.Cancelled, "the peer cancelled"), false},
		{status.New(status.Unavailable, "not reached"), false},
	} {
		learn()
		b.noteResult(t.Context(), 1, a.Device(), a.Incarnation(), c.err)
		known(fmt.Sprint(c.err), c.want)
	}
	learn()
	dst := float(t, 0)
	defer dst.Release()
	dst.Retain()
	_, err := b.RecvInto(t.Context(), 1, from, "x", dst)
	wantError(t, err, status.FailedPrecondition)
	known("RecvInto memory in use", true)
	dst.Release()
	other, err := tensor.FromBytes(tensor.Uint8, tensor.Vector(1), []byte{1})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Release()
	if err := a.Send(1, b.Task().String(), "x", other, false); err != nil {
		t.Fatal(err)
	}
	_, err = b.RecvInto(t.Context(), 1, from, "x", dst)
	wantError(t, err, status.InvalidArgument)
	known("RecvInto memory of another type", true)
	b.EndStep(1)
	b.noteResult(t.Context(), 1, a.Device(), a.Incarnation(), status.New(status.Aborted, "Cleanup 1"))
	known("the step has ended", true)
}
