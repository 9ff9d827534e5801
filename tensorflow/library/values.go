package library

import (
	"slices"
	"sync/atomic"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
	"github.com/tryst-rdma/tryst/tensorflow/library/internal/capi"
)

const (
	// lendFrom is the size in bytes from which memory is lent and not copied. Below it a copy costs
	// less than the call back from TensorFlow's thread.
	lendFrom = 64 << 10
	// keepFrom is the size in bytes from which a result stays in TensorFlow's memory.
	keepFrom = 4 << 10
)

// inputs returns the inputs of a run as TensorFlow holds them. drop gives them up.
func (c *localContext) inputs(r *run) (handles []capi.Handle, drop func(), err error) {
	handles = make([]capi.Handle, 0, len(r.inputs))
	own := make([]capi.Handle, 0, len(r.inputs))
	drop = func() {
		for _, h := range own {
			c.l.DeleteHandle(h)
		}
	}
	for i, v := range r.inputs {
		var h capi.Handle
		switch {
		case v.Tensor != nil:
			if h, err = in(c.l, v.Tensor); err == nil {
				own = append(own, h)
			}
		case v.Opaque != nil:
			o, ok := v.Opaque.(*object)
			switch {
			case !ok:
				err = status.Errorf(status.InvalidArgument, "input %d is a resource of another kernel set", i)
			case o.owner != r.owner:
				err = status.Errorf(status.NotFound, "input %d is a resource from before a reset of the session", i)
			default:
				h = capi.Handle(o.id)
			}
		default:
			err = status.Errorf(status.Internal, "input %d has no value", i)
		}
		if err != nil {
			return nil, drop, err
		}
		handles = append(handles, h)
	}
	return handles, drop, nil
}

// in returns a tensor as TensorFlow holds it.
func in(l *capi.Library, t *tensor.Tensor) (capi.Handle, error) {
	dtype, dims := int32(t.DType()), t.Shape().Dims()
	switch {
	case t.DType() == tensor.String:
		return l.Strings(dims, t.Elements())
	case !t.DType().Plain():
		return 0, status.Errorf(status.Unimplemented, "a %v from another process cannot become a value of TensorFlow", t)
	}
	if o, ok := t.Buffer().Owner().(*result); ok && o.dtype == t.DType() && slices.Equal(o.dims, dims) {
		return o.t.Share()
	}
	if data := t.Bytes(); len(data) < lendFrom || !t.Buffer().OffHeap() || !capi.Aligned(data) {
		return l.CopyIn(dtype, dims, data)
	}
	t.Retain()
	return l.Lend(dtype, dims, t.Bytes(), func() { t.ReleaseBy(func(f func()) { go f() }) })
}

// outputs sets the outputs of a run, and gives the handles up.
func (c *localContext) outputs(r *run, handles []capi.Handle) (err error) {
	for i, h := range handles {
		if err != nil {
			c.l.DeleteHandle(h)
			continue
		}
		if d := tensor.DType(c.l.HandleType(h)); d == tensor.Resource || d == tensor.Variant {
			r.outputs[i] = graph.Value{Opaque: newObject(r.owner, func() { c.l.DeleteHandle(h) }, uint64(h))}
			continue
		}
		var t capi.Tensor
		t, err = c.l.Resolve(h)
		c.l.DeleteHandle(h)
		if err == nil {
			r.outputs[i].Tensor, err = take(r.allocator, t)
		}
	}
	return err
}

// take returns a TF_Tensor as a tensor. It takes the TF_Tensor over, also when it fails.
func take(a tensor.Allocator, t capi.Tensor) (*tensor.Tensor, error) {
	dtype, dims := tensor.DType(t.DType()), t.Dims()
	shape, err := tensor.NewShape(dims...)
	if err != nil {
		t.Free()
		return nil, err
	}
	if dtype == tensor.String {
		defer t.Free()
		return takeStrings(a, shape, t)
	}
	n, err := tensor.ByteSize(dtype, shape)
	data := t.Bytes()
	if err == nil && n != len(data) {
		err = status.Errorf(status.Unimplemented, "TensorFlow's tensor %v%v has %d bytes; Tryst's has %d", dtype, shape, len(data), n)
	}
	if err != nil {
		t.Free()
		return nil, err
	}
	if n < keepFrom {
		defer t.Free()
		out, err := tensor.Allocate(a, dtype, shape)
		if err == nil {
			copy(out.Bytes(), data)
		}
		return out, err
	}
	counted, err := tensor.Reserve(a, int64(n))
	if err != nil {
		t.Free()
		return nil, err
	}
	return tensor.New(dtype, shape, tensor.NewOwnedBuffer(data, &result{t: t, dtype: dtype, dims: dims, counted: counted}))
}

// takeStrings copies the strings of a TF_Tensor.
func takeStrings(a tensor.Allocator, shape tensor.Shape, t capi.Tensor) (*tensor.Tensor, error) {
	n := int(shape.Elements())
	counted, err := tensor.Reserve(a, t.ElementsSize(n)+int64(n)*tensor.ElementOverhead)
	if err != nil {
		return nil, err
	}
	out, err := tensor.FromReserved(tensor.String, shape, t.Elements(n), counted)
	if err != nil {
		counted.Release()
	}
	return out, err
}

// result is the tensor.Owner of a result in TensorFlow's memory.
type result struct {
	t       capi.Tensor
	dtype   tensor.DType
	dims    []int64
	counted *tensor.Buffer // what the limit of the step's allocator counts
}

// Reclaim implements tensor.Owner.
func (r *result) Reclaim([]byte) {
	r.t.Free()
	r.counted.Release()
}

// OffHeap implements tensor.OffHeapOwner.
func (r *result) OffHeap([]byte) bool { return true }

// object is a resource or a variant: the graph.Opaque of this set.
type object struct {
	owner *countedContext
	id    uint64 // of the engine
	drop  func()
	refs  atomic.Int64
}

// newObject returns an object with one reference. drop is called after the last Release.
func newObject(owner *countedContext, drop func(), id uint64) *object {
	o := &object{owner: owner.retain(), id: id, drop: drop}
	o.refs.Store(1)
	return o
}

// Retain implements graph.Opaque.
func (o *object) Retain() { o.refs.Add(1) }

// Release implements graph.Opaque.
func (o *object) Release() {
	if o.refs.Add(-1) == 0 {
		o.drop()
		o.owner.release()
	}
}
