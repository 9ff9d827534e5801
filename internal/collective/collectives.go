package collective

import (
	"context"
	"sync"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/transport"
)

// Options configures Collectives. All fields but Leader, Allocator, Chunk, LeaderTimeout and
// PeerTimeout are needed.
type Options struct {
	// Task is the name of this process.
	Task cluster.Task
	// Devices returns the devices of this process, as GetStatus does.
	Devices func() []*tfpb.DeviceAttributes
	// Leader is the task that all members of all groups ask for their groups, as in TensorFlow's
	// ConfigProto.experimental.collective_group_leader. The zero Task is task 0 of the job of
	// this process.
	Leader cluster.Task
	// Workers finds the other tasks.
	Workers transport.WorkerCache
	// Remoter receives from other Tryst processes, by any route.
	Remoter rendezvous.Remoter
	// Tryst reports whether the process of a task is Tryst's, so that the Remoter reaches it.
	// TensorFlow's workers get RecvBuf.
	Tryst func(context.Context, cluster.Task) (bool, error)
	// Allocator provides the memory of results and of chunks that are received; tensor.Heap when
	// nil.
	Allocator tensor.Allocator
	// Chunk is the size in bytes of the chunks of a response to RecvBuf, as in TensorFlow's
	// recv_buf_max_chunk: DefaultChunk when 0; the response is one chunk when it is negative.
	Chunk int
	// LeaderTimeout is how long a member calls a leader that is not reached;
	// DefaultLeaderTimeout when 0.
	LeaderTimeout time.Duration
	// PeerTimeout is how long a member that an operation waits for may give no sign: it does not
	// answer GetStatus. DefaultPeerTimeout when 0. A member that answers is waited for.
	PeerTimeout time.Duration
}

// Collectives runs the collective operations of one process, and is the leader of groups if
// Options.Leader is this process. It is safe for concurrent use.
type Collectives struct {
	opts      Options
	groups    groups
	instances instances
	sequences sequences

	mu     sync.Mutex // guards what follows
	steps  map[int64]*Step
	ended  endedList
	closed bool
	work   sync.WaitGroup // operations; Add needs mu and !closed
}

// New returns the Collectives of a process.
func New(o Options) *Collectives {
	if o.Leader == (cluster.Task{}) {
		o.Leader = cluster.Task{Job: o.Task.Job}
	}
	if o.Allocator == nil {
		o.Allocator = tensor.Heap{}
	}
	if o.Chunk == 0 {
		o.Chunk = DefaultChunk
	}
	if o.LeaderTimeout == 0 {
		o.LeaderTimeout = DefaultLeaderTimeout
	}
	if o.PeerTimeout == 0 {
		o.PeerTimeout = DefaultPeerTimeout
	}
	c := &Collectives{opts: o, steps: make(map[int64]*Step)}
	c.groups.over = c.instances.endGroup
	return c
}

// Leader returns the task that the members of groups ask.
func (c *Collectives) Leader() cluster.Task { return c.opts.Leader }

// Step is the collective operations of one step in this process.
type Step struct {
	c    *Collectives
	id   int64
	bufs bufs
	ctx  context.Context // ends when the step is aborted
	stop context.CancelCauseFunc

	// Guarded by c.mu.
	begun   bool // this process has begun the step
	waiting int  // peers that wait for buffers
}

// Step returns a step, which is made on first use. One that has ended is aborted.
func (c *Collectives) Step(id int64) *Step {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, err := c.stepLocked(id)
	if err != nil {
		s = c.newStep(id)
		s.abort(err) // s is new: nothing waits
		return s
	}
	s.begun = true
	return s
}

// stepLocked finds or makes a step that has not ended.
func (c *Collectives) stepLocked(id int64) (*Step, error) {
	if s := c.steps[id]; s != nil {
		return s, nil
	}
	if c.closed {
		return nil, errShutdown()
	}
	if c.ended.has(id) {
		return nil, errCleanup(id)
	}
	s := c.newStep(id)
	c.steps[id] = s
	return s, nil
}

func (c *Collectives) newStep(id int64) *Step {
	s := &Step{c: c, id: id}
	s.ctx, s.stop = context.WithCancelCause(context.Background())
	return s
}

// EndStep ends a step: what still runs ends with Aborted, here and at peers. A step without
// operations is remembered, too: one of them may begin now, and nobody would end the step that it
// makes. EndStep does nothing for the step of the Groups, whose id any master can send.
func (c *Collectives) EndStep(id int64) {
	if id == groupStep {
		return
	}
	c.mu.Lock()
	s := c.steps[id]
	delete(c.steps, id)
	c.ended.add(id)
	c.mu.Unlock()
	if s != nil {
		s.abort(errCleanup(id))
	}
}

// AbortStep ends the operations of a step with err, here and at peers. The step stays until EndStep.
// It does nothing for the step of the Groups, as EndStep.
func (c *Collectives) AbortStep(id int64, err error) {
	if id == groupStep {
		return
	}
	c.mu.Lock()
	s := c.steps[id]
	c.mu.Unlock()
	if s != nil {
		s.abort(err)
	}
}

// Close ends everything with Aborted and waits for the operations.
func (c *Collectives) Close() {
	c.mu.Lock()
	c.closed = true
	steps := c.steps
	c.steps = nil
	c.mu.Unlock()
	err := errShutdown()
	c.groups.end(err)
	c.instances.end(err)
	for _, s := range steps {
		s.abort(err)
	}
	c.work.Wait()
}

// enter counts an operation, which Close waits for.
func (c *Collectives) enter() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return errShutdown()
	}
	c.work.Add(1)
	return nil
}

// abort ends the operations of the step with err. Peers get it as a derived error.
func (s *Step) abort(err error) {
	err = abortedBy(err)
	s.bufs.abort(err)
	s.stop(err)
}

// abortPrefix is TensorFlow's text before the reason of an abort.
const abortPrefix = "Collective ops is aborted by: "

// abortedBy returns the error of the others when one operation has failed. It keeps the code, and
// has the prefix once: an error passes from member to member.
func abortedBy(err error) error {
	e := status.From(err)
	if len(e.Message()) >= len(abortPrefix) && e.Message()[:len(abortPrefix)] == abortPrefix {
		return e.Derived()
	}
	return status.New(e.Code(), abortPrefix+e.Message()).WithKind(status.KindOf(e)).Derived()
}

func errShutdown() error {
	return status.New(status.Aborted, "Shutdown").WithKind(status.ErrShutdown)
}

func errCleanup(step int64) error {
	return status.Errorf(status.Aborted, "Cleanup %d", step).WithKind(status.ErrStepEnded)
}

// endedList remembers the last steps that have ended.
type endedList struct {
	ids  map[int64]struct{}
	ring []int64
	next int
}

func (l *endedList) has(id int64) bool {
	_, ok := l.ids[id]
	return ok
}

func (l *endedList) add(id int64) {
	if l.has(id) {
		return
	}
	if l.ids == nil {
		l.ids = make(map[int64]struct{})
	}
	l.ids[id] = struct{}{}
	if len(l.ring) < endedSteps {
		l.ring = append(l.ring, id)
		return
	}
	delete(l.ids, l.ring[l.next])
	l.ring[l.next] = id
	l.next = (l.next + 1) % endedSteps
}

// incarnation returns the incarnation of a device of this process.
func (c *Collectives) incarnation(d cluster.Device) (uint64, error) {
	a, err := c.attributes(d)
	return a.GetIncarnation(), err
}

// attributes returns what a member sends of its device.
func (c *Collectives) attributes(d cluster.Device) (*tfpb.DeviceAttributes, error) {
	for _, a := range c.opts.Devices() {
		if own, err := cluster.ParseDevice(a.GetName()); err == nil && own == d {
			return a, nil
		}
	}
	return nil, status.Errorf(status.NotFound, "Device %s not found in %s", d, c.opts.Task)
}
