package delivery

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/transport"
)

var requester7 = transport.Process{Name: consumer, Incarnation: 7}

// answer asks and waits.
func answer(k *ResponseCache, a transport.Request) transport.Response {
	c := make(chan transport.Response, 1)
	k.ask(a, func(ans transport.Response) { c <- ans })
	return <-c
}

func TestCacheRemembersTenMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, source := newLeaks(t), newTable(t)
		k := NewResponseCache(source, CacheOptions{})
		request := transport.Request{Requester: requester7, ID: 1, Attempt: 2, Step: 1, Key: key(t, "k")}
		source.send(t, 1, request.Key, l.value(t, 'a', 1))
		answer(k, request).Value.Tensor.Release()
		k.Ack(requester7, []uint64{1})
		request.Attempt = 1
		time.Sleep(rememberFor - 2*time.Second)
		if ans := answer(k, request); status.CodeOf(ans.Err) != status.Aborted {
			t.Errorf("a late copy after 9 m 58 s: %v", ans.Err)
		}
		time.Sleep(3 * time.Second)
		source.send(t, 1, request.Key, l.value(t, 'b', 1))
		if ans := answer(k, request); ans.Err != nil {
			t.Errorf("after ten minutes: %v", ans.Err)
		} else {
			ans.Value.Tensor.Release()
		}
		k.Close()
	})
}

// The timer for old ids must not hold up what is due sooner.
func TestCacheGivesUpInTimeThoughIDsAreRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, source := newLeaks(t), newTable(t)
		k := NewResponseCache(source, CacheOptions{})
		down := k.Connected(requester7)
		if err := k.Cancel(requester7, []uint64{9}); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * time.Minute) // the timer has been set anew
		source.send(t, 1, key(t, "k"), l.value(t, 'a', 1))
		answer(k, transport.Request{Requester: requester7, ID: 1, Attempt: 1, Step: 1, Key: key(t, "k")}).Value.Tensor.Release()
		time.Sleep(10 * time.Second)
		down()
		time.Sleep(expireAfter - time.Second)
		if k.Stats().Kept != 1 {
			t.Error("given up before 60 s")
		}
		time.Sleep(2 * time.Second)
		if k.Stats().Kept != 0 {
			t.Error("not given up after 60 s")
		}
		if _, err := k.Value(requester7, 1, 1); status.CodeOf(err) != status.DataLoss {
			t.Errorf("Value: %v", err)
		}
		k.Close()
	})
}

func TestCacheValue(t *testing.T) {
	l, source := newLeaks(t), newTable(t)
	k := NewResponseCache(source, CacheOptions{})
	if _, err := k.Value(requester7, 1, 1); status.CodeOf(err) != status.Aborted {
		t.Error(err)
	}
	source.send(t, 1, key(t, "k"), l.value(t, 'a', 1))
	answer(k, transport.Request{Requester: requester7, ID: 1, Attempt: 1, Step: 1, Key: key(t, "k")}).Value.Tensor.Release()
	v, err := k.Value(requester7, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	k.Ack(requester7, []uint64{1})
	if v.Tensor.Bytes()[0] != 'a' {
		t.Error("the value went with the entry")
	}
	v.Tensor.Release()
	k.Close()
}

func TestCacheEndStep(t *testing.T) {
	l, source := newLeaks(t), newTable(t)
	k := NewResponseCache(source, CacheOptions{})
	source.send(t, 1, key(t, "k"), l.value(t, 'a', 1))
	answer(k, transport.Request{Requester: requester7, ID: 1, Attempt: 1, Step: 1, Key: key(t, "k")}).Value.Tensor.Release()
	waits := make(chan transport.Response, 1)
	k.ask(transport.Request{Requester: requester7, ID: 2, Attempt: 1, Step: 1, Key: key(t, "other")}, func(ans transport.Response) { waits <- ans })
	source.cleanup(1)
	k.EndStep(1)
	if ans := <-waits; status.CodeOf(ans.Err) != status.Aborted {
		t.Error(ans.Err)
	}
	if ans := answer(k, transport.Request{Requester: requester7, ID: 1, Attempt: 2, Step: 1, Key: key(t, "k")}); status.CodeOf(ans.Err) != status.Aborted {
		t.Errorf("asked again after the end: %v", ans.Err)
	}
	k.Close()
}

// A value that is matched to a receive which nobody wants any more goes back, or
// is released when its step has ended.
func TestCacheRestoresOrReleases(t *testing.T) {
	synctest.Test(t, keptRestoresOrReleases)
}

func keptRestoresOrReleases(t *testing.T) {
	l, source := newLeaks(t), newTable(t)
	k := NewResponseCache(source, CacheOptions{})
	for i, step := range []int64{1, 2} {
		a := transport.Request{Requester: requester7, ID: uint64(i + 1), Attempt: 1, Step: step, Key: key(t, "k")} //nolint:gosec // small
		source.send(t, step, a.Key, l.value(t, 'a', 1))
		answer(k, a).Value.Tensor.Release()
	}
	source.cleanup(2)
	if err := k.Cancel(requester7, []uint64{1, 2}); err != nil {
		t.Error(err)
	}
	synctest.Wait() // a goroutine notifies its owner
	if n := l.alive.Load(); n != 1 {
		t.Errorf("%d values are alive, want that of step 1", n)
	}
	if ans := answer(k, transport.Request{Requester: requester7, ID: 3, Attempt: 1, Step: 1, Key: key(t, "k")}); ans.Err != nil {
		t.Error(ans.Err)
	} else {
		ans.Value.Tensor.Release()
	}
	k.Close()
	k.Close()
	if ans := answer(k, transport.Request{Requester: requester7, ID: 4, Attempt: 1, Step: 1, Key: key(t, "k")}); status.CodeOf(ans.Err) != status.Aborted {
		t.Errorf("after Close: %v", ans.Err)
	}
}

// What is there when it is asked for is answered at once, and kept as any response: for the
// next attempt, until ACK, or until a cancel, when it goes back to the head of its key.
func TestCacheAnswersAtOnce(t *testing.T) {
	l, source := newLeaks(t), newTable(t)
	k := NewResponseCache(source, CacheOptions{})
	down := k.Connected(requester7)
	for i := range 3 {
		source.send(t, 1, key(t, "k"), l.value(t, byte('a'+i), 1))
	}
	ask := func(id uint64, attempt uint32, want string) {
		t.Helper()
		ans := answer(k, transport.Request{Requester: requester7, ID: id, Attempt: attempt, Step: 1, Key: key(t, "k")})
		if word(ans) != want {
			t.Errorf("receive %d, attempt %d: %s, want %s", id, attempt, word(ans), want)
		}
		if ans.Err == nil {
			ans.Value.Tensor.Release()
		}
	}
	ask(1, 1, "value a")
	ask(1, 2, "value a")
	ask(2, 1, "value b")
	if s := k.Stats(); s.Kept != 2 || s.Bytes != 2 || s.Waiting != 0 {
		t.Errorf("kept: %+v", s)
	}
	if err := k.Cancel(requester7, []uint64{1, 2}); err != nil { // they go back to their places
		t.Error(err)
	}
	ask(3, 1, "value a")
	ask(4, 1, "value b")
	ask(5, 1, "value c")
	ask(1, 3, "Aborted") // it was cancelled
	ask(2, 1, "Aborted")
	k.Ack(requester7, []uint64{3, 4})
	k.EndStep(1)
	if s := k.Stats(); s.Kept != 0 || s.Bytes != 0 {
		t.Errorf("kept after the end of the step: %+v", s)
	}
	down()
	k.Close()
}

// What is there and finds no room goes back to the head of its key; its receive waits for
// room and gets it, and those behind it get what is behind it.
func TestCacheAnswersAtOnceWithinItsLimits(t *testing.T) {
	l, source := newLeaks(t), newTable(t)
	k := NewResponseCache(source, CacheOptions{KeptPerRequester: 4096})
	down := k.Connected(requester7)
	source.send(t, 1, key(t, "first"), l.value(t, 'a', 3000))
	answer(k, transport.Request{Requester: requester7, ID: 1, Attempt: 1, Step: 1, Key: key(t, "first")}).Value.Tensor.Release()
	source.send(t, 1, key(t, "k"), l.value(t, 'b', 3000))
	source.send(t, 1, key(t, "k"), l.value(t, 'c', 1))
	var got [2]chan transport.Response
	for i := range got {
		got[i] = make(chan transport.Response, 1)
		k.ask(transport.Request{Requester: requester7, ID: uint64(i + 2), Attempt: 1, Step: 1, Key: key(t, "k")}, func(ans transport.Response) { got[i] <- ans }) //nolint:gosec // small
	}
	select {
	case ans := <-got[0]:
		t.Fatalf("%s, though there is no room for it", word(ans))
	case ans := <-got[1]:
		t.Fatalf("%s, before its turn", word(ans))
	default:
	}
	k.Ack(requester7, []uint64{1})
	for i, want := range []string{"value b", "value c"} {
		ans := <-got[i]
		if word(ans) != want {
			t.Errorf("receive %d: %s, want %s", i+2, word(ans), want)
		}
		ans.Value.Tensor.Release()
		k.Ack(requester7, []uint64{uint64(i + 2)}) //nolint:gosec // small
	}
	down()
	k.Close()
}

// heldValues is a table in which a receive has been matched, and its callback comes later.
type heldValues struct {
	*table
	held chan func() // callbacks, while they are held up
}

func (s *heldValues) RecvLocalAsync(ctx context.Context, step int64, k rendezvous.Key, done rendezvous.DoneFunc) {
	s.table.RecvLocalAsync(ctx, step, k, func(v rendezvous.Value, args rendezvous.Args, err error) {
		if s.held == nil {
			done(v, args, err)
			return
		}
		s.held <- func() { done(v, args, err) }
	})
}

// TestCacheCancelIsOverWhenItReturns: what was matched to the cancelled receives is back at the
// source then, also where a match is just being reported, or a receive is being taken back.
func TestCacheCancelIsOverWhenItReturns(t *testing.T) {
	for name, matched := range map[string]bool{"a match is being reported": true, "it is being taken back": false} {
		for _, detached := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				l, source := newLeaks(t), &heldValues{table: newTable(t), held: make(chan func(), 1)}
				k := NewResponseCache(source, CacheOptions{})
				values := []byte("ab")
				call := k.ask(transport.Request{Requester: requester7, ID: 1, Attempt: 1, Step: 1, Key: key(t, "k")}, func(ans transport.Response) {
					if ans.Err == nil {
						t.Errorf("%s: the receive was answered", name)
					}
				})
				if matched {
					source.send(t, 1, key(t, "k"), l.value(t, values[0], 1))
				}
				if detached {
					call.Detach()
				}
				over := make(chan struct{})
				go func() {
					defer close(over)
					if err := k.Cancel(requester7, []uint64{1}); err != nil {
						t.Error(err)
					}
				}()
				synctest.Wait()
				select {
				case <-over:
					t.Errorf("%s, detached %v: Cancel has returned before the end of the receive", name, detached)
				default:
				}
				report := <-source.held
				source.held = nil
				report()
				<-over
				if !matched {
					source.send(t, 1, key(t, "k"), l.value(t, values[0], 1))
				}
				source.send(t, 1, key(t, "k"), l.value(t, values[1], 1))
				for i, want := range values {
					ans := answer(k, transport.Request{Requester: requester7, ID: uint64(i + 2), Attempt: 1, Step: 1, Key: key(t, "k")}) //nolint:gosec // small
					if word(ans) != "value "+string(want) {
						t.Errorf("%s, detached %v: got %s, want value %c", name, detached, word(ans), want)
					}
					if ans.Err == nil {
						ans.Value.Tensor.Release()
					}
				}
				k.Ack(requester7, []uint64{2, 3})
				k.Close()
			})
		}
	}
}

// TestCacheAskWaitsForACancelThatHasBegun, of the same requester.
func TestCacheAskWaitsForACancelThatHasBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, source := newLeaks(t), newTable(t)
		k := NewResponseCache(source, CacheOptions{})
		ask := func(requester transport.Process, id uint64, name string) transport.Response {
			return answer(k, transport.Request{Requester: requester, ID: id, Attempt: 1, Step: 1, Key: key(t, name)})
		}
		for _, b := range []byte("ab") {
			source.send(t, 1, key(t, "k"), l.value(t, b, 1))
		}
		source.send(t, 1, key(t, "other"), l.value(t, 'c', 1))
		ask(requester7, 1, "k").Value.Tensor.Release()
		end, err := k.BeginCancel(requester7, []uint64{1})
		if err != nil {
			t.Fatal(err)
		}
		next := make(chan transport.Response, 1)
		go func() { next <- ask(requester7, 2, "k") }()
		synctest.Wait()
		select {
		case ans := <-next:
			t.Fatalf("%s before the end of the cancel", word(ans))
		default:
		}
		ask(transport.Process{Name: "/job:d/replica:0/task:0", Incarnation: 8}, 1, "other").Value.Tensor.Release() // does not wait
		end()
		ans := <-next
		if word(ans) != "value a" {
			t.Errorf("%s, want value a", word(ans))
		}
		ans.Value.Tensor.Release()
		k.Close()
	})
}

// TestCacheCancelGivesBackWhatALaterOneBegan: a cancel that waits for a receive to end does not
// wait for a cancel that has begun since. The rest of that one may come after its own.
func TestCacheCancelGivesBackWhatALaterOneBegan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, source := newLeaks(t), &heldValues{table: newTable(t)}
		k := NewResponseCache(source, CacheOptions{})
		source.send(t, 1, key(t, "kept"), l.value(t, 'a', 1))
		answer(k, transport.Request{Requester: requester7, ID: 2, Attempt: 1, Step: 1, Key: key(t, "kept")}).Value.Tensor.Release()
		source.held = make(chan func(), 1)
		k.ask(transport.Request{Requester: requester7, ID: 1, Attempt: 1, Step: 1, Key: key(t, "waits")}, func(transport.Response) {})
		begin := func(id uint64) (end func()) {
			end, err := k.BeginCancel(requester7, []uint64{id})
			if err != nil {
				t.Fatal(err)
			}
			return end
		}
		first, over := begin(1), make(chan struct{})
		go func() {
			defer close(over)
			first()
		}()
		synctest.Wait() // the first one waits for its receive
		second := begin(2)
		(<-source.held)()
		<-over
		second()
		k.Close()
	})
}

// TestCacheCancelsBegunTogether end in their order, and when a call was detached in between.
func TestCacheCancelsBegunTogether(t *testing.T) {
	l, source := newLeaks(t), newTable(t)
	k := NewResponseCache(source, CacheOptions{})
	for i, b := range []byte("ab") {
		source.send(t, 1, key(t, "k"), l.value(t, b, 1))
		answer(k, transport.Request{Requester: requester7, ID: uint64(i + 1), Attempt: 1, Step: 1, Key: key(t, "k")}).Value.Tensor.Release() //nolint:gosec // small
	}
	waits := k.ask(transport.Request{Requester: requester7, ID: 3, Attempt: 1, Step: 1, Key: key(t, "k")}, func(transport.Response) {})
	var ends []func()
	for _, id := range []uint64{3, 1, 2} {
		end, err := k.BeginCancel(requester7, []uint64{id})
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, end)
	}
	waits.Detach()
	for _, end := range ends {
		end()
	}
	for i, want := range []string{"value a", "value b"} {
		ans := answer(k, transport.Request{Requester: requester7, ID: uint64(i + 4), Attempt: 1, Step: 1, Key: key(t, "k")}) //nolint:gosec // small
		if word(ans) != want {
			t.Errorf("%s, want %s", word(ans), want)
		}
		ans.Value.Tensor.Release()
	}
	k.Close()
}

// slowValues ends a receive some time after its context has.
type slowValues struct{ ended atomic.Int32 }

func (s *slowValues) RecvLocalAsync(ctx context.Context, _ int64, _ rendezvous.Key, done rendezvous.DoneFunc) {
	go func() {
		<-ctx.Done()
		time.Sleep(time.Minute)
		s.ended.Add(1)
		done(rendezvous.Value{}, rendezvous.Args{}, ctx.Err())
	}()
}

func (*slowValues) TakeLocal(int64, rendezvous.Key) (v rendezvous.Value, ok bool) { return v, false }

func (s *slowValues) Restore(int64, rendezvous.Key, rendezvous.Value) bool { return false }

func TestCacheCloseWaitsForLocalReceives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := new(slowValues)
		k := NewResponseCache(source, CacheOptions{})
		got := make(chan transport.Response, 1)
		k.ask(transport.Request{Requester: requester7, ID: 1, Attempt: 1, Key: key(t, "k")}, func(ans transport.Response) { got <- ans })
		k.Close()
		if ans := <-got; status.CodeOf(ans.Err) != status.Aborted || source.ended.Load() != 1 {
			t.Errorf("%v, %d receives had ended", ans.Err, source.ended.Load())
		}
		if err := k.Cancel(requester7, []uint64{1}); status.CodeOf(err) != status.Aborted {
			t.Errorf("a cancel after Close: %v", err)
		}
	})
}

// Replies, detaches, cancels and finishes of the same receives at once: each
// reply runs at most once, and no reference is left.
func TestCacheRaces(t *testing.T) {
	rounds := 300
	if testing.Short() {
		rounds = 50
	}
	l, source := newLeaks(t), newTable(t)
	k := NewResponseCache(source, CacheOptions{KeptPerRequester: 3 * keptOverhead})
	keys := [...]rendezvous.Key{key(t, "a"), key(t, "b"), key(t, "c")}
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(rand.Uint64(), 0)) //nolint:gosec // a test
			for i := range rounds {
				id := uint64(i + 1)                                                                                    //nolint:gosec // positive
				a := transport.Request{Requester: requester7, ID: id, Attempt: uint32(g + 1), Step: 1, Key: keys[i%3]} //nolint:gosec // small
				var replies atomic.Int32
				call := k.ask(a, func(ans transport.Response) {
					if replies.Add(1) > 1 {
						t.Error("two replies to one call")
					}
					if ans.Err == nil {
						ans.Value.Tensor.Release()
					}
				})
				switch rng.IntN(5) {
				case 0:
					call.Detach()
				case 1:
					if err := k.Cancel(requester7, []uint64{id}); err != nil {
						t.Error(err)
					}
				case 2:
					k.Ack(requester7, []uint64{id})
				case 3:
					source.send(t, 1, a.Key, l.value(t, 'x', 1))
				case 4:
					k.Connected(requester7)()
				}
			}
		})
	}
	wg.Wait()
	k.Close()
}

// TestCacheHostilePeer: no requests make the cache keep more than its limits.
func TestCacheHostilePeer(t *testing.T) {
	source := newTable(t)
	k := NewResponseCache(source, CacheOptions{MaxWaiting: 100, KeptPerRequester: 100 * keptOverhead})
	source.cleanup(2) // what is asked there is answered at once, with an error
	for i := range uint64(20_000) {
		a := transport.Request{Requester: transport.Process{Name: fmt.Sprint("n", i%50), Incarnation: 1 + rand.Uint64N(1<<20)}, ID: i + 1, Attempt: 1, Step: 1 + int64(i%2), Key: key(t, "k")} //nolint:gosec // small
		k.ask(a, func(transport.Response) {})
		other := transport.Process{Name: fmt.Sprint("s", i), Incarnation: rand.Uint64() | 1}
		_ = k.Cancel(other, []uint64{rand.Uint64()})
		k.Ack(other, []uint64{rand.Uint64()})
	}
	s := k.Stats()
	if s.Waiting > 100*waitingInAll || s.Kept > 50*100 || s.Requesters > maxProcessesOfAddress {
		t.Errorf("%+v", s)
	}
	k.Close()
}

// deep is a table that knows how deep the stack was.
type deep struct {
	*table
	mu   sync.Mutex
	most int
}

func (d *deep) Restore(step int64, k rendezvous.Key, v rendezvous.Value) bool {
	pcs := make([]uintptr, 1<<16)
	n := runtime.Callers(0, pcs)
	d.mu.Lock()
	d.most = max(d.most, n)
	d.mu.Unlock()
	return d.table.Restore(step, k, v)
}

func (d *deep) RecvLocalAsync(ctx context.Context, step int64, k rendezvous.Key, done rendezvous.DoneFunc) {
	d.table.RecvLocalAsync(ctx, step, k, done)
}

// One value that finds no room goes from receive to receive of its key. It must not be on
// the stack: an requester may have a million receives, and Go ends the process at 1 GB of stack.
func TestCacheGivesBackWithoutAStack(t *testing.T) {
	l := newLeaks(t)
	source := &deep{table: newTable(t)}
	k := NewResponseCache(source, CacheOptions{KeptPerRequester: 4096})
	source.send(t, 1, key(t, "first"), l.value(t, 'a', 3000))
	answer(k, transport.Request{Requester: requester7, ID: 1, Attempt: 1, Step: 1, Key: key(t, "first")}).Value.Tensor.Release() // kept: not finished
	const n = 2000
	for i := range n {
		k.ask(transport.Request{Requester: requester7, ID: uint64(i + 2), Attempt: 1, Step: 1, Key: key(t, "k")}, func(ans transport.Response) { //nolint:gosec // small
			if ans.Err == nil {
				ans.Value.Tensor.Release()
			}
		})
	}
	source.send(t, 1, key(t, "k"), l.value(t, 'b', 3000))
	if source.most > 200 {
		t.Errorf("with %d receives the stack of the Send is %d calls deep", n, source.most)
	}
	k.Close()
}

// A connection that was not counted, since its requester was refused, takes none away when it ends.
func TestCacheRefusedWireTakesNoneAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, source := newLeaks(t), newTable(t)
		k := NewResponseCache(source, CacheOptions{})
		down := k.Connected(requester7) // lives
		source.send(t, 1, key(t, "k"), l.value(t, 'a', 1))
		answer(k, transport.Request{Requester: requester7, ID: 1, Attempt: 1, Step: 1, Key: key(t, "k")}).Value.Tensor.Release()
		k.Connected(transport.Process{Name: "/job:c/replica:0/task:1", Incarnation: 7})() // InvalidArgument; ends at once
		if n := k.Stats().Connected; n != 1 {
			t.Errorf("%d requesters are connected, want 1", n)
		}
		time.Sleep(expireAfter + 2*time.Second)
		if v, err := k.Value(requester7, 1, 1); err != nil {
			t.Errorf("the answer of an requester whose connection lives: %v", err)
		} else {
			v.Tensor.Release()
		}
		down()
		k.Close()
	})
}

// A process that was stopped for long, and whose name another has taken meanwhile, is a
// late copy when it comes back: it takes nothing from the one that lives.
func TestCacheZombieReplacesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, source := newLeaks(t), newTable(t)
		k := NewResponseCache(source, CacheOptions{})
		old := k.Connected(transport.Process{Name: consumer, Incarnation: 6})
		old()
		defer k.Connected(requester7)() // it lives from now on
		time.Sleep(rememberFor + 2*time.Second)
		source.send(t, 1, key(t, "k"), l.value(t, 'a', 1))
		answer(k, transport.Request{Requester: requester7, ID: 1, Attempt: 1, Step: 1, Key: key(t, "k")}).Value.Tensor.Release()
		k.Connected(transport.Process{Name: consumer, Incarnation: 6})() // the old process goes on for a moment
		if v, err := k.Value(requester7, 1, 1); err != nil {
			t.Errorf("the kept answer of the process that lives: %v", err)
		} else {
			v.Tensor.Release()
		}
		source.send(t, 2, key(t, "n"), l.value(t, 'b', 1))
		if ans := answer(k, transport.Request{Requester: requester7, ID: 2, Attempt: 1, Step: 2, Key: key(t, "n")}); ans.Err == nil {
			ans.Value.Tensor.Release()
		} else {
			t.Errorf("it asks: %v", ans.Err)
		}
		k.Close()
	})
}

// TestCacheCountsHeadersOfStrings: the limits count what a tensor holds, which for short
// strings is mostly their headers.
func TestCacheCountsHeadersOfStrings(t *testing.T) {
	const n = 1000
	source := newTable(t)
	k := NewResponseCache(source, CacheOptions{KeptPerRequester: 2*n*tensor.ElementOverhead + 2*keptOverhead})
	defer k.Close()
	defer k.Connected(requester7)()
	for id := range uint64(3) {
		x, err := tensor.FromStrings(tensor.Vector(n), make([]string, n))
		if err != nil {
			t.Fatal(err)
		}
		source.send(t, 1, key(t, "k"), rendezvous.Value{Tensor: x})
		k.ask(transport.Request{Requester: requester7, ID: id + 1, Attempt: 1, Step: 1, Key: key(t, "k")}, func(ans transport.Response) {
			if ans.Err == nil {
				ans.Value.Tensor.Release()
			}
		})
	}
	if s := k.Stats(); s.Kept != 2 || s.Waiting != 1 || s.Bytes != 2*n*tensor.ElementOverhead {
		t.Errorf("%+v; want two answers of %d bytes, and one that waits for room", s, n*tensor.ElementOverhead)
	}
}

// TestCacheCountsKeys: a requester may request keys of any length, and is answered with errors that
// name them.
func TestCacheCountsKeys(t *testing.T) {
	const size, limit = 100 << 10, 1 << 20
	source := newTable(t)
	source.cleanup(1) // what is asked there is answered with an error
	k := NewResponseCache(source, CacheOptions{KeptPerRequester: limit})
	defer k.Close()
	defer k.Connected(requester7)()
	for id := range uint64(100) {
		k.ask(transport.Request{Requester: requester7, ID: id + 1, Attempt: 1, Step: 1, Key: key(t, strings.Repeat("k", size))}, func(transport.Response) {})
	}
	if s := k.Stats(); s.Kept > limit/size || s.Kept == 0 || s.Kept+s.Waiting != 100 {
		t.Errorf("%+v: errors for keys of %d bytes by a limit of %d", s, size, limit)
	}
}

// TestRequestWaitsForValuesThatGoBack: a request that comes over another connection than a cancel
// before it matches no later value.
func TestRequestWaitsForValuesThatGoBack(t *testing.T) {
	for _, inFlight := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			l, source := newLeaks(t), &heldValues{table: newTable(t)}
			k := NewResponseCache(source, CacheOptions{})
			request := func(id uint64) transport.Request {
				return transport.Request{Requester: requester7, ID: id, Attempt: 1, Step: 1, Key: key(t, "k")}
			}
			first, matched := make(chan transport.Response, 1), func() {}
			if inFlight {
				source.held = make(chan func(), 1)
				k.ask(request(1), func(ans transport.Response) { first <- ans })
				source.send(t, 1, key(t, "k"), l.value(t, 'a', 1))
				matched = <-source.held
				source.held = nil
			} else {
				source.send(t, 1, key(t, "k"), l.value(t, 'a', 1))
				answer(k, request(1)).Value.Tensor.Release()
			}
			source.send(t, 1, key(t, "k"), l.value(t, 'b', 1))
			end, err := k.BeginCancel(requester7, []uint64{1})
			if err != nil {
				t.Fatal(err)
			}
			second := make(chan transport.Response, 1)
			_, ok, rest := k.RequestNow(replier(func(ans transport.Response) { second <- ans }), request(2))
			if rest != nil {
				rest()
			}
			if ok || len(second) > 0 {
				t.Fatal("the second request was answered before the first value was back")
			}
			go matched()
			end()
			ans := <-second
			if word(ans) != "value a" {
				t.Errorf("in flight %v: the second request gets %s, want value a", inFlight, word(ans))
			}
			ans.Value.Tensor.Release()
			k.Close()
		})
	}
}

// TestValueWithoutSpaceComesFirstAgain: a value that found no space goes back before the receive
// that it was matched to begins again.
func TestValueWithoutSpaceComesFirstAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 10 * keptOverhead
		l, source := newLeaks(t), newTable(t)
		k := NewResponseCache(source, CacheOptions{KeptPerRequester: 2 * size})
		for _, b := range []byte("abc") {
			source.send(t, 1, key(t, "k"), l.value(t, b, size))
		}
		request := func(id uint64) transport.Request {
			return transport.Request{Requester: requester7, ID: id, Attempt: 1, Step: 1, Key: key(t, "k")}
		}
		answer(k, request(1)).Value.Tensor.Release()
		second := make(chan transport.Response, 1)
		_, ok, rest := k.RequestNow(replier(func(ans transport.Response) { second <- ans }), request(2))
		if ok || rest == nil {
			t.Fatal("the second value found space")
		}
		k.Ack(requester7, []uint64{1}) // comes over another connection
		rest()
		ans := <-second
		if word(ans) != "value b" {
			t.Errorf("the second request gets %s, want value b", word(ans))
		}
		ans.Value.Tensor.Release()
		k.Close()
	})
}

// TestRequestsOfANewProcessWaitForValuesOfTheOldOne: a receive that was taken back since its process
// has gone may still end with a value. The new process gets that one first.
func TestRequestsOfANewProcessWaitForValuesOfTheOldOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, source := newLeaks(t), &heldValues{table: newTable(t), held: make(chan func(), 1)}
		k := NewResponseCache(source, CacheOptions{Addressed: everyName, Verify: func(context.Context, string) (uint64, error) { return 8, nil }})
		request := func(id, incarnation uint64) transport.Request {
			return transport.Request{Requester: transport.Process{Name: consumer, Incarnation: incarnation}, ID: id, Attempt: 1, Step: 1, Key: key(t, "k")}
		}
		k.ask(request(1, 7), func(transport.Response) {})
		source.send(t, 1, key(t, "k"), l.value(t, 'a', 1))
		matched := <-source.held
		source.held = nil
		source.send(t, 1, key(t, "k"), l.value(t, 'b', 1))
		if err := k.Introduce(t.Context(), transport.Process{Name: consumer, Incarnation: 8}, ""); err != nil {
			t.Fatal(err)
		}
		second := make(chan transport.Response, 1)
		k.ask(request(2, 8), func(ans transport.Response) { second <- ans })
		if len(second) > 0 {
			t.Error("the second request was answered before the first value was back")
		}
		matched()
		ans := <-second
		if word(ans) != "value a" {
			t.Errorf("the second request gets %s, want value a", word(ans))
		}
		ans.Value.Tensor.Release()
		k.Close()
	})
}
