package rendezvous_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// scripted is a transport that does what its test says before it returns a transfer, and
// in the Wait of it.
type scripted struct {
	begin func(end func(error))
	wait  func(ctx context.Context, end func(error)) // nil: there is nothing to do

	mu        sync.Mutex
	ends      []func(error)
	waits     []int           // how often each was waited for
	cancelled map[int][]error // by their numbers, from 1
}

type scriptedTransfer struct {
	*transfer
	s *scripted
	n int
}

func (s *scripted) RecvFromRemoteAsync(_ int64, _ rendezvous.Key, args rendezvous.Args, done rendezvous.DoneFunc) rendezvous.Transfer {
	x := &scriptedTransfer{newTransfer(args, done, nil), s, 0}
	x.cancel = x.Cancel
	var once sync.Once // a transfer that has ended may be cancelled
	end := func(err error) { once.Do(func() { x.end(rendezvous.Value{}, err) }) }
	s.mu.Lock()
	s.ends, s.waits = append(s.ends, end), append(s.waits, 0)
	x.n = len(s.ends)
	s.mu.Unlock()
	if s.begin != nil {
		s.begin(end)
	}
	return x
}

func (x *scriptedTransfer) Wait(ctx context.Context) (rendezvous.Value, error) {
	x.s.mu.Lock()
	x.s.waits[x.n-1]++
	end := x.s.ends[x.n-1]
	x.s.mu.Unlock()
	if x.s.wait != nil {
		x.s.wait(ctx, end)
	}
	return x.transfer.Wait(ctx)
}

func (x *scriptedTransfer) Cancel(err error) {
	s := x.s
	s.mu.Lock()
	if s.cancelled == nil {
		s.cancelled = make(map[int][]error)
	}
	s.cancelled[x.n] = append(s.cancelled[x.n], err)
	end, first := s.ends[x.n-1], len(s.cancelled[x.n]) == 1
	s.mu.Unlock()
	if first {
		go end(status.New(status.Cancelled, "the transport's own word"))
	}
}

// What ends a receive while the transport begins it reaches the transfer as soon as it was
// returned, once.
func TestCancelBeforeTheTransferIsThere(t *testing.T) {
	for _, how := range []string{"abort", "context", "both"} {
		s := new(scripted)
		b := initialized(t, s)
		ctx, cancel := context.WithCancel(context.Background())
		s.begin = func(func(error)) {
			if how != "context" {
				b.Abort(errBoom)
			}
			if how != "abort" {
				cancel()
			}
		}
		p := recvAsync(ctx, b, remoteKey(t, "a"))
		if err := p.wait(t).err; how == "context" {
			mustBeDerived(t, err, status.Cancelled, "RecvAsync of edge ")
		} else if !errors.Is(err, errBoom) {
			t.Errorf("%s: %v", how, err)
		}
		b.Close()
		cancel()
		if n := len(s.cancelled[1]); n != 1 {
			t.Errorf("%s: the transport was told %d times", how, n)
		}
	}
}

// The context of a receive that has ended concerns no later one.
func TestContextOfAnEarlierReceive(t *testing.T) {
	s := new(scripted)
	b := initialized(t, s)
	next := func() func(error) { return s.ends[len(s.ends)-1] }
	for range 100 {
		early, cancel := context.WithCancel(context.Background())
		s.begin = func(end func(error)) { end(errBoom) } // before its transfer is there
		recvAsync(early, b, remoteKey(t, "a")).mustFail(t, errBoom)
		s.begin = nil
		late, cancelLate := context.WithCancel(context.Background())
		p := recvAsync(late, b, remoteKey(t, "a"))
		next()(errBoom)
		p.mustFail(t, errBoom)
		first, second := recvAsync(context.Background(), b, remoteKey(t, "a")), recvAsync(context.Background(), b, remoteKey(t, "a"))
		cancel()
		cancelLate()
		if !first.waits() || !second.waits() {
			t.Fatal("one ended with the context of an earlier one")
		}
		next()(errBoom)
		s.ends[len(s.ends)-2](errBoom)
		first.mustFail(t, errBoom)
		second.mustFail(t, errBoom)
	}
	b.Close()
	if len(s.cancelled) > 0 {
		t.Errorf("cancelled: %v", s.cancelled)
	}
}

// hooked is a context that counts who watches it.
type hooked struct {
	context.Context
	begun, called atomic.Int32
}

// Value hides the context of package context within, which would be watched in its place.
func (*hooked) Value(any) any { return nil }

func (h *hooked) AfterFunc(do func()) (stop func() bool) {
	h.begun.Add(1)
	s := context.AfterFunc(h.Context, do)
	return func() bool {
		h.called.Add(1)
		return s()
	}
}

// TestEndOfAContextConcernsItsReceivesAlone: each receive watches its context once, for as
// long as it is under way. The end of one context costs the same whatever else waits.
func TestEndOfAContextConcernsItsReceivesAlone(t *testing.T) {
	const waiting = 1000
	s := new(scripted)
	b := initialized(t, s)
	var contexts [waiting]*hooked
	var cancels [waiting]context.CancelFunc
	var receives [waiting]*pending
	for i := range contexts {
		contexts[i] = new(hooked)
		contexts[i].Context, cancels[i] = context.WithCancel(t.Context())
		receives[i] = recvAsync(contexts[i], b, remoteKey(t, "a"))
	}
	calls := func() (begun, called int32) {
		for _, h := range contexts {
			begun, called = begun+h.begun.Load(), called+h.called.Load()
		}
		return begun, called
	}
	for i := range 10 {
		cancels[i]()
		mustBeDerived(t, receives[i].wait(t).err, status.Cancelled, "RecvAsync of edge ")
		s.mu.Lock()
		cancelled := len(s.cancelled)
		s.mu.Unlock()
		if begun, called := calls(); begun != waiting || called != 0 || cancelled != i+1 {
			t.Fatalf("%d contexts have ended: watched %d, called off %d, cancelled %d", i+1, begun, called, cancelled)
		}
	}
	s.ends[10](errBoom)
	receives[10].mustFail(t, errBoom)
	b.Abort(errBoom)
	for _, p := range receives[11:] {
		p.mustFail(t, errBoom)
	}
	b.Close()
	if begun, called := calls(); begun != waiting || called != waiting-10 {
		t.Errorf("after Close: watched %d, called off %d", begun, called)
	}
	for _, cancel := range cancels {
		cancel()
	}
}

// A remote receive allocates its record and its place in the list of the step, a callback if
// it has one, and what it takes to watch a context that can end.
func TestRemoteRecvAllocations(t *testing.T) {
	x, err := tensor.FromBytes(tensor.Uint8, tensor.Vector(1), []byte{1})
	if err != nil {
		t.Fatal(err)
	}
	b := initialized(t, instant{x})
	defer b.Close()
	k := remoteKey(t, "a")
	var failed error
	done := func(_ rendezvous.Value, _ rendezvous.Args, err error) { failed = err }
	for _, c := range []struct {
		what    string
		receive func(ctx context.Context)
		want    float64
		watches bool // it watches its context here, not in the transport
	}{
		{"Recv", func(ctx context.Context) { _, failed = b.Recv(ctx, k, noArgs) }, 2, false},
		{"RecvAsync", func(ctx context.Context) { b.RecvAsync(ctx, k, noArgs, done) }, 3, true},
	} {
		n := testing.AllocsPerRun(1000, func() { c.receive(context.Background()) })
		if n > c.want || failed != nil {
			t.Errorf("%s: %v allocations, want %v at most; %v", c.what, n, c.want, failed)
		}
		ctx, cancel := context.WithCancel(context.Background())
		want := c.want
		if c.watches {
			r := new(registered)
			want += testing.AllocsPerRun(1000, func() { context.AfterFunc(ctx, func() { r.Abort(nil) })() })
		}
		if n := testing.AllocsPerRun(1000, func() { c.receive(ctx) }); n > want || failed != nil {
			t.Errorf("%s with a context: %v allocations, want %v at most; %v", c.what, n, want, failed)
		}
		cancel()
	}
}

// instant is a transport that has every value.
type instant struct{ x *tensor.Tensor }

func (i instant) RecvFromRemoteAsync(_ int64, _ rendezvous.Key, args rendezvous.Args, done rendezvous.DoneFunc) rendezvous.Transfer {
	if done != nil {
		done(rendezvous.Value{Tensor: i.x}, args, nil)
	}
	return i
}

func (i instant) Wait(context.Context) (rendezvous.Value, error) {
	return rendezvous.Value{Tensor: i.x}, nil
}

func (instant) Cancel(error) {}

// Who waits for a receive waits in its transfer, which may have it work; nobody else does.
func TestRecvWaitsInTheTransfer(t *testing.T) {
	s := new(scripted)
	b := initialized(t, s)
	recv := func(ctx context.Context) error {
		_, err := b.Recv(ctx, remoteKey(t, "a"), rendezvous.Args{})
		return err
	}
	s.wait = func(_ context.Context, end func(error)) { end(errBoom) }
	if err := recv(t.Context()); !errors.Is(err, errBoom) {
		t.Errorf("ended by its own work: %v", err)
	}
	s.wait = func(_ context.Context, end func(error)) { go end(errBoom) }
	if err := recv(t.Context()); !errors.Is(err, errBoom) {
		t.Errorf("ended without it: %v", err)
	}
	s.wait, s.begin = nil, func(end func(error)) { end(errBoom) }
	if err := recv(t.Context()); !errors.Is(err, errBoom) {
		t.Errorf("nothing to do: %v", err)
	}
	if len(s.cancelled) > 0 {
		t.Errorf("cancelled: %v", s.cancelled)
	}
	s.begin = nil

	ctx, cancel := context.WithCancel(t.Context())
	s.wait = func(ctx context.Context, _ func(error)) {
		cancel()
		<-ctx.Done()
	}
	mustBeDerived(t, recv(ctx), status.Cancelled, "Recv of edge ")
	if n := len(s.cancelled[4]); n != 1 { // by the transfer, which has the context, and nobody else
		t.Errorf("cancelled %d times by the end of the context", n)
	}
	s.wait = func(context.Context, func(error)) { b.Abort(errBoom) }
	if err := recv(t.Context()); !errors.Is(err, errBoom) {
		t.Errorf("aborted while it worked: %v", err)
	}
	if errs := s.cancelled[5]; len(errs) != 1 || !errors.Is(errs[0], errBoom) {
		t.Errorf("cancelled by the abort: %v", errs)
	}
	b.Close()
	for i, n := range s.waits {
		if n != 1 {
			t.Errorf("receive %d was waited for %d times", i+1, n)
		}
	}
}

// A receive with a callback is waited for by nobody.
func TestRecvAsyncDoesNotWait(t *testing.T) {
	s := new(scripted)
	b := initialized(t, s)
	p := recvAsync(t.Context(), b, remoteKey(t, "a"))
	s.ends[0](errBoom)
	p.mustFail(t, errBoom)
	b.Close()
	if s.waits[0] != 0 {
		t.Errorf("it was waited for %d times", s.waits[0])
	}
}

// TestContextThatHasEndedIsWhy: a receive that fails at the moment in which its context ends
// has the context's error, not the network's.
func TestContextThatHasEndedIsWhy(t *testing.T) {
	for _, code := range []status.Code{status.Unavailable, status.Unknown, status.Cancelled} {
		network := status.New(code, "connection reset")
		for _, want := range []status.Code{status.Cancelled, status.DeadlineExceeded, code} {
			for _, blocking := range []bool{false, true} {
				s := new(scripted)
				b := initialized(t, s)
				ctx, cancel := context.WithCancel(context.Background())
				if want == status.DeadlineExceeded {
					ctx, cancel = context.WithTimeout(context.Background(), time.Millisecond)
				}
				s.begin = func(end func(error)) {
					switch want {
					case status.Cancelled:
						cancel()
					case status.DeadlineExceeded:
						<-ctx.Done()
					}
					end(network)
				}
				var err error
				if blocking {
					_, err = b.Recv(ctx, remoteKey(t, "a"), noArgs)
				} else {
					err = recvAsync(ctx, b, remoteKey(t, "a")).wait(t).err
				}
				cancel()
				b.Close()
				if status.CodeOf(err) != want || errors.Is(err, network) != (want == code && code != status.Cancelled) {
					t.Errorf("blocking %v, the network's %v: %v, want %v", blocking, code, err, want)
				}
			}
		}
	}
}
