package verbstransport_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
)

// Allocators and owners of tensor memory are written by importers of this module and may
// block. They may block only their own caller.

// gatekeeper is an Allocator whose first Allocate after shut waits until it is opened.
type gatekeeper struct {
	tensor.Allocator
	shut    atomic.Bool
	entered chan struct{}
	open    chan struct{}
}

func (g *gatekeeper) Allocate(n int) (*tensor.Buffer, error) {
	if g.shut.CompareAndSwap(true, false) {
		close(g.entered)
		<-g.open
	}
	return g.Allocator.Allocate(n)
}

func TestAllocatorThatWaitsHoldsUpItsOwnReceiveOnly(t *testing.T) {
	g := &gatekeeper{entered: make(chan struct{}), open: make(chan struct{})}
	s := newStage(t, tuned(clusterOptions{require: true}, func(o *verbstransport.Options) {
		if o.Task.Index == 1 {
			g.Allocator, o.Allocator = o.Allocator, g
		}
	}))
	from, to := s.pair()
	open := sync.OnceFunc(func() { close(g.open) })
	t.Cleanup(open)
	g.shut.Store(true)
	held := from.key(to, "held")
	first := to.recv(1, held)
	from.sendsBlob(1, held, 1, 100) // sent in a message
	s.happens("the allocator is called", g.entered)
	for i, size := range []int{8, 100 * kib, 8} {
		k := from.key(to, fmt.Sprint("v", i))
		from.sendsBlob(1, k, 2, size)
		to.recv(1, k).isBlob(2, size)
		back := to.key(from, fmt.Sprint("v", i))
		to.sendsBlob(1, back, 3, size)
		from.recv(1, back).isBlob(3, size)
	}
	if !first.underWay() {
		t.Error("a receive has ended without its memory")
	}
	open()
	first.isBlob(1, 100)
}

// slow makes a tensor whose owner reports when it gets the memory back, and then blocks.
func (s *stage) slow(size int) (x *tensor.Tensor, back <-chan struct{}) {
	s.Helper()
	entered, open := make(chan struct{}), make(chan struct{})
	s.Cleanup(func() { close(open) })
	x, err := tensor.New(tensor.Uint8, tensortest.Shape(s, int64(size)), tensor.NewBuffer(make([]byte, size), func() {
		close(entered)
		<-open
	}))
	if err != nil {
		s.Fatal(err)
	}
	return x, entered
}

// both transfers values in both directions between two processes.
func (s *stage) both(a, b *actor, name string) {
	s.Helper()
	for _, c := range []struct{ from, to *actor }{{a, b}, {b, a}} {
		for _, size := range []int{8, 100 * kib} {
			k := c.from.key(c.to, fmt.Sprint(name, size))
			c.from.sendsBlob(2, k, 2, size)
			c.to.recv(2, k).isBlob(2, size)
		}
	}
}

// TestOwnerThatWaitsHoldsUpNobody: the response cache has the last reference and releases
// it on ACK.
func TestOwnerThatWaitsHoldsUpNobody(t *testing.T) {
	s := newStage(t, clusterOptions{require: true})
	from, to := s.pair()
	for i, size := range []int{100, 0} {
		k := from.key(to, fmt.Sprint("slow", i))
		x, back := s.slow(size)
		from.send(1, k, x)
		to.recv(1, k).value().Release()
		s.happens("the memory went back", back)
		s.both(from, to, fmt.Sprint(i))
	}
}

// TestOwnerThatWaitsHoldsUpNoChannel: the channel has the last reference, to content that
// waits for credits when its step ends.
func TestOwnerThatWaitsHoldsUpNoChannel(t *testing.T) {
	const n = 40
	s := newStage(t, cramped(clusterOptions{require: true}))
	from, to := s.pair()
	var receives []*receiving
	for i := range n {
		receives = append(receives, to.recv(1, from.key(to, fmt.Sprint("v", i))))
	}
	from.waiting(n)
	wire := s.oneWay(from, to).Hold()
	var last <-chan struct{}
	for i := range n {
		x, back := s.slow(100)
		from.send(1, from.key(to, fmt.Sprint("v", i)), x)
		last = back
	}
	from.keeps(n) // else Cleanup has the last reference, and waits
	from.manager.Cleanup(1)
	from.kept.EndStep(1)
	wire.Release()
	for _, r := range receives {
		r.value().Release()
	}
	s.happens("the memory went back", last)
	s.both(from, to, "after")
}
