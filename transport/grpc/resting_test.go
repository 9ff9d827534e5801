package grpctransport

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// places has a number of places.
type places struct {
	free, taken atomic.Int64
	released    chan struct{}
}

func newPlaces(n int64) *places {
	p := &places{released: make(chan struct{}, 100)}
	p.free.Store(n)
	return p
}

func (p *places) take(n int) (func(), error) {
	if p.free.Add(-int64(n)) < 0 {
		p.free.Add(int64(n))
		return nil, status.New(status.ResourceExhausted, "no place is free")
	}
	p.taken.Add(1)
	return func() {
		p.free.Add(int64(n))
		p.released <- struct{}{}
	}, nil
}

// TestConnectionsWithoutAPlaceAreNotMade: a receive that needs one ends with the reason. A connection that no
// call uses gives its place back, and is made again for the next call.
func TestConnectionsWithoutAPlaceAreNotMade(t *testing.T) {
	var c testCluster
	p := newPlaces(1)
	a, b := c.start(t, 0, nodeOptions{}), c.start(t, 1, nodeOptions{})
	to := c.start(t, 2, nodeOptions{bounds: &Bounds{Place: p.take, Rest: 500 * time.Millisecond}})
	exchange := func(from *node, step int64) error {
		x := float32s(t, tensor.Heap{}, tensor.Vector(1), 1)
		defer x.Release()
		from.send(step, from.key(to, "x"), x)
		v, err := to.manager.Find(step).Recv(t.Context(), from.key(to, "x"), rendezvous.Args{})
		if err == nil {
			v.Tensor.Release()
		}
		return err
	}
	waits, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := to.manager.Find(9).Recv(waits, a.key(to, "never"), rendezvous.Args{})
		ended <- err
	}()
	until(t, func() bool { return p.taken.Load() == 1 }, "the first connection")
	err := exchange(b, 1)
	if status.CodeOf(err) != status.ResourceExhausted || !strings.Contains(err.Error(), b.address+": no place is free") {
		t.Errorf("without a place: %v", err)
	}
	if err := exchange(a, 2); err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-ended; status.CodeOf(err) != status.Cancelled {
		t.Error(err)
	}
	for i := range 2 {
		<-p.released
		if err := exchange(b, int64(i)+3); err != nil {
			t.Error(err)
		}
	}
	if n := p.taken.Load(); n != 3 {
		t.Errorf("%d connections were made", n)
	}
	to.close()
	if n := p.free.Load(); n != 1 {
		t.Errorf("%d places are free", n)
	}
}
