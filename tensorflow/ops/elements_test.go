package ops

import (
	"math"
	"testing"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// TestElementsAreWrittenAsInTensorFlow has texts of TensorFlow 2.21's Assert.
func TestElementsAreWrittenAsInTensorFlow(t *testing.T) {
	counted := []float32{0, 1, 2, 3, 4, 5, 6, 7}
	cube, column, row := in([]int64{2, 2, 2}, counted...), in([]int64{4, 1}, counted[:4]...), in([]int64{1, 4}, counted[:4]...)
	for _, c := range []struct {
		value graph.Value
		n     int
		want  string
	}{
		{scalar[float32](1.5), 3, "1.5"}, {scalar[float32](0.1), 3, "0.1"}, {scalar[float32](1e10), 3, "1e+10"},
		{scalar[float32](1e-7), 3, "1e-07"}, {scalar[float32](100000), 3, "100000"}, {scalar[float32](1234567), 3, "1234567"},
		{scalar[float32](123456789), 3, "123456792"}, {scalar(float32(math.Inf(1))), 3, "inf"}, {scalar(float32(math.Inf(-1))), 3, "-inf"},
		{scalar(float32(math.NaN())), 3, "nan"}, {scalar(0.1), 3, "0.1"}, {scalar(1. / 3), 3, "0.33333333333333331"},
		{scalar(123456789.123), 3, "123456789.123"}, {vec(toHalf(1.5), toHalf(0.1), toHalf(3), toHalf(4)), 3, "1.5 0.0999755859 3..."},
		{vec(true, false), 3, "1 0"}, {in([]int64{2, 2}, true, false, true, true), 3, "[1 0][1...]..."},
		{vec[int32](1, 2, 3, 4, 5), 3, "1 2 3..."}, {in([]int64{2, 3}, []uint8{0, 1, 2, 3, 4, 5}...), 3, "[0 1 2]..."},
		{in([]int64{2, 2}, []complex64{1, 2, 3, 4}...), 3, "? ? ?..."},
		{vec[float32](), 3, ""}, {in[float32]([]int64{2, 0}), 3, ""}, {vec[float32](1, 2), 0, "..."}, {vec[float32](1, 2), -1, "1 2"},
		{cube, 5, "[[0 1][2 3]][[4...]]..."}, {cube, 4, "[[0 1][2 3]]..."}, {cube, 8, "[[0 1][2 3]][[4 5][6 7]]"},
		{column, 2, "[0][1]..."}, {row, 2, "[0 1...]..."},
		{text([]int64{2, 2}, "a", "b", "c", "d"), 3, "[a b][c...]..."}, {text([]int64{1}, "a\n\t'\\\"\x01z"), 3, `a\n\t\'\\\"\001z`},
	} {
		if got := summary(c.value.Tensor, c.n); got != c.want {
			t.Errorf("%v, %d elements: %q, want %q", c.value.Tensor, c.n, got, c.want)
		}
	}
}

// TestErrorsOfKernelsAreTensorFlows has texts of TensorFlow 2.21.
func TestErrorsOfKernelsAreTensorFlows(t *testing.T) {
	b := newBench(t)
	axis := func(i int32) graph.Value { return scalar(i) }
	two, three, flat := in([]int64{2, 3}, make([]float32, 6)...), in([]int64{3, 3}, make([]float32, 9)...), vec(make([]float32, 3)...)
	n, floats := attrs{"N": 2}, attrs{"dtype": tensor.Float32, "shape": tensor.Vector(2)}
	ref, handle := b.variable("v", vec[float32](1, 2)), b.runNamed("w", "VarHandleOp", floats)[0]
	b.run("AssignVariableOp", nil, handle, vec[float32](1, 2))
	other := b.runNamed("w", "VarHandleOp", attrs{"dtype": tensor.Int32, "shape": tensor.Vector(2)})[0]
	for _, c := range []struct {
		err  error
		want string
	}{
		{b.fails("ConcatV2", n, two, three, axis(1)), "ConcatOp : Dimension 0 in both shapes must be equal: shape[0] = [2,3] vs. shape[1] = [3,3]"},
		{b.fails("ConcatV2", n, two, flat, axis(0)), "ConcatOp : Ranks of all input tensors should match: shape[0] = [2,3] vs. shape[1] = [3]"},
		{b.fails("ConcatV2", n, two, two, axis(2)), "ConcatOp : Expected concatenating dimensions in the range [-2, 2), but got 2"},
		{b.fails("ConcatV2", n, two, two, axis(-3)), "ConcatOp : Expected concatenating dimensions in the range [-2, 2), but got -3"},
		{b.fails("ConcatV2", n, axis(1), axis(2), axis(0)), "ConcatOp : Can't concatenate scalars (use tf.stack instead)"},
		{b.fails("Assign", nil, ref, flat), "Assign requires shapes of both tensors to match. lhs shape= [2] rhs shape= [3]"},
		{b.fails("AssignAdd", nil, ref, flat), "Parameters and update must be the same size"},
		{b.fails("AssignVariableOp", attrs{"validate_shape": true}, handle, flat), "Trying to assign to variable with tensor with wrong shape. Expected [2] got [3]"},
		{b.fails("AssignAddVariableOp", nil, handle, flat), "Cannot update variable with shape [2] using a Tensor with shape [3], shapes must be equal."},
		{b.fails("AssignVariableOp", nil, other, vec[int32](1, 2)), "Trying to assign variable with wrong dtype. Expected float got int32"},
		{b.fails("ReadVariableOp", attrs{"dtype": tensor.Int32}, other), "Trying to read variable with wrong dtype. Expected int32 got float"},
	} {
		if s := status.From(c.err); s.Code() != status.InvalidArgument || s.Message() != c.want {
			t.Errorf("%v, want %q", c.err, c.want)
		}
	}
	_, err := b.try(b.node("v", "VariableV2", attrs{"dtype": tensor.Int32, "shape": tensor.Vector(2)}))
	if s := status.From(err); s.Code() != status.Internal || s.Message() != "Output 0 of type float_ref does not match declared output type int32_ref for node {{node v}}" {
		t.Error(err)
	}
}
