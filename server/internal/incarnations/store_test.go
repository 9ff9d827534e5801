package incarnations

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/status"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// wantError checks the code of an error, and that it has some texts.
func wantError(t *testing.T, err error, code status.Code, texts ...string) {
	t.Helper()
	if status.CodeOf(err) != code {
		t.Errorf("got %v, want code %v", err, code)
		return
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%q does not say %q", err, text)
		}
	}
}

// waitTest is a store of incarnations with one device, whose requests the test answers.
type waitTest struct {
	known store
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
func (w *waitTest) wait(ctx context.Context, done func(uint64, error)) *wait {
	r := &wait{known: &w.known, device: w.d, timeout: 10 * time.Second, done: done}
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

// TestFinalAnswerEndsThoseThatWaitedBefore the request: those that came later share another one, since the answer may be
// older than they are. The next receive requests again.
func TestFinalAnswerEndsThoseThatWaitedBefore(t *testing.T) {
	inWaitTest(t, func(t *testing.T, w *waitTest) {
		left, answers := status.New(status.Aborted, "has left"), make(chan error)
		w.answer = func(context.Context) (uint64, bool, error) {
			err := <-answers
			return 7, false, err
		}
		var ends []string
		wait := func(name string) {
			w.wait(t.Context(), func(n uint64, err error) { ends = append(ends, fmt.Sprint(name, " ", n, " ", status.CodeOf(err))) })
			synctest.Wait()
		}
		wait("first")
		wait("second")
		wait("third")
		answers <- left
		synctest.Wait()
		wait("fourth")
		answers <- left
		synctest.Wait()
		answers <- nil
		w.finish()
		want := []string{"first 0 Aborted", "second 0 Aborted", "third 0 Aborted", "fourth 7 OK"}
		if !slices.Equal(ends, want) || len(w.asked) != 3 {
			t.Errorf("%v after %d requests, want %v", ends, len(w.asked), want)
		}
		wait("next")
		if len(ends) != 5 || len(w.asked) != 3 {
			t.Errorf("%v after %d requests, want the known incarnation", ends, len(w.asked))
		}
	})
}
