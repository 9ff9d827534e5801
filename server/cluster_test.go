package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/certificates"
	"github.com/tryst-rdma/tryst/internal/certificates/certtest"
	"github.com/tryst-rdma/tryst/internal/proto/tensorflowgrpc"
	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
	"github.com/tryst-rdma/tryst/internal/proto/trystgrpc"
	"github.com/tryst-rdma/tryst/internal/transporttest"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/ops"
	grpctransport "github.com/tryst-rdma/tryst/transport/grpc"
)

// changing is processes of the tasks of a job whose cluster changes.
type changing struct {
	t     *testing.T
	route string
	verbs *verbsTown // on a fabric in memory; nil for another route
	at    []string   // addresses of the tasks
}

// changingTasks runs a test with the addresses of n tasks, over gRPC, verbs, and verbs over real connections.
func changingTasks(t *testing.T, n int, test func(t *testing.T, w *changing)) {
	for _, route := range []string{"grpc", "verbs", "tcp", "auto"} {
		t.Run(route, func(t *testing.T) {
			w := &changing{t: t, route: route}
			if route == "verbs" {
				w.verbs = newVerbsTown(t, n)
				for _, task := range w.verbs.spec.Tasks() {
					at, _ := w.verbs.spec.Address(task)
					w.at = append(w.at, at)
				}
			} else {
				w.at = transporttest.FreeAddresses(t, n)
			}
			test(t, w)
		})
	}
}

// cluster is one with some tasks.
func (w *changing) cluster(tasks ...int) map[string][]string {
	all := make([]string, 0, len(tasks))
	for _, i := range tasks {
		all = append(all, fmt.Sprintf("%d@%s", i, w.at[i]))
	}
	return map[string][]string{"worker": all}
}

func (w *changing) task(i int) string { return taskOf("worker", i).String() }

// start starts the process of a task, whose cluster has some tasks.
func (w *changing) start(i int, tasks ...int) *Server { return w.startWith(i, Options{}, tasks...) }

func (w *changing) startWith(i int, o Options, tasks ...int) *Server {
	w.t.Helper()
	change := func(c *Config) {
		c.Cluster, c.Task, c.Listen = w.cluster(tasks...), w.task(i), w.at[i]
		switch w.route {
		case "grpc":
			c.Transport = TransportGRPC
		case "tcp":
			c.Transport, c.Provider = TransportVerbs, ProviderTCP
		}
	}
	if w.verbs != nil {
		return w.verbs.startWith(i, o, change).Server
	}
	return start(w.t, settings(change), o)
}

// overVerbs reports whether tasks have channels.
func (w *changing) overVerbs() bool { return w.route != "grpc" }

func (w *changing) set(s *Server, tasks ...int) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), soon)
	defer cancel()
	if err := s.SetCluster(ctx, w.cluster(tasks...)); err != nil {
		w.t.Fatal(err)
	}
}

// exchange sends a value in a step, and waits until it is acknowledged.
func (w *changing) exchange(step int64, from, to *Server) {
	w.t.Helper()
	x := float(w.t, float32(step))
	defer x.Release()
	got := to.recv(step, from.Task().String(), "x")
	d, err := from.SendWait(w.t.Context(), step, to.Task().String(), "x", x, false)
	if err != nil {
		w.t.Fatal(err)
	}
	wantFloat(w.t, wait(w.t, got, "the value"), float32(step))
	wait(w.t, d.Done(), "the acknowledgement")
	if d.Err() != nil {
		w.t.Fatal(d.Err())
	}
}

// TestTaskComes: it is reached, and reaches the others, without a restart of anyone.
func TestTaskComes(t *testing.T) {
	changingTasks(t, 3, func(t *testing.T, w *changing) {
		a, b := w.start(0, 0, 1), w.start(1, 0, 1)
		w.exchange(1, a, b)
		x := float(t, 1)
		defer x.Release()
		wantError(t, a.Send(2, w.task(2), "x", x, false), status.NotFound, "the cluster has no task")
		c := w.start(2, 0, 1, 2)
		w.set(a, 0, 1, 2)
		w.set(b, 0, 1, 2)
		for i, pair := range [][2]*Server{{a, c}, {c, a}, {b, c}, {c, b}, {a, b}} {
			w.exchange(int64(10+i), pair[0], pair[1])
		}
		if links := a.Links(); len(links) != 2 || links[1].Task != w.task(2) {
			t.Errorf("links %+v", links)
		}
		if got := a.Cluster(); !maps.EqualFunc(got, map[string][]string{"worker": w.at}, slices.Equal) {
			t.Errorf("the cluster is %v", got)
		}
	})
}

// TestStepsWithATaskThatLeftEnd: with an error that says so, whatever is under way in them. Others go on.
func TestStepsWithATaskThatLeftEnd(t *testing.T) {
	changingTasks(t, 4, func(t *testing.T, w *changing) {
		a, b, c := w.start(0, 0, 1, 2, 3), w.start(1, 0, 1, 2, 3), w.start(2, 0, 1, 2, 3) // task 3 is not up
		w.exchange(1, b, a)
		w.exchange(2, c, a)
		x := float(t, 1)
		defer x.Release()
		steps := map[string]int64{"a receive waits": 10, "a value is not received": 11, "a bounded send": 12, "a request waits": 13, "a receive from a task that never came": 14}
		fromB, fromD := a.recv(10, w.task(1), "x"), a.recv(14, w.task(3), "x")
		if err := a.Send(11, w.task(1), "x", x, false); err != nil {
			t.Fatal(err)
		}
		d, err := a.SendWait(t.Context(), 12, w.task(1), "x", x, false)
		if err != nil {
			t.Fatal(err)
		}
		request := b.recv(13, w.task(0), "x")
		until(t, "the requests wait", func() bool { return a.cache.Stats().Waiting > 0 && b.cache.Stats().Waiting > 0 })
		other := a.recv(20, w.task(2), "x")
		ends := make(map[string]*StepEnd)
		for name, step := range steps {
			ends[name] = a.StepEnd(step)
		}

		w.set(a, 0, 2)
		for name, end := range ends {
			wait(t, end.Done(), name)
			wantLeft(t, end.Err(), status.Aborted)
		}
		wantLeft(t, wait(t, fromB, "the receive").err, status.Aborted)
		wantLeft(t, wait(t, fromD, "the receive from nobody").err, status.Aborted)
		wait(t, d.Done(), "the outcome")
		wantLeft(t, d.Err(), status.Aborted)
		wantLeft(t, wait(t, request, "the request of the task that left").err, status.Aborted)
		if err := a.StepErr(20); err != nil {
			t.Errorf("the step of others: %v", err)
		}
		if err := c.Send(20, w.task(0), "x", x, false); err != nil {
			t.Fatal(err)
		}
		wantFloat(t, wait(t, other, "the receive of others"), 1)
	})
}

// TestErrorOfAConnectionToATaskThatLeaves: it closes before the steps with the task end. The receive says that the task has
// left, and its step ends.
func TestErrorOfAConnectionToATaskThatLeaves(t *testing.T) {
	a, b := twoTasks(t)
	other := taskOf("worker", 7)
	if err := a.SetCluster(t.Context(), map[string][]string{"worker": {a.Cluster()["worker"][a.Task().Index]}}); err != nil {
		t.Fatal(err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for step, c := range []struct {
		ctx  context.Context
		from cluster.Task
		err  error
		left bool
	}{
		{t.Context(), b.Task(), status.New(status.Cancelled, "the client connection is closing"), true},
		{t.Context(), b.Task(), status.New(status.Unavailable, "the connection is closed"), true},
		{t.Context(), b.Task(), nil, false},
		{t.Context(), b.Task(), status.New(status.InvalidArgument, "it does not fit"), false},
		{t.Context(), b.Task(), status.New(status.Aborted, "another process").WithKind(status.ErrPeerRestarted), false},
		{t.Context(), other, status.New(status.Unavailable, "no task that has left"), false},
		{over, b.Task(), status.New(status.Cancelled, "the caller gave up"), false},
	} {
		err := a.checkReceived(c.ctx, int64(step), c.from, c.err)
		if left := errors.Is(err, status.ErrTaskLeft); left != c.left || !left && err != c.err { //nolint:errorlint // it is the same error
			t.Errorf("%v became %v", c.err, err)
		}
		if ended := errors.Is(a.StepErr(int64(step)), status.ErrTaskLeft); ended != c.left {
			t.Errorf("%v: the step ended: %v", c.err, ended)
		}
	}
}

// stream sends a value from one process to another in steps, again and again, until an error.
type stream struct {
	received atomic.Int64
	err      chan error // of the receiver
}

// startStream begins a stream in the steps from first on. The tensors that are received are released.
func startStream(from, to *Server, first int64, x *tensor.Tensor) *stream {
	s := &stream{err: make(chan error, 1)}
	go func() {
		for step := first; ; step++ {
			// A send to a task that has left is an error, as the receive is.
			sent := from.Send(step, to.Task().String(), "x", x, false)
			v, err := to.Recv(context.Background(), step, from.Task().String(), "x")
			if err == nil {
				v.Tensor.Release()
				s.received.Add(1)
			}
			from.EndStep(step) // with what was sent and not received
			to.EndStep(step)
			if err != nil {
				s.err <- errors.Join(err, sent)
				return
			}
		}
	}()
	return s
}

// TestLargeTransfersWithATaskThatLeavesEnd: in both directions, soon (some 30 ms on a quiet machine), and nothing keeps their
// memory. Transfers with others go on.
func TestLargeTransfersWithATaskThatLeavesEnd(t *testing.T) {
	changingTasks(t, 3, func(t *testing.T, w *changing) {
		a, b, c := w.start(0, 0, 1, 2), w.start(1, 0, 1, 2), w.start(2, 0, 1, 2)
		if w.overVerbs() && w.route != "auto" { // which makes them for the first receives
			until(t, "channels", func() bool { return a.Links()[0].State == LinkUp && a.Links()[1].State == LinkUp })
		}
		large := make([]*tensor.Tensor, 2)
		for i, from := range []*Server{a, b} {
			var err error
			if large[i], err = tensor.Make[float32](from.SendAllocator(), 16<<20); err != nil {
				t.Fatal(err)
			}
			defer large[i].Release()
		}
		small := float(t, 1)
		defer small.Release()
		begin := time.Now()
		out, in := startStream(a, b, 1000, large[0]), startStream(b, a, 2000, large[1])
		other := startStream(c, a, 3000, small)
		until(t, "all are under way", func() bool { return min(out.received.Load(), in.received.Load(), other.received.Load()) > 1 })
		underWay := time.Since(begin) // what is slow for the first values is so for the last ones: the race detector, a busy machine
		begin = time.Now()
		w.set(a, 0, 2)
		for name, s := range map[string]*stream{"to the task": out, "from the task": in} {
			if err := wait(t, s.err, name); !errors.Is(err, status.ErrTaskLeft) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if took := time.Since(begin); took > 5*time.Second+underWay {
			t.Errorf("they ended after %v", took)
		}
		t.Logf("they ended after %v", time.Since(begin))
		before := other.received.Load()
		until(t, "the transfers of others", func() bool { return other.received.Load() > before+10 })
		for i, x := range large {
			ctx, cancel := context.WithTimeout(t.Context(), soon)
			if err := x.Buffer().WaitUnique(ctx); err != nil {
				t.Errorf("what task %d sent: %v", i, err)
			}
			cancel()
		}
		for _, l := range a.Links() {
			if l.Breaks > 0 {
				t.Errorf("the connection of others broke: %+v", l)
			}
		}
		if err := c.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		_ = wait(t, other.err, "the end") // of the one that was closed
		if a.rdma != nil {
			until(t, "no registered memory is in use", func() bool { // when the queue pairs are gone
				used := a.rdma.Transport.Memory()
				return used.Receiving.InUse+used.Quarantined == 0
			})
		}
	})
}

func wantLeft(t *testing.T, err error, code status.Code) {
	t.Helper()
	if wantError(t, err, code, "has left the cluster"); !errors.Is(err, status.ErrTaskLeft) {
		t.Errorf("%v is not of a task that left", err)
	}
}

// TestNothingIsForATaskThatLeft: calls for it fail, and it gets nothing, until it comes back.
func TestNothingIsForATaskThatLeft(t *testing.T) {
	changingTasks(t, 2, func(t *testing.T, w *changing) {
		a, b := w.start(0, 0, 1), w.start(1, 0, 1)
		w.exchange(1, a, b)
		w.exchange(2, b, a)
		edge, err := a.Edge(w.task(1), "x")
		if err != nil {
			t.Fatal(err)
		}
		w.set(a, 0)
		x := float(t, 1)
		defer x.Release()
		wantLeft(t, a.Send(3, w.task(1), "x", x, false), status.NotFound)
		_, err = a.SendWait(t.Context(), 3, w.task(1), "x", x, false)
		wantLeft(t, err, status.NotFound)
		wantLeft(t, edge.Send(3, x), status.NotFound)
		_, err = edge.SendWait(t.Context(), 3, x)
		wantLeft(t, err, status.NotFound)
		_, err = edge.Recv(t.Context(), 3)
		wantLeft(t, err, status.NotFound)
		_, err = a.Recv(t.Context(), 3, w.task(1), "x")
		wantLeft(t, err, status.NotFound)
		wantLeft(t, wait(t, a.recv(3, w.task(1), "x"), "a receive").err, status.NotFound)
		_, err = a.Edge(w.task(1), "y")
		wantLeft(t, err, status.NotFound)

		wantLeft(t, wait(t, b.recv(3, w.task(0), "x"), "a receive of the task that left").err, status.Aborted)
		request := &tfpb.RecvTensorRequest{StepId: 3, RendezvousKey: rawKey(t, a.Task(), a.Incarnation(), b.Task(), "x")}
		_, err = tensorflowgrpc.NewWorkerServiceClient(dialRaw(t, w.at[0])).RecvTensor(t.Context(), request) // as TensorFlow asks
		if err == nil || !strings.Contains(err.Error(), "has left the cluster") {
			t.Errorf("a plain request: %v", err)
		}
		pull, err := trystgrpc.NewPublicationsClient(dialRaw(t, w.at[0])).Open(t.Context(), &trystpb.OpenRequest{Publication: "p", Puller: w.task(1)})
		if err == nil {
			_, err = pull.Recv()
		}
		if err == nil || !strings.Contains(err.Error(), "has left the cluster") {
			t.Errorf("a pull: %v", err)
		}
		if n := a.cache.Stats(); n.Waiting+n.Kept+n.Connected != 0 {
			t.Errorf("kept for the task that left: %+v", n)
		}

		w.set(a, 0, 1)
		w.exchange(4, a, b)
		w.exchange(5, b, a)
		b.EndStep(3) // of the receive that was refused
		if err := edge.Send(6, x); err != nil {
			t.Errorf("an edge to a task that is back: %v", err)
		}
		a.EndStep(6)
	})
}

// TestConnectionsToATaskThatLeftAreClosed: and their memory comes back.
func TestConnectionsToATaskThatLeftAreClosed(t *testing.T) {
	changingTasks(t, 2, func(t *testing.T, w *changing) {
		a, b := w.start(0, 0, 1), w.start(1, 0, 1)
		if w.overVerbs() && w.route != "auto" { // which makes one for the first receive
			until(t, "a channel", func() bool { return a.Links()[0].Route == "verbs" && a.Links()[0].State == LinkUp })
		}
		w.exchange(1, a, b)
		w.exchange(2, b, a)
		a.EndStep(1)
		w.set(a, 0)
		if links, peers := a.Links(), a.conns.Peers(); len(links)+len(peers) != 0 {
			t.Errorf("links %+v, connections %+v", links, peers)
		}
		if w.overVerbs() {
			if used := a.rdma.Transport.Memory(); used.Slots+used.Quarantined+used.Sending.InUse+used.Receiving.InUse != 0 {
				t.Errorf("registered memory in use: %+v", used)
			}
			if n := len(a.rdma.Transport.Unreached()); n != 0 {
				t.Errorf("%d peers are looked for", n)
			}
		}
	})
}

// TestTaskThatComesBackIsReachedByTheBestRoute: that one process has removed another, which has kept it and called it
// meanwhile, is no failure of a route.
func TestTaskThatComesBackIsReachedByTheBestRoute(t *testing.T) {
	for name, i := range map[string]int{"the proposing side removes the other": 0, "the other side removes it": 1} {
		t.Run(name, func(t *testing.T) {
			w := newKindsTown(t, 2)
			both := []*VerbsServer{w.start(0), w.start(1)}
			a, b := both[i], both[1-i]
			reached := func(from, to *VerbsServer) Link {
				return linked(t, from.Links, to.Task().String(), "reached over a channel", func(l Link) bool { return l.Route == "verbs" && l.State == LinkUp })
			}
			for _, pair := range [][2]*VerbsServer{{a, b}, {b, a}} {
				linked(t, pair[0].Links, pair[1].Task().String(), "reached over shm", func(l Link) bool { return l.Over == "shm" })
			}
			all := a.Cluster()
			if err := a.SetCluster(t.Context(), map[string][]string{"worker": {fmt.Sprintf("%d@%s", i, all["worker"][i])}}); err != nil {
				t.Fatal(err)
			}
			linked(t, b.Links, a.Task().String(), "refused", func(l Link) bool { return strings.Contains(l.Reason, "the cluster has no task") })
			if err := a.SetCluster(t.Context(), all); err != nil {
				t.Fatal(err)
			}
			for _, pair := range [][2]*VerbsServer{{a, b}, {b, a}} {
				if l := reached(pair[0], pair[1]); l.Over != "shm" {
					t.Errorf("%v reaches %v over %s: %+v", pair[0].Task(), pair[1].Task(), l.Over, l.Routes)
				}
			}
		})
	}
}

// TestTaskMoves: another process of it, at another address, gets what is sent to the task, and is received from.
func TestTaskMoves(t *testing.T) {
	changingTasks(t, 3, func(t *testing.T, w *changing) { taskMoves(t, w, 1) })
}

// TestTaskOfALowerNameMoves: the side of the lower name chooses the route.
func TestTaskOfALowerNameMoves(t *testing.T) {
	changingTasks(t, 3, func(t *testing.T, w *changing) { taskMoves(t, w, 0) })
}

// taskMoves moves one of two tasks to the third address.
func taskMoves(t *testing.T, w *changing, i int) {
	t.Helper()
	a, b := w.start(1-i, 0, 1), w.start(i, 0, 1)
	w.exchange(1, a, b)
	w.exchange(2, b, a)
	lost := a.recv(3, w.task(i), "x")
	until(t, "the request waits", func() bool { return b.cache.Stats().Waiting > 0 })
	channels := uint64(0)
	if w.overVerbs() {
		channels = 1
	}
	w.at[i] = w.at[2]
	w.set(a, 0, 1)
	until(t, "the channel to the earlier process is left", func() bool { return a.Links()[0].Breaks >= channels })
	next := w.start(i, 0, 1)
	if err := wait(t, lost, "a receive from the earlier process").err; !errors.Is(err, status.ErrPeerRestarted) {
		t.Errorf("%v, want that the peer has restarted", err)
	}
	w.exchange(4, next, a)
	if err := b.Close(t.Context()); err != nil {
		t.Error(err)
	}
	w.exchange(5, a, next)
}

// TestSameProcessMoves: a receive that waits at it goes on, and gets its value once.
func TestSameProcessMoves(t *testing.T) {
	k := newKilled(t)
	a := start(t, k.at(0), Options{})
	k.proxy.SetTarget(a.Addr().String())
	b := start(t, k.at(1), Options{})
	k.knows(b, a)
	got := b.recv(2, a.Task().String(), "x")
	until(t, "the request waits", func() bool { return a.cache.Stats().Waiting > 0 })
	moved := b.Cluster()
	moved["worker"][0] = a.Addr().String() // without the proxy
	if err := b.SetCluster(t.Context(), moved); err != nil {
		t.Fatal(err)
	}
	k.proxy.SetTarget("")
	x := float(t, 2)
	defer x.Release()
	if err := a.Send(2, b.Task().String(), "x", x, false); err != nil {
		t.Fatal(err)
	}
	wantFloat(t, wait(t, got, "the value"), 2)
}

// TestWrongClusterChangesNothing: no cluster, one without this process, one in which it moves, and an ended context.
func TestWrongClusterChangesNothing(t *testing.T) {
	a, b := twoTasks(t)
	before := a.Cluster()
	own := before["worker"][0]
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		ctx   context.Context
		tasks map[string][]string
		code  status.Code
		text  string
	}{
		"no address":     {t.Context(), map[string][]string{"worker": {own, "no address"}}, status.InvalidArgument, "SetCluster"},
		"a number twice": {t.Context(), map[string][]string{"worker": {own, "0@h:1"}}, status.InvalidArgument, "given before"},
		"empty":          {t.Context(), nil, status.FailedPrecondition, "cannot remove itself"},
		"without itself": {t.Context(), map[string][]string{"worker": {"1@" + before["worker"][1]}}, status.FailedPrecondition, "cannot remove itself"},
		"moves itself":   {t.Context(), map[string][]string{"worker": {"h:1", before["worker"][1]}}, status.FailedPrecondition, "cannot move itself"},
		"context ended":  {over, map[string][]string{"worker": {own}}, status.Cancelled, "SetCluster"},
	} {
		t.Run(name, func(t *testing.T) { wantError(t, a.SetCluster(c.ctx, c.tasks), c.code, c.text) })
	}
	if !maps.EqualFunc(before, a.Cluster(), slices.Equal) {
		t.Errorf("the cluster is %v", a.Cluster())
	}
	got := b.recv(1, a.Task().String(), "x")
	x := float(t, 1)
	defer x.Release()
	if err := a.Send(1, b.Task().String(), "x", x, false); err != nil {
		t.Fatal(err)
	}
	wantFloat(t, wait(t, got, "the value"), 1)
}

// TestClusterChangesWhileItIsUsed: calls at the same time, with sends, receives and a close, end; what they end with is
// a value or says why there is none.
func TestClusterChangesWhileItIsUsed(t *testing.T) {
	changingTasks(t, 3, func(t *testing.T, w *changing) {
		a, b, c := w.start(0, 0, 1, 2), w.start(1, 0, 1, 2), w.start(2, 0, 1, 2)
		w.exchange(1, a, b)
		const rounds = 20
		var work sync.WaitGroup
		for range 2 {
			work.Go(func() {
				for i := range rounds {
					tasks := [][]int{{0, 1, 2}, {0, 2}, {0, 1}}[i%3]
					if err := a.SetCluster(t.Context(), w.cluster(tasks...)); err != nil && !errors.Is(err, status.ErrShutdown) {
						t.Errorf("SetCluster: %v", err)
					}
				}
			})
		}
		for n, peer := range []*Server{b, c} {
			work.Go(func() {
				for i := range rounds {
					w.try(int64(100*(n+1)+i), a, peer)
				}
			})
		}
		work.Go(func() {
			for range rounds {
				runtime.Gosched()
			}
			_ = a.SetCluster(t.Context(), w.cluster(0, 1, 2))
		})
		work.Wait()
		w.set(a, 0, 1, 2)
		w.exchange(1000, a, b)
		w.exchange(1001, c, a)

		work.Go(func() {
			for range rounds {
				if a.SetCluster(t.Context(), w.cluster(0, 1)) != nil || a.SetCluster(t.Context(), w.cluster(0, 1, 2)) != nil {
					return
				}
			}
		})
		if err := a.Close(context.Background()); err != nil {
			t.Errorf("Close: %v", err)
		}
		work.Wait()
		if err := a.SetCluster(t.Context(), w.cluster(0, 1)); !errors.Is(err, status.ErrShutdown) {
			t.Errorf("after Close: %v", err)
		}
	})
}

// try sends values in both directions between a task and a peer that comes and goes.
func (w *changing) try(step int64, a, peer *Server) {
	x := float(w.t, 1)
	defer x.Release()
	ends := make(chan outcome, 1)
	a.RecvAsync(w.t.Context(), step, peer.Task().String(), "y", func(v rendezvous.Value, err error) { ends <- outcome{v, err} })
	_ = a.Send(step, peer.Task().String(), "x", x, false)
	_ = peer.Send(step, a.Task().String(), "y", x, false)
	o := wait(w.t, ends, "a receive")
	if o.err == nil {
		o.v.Tensor.Release()
	} else if !errors.Is(o.err, status.ErrTaskLeft) && status.CodeOf(o.err) != status.NotFound {
		w.t.Errorf("a receive: %v", o.err)
	}
	a.EndStep(step)
	peer.EndStep(step)
}

// TestSessionKeepsTheClusterThatItBeganWith: a task that leaves the cluster of the process, or moves in it, stays where
// the session's master has it. It is refused when the session has ended.
func TestSessionKeepsTheClusterThatItBeganWith(t *testing.T) {
	changingTasks(t, 2, func(t *testing.T, w *changing) {
		a, b := w.startWith(0, Options{Kernels: ops.New()}, 0, 1), w.startWith(1, Options{Kernels: ops.New()}, 0, 1)
		c := propagate(t, grpctransport.DialOptions{},
			member{task: taskOf("trainer", 0), server: a}, member{task: taskOf("trainer", 1), server: b})
		c.exchange(0, 1)
		c.exchange(1, 0)
		w.set(a, 0)
		w.set(b, 1)
		c.exchange(0, 1)
		c.exchange(1, 0)
		c.close()
		wantLeft(t, wait(t, b.recv(7, w.task(0), "x"), "a receive from a task that left").err, status.NotFound)
		w.set(b, 0, 1) // it does not know yet that it has left
		wantLeft(t, wait(t, b.recv(8, w.task(0), "x"), "a receive of the task that left").err, status.Aborted)
	})
}

// TestIdentitiesAfterAChange: under mutual TLS a task that comes proves its name as any other, and what the certificate
// of a host has proven does not hold when the task has moved to another host.
func TestIdentitiesAfterAChange(t *testing.T) {
	a := certtest.New(t)
	for i := range 3 {
		a.MakeFor(taskOf("worker", i).String(), certificateOf(i), certtest.Loopback)
	}
	a.Make("host", certtest.Loopback)
	c := settings(func(c *Config) {
		c.Cluster, c.Task = map[string][]string{"worker": {"127.0.0.1:1"}}, taskOf("worker", 0).String()
		c.TLS, c.TLS.RequireClientCert = TLS(a.Pair(certificateOf(0))), true
	})
	s := start(t, c, Options{})
	as := func(certificate string) *grpc.ClientConn {
		security, err := certificates.ClientTLS(certificates.Files(a.Pair(certificate)))
		if err != nil {
			t.Fatal(err)
		}
		return dialRaw(t, s.Addr().String(), grpc.WithTransportCredentials(certificates.ClientCredentials(security)))
	}
	set := func(tasks ...string) {
		t.Helper()
		if err := s.SetCluster(t.Context(), map[string][]string{"worker": append([]string{"127.0.0.1:1"}, tasks...)}); err != nil {
			t.Fatal(err)
		}
	}
	want := func(what string, c *grpc.ClientConn, task int, want codes.Code) {
		t.Helper()
		if code, message, _ := hello(t.Context(), c, taskOf("worker", task), 7); code != want {
			t.Errorf("%s: %v %q, want %v", what, code, message, want)
		}
	}
	set("127.0.0.1:2")
	own, other, host := as(certificateOf(1)), as(certificateOf(2)), as("host")
	want("a task that came", own, 1, codes.OK)
	want("another's certificate", other, 1, codes.PermissionDenied)
	want("the certificate of its host", host, 1, codes.OK)
	set("192.0.2.1:2")
	want("the certificate of the earlier host", host, 1, codes.PermissionDenied)
	want("a certificate with its name", own, 1, codes.OK)
	set()
	if code, message, _ := hello(t.Context(), own, taskOf("worker", 1), 7); code == codes.OK || !strings.Contains(message, "has left the cluster") {
		t.Errorf("a task that left: %v %q", code, message)
	}
}
