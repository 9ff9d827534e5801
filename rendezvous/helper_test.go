package rendezvous_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	ps  = "/job:ps/replica:0/task:0/device:CPU:0"
	ps1 = "/job:ps/replica:0/task:1/device:CPU:0"
	gpu = "/job:ps/replica:0/task:0/device:GPU:0"
)

var noArgs rendezvous.Args

// key returns a key from ps to itself.
func key(t testing.TB, name string) rendezvous.Key { return between(t, ps, ps, name) }

func between(t testing.TB, src, dst, name string) rendezvous.Key {
	t.Helper()
	k, err := rendezvous.ParseKey(rendezvous.CreateKey(src, 7890, dst, name, rendezvous.FrameIter{}))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// tensors makes numbered tensors, all of which must be released when the test
// ends.
type tensors struct {
	t     testing.TB
	alloc *tensortest.Allocator
}

func counted(t testing.TB) *tensors {
	return &tensors{t: t, alloc: tensortest.NewAllocator(t)}
}

func (c *tensors) make(n int) *tensor.Tensor {
	t, err := tensor.Allocate(c.alloc, tensor.Int64, tensor.Shape{})
	if err != nil {
		c.t.Error(err)
	}
	binary.LittleEndian.PutUint64(t.Bytes(), uint64(n))
	return t
}

// send sends tensor number n and keeps no reference.
func (c *tensors) send(r rendezvous.Rendezvous, k rendezvous.Key, n int) error {
	t := c.make(n)
	defer t.Release()
	return r.Send(k, noArgs, t, false)
}

// The must functions report and go on, so that any goroutine may call them.

func (c *tensors) mustSend(t testing.TB, r rendezvous.Rendezvous, k rendezvous.Key, n int) {
	t.Helper()
	if err := c.send(r, k, n); err != nil {
		t.Errorf("Send %d: %v", n, err)
	}
}

func number(v rendezvous.Value) int { return int(binary.LittleEndian.Uint64(v.Tensor.Bytes())) }

// take returns the number of a value and releases it.
func take(v rendezvous.Value) int {
	defer v.Tensor.Release()
	return number(v)
}

func mustRecv(t testing.TB, r rendezvous.Rendezvous, k rendezvous.Key, want int) {
	t.Helper()
	v, err := r.Recv(t.Context(), k, noArgs)
	if err != nil {
		t.Errorf("Recv: %v", err)
		return
	}
	if got := take(v); got != want {
		t.Errorf("Recv of %s gave %d, want %d", k.Edge(), got, want)
	}
}

// outcome is what one receive ended with.
type outcome struct {
	n    int // the tensor's number
	dead bool
	err  error
}

func (o outcome) String() string {
	if o.err != nil {
		return o.err.Error()
	}
	return fmt.Sprint(o.n)
}

// pending is an asynchronous receive. Its done runs once or the test fails.
type pending struct {
	c     chan outcome
	calls atomic.Int32
}

func recvAsync(ctx context.Context, r rendezvous.Rendezvous, k rendezvous.Key) *pending {
	p := newPending()
	r.RecvAsync(ctx, k, noArgs, p.done)
	return p
}

func newPending() *pending { return &pending{c: make(chan outcome, 2)} }

func (p *pending) done(v rendezvous.Value, _ rendezvous.Args, err error) {
	p.calls.Add(1)
	o := outcome{err: err}
	if err == nil {
		o.n, o.dead = take(v), v.Dead
	}
	p.c <- o
}

func (p *pending) wait(t testing.TB) outcome {
	t.Helper()
	o := <-p.c
	if n := p.calls.Load(); n != 1 {
		t.Errorf("done ran %d times", n)
	}
	return o
}

func (p *pending) waits() bool { return p.calls.Load() == 0 }

func (p *pending) mustGet(t testing.TB, want int) {
	t.Helper()
	if o := p.wait(t); o.err != nil || o.n != want {
		t.Errorf("received %v, want %d", o, want)
	}
}

func (p *pending) mustFail(t testing.TB, want error) {
	t.Helper()
	if o := p.wait(t); !errors.Is(o.err, want) {
		t.Errorf("received %v, want the error %v", o, want)
	}
}

func mustBe(t testing.TB, err error, code status.Code, text string) {
	t.Helper()
	if status.CodeOf(err) != code || !strings.Contains(err.Error(), text) {
		t.Errorf("got %v, want %v with %q", err, code, text)
	}
}

func mustBeDerived(t testing.TB, err error, code status.Code, text string) {
	t.Helper()
	mustBe(t, err, code, text)
	if !status.IsDerived(err) {
		t.Errorf("%v is not marked as derived", err)
	}
}

func device(t testing.TB, name string) cluster.Device {
	t.Helper()
	d, err := cluster.ParseDevice(name)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func session(t testing.TB) *rendezvous.Session {
	d := device(t, ps)
	return &rendezvous.Session{Task: d.Task, Devices: map[cluster.Device]uint64{d: 7890}}
}
