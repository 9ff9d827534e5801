package ops

import (
	"math"

	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// unaryKernel computes one function of each element.
type unaryKernel[T, R tensor.Element] struct {
	f    func(x T) R
	cost int // of one element, beside an addition
}

// Compute implements graph.Kernel.
func (k *unaryKernel[T, R]) Compute(c *graph.Context) error {
	x, err := inputOf[T](c, 0)
	if err != nil {
		return err
	}
	z, err := reuseOutput[R](c, 0, c.Input(0).Shape(), 0)
	if err != nil {
		return err
	}
	if len(z)*k.cost < 2*grain {
		k.run(z, x)
		return nil
	}
	parallelCost(len(z), k.cost, func(from, to int) { k.run(z[from:to], x[from:to]) })
	return nil
}

func (k *unaryKernel[T, R]) run(z []R, x []T) {
	z = z[:len(x)]
	for i, v := range x {
		z[i] = k.f(v)
	}
}

// newUnary makes the kernels of an op of one operand by the type of the attribute T.
func newUnary(op string) NewFunc {
	return smallFloats(func(n *graph.Node, _ *State) (graph.Kernel, error) {
		d := n.Type("T")
		var k graph.Kernel
		switch d {
		case tensor.Float32:
			k = floatUnary[float32](op)
		case tensor.Float64:
			k = floatUnary[float64](op)
		case tensor.Int8:
			k = integerUnary[int8](op)
		case tensor.Int16:
			k = integerUnary[int16](op)
		case tensor.Int32:
			k = integerUnary[int32](op)
		case tensor.Int64:
			k = integerUnary[int64](op)
		case tensor.Uint8:
			k = integerUnary[uint8](op)
		case tensor.Uint16:
			k = integerUnary[uint16](op)
		case tensor.Uint32:
			k = integerUnary[uint32](op)
		case tensor.Uint64:
			k = integerUnary[uint64](op)
		}
		if k == nil {
			return nil, noType("T", d)
		}
		return k, nil
	})
}

func integerUnary[T integer](op string) graph.Kernel {
	if f := simpleUnary[T](op); f != nil {
		return &unaryKernel[T, T]{f, 1}
	}
	if op == "Invert" {
		return &unaryKernel[T, T]{func(x T) T { return ^x }, 1}
	}
	return nil
}

// simpleUnary returns the functions that are the same for integers and floats.
func simpleUnary[T ordered](op string) func(x T) T {
	switch op {
	case "Neg":
		return func(x T) T { return -x }
	case "Square":
		return func(x T) T { return x * x }
	case "Abs":
		return func(x T) T {
			if x < 0 {
				return -x
			}
			return x
		}
	case "Sign":
		return func(x T) T {
			if x > 0 {
				return 1
			}
			if x < 0 {
				return T(0) - 1
			}
			if x == 0 {
				return 0 // also of −0
			}
			return x // not a number
		}
	case "Relu":
		return func(x T) T {
			if x < 0 {
				return 0
			}
			return x
		}
	case "Relu6":
		return func(x T) T { return min(max(x, 0), 6) }
	}
	return nil
}

func floatUnary[T float](op string) graph.Kernel {
	if op == "Abs" { // −0 and what is not a number lose their sign
		return &unaryKernel[T, T]{func(x T) T { return T(math.Abs(float64(x))) }, 1}
	}
	if f := simpleUnary[T](op); f != nil {
		return &unaryKernel[T, T]{f, 1}
	}
	if f := floatTest(op); f != nil {
		return &unaryKernel[T, bool]{func(x T) bool { return f(float64(x)) }, 1}
	}
	switch op {
	case "Sqrt":
		return &unaryKernel[T, T]{sqrt[T], 4}
	case "Rsqrt":
		return &unaryKernel[T, T]{func(x T) T { return T(1 / math.Sqrt(float64(x))) }, 4}
	case "Inv", "Reciprocal":
		return &unaryKernel[T, T]{func(x T) T { return 1 / x }, 2}
	}
	if f := mathFunc(op); f != nil {
		return &unaryKernel[T, T]{func(x T) T { return T(f(float64(x))) }, 16}
	}
	return nil
}

func floatTest(op string) func(float64) bool {
	switch op {
	case "IsNan":
		return math.IsNaN
	case "IsInf":
		return func(x float64) bool { return math.IsInf(x, 0) }
	case "IsFinite":
		return func(x float64) bool { return x-x == 0 }
	}
	return nil
}

// mathFunc returns a function of the real numbers. The result of float is rounded once.
func mathFunc(op string) func(float64) float64 {
	return map[string]func(float64) float64{
		"Exp": math.Exp, "Log": math.Log, "Log1p": math.Log1p, "Expm1": math.Expm1, "Tanh": math.Tanh, "Erf": math.Erf,
		"Erfc": math.Erfc, "Sin": math.Sin, "Cos": math.Cos, "Tan": math.Tan, "Asin": math.Asin, "Acos": math.Acos,
		"Atan": math.Atan, "Sinh": math.Sinh, "Cosh": math.Cosh, "Asinh": math.Asinh, "Acosh": math.Acosh, "Atanh": math.Atanh,
		"Floor": math.Floor, "Ceil": math.Ceil, "Round": math.RoundToEven, "Rint": math.RoundToEven,
		"Sigmoid": func(x float64) float64 { return 1 / (1 + math.Exp(-x)) },
		"Softplus": func(x float64) float64 {
			if x > 30 { // the logarithm of 1 + eˣ is x to the last bit of a float
				return x + math.Exp(-x)
			}
			return math.Log1p(math.Exp(x))
		},
		"Softsign": func(x float64) float64 { return x / (1 + math.Abs(x)) },
		"Elu": func(x float64) float64 {
			if x < 0 {
				return math.Expm1(x)
			}
			return x
		},
		"Selu": func(x float64) float64 {
			const scale, alpha = 1.0507009873554804934193349852946, 1.7580993408473768599402175208123
			if x < 0 {
				return alpha * math.Expm1(x)
			}
			return scale * x
		},
	}[op]
}

func notKernel(c *graph.Context) error {
	k := unaryKernel[bool, bool]{func(x bool) bool { return !x }, 1}
	return k.Compute(c)
}
