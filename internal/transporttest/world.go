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
	// caseTimeout is how long a case waits for something that must happen soon. Only a
	// failing case waits so long. It is less than the minute after which the response cache
	// itself drops responses without an ack.
	caseTimeout = 40 * time.Second
	// minRate is how many bytes a second a loaded machine moves at least, under the race
	// detector.
	minRate = 8 << 20
	// receiveTime is what each of many receives takes at most on a loaded machine, under the race detector.
	receiveTime = 10 * time.Millisecond
	// peerTimeout is the peer timeout of most nodes. Only a faulty transport reaches it.
	peerTimeout = 20 * time.Second
	// shortTimeout is the peer timeout of nodes whose peer is gone. The case waits for it, so
	// it is short; all other operations must be faster: on a busy machine a connection may break by
	// itself, and its next one takes a while.
	shortTimeout = 2 * time.Second
	// pollInterval is the interval at which eventually checks its condition.
	pollInterval = time.Millisecond
	// pollsPerGC is the number of polls between two garbage collections in released.
	pollsPerGC = 50
	// settleTime is the time within which a request is usually sent.
	settleTime = 20 * time.Millisecond
)

// tasks are the tasks of every cluster. The name of the second is a prefix of the name of the
// third.
var tasks = []cluster.Task{{Job: "worker", Index: 0}, {Job: "worker", Index: 1}, {Job: "worker", Index: 10}}

// world is the environment of a case: its cluster, nodes, receives and memory.
type world struct {
	*testing.T
	suite   Suite
	cluster Cluster
	ctx     context.Context // of the case's receives; ends with the case
	timeout time.Duration
	source  *tensortest.Allocator   // memory of what is sent
	memory  []*tensortest.Allocator // of what each task receives

	registered bool // the case receives into memory of the transport's

	mu sync.Mutex // guards the fields below
	// nodes are those that run.
	nodes          []*node
	receives       []*receive
	steps          map[int64]bool // that a node has used
	keepsResponses bool           // answers stay on purpose: their requester was killed
}

func newWorld(t *testing.T, s Suite, size int64) *world {
	w := &world{
		T: t, suite: s, timeout: (caseTimeout + time.Duration(size/minRate)*time.Second) * time.Duration(s.TimeScale),
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

// checkIdle reports what a case has left behind, while its processes still run.
func (w *world) checkIdle() {
	for _, n := range w.nodes {
		if !w.keepsResponses && !w.eventually(func() bool { s := n.Cache().Stats(); return s.Waiting+s.Kept == 0 && s.Bytes == 0 }) {
			w.Errorf("%v still keeps responses: %+v", n.task, n.Cache().Stats())
		}
	}
	for step := range w.steps {
		for _, n := range w.nodes {
			n.endStep(step)
		}
	}
	for _, n := range w.nodes {
		if !w.eventually(func() bool { return n.Manager().Steps() == 0 }) {
			w.Errorf("%v still has %d steps", n.task, n.Manager().Steps())
		}
		w.released(n.memory)
	}
	w.released(w.source)
}

// released waits until all memory of an allocator is released. It runs the garbage collector:
// after a broken transfer gRPC drops buffers without freeing them, and the transport learns
// of it by a cleanup.
func (w *world) released(a *tensortest.Allocator) {
	w.Helper()
	polls := 0
	w.eventually(func() bool {
		if polls++; polls%pollsPerGC == 0 {
			runtime.GC()
		}
		return a.Outstanding() == 0
	})
	a.WaitAllReleased(0) // reports what is left
}

// checkReceives waits until each receive has ended. It releases the values that the case has
// not taken.
func (w *world) checkReceives() {
	for _, r := range w.receives {
		select {
		case o := <-r.outcome:
			o.release()
		case <-r.taken:
		case <-time.After(w.timeout):
			w.Errorf("the receive of %s has not ended %v after its cancel", r.key.Edge(), w.timeout)
			return
		}
	}
}

// stop stops the running nodes.
func (w *world) stop() {
	for len(w.nodes) > 0 {
		w.nodes[0].stop()
	}
}

// eventually waits until cond is true. It returns false after the timeout.
func (w *world) eventually(cond func() bool) bool {
	limit := time.NewTimer(w.timeout)
	defer limit.Stop()
	tick := time.NewTicker(pollInterval)
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

// waitUntil waits until cond is true. what describes cond.
func (w *world) waitUntil(what string, cond func() bool) {
	w.Helper()
	if !w.eventually(cond) {
		w.Fatalf("not so after %v: %s", w.timeout, what)
	}
}

// waitClosed waits until c is closed.
func (w *world) waitClosed(what string, c <-chan struct{}) {
	w.Helper()
	select {
	case <-c:
	case <-time.After(w.timeout):
		w.Fatalf("not so after %v: %s", w.timeout, what)
	}
}

// settle gives operations that were started time to proceed as far as they can, where nothing
// reports their progress. The case must pass in any order; with settle the order that it is
// about is likely.
func (w *world) settle() {
	if w.suite.Virtual {
		synctest.Wait()
		return
	}
	w.pass(settleTime)
}

// pass waits for d.
func (w *world) pass(d time.Duration) { <-time.After(d) }

// faults returns the faults of a node's task, or skips the case.
func (w *world) faults(n *node) Faults {
	w.Helper()
	f := w.cluster.Faults(n.task)
	if f == nil {
		w.Skip("this transport cannot disturb its connections")
	}
	w.Cleanup(func() { // runs before the checks of newWorld, which need the connections
		f.Throttle(0)
		f.Release()
	})
	return f
}

// node is a task of the case with its process.
type node struct {
	Node
	w           *world
	task        cluster.Task
	device      cluster.Device
	incarnation uint64
	memory      *tensortest.Allocator // of the tensors that it receives
}

// start starts the i-th task.
func (w *world) start(i int) *node { return w.startWith(i, peerTimeout) }

// startShortTimeout starts the i-th task with a short peer timeout, for cases that wait until
// it passes.
func (w *world) startShortTimeout(i int) *node {
	return w.startWith(i, w.shortTimeout())
}

// shortTimeout is the peer timeout of startShortTimeout. A scale includes the time that a busy machine takes.
func (w *world) shortTimeout() time.Duration {
	return max(shortTimeout, shortTimeout/4*time.Duration(w.suite.TimeScale))
}

func (w *world) startWith(i int, timeout time.Duration) *node {
	n := w.newNode(i)
	n.start(NodeOptions{PeerTimeout: timeout})
	return n
}

// newNode returns the i-th task before its process starts.
func (w *world) newNode(i int) *node {
	return &node{
		w: w, task: tasks[i], device: cluster.Device{Task: tasks[i], Type: "CPU"},
		incarnation: cluster.NewIncarnation(), memory: w.memory[i],
	}
}

// start starts the process of a node from newNode.
func (n *node) start(o NodeOptions) {
	o.Incarnation, o.Allocator = n.incarnation, n.memory
	if o.PeerTimeout == 0 {
		o.PeerTimeout = peerTimeout
	}
	n.Node = n.w.cluster.Start(n.task, o)
	n.w.nodes = append(n.w.nodes, n)
}

// pair starts two nodes.
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
	ctx, cancel := context.WithTimeout(context.WithoutCancel(n.w.ctx), n.w.timeout)
	defer cancel()
	if err := n.Stop(ctx); err != nil {
		n.w.Errorf("Stop of %v: %v", n.task, err)
	}
}

// kill ends the process without a message to its peers.
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

// endStep ends a step, as a worker does for CleanupGraph.
func (n *node) endStep(step int64) {
	n.Manager().Cleanup(step)
	n.Cache().EndStep(step)
}

// waiting waits until so many receives wait for their value at the node.
func (n *node) waiting(want int) {
	n.w.Helper()
	if !n.w.eventually(func() bool { return n.Cache().Stats().Waiting == want }) {
		n.w.Fatalf("after %v %d receives wait at %v, want %d", n.w.timeout, n.Cache().Stats().Waiting, n.task, want)
	}
}

// keeps waits until the node has so many cached responses.
func (n *node) keeps(want int) {
	n.w.Helper()
	var s transport.CacheStats
	if !n.w.eventually(func() bool { s = n.Cache().Stats(); return s.Kept == want }) {
		n.w.Fatalf("after %v %v keeps %d responses, want %d", n.w.timeout, n.task, s.Kept, want)
	}
}

// warm connects the two nodes, so that the next bytes are those of the case. It repeats a
// receive that ends with Unavailable: on a loaded machine a short peer timeout may pass
// before the nodes are connected.
func (w *world) warm(from, to *node) {
	w.Helper()
	k := w.key(from, to, "warm")
	from.sendNumber(1, k, 0)
	var err error
	if !w.eventually(func() bool {
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

// send sends x. It takes over the caller's reference.
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
