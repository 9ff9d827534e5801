package server

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
)

// edge prepares a name; the test fails if that fails.
func (s *Server) edge(t testing.TB, peer, name string) *Edge {
	t.Helper()
	e, err := s.Edge(peer, name)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestEdgeRefuses what Send and Recv refuse, when it is made.
func TestEdgeRefuses(t *testing.T) {
	a, b := twoTasks(t)
	for _, c := range []struct {
		peer, name string
		code       status.Code
		texts      []string
	}{
		{"/job:worker/task:7", "x", status.NotFound, []string{`Edge of edge "x" from /job:worker/replica:0/task:0 to /job:worker/replica:0/task:7`, "the cluster has no task"}},
		{a.Task().String() + "/device:GPU:0", "x", status.NotFound, []string{"has no device"}},
		{b.Task().String(), "", status.InvalidArgument, []string{"the edge name is empty"}},
		{b.Task().String(), "a;b", status.InvalidArgument, []string{"semicolon"}},
		{"worker 1", "x", status.InvalidArgument, nil},
	} {
		if _, err := a.Edge(c.peer, c.name); err == nil {
			t.Errorf("%s, %q: no error", c.peer, c.name)
		} else {
			wantError(t, err, c.code, c.texts...)
		}
	}
	if _, err := a.Edge(b.Task().String()+"/device:GPU:0", "x"); err != nil {
		t.Errorf("a device of a peer that has not listed its devices: %v", err)
	}
}

// TestEdgeGoesBothWays, and its values are those of Send and Recv under the same name.
func TestEdgeGoesBothWays(t *testing.T) {
	a, b := twoTasks(t)
	ab, ba := a.edge(t, b.Task().String(), "x"), b.edge(t, a.Device().String(), "x")
	if ab.Peer() != b.Device() || ab.Name() != "x" {
		t.Errorf("the edge is %q to %v", ab.Name(), ab.Peer())
	}
	step := a.NewStepID()
	x := float(t, 3)
	defer x.Release()
	for _, way := range []struct{ from, to *Edge }{{ab, ba}, {ba, ab}} {
		if err := way.from.Send(step, x); err != nil {
			t.Fatal(err)
		}
		v, err := way.to.Recv(t.Context(), step)
		wantFloat(t, outcome{v, err}, 3)
		if err := way.from.SendDead(step); err != nil {
			t.Fatal(err)
		}
		c := make(chan outcome, 1)
		way.to.RecvAsync(t.Context(), step, func(v rendezvous.Value, err error) { c <- outcome{v, err} })
		if o := wait(t, c, "the dead value"); o.err != nil || !o.v.Dead {
			t.Errorf("a dead value: %+v", o)
		} else {
			o.v.Tensor.Release()
		}
	}
	if err := a.Send(step, b.Task().String(), "x", x, false); err != nil {
		t.Fatal(err)
	}
	v, err := ba.Recv(t.Context(), step)
	wantFloat(t, outcome{v, err}, 3)
}

// TestEdgeFollowsAPeerThatRestarts: its key has the incarnation of the present process.
func TestEdgeFollowsAPeerThatRestarts(t *testing.T) {
	for name, recv := range map[string]func(*Edge, int64) <-chan outcome{
		"Recv": func(e *Edge, step int64) <-chan outcome {
			c := make(chan outcome, 1)
			go func() {
				v, err := e.Recv(context.Background(), step)
				c <- outcome{v, err}
			}()
			return c
		},
		"RecvAsync": func(e *Edge, step int64) <-chan outcome {
			c := make(chan outcome, 1)
			e.RecvAsync(context.Background(), step, func(v rendezvous.Value, err error) { c <- outcome{v, err} })
			return c
		},
	} {
		t.Run(name, func(t *testing.T) {
			var e *Edge
			r := newRestarted(t, func(s *Server, step int64, from, name string) <-chan outcome {
				if e == nil {
					e = s.edge(t, from, name)
				}
				return recv(e, step)
			})
			r.works(1, "a receive from the first process")
			for step := int64(2); step < 6; step += 2 {
				r.stopPeer()
				r.startPeer()
				r.works(step, "the first receive after a restart")
				r.works(step+1, "the second receive after a restart")
			}
		})
	}
}

// TestEdgeAllocatesNothing where Send and Recv make two keys.
func TestEdgeAllocatesNothing(t *testing.T) {
	s := start(t, settings(), Options{})
	self, x := s.Task().String(), float(t, 1)
	defer x.Release()
	e := s.edge(t, self, "x")
	pair := func(send func() error, recv func() (rendezvous.Value, error)) float64 {
		return testing.AllocsPerRun(200, func() {
			if err := send(); err != nil {
				t.Fatal(err)
			}
			v, err := recv()
			if err != nil {
				t.Fatal(err)
			}
			v.Tensor.Release()
		})
	}
	plain := pair(func() error { return s.Send(1, self, "x", x, false) },
		func() (rendezvous.Value, error) { return s.Recv(t.Context(), 1, self, "x") })
	edge := pair(func() error { return e.Send(1, x) }, func() (rendezvous.Value, error) { return e.Recv(t.Context(), 1) })
	if edge != 0 || plain == 0 {
		t.Errorf("an edge allocates %v times for a value, Send and Recv %v times", edge, plain)
	}
	// The Delivery and its channel.
	counted := pair(func() error { _, err := e.SendWait(t.Context(), 2, x); return err },
		func() (rendezvous.Value, error) { return e.Recv(t.Context(), 2) })
	if counted > 2 {
		t.Errorf("SendWait of an edge allocates %v times, want 2", counted)
	}
}

// BenchmarkEdge compares the allocations of a value that is sent and received within a process.
func BenchmarkEdge(b *testing.B) {
	s, err := Start(b.Context(), settings(), Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close(context.Background())
	self, x := s.Task().String(), float(b, 1)
	defer x.Release()
	e := s.edge(b, self, "x")
	for name, way := range map[string]struct {
		send func() error
		recv func() (rendezvous.Value, error)
	}{
		"names": {func() error { return s.Send(1, self, "x", x, false) }, func() (rendezvous.Value, error) { return s.Recv(b.Context(), 1, self, "x") }},
		"edge":  {func() error { return e.Send(1, x) }, func() (rendezvous.Value, error) { return e.Recv(b.Context(), 1) }},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := way.send(); err != nil {
					b.Fatal(err)
				}
				v, err := way.recv()
				if err != nil {
					b.Fatal(err)
				}
				v.Tensor.Release()
			}
		})
	}
}

// TestStepIDsAreUnique within a server, positive, and apart from those of pulls.
func TestStepIDsAreUnique(t *testing.T) {
	var mu sync.Mutex
	seen := make(map[int64]bool)
	var wg sync.WaitGroup
	ids := newStepIDs()
	for range 4 {
		wg.Go(func() {
			for range 10_000 {
				id := ids.next()
				mu.Lock()
				if seen[id] || id <= 0 || id >= 1<<62 {
					t.Errorf("id %d comes twice, or is no id of a step", id)
				}
				seen[id] = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if a, b := newStepIDs().next(), newStepIDs().next(); a == b {
		t.Error("two servers draw the same id")
	}
	zero := stepIDs{start: 1<<62 - 1, difference: 1}
	if id := zero.next(); id != 1 {
		t.Errorf("after the largest id comes %d, want 1", id)
	}
}

// callbackCase is a receive whose callback runs once.
type callbackCase struct {
	name string
	run  func(w *callbackWorld, done func(rendezvous.Value, error))
}

type callbackWorld struct {
	t    *testing.T
	a, b *Server // b receives
	step int64
}

func (w *callbackWorld) send(from *Server) {
	x := float(w.t, 1)
	defer x.Release()
	if err := from.Send(w.step, w.b.Task().String(), "x", x, false); err != nil {
		w.t.Error(err)
	}
}

func (w *callbackWorld) recv(from *Server, done func(rendezvous.Value, error)) {
	w.b.RecvAsync(w.t.Context(), w.step, from.Task().String(), "x", done)
}

// TestCallbacksRunOnAGoroutineOfTheirOwn: neither the caller's nor the sender's, nor that of who
// ends the step. So a callback may block, here for as long as the other one needs to go on.
func TestCallbacksRunOnAGoroutineOfTheirOwn(t *testing.T) {
	over, cancel := context.WithCancel(context.Background())
	cancel()
	a, b := twoTasks(t)
	for _, c := range []callbackCase{
		{"a value of this task that was sent before", func(w *callbackWorld, done func(rendezvous.Value, error)) {
			w.send(w.b)
			w.recv(w.b, done)
		}},
		{"a value of this task that is sent later", func(w *callbackWorld, done func(rendezvous.Value, error)) {
			w.recv(w.b, done)
			w.send(w.b)
		}},
		{"a value of a peer that was sent before", func(w *callbackWorld, done func(rendezvous.Value, error)) {
			w.send(w.a)
			w.recv(w.a, done)
		}},
		{"a value of a peer that is sent later", func(w *callbackWorld, done func(rendezvous.Value, error)) {
			w.recv(w.a, done)
			w.send(w.a)
		}},
		{"an abort of a receive from this task", func(w *callbackWorld, done func(rendezvous.Value, error)) {
			w.recv(w.b, done)
			w.b.AbortStep(w.step, status.New(status.Internal, "boom"))
		}},
		{"an abort of a receive from a peer", func(w *callbackWorld, done func(rendezvous.Value, error)) {
			w.recv(w.a, done)
			w.b.AbortStep(w.step, status.New(status.Internal, "boom"))
		}},
		{"the end of the step", func(w *callbackWorld, done func(rendezvous.Value, error)) {
			w.recv(w.b, done)
			w.b.EndStep(w.step)
		}},
		{"a step that has ended", func(w *callbackWorld, done func(rendezvous.Value, error)) {
			w.b.EndStep(w.step)
			w.recv(w.b, done)
		}},
		{"a context that has ended", func(w *callbackWorld, done func(rendezvous.Value, error)) {
			w.b.RecvAsync(over, w.step, w.b.Task().String(), "x", done)
		}},
		{"a context that has ended, from a peer", func(w *callbackWorld, done func(rendezvous.Value, error)) {
			w.b.RecvAsync(over, w.step, w.a.Task().String(), "x", done)
		}},
		{"no such task", func(w *callbackWorld, done func(rendezvous.Value, error)) {
			w.b.RecvAsync(w.t.Context(), w.step, "/job:worker/task:9", "x", done)
		}},
		{"no name of a task", func(w *callbackWorld, done func(rendezvous.Value, error)) {
			w.b.RecvAsync(w.t.Context(), w.step, "worker 9", "x", done)
		}},
		{"no name", func(w *callbackWorld, done func(rendezvous.Value, error)) {
			w.b.RecvAsync(w.t.Context(), w.step, w.a.Task().String(), "", done)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := &callbackWorld{t, a, b, rand.Int64N(1 << 40)} //nolint:gosec // a step
			release, ran := make(chan struct{}), make(chan struct{})
			free := sync.OnceFunc(func() { close(release) })
			defer free() // a failure must not block the end of the test
			returned := make(chan struct{})
			go func() {
				defer close(returned)
				c.run(w, func(v rendezvous.Value, err error) {
					<-release
					if err == nil {
						v.Tensor.Release()
					}
					close(ran)
				})
			}()
			wait(t, returned, "all calls have returned, and the callback blocks")
			free()
			wait(t, ran, "the callback")
		})
	}
}

// TestCallbackAfterClose runs on a goroutine of its own, too, for servers and clients.
func TestCallbackAfterClose(t *testing.T) {
	a, b := twoTasks(t)
	cl := dial(t, Config{}, a.Addr().String())
	key, err := rendezvous.NewKey(a.Device(), a.Incarnation(), cluster.DeviceOf(cl.Task()), "x", rendezvous.FrameIter{})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := cl.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, recv := range map[string]func(done func(error)){
		"this task": func(done func(error)) {
			b.RecvAsync(t.Context(), 1, b.Task().String(), "x", func(_ rendezvous.Value, err error) { done(err) })
		},
		"a peer": func(done func(error)) {
			b.RecvAsync(t.Context(), 1, a.Task().String(), "x", func(_ rendezvous.Value, err error) { done(err) })
		},
		"a client": func(done func(error)) {
			cl.RecvAsync(t.Context(), 1, key, func(_ rendezvous.Value, _ rendezvous.Args, err error) { done(err) })
		},
	} {
		release, ended := make(chan struct{}), make(chan error, 1)
		returned := make(chan struct{})
		go func() {
			defer close(returned)
			recv(func(err error) {
				<-release
				ended <- err
			})
		}()
		wait(t, returned, name+": the call has returned, and the callback blocks")
		close(release)
		if err := wait(t, ended, name); status.CodeOf(err) != status.Aborted && status.CodeOf(err) != status.Cancelled {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestCloseWaitsForCallbacks that it has caused.
func TestCloseWaitsForCallbacks(t *testing.T) {
	s := start(t, settings(), Options{})
	release := make(chan struct{})
	began, ended := make(chan struct{}), false
	s.RecvAsync(t.Context(), 1, s.Task().String(), "x", func(rendezvous.Value, error) {
		close(began)
		<-release
		ended = true
	})
	closed := make(chan error, 1)
	go func() { closed <- s.Close(context.Background()) }()
	wait(t, began, "the callback")
	select {
	case err := <-closed:
		t.Errorf("Close has returned %v, and a callback runs", err)
	case <-time.After(20 * time.Millisecond):
	}
	close(release)
	if err := wait(t, closed, "Close"); err != nil || !ended {
		t.Errorf("Close: %v; the callback has ended: %v", err, ended)
	}
}
