package ops

import (
	"context"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
	"github.com/tryst-rdma/tryst/tensorflow/ops/internal/waiting"
)

// A queue joins steps:
//
//  1. An enqueue or a dequeue is an attempt of its queue (waiting.Queue). The event that adds it ends it and
//     others, or it waits. A kernel that waits holds no goroutine.
//  2. The goroutine of the event calls done of each attempt that has ended, without the lock of the queue:
//     a dequeue of many makes its batch there.
//  3. A step that ends cancels its attempts.
//
// An element holds its tensors, which are counted in the memory of the server as those of variables are. What it
// takes beside is counted in the queue's overhead, and so are the attempts that wait.

// queueKind is the kind of queues in a container, as TensorFlow's error texts have it.
const queueKind = "N10tensorflow14QueueInterfaceE"

// queue is a queue of one of the four kinds.
type queue struct {
	object
	queueConfig
	overhead overhead

	mu      sync.Mutex // guards the fields below
	q       *waiting.Queue[*element]
	dropped bool
}

// queueConfig is what the node of a queue says.
type queueConfig struct {
	kind        string // without "V2"
	types       []tensor.DType
	shapes      []partialShape // one for each component, or none
	capacity    int
	minimum     int // min_after_dequeue
	seed, seed2 int64
}

// element is what an enqueue adds.
type element struct {
	parts     []*tensor.Tensor
	priority  int64
	uncharged []*tensor.Buffer // counts parts whose memory nobody else counts
}

type attempt = waiting.Attempt[*element]

// newQueue makes the kernel of a node that makes a queue.
func newQueue(n *graph.Node, s *State) (graph.Kernel, error) {
	c, err := queueConfigOf(n)
	if err != nil {
		return nil, err
	}
	k := newObject(n, s, queueKind)
	k.make = func() (holder, error) { return c.newQueue(k.name) }
	k.check = func(h holder) error {
		q, ok := h.(*queue)
		if !ok {
			return status.Errorf(status.Internal, "the %T %q is no queue", h, k.name)
		}
		return q.matches(k.name, n.Op, c)
	}
	return k, nil
}

// queueConfigOf returns what a node says of its queue.
func queueConfigOf(n *graph.Node) (queueConfig, error) {
	c := queueConfig{
		kind: strings.TrimSuffix(n.Op, "V2"), types: n.Types("component_types"),
		minimum: int(n.Int("min_after_dequeue")), seed: n.Int("seed"), seed2: n.Int("seed2"),
	}
	for _, d := range c.types {
		if !movable(d) {
			return c, noType("component_types", d)
		}
	}
	for _, p := range n.Attr("shapes").GetList().GetShape() {
		s := partialOf(p)
		switch {
		case c.kind == "PaddingFIFOQueue" && s.any:
			return c, invalid("shape %s must have known rank.", s)
		case c.kind == "PaddingFIFOQueue":
		case s.any: // as in TensorFlow
			s = partialShape{}
		case !s.known():
			return c, invalid("Shape %s is not fully defined", s)
		}
		c.shapes = append(c.shapes, s)
	}
	switch capacity := n.Int("capacity"); {
	case capacity > math.MaxInt32 || capacity < math.MinInt32:
		return c, invalid("Attr capacity has value %d out of range for an int32", capacity)
	case capacity < 0:
		c.capacity = math.MaxInt32
	default:
		c.capacity = int(capacity)
	}
	switch c.kind {
	case "RandomShuffleQueue":
		if c.minimum < 0 {
			return c, invalid("min_after_dequeue %d must be >= 0", c.minimum)
		}
		if c.minimum >= c.capacity {
			return c, invalid("min_after_dequeue %d must be < capacity %d", c.minimum, c.capacity)
		}
	case "PriorityQueue":
		c.types = append([]tensor.DType{tensor.Int64}, c.types...)
		if len(c.shapes) > 0 {
			c.shapes = append([]partialShape{{}}, c.shapes...)
		}
	}
	return c, nil
}

// newQueue returns an empty queue.
func (c queueConfig) newQueue(name string) (*queue, error) {
	switch {
	case c.kind == "PaddingFIFOQueue" && len(c.shapes) != len(c.types):
		return nil, invalid("Shapes must be provided for all components, but received %d dtypes and %d shapes.", len(c.types), len(c.shapes))
	case len(c.shapes) > 0 && len(c.shapes) != len(c.types):
		return nil, invalid("Different number of component types.  Types: %s, Shapes: %s", typesText(c.types), shapesText(c.shapes))
	}
	rules := waiting.Rules{Kind: c.kind, Base: strings.TrimPrefix(c.kind, "Padding"), Name: name, Capacity: c.capacity, Stay: c.minimum}
	var store waiting.Store[*element]
	switch c.kind {
	case "RandomShuffleQueue":
		gen := seeded(c.seed, c.seed2)
		store = waiting.NewShuffled[*element](newSingle(&gen).next)
	case "PriorityQueue":
		rules.Whole = true
		store = waiting.NewHeap(func(e *element) int64 { return e.priority })
	default:
		store = waiting.NewFIFO[*element]()
	}
	return &queue{queueConfig: c, q: waiting.NewQueue(rules, store)}, nil
}

// matches compares a queue that exists with what the node of an op says.
func (q *queue) matches(name, op string, c queueConfig) error {
	shared := func(format string, args ...any) error {
		return invalid("Shared queue '%s' has "+format, append([]any{name}, args...)...)
	}
	shapes := c.shapes
	if c.kind == "PriorityQueue" && len(shapes) == 0 {
		shapes = []partialShape{{}} // as in TensorFlow, whose PriorityQueue needs shapes therefore
	}
	switch {
	case q.kind != c.kind:
		return invalid("Expected %s, found %s", q.kind, op)
	case q.capacity != c.capacity:
		return shared("capacity %d but requested capacity was %d", q.capacity, c.capacity)
	case q.minimum != c.minimum:
		return shared("min_after_dequeue %d but requested min_after_dequeue was %d.", q.minimum, c.minimum)
	case (c.seed != 0 || c.seed2 != 0) && (q.seed != c.seed || q.seed2 != c.seed2):
		return shared("random seeds (%d, %d) but requested seeds are (%d, %d).", q.seed, q.seed2, c.seed, c.seed2)
	case !slices.Equal(q.types, c.types):
		return shared("component types %s but requested component types were %s", typesText(q.types), typesText(c.types))
	case !slices.EqualFunc(q.shapes, shapes, partialShape.compatible):
		return shared("component shapes %s but requested component shapes were %s", shapesText(q.shapes), shapesText(shapes))
	}
	return nil
}

// drop implements resource.
func (q *queue) drop() {
	q.mu.Lock()
	q.dropped = true
	ended, elements := q.q.Drop(errObjectGone(q.kind, q.key.name))
	q.mu.Unlock()
	finish(ended)
	q.release(elements)
	q.held.Release()
}

// begin adds an attempt of a kernel by event. Its Done is called when it has ended; the end of the kernel's step
// cancels it.
func (q *queue) begin(c *graph.Context, a *attempt, event func(*waiting.Queue[*element]) []*attempt) {
	finish(q.add(c, a, event))
}

func (q *queue) add(c *graph.Context, a *attempt, event func(*waiting.Queue[*element]) []*attempt) []*attempt {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.dropped {
		a.Err = errObjectGone(q.kind, q.key.name)
		return []*attempt{a}
	}
	ended := event(q.q)
	if a.Ended() {
		return ended
	}
	if err := q.overhead.add(c.Step.Allocator, waitBytes); err != nil {
		ended = append(ended, q.q.Cancel(a)...)
		a.Err = err
		return ended
	}
	done := a.Done
	stop := context.AfterFunc(c.Ctx, func() { q.cancel(a) })
	a.Done = func() {
		stop()
		q.overhead.give(waitBytes)
		done()
	}
	return ended
}

func (q *queue) cancel(a *attempt) {
	q.mu.Lock()
	ended := q.q.Cancel(a)
	q.mu.Unlock()
	finish(ended)
}

// finish goes on with the kernels of attempts that have ended.
func finish(ended []*attempt) {
	for _, a := range ended {
		a.Done()
	}
}

// add makes an element of tensors, whose references it takes over. After an error the caller keeps them.
func (q *queue) newElement(c *graph.Context, parts []*tensor.Tensor) (*element, error) {
	e := &element{parts: parts}
	if q.kind == "PriorityQueue" {
		v, err := tensor.Values[int64](parts[0])
		if err != nil {
			return nil, err
		}
		if parts[0].Shape().Rank() != 0 {
			return nil, invalid("Expected the priority element to be a scalar, but received shape: %s", parts[0].Shape())
		}
		e.priority = v[0]
	}
	if err := q.overhead.add(c.Step.Allocator, q.elementBytes()); err != nil {
		return nil, err
	}
	for _, t := range parts {
		held, err := chargeConstant(c, t)
		if err != nil {
			q.overhead.give(q.elementBytes())
			releaseBuffers(e.uncharged)
			return nil, err
		}
		if held != nil {
			e.uncharged = append(e.uncharged, held)
		}
	}
	return e, nil
}

// chargeConstant counts the memory of a constant, which only its graph counts, for something that outlives
// the graph. It returns nil for other tensors.
func chargeConstant(c *graph.Context, t *tensor.Tensor) (*tensor.Buffer, error) {
	root, _ := t.Buffer().Root()
	if root.Owner() != nil || t.MemorySize() == 0 {
		return nil, nil
	}
	return tensor.Reserve(c.Step.Allocator, t.MemorySize()+int64(root.Len()-t.Buffer().Len()))
}

func releaseBuffers(buffers []*tensor.Buffer) {
	for _, b := range buffers {
		b.Release()
	}
}

func (q *queue) elementBytes() int64 { return elementBytes + partBytes*int64(len(q.types)) }

// forget ends what the queue counts for an element, and leaves its tensors to the caller.
func (q *queue) forget(e *element) []*tensor.Tensor {
	parts := e.parts
	e.parts = nil
	releaseBuffers(e.uncharged)
	q.overhead.give(q.elementBytes())
	return parts
}

// release releases elements that nobody takes.
func (q *queue) release(elements []*element) {
	for _, e := range elements {
		releaseTensors(q.forget(e))
	}
}

func releaseTensors(tensors []*tensor.Tensor) {
	for _, t := range tensors {
		t.Release()
	}
}
