package delivery

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/transport"
)

const (
	producer = "/job:p/replica:0/task:0"
	consumer = "/job:c/replica:0/task:0"
)

// t0 is when virtual clocks of the pure machines begin.
var t0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func key(t testing.TB, name string) rendezvous.Key {
	t.Helper()
	k, err := rendezvous.ParseKey(rendezvous.CreateKey(producer+"/device:CPU:0", 1, consumer+"/device:CPU:0", name, rendezvous.FrameIter{}))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// leaks counts the values that are alive.
type leaks struct {
	alive atomic.Int64
}

// value returns a value of n bytes that begins with b.
func (l *leaks) value(t testing.TB, b byte, n int) rendezvous.Value {
	t.Helper()
	data := make([]byte, n)
	if n > 0 {
		data[0] = b
	}
	l.alive.Add(1)
	v, err := tensor.New(tensor.Uint8, tensor.Vector(n), tensor.NewBuffer(data, func() { l.alive.Add(-1) }))
	if err != nil {
		t.Fatal(err)
	}
	return rendezvous.Value{Tensor: v}
}

func newLeaks(t testing.TB) *leaks {
	l := new(leaks)
	t.Cleanup(func() {
		if n := l.alive.Load(); n != 0 {
			t.Errorf("%d references to values leaked", n)
		}
	})
	return l
}

// table is a Source: a rendezvous for each step, as a Manager has.
type table struct {
	mu    sync.Mutex
	steps map[int64]*rendezvous.Local
	over  map[int64]bool
}

func newTable(t testing.TB) *table {
	s := &table{steps: make(map[int64]*rendezvous.Local), over: make(map[int64]bool)}
	t.Cleanup(func() {
		for id := range s.steps {
			s.step(id).Close()
		}
	})
	return s
}

func (s *table) step(id int64) *rendezvous.Local {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.steps[id] == nil {
		s.steps[id] = rendezvous.NewLocal()
	}
	return s.steps[id]
}

func (s *table) RecvLocalAsync(ctx context.Context, step int64, k rendezvous.Key, done rendezvous.DoneFunc) {
	s.step(step).RecvAsync(ctx, k, rendezvous.Args{}, done)
}

func (s *table) TakeLocal(step int64, k rendezvous.Key) (rendezvous.Value, bool) {
	type outcome struct {
		v   rendezvous.Value
		err error
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan outcome, 1)
	s.step(step).RecvAsync(ctx, k, rendezvous.Args{}, func(v rendezvous.Value, _ rendezvous.Args, err error) { ended <- outcome{v, err} })
	cancel()
	o := <-ended
	return o.v, o.err == nil
}

func (s *table) Restore(step int64, k rendezvous.Key, v rendezvous.Value) bool {
	return s.step(step).Restore(k, v)
}

// send puts v under k and gives up the reference.
func (s *table) send(t testing.TB, step int64, k rendezvous.Key, v rendezvous.Value) {
	t.Helper()
	if err := s.step(step).Send(k, rendezvous.Args{}, v.Tensor, false); err != nil {
		t.Error(err)
	}
	v.Tensor.Release()
}

func (s *table) cleanup(step int64) {
	s.step(step).Abort(status.Errorf(status.Aborted, "Cleanup %d", step))
}

// word describes a response, for comparisons.
func word(ans transport.Response) string {
	if ans.Err != nil {
		return status.CodeOf(ans.Err).String()
	}
	if b := ans.Value.Tensor.Bytes(); len(b) > 0 {
		return fmt.Sprintf("value %c", b[0])
	}
	return "value"
}

// replyFunc is a Replier by a function; compare pointers.
type replyFunc struct{ f func(transport.Response) }

// Reply implements Replier.
func (r *replyFunc) Reply(_ uint64, _ uint32, resp transport.Response) { r.f(resp) }

func replier(f func(transport.Response)) transport.Replier { return &replyFunc{f} }

// testCall is a call of ask.
type testCall struct {
	c  *ResponseCache
	to transport.Replier
	r  transport.Request
}

// ask is Request with a function.
func (c *ResponseCache) ask(r transport.Request, f func(transport.Response)) testCall {
	to := replier(f)
	c.Request(to, r)
	return testCall{c, to, r}
}

func (t testCall) Detach() { t.c.Detach(t.to, t.r.Requester, t.r.ID, t.r.Attempt) }
