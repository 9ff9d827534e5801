package rendezvous_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

const step = 123

func manager(t testing.TB) *rendezvous.Manager {
	m := rendezvous.NewManager(rendezvous.ManagerOptions{Session: session(t)})
	t.Cleanup(m.Close)
	return m
}

func ask(ctx context.Context, m *rendezvous.Manager, step int64, k rendezvous.Key) *pending {
	p := newPending()
	m.RecvLocalAsync(ctx, step, k, p.done)
	return p
}

func TestM1LocalSendRecv(t *testing.T) {
	c, m := counted(t), manager(t)
	r := m.Find(step)
	c.mustSend(t, r, key(t, "a"), 1)
	mustRecv(t, r, key(t, "a"), 1)
	p := ask(t.Context(), m, step, key(t, "a"))
	c.mustSend(t, r, key(t, "a"), 2)
	p.mustGet(t, 2)
	if m.Steps() != 1 || r.Step() != step {
		t.Errorf("%d steps; the step is %d", m.Steps(), r.Step())
	}
	m.Cleanup(step)
	if m.Steps() != 0 {
		t.Error("the step is still there")
	}
}

func TestM2LocalAbort(t *testing.T) {
	m := manager(t)
	p := recvAsync(t.Context(), m.Find(step), key(t, "a"))
	m.Find(step).Abort(status.New(status.Aborted, "explicit"))
	mustBeDerived(t, p.wait(t).err, status.Aborted, "explicit")

	p = recvAsync(t.Context(), m.Find(321), key(t, "a"))
	m.Cleanup(321)
	mustBeDerived(t, p.wait(t).err, status.Aborted, "Cleanup 321")
}

func TestM3LocalCancel(t *testing.T) {
	m := manager(t)
	ctx, cancel := context.WithCancel(t.Context())
	p, q := recvAsync(ctx, m.Find(step), key(t, "a")), ask(ctx, m, step, key(t, "a"))
	cancel()
	mustBeDerived(t, p.wait(t).err, status.Cancelled, "RecvAsync of edge ")
	mustBeDerived(t, q.wait(t).err, status.Cancelled, "RecvAsync of edge ")
}

func TestM4CancelAfterReceived(t *testing.T) {
	c, m := counted(t), manager(t)
	ctx, cancel := context.WithCancel(t.Context())
	p := ask(ctx, m, step, key(t, "a"))
	c.mustSend(t, m.Find(step), key(t, "a"), 1)
	cancel()
	p.mustGet(t, 1)
}

func TestM5TransferDeviceContext(t *testing.T) {
	c, m := counted(t), manager(t)
	x := c.make(1)
	defer x.Release()
	sent := rendezvous.Args{Device: "sender's stream"}
	if err := m.Find(step).Send(key(t, "a"), sent, x, false); err != nil {
		t.Fatal(err)
	}
	v, err := m.RecvLocal(t.Context(), step, key(t, "a"))
	if err != nil || v.SendArgs != sent {
		t.Fatalf("%v, %v", v.SendArgs, err)
	}
	take(v)
}

// two tasks whose managers reach each other.
func connected(t *testing.T) (a, b *rendezvous.Manager, d *direct) {
	d = &direct{peers: make(map[cluster.Task]*rendezvous.Manager)}
	make := func(name string) *rendezvous.Manager {
		task := device(t, name).Task
		m := rendezvous.NewManager(rendezvous.ManagerOptions{Session: &rendezvous.Session{Task: task}, Remoter: d})
		d.peers[task] = m
		return m
	}
	a, b = make(ps), make(ps1)
	t.Cleanup(func() { a.Close(); b.Close(); d.wg.Wait() })
	return a, b, d
}

func TestM6RemoteRecvOne(t *testing.T) {
	c := counted(t)
	a, b, d := connected(t)
	c.mustSend(t, b.Find(step), remoteKey(t, "a"), 1)
	mustRecv(t, a.Find(step), remoteKey(t, "a"), 1)
	if n := d.calls.Load(); n != 1 {
		t.Errorf("%d remote receives, want 1", n)
	}
	p := recvAsync(t.Context(), a.Find(step), remoteKey(t, "b"))
	c.mustSend(t, b.Find(step), remoteKey(t, "b"), 2)
	p.mustGet(t, 2)
}

func TestM7RemoteRecvAsyncMany(t *testing.T) {
	c := counted(t)
	a, b, _ := connected(t)
	const n = 10_000
	p := make([]*pending, n)
	for i := range p {
		p[i] = recvAsync(t.Context(), a.Find(step), remoteKey(t, "a"))
	}
	for i := range n {
		c.mustSend(t, b.Find(step), remoteKey(t, "a"), i)
	}
	seen := make([]bool, n)
	for i := range p {
		o := p[i].wait(t)
		if o.err != nil || seen[o.n] {
			t.Fatalf("receive %d ended with %v, seen %v", i, o, seen[o.n])
		}
		seen[o.n] = true
	}
}

// An abort of the receiver's step ends its remote receives; what was matched to
// them at the sender is not lost on the way.
func TestAbortOfTheReceiverReachesThePeer(t *testing.T) {
	c := counted(t)
	a, b, d := connected(t)
	p := recvAsync(t.Context(), a.Find(step), remoteKey(t, "a"))
	a.Find(step).Abort(errBoom)
	p.mustFail(t, errBoom)
	d.wg.Wait()
	c.mustSend(t, b.Find(step), remoteKey(t, "a"), 1)
	if v, err := b.RecvLocal(t.Context(), step, remoteKey(t, "a")); err != nil || take(v) != 1 {
		t.Error(err)
	}
}

func TestB10CloseIsShutdown(t *testing.T) {
	m := manager(t)
	r := m.Find(step)
	p, q := recvAsync(t.Context(), r, key(t, "a")), ask(t.Context(), m, 7, key(t, "a"))
	m.Close()
	mustBeDerived(t, p.wait(t).err, status.Aborted, "Shutdown")
	mustBeDerived(t, q.wait(t).err, status.Aborted, "Shutdown")
	_, err := m.Find(9).Recv(t.Context(), key(t, "a"), noArgs)
	mustBeDerived(t, err, status.Aborted, "Shutdown")
	mustBeDerived(t, ask(t.Context(), m, 10, key(t, "a")).wait(t).err, status.Aborted, "Shutdown")
	if m.Steps() != 0 {
		t.Errorf("%d steps after Close", m.Steps())
	}
	m.Close()
}

func TestB10CleanupAll(t *testing.T) {
	c, m := counted(t), manager(t)
	p, q := recvAsync(t.Context(), m.Find(1), key(t, "a")), ask(t.Context(), m, 2, key(t, "a"))
	c.mustSend(t, m.Find(3), key(t, "a"), 1)
	m.CleanupAll()
	mustBeDerived(t, p.wait(t).err, status.Aborted, "Shutdown")
	mustBeDerived(t, q.wait(t).err, status.Aborted, "Shutdown")
	mustBeDerived(t, ask(t.Context(), m, 3, key(t, "a")).wait(t).err, status.Aborted, "Shutdown")
	c.mustSend(t, m.Find(4), key(t, "a"), 1) // life goes on
	mustRecv(t, m.Find(4), key(t, "a"), 1)
}

func TestB11FindGivesTheSame(t *testing.T) {
	m := manager(t)
	var found [16]*rendezvous.BaseRemote
	var wg sync.WaitGroup
	for i := range found {
		wg.Go(func() { found[i] = m.Find(step) })
	}
	wg.Wait()
	for _, r := range found {
		if r != found[0] {
			t.Fatal("two rendezvous for one step")
		}
	}
	if m.Find(step+1) == found[0] {
		t.Error("one rendezvous for two steps")
	}
}

func TestB11CleanupRacesFind(t *testing.T) {
	c, m := counted(t), manager(t)
	for id := range int64(200) {
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() { _ = c.send(m.Find(id), key(t, "a"), i) })
			wg.Go(func() {
				if v, err := m.Find(id).Recv(t.Context(), key(t, "a"), noArgs); err == nil {
					take(v)
				}
			})
			wg.Go(func() {
				if v, err := m.RecvLocal(t.Context(), id, key(t, "a")); err == nil {
					take(v)
				}
			})
		}
		wg.Go(func() { m.Cleanup(id) })
		wg.Wait()
		if m.Steps() != 0 {
			t.Fatal("a step was made after its cleanup")
		}
	}
}

func TestB12AbortStepLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := rendezvous.NewManager(rendezvous.ManagerOptions{Session: session(t)})
		defer m.Close()
		start := time.Now()
		p := recvAsync(context.Background(), m.Find(step), key(t, "a"))
		m.AbortStepLater(step)
		m.AbortStepLater(step)
		mustBeDerived(t, p.wait(t).err, status.Aborted, "Step 123 cancelled.  Cancelling rendezvous.")
		if d := time.Since(start); d != time.Second {
			t.Errorf("aborted after %v, want 1s", d)
		}

		// A step that existed only for a receive is over when the abort comes.
		ctx, cancel := context.WithCancel(context.Background())
		p = ask(ctx, m, 5, key(t, "a"))
		cancel()
		p.mustFail(t, context.Canceled)
		m.AbortStepLater(5)
		time.Sleep(2 * time.Second)
		_, err := m.Find(5).Recv(context.Background(), key(t, "a"), noArgs)
		mustBe(t, err, status.Aborted, "Step 5 cancelled.")

		m.AbortStepLater(6) // Close does not wait for the second to pass
		start = time.Now()
		m.Close()
		if time.Since(start) != 0 {
			t.Error("Close waited for a delayed abort")
		}
	})
}

func TestAbortStep(t *testing.T) {
	c, m := counted(t), manager(t)
	p := ask(t.Context(), m, step, key(t, "a"))
	m.AbortStep(step, errBoom)
	p.mustFail(t, errBoom)
	// The step existed only for the receive. It ended with the abort.
	if err := c.send(m.Find(step), key(t, "a"), 1); !errors.Is(err, errBoom) {
		t.Error(err)
	}
	m.AbortStep(7, errBoom)
	if err := c.send(m.Find(7), key(t, "a"), 1); !errors.Is(err, errBoom) {
		t.Error(err)
	}
	if m.Steps() != 0 {
		t.Errorf("%d steps", m.Steps())
	}
}

// A receive for a step that was cleaned up ends at once; one for a step that
// nobody used takes the step with it.
func TestB14LateReceives(t *testing.T) {
	c, m := counted(t), manager(t)
	c.mustSend(t, m.Find(1), key(t, "a"), 1)
	m.Cleanup(1)
	m.Cleanup(2) // cleaned up before anybody heard of it
	for id := range int64(2) {
		mustBeDerived(t, ask(t.Context(), m, id+1, key(t, "a")).wait(t).err, status.Aborted, "Cleanup")
		mustBeDerived(t, c.send(m.Find(id+1), key(t, "a"), 1), status.Aborted, "Cleanup")
	}
	if m.Steps() != 0 {
		t.Errorf("%d steps were made again", m.Steps())
	}

	ctx, cancel := context.WithCancel(t.Context())
	p, q := ask(ctx, m, 3, key(t, "a")), ask(t.Context(), m, 4, key(t, "a"))
	other := ask(ctx, m, 4, key(t, "b"))
	if m.Steps() != 2 {
		t.Errorf("%d steps, want 2", m.Steps())
	}
	cancel()
	p.mustFail(t, context.Canceled)
	other.mustFail(t, context.Canceled)
	if m.Steps() != 1 {
		t.Errorf("%d steps, want 1: the other has a receive that waits", m.Steps())
	}
	c.mustSend(t, m.Find(4), key(t, "a"), 4)
	q.mustGet(t, 4)
	if m.Steps() != 1 {
		t.Error("a step that was used went away")
	}
	m.Find(3) // it may still come
	if m.Steps() != 2 {
		t.Errorf("%d steps, want 2", m.Steps())
	}
}

func TestB14TheWindowIsBounded(t *testing.T) {
	c, m := counted(t), manager(t)
	m.Cleanup(0)
	for id := range int64(100_000) {
		m.Cleanup(id + 1)
	}
	mustBeDerived(t, c.send(m.Find(1), key(t, "a"), 1), status.Aborted, "Cleanup 1")
	c.mustSend(t, m.Find(0), key(t, "a"), 1) // forgotten, so it is a new step
}

func TestContract6HeldUntilTheStepComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := counted(t)
		m := rendezvous.NewManager(rendezvous.ManagerOptions{}) // no session yet
		p := ask(context.Background(), m, step, key(t, "a"))
		time.Sleep(time.Hour)
		if !p.waits() {
			t.Fatal("the receive did not wait for the step")
		}
		r := m.Find(step)
		if err := r.Initialize(session(t)); err != nil {
			t.Fatal(err)
		}
		c.mustSend(t, r, key(t, "a"), 1)
		p.mustGet(t, 1)
		m.Close()
	})
}

// TakeLocal takes what is there, in order, and else changes nothing.
func TestTakeLocal(t *testing.T) {
	c, m := counted(t), manager(t)
	k := key(t, "a")
	none := func(step int64, k rendezvous.Key) {
		t.Helper()
		if v, ok := m.TakeLocal(step, k); ok {
			t.Errorf("took %d", take(v))
		}
	}
	none(step, k) // makes no step
	if b := m.Find(step); b.Err() != nil {
		t.Fatal(b.Err())
	}
	none(step, k)
	none(step, remoteKey(t, "a")) // of another task
	p := ask(t.Context(), m, step, k)
	c.mustSend(t, m.Find(step), k, 0)
	p.mustGet(t, 0)
	none(step, k) // its receiver has it
	for i := 1; i <= 3; i++ {
		c.mustSend(t, m.Find(step), k, i)
	}
	none(step, key(t, "b"))
	none(step+1, k)
	v, ok := m.TakeLocal(step, k)
	if !ok {
		t.Fatal("did not take what is there")
	}
	if n := number(v); n != 1 {
		t.Errorf("took %d, want 1", n)
	}
	if !m.Restore(step, k, v) {
		t.Error("not restored")
		v.Tensor.Release()
	}
	for i := 1; i <= 2; i++ {
		if v, ok := m.TakeLocal(step, k); !ok || take(v) != i {
			t.Errorf("did not take %d", i)
		}
	}
	m.Cleanup(step)
	none(step, k)
	m.Close()
}

func TestManagerRestore(t *testing.T) {
	c, m := counted(t), manager(t)
	c.mustSend(t, m.Find(step), key(t, "a"), 1)
	c.mustSend(t, m.Find(step), key(t, "a"), 2)
	v, err := m.RecvLocal(t.Context(), step, key(t, "a"))
	if err != nil {
		t.Fatal(err)
	}
	if !m.Restore(step, key(t, "a"), v) {
		t.Fatal("not restored")
	}
	mustRecv(t, m.Find(step), key(t, "a"), 1)
	v, err = m.RecvLocal(t.Context(), step, key(t, "a"))
	if err != nil {
		t.Fatal(err)
	}
	m.Cleanup(step)
	if m.Restore(step, key(t, "a"), v) || m.Restore(step+1, key(t, "a"), v) {
		t.Error("restored into a step that is over or never was")
	}
	take(v)
}

// publication answers one key, by reference.
type publication struct {
	key rendezvous.Key
	t   *tensor.Tensor
}

func (p *publication) Publishes(k rendezvous.Key) bool { return k == p.key }

func (p *publication) TakePublished(k rendezvous.Key) (v rendezvous.Value, ok bool) {
	if k != p.key {
		return v, false
	}
	return rendezvous.Value{Tensor: p.t.Retain()}, true
}

func (p *publication) RecvPublished(_ context.Context, k rendezvous.Key, done rendezvous.DoneFunc) bool {
	if k != p.key {
		return false
	}
	done(rendezvous.Value{Tensor: p.t.Retain()}, noArgs, nil)
	return true
}

func TestContract1PublicationsTouchNoTable(t *testing.T) {
	c := counted(t)
	p := &publication{key(t, "published"), c.make(1)}
	defer p.t.Release()
	m := rendezvous.NewManager(rendezvous.ManagerOptions{Session: session(t), Publishers: []rendezvous.Publisher{p}})
	defer m.Close()
	for i := range 10 {
		v, err := m.RecvLocal(t.Context(), int64(i/2), p.key)
		if err != nil {
			t.Fatal(err)
		}
		if v.Tensor != p.t {
			t.Error("the publication was copied")
		}
		v.Tensor.Release()
	}
	if m.Cleanup(1); m.Over(1, p.key) || !m.Over(1, key(t, "another")) {
		t.Error("the end of a step is taken for that of a publication")
	}
	if m.Steps() != 0 {
		t.Errorf("a publication made %d steps", m.Steps())
	}
	// What one puller took is there for all others; only its own step is over.
	m.Cleanup(1)
	mustBe(t, ask(t.Context(), m, 1, p.key).wait(t).err, status.Aborted, "Cleanup 1")
	ask(t.Context(), m, 2, p.key).mustGet(t, 1)
	// Other keys go to the tables.
	c.mustSend(t, m.Find(2), key(t, "a"), 5)
	ask(t.Context(), m, 2, key(t, "a")).mustGet(t, 5)

	q := &publication{key(t, "later"), c.make(2)}
	defer q.t.Release()
	m.AddPublisher(q)
	ask(t.Context(), m, 2, q.key).mustGet(t, 2)
	ask(t.Context(), m, 2, p.key).mustGet(t, 1)
	m.RemovePublisher(p)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	ask(ctx, m, 2, p.key).mustFail(t, context.Canceled)
	ask(t.Context(), m, 2, q.key).mustGet(t, 2)
	m.RemovePublisher(p)
}

func TestAddPublisherRacesReceives(t *testing.T) {
	c, m := counted(t), manager(t)
	var wg sync.WaitGroup
	for i, name := range []string{"a", "b", "c", "d"} {
		p := &publication{key(t, name), c.make(i)}
		defer p.t.Release()
		wg.Go(func() {
			m.AddPublisher(p)
			for range 100 {
				ask(t.Context(), m, step, p.key).mustGet(t, i)
			}
			m.RemovePublisher(p)
		})
	}
	wg.Wait()
}

// TestB10ShutdownWaitsForNobody: it ends what waits and refuses what comes, while a
// callback is under way; Close waits for that one, also if its step is cleaned up meanwhile.
func TestB10ShutdownWaitsForNobody(t *testing.T) {
	for _, cleaned := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			m := rendezvous.NewManager(rendezvous.ManagerOptions{Session: session(t), Remoter: &hanging{}})
			c, hold := counted(t), make(chan struct{})
			var ended error
			m.Find(step).RecvAsync(context.Background(), remoteKey(t, "a"), noArgs,
				func(_ rendezvous.Value, _ rendezvous.Args, err error) { <-hold; ended = err })
			q := ask(t.Context(), m, 7, key(t, "a"))
			m.Shutdown()
			mustBeDerived(t, q.wait(t).err, status.Aborted, "Shutdown")
			mustBeDerived(t, c.send(m.Find(step), key(t, "a"), 1), status.Aborted, "Shutdown")
			mustBeDerived(t, c.send(m.Find(8), key(t, "a"), 1), status.Aborted, "Shutdown")
			mustBeDerived(t, ask(t.Context(), m, 9, key(t, "a")).wait(t).err, status.Aborted, "Shutdown")
			if cleaned {
				m.Cleanup(step)
			}
			closed := false
			var wg sync.WaitGroup
			wg.Go(func() { m.Close(); closed = true })
			synctest.Wait()
			if closed {
				t.Error("Close returned while a callback runs")
			}
			close(hold)
			wg.Wait()
			mustBeDerived(t, ended, status.Aborted, "Shutdown")
		})
	}
}

// Close waits for the remote receives of steps that were cleaned up before.
func TestCloseWaitsForCleanedUpSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := rendezvous.NewManager(rendezvous.ManagerOptions{Session: session(t), Remoter: &hanging{}})
		hold := make(chan struct{})
		var ended error
		m.Find(step).RecvAsync(context.Background(), remoteKey(t, "a"), noArgs,
			func(_ rendezvous.Value, _ rendezvous.Args, err error) { <-hold; ended = err })
		m.Cleanup(step)
		closed := false
		var wg sync.WaitGroup
		wg.Go(func() { m.Close(); closed = true })
		synctest.Wait()
		if closed {
			t.Error("Close returned while a callback runs")
		}
		close(hold)
		wg.Wait()
		mustBe(t, ended, status.Aborted, "Cleanup 123")
	})
}

// stopsHere is a call whose end takes a while.
type stopsHere struct{ in, goOn chan struct{} }

func (c *stopsHere) Abort(error) { close(c.in); <-c.goOn }

// Close waits for the remote receives of a step that is just being cleaned up.
func TestCloseDuringCleanup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := rendezvous.NewManager(rendezvous.ManagerOptions{Session: session(t), Remoter: &hanging{}})
		hold := make(chan struct{})
		ended, closed := false, false
		m.Find(step).RecvAsync(context.Background(), remoteKey(t, "a"), noArgs,
			func(rendezvous.Value, rendezvous.Args, error) { <-hold; ended = true })
		c := &stopsHere{make(chan struct{}), make(chan struct{})}
		if err := m.Find(step).RegisterCall(c); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		wg.Go(func() { m.Cleanup(step) })
		<-c.in // the step is out of the map, and its receive still under way
		wg.Go(func() { m.Close(); closed = true })
		synctest.Wait()
		if closed {
			t.Error("Close returned while a callback and a remote receive are under way")
		}
		close(c.goOn)
		close(hold)
		wg.Wait()
		if !ended {
			t.Error("Close returned before the callback")
		}
	})
}

// TestReceiveOfAnotherTasksValueWaits: as in TensorFlow a peer's receive of a value that another
// task sends waits until this process begins the step. Then it is InvalidArgument.
func TestReceiveOfAnotherTasksValueWaits(t *testing.T) {
	c, m := counted(t), manager(t)
	foreign := between(t, ps1, ps, "a")
	waits := ask(t.Context(), m, 1, foreign)
	own := ask(t.Context(), m, 1, key(t, "a"))
	ctx, cancel := context.WithCancel(t.Context())
	cancelled, aborted := ask(ctx, m, 2, foreign), ask(t.Context(), m, 3, foreign)
	for _, p := range []*pending{waits, cancelled, aborted} {
		if !p.waits() {
			t.Fatal("the receive does not wait")
		}
	}
	cancel()
	cancelled.mustFail(t, context.Canceled)
	m.AbortStep(3, errBoom)
	aborted.mustFail(t, errBoom)
	if m.Steps() != 1 {
		t.Errorf("%d steps, want 1", m.Steps())
	}
	c.mustSend(t, m.Find(1), key(t, "a"), 1)
	own.mustGet(t, 1)
	const text = "Invalid rendezvous key (src): "
	mustBe(t, waits.wait(t).err, status.InvalidArgument, text)
	mustBe(t, ask(t.Context(), m, 1, foreign).wait(t).err, status.InvalidArgument, text)
	m.Cleanup(1)
	mustBeDerived(t, ask(t.Context(), m, 1, foreign).wait(t).err, status.Aborted, "Cleanup 1")
	closing := ask(t.Context(), m, 4, foreign)
	m.Close()
	mustBeDerived(t, closing.wait(t).err, status.Aborted, "Shutdown")
}

// TestErrOfAStepMakesNoStep: the question whether a step has ended does not begin it.
func TestErrOfAStepMakesNoStep(t *testing.T) {
	m := manager(t)
	if err := m.Err(1); err != nil || m.Steps() != 0 {
		t.Errorf("a step that was never used: %v, %d steps", err, m.Steps())
	}
	m.Find(1)
	if err := m.Err(1); err != nil {
		t.Errorf("a step in progress: %v", err)
	}
	m.AbortStep(1, errBoom)
	if err := m.Err(1); !errors.Is(err, errBoom) {
		t.Errorf("an aborted step: %v", err)
	}
	m.Cleanup(1)
	mustBe(t, m.Err(1), status.Aborted, "Cleanup 1")
	if m.Steps() != 0 {
		t.Errorf("%d steps", m.Steps())
	}
	m.Close()
	mustBe(t, m.Err(2), status.Aborted, "Shutdown")
}

// TestOverIsOfStepsThatHaveGone: a step that was aborted and exists still is not over, since its cleanup ends it otherwise.
func TestOverIsOfStepsThatHaveGone(t *testing.T) {
	m := manager(t)
	k := key(t, "k")
	m.Find(1)
	m.AbortStep(1, errBoom)
	m.AbortStep(2, errBoom)
	for step, want := range map[int64]bool{1: false, 2: true, 3: false} {
		if got := m.Over(step, k); got != want {
			t.Errorf("step %d is over: %v", step, got)
		}
	}
	m.Cleanup(1)
	if !m.Over(1, k) {
		t.Error("a step that was cleaned up is not over")
	}
}
