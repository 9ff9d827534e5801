package ops

import (
	"slices"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// badStep is a node of an optimiser whose inputs do not fit, and TensorFlow's text for it.
type badStep struct {
	op, text string
	inputs   []graph.Value
}

// refuse runs the nodes, which must end with their texts and leave the variables as they are.
func refuse(t *testing.T, b *bench, steps []badStep) {
	t.Helper()
	for _, s := range steps {
		t.Run(s.op+" "+s.text, func(t *testing.T) {
			before := make([]string, len(s.inputs))
			for i, v := range s.inputs {
				if v.Var != nil {
					before[i] = show(b.read(v))
				}
			}
			_, err := b.try(b.node("n", s.op, nil, s.inputs...), s.inputs...)
			if status.CodeOf(err) != status.InvalidArgument || !strings.Contains(err.Error(), s.text) {
				t.Errorf("got %v", err)
			}
			for i, v := range s.inputs {
				if v.Var != nil && show(b.read(v)) != before[i] {
					t.Errorf("input %d was %s and is %s", i, before[i], show(b.read(v)))
				}
			}
		})
	}
}

// twoColumns is a tensor of ones.
func twoColumns(rows int64) graph.Value {
	return in([]int64{rows, 2}, slices.Repeat([]float32{1}, int(2*rows))...)
}

func TestOptimisersRefuseWhatDoesNotFitWithTensorFlowsTexts(t *testing.T) {
	b := newBench(t)
	v, a, short := b.variable("v", twoColumns(3)), b.variable("a", twoColumns(3)), b.variable("short", twoColumns(2))
	number := b.variable("number", scalar[float32](1))
	numbers := b.variable("numbers", scalar[float32](1))
	x, two, g, rows, index := scalar[float32](0.5), vec[float32](1, 2), twoColumns(3), twoColumns(2), vec[int32](0, 2)
	refuse(t, b, []badStep{
		{"ApplyGradientDescent", "alpha is not a scalar: [1]", []graph.Value{v, vec[float32](1), g}},
		{"ApplyGradientDescent", "var and delta do not have the same shape[3,2] [2,2]", []graph.Value{v, x, rows}},
		{"ApplyMomentum", "momentum is not a scalar: [2]", []graph.Value{v, a, x, g, two}},
		{"ApplyMomentum", "var and accum do not have the same shape[3,2] [2,2]", []graph.Value{v, short, x, g, x}},
		{"ApplyMomentum", "var and grad do not have the same shape[3,2] [2,2]", []graph.Value{v, a, x, rows, x}},
		{"SparseApplyMomentum", "Index 3 at offset 1 in indices is out of range", []graph.Value{v, a, x, rows, vec[int32](0, 3), x}},
		{"SparseApplyMomentum", "Index -1 at offset 0 in indices is out of range", []graph.Value{v, a, x, rows, vec[int32](-1, 3), x}},
		{"SparseApplyMomentum", "grad must be the same size as indices in the first dimension.",
			[]graph.Value{v, a, x, rows, vec[int64](0), x}},
		{"SparseApplyMomentum", "indices must be one-dimensional", []graph.Value{v, a, x, rows, in([]int64{1, 2}, int32(0), 1), x}},
		{"SparseApplyMomentum", "var and grad must match in dimension 1", []graph.Value{v, a, x, in([]int64{2, 1}, float32(1), 2), index, x}},
		{"SparseApplyMomentum", "var must be at least 1 dimensional", []graph.Value{number, numbers, x, two, index, x}},
		{"ResourceSparseApplyKerasMomentum", "indices[1] = 3 is not in [0, 3)", []graph.Value{v, a, x, rows, vec[int32](0, 3), x}},
		// These end TensorFlow's process.
		{"SparseApplyMomentum", "var and grad must match in dimension 1", []graph.Value{v, a, x, two, index, x}},
		{"SparseApplyMomentum", "more dimensions than var", []graph.Value{v, a, x, in([]int64{2, 2, 1}, float32(1), 1, 1, 1), index, x}},
	})
}

// TestOptimisersInHalfRoundEachOperation has a sum of 2048 + 1, which no half holds, and a step of a block and
// one element, of which each is computed.
func TestOptimisersInHalfRoundEachOperation(t *testing.T) {
	b := newBench(t)
	fill := func(x float32) graph.Value {
		return b.run("Cast", attrs{"DstT": tensor.Float16}, vec(slices.Repeat([]float32{x}, smallBlock+1)...))[0]
	}
	half := func(x float32) graph.Value { return b.run("Cast", attrs{"DstT": tensor.Float16}, scalar(x))[0] }
	v, accum := b.variable("v", fill(0)), b.variable("accum", fill(2048))
	b.run("ApplyMomentum", nil, v, accum, half(1), fill(1), half(1))
	wide := b.run("Cast", attrs{"DstT": tensor.Float32}, b.read(v))[0]
	got, err := tensor.Values[float32](wide.Tensor)
	if err != nil {
		t.Fatal(err)
	}
	for i, x := range got {
		if x != -2048 {
			t.Fatalf("element %d is %g, want -2048", i, x)
		}
	}
}

func TestFtrlRefusesWhatTensorFlowRefuses(t *testing.T) {
	b := newBench(t)
	v, a, l := b.variable("v", twoColumns(3)), b.variable("a", twoColumns(3)), b.variable("l", twoColumns(3))
	x, two, minus, power := scalar[float32](0.5), vec[float32](1, 2), scalar[float32](-1), scalar[float32](-0.5)
	g, rows, index := twoColumns(3), twoColumns(2), vec[int32](0, 2)
	refuse(t, b, []badStep{
		{"ApplyFtrl", "lr is not a scalar: [2]", []graph.Value{v, a, l, g, two, x, x, power}},
		{"ApplyFtrl", "l1 regularization strength is not a scalar: [2]", []graph.Value{v, a, l, g, x, two, x, power}},
		{"ApplyFtrl", "lr_power is not a scalar", []graph.Value{v, a, l, g, x, x, x, two}},
		{"ApplyFtrlV2", "l2 shrinkage regularization strength is not a scalar: [2]", []graph.Value{v, a, l, g, x, x, x, two, power}},
		{"SparseApplyFtrl", "lr is not a positive scalar (or zero if multiply_linear_by_lr is set): []",
			[]graph.Value{v, a, l, rows, index, minus, x, x, power}},
		{"SparseApplyFtrl", "lr is not a positive scalar (or zero if multiply_linear_by_lr is set): []",
			[]graph.Value{v, a, l, rows, index, scalar[float32](0), x, x, power}},
		{"SparseApplyFtrl", "l1 regularization strength is not a non-negative scalar: []",
			[]graph.Value{v, a, l, rows, index, x, minus, x, power}},
		{"SparseApplyFtrl", "l2 regularization strength is not a non-negative scalar: [2]",
			[]graph.Value{v, a, l, rows, index, x, x, two, power}},
		{"SparseApplyFtrl", "lr_power is not a non-positive scalar: []", []graph.Value{v, a, l, rows, index, x, x, x, x}},
		{"SparseApplyFtrlV2", "l2 shrinkage regularization strength is not a non-negative scalar: []",
			[]graph.Value{v, a, l, rows, index, x, x, x, minus, power}},
	})
}

func TestProximalOptimisersRefuseWhatTensorFlowRefuses(t *testing.T) {
	b := newBench(t)
	v, a, d := b.variable("v", twoColumns(3)), b.variable("a", twoColumns(3)), b.variable("d", twoColumns(3))
	x, two, minus, zero, g := scalar[float32](0.5), vec[float32](1, 2), scalar[float32](-1), scalar[float32](0), twoColumns(3)
	rows, index := twoColumns(2), vec[int32](0, 2)
	refuse(t, b, []badStep{
		{"ApplyProximalGradientDescent", "l2 regularization strength is not a scalar: [2]", []graph.Value{v, x, x, two, g}},
		{"ApplyProximalAdagrad", "lr is not a positive scalar: []", []graph.Value{v, a, zero, x, x, g}},
		{"ApplyProximalAdagrad", "l1 regularization strength is not a non-negative scalar: []", []graph.Value{v, a, x, minus, x, g}},
		{"SparseApplyProximalAdagrad", "l2 regularization strength is not a non-negative scalar: [2]",
			[]graph.Value{v, a, x, x, two, rows, index}},
		{"ApplyAdagradDA", "var and accum do not have the same shape[3,2] [2,2]",
			[]graph.Value{v, a, b.variable("short", rows), g, x, x, x, scalar[int64](1)}},
		{"ApplyAdagradDA", "global_step is not a scalar: [2]", []graph.Value{v, a, d, g, x, x, x, vec[int64](1, 2)}},
	})
}

// TestOptimisersRefuseShapesThatTensorFlowDoesNotCheck has those whose elements TensorFlow would look for beyond the end of a
// slot, or where it ends its process.
func TestOptimisersRefuseShapesThatTensorFlowDoesNotCheck(t *testing.T) {
	b := newBench(t)
	v, a, short := b.variable("v", twoColumns(3)), b.variable("a", twoColumns(3)), b.variable("short", twoColumns(2))
	d := b.variable("d", twoColumns(3))
	x, two, g := scalar[float32](0.5), vec[float32](1, 2), twoColumns(3)
	refuse(t, b, []badStep{
		{"ApplyAdadelta", "var and accum_update do not have the same shape[3,2] [2,2]", []graph.Value{v, a, short, x, x, x, g}},
		{"ResourceApplyAdamWithAmsgrad", "var and vhat do not have the same shape[3,2] [2,2]",
			[]graph.Value{v, a, d, short, x, x, x, x, x, x, g}},
		{"ApplyAddSign", "sign_decay is not a scalar: [2]", []graph.Value{v, a, x, x, two, x, g}},
		{"ApplyPowerSign", "sign_decay is not a scalar: [2]", []graph.Value{v, a, x, x, two, x, g}},
	})
}
