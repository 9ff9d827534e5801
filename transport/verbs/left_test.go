package verbstransport

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/delivery"
	"github.com/tryst-rdma/tryst/internal/handshake"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/transport"
	"github.com/tryst-rdma/tryst/transport/verbs/internal/regmem"
	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/verbstest"
)

// Rule c of ARCHITECTURE.md section 6 at the responder: the generation that a request
// names is closed before the request is served. TestSearch of internal/delivery
// shows why; these tests check that links do it.

// leftPair is a requester and a responder with a channel of generation 1.
type leftPair struct {
	fabric *verbstest.Fabric
	ends   [2]*RdmaRemoteRendezvous // requester, responder
	kept   [2]*delivery.ResponseCache
	tasks  [2]cluster.Task
	looks  func() error                    // the result of the responder's rendezvous
	takes  func() (rendezvous.Value, bool) // the same for TakeLocal, which is called first, with locks of the responder held; nil for no value
}

// stepLimit is longer than any step of these tests takes.
const stepLimit = 20 * time.Second

func newLeftPair(t *testing.T) *leftPair {
	p := &leftPair{fabric: verbstest.NewFabric(verbstest.Options{}), tasks: [2]cluster.Task{{Job: "worker"}, {Job: "worker", Index: 1}}}
	t.Cleanup(p.fabric.Close)
	for i, task := range p.tasks {
		device, err := p.fabric.Provider(task.String()).Open("mem0")
		if err != nil {
			t.Fatal(err)
		}
		gids, err := device.GIDs(1)
		if err != nil {
			t.Fatal(err)
		}
		kept := delivery.NewResponseCache(p, delivery.CacheOptions{})
		end, err := New(Options{
			Self: transport.Process{Name: task.String(), Incarnation: uint64(i) + 1}, Task: task, //nolint:gosec // 1 or 2
			PortOptions: PortOptions{
				Device: device, Address: gids[0],
				Path: verbs.Path{Port: 1, Timeout: verbs.TimeoutCode(2 * time.Millisecond), Retry: 6, RNRRetry: 6},
			},
			Bootstrap: InMemory(p.end), Callable: func(cluster.Task) bool { return true },
			GRPC:  func(cluster.Task) (transport.Conn, error) { return nil, errors.New("nothing goes by gRPC") },
			Cache: kept, Check: func(rendezvous.Key) error { return nil }, Memory: regmem.Options{Arena: 1 << 20},
		})
		if err != nil {
			t.Fatal(err)
		}
		p.ends[i], p.kept[i] = end, kept
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), stepLimit)
			defer cancel()
			if err := errors.Join(end.Close(ctx), device.Close()); err != nil {
				t.Error(err)
			}
			kept.Close()
		})
	}
	p.ends[0].Connect(p.tasks[1])
	for i := range p.ends {
		p.up(t, i)
	}
	return p
}

// up waits for the link of generation 1 at an end.
func (p *leftPair) up(t *testing.T, i int) *link {
	t.Helper()
	peer, err := p.ends[i].peer(p.tasks[1-i])
	if err != nil {
		t.Fatal(err)
	}
	for end := time.After(stepLimit); ; {
		l, _, changed := peer.current()
		if l != nil {
			return l
		}
		select {
		case <-changed:
		case <-end:
			t.Fatal("there is no channel")
		}
	}
}

func (l *link) isOpen() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state == linkOpen
}

// end returns the end of a task; nil while it is not up.
func (p *leftPair) end(task cluster.Task) *RdmaRemoteRendezvous {
	return p.ends[slices.Index(p.tasks[:], task)]
}

// RecvLocalAsync, TakeLocal and Restore implement delivery.Values.
func (p *leftPair) RecvLocalAsync(_ context.Context, _ int64, _ rendezvous.Key, done rendezvous.DoneFunc) {
	done(rendezvous.Value{}, rendezvous.Args{}, p.looks())
}

func (p *leftPair) TakeLocal(int64, rendezvous.Key) (rendezvous.Value, bool) {
	if p.takes != nil {
		return p.takes()
	}
	return rendezvous.Value{}, false
}

func (p *leftPair) Restore(int64, rendezvous.Key, rendezvous.Value) bool { return false }

// TestRequestClosesTheChannelThatItNames: a request on a later channel names the first
// one, which the requester has left without the responder's knowledge.
func TestRequestClosesTheChannelThatItNames(t *testing.T) {
	p := newLeftPair(t)
	first := p.up(t, 1)
	const later = 1000 // far from the generation that the handshake makes meanwhile
	var second [2]*link
	for i := range second {
		route := p.up(t, i).route
		p.ends[i].links.add()
		var err error
		if second[i], err = route.newLink(later, later); err != nil {
			t.Fatal(err)
		}
	}
	for i, l := range second {
		if err := l.connect(second[1-i].own); err != nil {
			t.Fatal(err)
		}
		defer l.leave(status.New(status.Cancelled, "the test is over"))
	}
	second[0].open()
	key := keyBetween(t, p.tasks[1], p.tasks[0])
	ctx, cancel := context.WithTimeout(t.Context(), stepLimit)
	defer cancel()
	for id, left := range []uint64{0, 1, 1} {
		served := func(open bool) {
			if open != (left == 0) {
				t.Errorf("request %d is served, which names generation %d: the channel of generation 1 is open: %v", id+1, left, open)
			}
		}
		p.takes = func() (rendezvous.Value, bool) {
			// The cache's lock is held, which others take while they hold the lock of a
			// link.
			if first.mu.TryLock() {
				open := first.state == linkOpen
				first.mu.Unlock()
				served(open)
			}
			return rendezvous.Value{}, false
		}
		p.looks = func() error {
			served(first.isOpen())
			return status.New(status.NotFound, "served")
		}
		attempt := second[0].begin(&transport.Receive{
			Request: transport.Request{Requester: p.ends[0].opts.Self, ID: uint64(id) + 1, Attempt: 1, Step: 1, Key: key}, //nolint:gosec // small
			Left:    left, Peer: 2, Began: time.Now(),
		})
		_, err := attempt.Wait(ctx)
		if status.CodeOf(err) != status.NotFound {
			t.Fatalf("request %d ends with %v", id+1, err)
		}
	}
}

// leftGeneration reports over gRPC that a requester has left a generation. The report has
// to be accepted.
func leftGeneration(t *testing.T, at *RdmaRemoteRendezvous, requester transport.Process, generation uint64) {
	t.Helper()
	leave, err := at.LeftGeneration(requester, generation)
	if err != nil {
		t.Fatal(err)
	}
	leave()
}

// TestLeftGenerationWhileTheNextIsBootstrapped: the report closes the links of the
// reporting process only, in any state of the handshake.
func TestLeftGenerationWhileTheNextIsBootstrapped(t *testing.T) {
	p := newLeftPair(t)
	first, requester := p.up(t, 1), p.ends[0].opts.Self
	p.fabric.Wires(p.tasks[0].String(), p.tasks[1].String()).Hold() // no BYE arrives
	defer p.fabric.Wires(p.tasks[0].String(), p.tasks[1].String()).Release()
	first.peer.mu.Lock()
	first.route.do(first.route.machine.Stop(time.Now())) // as for a higher generation: the pair of offers is dropped
	leftGeneration(t, p.ends[1], transport.Process{Name: requester.Name, Incarnation: 9}, 1)
	leftGeneration(t, p.ends[1], transport.Process{Name: p.tasks[1].String(), Incarnation: 1}, 1)
	leftGeneration(t, p.ends[1], requester, 0)
	if !first.isOpen() {
		t.Fatal("the report of another process closes it")
	}
	leftGeneration(t, p.ends[1], requester, 1)
	if first.isOpen() {
		t.Error("generation 1 is open after its requester has left it")
	}
}

// TestReportOfAGenerationThatNobodyHasOffered is refused, unless the record of the peer may be younger than its generations:
// the task has left the cluster and come back.
func TestReportOfAGenerationThatNobodyHasOffered(t *testing.T) {
	p := newLeftPair(t)
	first, requester := p.up(t, 1), p.ends[0].opts.Self
	if _, err := p.ends[1].LeftGeneration(requester, 1000); status.CodeOf(err) != status.FailedPrecondition {
		t.Errorf("with a channel: %v", err)
	}
	first.peer.mu.Lock()
	first.peer.cameUpTo = 0 // as before the first channel
	first.peer.mu.Unlock()
	if _, err := p.ends[1].LeftGeneration(requester, 1000); err != nil {
		t.Errorf("before the first channel: %v", err)
	}
}

// second makes a link of that generation at an end. No test tears it down.
func (p *leftPair) second(t *testing.T, i int, generation uint64) *link {
	t.Helper()
	route := p.up(t, i).route
	p.ends[i].links.add()
	l, err := route.newLink(generation, generation)
	if err != nil {
		t.Fatal(err)
	}
	route.peer.mu.Lock()
	route.links[generation] = l
	route.peer.mu.Unlock()
	t.Cleanup(func() { l.discard(errors.New("the test is over"), false) })
	return l
}

// TestLinkThatWasLeftIsNotPutUp: HELLO and the end of a channel may be handled
// concurrently, and the end may come first.
func TestLinkThatWasLeftIsNotPutUp(t *testing.T) {
	p := newLeftPair(t)
	l := p.second(t, 0, 1000)
	l.peer.linkDown(l)
	l.peer.linkUp(l)
	if up, _, _ := l.peer.current(); up == l {
		t.Error("receives go to a link that was left")
	}
}

// TestLargestOfferConnects: package channel accepts every offer that the handshake
// accepts.
func TestLargestOfferConnects(t *testing.T) {
	p := newLeftPair(t)
	a, b := p.second(t, 0, 1000), p.second(t, 1, 1000)
	offer := b.own
	offer.Window, offer.ReceiveSize, offer.EagerLimit = handshake.MaxWindow, handshake.MaxReceiveSize, handshake.MaxReceiveSize
	offer.MaxMessage = handshake.MaxReceiveSize
	if err := handshake.Validate(offer); err != nil {
		t.Fatal(err)
	}
	if err := a.connect(offer); err != nil {
		t.Error(err)
	}
	a.leave(errors.New("the test is over"))
}

// TestCompletionOfAQueuePairThatIsGone: a device may deliver flushed completions of a
// queue pair that was destroyed because the peer had no counterpart.
func TestCompletionOfAQueuePairThatIsGone(t *testing.T) {
	l := newLeftPair(t).up(t, 0)
	slot := uint32(len(l.rails) * l.peer.transport.opts.Window) //nolint:gosec // a window
	l.completed([]verbs.WC{{ID: l.wrID(slot, kindRecv), Status: verbs.StatusFlushed}}, time.Now())
	if !l.isOpen() {
		t.Error("the channel was left for it")
	}
}

// TestDestinationThatAnAttemptHasNoMore: the attempt has another destination when the
// peer releases the first.
func TestDestinationThatAnAttemptHasNoMore(t *testing.T) {
	var l link
	a := &attempt{link: &l}
	a.dest = l.dests.put(destination{of: a})
	earlier := a.dest
	a.dest = l.dests.put(destination{of: a}) // the value did not fit
	later := a.dest
	if d, ok := l.takeDest(earlier); !ok || d.of != a || a.dest != later {
		t.Errorf("the attempt has destination %d, want %d", a.dest, later)
	}
	if d, ok := l.takeDest(later); !ok || d.of != a || a.dest != 0 {
		t.Errorf("a destination that was taken is still the attempt's")
	}
}

// TestAttemptIsFoundByItsOwnHandleAlone: handles are reused.
func TestAttemptIsFoundByItsOwnHandleAlone(t *testing.T) {
	var l link
	dropped := &attempt{link: &l, id: attemptID{1, 1}}
	handle := l.attempts.put(dropped)
	l.attempts.take(handle)
	if l.attempt(handle, dropped.id) != nil {
		t.Error("an attempt that has ended is found")
	}
	later := &attempt{link: &l, id: attemptID{1, 2}}
	if h := l.attempts.put(later); h != handle {
		t.Fatalf("handle %d, want %d again", h, handle)
	}
	if l.attempt(handle, dropped.id) != nil {
		t.Error("the handle of an attempt that has ended leads to another attempt")
	}
	if l.attempt(handle, later.id) != later {
		t.Error("an attempt is not found")
	}
}

// TestUnverifiedPeersAreBounded: peers that make bootstrap calls and send nothing on their
// channels get a bounded amount of memory, under whatever names.
func TestUnverifiedPeersAreBounded(t *testing.T) {
	p := newLeftPair(t)
	end := p.ends[0]
	end.opts.Callable = func(task cluster.Task) bool { return task.Job != "client" }
	end.unverified.total = 2
	calls := func(i int) (*peer, error) {
		offer := p.up(t, 1).own
		offer.Task, offer.Incarnation, offer.Generation = cluster.Task{Job: "client", Index: i}, uint64(i)+100, 1 //nolint:gosec // a few
		if _, err := end.answer(t.Context(), "", offer); err != nil {
			return nil, err
		}
		return end.peer(offer.Task)
	}
	for i := range 2 {
		if _, err := calls(i); err != nil {
			t.Fatal(err)
		}
	}
	full := func(err error) bool {
		return err != nil && strings.Contains(err.Error(), "2 channels that wait for the first message")
	}
	if _, err := calls(2); !full(err) {
		t.Fatalf("a third: %v", err)
	}
	first, err := calls(0)
	if err != nil {
		t.Fatal(err)
	}
	l := first.existing()[0]
	first.linkUp(l) // HELLO has arrived
	third, err := calls(3)
	if err != nil {
		t.Fatalf("when one has spoken: %v", err)
	}
	if _, err := calls(4); !full(err) {
		t.Fatalf("one more: %v", err)
	}
	gone := third.existing()[0]
	gone.leave(errors.New("it is gone"))
	for end := time.Now().Add(stepLimit); len(third.existing()) > 0; runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatal("the link does not end")
		}
	}
	if _, err := calls(5); err != nil {
		t.Errorf("when one is gone: %v", err)
	}
}

// TestUnverifiedPeersOfOneAddressLeaveSpaceForOthers checks the limits per address, of unverified
// channels and of records.
func TestUnverifiedPeersOfOneAddressLeaveSpaceForOthers(t *testing.T) {
	for what, limit := range map[string]func(*RdmaRemoteRendezvous){
		"channels that wait for the first message": func(t *RdmaRemoteRendezvous) { t.unverified.each = 2 },
		"peers that are in no cluster":             func(t *RdmaRemoteRendezvous) { t.clients.each = 2 },
	} {
		t.Run(what, func(t *testing.T) {
			p := newLeftPair(t)
			end := p.ends[0]
			end.opts.Callable = func(task cluster.Task) bool { return task.Job != "client" }
			limit(end)
			calls := func(i int, address string) error {
				offer := p.up(t, 1).own
				offer.Task, offer.Incarnation, offer.Generation = cluster.Task{Job: "client", Index: i}, uint64(i)+100, 1 //nolint:gosec // a few
				_, err := end.answer(t.Context(), address, offer)
				return err
			}
			for i := range 2 {
				if err := calls(i, "10.0.0.1"); err != nil {
					t.Fatal(err)
				}
			}
			if err := calls(2, "10.0.0.1"); err == nil || !strings.Contains(err.Error(), "2 "+what) || !strings.Contains(err.Error(), "10.0.0.1") {
				t.Errorf("a third of one address: %v", err)
			}
			if err := calls(3, "10.0.0.2"); err != nil {
				t.Errorf("another address: %v", err)
			}
		})
	}
}

// TestQueuesThatTheDeviceDoesNotHave: a setting with which no channel can be made is
// refused at start, and the error has the limit.
func TestQueuesThatTheDeviceDoesNotHave(t *testing.T) {
	info := verbs.DeviceInfo{Name: "mlx5_0", Limits: verbs.Limits{SendWR: 257, RecvWR: 128, CQEntries: 770}}
	for words, o := range map[string]struct{ send, window, rails int }{
		"":                                      {256, 128, 2},
		"mlx5_0 supports 257 work requests":     {257, 128, 1},
		"mlx5_0 supports 128 receives":          {256, 129, 1},
		"mlx5_0 supports 770 entries in a comp": {256, 128, 3},
	} {
		err := (&Options{SendQueue: o.send, Window: o.window}).checkLimits(info, o.rails)
		if (err != nil) != (words != "") || err != nil && !strings.Contains(err.Error(), words) {
			t.Errorf("%+v: %v, want %q", o, err, words)
		}
	}
	if err := (&Options{SendQueue: 1 << 15, Window: 1 << 14}).checkLimits(verbs.DeviceInfo{}, 8); err != nil {
		t.Errorf("a device that does not say: %v", err)
	}
}

// TestAnswerThatNobodyWaitsForIsNotCounted: a response that crosses the peer's CANCEL is
// dropped and does not count as sent.
func TestAnswerThatNobodyWaitsForIsNotCounted(t *testing.T) {
	p := newLeftPair(t)
	l := p.up(t, 1)
	v, err := tensor.FromSlice(tensor.Shape{}, []float32{1})
	if err != nil {
		t.Fatal(err)
	}
	l.Reply(77, 1, transport.Response{Value: rendezvous.Value{Tensor: v}})
	if n := l.peer.counters.sent.Load(); n != 0 {
		t.Errorf("%d tensors were sent, and none was requested", n)
	}
}
