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

// scripted is a transport that does what its test says before it gives a receive
// its name.
type scripted struct {
	begin func(end func(error))

	mu        sync.Mutex
	ends      []func(error)
	cancelled map[uint64][]error
}

func (s *scripted) RecvFromRemoteAsync(_ int64, _ rendezvous.Key, args rendezvous.Args, done rendezvous.DoneFunc) rendezvous.RemoteRecv {
	end := func(err error) { done(rendezvous.Value{}, args, err) }
	s.mu.Lock()
	s.ends = append(s.ends, end)
	n := len(s.ends)
	s.mu.Unlock()
	if s.begin != nil {
		s.begin(end)
	}
	return rendezvous.RemoteRecv{By: s, ID: uint64(n)}
}

func (s *scripted) CancelRecv(id uint64, err error) {
	s.mu.Lock()
	if s.cancelled == nil {
		s.cancelled = make(map[uint64][]error)
	}
	s.cancelled[id] = append(s.cancelled[id], err)
	end, first := s.ends[id-1], len(s.cancelled[id]) == 1
	s.mu.Unlock()
	if first {
		go end(status.New(status.Cancelled, "the transport's own word"))
	}
}

// What ends a receive while the transport begins it reaches the transport as soon
// as it has a name there, once.
func TestCancelBeforeTheTransportHasNamedIt(t *testing.T) {
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
			mustBeDerived(t, err, status.Cancelled, "RecvFromRemoteAsync is cancelled.")
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

// A record that is used again hears nothing of the context of its last use.
func TestRecordsAreUsedAgain(t *testing.T) {
	s := new(scripted)
	b := initialized(t, s)
	next := func() func(error) { return s.ends[len(s.ends)-1] }
	for range 100 {
		early, cancel := context.WithCancel(context.Background())
		s.begin = func(end func(error)) { end(errBoom) } // before it has a name
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
		mustBeDerived(t, receives[i].wait(t).err, status.Cancelled, "RecvFromRemoteAsync is cancelled.")
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

// A remote receive allocates nothing here but what it takes to watch a context that can end.
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
	for what, receive := range map[string]func(ctx context.Context){
		"Recv":      func(ctx context.Context) { _, failed = b.Recv(ctx, k, noArgs) },
		"RecvAsync": func(ctx context.Context) { b.RecvAsync(ctx, k, noArgs, done) },
	} {
		n := testing.AllocsPerRun(1000, func() { receive(context.Background()) })
		if n != 0 || failed != nil {
			t.Errorf("%s: %v allocations, %v", what, n, failed)
		}
		ctx, cancel := context.WithCancel(context.Background())
		watch := 0.0
		if what == "RecvAsync" {
			watch = testing.AllocsPerRun(1000, func() { context.AfterFunc(ctx, func() {})() })
		}
		if n := testing.AllocsPerRun(1000, func() { receive(ctx) }); n > watch {
			t.Errorf("%s with a context: %v allocations, want %v at most", what, n, watch)
		}
		cancel()
	}
}

// instant is a transport that has every value.
type instant struct{ x *tensor.Tensor }

func (i instant) RecvFromRemoteAsync(_ int64, _ rendezvous.Key, args rendezvous.Args, done rendezvous.DoneFunc) rendezvous.RemoteRecv {
	done(rendezvous.Value{Tensor: i.x}, args, nil)
	return rendezvous.RemoteRecv{}
}

// working is a transport that has its callers work.
type working struct {
	scripted
	work func(ctx context.Context, end func(error), gaveUp func()) // nil: there is nothing to do
}

type work struct {
	w   *working
	end func(error)
}

func (w *working) RecvFromRemote(step int64, k rendezvous.Key, args rendezvous.Args, done rendezvous.DoneFunc) (rendezvous.RemoteRecv, rendezvous.RemoteWork) {
	call := w.RecvFromRemoteAsync(step, k, args, done)
	if w.work == nil {
		return call, nil
	}
	return call, work{w, w.ends[call.ID-1]}
}

func (w work) Work(ctx context.Context, gaveUp func()) { w.w.work(ctx, w.end, gaveUp) }

// Who waits for a receive works for it, as long as there is something to do.
func TestRecvWorks(t *testing.T) {
	w := new(working)
	b := initialized(t, w)
	recv := func(ctx context.Context) error {
		_, err := b.Recv(ctx, remoteKey(t, "a"), rendezvous.Args{})
		return err
	}
	w.work = func(_ context.Context, end func(error), _ func()) { end(errBoom) }
	if err := recv(t.Context()); !errors.Is(err, errBoom) {
		t.Errorf("ended by its own work: %v", err)
	}
	w.work = func(_ context.Context, end func(error), _ func()) { go end(errBoom) }
	if err := recv(t.Context()); !errors.Is(err, errBoom) {
		t.Errorf("ended without it: %v", err)
	}
	w.work, w.begin = nil, func(end func(error)) { end(errBoom) }
	if err := recv(t.Context()); !errors.Is(err, errBoom) {
		t.Errorf("nothing to do: %v", err)
	}
	if len(w.cancelled) > 0 {
		t.Errorf("cancelled: %v", w.cancelled)
	}
	w.begin = nil

	ctx, cancel := context.WithCancel(t.Context())
	w.work = func(ctx context.Context, _ func(error), gaveUp func()) {
		cancel()
		<-ctx.Done()
		gaveUp()
	}
	mustBeDerived(t, recv(ctx), status.Cancelled, "RecvFromRemoteAsync is cancelled.")
	w.work = func(context.Context, func(error), func()) { b.Abort(errBoom) }
	if err := recv(t.Context()); !errors.Is(err, errBoom) {
		t.Errorf("aborted while it worked: %v", err)
	}
	b.Close()
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
