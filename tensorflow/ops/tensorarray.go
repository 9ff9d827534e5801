package ops

import (
	"fmt"
	"slices"
	"sync"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// tensorArray is an array of tensors, each of which is written once. One for gradients adds what is written to a place, and what
// nobody has written is zero there.
type tensorArray struct {
	stepObject
	tensorArrayConfig

	mu     sync.Mutex // guards the fields below
	shape  partialShape
	slots  []slot
	closed bool
	summed bool                    // something was added to a place: there is no gradient of that
	grads  map[string]*tensorArray // by their source; each has a reference
}

// tensorArrayConfig is what never changes but for dynamic, which mu guards.
type tensorArrayConfig struct {
	dtype     tensor.DType
	dynamic   bool // a write may make it larger
	clear     bool // a read ends a place
	identical bool // the first write says the shape of all
	grad      bool
}

// slot is a place of an array.
type slot struct {
	t     *tensor.Tensor // nil for zeros of the shape, if written
	shape tensor.Shape
	known bool // the shape is
	state slotState
	own   bool // t is a sum that the array has made
}

// slotState says what has happened to a place.
type slotState struct{ written, read, cleared bool }

// grow makes the array larger. The lock is held, or nobody has the array.
func (k *tensorArray) grow(a tensor.Allocator, n int) error {
	if n <= len(k.slots) {
		return nil
	}
	if n > cap(k.slots) {
		size := n
		if len(k.slots) > 0 {
			size = max(n, 2*len(k.slots))
		}
		if err := k.overhead.add(a, slotBytes*int64(size-cap(k.slots))); err != nil {
			return err
		}
		larger := make([]slot, len(k.slots), size)
		copy(larger, k.slots)
		k.slots = larger
	}
	k.slots = k.slots[:n]
	return nil
}

// errorf returns an InvalidArgument that names the array.
func (k *tensorArray) errorf(format string, args ...any) error {
	return invalid("TensorArray %s"+format, append([]any{k.name}, args...)...)
}

// usable returns an error for an array that is closed. The lock is held.
func (k *tensorArray) usable() error {
	if k.closed {
		return k.errorf(" has already been closed.")
	}
	return nil
}

// put writes a tensor, or adds it. The lock is held. It retains t.
func (k *tensorArray) put(c *graph.Context, index int32, t *tensor.Tensor) error {
	if err := k.usable(); err != nil {
		return err
	}
	if index < 0 || !k.dynamic && int(index) >= len(k.slots) {
		return k.errorf(": Tried to write to index %d but array is not resizeable and size is: %d", index, len(k.slots))
	}
	if err := k.grow(c.Step.Allocator, int(index)+1); err != nil {
		return err
	}
	no := func(format string, args ...any) error {
		return k.errorf(": Could not write to TensorArray index %d because "+format, append([]any{index}, args...)...)
	}
	s := &k.slots[index]
	switch {
	case !k.shape.fits(t.Shape()):
		return no("the value shape is %s which is incompatible with the TensorArray's inferred element shape: %s (consider setting infer_shape=False).",
			t.Shape(), k.shape)
	case s.state.read:
		return no("it has already been read.")
	case s.state.written && !k.grad:
		return no("it has already been written to.")
	case s.state.written && !t.Shape().Equal(s.shape):
		return k.errorf(": Could not aggregate to TensorArray index %d because the existing shape is %s but the new input shape is %s.",
			index, s.shape, t.Shape())
	}
	if s.t != nil && s.t.Shape().Elements() > 0 {
		return k.sum(c, s, t)
	}
	if s.t == nil {
		if err := k.overhead.add(c.Step.Allocator, partBytes); err != nil {
			return err
		}
	} else {
		s.t.Release()
	}
	s.t, s.shape, s.known, s.state.written = t.Retain(), t.Shape(), true, true
	if k.identical && !k.shape.known() {
		k.shape = partialShape{dims: t.Shape().Dims()}
	}
	return nil
}

// sum adds t to what a place has.
func (k *tensorArray) sum(c *graph.Context, s *slot, t *tensor.Tensor) error {
	add, err := vectorFunc("Add", k.dtype)
	if err != nil {
		return invalid("tensor_array::AddToTensor type not supported: %s", k.dtype)
	}
	k.summed = true
	if s.own && writable(s.t) {
		return add(s.t, s.t, t)
	}
	to, err := c.Allocate(k.dtype, s.shape)
	if err != nil {
		return err
	}
	if err := add(to, s.t, t); err != nil {
		to.Release()
		return err
	}
	s.t.Release()
	s.t, s.own = to, true
	return nil
}

// get reads a place. The lock is held, and the reference is the caller's.
func (k *tensorArray) get(c *graph.Context, index int32) (*tensor.Tensor, error) {
	if err := k.usable(); err != nil {
		return nil, err
	}
	if index < 0 || !k.grad && int(index) >= len(k.slots) {
		return nil, invalid("Tried to read from index %d but array size is: %d", index, len(k.slots))
	}
	if err := k.zeros(c, int(index)); err != nil {
		return nil, err
	}
	s := &k.slots[index]
	if s.state.cleared {
		return nil, k.errorf(": Could not read index %d twice because it was cleared after a previous read (perhaps try setting clear_after_read = false?).", index)
	}
	if s.t == nil {
		if err := k.makeZeros(c, s); err != nil {
			return nil, err
		}
	}
	t := s.t
	if s.state.read = true; k.clear {
		s.t, s.state.cleared = nil, true
		k.overhead.give(partBytes)
		return t, nil
	}
	return t.Retain(), nil
}

// zeros makes a place that nobody has written one with zeros, if their shape is known.
func (k *tensorArray) zeros(c *graph.Context, index int) error {
	if index < len(k.slots) && k.slots[index].state.written {
		return nil
	}
	var shape tensor.Shape
	switch {
	case index < len(k.slots) && k.grad && k.slots[index].known && k.slots[index].shape.Rank() > 0:
		shape = k.slots[index].shape
	case !k.shape.known():
		return k.errorf(": Could not read from TensorArray index %d.  Furthermore, the element shape is not fully defined: %s.  It is possible you "+
			"are working with a resizeable TensorArray and stop_gradients is not allowing the gradients to be written.  If you set the full "+
			"element_shape property on the forward TensorArray, the proper all-zeros tensor will be returned instead of incurring this error.",
			index, k.shape)
	default:
		var err error
		if shape, err = newShape(k.shape.dims); err != nil {
			return err
		}
	}
	old := len(k.slots)
	if err := k.grow(c.Step.Allocator, index+1); err != nil {
		return err
	}
	for i := min(old, index); i <= index; i++ {
		if s := &k.slots[i]; i >= old || i == index {
			s.shape, s.known, s.state.written = shape, true, true
		}
	}
	return nil
}

// makeZeros makes the tensor of a place with zeros.
func (k *tensorArray) makeZeros(c *graph.Context, s *slot) error {
	if k.dtype == tensor.String {
		return invalid("tensor_array::TensorSetZero type not supported: %s", k.dtype)
	}
	if err := k.overhead.add(c.Step.Allocator, partBytes); err != nil {
		return err
	}
	t, err := c.Allocate(k.dtype, s.shape)
	if err != nil {
		k.overhead.give(partBytes)
		return err
	}
	clear(t.Bytes())
	s.t = t
	return nil
}

// getMany reads places, all of them if indices is nil. The references are the caller's.
func (k *tensorArray) getMany(c *graph.Context, indices []int32) ([]*tensor.Tensor, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.usable(); err != nil {
		return nil, err
	}
	n := len(indices)
	if indices == nil {
		n = len(k.slots)
	}
	if err := c.Scratch(8 * int64(n)); err != nil {
		return nil, err
	}
	list := make([]*tensor.Tensor, 0, n)
	for i := range n {
		index := int32(i) //nolint:gosec // an array has no more places
		if indices != nil {
			index = indices[i]
		}
		t, err := k.get(c, index)
		if err != nil {
			releaseTensors(list)
			return nil, err
		}
		list = append(list, t)
	}
	return list, nil
}

// size returns how many places there are, or an error if the array is closed.
func (k *tensorArray) size() (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.slots), k.usable()
}

// close releases what the array has. A closed one stays until nobody has its handle.
func (k *tensorArray) close() {
	k.mu.Lock()
	slots, grads := k.slots, k.grads
	k.slots, k.grads, k.closed = nil, nil, true
	k.mu.Unlock()
	n := int64(0)
	for _, s := range slots {
		if s.t != nil {
			s.t.Release()
			n += partBytes
		}
	}
	k.overhead.give(n + slotBytes*int64(cap(slots)))
	for _, g := range grads {
		g.Release()
	}
}

// gradient returns the array of gradients for a source, with a reference for the caller. prepend is in front of all shapes.
func (k *tensorArray) gradient(c *graph.Context, source string, prepend []int64) (*tensorArray, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.grad {
		return nil, invalid("Wrong input container. _tensor_array_grads%s", k.name)
	}
	k.dynamic = false
	if err := k.usable(); err != nil {
		return nil, err
	}
	if k.summed {
		return nil, invalid("Unable to create a gradients TensorArray for %s.  Perhaps you used the multiple_writes_aggregate flag on a previous write?  "+
			"Gradient calculation is impossible when multiple writes are performed to the same index.", k.name)
	}
	if g := k.grads[source]; g != nil {
		g.Retain()
		return g, nil
	}
	g := &tensorArray{tensorArrayConfig: tensorArrayConfig{dtype: k.dtype, clear: true, identical: k.identical, grad: true}, shape: k.shape}
	if !g.shape.any {
		g.shape.dims = slices.Concat(prepend, k.shape.dims)
	}
	if err := g.begin(c, fmt.Sprintf("%s@%s", k.name, source), g.close); err != nil {
		return nil, err
	}
	if err := g.copyShapes(c, k.slots, prepend); err != nil {
		g.Release()
		return nil, err
	}
	if k.grads == nil {
		k.grads = make(map[string]*tensorArray)
	}
	k.grads[source] = g
	g.Retain()
	return g, nil
}

// copyShapes makes places with zeros for all that are written.
func (k *tensorArray) copyShapes(c *graph.Context, of []slot, prepend []int64) error {
	if err := k.grow(c.Step.Allocator, len(of)); err != nil {
		return err
	}
	for i, s := range of {
		if !s.state.written {
			continue
		}
		shape := s.shape
		if prepend != nil {
			var err error
			if shape, err = newShape(slices.Concat(prepend, s.shape.Dims())); err != nil {
				return err
			}
		}
		k.slots[i] = slot{shape: shape, known: true, state: slotState{written: true}}
	}
	return nil
}

// merge makes the shape of the elements more precise.
func (k *tensorArray) merge(s partialShape) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	merged, err := k.shape.merged(s)
	if err == nil {
		k.shape = merged
	}
	return err
}

// resizable returns how many places a write of n has, where the array may grow.
func (k *tensorArray) resizable(n int) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	size := len(k.slots)
	if k.dynamic {
		size = max(size, n)
	}
	return size, k.usable()
}

// otherType is the error of an op of another type.
func (k *tensorArray) otherType(verb string, d tensor.DType) error {
	return status.Errorf(status.InvalidArgument, "TensorArray dtype is %s but Op %s dtype %s.", k.dtype, verb, d)
}
