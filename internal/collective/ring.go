package collective

import (
	"context"
	"math"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// A ring all-reduce of n members cuts the tensor into n chunks, or n in each subdivision. A chunk
// goes round the ring twice, and all chunks go at once:
//
//	pass 0: the member at the chunk's own place provides its elements. Each other one receives the
//	        chunk, merges its own elements into it, and provides the result. The member before the
//	        chunk's place is the last: it has the final value, and divides it if the operation does.
//	pass 1: the last one provides the final value. Each other one receives it and, but for the one
//	        before the last, provides it.
//
// Each buffer is written once. What pass 0 provides is the input, or memory of its own; what
// pass 1 provides is the output. So nothing waits until a peer has taken a buffer, and the input
// is never written.

// allReduce returns the merged elements of all members.
func (x *exchange) allReduce(in *tensor.Tensor, merge Merge, divide bool, rings []ring) (*tensor.Tensor, error) {
	if err := checkPlain(in); err != nil {
		x.fail(err)
		return nil, x.finish()
	}
	ar, err := arithmeticOf(in.DType())
	if err != nil {
		x.fail(err)
		return nil, x.finish()
	}
	if x.m.size() == 1 || in.Size() == 0 {
		return in.Retain(), x.finish()
	}
	out, err := tensor.Allocate(x.s.c.opts.Allocator, in.DType(), in.Shape())
	if err != nil {
		x.fail(err)
		return nil, x.finish()
	}
	elements, chunks := in.Shape().Elements(), x.m.size()*len(rings)
	chunk := alignedChunk(in.DType().Size(), elements, chunks)
	for i := range chunks {
		first, n := chunkRange(i, chunk, elements)
		if n == 0 {
			continue
		}
		f := &field{
			exchange: x, number: i, chunk: i / len(rings), ring: &rings[i%len(rings)],
			ar: ar, merge: merge, divide: divide,
		}
		x.do(func() error { return f.run(in, out, first, n) })
	}
	if err := x.finish(); err != nil {
		out.Release()
		return nil, err
	}
	return out, nil
}

// field is one chunk in one subdivision of an all-reduce.
type field struct {
	*exchange
	number int // of the field, in its keys
	chunk  int
	ring   *ring
	ar     arithmetic
	merge  Merge
	divide bool
}

// run takes a field through both passes. first and n are its elements.
func (f *field) run(in, out *tensor.Tensor, first, n int64) error {
	own, err := part(in, first, n)
	if err != nil {
		return err
	}
	defer own.Release()
	result, err := part(out, first, n)
	if err != nil {
		return err
	}
	defer result.Release()
	if err := f.reduce(own, result); err != nil {
		return err
	}
	return f.distribute(result)
}

// before returns the place that is so many before the chunk's own.
func (f *field) before(by int) int {
	n := f.m.size()
	return (f.chunk + n - by) % n
}

// fromKey is the key of what the member before this one provides.
func (f *field) fromKey(pass int) string {
	n := f.m.size()
	return ringKey(f.exec, pass, f.number, (f.ring.place+n-1)%n)
}

func (f *field) ownKey(pass int) string { return ringKey(f.exec, pass, f.number, f.ring.place) }

// reduce is pass 0.
func (f *field) reduce(own, result *tensor.Tensor) error {
	if f.ring.place == f.chunk {
		return f.provide(f.ownKey(0), f.ring.neighbour(1), own)
	}
	other, err := tensor.Allocate(f.s.c.opts.Allocator, own.DType(), own.Shape())
	if err != nil {
		return err
	}
	defer other.Release()
	if err := f.receive(f.fromKey(0), f.ring.neighbour(-1), other); err != nil {
		return err
	}
	if f.ring.place != f.before(1) {
		if err := f.ar.merge(f.merge, other, own, other); err != nil {
			return err
		}
		return f.provide(f.ownKey(0), f.ring.neighbour(1), other)
	}
	if err := f.ar.merge(f.merge, result, own, other); err != nil {
		return err
	}
	if !f.divide {
		return nil
	}
	return f.ar.divide(result, f.m.size())
}

// distribute is pass 1.
func (f *field) distribute(result *tensor.Tensor) error {
	if f.ring.place != f.before(1) {
		if err := f.receive(f.fromKey(1), f.ring.neighbour(-1), result); err != nil {
			return err
		}
	}
	if f.ring.place != f.before(2) {
		return f.provide(f.ownKey(1), f.ring.neighbour(1), result)
	}
	return nil
}

// gather returns the inputs of all members, joined along the first dimension in the order of the
// ranks. Each input goes round the ring once.
func (x *exchange) gather(in *tensor.Tensor) (*tensor.Tensor, error) {
	out, err := x.gatherOutput(in)
	if err != nil {
		x.fail(err)
		return nil, x.finish()
	}
	n, r := in.Shape().Elements(), newRing(x.m, x.rank, 0)
	if n > 0 {
		copy(out.Bytes()[int64(x.rank)*in.Size():], in.Bytes())
	}
	for chunk := range x.m.size() {
		if n == 0 || x.m.size() == 1 {
			break
		}
		x.do(func() error {
			t, err := part(out, int64(chunk)*n, n)
			if err != nil {
				return err
			}
			defer t.Release()
			places := x.m.size()
			if chunk != r.place {
				if err := x.receive(ringKey(x.exec, 0, chunk, (r.place+places-1)%places), r.neighbour(-1), t); err != nil {
					return err
				}
			}
			if r.place != (chunk+places-1)%places {
				return x.provide(ringKey(x.exec, 0, chunk, r.place), r.neighbour(1), t)
			}
			return nil
		})
	}
	if err := x.finish(); err != nil {
		out.Release()
		return nil, err
	}
	return out, nil
}

// gatherOutput allocates the result of a gather.
func (x *exchange) gatherOutput(in *tensor.Tensor) (*tensor.Tensor, error) {
	if err := checkPlain(in); err != nil {
		return nil, err
	}
	shape, err := gatherShape(in.Shape(), x.m.size())
	if err != nil {
		return nil, err
	}
	return tensor.Allocate(x.s.c.opts.Allocator, in.DType(), shape)
}

// gatherShape returns the shape of n tensors that are joined along the first dimension.
func gatherShape(s tensor.Shape, n int) (tensor.Shape, error) {
	if s.Rank() == 0 {
		return s, status.New(status.InvalidArgument, "input should have rank > 0, received 0")
	}
	dims := s.Dims()
	if dims[0] > math.MaxInt64/int64(n) {
		return s, status.Errorf(status.InvalidArgument, "a gather of %d tensors of the shape %v has too many elements", n, s)
	}
	dims[0] *= int64(n)
	return tensor.NewShape(dims...)
}

// checkPlain refuses tensors whose elements cannot be sent as memory.
func checkPlain(t *tensor.Tensor) error {
	if t.DType().Plain() {
		return nil
	}
	return status.Errorf(status.InvalidArgument, "a collective of %v is not possible: its elements are not plain memory", t)
}

// broadcast sends t from the source to all others, which receive it into t. At them the caller has
// the only reference to t.
func (x *exchange) broadcast(t *tensor.Tensor, source int) error {
	if err := checkPlain(t); err != nil {
		x.fail(err)
	} else if t.Size() > 0 {
		x.do(func() error { return x.passOn(t, source) })
	}
	return x.finish()
}

// passOn receives the tensor of a broadcast from the parent in the trees, and provides it to the
// children.
func (x *exchange) passOn(t *tensor.Tensor, source int) error {
	for _, tr := range newTrees(x.m, x.rank, source) {
		if p := tr.parent(); p >= 0 {
			if err := x.receive(treeKey(x.exec, tr.number, p, tr.place), tr.order[p], t); err != nil {
				return err
			}
		}
		for _, to := range tr.children(x.rank == source) {
			if err := x.provide(treeKey(x.exec, tr.number, tr.place, to), tr.order[to], t); err != nil {
				return err
			}
		}
	}
	return nil
}

// allReduceRings returns the rings of an all-reduce with these offsets of subdivisions.
func allReduceRings(m *members, rank int, offsets []int) []ring {
	rings := make([]ring, len(offsets))
	for i, o := range offsets {
		rings[i] = newRing(m, rank, o)
	}
	return rings
}

// within returns a context that ends with the step, or after so many seconds; 0 means no limit.
func (s *Step) within(ctx context.Context, timeout timeout) (context.Context, context.CancelFunc) {
	ctx, stop := context.WithCancelCause(ctx)
	unwatch := context.AfterFunc(s.ctx, func() { stop(context.Cause(s.ctx)) })
	untime := timeout.start(stop)
	return ctx, func() {
		unwatch()
		untime()
		stop(nil)
	}
}
