package delivery

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/transport"
)

// bubble runs f on a pair in virtual time.
func bubble(t *testing.T, o memOptions, f func(t *testing.T, p *pair)) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, o)
		f(t, p)
		p.close()
	})
}

// Who waits for a peer that comes up minutes late has the value then, and nobody has
// asked in the meantime as often as to be a nuisance.
func TestRequesterFirstPeerMinutesLate(t *testing.T) {
	bubble(t, memOptions{peerTimeout: time.Hour}, func(t *testing.T, p *pair) {
		p.set(func() { p.down = true })
		c := p.begin(t.Context(), key(t, "k"))
		time.Sleep(30 * time.Minute)
		synctest.Wait()
		select {
		case o := <-c:
			t.Fatalf("it has ended with %+v", o)
		default:
		}
		p.set(func() { p.down = false })
		p.send(key(t, "k"), 'a')
		up := time.Now()
		p.wantValue(c, 'a')
		if took := time.Since(up); took > helloWait+time.Second {
			t.Errorf("it took %v to find out that the peer is up", took)
		}
	})
}

func TestRequesterReceives(t *testing.T) {
	bubble(t, memOptions{}, func(t *testing.T, p *pair) {
		k := key(t, "k")
		p.send(k, 'a')
		p.wantValue(p.begin(t.Context(), k), 'a')
		c := p.begin(t.Context(), k)
		synctest.Wait()
		p.send(k, 'b')
		p.wantValue(c, 'b')
	})
}

func TestRequesterFinishIsSaidAfter5ms(t *testing.T) {
	bubble(t, memOptions{}, func(t *testing.T, p *pair) {
		k := key(t, "k")
		p.send(k, 'a')
		p.wantValue(p.begin(t.Context(), k), 'a')
		time.Sleep(ackDelay - time.Microsecond)
		if s := p.kept.Stats(); s.Kept != 1 || s.Bytes != 10 {
			t.Errorf("before: %+v", s)
		}
		time.Sleep(2 * time.Microsecond)
		synctest.Wait()
		if s := p.kept.Stats(); s.Kept != 0 || s.Bytes != 0 || p.alive.Load() != 0 {
			t.Errorf("after: %+v, %d values alive", s, p.alive.Load())
		}
	})
}

// TestRequesterAcknowledgesMuchSoon: much is RequesterOptions.AckBytes.
func TestRequesterAcknowledgesMuchSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, memOptions{ackBytes: 10}) // as many as a value has
		k := key(t, "k")
		p.send(k, 'a')
		p.wantValue(p.begin(t.Context(), k), 'a')
		time.Sleep(ackSoon - time.Microsecond)
		if s := p.kept.Stats(); s.Kept != 1 {
			t.Errorf("before: %+v", s)
		}
		time.Sleep(2 * time.Microsecond)
		synctest.Wait()
		if s := p.kept.Stats(); s.Kept != 0 {
			t.Errorf("after: %+v", s)
		}
		p.close()
	})
}

func TestRequesterFinishRidesOnTheNextRequest(t *testing.T) {
	bubble(t, memOptions{}, func(t *testing.T, p *pair) {
		k := key(t, "k")
		for i := range 10 {
			p.send(k, byte('a'+i))
			p.wantValue(p.begin(t.Context(), k), byte('a'+i))
		}
		if s := p.kept.Stats(); s.Kept != 1 || p.finishes != 0 {
			t.Errorf("%+v, %d messages", s, p.finishes)
		}
	})
}

func TestRequesterPeerTimeout(t *testing.T) {
	for _, how := range []string{"refused", "no answer"} {
		bubble(t, memOptions{}, func(t *testing.T, p *pair) {
			p.down, p.deaf = how == "refused", how != "refused"
			began := time.Now()
			p.wantError(p.begin(t.Context(), key(t, "k")), status.Unavailable)
			if d := time.Since(began); d < transport.DefaultPeerTimeout || d > transport.DefaultPeerTimeout+helloWait {
				t.Errorf("%s: it took %v", how, d)
			}
			time.Sleep(time.Hour) // nobody asks: there is nothing to look for
		})
	}
}

func TestRequesterComesBackWithinPeerTimeout(t *testing.T) {
	bubble(t, memOptions{}, func(t *testing.T, p *pair) {
		k := key(t, "k")
		c := p.begin(t.Context(), k)
		synctest.Wait()
		p.set(func() { p.down = true })
		p.breakConn()
		time.Sleep(transport.DefaultPeerTimeout - time.Second)
		p.set(func() { p.down = false })
		p.send(k, 'a')
		p.wantValue(c, 'a')
	})
}

// losesAnswer begins a receive whose value is matched at the peer and lost with the connection,
// which stays down. The peer takes it for connected until down is called.
func (p *pair) losesAnswer(t *testing.T, k rendezvous.Key) (c <-chan outcome, down func()) {
	down = p.kept.Connected(transport.Process{Name: consumer, Incarnation: 7})
	p.fault = func(*transport.Receive) fault { p.down, p.fault = true, nil; return faultAfter }
	p.send(k, 'a')
	c = p.begin(t.Context(), k)
	synctest.Wait()
	return c, down
}

// TestRequesterCancelsWhenThePeerIsBack: a value that was matched to a receive that has ended
// goes back to its key as soon as the peer is reached, although no receive waits for the peer.
func TestRequesterCancelsWhenThePeerIsBack(t *testing.T) {
	bubble(t, memOptions{}, func(t *testing.T, p *pair) {
		k := key(t, "k")
		c, down := p.losesAnswer(t, k)
		down()
		p.wantError(c, status.Unavailable)
		time.Sleep(expireAfter/2 - transport.DefaultPeerTimeout)
		if s := p.kept.Stats(); s.Kept != 1 {
			t.Errorf("while the peer is not reached: %+v", s)
		}
		p.set(func() { p.down = false })
		time.Sleep(2 * helloPauseMax)
		if s := p.kept.Stats(); s.Kept != 0 || p.alive.Load() != 1 {
			t.Errorf("when it can: %+v, %d alive", s, p.alive.Load())
		}
		p.wantValue(p.begin(t.Context(), k), 'a')
	})
}

func TestRequesterDataLossAfter60s(t *testing.T) {
	bubble(t, memOptions{peerTimeout: time.Hour}, func(t *testing.T, p *pair) {
		k := key(t, "k")
		c, down := p.losesAnswer(t, k)
		time.Sleep(time.Hour / 2)
		if s := p.kept.Stats(); s.Kept != 1 {
			t.Errorf("while a connection lives: %+v", s)
		}
		down()
		time.Sleep(expireAfter - time.Second)
		if s := p.kept.Stats(); s.Kept != 1 {
			t.Errorf("59 s after: %+v", s)
		}
		time.Sleep(2 * time.Second)
		if s := p.kept.Stats(); s.Kept != 0 || p.alive.Load() != 0 {
			t.Errorf("61 s after: %+v, %d alive", s, p.alive.Load())
		}
		p.set(func() { p.down = false })
		p.wantError(c, status.DataLoss)
	})
}

// TestRequesterReportsADroppedValueToTheNextThatWaits: a receive whose value was dropped is
// cancelled while its DataLoss is on its way. The receive that waits behind it at the peer reports
// the loss, and the one behind that has the next value.
func TestRequesterReportsADroppedValueToTheNextThatWaits(t *testing.T) {
	bubble(t, memOptions{peerTimeout: time.Hour}, func(t *testing.T, p *pair) {
		k := key(t, "k")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		down := p.kept.Connected(requester7)
		p.fault = func(*transport.Receive) fault { p.down, p.fault = true, nil; return faultAfter }
		p.send(k, 'a')
		first := p.begin(ctx, k)
		synctest.Wait()
		down()
		time.Sleep(expireAfter + 2*time.Second)
		if p.alive.Load() != 0 {
			t.Fatal("the value was not dropped")
		}
		second := p.begin(t.Context(), k)
		p.set(func() {
			p.down, p.delay = false, time.Second
			p.fault = func(*transport.Receive) fault { // one way and a half
				p.fault = nil
				time.AfterFunc(p.delay*3/2, cancel)
				return faultNone
			}
		})
		p.wantError(first, status.Cancelled)
		p.set(func() { p.delay = 0 })
		third := p.begin(t.Context(), k)
		time.Sleep(2 * time.Second)
		p.send(k, 'b')
		p.wantError(second, status.DataLoss)
		p.wantValue(third, 'b')
	})
}

func TestRequesterRestart(t *testing.T) {
	restart := func(p *pair) {
		p.kept.Close()
		p.table.cleanup(1)
		p.set(func() {
			p.table.mu.Lock()
			delete(p.table.steps, 1)
			p.table.mu.Unlock()
			p.kept = NewResponseCache(p.table, CacheOptions{})
			p.incarnation++
			p.breakLocked()
		})
	}
	bubble(t, memOptions{}, func(t *testing.T, p *pair) {
		k := key(t, "k")
		c := p.begin(t.Context(), k)
		synctest.Wait()
		p.set(func() { p.down = true })
		p.breakConn()
		synctest.Wait()
		restart(p)
		p.set(func() { p.down = false })
		o := <-c
		if e := status.From(o.err); status.CodeOf(o.err) != status.Aborted {
			t.Errorf("got %v", o.err)
		} else if _, ok := e.Payload(status.PayloadPossiblyRestarted); !ok {
			t.Errorf("got %v, want the reason that the peer restarted", e)
		}
		p.send(k, 'b')
		p.wantValue(p.begin(t.Context(), k), 'b')
		time.Sleep(time.Second)
		// Unseen: the next request meets another process.
		p.set(func() { p.incarnation++ })
		p.send(k, 'c')
		p.wantValue(p.begin(t.Context(), k), 'c')
	})
}

func TestRequesterPlainPeer(t *testing.T) {
	bubble(t, memOptions{}, func(t *testing.T, p *pair) {
		p.plain = true
		k := key(t, "k")
		c := p.begin(t.Context(), k)
		synctest.Wait()
		p.breakConn()
		p.wantError(c, status.Unavailable)
		if p.attempts != 1 {
			t.Errorf("%d attempts, want 1", p.attempts)
		}
	})
}

// A request that breaks each connection is tried until the peer timeout, but not as a storm,
// and others are answered meanwhile.
func TestRequesterPoison(t *testing.T) {
	bubble(t, memOptions{}, func(t *testing.T, p *pair) {
		bad, good := key(t, "bad"), key(t, "good")
		p.fault = func(a *transport.Receive) fault {
			if a.Key == bad {
				return faultRejected
			}
			return faultNone
		}
		c := p.begin(t.Context(), bad)
		time.Sleep(transport.DefaultPeerTimeout / 2)
		p.send(good, 'a')
		p.wantValue(p.begin(t.Context(), good), 'a')
		p.wantError(c, status.Unavailable)
		p.set(func() {
			if p.attempts > 100 {
				t.Errorf("%d attempts", p.attempts)
			}
		})
		p.send(good, 'b')
		p.wantValue(p.begin(t.Context(), good), 'b')
	})
}

// TestRequesterCancelAtEveryMoment cancels a receive at each point of its life; the
// value is then there for the next one, exactly once.
func TestRequesterCancelAtEveryMoment(t *testing.T) {
	for step := range 60 {
		for _, sendFirst := range []bool{true, false} {
			for _, breaks := range []bool{false, true} {
				bubble(t, memOptions{}, func(t *testing.T, p *pair) {
					k := key(t, "k")
					p.delay = time.Millisecond
					if sendFirst {
						p.send(k, 'a')
					}
					ctx, cancel := context.WithCancel(t.Context())
					c := p.begin(ctx, k)
					if breaks {
						time.AfterFunc(1500*time.Microsecond, p.breakConn)
					}
					time.AfterFunc(time.Duration(step)*100*time.Microsecond, cancel)
					if !sendFirst {
						time.AfterFunc(1700*time.Microsecond, func() { p.send(k, 'a') })
					}
					o := <-c
					if o.err == nil {
						o.v.Tensor.Release()
					} else if status.CodeOf(o.err) != status.Cancelled {
						t.Errorf("at step %d: %v", step, o.err)
					} else {
						p.wantValue(p.begin(t.Context(), k), 'a')
					}
					time.Sleep(time.Second)
					if s := p.kept.Stats(); s.Kept+s.Waiting != 0 || p.alive.Load() != 0 {
						t.Errorf("at step %d: %+v, %d alive", step, s, p.alive.Load())
					}
					if len(c) != 0 {
						t.Errorf("at step %d: it ended twice", step)
					}
					cancel()
				})
			}
		}
	}
}

func TestRequesterContextErrors(t *testing.T) {
	bubble(t, memOptions{}, func(t *testing.T, p *pair) {
		k := key(t, "k")
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		p.wantError(p.begin(ended, k), status.Cancelled)
		late, cancelLate := context.WithTimeout(t.Context(), time.Second)
		p.wantError(p.begin(late, k), status.DeadlineExceeded)
		cancelLate()
		why, because := context.WithCancelCause(t.Context())
		c := p.begin(why, k)
		synctest.Wait()
		because(fmt.Errorf("step 1: %w", status.New(status.DataLoss, "a reason")))
		p.wantError(c, status.DataLoss)
	})
}

// TestRequesterNamesATaskAsItsKeyDoes: a task that the key names otherwise is asked under its own
// name. The error that it is not reached has both names, and no other error has.
func TestRequesterNamesATaskAsItsKeyDoes(t *testing.T) {
	bubble(t, memOptions{}, func(t *testing.T, p *pair) {
		p.down = true
		k, other := key(t, "k"), cluster.Task{Job: "other", Index: 3}
		receive := func(task cluster.Task, cancel bool) string {
			c := make(chan error, 1)
			r := p.RecvFrom(task, 1, k, rendezvous.Args{}, func(_ rendezvous.Value, _ rendezvous.Args, err error) { c <- err })
			if cancel {
				r.Cancel(status.New(status.Aborted, "the step has ended"))
			}
			return status.From(<-c).Message()
		}
		const lost = " was not reached for 10s: connection refused"
		if got, want := receive(k.Src().Task, false), producer+lost; got != want {
			t.Errorf("%q, want %q", got, want)
		}
		if got, want := receive(other, false), producer+" is "+other.String()+" in the cluster of this process: "+other.String()+lost; got != want {
			t.Errorf("%q, want %q", got, want)
		}
		if got := receive(other, true); got != "the step has ended" {
			t.Error(got)
		}
	})
}

func TestRequesterNoWire(t *testing.T) {
	f := NewRequester(RequesterOptions{Conn: func(task cluster.Task) (transport.Conn, error) {
		return nil, status.Errorf(status.NotFound, "no %v", task)
	}})
	c := make(chan error)
	f.RecvFromRemoteAsync(1, key(t, "k"), rendezvous.Args{}, func(_ rendezvous.Value, _ rendezvous.Args, err error) { c <- err })
	if err := <-c; status.CodeOf(err) != status.NotFound {
		t.Error(err)
	}
	if err := f.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestRequesterCallbacksMayDoAnything(t *testing.T) {
	bubble(t, memOptions{}, func(t *testing.T, p *pair) {
		a, b := key(t, "a"), key(t, "b")
		done := make(chan outcome)
		block := make(chan struct{})
		p.send(a, 'a')
		p.RecvFromRemoteAsync(1, a, rendezvous.Args{}, func(v rendezvous.Value, _ rendezvous.Args, err error) {
			if err != nil {
				t.Error(err)
			}
			p.wantValueAsync(p.begin(context.Background(), b), done)
			p.send(b, 'b')
			<-block
			v.Tensor.Release()
			p.table.cleanup(1)
		})
		p.wantValue(done, 'b')
		p.wantValueOf(p.begin(t.Context(), a), block)
	})
}

// wantValueAsync passes an outcome on.
func (p *pair) wantValueAsync(c <-chan outcome, to chan<- outcome) { go func() { to <- <-c }() }

// wantValueOf unblocks a callback whose Abort ends the receive c.
func (p *pair) wantValueOf(c <-chan outcome, block chan struct{}) {
	p.t.Helper()
	close(block)
	p.wantError(c, status.Aborted)
}

func TestRequesterCloseWaitsForCallbacks(t *testing.T) {
	bubble(t, memOptions{}, func(t *testing.T, p *pair) {
		var ended atomic.Int32
		for i := range 3 {
			k := key(t, fmt.Sprint(i))
			if i == 0 {
				p.send(k, 'a')
			}
			p.RecvFromRemoteAsync(1, k, rendezvous.Args{}, func(v rendezvous.Value, _ rendezvous.Args, err error) {
				time.Sleep(time.Duration(1+i) * time.Minute)
				if err == nil {
					v.Tensor.Release()
				} else if status.CodeOf(err) != status.Cancelled {
					t.Error(err)
				}
				ended.Add(1)
			})
		}
		synctest.Wait()
		if err := p.Close(t.Context()); err != nil || ended.Load() != 3 {
			t.Errorf("%v, %d callbacks had returned", err, ended.Load())
		}
		if s := p.kept.Stats(); s.Kept+s.Waiting != 0 {
			t.Errorf("the peer has not got everything: %+v", s)
		}
		p.wantError(p.begin(t.Context(), key(t, "late")), status.Cancelled)
	})
}

// Close calls a peer that was lost a moment ago, once: a value that was matched over there
// goes back to its key.
func TestRequesterCloseFlushesToAPeerThatWasJustLost(t *testing.T) {
	bubble(t, memOptions{}, func(t *testing.T, p *pair) {
		p.fault = func(*transport.Receive) fault { p.fault = nil; return faultAfter }
		p.send(key(t, "k"), 'a')
		c := p.begin(t.Context(), key(t, "k"))
		synctest.Wait()
		if err := p.Close(t.Context()); err != nil {
			t.Error(err)
		}
		p.wantError(c, status.Cancelled)
		if s := p.kept.Stats(); s.Kept != 0 || p.alive.Load() != 1 {
			t.Errorf("the peer has not got everything: %+v, %d alive", s, p.alive.Load())
		}
	})
	// One that is gone is not waited for: those that end together would wait for each other.
	bubble(t, memOptions{}, func(t *testing.T, p *pair) {
		p.fault = func(*transport.Receive) fault { p.fault, p.down = nil, true; return faultAfter }
		p.send(key(t, "k"), 'a')
		c := p.begin(t.Context(), key(t, "k"))
		synctest.Wait()
		began := time.Now()
		if err := p.Close(t.Context()); err != nil || time.Since(began) > helloWait+helloPauseMax {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		p.wantError(c, status.Cancelled)
	})
}

// Close flushes no longer than its context lives.
func TestRequesterCloseIsCutOff(t *testing.T) {
	bubble(t, memOptions{}, func(t *testing.T, p *pair) {
		k := key(t, "k")
		p.send(k, 'a')
		p.wantValue(p.begin(t.Context(), k), 'a')
		p.set(func() { p.delay = time.Hour })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if err := p.Close(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		p.set(func() { p.delay = 0 })
	})
}

// A Close in the middle of receives that begin: no callback is forgotten, and
// nothing is added to what Close waits for.
func TestRequesterCloseRace(t *testing.T) {
	for range 50 {
		p := newPair(t, memOptions{})
		var callers, callbacks sync.WaitGroup
		for i := range 4 {
			callers.Go(func() {
				for j := range 20 {
					callbacks.Add(1)
					p.RecvFromRemoteAsync(1, key(t, fmt.Sprint(i, j)), rendezvous.Args{},
						func(rendezvous.Value, rendezvous.Args, error) { callbacks.Done() })
				}
			})
		}
		p.close()
		callers.Wait()
		callbacks.Wait() // those of receives that began after Close too
	}
}

// Every value arrives exactly once while connections break at random.
func TestRequesterStress(t *testing.T) {
	keys, each := 20, 60
	if testing.Short() {
		each = 15
	}
	p := newPair(t, memOptions{kept: CacheOptions{KeptPerRequester: 5 * (keptOverhead + 10)}})
	seed := rand.Uint64()
	p.faults = rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a test that can be repeated
	var wg sync.WaitGroup
	for i := range keys {
		k := key(t, fmt.Sprint("k", i))
		wg.Go(func() {
			for j := range each {
				p.send(k, byte(j))
			}
		})
		wg.Go(func() {
			for j := 0; j < each; {
				ctx, cancel := context.WithCancel(context.Background())
				c := p.begin(ctx, k)
				if j%7 == 3 {
					cancel()
				}
				o := <-c
				cancel()
				if o.err == nil {
					if i%2 == 0 && o.v.Tensor.Bytes()[0] > byte(each) {
						t.Errorf("seed %#x: key %d: value %d", seed, i, o.v.Tensor.Bytes()[0])
					}
					o.v.Tensor.Release()
					j++
				} else if status.CodeOf(o.err) != status.Cancelled {
					t.Errorf("seed %#x: key %d: %v", seed, i, o.err)
					return
				} else {
					p.wantSome(k)
					j++
				}
			}
		})
	}
	wg.Wait()
	p.set(func() { p.faults = nil })
	p.close()
	if n := p.alive.Load(); n != 0 {
		t.Errorf("seed %#x: %d values left", seed, n)
	}
}

// wantSome takes the value that a cancelled receive did not.
func (p *pair) wantSome(k rendezvous.Key) {
	o := <-p.begin(context.Background(), k)
	if o.err != nil {
		p.t.Error(o.err)
		return
	}
	o.v.Tensor.Release()
}

func TestRequesterTenThousandAtOnce(t *testing.T) {
	n := 10_000
	if testing.Short() {
		n = 1000
	}
	p := newPair(t, memOptions{})
	outcomes := make([]<-chan outcome, n)
	for i := range n {
		outcomes[i] = p.begin(context.Background(), key(t, fmt.Sprint(i)))
	}
	p.breakConn()
	for i := range n {
		p.send(key(t, fmt.Sprint(i)), byte(i))
	}
	for i := range n {
		p.wantValue(outcomes[i], byte(i))
	}
	p.close()
}

// An earlier attempt's partial tensor is released however the receive ends.
func TestRequesterPartialIsReleased(t *testing.T) {
	for _, end := range []string{"value", "cancel", "cancel queued", "close", "unreached"} {
		bubble(t, memOptions{}, func(t *testing.T, p *pair) {
			k := key(t, "k")
			first := true
			p.fault = func(a *transport.Receive) fault {
				if !first {
					return faultNone
				}
				first = false
				p.alive.Add(1)
				a.Partial.Buffer = tensor.NewBuffer(nil, func() { p.alive.Add(-1) })
				if end == "unreached" {
					p.down = true
				}
				return faultBefore
			}
			ctx, cancel := context.WithCancel(t.Context())
			c := p.begin(ctx, k)
			synctest.Wait()
			if end != "cancel queued" {
				time.Sleep(100 * time.Millisecond) // it is asked again
			}
			switch end {
			case "value":
				p.send(k, 'a')
				p.wantValue(c, 'a')
			case "cancel", "cancel queued":
				cancel()
				p.wantError(c, status.Cancelled)
			case "close":
				p.close()
				p.wantError(c, status.Cancelled)
			case "unreached":
				p.wantError(c, status.Unavailable)
			}
			cancel()
			time.Sleep(time.Second)
			if n := p.alive.Load(); n != 0 {
				t.Errorf("%s: %d blocks left", end, n)
			}
		})
	}
}

// TestRefusedAttemptConfirmsNothing: an attempt that the peer refuses says nothing about the
// value that an earlier one got there. The receive has ended, so the value goes back to its key.
func TestRefusedAttemptConfirmsNothing(t *testing.T) {
	bubble(t, memOptions{}, func(t *testing.T, p *pair) {
		k := key(t, "k")
		p.fault = func(a *transport.Receive) fault {
			return []fault{faultNone, faultAfter, faultRefused, faultNone}[min(p.attempts-1, 3)]
		}
		p.send(k, 'z')
		p.wantValue(p.begin(t.Context(), k), 'z') // the peer is known from now on
		p.send(k, 'a')
		p.wantError(p.begin(t.Context(), k), status.ResourceExhausted)
		p.wantValue(p.begin(t.Context(), k), 'a')
	})
}

// TestOwnerOfAPartialMayReceive: the owner of the memory that has taken a part of a tensor is
// called without a lock, however its receive ends.
func TestOwnerOfAPartialMayReceive(t *testing.T) {
	for _, end := range []string{"cancel while the peer is looked for", "unreached", "restarted"} {
		t.Run(end, func(t *testing.T) {
			bubble(t, memOptions{}, func(t *testing.T, p *pair) {
				other := make(chan error, 1)
				first := true
				p.fault = func(a *transport.Receive) fault {
					if !first {
						return faultNone
					}
					first = false
					a.Partial.Buffer = tensor.NewBuffer(nil, func() {
						p.RecvFromRemoteAsync(1, key(t, "other"), rendezvous.Args{}, func(v rendezvous.Value, _ rendezvous.Args, err error) {
							if err == nil {
								v.Tensor.Release()
							}
							other <- err
						})
					})
					if end == "restarted" {
						p.incarnation++
						return faultNone
					}
					p.down = true
					return faultBefore
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				c := p.begin(ctx, key(t, "k"))
				synctest.Wait()
				want := status.OK
				switch end {
				case "unreached":
					want = status.Unavailable
				case "restarted": // no request has reached the process that is gone
					p.send(key(t, "k"), 'a')
				default:
					want = status.Cancelled
					cancel()
				}
				p.wantError(c, want)
				p.set(func() { p.down = false })
				p.send(key(t, "other"), 'b')
				if err := <-other; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A goroutine in Wait makes the attempts of its transfer itself, while the peer is known and
// when it comes back.
func TestTransferWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, memOptions{})
		k := key(t, "k")
		begin := func() rendezvous.Transfer { return p.RecvFromRemoteAsync(1, k, rendezvous.Args{}, nil) }
		wait := func(ctx context.Context, r rendezvous.Transfer) <-chan outcome {
			c := make(chan outcome, 1)
			v, err := r.Wait(ctx)
			c <- outcome{v, err}
			return c
		}
		p.send(k, 'a')
		p.wantValue(wait(t.Context(), begin()), 'a') // the peer is not known before

		p.send(k, 'b')
		before := p.attempts
		r := begin()
		synctest.Wait()
		if p.attempts != before {
			t.Error("another goroutine made the attempt")
		}
		p.wantValue(wait(t.Context(), r), 'b')

		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		p.wantError(wait(ctx, begin()), status.Cancelled)
		p.wantError(wait(ctx, begin()), status.Cancelled)

		time.AfterFunc(time.Second, p.breakConn)
		time.AfterFunc(2*time.Second, func() { p.send(k, 'c') })
		p.wantValue(wait(t.Context(), begin()), 'c')

		r = begin()
		r.Cancel(status.New(status.ResourceExhausted, "not wanted")) // before anybody waits
		p.wantError(wait(t.Context(), r), status.ResourceExhausted)

		r = begin()
		time.AfterFunc(time.Second, func() { r.Cancel(status.New(status.ResourceExhausted, "not wanted")) })
		p.wantError(wait(t.Context(), r), status.ResourceExhausted)

		p.set(func() { p.down = true })
		p.breakConn()
		time.AfterFunc(time.Second, func() { p.set(func() { p.down = false }) })
		time.AfterFunc(2*time.Second, func() { p.send(k, 'd') })
		p.wantValue(wait(t.Context(), begin()), 'd')
		p.close()
		p.wantError(wait(t.Context(), begin()), status.Cancelled)
	})
}
