package transporttest

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
	"github.com/tryst-rdma/tryst/transport"
)

const (
	// patience is how long a case waits for what must happen soon. Only a
	// case that fails waits so long. It is below the minute after which a
	// table of answers gives up by itself what nobody has finished.
	patience = 40 * time.Second
	// slowest is how many bytes a second even a loaded machine moves, under
	// the race detector.
	slowest = 8 << 20
	// peerTimeout is that of most nodes: no case may reach it but by a
	// fault.
	peerTimeout = 20 * time.Second
	// shortTimeout is the peer timeout of nodes whose peer is gone: the case
	// has to wait for it, and the machine must not take as long for
	// anything else.
	shortTimeout = 500 * time.Millisecond
	// pollEvery is how often a condition is looked at that nobody announces.
	pollEvery = time.Millisecond
	// collectEvery is after how many looks the garbage is collected.
	collectEvery = 50
	// settleTime is when a request has usually left.
	settleTime = 20 * time.Millisecond
)

// tasks are those of every cluster. The name of the second is a prefix of the
// name of the third.
var tasks = []cluster.Task{{Job: "worker", Index: 0}, {Job: "worker", Index: 1}, {Job: "worker", Index: 10}}

// world is what a case plays in.
type world struct {
	*testing.T
	suite    Suite
	cluster  Cluster
	ctx      context.Context // of the case's receives; ends with the case
	patience time.Duration
	source   *tensortest.Allocator   // memory of what is sent
	memory   []*tensortest.Allocator // of what each task receives

	mu sync.Mutex // guards what follows
	// nodes are those that run.
	nodes    []*node
	receives []*receive
	steps    map[int64]bool // that a node has used
	leaves   bool           // answers stay on purpose: their asker was killed
}

func newWorld(t *testing.T, s Suite, size int64) *world {
	w := &world{
		T: t, suite: s, patience: (patience + time.Duration(size/slowest)*time.Second) * time.Duration(s.TimeScale),
		source: tensortest.NewAllocator(t), steps: make(map[int64]bool),
	}
	for range tasks {
		w.memory = append(w.memory, tensortest.NewAllocator(t))
	}
	w.cluster = s.New(t, tasks)
	ctx, cancel := context.WithCancel(t.Context())
	w.ctx = ctx
	t.Cleanup(func() {
		if !t.Failed() {
			w.checkIdle()
		}
		cancel()
		w.checkReceives()
		w.stop()
	})
	return w
}

// checkIdle says what a case has left behind while its processes still run.
func (w *world) checkIdle() {
	for _, n := range w.nodes {
		if !w.leaves && !w.holds(func() bool { s := n.Cache().Stats(); return s.Waiting+s.Kept == 0 && s.Bytes == 0 }) {
			w.Errorf("%v still keeps answers: %+v", n.task, n.Cache().Stats())
		}
	}
	for step := range w.steps {
		for _, n := range w.nodes {
			n.endStep(step)
		}
	}
	for _, n := range w.nodes {
		if !w.holds(func() bool { return n.Manager().Steps() == 0 }) {
			w.Errorf("%v still has %d steps", n.task, n.Manager().Steps())
		}
		w.released(n.memory)
	}
	w.released(w.source)
}

// released waits until all memory of an allocator is given back. A transport may
// hold memory that its library has dropped without a word, and learn of it from
// the garbage collector only, after a broken transfer.
func (w *world) released(a *tensortest.Allocator) {
	w.Helper()
	looked := 0
	w.holds(func() bool {
		if looked++; looked%collectEvery == 0 {
			runtime.GC()
		}
		return a.Outstanding() == 0
	})
	a.WaitAllReleased(0) // says what is left
}

// checkReceives waits until each receive has ended, once; values that no case
// took are released.
func (w *world) checkReceives() {
	for _, r := range w.receives {
		select {
		case o := <-r.outcome:
			o.release()
		case <-r.taken:
		case <-time.After(w.patience):
			w.Errorf("the receive of %s has not ended %v after its cancel", r.key.Edge(), w.patience)
			return
		}
	}
}

// stop stops the nodes that run.
func (w *world) stop() {
	for len(w.nodes) > 0 {
		w.nodes[0].stop()
	}
}

// holds waits until cond is true, and tells whether it became so.
func (w *world) holds(cond func() bool) bool {
	limit := time.NewTimer(w.patience)
	defer limit.Stop()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-limit.C:
			return false
		}
	}
	return true
}

// until waits until cond is true, which what describes.
func (w *world) until(what string, cond func() bool) {
	w.Helper()
	if !w.holds(cond) {
		w.Fatalf("not so after %v: %s", w.patience, what)
	}
}

// happens waits for a channel to be closed.
func (w *world) happens(what string, c <-chan struct{}) {
	w.Helper()
	select {
	case <-c:
	case <-time.After(w.patience):
		w.Fatalf("not so after %v: %s", w.patience, what)
	}
}

// settle lets what was begun get as far as it can, where nothing tells how far
// that is. A case holds either way; it is about this way in particular.
func (w *world) settle() {
	if w.suite.Virtual {
		synctest.Wait()
		return
	}
	w.pass(settleTime)
}

// pass lets time go by.
func (w *world) pass(d time.Duration) { <-time.After(d) }

// link returns the link of a node's task, or skips the case.
func (w *world) link(n *node) Link {
	w.Helper()
	l := w.cluster.Link(n.task)
	if l == nil {
		w.Skip("this transport has no way to disturb its connections")
	}
	w.Cleanup(func() { // before the checks: they are about what comes after
		l.Throttle(0)
		l.Release()
	})
	return l
}

// node is a process of the case.
type node struct {
	Node
	w           *world
	task        cluster.Task
	device      cluster.Device
	incarnation uint64
	memory      *tensortest.Allocator // of what it receives
}

// start starts the i-th task.
func (w *world) start(i int) *node { return w.startWith(i, peerTimeout) }

// startImpatient starts the i-th task with the peer timeout of cases that wait
// for it.
func (w *world) startImpatient(i int) *node {
	return w.startWith(i, shortTimeout*time.Duration(w.suite.TimeScale))
}

func (w *world) startWith(i int, timeout time.Duration) *node {
	n := w.absent(i)
	n.start(NodeOptions{PeerTimeout: timeout})
	return n
}

// absent is the i-th task before it runs.
func (w *world) absent(i int) *node {
	return &node{
		w: w, task: tasks[i], device: cluster.Device{Task: tasks[i], Type: "CPU"},
		incarnation: cluster.NewIncarnation(), memory: w.memory[i],
	}
}

// start starts a task that was absent.
func (n *node) start(o NodeOptions) {
	o.Incarnation, o.Allocator = n.incarnation, n.memory
	if o.PeerTimeout == 0 {
		o.PeerTimeout = peerTimeout
	}
	n.Node = n.w.cluster.Start(n.task, o)
	n.w.nodes = append(n.w.nodes, n)
}

// pair starts two nodes; the first is to send.
func (w *world) pair() (sender, receiver *node) { return w.start(0), w.start(1) }

func (w *world) forget(n *node) {
	for i, other := range w.nodes {
		if other == n {
			w.nodes = append(w.nodes[:i], w.nodes[i+1:]...)
			return
		}
	}
}

func (n *node) stop() {
	n.w.Helper()
	n.w.forget(n)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(n.w.ctx), n.w.patience)
	defer cancel()
	if err := n.Stop(ctx); err != nil {
		n.w.Errorf("Stop of %v: %v", n.task, err)
	}
}

// kill ends the process without a word. What it had received and what it had
// sent is gone with it.
func (n *node) kill() {
	n.w.forget(n)
	n.Kill()
}

// in returns the node's part of a step.
func (n *node) in(step int64) *rendezvous.BaseRemote {
	n.w.mu.Lock()
	n.w.steps[step] = true
	n.w.mu.Unlock()
	return n.Manager().Find(step)
}

// endStep is what a worker does for CleanupGraph.
func (n *node) endStep(step int64) {
	n.Manager().Cleanup(step)
	n.Cache().EndStep(step)
}

// waiting waits until so many receives wait at the node for their value.
func (n *node) waiting(want int) {
	n.w.Helper()
	if !n.w.holds(func() bool { return n.Cache().Stats().Waiting == want }) {
		n.w.Fatalf("after %v %d receives wait at %v, want %d", n.w.patience, n.Cache().Stats().Waiting, n.task, want)
	}
}

// keeps waits until the node keeps so many answers.
func (n *node) keeps(want int) {
	n.w.Helper()
	var s transport.CacheStats
	if !n.w.holds(func() bool { s = n.Cache().Stats(); return s.Kept == want }) {
		n.w.Fatalf("after %v %v keeps %d answers, want %d", n.w.patience, n.task, s.Kept, want)
	}
}

// warm makes the two know each other, so that the next bytes are those of the
// case. An asker with a short peer timeout may give up on a loaded machine
// before it has reached the other one, and then tries again.
func (w *world) warm(from, to *node) {
	w.Helper()
	k := w.key(from, to, "warm")
	from.sendNumber(1, k, 0)
	var err error
	if !w.holds(func() bool {
		o := to.recv(1, k).wait()
		o.release()
		err = o.err
		return status.CodeOf(err) != status.Unavailable
	}) || err != nil {
		w.Fatalf("%v does not reach %v: %v", to.task, from.task, err)
	}
	from.keeps(0)
}

// key names a value that the sender sends to the receiver.
func (w *world) key(from, to *node, name string) rendezvous.Key {
	return w.keyOf(from.device, from.incarnation, to.device, name)
}

func (w *world) keyOf(src cluster.Device, incarnation uint64, dst cluster.Device, name string) rendezvous.Key {
	w.Helper()
	k, err := rendezvous.NewKey(src, incarnation, dst, name, rendezvous.FrameIter{})
	if err != nil {
		w.Fatal(err)
	}
	return k
}

// send sends x and gives the caller's reference up.
func (n *node) send(step int64, k rendezvous.Key, x *tensor.Tensor) {
	n.w.Helper()
	defer x.Release()
	if err := n.in(step).Send(k, rendezvous.Args{}, x, false); err != nil {
		n.w.Errorf("Send of %s: %v", k.Edge(), err)
	}
}

// sendNumber sends number i.
func (n *node) sendNumber(step int64, k rendezvous.Key, i int) {
	n.w.Helper()
	n.send(step, k, n.w.number(i))
}
