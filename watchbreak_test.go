package tryst_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"github.com/tryst-rdma/tryst"
	"github.com/tryst-rdma/tryst/internal/transporttest"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/roce"
)

// breaker breaks all connections between a publisher and a watcher of this process at once: those of TCP, by which gRPC and
// tcp work, those by which memory is shared, and the queue pairs of a provider that it is around.
type breaker struct {
	tcp *transporttest.Proxy

	mu    sync.Mutex // guards what follows
	pairs map[verbs.QP]struct{}
}

func (b *breaker) add(q verbs.QP) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pairs[q] = struct{}{}
}

func (b *breaker) remove(q verbs.QP) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.pairs, q)
}

// now breaks everything.
func (b *breaker) now() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for q := range b.pairs {
		_ = q.ToErr() // one that is not connected cannot break
	}
	severShared()
	<-b.tcp.CutAfter(0)
}

// around returns options with a provider whose queue pairs break; none for a route whose connections do.
func (b *breaker) around(route string) []tryst.Option {
	if route != "roce" {
		return nil
	}
	return []tryst.Option{tryst.WithProvider(breakable{roce.New(roce.Options{}), b})}
}

// breakable is a provider with a breaker.
type breakable struct {
	verbs.Provider
	b *breaker
}

func (p breakable) Open(name string) (verbs.Device, error) {
	d, err := p.Provider.Open(name)
	return breakableDevice{d, p.b}, err
}

type breakableDevice struct {
	verbs.Device
	b *breaker
}

func (d breakableDevice) AllocPD() (verbs.PD, error) {
	pd, err := d.Device.AllocPD()
	return breakablePD{pd, d.b}, err
}

type breakablePD struct {
	verbs.PD
	b *breaker
}

func (p breakablePD) CreateQP(c verbs.QPConfig) (verbs.QP, error) {
	q, err := p.PD.CreateQP(c)
	if err != nil {
		return nil, err
	}
	b := &breakableQP{q, p.b}
	p.b.add(b)
	return b, nil
}

type breakableQP struct {
	verbs.QP
	b *breaker
}

func (q *breakableQP) Close() error {
	q.b.remove(q)
	return q.QP.Close()
}

// Over each route all connections break again and again, between versions and during their pulls: channels, and those of
// gRPC. The watch goes on, says so, and yields each newest version, whole.
func TestWatchOutlivesABreakOfEveryConnection(t *testing.T) {
	for _, route := range []string{"grpc", "tcp", "shm", "roce"} {
		t.Run(route, func(t *testing.T) {
			if route == "shm" && runtime.GOOS != "linux" {
				t.Skip("shared memory needs Linux")
			}
			b := &breaker{tcp: transporttest.NewProxy(t), pairs: make(map[verbs.QP]struct{})}
			cfg := configOf(route)
			cfg.Listen = "127.0.0.1:0"
			s, err := tryst.Serve(t.Context(), cfg, b.around(route)...)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close(context.Background())
			b.tcp.SetTarget(s.Addr().String())
			c, err := tryst.Dial(t.Context(), b.tcp.Addr(), configOf(route), b.around(route)...)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close(context.Background())
			breakWatch(t, s, c, b)
			if l := c.Links(); route != "grpc" && (len(l) != 1 || l[0].Route != "verbs" || l[0].Breaks == 0) {
				t.Errorf("the links: %+v", l)
			}
		})
	}
}

// breakWatch watches while connections break.
func breakWatch(t *testing.T, s *tryst.Server, c *tryst.Client, b *breaker) {
	t.Helper()
	const rounds, tensors = 4, 24
	publish := func(n uint64) {
		all := make([]*tensor.Tensor, tensors)
		for i := range all {
			x := randomBytes(n, i, s.SendAllocator())
			defer x.Release()
			all[i] = x.Named(fmt.Sprint("t", i))
		}
		if _, err := s.Update(t.Context(), "w", all, tryst.UpdateNumber(n)); err != nil {
			t.Fatal(err)
		}
	}
	var breaks, returns, pulled int // the watch calls one function at a time
	n := uint64(1)
	publish(n)
	for v, err := range c.Watch(t.Context(), "w", tryst.WatchPull(tryst.OnInterruption(func(i tryst.Interruption) {
		if i.Err != nil {
			breaks++
		} else {
			returns++
		}
	}), tryst.OnPulled(func(tryst.PulledTensor) {
		if pulled++; pulled == tensors/4 && n%2 == 1 {
			b.now()
		}
	}))) {
		if err != nil {
			t.Fatal(err)
		}
		if v.Number != n || len(v.Tensors) != tensors {
			t.Fatalf("number %d came with %d tensors, want %d", v.Number, len(v.Tensors), n)
		}
		for i, x := range v.Tensors {
			want := randomBytes(n, i, tensor.Heap{})
			if !tensor.Equal(want, x) {
				t.Errorf("tensor %d of version %d is wrong", i, n)
			}
			want.Release()
		}
		v.Release()
		pulled = 0
		if n++; n > rounds {
			break
		}
		if n%2 == 0 {
			b.now()
		}
		publish(n)
	}
	if breaks == 0 || returns == 0 {
		t.Errorf("%d breaks and %d returns were reported", breaks, returns)
	}
}

// randomBytes returns a tensor of a version.
func randomBytes(version uint64, i int, a tensor.Allocator) *tensor.Tensor {
	return tensortest.Random(rand.New(rand.NewPCG(version, uint64(i))), tensor.Uint8, tensor.Vector(256<<10), a) //nolint:gosec // reproducible
}
