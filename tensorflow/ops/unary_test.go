package ops

import (
	"math"
	"testing"

	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// TestNegativeZero: Abs and Sign of −0 are 0 in TensorFlow, and Abs has no negative NaN. The other
// functions that keep 0 keep its sign.
func TestNegativeZero(t *testing.T) {
	b := newBench(t)
	zero := math.Copysign(0, -1)
	for _, x := range []graph.Value{vec(float32(zero)), vec(zero), vec(toHalf(float32(zero))), vec(toBrain(float32(zero)))} {
		for op, negative := range map[string]bool{"Abs": false, "Sign": false, "Neg": false, "Square": false, "Sqrt": true, "Tanh": true, "Floor": true, "Relu": true} {
			want := "0"
			if negative {
				want = "-0"
			}
			out := b.run(op, attrs{"T": x.Tensor.DType()}, x)[0]
			if got := elements(out.Tensor); got != want {
				t.Errorf("%s of -0 (%v) is %s, want %s", op, x.Tensor.DType(), got, want)
			}
		}
	}
	out := b.run("Abs", attrs{"T": tensor.Float64}, vec(math.Copysign(math.NaN(), -1), -2, math.Inf(-1)))[0]
	v, err := tensor.Values[float64](out.Tensor)
	if err != nil || math.Signbit(v[0]) || !math.IsNaN(v[0]) || v[1] != 2 || !math.IsInf(v[2], 1) {
		t.Errorf("Abs: %v, %v", v, err)
	}
}
