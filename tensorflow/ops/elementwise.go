package ops

import (
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// elementwiseOps are the ops that compute each element by itself.
func elementwiseOps() []entry {
	var entries []entry
	add := func(new func(op string) NewFunc, rest string, names ...string) {
		for _, name := range names {
			entries = append(entries, entry{name + rest, new(name)})
		}
	}
	const signed = `bfloat16, half, float, double, int8, int16, int32, int64`
	const all = `bfloat16, half, float, double, uint8, int8, uint16, int16, int32, uint32, uint64, int64, complex64, complex128`
	add(newUnary, `(x: T) -> (y: T); T: {`+signed+`, complex64, complex128}`, "Neg", "Sign", "Round", "Inv", "Reciprocal")
	add(newUnary, `(x: T) -> (y: T); T: {`+signed+`}`, "Abs")
	add(newUnary, `(x: T) -> (y: T); T: {`+all+`}`, "Square")
	add(newUnary, `(x: T) -> (y: T); T: analytic`, "Sqrt", "Rsqrt", "Exp", "Log", "Log1p", "Expm1", "Tanh", "Sigmoid", "Sin", "Cos",
		"Sinh", "Cosh", "Asinh", "Acosh", "Atanh")
	add(newUnary, `(x: T) -> (y: T); T: {`+signed+`, complex64, complex128}`, "Tan", "Asin", "Acos", "Atan")
	add(newUnary, `(x: T) -> (y: T); T: float_type`, "Erf", "Erfc", "Floor", "Ceil", "Rint")
	add(newUnary, `(x: T) -> (y: bool); T: float_type`, "IsNan", "IsInf", "IsFinite")
	add(newUnary, `(x: T) -> (y: T); T: bits`, "Invert")
	add(newUnary, `(features: T) -> (activations: T); T: real`, "Relu6")
	add(newUnary, `(features: T) -> (activations: T); T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, `+
		`uint32, uint64, qint8}`, "Relu")
	add(newUnary, `(features: T) -> (activations: T); T: float_type`, "Softplus", "Softsign", "Elu", "Selu")
	entries = append(entries, entry{`LogicalNot(x: bool) -> (y: bool)`, always(notKernel)})

	add(newBinary, `(x: T, y: T) -> (z: T); T: {`+all+`}`, "Sub", "Div", "RealDiv", "FloorDiv", "TruncateDiv")
	add(newBinary, `(x: T, y: T) -> (z: T); T: {`+all+`}; commutative`, "Mul")
	add(newBinary, `(x: T, y: T) -> (z: T); T: {`+all+`}; commutative; aggregate`, "AddV2")
	add(newBinary, `(x: T, y: T) -> (z: T); T: {bfloat16, half, float, double, uint8, int8, int16, int32, int64, complex64, `+
		`complex128, string}`, "Add")
	add(newBinary, `(x: T, y: T) -> (z: T); T: analytic`, "DivNoNan", "MulNoNan")
	add(newBinary, `(x: T, y: T) -> (z: T); T: {`+signed+`, complex64, complex128}`, "Pow")
	add(newBinary, `(x: T, y: T) -> (z: T); T: real`, "FloorMod", "Maximum", "Minimum")
	add(newBinary, `(x: T, y: T) -> (z: T); T: {int32, int64, bfloat16, half, float, double}`, "Mod", "TruncateMod")
	add(newBinary, `(x: T, y: T) -> (z: T); T: {bfloat16, half, float, double, int32, int64, complex64, complex128}; commutative`,
		"SquaredDifference")
	add(newBinary, `(y: T, x: T) -> (z: T); T: float_type`, "Atan2")
	add(newBinary, `(x: T, y: T) -> (z: T); T: bits; commutative`, "BitwiseAnd", "BitwiseOr", "BitwiseXor")
	add(newBinary, `(x: T, y: T) -> (z: bool); T: real`, "Less", "LessEqual", "Greater", "GreaterEqual")
	add(newEqual, `(x: T, y: T) -> (z: bool); T: type; incompatible_shape_error: bool = true; commutative`, "Equal", "NotEqual")
	add(newLogical, `(x: bool, y: bool) -> (z: bool); commutative`, "LogicalAnd", "LogicalOr")
	add(newBinary, `(y: T, dy: T) -> (z: T); T: analytic`, "TanhGrad", "SigmoidGrad", "SqrtGrad", "RsqrtGrad", "InvGrad", "ReciprocalGrad")
	add(newBinary, `(gradients: T, features: T) -> (backprops: T); T: real`, "ReluGrad", "Relu6Grad")
	add(newBinary, `(gradients: T, outputs: T) -> (backprops: T); T: float_type`, "EluGrad", "SeluGrad")
	add(newBinary, `(gradients: T, features: T) -> (backprops: T); T: float_type`, "SoftplusGrad", "SoftsignGrad")
	return append(entries,
		entry{`AddN(inputs: N*T) -> (sum: T); N: int >= 1; T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, ` +
			`quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64, variant}; commutative; aggregate`, newAddN},
		entry{`ClipByValue(t: T, clip_value_min: T, clip_value_max: T) -> (output: T); T: number`, newClip},
		entry{`CheckNumerics(tensor: T) -> (output: T); T: float_type; message: string; stateful`, smallFloats(newCheckNumerics)},
		entry{`Select(condition: bool, t: T, e: T) -> (output: T); T: type`, newSelect},
		entry{`SelectV2(condition: bool, t: T, e: T) -> (output: T); T: type`, newSelectV2},
		entry{`Where(input: T) -> (index: int64); T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, ` +
			`qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64, bool} = bool`, newWhere},
	)
}

func newLogical(op string) NewFunc {
	return func(*graph.Node, *State) (graph.Kernel, error) { return findBinary(op, tensor.Bool) }
}

// newEqual makes the kernels of Equal and NotEqual. By an attribute tensors whose shapes do not fit
// are just not equal.
func newEqual(op string) NewFunc {
	return func(n *graph.Node, _ *State) (graph.Kernel, error) {
		if n.Type("T") == tensor.String {
			return graph.KernelFunc(func(c *graph.Context) error { return equalStrings(c, op == "Equal") }), nil
		}
		k, err := findBinary(op, n.Type("T"))
		if err != nil || n.Bool("incompatible_shape_error") {
			return k, err
		}
		return graph.KernelFunc(func(c *graph.Context) error {
			if _, err := newBroadcast(c.Input(0).Shape(), c.Input(1).Shape()); err == nil {
				return k.Compute(c)
			}
			t, err := scalarTensor(c, op == "NotEqual")
			if err == nil {
				c.Set(0, t)
			}
			return err
		}), nil
	}
}

func equalStrings(c *graph.Context, equal bool) error {
	x, y := c.Input(0), c.Input(1)
	b, err := newBroadcast(x.Shape(), y.Shape())
	if err != nil {
		return err
	}
	out, err := setOutput[bool](c, 0, b.shape)
	if err != nil {
		return err
	}
	wx, wy := newWalker(x.Shape(), b.shape), newWalker(y.Shape(), b.shape)
	for i := range out {
		out[i] = (x.Elements()[wx.offset] == y.Elements()[wy.offset]) == equal
		wx.next()
		wy.next()
	}
	return nil
}

// newAddN makes the kernel of AddN: the sum of tensors of one shape.
func newAddN(n *graph.Node, _ *State) (graph.Kernel, error) {
	if n.Type("T") == tensor.Variant {
		return graph.KernelFunc(listSum), nil
	}
	add, err := vectorFunc("Add", n.Type("T"))
	if err != nil {
		return nil, err
	}
	return graph.KernelFunc(func(c *graph.Context) error {
		first := c.Input(0)
		for i := range c.Inputs {
			if t := c.Input(i); !t.Shape().Equal(first.Shape()) {
				return invalid("Inputs to operation %s of type AddN must have the same size and shape.  Input 0: %s != input %d: %s",
					c.Node.Name, first.Shape(), i, t.Shape())
			}
		}
		if len(c.Inputs) == 1 {
			c.Forward(0, 0)
			return nil
		}
		sum, err := c.Allocate(first.DType(), first.Shape())
		if err != nil {
			return err
		}
		c.Set(0, sum)
		last := first
		for i := 1; i < len(c.Inputs); i++ {
			if err := add(sum, last, c.Input(i)); err != nil {
				return err
			}
			last = sum
		}
		return nil
	}), nil
}

// newClip makes the kernel of ClipByValue from Minimum and Maximum.
func newClip(n *graph.Node, _ *State) (graph.Kernel, error) {
	upper, err := findBinary("Minimum", n.Type("T"))
	if err != nil {
		return nil, err
	}
	lower, err := findBinary("Maximum", n.Type("T"))
	if err != nil {
		return nil, err
	}
	return graph.KernelFunc(func(c *graph.Context) error {
		for _, i := range []int{1, 2} {
			if s := c.Input(i).Shape(); s.Elements() != 1 && !s.Equal(c.Input(0).Shape()) {
				return invalid("%s must be a scalar or have the shape %s, but has %s", argName(c, i), c.Input(0).Shape(), s)
			}
		}
		sub := *c
		sub.Inputs, sub.Outputs = []graph.Value{c.Inputs[0], c.Inputs[2]}, make([]graph.Value, 1)
		if err := upper.Compute(&sub); err != nil {
			return err
		}
		clipped := sub.Outputs[0]
		defer clipped.Release()
		sub.Inputs, sub.Outputs = []graph.Value{clipped, c.Inputs[1]}, c.Outputs
		return lower.Compute(&sub)
	}), nil
}

func newCheckNumerics(n *graph.Node, _ *State) (graph.Kernel, error) {
	if n.Type("T") == tensor.Float64 {
		return graph.KernelFunc(checkNumerics[float64]), nil
	}
	return graph.KernelFunc(checkNumerics[float32]), nil
}

func checkNumerics[T float](c *graph.Context) error {
	x, err := inputOf[T](c, 0)
	if err != nil {
		return err
	}
	nan, inf := false, false
	for _, v := range x {
		if v-v != 0 { // true for infinity and what is not a number
			nan = nan || v != v
			inf = inf || v == v
		}
	}
	what := ""
	switch {
	case nan && inf:
		what = "Inf and NaN"
	case nan:
		what = "NaN"
	case inf:
		what = "Inf"
	default:
		c.Forward(0, 0)
		return nil
	}
	return invalid("%s : Tensor had %s values", c.Node.Text("message"), what)
}
