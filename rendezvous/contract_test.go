package rendezvous_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
)

// The tests of this file are named after the rules of ARCHITECTURE.md section 3.

// Each value goes to exactly one receiver, exactly once, in the order of the
// sends, with many senders and receivers on one key.
func TestContract1ExactlyOnce(t *testing.T) {
	c := counted(t)
	l := rendezvous.NewLocal()
	defer l.Close()
	const senders, each = 8, 200
	var seen [senders][each]atomic.Int32
	var wg sync.WaitGroup
	for s := range senders {
		wg.Go(func() {
			for i := range each {
				if err := c.send(l, key(t, "a"), s*each+i); err != nil {
					t.Error(err)
				}
			}
		})
		wg.Go(func() {
			var last [senders]int
			for i := range each {
				var v rendezvous.Value
				var err error
				if i%2 == 0 {
					v, err = l.Recv(t.Context(), key(t, "a"), noArgs)
				} else {
					o := <-recvAsync(t.Context(), l, key(t, "a")).c
					if err = o.err; err == nil {
						seen[o.n/each][o.n%each].Add(1)
						continue
					}
				}
				if err != nil {
					t.Error(err)
					return
				}
				n := take(v)
				seen[n/each][n%each].Add(1)
				if n%each < last[n/each] {
					t.Errorf("value %d of sender %d overtook %d", last[n/each], n/each, n%each)
				}
				last[n/each] = n % each
			}
		})
	}
	wg.Wait()
	for s := range seen {
		for i := range seen[s] {
			if n := seen[s][i].Load(); n != 1 {
				t.Errorf("value %d of sender %d was delivered %d times", i, s, n)
			}
		}
	}
}

// Send freezes the tensor: it is handed over by reference, and Unique says
// false until the receiver has released it.
func TestContract1SendFreezes(t *testing.T) {
	kinds(t, func(t *testing.T, r rendezvous.Rendezvous, c *tensors) {
		x := c.make(1)
		defer x.Release()
		if err := r.Send(key(t, "a"), noArgs, x, false); err != nil {
			t.Fatal(err)
		}
		if x.Buffer().Unique() {
			t.Error("the rendezvous holds no reference of its own")
		}
		v, err := r.Recv(t.Context(), key(t, "a"), noArgs)
		if err != nil {
			t.Fatal(err)
		}
		if &v.Tensor.Bytes()[0] != &x.Bytes()[0] {
			t.Error("the tensor was copied")
		}
		if x.Buffer().Unique() {
			t.Error("the receiver holds no reference of its own")
		}
		v.Tensor.Release()
		if !x.Buffer().Unique() {
			t.Error("a reference was left behind")
		}
	})
}

// Inside a callback every method works on the same key and on others: no lock
// is held.
func TestContract2DoneRunsOnceOutsideLocks(t *testing.T) {
	kinds(t, func(t *testing.T, r rendezvous.Rendezvous, c *tensors) {
		k := key(t, "a")
		var ran atomic.Int32
		done := func(v rendezvous.Value, _ rendezvous.Args, err error) {
			ran.Add(1)
			if err != nil {
				t.Error(err)
				return
			}
			n := take(v)
			c.mustSend(t, r, k, n+1)
			mustRecv(t, r, k, n+1)
			p := recvAsync(t.Context(), r, k)
			c.mustSend(t, r, k, n+2)
			p.mustGet(t, n+2)
		}
		r.RecvAsync(t.Context(), k, noArgs, done) // matched by Send
		c.mustSend(t, r, k, 10)
		c.mustSend(t, r, k, 20) // matched by RecvAsync
		r.RecvAsync(t.Context(), k, noArgs, done)

		aborted := false
		r.RecvAsync(t.Context(), k, noArgs, func(_ rendezvous.Value, _ rendezvous.Args, err error) {
			aborted = true
			r.Abort(errors.New("the second"))
			if _, err := r.Recv(t.Context(), k, noArgs); !errors.Is(err, errBoom) {
				t.Error(err)
			}
		})
		r.Abort(errBoom)
		if n := ran.Load(); n != 2 || !aborted {
			t.Errorf("done ran %d times, the aborted one %v", n, aborted)
		}
	})
}

// Callbacks that send again nest. They neither deadlock nor get lost.
func TestContract2Recursion(t *testing.T) {
	kinds(t, func(t *testing.T, r rendezvous.Rendezvous, c *tensors) {
		const depth = 10_000
		keys := [2]rendezvous.Key{key(t, "ping"), key(t, "pong")}
		reached := 0
		var done rendezvous.DoneFunc
		done = func(v rendezvous.Value, _ rendezvous.Args, err error) {
			if err != nil {
				t.Error(err)
				return
			}
			if reached = take(v); reached < depth {
				r.RecvAsync(t.Context(), keys[reached%2], noArgs, done)
				c.mustSend(t, r, keys[reached%2], reached+1)
			}
		}
		r.RecvAsync(context.Background(), keys[0], noArgs, done)
		c.mustSend(t, r, keys[0], 1)
		if reached != depth {
			t.Errorf("reached depth %d", reached)
		}
	})
}

func TestContract3FirstAbortStays(t *testing.T) {
	kinds(t, func(t *testing.T, r rendezvous.Rendezvous, c *tensors) {
		const n = 16
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() { r.Abort(status.Errorf(status.Internal, "error %d", i)) })
		}
		wg.Wait()
		_, first := r.Recv(t.Context(), key(t, "a"), noArgs)
		for range n {
			if err := c.send(r, key(t, "a"), 1); !errors.Is(err, first) {
				t.Fatalf("got %v after %v", err, first)
			}
		}
	})
}

// Abort without a reason still fails the step.
func TestContract3AbortWithoutError(t *testing.T) {
	kinds(t, func(t *testing.T, r rendezvous.Rendezvous, c *tensors) {
		r.Abort(nil)
		mustBe(t, c.send(r, key(t, "a"), 1), status.Aborted, "without a reason")
	})
}

// Sends and receives race an abort: every receive ends, each value is released.
// Upstream, a receive that is queued after the sweep never ends.
func TestContract3AbortRacesSendAndRecv(t *testing.T) {
	for _, kind := range []string{"Local", "BaseRemote"} {
		t.Run(kind, func(t *testing.T) {
			c := counted(t)
			for range 200 {
				var r interface {
					rendezvous.Rendezvous
					Close()
				} = rendezvous.NewLocal()
				if kind == "BaseRemote" {
					b := rendezvous.NewBaseRemote(1, nil)
					if err := b.Initialize(session(t)); err != nil {
						t.Fatal(err)
					}
					r = b
				}
				keys := [4]rendezvous.Key{key(t, "a"), key(t, "b"), key(t, "c"), key(t, "d")}
				ctx, cancel := context.WithCancel(t.Context())
				var wg sync.WaitGroup
				var got, sent atomic.Int32
				start := make(chan struct{})
				for i := range 4 {
					wg.Go(func() {
						<-start
						for n := range 8 {
							if c.send(r, keys[(i+n)%4], n) == nil {
								sent.Add(1)
							}
						}
					})
					wg.Go(func() {
						<-start
						for n := range 4 {
							if v, err := r.Recv(ctx, keys[(i+n)%4], noArgs); err == nil {
								take(v)
								got.Add(1)
							}
							if o := recvAsync(ctx, r, keys[(i+n)%4]).wait(t); o.err == nil {
								got.Add(1)
							}
						}
					})
				}
				wg.Go(func() { <-start; r.Abort(errBoom) })
				wg.Go(func() { <-start; cancel() })
				close(start)
				wg.Wait()
				r.Close()
				if got.Load() > sent.Load() {
					t.Fatalf("%d values received, %d sent", got.Load(), sent.Load())
				}
			}
		})
	}
}

// A cancel races a send: the value goes to the receive or stays for the next.
func TestContract3CancelRacesSend(t *testing.T) {
	c := counted(t)
	l := rendezvous.NewLocal()
	defer l.Close()
	for n := range 2000 {
		ctx, cancel := context.WithCancel(context.Background())
		p := recvAsync(ctx, l, key(t, "a"))
		var wg sync.WaitGroup
		wg.Go(cancel)
		wg.Go(func() {
			if err := c.send(l, key(t, "a"), n); err != nil {
				t.Error(err)
			}
		})
		wg.Wait()
		switch o := p.wait(t); {
		case o.err != nil:
			mustBeDerived(t, o.err, status.Cancelled, "RecvAsync of edge ")
			mustRecv(t, l, key(t, "a"), n)
		case o.n != n:
			t.Fatalf("got %d, want %d", o.n, n)
		}
	}
}

// bothAtOnce is a context that ends at the moment when a value is sent: when
// Recv has queued itself and begins to wait.
type bothAtOnce struct {
	context.Context
	send  func()
	ended bool
}

func (c *bothAtOnce) Done() <-chan struct{} {
	c.send()
	c.ended = true
	done := make(chan struct{})
	close(done)
	return done
}

func (c *bothAtOnce) Err() error {
	if c.ended {
		return context.Canceled
	}
	return nil
}

// A value that was matched is received although the context has ended since.
func TestContract3MatchedIsReceived(t *testing.T) {
	c := counted(t)
	l := rendezvous.NewLocal()
	defer l.Close()
	for n := range 100 { // select takes one of the two by chance
		ctx := &bothAtOnce{Context: t.Context(), send: func() { c.mustSend(t, l, key(t, "a"), n) }}
		v, err := l.Recv(ctx, key(t, "a"), noArgs)
		if err != nil {
			t.Fatal(err)
		}
		if got := take(v); got != n {
			t.Fatalf("got %d, want %d", got, n)
		}
	}
}

func TestContract3RestoreGoesToTheHead(t *testing.T) {
	c := counted(t)
	l := rendezvous.NewLocal()
	defer l.Close()
	k := key(t, "a")
	for n := range 3 {
		c.mustSend(t, l, k, n)
	}
	v, err := l.Recv(t.Context(), k, noArgs)
	if err != nil {
		t.Fatal(err)
	}
	if !l.Restore(k, v) {
		t.Fatal("not restored")
	}
	for n := range 3 {
		mustRecv(t, l, k, n)
	}

	// Several, in any order: the one that was sent first is taken first.
	for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 2, 0}, {2, 0, 1}} {
		var taken [3]rendezvous.Value
		for n := range 5 {
			c.mustSend(t, l, k, n)
		}
		for i := range taken {
			if taken[i], err = l.Recv(t.Context(), k, noArgs); err != nil {
				t.Fatal(err)
			}
		}
		for _, i := range order {
			if !l.Restore(k, taken[i]) {
				t.Fatal("not restored")
			}
		}
		for n := range 5 {
			mustRecv(t, l, k, n)
		}
	}

	// Into an empty queue, and with the sender's args and the dead mark.
	x := c.make(7)
	if !l.Restore(k, rendezvous.Value{Tensor: x, SendArgs: rendezvous.Args{Device: "d"}, Dead: true}) {
		t.Fatal("not restored")
	}
	if v, err = l.Recv(t.Context(), k, noArgs); err != nil || !v.Dead || v.SendArgs.Device != "d" || take(v) != 7 {
		t.Errorf("%+v, %v", v, err)
	}

	// To the first receive that waits.
	p, q := recvAsync(t.Context(), l, k), recvAsync(t.Context(), l, k)
	if !l.Restore(k, rendezvous.Value{Tensor: c.make(8)}) {
		t.Fatal("not restored")
	}
	p.mustGet(t, 8)
	c.mustSend(t, l, k, 9)
	q.mustGet(t, 9)

	// Not into a step that is over: the reference stays the caller's.
	l.Abort(errBoom)
	x = c.make(10)
	if l.Restore(k, rendezvous.Value{Tensor: x}) {
		t.Error("restored into an aborted step")
	}
	x.Release()
}

// Keys are found by their full text: every key gets its own value, in a table
// with so many of them that parts of the hash collide, and through the growth
// of the table.
func TestContract4FullKey(t *testing.T) {
	c := counted(t)
	l := rendezvous.NewLocal()
	defer l.Close()
	const n = 100_000
	keys := make([]rendezvous.Key, n)
	for i := range keys {
		keys[i] = key(t, fmt.Sprint("edge_", i))
		c.mustSend(t, l, keys[i], i)
	}
	for i, k := range keys {
		mustRecv(t, l, k, i)
	}
	for i := range 1000 { // and once more in the emptied table, from its end
		c.mustSend(t, l, keys[i], i)
	}
	for i := 999; i >= 0; i-- {
		mustRecv(t, l, keys[i], i)
	}
}

func TestContract5NamesAreNotPrefixes(t *testing.T) {
	b := rendezvous.NewBaseRemote(1, nil)
	defer b.Close()
	d := device(t, ps1)
	if err := b.Initialize(&rendezvous.Session{Task: d.Task}); err != nil {
		t.Fatal(err)
	}
	ten := "/job:ps/replica:0/task:10/device:CPU:0"
	c := counted(t)
	mustBe(t, c.send(b, between(t, ten, ps1, "a"), 1), status.InvalidArgument, "(src)")
	_, err := b.Recv(t.Context(), between(t, ps1, ten, "a"), noArgs)
	mustBe(t, err, status.InvalidArgument, "(dst)")
}

func TestCloseAbortsLeftovers(t *testing.T) {
	c := counted(t)
	l := rendezvous.NewLocal()
	c.mustSend(t, l, key(t, "a"), 1)
	p := recvAsync(t.Context(), l, key(t, "b"))
	l.Close()
	mustBe(t, p.wait(t).err, status.Cancelled, "LocalRendezvous deleted")
	mustBe(t, c.send(l, key(t, "a"), 2), status.Cancelled, "LocalRendezvous deleted")
	l.Close()

	l = rendezvous.NewLocal()
	l.Abort(errBoom)
	l.Close() // the first error stays
	if err := l.Err(); !errors.Is(err, errBoom) {
		t.Error(err)
	}
}

func TestCloseWaitsForCallbacks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := counted(t)
		l := rendezvous.NewLocal()
		hold, ended := make(chan struct{}), false
		l.RecvAsync(t.Context(), key(t, "a"), noArgs, func(v rendezvous.Value, _ rendezvous.Args, _ error) {
			<-hold
			take(v)
			ended = true
		})
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := c.send(l, key(t, "a"), 1); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		closed := false
		wg.Go(func() { l.Close(); closed = true })
		synctest.Wait()
		if closed {
			t.Error("Close returned while a callback runs")
		}
		close(hold)
		wg.Wait()
		if !ended {
			t.Error("the callback did not end")
		}
	})
}
