package ops

import (
	"strings"
	"testing"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// accumulator makes an accumulator of gradients with two columns.
func (b *bench) accumulator(op, reduction string, dtype tensor.DType) graph.Value {
	b.t.Helper()
	n := b.node("a", op, attrs{"dtype": dtype, "reduction_type": reduction, "shape": tensor.Shape{}})
	columns := attrValue(b.t, [][]int64{{-1, 2}}).GetList().GetShape()[0]
	n.Def.Attr["shape"] = &tfpb.AttrValue{Value: &tfpb.AttrValue_Shape{Shape: columns}}
	outs, err := b.try(n)
	if err != nil {
		b.t.Fatal(err)
	}
	return outs[0]
}

func (b *bench) takeGradient(op string, a graph.Value, dtype tensor.DType) string {
	b.t.Helper()
	return b.begin(b.state, op, attrs{"dtype": dtype}, a, scalar[int32](1)).end()
}

func TestAnAccumulatorGivesTheMeanOrTheSum(t *testing.T) {
	for reduction, want := range map[string]string{"MEAN": "float[1,2]: 2 3.5", "SUM": "float[1,2]: 4 7"} {
		b := newBench(t)
		a := b.accumulator("ResourceConditionalAccumulator", reduction, tensor.Float32)
		for _, g := range [][]float32{{1, 2}, {3, 5}} {
			b.run("ResourceAccumulatorApplyGradient", nil, a, scalar[int64](0), in([]int64{1, 2}, g...))
		}
		b.want(b.run("ResourceAccumulatorNumAccumulated", nil, a)[0], "int32[]: 2")
		b.wantText(b.takeGradient("ResourceAccumulatorTakeGradient", a, tensor.Float32), want)
		b.run("ResourceAccumulatorApplyGradient", nil, a, scalar[int64](0), in([]int64{1, 2}, float32(9), 9))
		b.want(b.run("ResourceAccumulatorNumAccumulated", nil, a)[0], "int32[]: 0")
	}
}

// The gradient that was applied stays as it is, and so does what was taken.
func TestAnAccumulatorSharesNoMemory(t *testing.T) {
	b := newBench(t)
	a := b.accumulator("ResourceConditionalAccumulator", "MEAN", tensor.Float32)
	grad := in([]int64{1, 2}, float32(1), 2)
	for range 2 {
		b.run("ResourceAccumulatorApplyGradient", nil, a, scalar[int64](0), grad)
	}
	b.want(grad, "float[1,2]: 1 2")
	out := b.begin(b.state, "ResourceAccumulatorTakeGradient", attrs{"dtype": tensor.Float32}, a, scalar[int32](1))
	if err := <-out.err; err != nil {
		t.Fatal(err)
	}
	b.run("ResourceAccumulatorApplyGradient", nil, a, scalar[int64](1), in([]int64{1, 2}, float32(8), 8))
	b.want(out.c.Outputs[0], "float[1,2]: 1 2")
}

// TestAccumulatorsOfHalfRoundAsTensorFlow: each sum is rounded.
func TestAccumulatorsOfHalfRoundAsTensorFlow(t *testing.T) {
	b := newBench(t)
	a := b.accumulator("ResourceConditionalAccumulator", "MEAN", tensor.Float16)
	tenth := in([]int64{1, 2}, toHalf(0.1), toHalf(1))
	for range 7 {
		b.run("ResourceAccumulatorApplyGradient", nil, a, scalar[int64](0), tenth)
	}
	b.wantText(b.takeGradient("ResourceAccumulatorTakeGradient", a, tensor.Float16), "half[1,2]: 0.10003662109375 1")
}

// Rows of one index are added, and have the mean of the gradients that have them.
func TestASparseAccumulatorAddsRows(t *testing.T) {
	for reduction, want := range map[string]string{
		"MEAN": "int64[6]: 0 1 2 3 3 0; float[6,2]: 1 2 5 6 5 6 1 1 2 2 3 3; int64[2]: -1 2",
		"SUM":  "int64[6]: 0 1 2 3 3 0; float[6,2]: 1 2 5 6 10 12 1 1 2 2 3 3; int64[2]: -1 2",
	} {
		b := newBench(t)
		pool := b.pooled(1 << 30)
		a := b.accumulator("SparseConditionalAccumulator", reduction, tensor.Float32)
		apply := func(indices []int64, values ...float32) {
			t.Helper()
			b.run("SparseAccumulatorApplyGradient", attrs{"has_known_shape": false}, a, scalar[int64](0), vec(indices...),
				in([]int64{int64(len(indices)), 2}, values...), vec[int64]())
		}
		apply([]int64{0, 2}, 1, 2, 3, 4)
		apply([]int64{1, 2}, 5, 6, 7, 8)
		apply([]int64{3, 3, 0}, 1, 1, 2, 2, 3, 3)
		b.wantText(b.takeGradient("SparseAccumulatorTakeGradient", a, tensor.Float32), want)
		b.state.Reset(nil)
		if n := pool.Stats().InUse; n != 0 {
			t.Errorf("%d bytes are left", n)
		}
	}
}

// A gradient without room for it is no part of the sum, and the sum stays as it was.
func TestAGradientBeyondTheMemoryIsRefused(t *testing.T) {
	for _, op := range []string{"ConditionalAccumulator", "SparseConditionalAccumulator"} {
		b := newBench(t)
		pool := b.pooled(1 << 20)
		a := b.accumulator(op, "SUM", tensor.Float32)
		apply := func(rows int) error {
			inputs := []graph.Value{a, scalar[int64](0), in([]int64{int64(rows), 2}, make([]float32, 2*rows)...)}
			name, more := "AccumulatorApplyGradient", attrs{}
			if op == "SparseConditionalAccumulator" {
				index := make([]int64, rows)
				for i := range index {
					index[i] = int64(i)
				}
				name, more = "SparseAccumulatorApplyGradient", attrs{"has_known_shape": false}
				inputs = []graph.Value{a, inputs[1], vec(index...), inputs[2], vec[int64]()}
			}
			_, err := b.try(b.node("n", name, more, inputs...), inputs...)
			return err
		}
		if err := apply(1 << 18); err == nil || !strings.Contains(err.Error(), "the pool's limit") {
			t.Errorf("%s: got %v", op, err)
		}
		if err := apply(1); err != nil {
			t.Error(err)
		}
		count := b.run("AccumulatorNumAccumulated", nil, a)[0]
		b.want(count, "int32[]: 1")
		count.Release()
		b.state.Reset(nil)
		if n := pool.Stats().InUse; n != 0 {
			t.Errorf("%d bytes are left", n)
		}
	}
}

// TensorFlow ends its process where these do not fit.
func TestWrongUsesOfAnAccumulatorAreErrors(t *testing.T) {
	b := newBench(t)
	a := b.accumulator("ResourceConditionalAccumulator", "MEAN", tensor.Float32)
	grad := in([]int64{1, 2}, float32(1), 2)
	for want, err := range map[string]error{
		"Argument local_step must be scalar, but had bad shape [2]": b.fails("ResourceAccumulatorApplyGradient", nil, a, vec[int64](0, 1), grad),
		"Argument num_required must be scalar, but had bad shape [1]": b.fails("ResourceAccumulatorTakeGradient",
			attrs{"dtype": tensor.Float32}, a, vec[int32](1)),
		"Signature mismatch, have: resource, int32->double expected: resource, int32->float": b.fails("ResourceAccumulatorTakeGradient",
			attrs{"dtype": tensor.Float64}, a, scalar[int32](1)),
		"Signature mismatch, have: resource, int64, double-> expected: resource, int64, float->": b.fails("ResourceAccumulatorApplyGradient",
			nil, a, scalar[int64](0), in([]int64{1, 2}, 1.0, 2)),
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	b.want(b.run("ResourceAccumulatorNumAccumulated", nil, a)[0], "int32[]: 0")
}
