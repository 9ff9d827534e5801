package ops

import (
	"maps"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// arrayBench is a bench with an array named a. A flow is any float.
type arrayBench struct {
	*bench
	a    graph.Value
	flow graph.Value
}

func (b *bench) array(size int32, a attrs) arrayBench {
	b.t.Helper()
	all := attrs{"dtype": tensor.Float32}
	maps.Copy(all, a)
	outs := b.runNamed("a", "TensorArrayV3", all, scalar(size))
	outs[1].Release()
	return arrayBench{b, outs[0], scalar[float32](0)}
}

// of runs an op of the array that must succeed. The inputs are between the handle and the flow.
func (b arrayBench) of(op string, a attrs, inputs ...graph.Value) string {
	b.t.Helper()
	outs, err := b.attempt(op, a, inputs...)
	if err != nil {
		return status.From(err).Message()
	}
	var texts []string
	for _, v := range outs {
		if v.Opaque == nil {
			texts = append(texts, show(v))
		}
		v.Release()
	}
	return strings.Join(texts, "; ")
}

func (b arrayBench) attempt(op string, a attrs, inputs ...graph.Value) ([]graph.Value, error) {
	b.t.Helper()
	all := append([]graph.Value{b.a}, inputs...)
	if op != "TensorArrayCloseV3" {
		all = append(all, b.flow)
	}
	if op == "TensorArrayReadV3" || op == "TensorArrayGatherV3" || op == "TensorArrayConcatV3" {
		if a == nil {
			a = attrs{}
		}
		if a["dtype"] == nil {
			a["dtype"] = tensor.Float32
		}
	}
	return b.try(b.node(op, op, a, all...), all...)
}

func (b arrayBench) write(i int32, v graph.Value) string {
	b.t.Helper()
	return b.of("TensorArrayWriteV3", nil, scalar(i), v)
}

func (b arrayBench) read(i int32) string {
	b.t.Helper()
	return b.of("TensorArrayReadV3", nil, scalar(i))
}

func (b arrayBench) size() string {
	b.t.Helper()
	return b.of("TensorArraySizeV3", nil)
}

// grad returns the array of gradients.
func (b arrayBench) grad(source string) arrayBench {
	b.t.Helper()
	outs, err := b.attempt("TensorArrayGradV3", attrs{"source": source})
	if err != nil {
		b.t.Fatal(err)
	}
	outs[1].Release()
	return arrayBench{b.bench, outs[0], b.flow}
}

const done = "float[]: 0"

func TestAnArrayGivesWhatWasWritten(t *testing.T) {
	a := newBench(t).array(3, nil)
	for i, v := range []graph.Value{vec[float32](1, 2), vec[float32](3, 4), vec[float32](5, 6)} {
		a.wantText(a.write(int32(i), v), done)
	}
	a.wantText(a.read(1), "float[2]: 3 4")
	a.wantText(a.of("TensorArrayGatherV3", nil, vec[int32](2, 0)), "float[2,2]: 5 6 1 2")

	a = a.array(0, attrs{"dynamic_size": true, "clear_after_read": false})
	a.wantText(a.of("TensorArrayScatterV3", nil, vec[int32](1, 2, 0), in([]int64{3, 2}, float32(1), 2, 3, 4, 5, 6)), done)
	a.wantText(a.size(), "int32[]: 3")
	a.wantText(a.of("TensorArrayGatherV3", nil, vec[int32](0, 1, 1)), "float[3,2]: 5 6 1 2 1 2")
	a.wantText(a.of("TensorArrayConcatV3", nil), "float[6]: 5 6 1 2 3 4; int64[3]: 2 2 2")

	a = a.array(3, nil)
	a.wantText(a.of("TensorArraySplitV3", nil, in([]int64{3, 2}, float32(1), 2, 3, 4, 5, 6), vec[int64](2, 0, 1)), done)
	a.wantText(a.of("TensorArrayConcatV3", nil), "float[3,2]: 1 2 3 4 5 6; int64[3]: 2 0 1")
}

// TestGradientsOfAnArrayAreAdded, and are zero where there is none. Ops that name the same source find the same array.
func TestGradientsOfAnArrayAreAdded(t *testing.T) {
	a := newBench(t).array(3, attrs{"element_shape": tensor.Vector(2)})
	a.write(0, vec[float32](1, 2))
	g := a.grad("g")
	value := vec[float32](5, 5)
	g.write(0, value)
	a.grad("g").write(0, vec[float32](1, 1))
	g.write(0, value)
	g.wantText(g.read(0), "float[2]: 11 11")
	g.want(value, "float[2]: 5 5")
	g.wantText(g.read(1), "float[2]: 0 0")
	g.wantText(g.read(4), "float[2]: 0 0")
	g.wantText(g.size(), "int32[]: 5")
	a.wantText(a.grad("another").read(0), "float[2]: 0 0")
	wide := arrayBench{a.bench, a.run("TensorArrayGradWithShape", attrs{"source": "wide"}, a.a, a.flow, vec[int32](3))[0], a.flow}
	a.wantText(wide.read(0), "float[3,2]: 0 0 0 0 0 0")
	a.wantText(a.of("TensorArraySizeV3", nil), "int32[]: 3")
}

// TestWrongUsesOfAnArrayAreErrors with TensorFlow's texts.
func TestWrongUsesOfAnArrayAreErrors(t *testing.T) {
	b := newBench(t)
	one := scalar[float32](1)
	a := b.array(3, nil)
	a.wantText(a.write(3, one), "TensorArray a_0: Tried to write to index 3 but array is not resizeable and size is: 3")
	a.wantText(a.write(1, scalar[int32](1)), "TensorArray dtype is float but Op is trying to write dtype int32.")
	a.wantText(a.of("TensorArrayWriteV3", nil, vec[int32](1), one), "TensorArray index must be scalar, but had shape: [1]")
	a.wantText(a.write(1, one), done)
	a.wantText(a.write(1, one), "TensorArray a_0: Could not write to TensorArray index 1 because it has already been written to.")
	a.wantText(a.read(1), "float[]: 1")
	a.wantText(a.write(1, one), "TensorArray a_0: Could not write to TensorArray index 1 because it has already been read.")
	a.wantText(a.read(1), "TensorArray a_0: Could not read index 1 twice because it was cleared after a previous read (perhaps try setting clear_after_read = false?).")
	a.wantText(a.read(-1), "Tried to read from index -1 but array size is: 3")
	a.wantText(a.of("TensorArrayReadV3", attrs{"dtype": tensor.Int32}, scalar[int32](0)), "TensorArray dtype is float but Op requested dtype int32.")
	if text := a.read(0); !strings.HasPrefix(text, "TensorArray a_0: Could not read from TensorArray index 0.  Furthermore, the element shape is not fully defined: <unknown>.  It") {
		t.Error(text)
	}
	g := a.grad("g")
	g.wantText(g.write(3, one), "TensorArray a_0@g: Tried to write to index 3 but array is not resizeable and size is: 3")
	g.wantText(g.of("TensorArrayGradV3", attrs{"source": "g"}), "Wrong input container. _tensor_array_gradsa_0@g")
	a.of("TensorArrayCloseV3", nil)
	a.wantText(a.of("TensorArrayCloseV3", nil), "")
	a.wantText(a.read(0), "TensorArray a_0 has already been closed.")
	a.wantText(a.write(0, one), "TensorArray a_0 has already been closed.")
	a.wantText(a.of("TensorArrayGradV3", attrs{"source": "h"}), "TensorArray a_0 has already been closed.")

	a = b.array(3, attrs{"identical_element_shapes": true, "dynamic_size": true})
	a.write(0, vec[float32](1, 2))
	a.wantText(a.write(1, one), "TensorArray a_1: Could not write to TensorArray index 1 because the value shape is [] which is incompatible with the "+
		"TensorArray's inferred element shape: [2] (consider setting infer_shape=False).")
	a.grad("g").wantText(a.grad("g").write(0, one), "TensorArray a_1@g: Could not write to TensorArray index 0 because the value shape is [] which is "+
		"incompatible with the TensorArray's inferred element shape: [2] (consider setting infer_shape=False).")
	a.wantText(a.write(9, vec[float32](1, 2)), "TensorArray a_1: Tried to write to index 9 but array is not resizeable and size is: 3")

	a = b.array(2, nil)
	a.wantText(a.of("TensorArrayGatherV3", nil, vec[int32]()), "TensorArray has size zero, but element shape <unknown> is not fully defined. "+
		"Currently only static shapes are supported when packing zero-size TensorArrays.")
	a.wantText(a.of("TensorArrayGatherV3", nil, scalar[int32](0)), "Expected indices to be a vector, but received shape: []")
	a.wantText(a.of("TensorArrayScatterV3", nil, vec[int32](0), one), "Input value for unpack must be at least a vector but received shape: []")
	a.wantText(a.of("TensorArrayScatterV3", nil, vec[int32](0, 1), vec[float32](1)), "Expected len(indices) == values.shape[0], but saw: 2 vs. 1")
	a.wantText(a.of("TensorArrayScatterV3", nil, vec[int32](2), vec[float32](1)), "Max scatter index must be < array size (2 vs. 2)")
	a.wantText(a.of("TensorArraySplitV3", nil, vec[float32](1, 2), vec[int64](1, 2)), "Expected sum of lengths to be equal to values.shape[0], but sum of lengths is 3 and value's shape is: [2]")
	a.wantText(a.of("TensorArraySplitV3", nil, vec[float32](1, 2), vec[int64](2)), "TensorArray's size is not equal to the size of lengths (2 vs. 1), and the TensorArray is not marked as dynamically resizeable")
	if text := a.of("TensorArraySplitV3", nil, vec[float32](1, 2), vec[int64](4, -2)); !strings.Contains(text, "must not be negative") {
		t.Error(text)
	}
	a.write(0, one)
	a.write(1, vec[float32](1))
	a.wantText(a.of("TensorArrayGatherV3", nil, vec[int32](0, 1)), "TensorArray has inconsistent shapes.  Index 0 has shape: [] but index 1 has shape: [1]")
}

// TestWhatAnArrayHoldsIsCounted: places that nobody has written, elements, and the sums of gradients.
func TestWhatAnArrayHoldsIsCounted(t *testing.T) {
	const limit = 1 << 20
	b := newBench(t)
	pool := b.pooled(limit)
	size := scalar[int32](limit / slotBytes)
	if err := b.fails("TensorArrayV3", attrs{"dtype": tensor.Float32}, size); status.CodeOf(err) != status.ResourceExhausted {
		t.Errorf("an array that is too large: %v", err)
	}
	a := b.array(0, attrs{"dynamic_size": true})
	if text := a.write(1<<30, scalar[float32](1)); !strings.Contains(text, "the pool's limit") {
		t.Errorf("a place too far away: %s", text)
	}
	n := int32(0)
	for ; n < limit/partBytes; n++ {
		if a.write(n, scalar[float32](1)) != done {
			break
		}
	}
	if n < limit/partBytes/3 || n >= limit/(partBytes+slotBytes) {
		t.Errorf("%d elements fit", n)
	}
	a.a.Release()
	g := a.array(2, attrs{"clear_after_read": false})
	for range 3 {
		h := g.grad("g")
		h.write(0, vec(make([]float32, 1000)...))
		h.a.Release()
	}
	g.a.Release()
	if held := pool.Stats().InUse; held != 0 {
		t.Errorf("%d bytes are counted when nobody has an array", held)
	}
}
