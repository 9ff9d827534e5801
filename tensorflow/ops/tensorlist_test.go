package ops

import (
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

var anyShape = scalar[int32](-1)

func (b *bench) list(d tensor.DType) graph.Value {
	b.t.Helper()
	return b.run("EmptyTensorList", attrs{"element_dtype": d}, anyShape, scalar[int32](-1))[0]
}

// push returns a list with one more element. The reference of l belongs to the op if last is set: nobody else has the list then.
func (b *bench) push(l, v graph.Value, last bool) (graph.Value, error) {
	b.t.Helper()
	d := tensor.Variant
	if v.Tensor != nil {
		d = v.Tensor.DType()
	}
	n := b.node("push", "TensorListPushBack", attrs{"element_dtype": d}, l, v)
	k, err := b.state.NewKernel(n)
	if err != nil {
		b.t.Fatal(err)
	}
	c := &graph.Context{Ctx: b.t.Context(), Step: b.step, Node: n, Inputs: []graph.Value{l, v.Retain()}, Outputs: make([]graph.Value, 1)}
	if !last {
		l.Retain()
	}
	err = k.Compute(c)
	for _, in := range c.Inputs {
		in.Release()
	}
	if err != nil {
		c.Outputs[0].Release()
	}
	return c.Outputs[0], err
}

func (b *bench) must(v graph.Value, err error) graph.Value {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
	return v
}

func (b *bench) stacked(l graph.Value, d tensor.DType) string {
	b.t.Helper()
	v := b.run("TensorListStack", attrs{"element_dtype": d}, l, anyShape)[0]
	defer v.Release()
	return show(v)
}

// TestAListIsAValue: two ops that change one list give two lists. One that nobody else has is changed in place.
func TestAListIsAValue(t *testing.T) {
	b := newBench(t)
	pool := b.pooled(1 << 20)
	l := b.must(b.push(b.list(tensor.Int32), scalar[int32](1), true))
	x := b.must(b.push(l, scalar[int32](2), false))
	y := b.must(b.push(l, scalar[int32](3), false))
	b.wantText(b.stacked(l, tensor.Int32), "int32[1]: 1")
	b.wantText(b.stacked(x, tensor.Int32), "int32[2]: 1 2")
	b.wantText(b.stacked(y, tensor.Int32), "int32[2]: 1 3")
	if l.Opaque == x.Opaque {
		t.Error("a list that another node has was changed")
	}
	z := b.must(b.push(x, scalar[int32](4), true))
	if z.Opaque != x.Opaque {
		t.Error("a list that nobody else has was copied")
	}
	b.wantText(b.stacked(z, tensor.Int32), "int32[3]: 1 2 4")
	for _, v := range []graph.Value{l, y, z} {
		v.Release()
	}
	if held := pool.Stats().InUse; held != 0 {
		t.Errorf("%d bytes are counted when nobody has a list", held)
	}
}

// TestWhatAListHoldsIsCounted: a push beyond the memory is refused, and so are places that nobody has set.
func TestWhatAListHoldsIsCounted(t *testing.T) {
	const limit = 1 << 20
	b := newBench(t)
	pool := b.pooled(limit)
	if err := b.fails("TensorListReserve", attrs{"element_dtype": tensor.Float32}, anyShape, scalar[int32](limit/placeBytes)); status.CodeOf(err) != status.ResourceExhausted {
		t.Errorf("got %v", err)
	}
	l, n := b.list(tensor.Int32), 0
	l.Retain() // what fails ends the list
	for {
		l.Release()
		next, err := b.push(l, scalar[int32](1), true)
		if err != nil {
			if status.CodeOf(err) != status.ResourceExhausted || n < limit/(placeBytes+partBytes)/2 {
				t.Errorf("push %d: %v", n, err)
			}
			break
		}
		if n++; n > limit/(placeBytes+partBytes) {
			t.Fatalf("%d elements in %d bytes", n, limit)
		}
		l = next
		l.Retain()
	}
	if held := pool.Stats().InUse; held != 0 {
		t.Errorf("%d bytes are counted when nobody has a list", held)
	}
}

// TestListsInListsAreBounded: the last reference of the outer one releases all of them. The same list may be in it many times, and
// zeros and sums of it take as long as it has lists.
func TestListsInListsAreBounded(t *testing.T) {
	b := newBench(t)
	pool := b.pooled(64 << 20)
	l := b.must(b.push(b.list(tensor.Float32), vec[float32](1, 2), true))
	levels := 0
	for ; levels < maxListDepth; levels++ {
		outer := b.must(b.push(b.list(tensor.Variant), l, true))
		outer = b.must(b.push(outer, l, true))
		l.Release()
		l = outer
	}
	if _, err := b.push(b.list(tensor.Variant), l, true); status.CodeOf(err) != status.InvalidArgument || !strings.Contains(err.Error(), "more than 64 levels") {
		t.Errorf("got %v", err)
	}
	zeros := b.run("ZerosLike", nil, graph.Value{Opaque: l.Opaque})
	if len(zeros) != 1 {
		t.Fatal(zeros)
	}
	sum := b.run("AddN", nil, l, l, zeros[0])[0]
	at := func(v graph.Value) string {
		for {
			list, ok := v.Opaque.(*tensorList)
			if !ok {
				return show(v)
			}
			v = list.elements[len(list.elements)-1]
		}
	}
	b.wantText(at(zeros[0]), "float[2]: 0 0")
	b.wantText(at(sum), "float[2]: 2 4")
	for _, v := range []graph.Value{l, zeros[0], sum} {
		v.Release()
	}
	if held := pool.Stats().InUse; held != 0 {
		t.Errorf("%d bytes are counted when nobody has a list", held)
	}
}

// TestWrongUsesOfAListAreErrors that Python does not find, with TensorFlow's texts where it has them.
func TestWrongUsesOfAListAreErrors(t *testing.T) {
	b := newBench(t)
	l := b.must(b.push(b.list(tensor.Float32), vec[float32](1, 2), true))
	other := b.queue(nil)
	for _, c := range []struct {
		err  error
		want string
	}{
		{b.fails("TensorListLength", nil, other), "Input handle is not a list."},
		{b.fails("TensorListGetItem", attrs{"element_dtype": tensor.Int32}, l, scalar[int32](0), anyShape), "Invalid data types; op elements int32 but list elements float"},
		{b.fails("TensorListPushBack", attrs{"element_dtype": tensor.Int32}, l, scalar[int32](0)), "Invalid data types; op elements int32 but list elements float"},
		{b.fails("TensorListReserve", attrs{"element_dtype": tensor.Int32}, scalar[int32](3), scalar[int32](1)), "The only valid scalar shape tensor is the fully unknown shape specified as -1."},
		{b.fails("TensorListReserve", attrs{"element_dtype": tensor.Int32}, anyShape, scalar[int32](-1)), "The num_elements to reserve must be a non negative number, but got -1"},
		{b.fails("TensorListFromTensor", attrs{"element_dtype": tensor.Int32}, scalar[int32](1), anyShape), "Tensor must be at least a vector, but saw shape: []"},
		{b.fails("AddN", attrs{"T": tensor.Variant}, l, b.list(tensor.Float32)), "Trying to add two lists of tensors with different lengths. One is 1 and the other is 0"},
		{b.fails("AddN", attrs{"T": tensor.Variant}, l, b.list(tensor.Int32)), "Trying to add two lists of tensors of different dtypes. One is float and the other is int32"},
	} {
		if status.CodeOf(c.err) != status.InvalidArgument || status.From(c.err).Message() != c.want {
			t.Errorf("got %v, want %s", c.err, c.want)
		}
	}
}
