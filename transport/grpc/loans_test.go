package grpctransport

import (
	"context"
	"math/rand/v2"
	"net"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/mem"

	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/transport"
)

// TestDroppedResponseMakesSpaceSoon: gRPC drops a response without freeing it, which took all that a
// connection may hold. The next response does not wait until something else has the garbage
// collected: in an idle process that is two minutes.
func TestDroppedResponseMakesSpaceSoon(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	c, err := newQuotas(ServerTuning{PerPeer: 1 << 20}).connect(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	func() {
		charged, _ := c.tryCharge(1<<20, 0)
		l := newLease(nil, charged)
		defer l.end()
		l.buffer(make([]byte, 1<<20))
	}()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // shorter than the runtime's two
	defer cancel()
	charged, err := c.charge(ctx, 1, 0)
	if err != nil {
		t.Fatalf("the space of the dropped response: %v", err)
	}
	charged.end()
}

// TestSlowReadersCauseFewCollections: while a client reads slowly, the pauses between collections
// grow. They are short again when one has found a dropped loan, but a collection never takes more than
// its share of the time. Nothing runs when no loan is open.
func TestSlowReadersCauseFewCollections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const took = 25 * time.Millisecond
		begin := time.Now()
		var at []time.Duration
		l := newLoans()
		l.collect = func() {
			at = append(at, time.Since(begin).Round(100*time.Millisecond))
			time.Sleep(took)
		}
		short := l.begin()
		time.Sleep(loanSweep / 2)
		l.end(short)
		time.Sleep(2 * loanSweep)
		synctest.Wait()
		if len(at) > 0 || l.timer.Running() {
			t.Fatalf("collections at %v for a loan that has ended; the timer runs: %v", at, l.timer.Running())
		}
		begin = time.Now()
		slow := l.begin()
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if len(at) < 5 || at[0] > 3*loanSweep {
			t.Fatalf("collections at %v", at)
		}
		for i := 1; i < len(at); i++ {
			if pause := at[i] - at[i-1]; pause < collectShare*took || i > 5 && pause < maxCollectPause || pause > maxCollectPause+2*loanSweep {
				t.Errorf("pause %d of those before collections at %v", i, at)
			}
		}
		last := at[len(at)-1]
		for range 20 {
			l.drop(l.begin())
			time.Sleep(loanSweep)
		}
		synctest.Wait()
		i := slices.IndexFunc(at, func(d time.Duration) bool { return d > last })
		if i < 0 || len(at)-i < 5 || len(at)-i > 10 {
			t.Errorf("collections at %v, want one each %v after %v", at, collectShare*took, last)
		}
		l.end(slow)
		time.Sleep(3 * loanSweep)
		synctest.Wait()
		if l.timer.Running() {
			t.Error("the timer runs without a loan")
		}
	})
}

// TestACollectionComesSoon: when something depends on it, although the collections before it found nothing.
func TestACollectionComesSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, collected := newLoans(), atomic.Int64{}
		l.collect = func() { collected.Add(1) }
		slow := l.begin()
		time.Sleep(10 * maxCollectPause)
		for range 3 {
			before := collected.Load()
			time.Sleep(maxCollectPause / 4)
			l.soon()
			time.Sleep(2 * loanSweep)
			synctest.Wait()
			if collected.Load() == before {
				t.Error("nothing is collected")
			}
		}
		l.end(slow)
		time.Sleep(3 * loanSweep)
	})
}

// TestLoansAreCounted: a loan ends when gRPC frees its buffer.
func TestLoansAreCounted(t *testing.T) {
	q := newQuotas(ServerTuning{})
	c, err := q.connect(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	charged, _ := c.tryCharge(1<<20, 0)
	l := newLease(nil, charged)
	buffers := mem.BufferSlice{l.buffer(make([]byte, 1<<20)), l.buffer(make([]byte, 1<<20)), l.buffer(make([]byte, copyLimit))}
	l.end()
	open := func() int64 { return q.loans.open[0].Load() + q.loans.open[1].Load() }
	if n := open(); n != 2 {
		t.Errorf("%d loans, want 2", n)
	}
	buffers.Free()
	if n := open(); n != 0 {
		t.Errorf("%d loans after Free", n)
	}
	if c.ofTotal != 0 {
		t.Errorf("%d bytes are charged after Free", c.ofTotal)
	}
}

// TestCancelledReceivesHoldUpNoOther: receives are cancelled while their responses are written, so that
// gRPC drops some. The next receive over the connection gets its value all the same, although one
// response takes all that the connection may hold.
func TestCancelledReceivesHoldUpNoOther(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	c := new(testCluster)
	w := new(atWorker)
	a := c.start(t, 0, nodeOptions{unaryLimit: 256 << 10, tuning: ServerTuning{PerPeer: 1 << 20}, wrap: func(inner transport.Worker) transport.Worker {
		w.Worker = inner
		return w
	}})
	b := c.start(t, 1, nodeOptions{})
	k := a.key(b, "x")
	x := value(t, tensor.Heap{}, 311_000)
	receive := func(d time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), d)
		defer cancel()
		v, err := b.manager.Find(1).Recv(ctx, k, rendezvous.Args{})
		if err == nil {
			v.Tensor.Release()
		}
		return err
	}
	dropped := func() uint64 {
		q := w.quota.Load()
		if q == nil {
			return 0
		}
		return q.addr.server.loans.dropped.Load()
	}
	i := 0
	for ; i < 2000 && dropped() < 3; i++ {
		a.send(1, k, x)
		if receive(rand.N(3*time.Millisecond)) == nil {
			continue
		}
		if err := receive(time.Minute); err != nil { // shorter than the runtime's two
			t.Fatalf("after %d receives, some of which were cancelled: %v", i, err)
		}
	}
	t.Logf("gRPC dropped %d responses of %d", dropped(), i)
}
