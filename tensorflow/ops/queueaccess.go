package ops

import (
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
	"github.com/tryst-rdma/tryst/tensorflow/ops/internal/waiting"
)

func queueOps() []entry {
	const (
		types    = `component_types: list(type) >= 1; shapes: list(shape) >= 0 = []; capacity: int = -1; `
		names    = `container: string = ""; shared_name: string = ""; stateful`
		shuffled = types + `min_after_dequeue: int = 0; seed: int = 0; seed2: int = 0; ` + names
		sorted   = `component_types: list(type) >= 0 = []; shapes: list(shape) >= 0; capacity: int = -1; ` + names
		in       = `; Tcomponents: list(type) >= 1; timeout_ms: int = -1`
		out      = ` -> (components: component_types); component_types: list(type) >= 1; timeout_ms: int = -1`
	)
	var list []entry
	for _, version := range []struct{ suffix, handle, flag string }{{"", "Ref(string)", ""}, {"V2", "resource", "; stateful"}} {
		op := func(name, inputs, rest string, new NewFunc) {
			list = append(list, entry{name + version.suffix + "(handle: " + version.handle + inputs + ")" + rest + version.flag, new})
		}
		source := func(name, attrs string) {
			list = append(list, entry{name + version.suffix + "() -> (handle: " + version.handle + "); " + attrs, newQueue})
		}
		source("FIFOQueue", types+names)
		source("PaddingFIFOQueue", types+names)
		source("RandomShuffleQueue", shuffled)
		source("PriorityQueue", sorted)
		op("QueueEnqueue", ", components: Tcomponents", in, newEnqueue)
		op("QueueEnqueueMany", ", components: Tcomponents", in, newEnqueueMany)
		op("QueueDequeue", "", out, newDequeue)
		op("QueueDequeueMany", ", n: int32", out, newDequeueMany("DequeueManyOp", false))
		op("QueueDequeueUpTo", ", n: int32", out, newDequeueMany("DequeueUpToOp", true))
		op("QueueClose", "", "; cancel_pending_enqueues: bool = false", newQueueClose)
		op("QueueSize", "", " -> (size: int32)", always(queueSize))
		op("QueueIsClosed", "", " -> (is_closed: bool)", always(queueIsClosed))
	}
	return list
}

// queueAt returns the queue of input 0.
func queueAt(c *graph.Context) (*queue, error) { return objectAt[*queue](c, "a queue") }

// waitingKernel is a kernel that may wait for others.
type waitingKernel func(c *graph.Context, done func(error))

// Compute implements graph.Kernel, for a caller that can wait.
func (k waitingKernel) Compute(c *graph.Context) error {
	done := make(chan error, 1)
	k(c, func(err error) { done <- err })
	return <-done
}

// ComputeAsync implements graph.AsyncKernel.
func (k waitingKernel) ComputeAsync(c *graph.Context, done func(error)) { k(c, done) }

// queueKernel returns the kernel of an op that may wait for a queue. begin begins it; an error of begin ends it.
func queueKernel(n *graph.Node, begin func(c *graph.Context, q *queue, done func(error)) error) (graph.Kernel, error) {
	if n.Int("timeout_ms") != -1 && n.Attr("timeout_ms") != nil {
		return nil, invalid("Timeout not supported yet.")
	}
	return waitingKernel(func(c *graph.Context, done func(error)) {
		q, err := queueAt(c)
		if err == nil {
			err = begin(c, q, done)
		}
		if err != nil {
			done(err)
		}
	}), nil
}

func newEnqueue(n *graph.Node, _ *State) (graph.Kernel, error) {
	return queueKernel(n, func(c *graph.Context, q *queue, done func(error)) error {
		if err := checkSignature(c.Node, q.inputs(c.Node, q.types...), nil); err != nil {
			return err
		}
		parts := inputTensors(c)
		for i, t := range parts {
			if len(q.shapes) > 0 && !q.shapes[i].fits(t.Shape()) {
				return mismatch(i, q.shapes[i], t)
			}
		}
		q.enqueue(c, 1, func(int) (*element, error) {
			retained := make([]*tensor.Tensor, len(parts))
			for i, t := range parts {
				retained[i] = t.Retain()
			}
			return q.ownElement(c, retained)
		}, done)
		return nil
	})
}

func newEnqueueMany(n *graph.Node, _ *State) (graph.Kernel, error) {
	return queueKernel(n, func(c *graph.Context, q *queue, done func(error)) error {
		if err := checkSignature(c.Node, q.inputs(c.Node, q.types...), nil); err != nil {
			return err
		}
		parts := inputTensors(c)
		count, err := q.checkBatch(parts)
		if err != nil {
			return err
		}
		if count == 0 {
			done(nil)
			return nil
		}
		q.enqueue(c, int(count), func(i int) (*element, error) {
			row := make([]*tensor.Tensor, 0, len(parts))
			for _, t := range parts {
				one, err := rowOf(c, t, int64(i))
				if err != nil {
					releaseTensors(row)
					return nil, err
				}
				row = append(row, one)
			}
			return q.ownElement(c, row)
		}, done)
		return nil
	})
}

// ownElement is newElement that releases the tensors after an error.
func (q *queue) ownElement(c *graph.Context, parts []*tensor.Tensor) (*element, error) {
	e, err := q.newElement(c, parts)
	if err != nil {
		releaseTensors(parts)
	}
	return e, err
}

// enqueue begins an enqueue of count elements.
func (q *queue) enqueue(c *graph.Context, count int, next func(i int) (*element, error), done func(error)) {
	a := &attempt{Count: count, Next: func(i int) (e *element, err error) {
		defer recovered("an element of the queue", &err) // the lock of the queue is held
		return next(i)
	}}
	a.Done = func() { done(a.Err) }
	q.begin(c, a, func(m *waiting.Queue[*element]) []*attempt { return m.Enqueue(a) })
}

// recovered makes a panic the error of what.
func recovered(what string, err *error) {
	if p := recover(); p != nil {
		*err = graph.Recovered(what, p)
	}
}

// inputTensors returns the components of an enqueue.
func inputTensors(c *graph.Context) []*tensor.Tensor {
	parts := make([]*tensor.Tensor, len(c.Inputs)-1)
	for i := range parts {
		parts[i] = c.Input(i + 1)
	}
	return parts
}

func mismatch(i int, want partialShape, t *tensor.Tensor) error {
	return invalid("Shape mismatch in tuple component %d. Expected %s, got %s", i, want, t.Shape())
}

// checkBatch checks the components of an enqueue of many, and returns how many elements they have.
func (q *queue) checkBatch(parts []*tensor.Tensor) (int64, error) {
	for i, t := range parts {
		if t.Shape().Rank() == 0 {
			return 0, invalid("Component %d is a scalar: a batch of elements has at least one dimension", i)
		}
	}
	count := parts[0].Shape().Dim(0)
	for i, t := range parts {
		switch n := t.Shape().Dim(0); {
		case len(q.shapes) > 0 && !q.shapes[i].batch(count).fits(t.Shape()):
			return 0, mismatch(i, q.shapes[i].batch(count), t)
		case n != count:
			return 0, invalid("All input tensors must have the same size in the 0th dimension. Component %d has %d, and should have %d", i, n, count)
		}
	}
	return count, nil
}

// rowOf returns a copy of element i of the first dimension of t.
func rowOf(c *graph.Context, t *tensor.Tensor, i int64) (*tensor.Tensor, error) {
	return partOf(c, t, i, i+1, t.Shape().Dims()[1:])
}

// partOf returns a copy of elements of the first dimension of t, with the extents dims.
func partOf(c *graph.Context, t *tensor.Tensor, begin, end int64, dims []int64) (*tensor.Tensor, error) {
	shape, err := newShape(dims)
	if err != nil {
		return nil, err
	}
	n := shape.Elements() / max(end-begin, 1) // elements in one of the first dimension
	if t.DType() == tensor.String {
		return stringsTensor(c, shape, append([]string(nil), t.Elements()[begin*n:end*n]...))
	}
	part, err := c.Allocate(t.DType(), shape)
	if err != nil {
		return nil, err
	}
	size := n * int64(t.DType().Size())
	copy(part.Bytes(), t.Bytes()[begin*size:end*size])
	return part, nil
}

func newDequeue(n *graph.Node, _ *State) (graph.Kernel, error) {
	return queueKernel(n, func(c *graph.Context, q *queue, done func(error)) error {
		if err := checkSignature(c.Node, q.inputs(c.Node), q.types); err != nil {
			return err
		}
		q.dequeue(c, &attempt{Count: 1, Single: true}, func(elements []*element) error {
			for i, t := range q.forget(elements[0]) {
				c.Set(i, t)
			}
			return nil
		}, done)
		return nil
	})
}

// newDequeueMany makes the kernels of QueueDequeueMany and QueueDequeueUpTo; name is for a text of an error.
func newDequeueMany(name string, small bool) NewFunc {
	return func(n *graph.Node, _ *State) (graph.Kernel, error) {
		return queueKernel(n, func(c *graph.Context, q *queue, done func(error)) error {
			v, err := inputOf[int32](c, 1)
			switch {
			case err != nil:
				return err
			case len(v) == 0:
				return invalid("n has no elements")
			case v[0] < 0:
				return invalid("%s requested %d < 0 elements", name, v[0])
			}
			if err := checkSignature(c.Node, q.inputs(c.Node, tensor.Int32), q.types); err != nil {
				return err
			}
			if len(q.shapes) == 0 {
				return invalid("%s's DequeueMany and DequeueUpTo require the components to have specified shapes.", q.kind)
			}
			batch := func(elements []*element) error {
				defer q.release(elements)
				return q.batch(c, elements)
			}
			if v[0] == 0 {
				done(batch(nil))
				return nil
			}
			q.dequeue(c, &attempt{Count: int(v[0]), Small: small}, batch, done)
			return nil
		})
	}
}

// dequeue begins a dequeue. take gets the elements, which are its own.
func (q *queue) dequeue(c *graph.Context, a *attempt, take func([]*element) error, done func(error)) {
	a.Done = func() {
		if a.Err != nil {
			q.release(a.Elements)
			done(a.Err)
			return
		}
		done(q.take(a.Elements, take))
	}
	q.begin(c, a, func(m *waiting.Queue[*element]) []*attempt { return m.Dequeue(a) })
}

// take calls take. A panic is the error of the dequeue, not of the kernel whose goroutine this is.
func (q *queue) take(elements []*element, take func([]*element) error) (err error) {
	defer recovered("a batch of the queue", &err)
	return take(elements)
}

// batch sets the outputs to the elements, one after another in the first dimension. Elements that are smaller
// than others are padded with zeros.
func (q *queue) batch(c *graph.Context, elements []*element) error {
	for i, d := range q.types {
		dims := q.shapes[i].batch(int64(len(elements))).dims
		for j, n := range dims {
			if n >= 0 {
				continue
			}
			dims[j] = 0
			for _, e := range elements {
				dims[j] = max(dims[j], e.parts[i].Shape().Dim(j-1))
			}
		}
		shape, err := newShape(dims)
		if err != nil {
			return err
		}
		m, err := newMover(c, i, d, shape)
		if err != nil {
			return err
		}
		if !q.shapes[i].known() {
			m.clear()
		}
		for at, e := range elements {
			padInto(m, e.parts[i], dims[1:], int64(at)*volume(dims[1:]), 0, 0)
		}
		if err := m.done(nil); err != nil {
			return err
		}
	}
	return nil
}

// padInto copies what t has from off on, in its dimensions from axis on, to the place at, where the extents are dims.
func padInto(m *mover, t *tensor.Tensor, dims []int64, at, off int64, axis int) {
	own := t.Shape().Dims()[axis:]
	to, from := volume(dims[axis:]), volume(own)
	if from == 0 {
		return
	}
	if to == from || len(own) == 1 { // the rest is as wide
		m.copy(at, t, off, from)
		return
	}
	for i := range own[0] {
		padInto(m, t, dims, at+i*(to/dims[axis]), off+i*(from/own[0]), axis+1)
	}
}

// volume returns the number of elements of a shape that is known to be possible.
func volume(dims []int64) int64 {
	n := int64(1)
	for _, d := range dims {
		n *= d
	}
	return n
}

func newQueueClose(n *graph.Node, _ *State) (graph.Kernel, error) {
	cancel := n.Bool("cancel_pending_enqueues")
	return queueKernel(n, func(c *graph.Context, q *queue, done func(error)) error {
		a := &attempt{}
		a.Done = func() { done(a.Err) }
		q.begin(c, a, func(m *waiting.Queue[*element]) []*attempt {
			if cancel {
				return m.CloseNow(a)
			}
			return m.Close(a)
		})
		return nil
	})
}

func queueSize(c *graph.Context) error {
	q, err := queueAt(c)
	if err != nil {
		return err
	}
	q.mu.Lock()
	size := q.q.Len()
	q.mu.Unlock()
	t, err := scalarTensor(c, int32(size)) //nolint:gosec // the capacity is at most that
	if err == nil {
		c.Set(0, t)
	}
	return err
}

func queueIsClosed(c *graph.Context) error {
	q, err := queueAt(c)
	if err != nil {
		return err
	}
	q.mu.Lock()
	closed := q.q.Closed()
	q.mu.Unlock()
	t, err := scalarTensor(c, closed)
	if err == nil {
		c.Set(0, t)
	}
	return err
}
