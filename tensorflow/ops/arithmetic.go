package ops

import (
	"math"
	"slices"
)

// basic returns the loops of the four operations, which compilers translate best when they are
// written out.
func basic[T number](op string) (loops[T, T], bool) {
	switch op {
	case "Add", "AddV2":
		return addLoops[T](), true
	case "Sub":
		return subLoops[T](), true
	case "Mul":
		return mulLoops[T](), true
	}
	return loops[T, T]{}, false
}

func addLoops[T number]() loops[T, T] {
	vs := func(z, x []T, y T) {
		x = x[:len(z)]
		for i := range z {
			z[i] = x[i] + y
		}
	}
	return loops[T, T]{
		vv: func(z, x, y []T) {
			x, y = x[:len(z)], y[:len(z)]
			for i := range z {
				z[i] = x[i] + y[i]
			}
		},
		vs: vs, sv: func(z []T, x T, y []T) { vs(z, y, x) },
	}
}

func subLoops[T number]() loops[T, T] {
	return loops[T, T]{
		vv: func(z, x, y []T) {
			x, y = x[:len(z)], y[:len(z)]
			for i := range z {
				z[i] = x[i] - y[i]
			}
		},
		vs: func(z, x []T, y T) {
			x = x[:len(z)]
			for i := range z {
				z[i] = x[i] - y
			}
		},
		sv: func(z []T, x T, y []T) {
			y = y[:len(z)]
			for i := range z {
				z[i] = x - y[i]
			}
		},
	}
}

func mulLoops[T number]() loops[T, T] {
	vs := func(z, x []T, y T) {
		x = x[:len(z)]
		for i := range z {
			z[i] = x[i] * y
		}
	}
	return loops[T, T]{
		vv: func(z, x, y []T) {
			x, y = x[:len(z)], y[:len(z)]
			for i := range z {
				z[i] = x[i] * y[i]
			}
		},
		vs: vs, sv: func(z []T, x T, y []T) { vs(z, y, x) },
	}
}

func complexBinary[T complex64 | complex128](op string) binaryOp {
	if l, ok := basic[T](op); ok {
		return &binaryKernel[T, T]{l}
	}
	switch op {
	case "Div", "RealDiv":
		return &binaryKernel[T, T]{each(func(x, y T) T { return x / y })}
	case "Equal":
		return &binaryKernel[T, bool]{each(func(x, y T) bool { return x == y })}
	case "NotEqual":
		return &binaryKernel[T, bool]{each(func(x, y T) bool { return x != y })}
	}
	return nil
}

// compare returns the comparisons of ordered elements.
func compare[T ordered](op string) binaryOp {
	var f func(x, y T) bool
	switch op {
	case "Equal":
		f = func(x, y T) bool { return x == y }
	case "NotEqual":
		f = func(x, y T) bool { return x != y }
	case "Less":
		f = func(x, y T) bool { return x < y }
	case "LessEqual":
		f = func(x, y T) bool { return x <= y }
	case "Greater":
		f = func(x, y T) bool { return x > y }
	case "GreaterEqual":
		f = func(x, y T) bool { return x >= y }
	default:
		return nil
	}
	return &binaryKernel[T, bool]{each(f)}
}

// realFunc returns the functions that are the same for integers and floats.
func realFunc[T ordered](op string) func(x, y T) T {
	switch op {
	case "Maximum":
		return func(x, y T) T { return max(x, y) }
	case "Minimum":
		return func(x, y T) T { return min(x, y) }
	case "SquaredDifference":
		return func(x, y T) T { return (x - y) * (x - y) }
	case "MulNoNan":
		return func(x, y T) T {
			if y == 0 {
				return 0
			}
			return x * y
		}
	case "ReluGrad": // gradients, features
		return func(x, y T) T {
			if y > 0 {
				return x
			}
			return 0
		}
	case "Relu6Grad":
		return func(x, y T) T {
			if y > 0 && y < 6 {
				return x
			}
			return 0
		}
	}
	return nil
}

func integerBinary[T integer](op string) binaryOp {
	if l, ok := basic[T](op); ok {
		return &binaryKernel[T, T]{l}
	}
	if k := compare[T](op); k != nil {
		return k
	}
	if f := realFunc[T](op); f != nil {
		return &binaryKernel[T, T]{each(f)}
	}
	return integerDivision[T](op)
}

func integerDivision[T integer](op string) binaryOp {
	check := func(y []T) error {
		if slices.Contains(y, 0) {
			return invalid("Integer division by zero")
		}
		return nil
	}
	var f func(x, y T) T
	switch op {
	case "Div", "TruncateDiv":
		f = func(x, y T) T { return x / y }
	case "FloorDiv":
		f = func(x, y T) T {
			if q := x / y; x%y != 0 && x < 0 != (y < 0) {
				return q - 1
			}
			return x / y
		}
	case "Mod", "TruncateMod":
		f = func(x, y T) T { return x % y }
	case "FloorMod":
		f = func(x, y T) T {
			m := x % y
			if m != 0 && m < 0 != (y < 0) {
				return m + y
			}
			return m
		}
	case "BitwiseAnd":
		return &binaryKernel[T, T]{each(func(x, y T) T { return x & y })}
	case "BitwiseOr":
		return &binaryKernel[T, T]{each(func(x, y T) T { return x | y })}
	case "BitwiseXor":
		return &binaryKernel[T, T]{each(func(x, y T) T { return x ^ y })}
	case "Pow":
		return integerPower[T]()
	default:
		return nil
	}
	l := each(f)
	l.check = check
	return &binaryKernel[T, T]{l}
}

func integerPower[T integer]() binaryOp {
	l := each(func(x, y T) T {
		z := T(1)
		for ; y > 0; y >>= 1 {
			if y&1 != 0 {
				z *= x
			}
			x *= x
		}
		return z
	})
	l.check = func(y []T) error {
		for _, v := range y {
			if v < 0 {
				return invalid("Integers to negative integer powers are not allowed")
			}
		}
		return nil
	}
	return &binaryKernel[T, T]{l}
}

func floatBinary[T float](op string) binaryOp {
	if l, ok := basic[T](op); ok {
		return &binaryKernel[T, T]{l}
	}
	if k := compare[T](op); k != nil {
		return k
	}
	if f := realFunc[T](op); f != nil {
		return &binaryKernel[T, T]{each(f)}
	}
	if op == "Div" || op == "RealDiv" {
		return &binaryKernel[T, T]{divLoops[T]()}
	}
	if f := floatFunc[T](op); f != nil {
		return &binaryKernel[T, T]{each(f)}
	}
	if f := floatGrad[T](op); f != nil {
		return &binaryKernel[T, T]{each(f)}
	}
	return nil
}

func divLoops[T float]() loops[T, T] {
	l := each(func(x, y T) T { return x / y })
	l.vv = func(z, x, y []T) {
		x, y = x[:len(z)], y[:len(z)]
		for i := range z {
			z[i] = x[i] / y[i]
		}
	}
	l.vs = func(z, x []T, y T) {
		x = x[:len(z)]
		for i := range z {
			z[i] = x[i] / y
		}
	}
	return l
}

func floatFunc[T float](op string) func(x, y T) T {
	switch op {
	case "DivNoNan":
		return func(x, y T) T {
			if y == 0 {
				return 0
			}
			return x / y
		}
	case "FloorDiv":
		return func(x, y T) T { return T(math.Floor(float64(x / y))) }
	case "TruncateDiv":
		return func(x, y T) T { return T(math.Trunc(float64(x / y))) }
	case "Mod", "TruncateMod":
		return func(x, y T) T { return T(math.Mod(float64(x), float64(y))) }
	case "FloorMod":
		return func(x, y T) T {
			m := T(math.Mod(float64(x), float64(y)))
			if m != 0 && (m < 0) != (y < 0) {
				return m + y
			}
			return m
		}
	case "Pow":
		return func(x, y T) T { return T(math.Pow(float64(x), float64(y))) }
	case "Atan2":
		return func(x, y T) T { return T(math.Atan2(float64(x), float64(y))) }
	}
	return nil
}

// floatGrad returns the gradients of unary functions, with the operands of their ops.
func floatGrad[T float](op string) func(x, y T) T {
	switch op {
	case "TanhGrad": // y, dy
		return func(x, y T) T { return y * (1 - x*x) }
	case "SigmoidGrad":
		return func(x, y T) T { return y * x * (1 - x) }
	case "SqrtGrad":
		return func(x, y T) T { return y * 0.5 / x }
	case "RsqrtGrad":
		return func(x, y T) T { return y * -0.5 * x * x * x }
	case "InvGrad", "ReciprocalGrad":
		return func(x, y T) T { return -y * x * x }
	case "EluGrad": // gradients, outputs
		return func(x, y T) T {
			if y < 0 {
				return (y + 1) * x
			}
			return x
		}
	case "SeluGrad":
		const scale, alpha = 1.0507009873554804934193349852946, 1.7580993408473768599402175208123
		return func(x, y T) T {
			if y < 0 {
				return x * (y + alpha)
			}
			return x * scale
		}
	case "SoftsignGrad": // gradients, features
		return func(x, y T) T { return x / ((1 + max(y, -y)) * (1 + max(y, -y))) }
	case "SoftplusGrad": // gradients, features
		return func(x, y T) T { return x / T(math.Exp(float64(-y))+1) }
	}
	return nil
}
