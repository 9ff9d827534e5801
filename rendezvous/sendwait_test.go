package rendezvous_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// small is what a tensor of 8 bytes counts.
const small = 256

// bounded returns step 1 of a manager with a bound of n small values, and values that must be
// released when the manager is closed.
func bounded(t testing.TB, n int64) (*tensors, *rendezvous.Manager, *rendezvous.BaseRemote) {
	c := counted(t)
	m := rendezvous.NewManager(rendezvous.ManagerOptions{Session: session(t), SendBound: n * small})
	t.Cleanup(m.Close)
	return c, m, m.Find(1)
}

// sendWait sends tensor number n.
func (c *tensors) sendWait(ctx context.Context, b *rendezvous.BaseRemote, k rendezvous.Key, n int) (*rendezvous.Delivery, error) {
	t := c.make(n)
	defer t.Release()
	return b.SendWait(ctx, k, noArgs, t, false)
}

func (c *tensors) mustSendWait(b *rendezvous.BaseRemote, k rendezvous.Key, n int) *rendezvous.Delivery {
	c.t.Helper()
	d, err := c.sendWait(context.Background(), b, k, n)
	if err != nil {
		c.t.Errorf("SendWait %d: %v", n, err)
	}
	return d
}

// ended reports whether a value has its outcome.
func ended(d *rendezvous.Delivery) bool {
	select {
	case <-d.Done():
		return true
	default:
		return false
	}
}

func psTask(t testing.TB) cluster.Task { return device(t, ps).Task }

func TestSendWaitWaitsForSpaceInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, b := bounded(t, 2)
		k := key(t, "a")
		var sent atomic.Int64
		for i := range 6 {
			go func() {
				c.mustSendWait(b, k, i)
				sent.Add(1)
			}()
			synctest.Wait()
		}
		for i := range 6 {
			if n := sent.Load(); n != int64(min(i+2, 6)) {
				t.Errorf("%d were received, and %d have returned", i, n)
			}
			if n := b.Unreceived(psTask(t)); n > 2*small {
				t.Errorf("%d bytes are not received, the bound is %d", n, 2*small)
			}
			mustRecv(t, b, k, i)
			synctest.Wait()
		}
		if n := b.Unreceived(psTask(t)); n != 0 {
			t.Errorf("all was received, and %d bytes are counted", n)
		}
	})
}

func TestSendWaitBoundsEachTaskAndStep(t *testing.T) {
	c, m, b := bounded(t, 1)
	c.mustSendWait(b, key(t, "a"), 1)
	c.mustSendWait(b, between(t, ps, ps1, "a"), 2)
	c.mustSendWait(m.Find(2), key(t, "a"), 3)
}

// TestSendBoundHoldsWholeTensors: tensors count their memory alone, so a bound of n of them holds n.
// Small and empty ones count 256 bytes, so that their number is bounded, too.
func TestSendBoundHoldsWholeTensors(t *testing.T) {
	for _, size := range []int64{0, 1, 256, 4096} {
		synctest.Test(t, func(t *testing.T) {
			c := counted(t)
			m := rendezvous.NewManager(rendezvous.ManagerOptions{Session: session(t), SendBound: 8 * max(size, 256)})
			t.Cleanup(m.Close)
			b := m.Find(1)
			x, err := tensor.Allocate(c.alloc, tensor.Uint8, tensor.Vector(int(size)))
			if err != nil {
				t.Fatal(err)
			}
			defer x.Release()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			for i := range 9 {
				if _, err := b.SendWait(ctx, key(t, "a"), noArgs, x, false); (err != nil) != (i == 8) {
					t.Errorf("tensor %d of %d bytes: %v", i, size, err)
				}
			}
			if n := b.Unreceived(psTask(t)); n != 8*max(size, 256) {
				t.Errorf("8 tensors of %d bytes count %d", size, n)
			}
		})
	}
}

func TestSendWaitLargerThanTheBoundGoesAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, b := bounded(t, 1)
		large, err := tensor.Allocate(c.alloc, tensor.Int64, tensor.Vector(1000))
		if err != nil {
			t.Fatal(err)
		}
		c.mustSendWait(b, key(t, "a"), 1)
		var sent atomic.Bool
		go func() {
			if _, err := b.SendWait(context.Background(), key(t, "b"), noArgs, large, false); err != nil {
				t.Error(err)
			}
			large.Release()
			sent.Store(true)
		}()
		synctest.Wait()
		if sent.Load() {
			t.Error("it does not wait for a value before it")
		}
		mustRecv(t, b, key(t, "a"), 1)
		synctest.Wait()
		if !sent.Load() {
			t.Error("it waits, and nothing else is counted")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = c.sendWait(ctx, b, key(t, "c"), 2)
		mustBe(t, err, status.DeadlineExceeded, "did not have 8000 bytes")
	})
}

// TestSendsDoNotKeepASendWaitOut: the receiver never has all that was sent, since Send goes on. A
// value larger than the bound gets in all the same, and so does the one behind it.
func TestSendsDoNotKeepASendWaitOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, b := bounded(t, 2)
		flow := key(t, "flow")
		c.mustSendWait(b, flow, 0)
		c.mustSendWait(b, flow, 1)
		large, err := tensor.Allocate(c.alloc, tensor.Int64, tensor.Vector(1000))
		if err != nil {
			t.Fatal(err)
		}
		var sent atomic.Int64
		go func() {
			if _, err := b.SendWait(context.Background(), key(t, "large"), noArgs, large, false); err != nil {
				t.Error(err)
			}
			large.Release()
			sent.Add(1)
		}()
		synctest.Wait()
		go func() {
			c.mustSendWait(b, key(t, "small"), 9)
			sent.Add(1)
		}()
		synctest.Wait()
		for i, want := range []int64{0, 1, 1, 1, 2} { // received: 0; 1; 2 and 3; the large value
			c.mustSend(t, b, flow, i+2)
			if i == 4 {
				v, err := b.Recv(t.Context(), key(t, "large"), noArgs)
				if err != nil {
					t.Fatal(err)
				}
				v.Tensor.Release()
			} else {
				mustRecv(t, b, flow, i)
			}
			synctest.Wait()
			if got := sent.Load(); got != want {
				t.Errorf("receive %d: %d calls of SendWait have returned, want %d", i, got, want)
			}
		}
	})
}

func TestSendWaitEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, b := bounded(t, 1)
		k := key(t, "a")
		over, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := c.sendWait(over, b, k, 9)
		mustBeDerived(t, err, status.Cancelled, `SendWait of edge "a"`)
		c.mustSendWait(b, k, 0)
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error, 1)
		go func() {
			_, err := c.sendWait(ctx, b, k, 1)
			failed <- err
		}()
		synctest.Wait()
		go c.mustSendWait(b, k, 2)
		synctest.Wait()
		cancel()
		mustBeDerived(t, <-failed, status.Cancelled, "so nothing was sent: /job:ps/replica:0/task:0 did not have 256 bytes")
		mustRecv(t, b, k, 0)
		mustRecv(t, b, k, 2) // who was behind it goes on
		synctest.Wait()
		if n := b.Unreceived(psTask(t)); n != 0 {
			t.Errorf("%d bytes are counted", n)
		}
	})
}

func TestSendWaitEndsWithTheStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, b := bounded(t, 1)
		k := key(t, "a")
		d := c.mustSendWait(b, k, 0)
		failed := make(chan error, 3)
		for range 3 {
			go func() {
				_, err := c.sendWait(t.Context(), b, k, 1)
				failed <- err
			}()
		}
		synctest.Wait()
		b.Abort(errBoom)
		for range 3 {
			if err := <-failed; !errors.Is(err, errBoom) {
				t.Errorf("got %v", err)
			}
		}
		if !ended(d) || !errors.Is(d.Err(), errBoom) {
			t.Errorf("the value that was sent: %v", d.Err())
		}
		if _, err := c.sendWait(t.Context(), b, k, 1); !errors.Is(err, errBoom) {
			t.Errorf("after the end: %v", err)
		}
	})
}

// TestSendCountsFromTheFirstSendWaitOn: Send never waits, and its values count, also those
// that were sent before.
func TestSendCountsFromTheFirstSendWaitOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, b := bounded(t, 3)
		for i := range 4 { // in one queue and in several
			c.mustSend(t, b, key(t, fmt.Sprint("q", i/2)), i)
		}
		if n := b.Unreceived(psTask(t)); n != 0 {
			t.Errorf("%d bytes are counted before a SendWait", n)
		}
		var sent atomic.Bool
		go func() {
			c.mustSendWait(b, key(t, "w"), 9)
			sent.Store(true)
		}()
		synctest.Wait()
		c.mustSend(t, b, key(t, "q0"), 4)
		if n := b.Unreceived(psTask(t)); n != 5*small {
			t.Errorf("%d bytes are counted, want %d", n, 5*small)
		}
		for i, n := range []int{0, 1, 4} {
			if synctest.Wait(); sent.Load() {
				t.Errorf("it returned after %d receives", i)
			}
			mustRecv(t, b, key(t, "q0"), n)
		}
		if synctest.Wait(); !sent.Load() {
			t.Error("it waits, and there is space")
		}
	})
}

// TestTheFirstSendWaitsOfAStepCountWhatWaits: none of several that begin at once goes on before the
// values that were sent earlier are counted.
func TestTheFirstSendWaitsOfAStepCountWhatWaits(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			c, m, b := bounded(t, 1900)
			for i := range 2000 { // so many that counting them takes a while
				c.mustSend(t, b, key(t, fmt.Sprint("waits", i)), i)
			}
			var sent atomic.Int64
			for i := range 8 {
				go func() {
					if _, err := c.sendWait(context.Background(), b, key(t, "a"), i); err == nil {
						sent.Add(1)
					}
				}()
			}
			synctest.Wait()
			if n := sent.Load(); n > 0 {
				t.Errorf("%d calls went on beyond the bound", n)
			}
			m.AbortStep(1, status.New(status.Aborted, "over"))
			synctest.Wait()
		})
	}
}

func TestDeliveryHasOneOutcome(t *testing.T) {
	c, m, b := bounded(t, 10)
	k := key(t, "a")

	d := c.mustSendWait(b, k, 1)
	if ended(d) || d.Err() != nil {
		t.Errorf("before it is received: %v, %v", ended(d), d.Err())
	}
	mustRecv(t, b, k, 1)
	if !ended(d) || d.Err() != nil {
		t.Errorf("received here: %v, %v", ended(d), d.Err())
	}

	p := recvAsync(t.Context(), b, k)
	d = c.mustSendWait(b, k, 2)
	if p.mustGet(t, 2); !ended(d) || d.Err() != nil {
		t.Errorf("a receive was waiting: %v, %v", ended(d), d.Err())
	}

	take := func(n int) (*rendezvous.Delivery, rendezvous.Value) {
		d := c.mustSendWait(b, k, n)
		v, ok := m.TakeLocal(1, k)
		if !ok || ended(d) {
			t.Fatalf("taken for a peer: %v, has its outcome: %v", ok, ended(d))
		}
		return d, v
	}
	here := func(f func()) { f() }
	d, v := take(3)
	if v.Deliver(nil, here); !ended(d) || d.Err() != nil {
		t.Errorf("a peer has it: %v, %v", ended(d), d.Err())
	}
	d, v = take(4)
	if v.Deliver(errBoom, here); !ended(d) || !errors.Is(d.Err(), errBoom) {
		t.Errorf("a peer lost it: %v, %v", ended(d), d.Err())
	}
	d, v = take(5)
	if !m.Restore(1, k, v) || ended(d) {
		t.Errorf("it was put back and has an outcome: %v", ended(d))
	}
	if mustRecv(t, b, k, 5); !ended(d) || d.Err() != nil {
		t.Errorf("received after it was put back: %v, %v", ended(d), d.Err())
	}
	d = c.mustSendWait(b, k, 6)
	m.Cleanup(1)
	mustBe(t, d.Err(), status.Aborted, "Cleanup 1")
	if n := b.Unreceived(psTask(t)); n != 0 {
		t.Errorf("%d bytes are counted", n)
	}
}

// TestDeliveryIntoMemoryOfTheReceiver: a value that does not fit goes back, so its sender learns
// nothing yet.
// TestDeliveryWait: it ends with the outcome, or with its context, which changes nothing.
func TestDeliveryWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, m, b := bounded(t, 10)
		d := c.mustSendWait(b, key(t, "a"), 1)

		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := d.Wait(short)
		mustBe(t, err, status.DeadlineExceeded, "the deadline passed before the receiver had the value, which it may still get")
		if text := status.From(err).Message(); !errors.Is(err, context.DeadlineExceeded) || !strings.HasPrefix(text, `delivery of edge "a" from `) {
			t.Errorf("%v is not context.DeadlineExceeded, or does not name the value", err)
		}
		why := errors.New("the consumer has gone")
		gone, stop := context.WithCancelCause(t.Context())
		stop(why)
		if err := d.Wait(gone); status.CodeOf(err) != status.Cancelled || !errors.Is(err, context.Canceled) || !errors.Is(err, why) || d.Err() != nil || ended(d) {
			t.Errorf("the context has ended with a cause: %v; the outcome %v, %v", err, ended(d), d.Err())
		}

		waits := make(chan error)
		go func() { waits <- d.Wait(t.Context()) }()
		synctest.Wait()
		mustRecv(t, b, key(t, "a"), 1)
		if err := <-waits; err != nil {
			t.Errorf("the value was received: %v", err)
		}
		for range 100 {
			if err := d.Wait(gone); err != nil {
				t.Fatalf("the outcome is there, and Wait prefers its context: %v", err)
			}
		}

		d = c.mustSendWait(b, key(t, "b"), 2)
		m.AbortStep(1, status.New(status.Internal, "boom"))
		mustBe(t, d.Wait(t.Context()), status.Internal, "boom")
	})
}

func TestDeliveryIntoMemoryOfTheReceiver(t *testing.T) {
	c, m, b := bounded(t, 10)
	k := key(t, "a")
	into := func(shape tensor.Shape) rendezvous.Args {
		dst, err := tensor.Allocate(c.alloc, tensor.Int64, shape)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(dst.Release)
		i, err := rendezvous.NewInto(dst)
		if err != nil {
			t.Fatal(err)
		}
		return i.Args()
	}
	fits, fitsNot := into(tensor.Shape{}), into(tensor.Vector(2))
	recvs := map[string]func(rendezvous.Args) outcome{
		"Recv": func(args rendezvous.Args) outcome {
			v, err := b.Recv(t.Context(), k, args)
			if err != nil {
				return outcome{err: err}
			}
			return outcome{n: take(v)}
		},
		"RecvAsync": func(args rendezvous.Args) outcome {
			p := newPending()
			b.RecvAsync(t.Context(), k, args, p.done)
			return p.wait(t)
		},
	}
	for name, recv := range recvs {
		d := c.mustSendWait(b, k, 7)
		mustBe(t, recv(fitsNot).err, status.InvalidArgument, "receive it into memory of its type and shape")
		if ended(d) {
			t.Errorf("%s: it was put back and has the outcome %v", name, d.Err())
		}
		if o := recv(fits); o.err != nil || o.n != 7 || !ended(d) || d.Err() != nil {
			t.Errorf("%s: %v, has its outcome: %v, %v", name, o, ended(d), d.Err())
		}
	}
	d := c.mustSendWait(b, k, 8)
	m.AbortStep(1, errBoom)
	if !errors.Is(d.Err(), errBoom) || b.Unreceived(psTask(t)) != 0 {
		t.Errorf("the outcome is %v, and %d bytes are counted", d.Err(), b.Unreceived(psTask(t)))
	}
}

// TestReceiversSeeTheArgsOfTheSender: the record of a counted value is not among them.
func TestReceiversSeeTheArgsOfTheSender(t *testing.T) {
	c, _, b := bounded(t, 100)
	k := key(t, "a")
	x := c.make(1)
	defer x.Release()
	for name, args := range map[string]rendezvous.Args{"none": {}, "a stream": {Device: "stream 3"}} {
		sends := []func() error{
			func() error { return b.Send(k, args, x, false) }, // counted by the SendWait behind it
			func() error { _, err := b.SendWait(t.Context(), k, args, x, false); return err },
			func() error { return b.Send(k, args, x, false) },
		}
		for _, send := range sends {
			if err := send(); err != nil {
				t.Fatal(err)
			}
		}
		for i := range sends {
			v, err := b.Recv(t.Context(), k, noArgs)
			if err != nil {
				t.Fatal(err)
			}
			if v.Tensor.Release(); v.SendArgs != args {
				t.Errorf("%s, send %d: the receiver got %v", name, i, v.SendArgs)
			}
		}
	}
}

// TestSendWaitOfAValueThatCameFromAPeer: its receiver here gets a value of this process.
func TestSendWaitOfAValueThatCameFromAPeer(t *testing.T) {
	c, _, b := bounded(t, 10)
	k, x := key(t, "a"), c.make(1)
	defer x.Release()
	came := rendezvous.Arrival{Transport: "verbs", Device: "mlx5_0", Bytes: 8, Attempts: 2}
	if _, err := b.SendWait(t.Context(), k, came.NewArgs(), x, false); err != nil {
		t.Fatal(err)
	}
	if err := b.Send(k, came.NewArgs(), x, false); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		v, err := b.Recv(t.Context(), k, noArgs)
		if err != nil {
			t.Fatal(err)
		}
		if v.Tensor.Release(); v.Arrival().Transport != rendezvous.TransportLocal {
			t.Errorf("it came by %+v", v.Arrival())
		}
	}
}

// TestSendWaitOfManyGoroutines: whatever happens to values, each has one outcome, and nothing is
// counted in the end.
func TestSendWaitOfManyGoroutines(t *testing.T) {
	const senders, each = 8, 200
	c, m, b := bounded(t, 4)
	k := key(t, "a")
	var producers, outcomes, consumers sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var sent, received atomic.Int64
	for range senders {
		producers.Go(func() {
			for i := range each {
				ctx, cancel := context.WithTimeout(ctx, time.Duration(rand.IntN(1000))*time.Microsecond)
				if d, err := c.sendWait(ctx, b, k, i); err == nil {
					sent.Add(1)
					outcomes.Go(func() {
						if <-d.Done(); d.Err() == nil {
							received.Add(1)
						}
					})
				}
				cancel()
			}
		})
	}
	for range 2 {
		consumers.Go(func() {
			for {
				v, err := b.Recv(ctx, k, noArgs)
				if err != nil {
					return
				}
				v.Tensor.Release()
			}
		})
		consumers.Go(func() {
			for ctx.Err() == nil {
				v, err := m.RecvLocal(ctx, 1, k)
				switch {
				case err != nil:
				case rand.IntN(2) == 0:
					v.Deliver(nil, func(f func()) { f() })
				default:
					m.Restore(1, k, v)
				}
			}
		})
	}
	producers.Wait()
	outcomes.Wait() // all values are received
	cancel()
	consumers.Wait()
	if n := b.Unreceived(psTask(t)); n != 0 {
		t.Errorf("%d bytes are counted", n)
	}
	if sent.Load() != received.Load() || sent.Load() == 0 {
		t.Errorf("%d were sent, %d received", sent.Load(), received.Load())
	}
}

// BenchmarkSendWait is a matched pair with a bound and a confirmation.
func BenchmarkSendWait(b *testing.B) {
	_, _, r := bounded(b, 100)
	k, x := key(b, "a"), benchTensor(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.SendWait(b.Context(), k, noArgs, x, false); err != nil {
			b.Fatal(err)
		}
		v, err := r.Recv(b.Context(), k, noArgs)
		if err != nil {
			b.Fatal(err)
		}
		v.Tensor.Release()
	}
}
