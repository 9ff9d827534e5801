package transporttest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// cutCases: a broken connection loses nothing and repeats nothing
// (ARCHITECTURE.md section 6).
func cutCases() []testCase {
	return []testCase{
		{name: "Idle", run: cutIdle},
		{name: "WhileWaiting", run: cutWaiting},
		{name: "ManyWaiting", run: cutManyWaiting},
		{name: "BeforeTheRequestIsTaken", run: cutBeforeRequest},
		{name: "WhenTheValueIsMatched", run: cutMatched},
		{name: "InMidTransfer", run: func(w *world) { cutTransferring(w, mib) }},
		{name: "InMidTransferOfManyChunks", run: func(w *world) { cutTransferring(w, 40*mib) }, size: 40 * mib},
		{name: "BeforeTheAck", run: cutBeforeAck},
		{name: "OfAnErrorResponse", run: cutError},
		{name: "RandomlyUnderLoad", run: cutUnderLoad},
		{name: "RandomlyWithCancels", run: cutWithCancels},
	}
}

func cutIdle(w *world) {
	from, to := w.pair()
	faults := w.faults(from)
	k := w.key(from, to, "v")
	for i := range 5 {
		from.sendNumber(1, k, i)
		to.recv(1, k).mustBeNumber(i)
		from.keeps(0)
		w.waitClosed("cut", faults.CutAfter(0))
	}
}

func cutWaiting(w *world) {
	from, to := w.pair()
	faults := w.faults(from)
	k := w.key(from, to, "v")
	r := to.recv(1, k)
	for range 3 {
		from.waiting(1)
		w.waitClosed("cut", faults.CutAfter(0))
	}
	from.sendNumber(1, k, 7)
	from.sendNumber(1, k, 8)
	r.mustBeNumber(7)
	to.recv(1, k).mustBeNumber(8)
}

// cutManyWaiting: more receives wait than are requested again at once.
func cutManyWaiting(w *world) {
	from, to := w.pair()
	faults := w.faults(from)
	const n = 500
	var receives []*receive
	for i := range n {
		receives = append(receives, to.recv(1, w.key(from, to, fmt.Sprint("v", i))))
	}
	from.waiting(n)
	w.waitClosed("cut", faults.CutAfter(0))
	for i := range n {
		from.sendNumber(1, w.key(from, to, fmt.Sprint("v", i)), i)
	}
	for i, r := range receives {
		r.mustBeNumber(i)
	}
}

func cutBeforeRequest(w *world) {
	from, to := w.pair()
	faults := w.faults(from)
	k := w.key(from, to, "v")
	w.warm(from, to)
	from.sendNumber(1, k, 7)
	w.waitClosed("the connection hangs", faults.HoldAfter(0))
	r := to.recv(1, k)
	w.settle()
	w.waitClosed("cut", faults.CutAfter(0))
	faults.Release()
	r.mustBeNumber(7)
}

// cutMatched: the sender has matched the value to the receive, and no byte of the response
// arrives.
func cutMatched(w *world) {
	from, to := w.pair()
	faults := w.faults(from)
	k := w.key(from, to, "v")
	w.warm(from, to)
	r := to.recv(1, k)
	from.waiting(1)
	w.waitClosed("the connection hangs", faults.HoldAfter(0))
	from.sendNumber(1, k, 7)
	from.sendNumber(1, k, 8)
	from.keeps(1)
	w.waitClosed("cut", faults.CutAfter(0))
	faults.Release()
	r.mustBeNumber(7)
	to.recv(1, k).mustBeNumber(8)
}

func cutTransferring(w *world, size int) {
	from, to := w.pair()
	faults := w.faults(from)
	k := w.key(from, to, "v")
	w.warm(from, to)
	from.send(1, k, w.blob(1, size))
	from.send(1, k, w.blob(2, size))
	cut := faults.CutAfter(int64(size) / 3)
	r := to.recv(1, k)
	w.waitClosed("the first cut", cut)
	again := faults.CutAfter(int64(size) / 4)
	r.mustBeBlob(1, size)
	to.recv(1, k).mustBeBlob(2, size)
	w.waitClosed("the second cut", again)
}

// cutBeforeAck: the receiver has the value and the ack is lost. The sender must neither send
// the value again nor keep it forever.
func cutBeforeAck(w *world) {
	from, to := w.pair()
	faults := w.faults(from)
	k := w.key(from, to, "v")
	for i := range 10 {
		from.sendNumber(1, k, i)
		got := make(chan struct{})
		var err error
		to.in(1).RecvAsync(w.ctx, k, noArgs, func(v rendezvous.Value, _ rendezvous.Args, e error) {
			defer close(got)
			faults.CutAfter(0)
			if err = e; err == nil {
				if n, _ := numberOf(v.Tensor); n != i {
					err = fmt.Errorf("got number %d, want %d", n, i)
				}
				v.Tensor.Release()
			}
		})
		w.waitClosed("the value is received", got)
		if err != nil {
			w.Fatal(err)
		}
	}
	from.keeps(0)
}

// cutError: an error is a response, too.
func cutError(w *world) {
	from, to := w.pair()
	faults := w.faults(from)
	w.warm(from, to)
	r := to.recv(2, w.key(from, to, "v"))
	from.waiting(1)
	w.waitClosed("the connection hangs", faults.HoldAfter(0))
	from.in(2).Abort(kernelFailed())
	w.waitClosed("cut", faults.CutAfter(0))
	faults.Release()
	r.mustFail(status.Internal, "node mul")
}

// load is a number of keys, each with numbered values of many sizes.
const (
	loadKeys   = 16
	loadValues = 24
)

// loadCuts is how often a load is cut. With -short it is few, since a transport may take a
// second to recover.
func loadCuts() int {
	if testing.Short() {
		return 8
	}
	return 30
}

// loadBlob returns the seed and the size of a value: most values are small, some need many
// packets.
func loadBlob(key, value int) (seed uint64, size int) {
	seed = uint64(key)<<32 | uint64(value)
	rng := rand.New(rand.NewPCG(7, seed))
	return seed, rng.IntN(1 << (8 + 2*rng.IntN(6)))
}

// cutRandomly cuts the connections at random until the returned function is called.
func (w *world) cutRandomly(faults Faults, seed uint64) (stop func()) {
	ctx, cancel := context.WithCancel(w.ctx)
	var cuts sync.WaitGroup
	cuts.Go(func() {
		rng := rand.New(rand.NewPCG(seed, 1))
		for range loadCuts() {
			select {
			case <-faults.CutAfter(1 + rng.Int64N(100*kib)):
			case <-ctx.Done():
				return
			}
			pause := time.NewTimer(time.Duration(rng.IntN(20)) * time.Millisecond)
			select {
			case <-pause.C:
			case <-ctx.Done():
				pause.Stop()
				return
			}
		}
	})
	return func() {
		cancel()
		cuts.Wait()
		faults.Release()
	}
}

// cutUnderLoad: connections break at random while many keys are received. Each key gets its
// values complete, in order and once.
func cutUnderLoad(w *world) {
	from, to := w.pair()
	stop := w.cutRandomly(w.faults(from), 11)
	defer stop()
	var work sync.WaitGroup
	var received atomic.Int64
	for key := range loadKeys {
		k := w.key(from, to, fmt.Sprint("v", key))
		work.Go(func() {
			for value := range loadValues {
				seed, size := loadBlob(key, value)
				from.send(1, k, w.blob(seed, size))
			}
		})
		work.Go(func() {
			for value := range loadValues {
				v, err := to.in(1).Recv(w.ctx, k, noArgs)
				if err != nil {
					w.Errorf("key %d, value %d: %v", key, value, err)
					return
				}
				seed, size := loadBlob(key, value)
				if why := checkBlob(v.Tensor, seed, size); why != "" {
					w.Errorf("key %d, value %d: %s", key, value, why)
				}
				v.Tensor.Release()
				received.Add(1)
			}
		})
	}
	w.finishes(&work, &received)
}

// finishes waits for the goroutines of the case, which count the values that they receive. How long
// all of them take depends on the machine, so it waits as long as values come.
func (w *world) finishes(work *sync.WaitGroup, received *atomic.Int64) {
	w.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		work.Wait()
	}()
	for {
		before := received.Load()
		select {
		case <-done:
			return
		case <-time.After(w.timeout):
		}
		if n := received.Load(); n == before {
			w.Fatalf("%d values are received, and none for %v", n, w.timeout)
		}
	}
}

// cutWithCancels: connections break and receives are cancelled at random. Each value arrives
// once. The order may change, since a value may return to its key while the next receive is
// in progress.
func cutWithCancels(w *world) {
	from, to := w.pair()
	faults := w.faults(from)
	faults.Throttle(8 * mib) // slow enough to cancel in time
	stop := w.cutRandomly(faults, 12)
	defer stop()
	var work sync.WaitGroup
	var received, cancelled atomic.Int64
	for key := range loadKeys {
		k := w.key(from, to, fmt.Sprint("v", key))
		work.Go(func() {
			for value := range loadValues {
				from.send(1, k, w.blob(uint64(value), cancelSize))
			}
		})
		work.Go(func() {
			rng := rand.New(rand.NewPCG(13, uint64(key)))
			var seen [loadValues]bool
			for range loadValues {
				x := to.recvWithCancels(k, rng, &cancelled)
				if x == nil {
					return
				}
				value := whichBlob(x, loadValues, cancelSize)
				x.Release()
				if value < 0 || seen[value] {
					w.Errorf("key %d: value %d was received twice, or is damaged (-1)", key, value)
					return
				}
				seen[value] = true
				received.Add(1)
			}
		})
	}
	w.finishes(&work, &received)
	w.Logf("%d receives were cancelled", cancelled.Load())
}

// cancelSize is the size of the values in bytes: a few packets.
const cancelSize = 10 * kib

// recvWithCancels receives until it has a value. It cancels half of its receives at some moment.
// It returns nil after an error.
func (n *node) recvWithCancels(k rendezvous.Key, rng *rand.Rand, cancelled *atomic.Int64) *tensor.Tensor {
	for {
		ctx, cancel := n.w.ctx, context.CancelFunc(func() {})
		if rng.IntN(2) == 0 {
			ctx, cancel = context.WithTimeout(ctx, time.Duration(rng.IntN(20_000))*time.Microsecond)
		}
		v, err := n.in(1).Recv(ctx, k, noArgs)
		cancel()
		switch {
		case err == nil:
			return v.Tensor
		case status.CodeOf(err) == status.DeadlineExceeded && n.w.ctx.Err() == nil:
			cancelled.Add(1)
		default:
			n.w.Errorf("receive of %s: %v", k.Edge(), err)
			return nil
		}
	}
}

// whichBlob returns the seed, below n, of the blob in x; -1 for none.
func whichBlob(x *tensor.Tensor, n, size int) int {
	for seed := range n {
		if checkBlob(x, uint64(seed), size) == "" {
			return seed
		}
	}
	return -1
}
