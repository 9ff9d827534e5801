package verbstransport_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/transporttest"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/verbstest"
)

const (
	kib = 1 << 10
	mib = 1 << 20
	gib = 1 << 30
	// waitLimit bounds the wait for something that should happen soon. Only a failing test
	// waits so long.
	waitLimit = 40 * time.Second
	// pollInterval is the interval at which a condition is polled.
	pollInterval = time.Millisecond
)

// stage runs tests of what the suite of all transports does not cover: which connection
// carried what, what was registered and posted, and faults of RDMA or of gRPC alone. At
// the end of a test it makes the checks of the suite: no response is kept, every step is
// gone, all memory of the heap and of the pools is released and was not written to
// afterwards, no object of a device is open, and no goroutine runs.
type stage struct {
	*testing.T
	c      *suiteCluster
	tasks  []cluster.Task
	heaps  []*tensortest.Allocator // allocates what each task receives
	source *tensortest.Allocator   // allocates what is sent from memory that is not registered
	actors []*actor                // running
	mu     sync.Mutex              // guards steps
	steps  map[int64]bool
}

func newStage(t *testing.T, o clusterOptions) *stage {
	t.Helper()
	if o.parallel {
		t.Parallel()
	} else {
		before := goleak.IgnoreCurrent()
		t.Cleanup(func() { // runs last
			if err := goleak.Find(before); err != nil {
				t.Error(err)
			}
		})
	}
	s := &stage{T: t, source: tensortest.NewAllocator(t), steps: make(map[int64]bool)}
	for i := range 3 {
		s.tasks = append(s.tasks, cluster.Task{Job: "worker", Index: i})
		s.heaps = append(s.heaps, tensortest.NewAllocator(t))
	}
	c, ok := newCluster(o)(t, s.tasks).(*suiteCluster)
	if !ok {
		t.Fatal("another cluster than this package's")
	}
	s.c = c
	t.Cleanup(s.end)
	return s
}

// end makes the checks, and stops the actors.
func (s *stage) end() {
	for step := range s.steps {
		for _, a := range s.actors {
			a.manager.Cleanup(step)
			a.kept.EndStep(step)
		}
	}
	if !s.Failed() {
		for _, a := range s.actors {
			s.released(a)
		}
	}
	for _, a := range s.actors {
		a.stop()
	}
}

// released waits until a process has released everything that the test made it hold.
func (s *stage) released(a *actor) {
	s.Helper()
	s.holds(func() bool { return a.leftover() == "" })
	if left := a.leftover(); left != "" {
		s.Errorf("%v still has %s", a.task, left)
	}
}

// leftover describes what a process still holds; "" for nothing.
func (a *actor) leftover() string {
	var left []string
	if k := a.kept.Stats(); k.Waiting+k.Kept != 0 || k.Bytes != 0 {
		left = append(left, fmt.Sprintf("answers: %+v", k))
	}
	if n := a.manager.Steps(); n != 0 {
		left = append(left, fmt.Sprint(n, " steps"))
	}
	if m := a.transport.Memory(); m.Sending.InUse+m.Receiving.InUse+m.Early+m.Quarantined != 0 || m.Sending.Stuck+m.Receiving.Stuck != 0 {
		left = append(left, fmt.Sprintf("registered memory: %+v", m))
	}
	if n := a.heap.Outstanding() + a.s.source.Outstanding(); n != 0 {
		left = append(left, fmt.Sprint(n, " buffers of the heap"))
	}
	return strings.Join(left, ", ")
}

// actor is one process of a stage.
type actor struct {
	*suiteNode
	s           *stage
	incarnation uint64
	heap        *tensortest.Allocator // allocates what it receives outside registered memory
}

// start starts the i-th task.
func (s *stage) start(i int) *actor { return s.startWith(i, transporttest.NodeOptions{}) }

func (s *stage) startWith(i int, o transporttest.NodeOptions) *actor {
	s.Helper()
	a := &actor{s: s, incarnation: cluster.NewIncarnation(), heap: s.heaps[i]}
	o.Incarnation, o.Allocator = a.incarnation, a.heap
	if o.PeerTimeout == 0 {
		o.PeerTimeout = waitLimit / 2
	}
	n, ok := s.c.Start(s.tasks[i], o).(*suiteNode)
	if !ok {
		s.Fatal("another node than this package's")
	}
	a.suiteNode = n
	s.actors = append(s.actors, a)
	return a
}

// pair starts two processes and waits until each has a verbs channel to the other. The
// first is the sender.
func (s *stage) pair() (from, to *actor) {
	s.Helper()
	from, to = s.start(0), s.start(1)
	from.meets(to)
	return from, to
}

// meets waits until two processes have a channel.
func (a *actor) meets(b *actor) {
	a.s.Helper()
	a.s.until(fmt.Sprintf("a channel of %v and %v", a.task, b.task), func() bool { return a.connection(b).Verbs && b.connection(a).Verbs })
}

// stop stops the process gracefully.
func (a *actor) stop() {
	a.s.Helper()
	a.s.forget(a)
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	if err := a.Stop(ctx); err != nil {
		a.s.Errorf("Stop of %v: %v", a.task, err)
	}
}

func (s *stage) forget(a *actor) {
	rest := make([]*actor, 0, len(s.actors))
	for _, other := range s.actors {
		if other != a {
			rest = append(rest, other)
		}
	}
	s.actors = rest
}

// holds waits until cond is true, and reports whether it became true.
func (s *stage) holds(cond func() bool) bool {
	limit := time.NewTimer(waitLimit)
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

// until waits until cond is true, and fails the test otherwise. what describes cond.
func (s *stage) until(what string, cond func() bool) {
	s.Helper()
	if !s.holds(cond) {
		s.Fatalf("not so after %v: %s", waitLimit, what)
	}
}

// happens waits until a Go channel is closed.
func (s *stage) happens(what string, c <-chan struct{}) {
	s.Helper()
	select {
	case <-c:
	case <-time.After(waitLimit):
		s.Fatalf("not so after %v: %s", waitLimit, what)
	}
}

// wires is the RDMA connection between two processes, in both directions. Unlike the
// suite's Faults it does not affect gRPC.
func (s *stage) wires(a, b *actor) *verbstest.Wires {
	return s.c.fabric.Wires(a.task.String(), b.task.String())
}

// oneWay is the direction of wires in which content goes from one process to the other.
func (s *stage) oneWay(from, to *actor) *verbstest.Wires {
	return s.c.fabric.OneWay(from.task.String(), to.task.String())
}

// host is the host of a process in the fabric, and nic its device there.
func (a *actor) host() *verbstest.Host { return a.s.c.fabric.Host(a.task.String()) }
func (a *actor) nic() *verbstest.NIC   { return a.host().NIC("mem0") }

// connection is how a process reports its connection to a task.
func (a *actor) connection(to *actor) verbstransport.Connection { return a.connectionTo(to.task) }

func (a *actor) connectionTo(task cluster.Task) verbstransport.Connection {
	for _, k := range a.transport.Connections() {
		if k.Task == task {
			return k
		}
	}
	return verbstransport.Connection{}
}

// key is the key of a value that a process sends to another one.
func (a *actor) key(to *actor, name string) rendezvous.Key {
	a.s.Helper()
	return a.s.keyOf(a.task, a.incarnation, to.task, name)
}

func (s *stage) keyOf(from cluster.Task, incarnation uint64, to cluster.Task, name string) rendezvous.Key {
	s.Helper()
	k, err := rendezvous.NewKey(cluster.Device{Task: from, Type: "CPU"}, incarnation, cluster.Device{Task: to, Type: "CPU"}, name, rendezvous.FrameIter{})
	if err != nil {
		s.Fatal(err)
	}
	return k
}

// in returns the process's part of a step.
func (a *actor) in(step int64) *rendezvous.BaseRemote {
	a.s.mu.Lock()
	defer a.s.mu.Unlock()
	a.s.steps[step] = true
	return a.manager.Find(step)
}

// send sends x and takes over the caller's reference.
func (a *actor) send(step int64, k rendezvous.Key, x *tensor.Tensor) {
	a.s.Helper()
	defer x.Release()
	if err := a.in(step).Send(k, rendezvous.Args{}, x, false); err != nil {
		a.s.Errorf("Send of %s: %v", k.Edge(), err)
	}
}

// sendsBlob sends a blob out of registered memory.
func (a *actor) sendsBlob(step int64, k rendezvous.Key, seed uint64, size int) {
	a.s.Helper()
	a.send(step, k, a.s.blob(a.transport.Allocator(), seed, size))
}

// blob makes a vector of pseudo-random bytes, which a seed suffices to check.
func (s *stage) blob(from tensor.Allocator, seed uint64, size int) *tensor.Tensor {
	s.Helper()
	return s.shaped(from, seed, tensor.Uint8, int64(size))
}

// shaped is a blob of another type and shape.
func (s *stage) shaped(from tensor.Allocator, seed uint64, d tensor.DType, dims ...int64) *tensor.Tensor {
	s.Helper()
	x, err := tensor.Allocate(from, d, tensortest.Shape(s, dims...))
	if err != nil {
		s.Fatal(err)
	}
	_, _ = noise(seed).Read(x.Bytes()) // never fails
	return x
}

func noise(seed uint64) *rand.ChaCha8 {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	return rand.NewChaCha8(key)
}

// isNoise reports whether data has the pseudo-random bytes of a seed.
func isNoise(data []byte, seed uint64) bool {
	want, from := make([]byte, 64*kib), noise(seed)
	for len(data) > 0 {
		n := min(len(want), len(data))
		_, _ = from.Read(want[:n]) // never fails
		if !bytes.Equal(data[:n], want[:n]) {
			return false
		}
		data = data[n:]
	}
	return true
}

// receiving is a receive under way. The test fails when it ends twice.
type receiving struct {
	s       *stage
	key     rendezvous.Key
	outcome chan outcome
	ends    atomic.Int32
}

type outcome struct {
	value rendezvous.Value
	err   error
}

// recv begins a receive that lasts as long as the test.
func (a *actor) recv(step int64, k rendezvous.Key) *receiving {
	return a.recvCtx(a.s.Context(), step, k)
}

func (a *actor) recvCtx(ctx context.Context, step int64, k rendezvous.Key) *receiving {
	r := &receiving{s: a.s, key: k, outcome: make(chan outcome, 1)}
	a.in(step).RecvAsync(ctx, k, rendezvous.Args{}, func(v rendezvous.Value, _ rendezvous.Args, err error) {
		if r.ends.Add(1) != 1 {
			a.s.Errorf("the receive of %s has ended twice, now with %v", k.Edge(), err)
			return
		}
		r.outcome <- outcome{v, err}
	})
	return r
}

// underWay reports whether the receive has not ended.
func (r *receiving) underWay() bool { return r.ends.Load() == 0 }

func (r *receiving) wait() outcome {
	r.s.Helper()
	select {
	case o := <-r.outcome:
		return o
	case <-time.After(waitLimit):
		r.s.Fatalf("the receive of %s has not ended after %v", r.key.Edge(), waitLimit)
		return outcome{}
	}
}

// value waits for the tensor of the receive. The caller releases it.
func (r *receiving) value() *tensor.Tensor {
	r.s.Helper()
	o := r.wait()
	if o.err != nil {
		r.s.Fatalf("receive of %s: %v", r.key.Edge(), o.err)
	}
	return o.value.Tensor
}

// isBlob fails the test unless the receive ends with the blob of that seed and size.
func (r *receiving) isBlob(seed uint64, size int) {
	r.s.Helper()
	x := r.value()
	defer x.Release()
	if x.Size() != int64(size) || !isNoise(x.Bytes(), seed) {
		r.s.Fatalf("receive of %s brought %v, which is not blob %d of %d bytes", r.key.Edge(), x, seed, size)
	}
}

// fails fails the test unless the receive ends with an error of that code whose text
// contains all of words.
func (r *receiving) fails(code status.Code, words ...string) {
	r.s.Helper()
	o := r.wait()
	if o.err == nil {
		o.value.Tensor.Release()
		r.s.Fatalf("receive of %s brought a value, want %v", r.key.Edge(), code)
	}
	if status.CodeOf(o.err) != code {
		r.s.Fatalf("receive of %s: got the error %v, want %v", r.key.Edge(), o.err, code)
	}
	for _, w := range words {
		if !strings.Contains(o.err.Error(), w) {
			r.s.Fatalf("receive of %s: the error %q does not say %q", r.key.Edge(), o.err, w)
		}
	}
}

// waiting waits until n receives wait at a process for their value.
func (a *actor) waiting(n int) {
	a.s.Helper()
	a.s.until(fmt.Sprint(n, " receives wait"), func() bool { return a.kept.Stats().Waiting == n })
}

// keeps waits until a process keeps n responses.
func (a *actor) keeps(n int) {
	a.s.Helper()
	a.s.until(fmt.Sprint(n, " answers are kept"), func() bool { return a.kept.Stats().Kept == n })
}

// patient is a path whose queue pairs survive a long interruption of the connection.
var patient = verbs.Path{Port: 1, Timeout: verbs.TimeoutCode(4 * time.Second), Retry: 6, RNRRetry: 6}

// tuned returns options of a cluster in which change adjusts the transport options of
// each process.
func tuned(o clusterOptions, change func(*verbstransport.Options)) clusterOptions {
	o.tune = func(_ cluster.Task, t *verbstransport.Options) { change(t) }
	return o
}
