package ops

import (
	"math"

	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

type (
	float interface{ float32 | float64 }
	// integer and ordered have the types that Go computes with.
	integer interface {
		int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64
	}
	ordered interface{ integer | float }
	number  interface {
		ordered | complex64 | complex128
	}
)

// loops computes an op of two operands for runs of elements: two vectors, or a vector and a scalar.
type loops[T, R tensor.Element] struct {
	vv func(z []R, x, y []T)
	vs func(z []R, x []T, y T)
	sv func(z []R, x T, y []T)
	// check, if not nil, refuses values of y.
	check func(y []T) error
}

// each returns the loops of a function of two elements.
func each[T, R tensor.Element](f func(x, y T) R) loops[T, R] {
	return loops[T, R]{
		vv: func(z []R, x, y []T) {
			x, y = x[:len(z)], y[:len(z)]
			for i := range z {
				z[i] = f(x[i], y[i])
			}
		},
		vs: func(z []R, x []T, y T) {
			x = x[:len(z)]
			for i := range z {
				z[i] = f(x[i], y)
			}
		},
		sv: func(z []R, x T, y []T) {
			y = y[:len(z)]
			for i := range z {
				z[i] = f(x, y[i])
			}
		},
	}
}

// binaryOp is a kernel of two operands.
type binaryOp interface {
	graph.Kernel
	// apply sets z to the result for x and y, all of one shape. z may be x.
	apply(z, x, y *tensor.Tensor) error
	// rows is a rowFunc.
	rows(z, y *tensor.Tensor, one bool) (func(at, off, n int64), error)
}

type binaryKernel[T, R tensor.Element] struct{ loops[T, R] }

// Compute implements graph.Kernel.
func (k *binaryKernel[T, R]) Compute(c *graph.Context) error {
	x, err := inputOf[T](c, 0)
	if err != nil {
		return err
	}
	y, err := inputOf[T](c, 1)
	if err != nil {
		return err
	}
	if k.check != nil {
		if err := k.check(y); err != nil {
			return err
		}
	}
	sx, sy := c.Input(0).Shape(), c.Input(1).Shape()
	shape := sx
	switch {
	case sx.Equal(sy):
	case len(y) == 1 && sy.Rank() <= sx.Rank():
	case len(x) == 1 && sx.Rank() <= sy.Rank():
		shape = sy
	default:
		return k.broadcast(c, x, y)
	}
	z, err := reuseOutput[R](c, 0, shape, 0, 1)
	if err != nil {
		return err
	}
	if len(z) < 2*grain { // without the closure, which takes as long as a small vector
		k.run(z, x, y)
		return nil
	}
	parallel(len(z), func(from, to int) { k.run(z[from:to], part(x, from, to), part(y, from, to)) })
	return nil
}

// part returns a part of a vector; one element stands for all.
func part[T any](v []T, from, to int) []T {
	if len(v) == 1 {
		return v
	}
	return v[from:to]
}

// run computes z from vectors of its length, one of which may be one element.
func (k *binaryKernel[T, R]) run(z []R, x, y []T) {
	switch {
	case len(x) == len(z) && len(y) == len(z):
		k.vv(z, x, y)
	case len(y) == 1:
		k.vs(z, x, y[0])
	default:
		k.sv(z, x[0], y)
	}
}

func (k *binaryKernel[T, R]) broadcast(c *graph.Context, x, y []T) error {
	b, err := newBroadcast(c.Input(0).Shape(), c.Input(1).Shape())
	if err != nil {
		return err
	}
	z, err := setOutput[R](c, 0, b.shape)
	if err != nil || len(z) == 0 {
		return err
	}
	last := len(b.dims) - 1
	repeatX, repeatY := b.x[last] == 0, b.y[last] == 0
	b.rows(func(iz, ix, iy, n int64) {
		switch {
		case repeatX && !repeatY:
			k.sv(z[iz:iz+n], x[ix], y[iy:iy+n])
		case repeatY && !repeatX:
			k.vs(z[iz:iz+n], x[ix:ix+n], y[iy])
		default:
			k.vv(z[iz:iz+n], x[ix:ix+n], y[iy:iy+n])
		}
	})
	return nil
}

func (k *binaryKernel[T, R]) apply(z, x, y *tensor.Tensor) error {
	vz, err := tensor.Values[R](z)
	if err != nil {
		return err
	}
	vx, err := tensor.Values[T](x)
	if err != nil {
		return err
	}
	vy, err := tensor.Values[T](y)
	if err != nil {
		return err
	}
	if k.check != nil {
		if err := k.check(vy); err != nil {
			return err
		}
	}
	parallel(len(vz), func(from, to int) { k.vv(vz[from:to], vx[from:to], vy[from:to]) })
	return nil
}

// newBinary makes the kernels of an op of two operands by the type of the attribute T.
func newBinary(op string) NewFunc {
	return func(n *graph.Node, _ *State) (graph.Kernel, error) { return findBinary(op, n.Type("T")) }
}

// vectorFunc returns the function z = x op y for tensors of one shape.
func vectorFunc(op string, d tensor.DType) (func(z, x, y *tensor.Tensor) error, error) {
	k, err := findBinary(op, d)
	if err != nil {
		return nil, err
	}
	return k.apply, nil
}

func findBinary(op string, d tensor.DType) (binaryOp, error) {
	var k binaryOp
	switch d {
	case tensor.Float32:
		k = floatBinary[float32](op)
	case tensor.Float64:
		k = floatBinary[float64](op)
	case tensor.Int8:
		k = integerBinary[int8](op)
	case tensor.Int16:
		k = integerBinary[int16](op)
	case tensor.Int32:
		k = integerBinary[int32](op)
	case tensor.Int64:
		k = integerBinary[int64](op)
	case tensor.Uint8:
		k = integerBinary[uint8](op)
	case tensor.Uint16:
		k = integerBinary[uint16](op)
	case tensor.Uint32:
		k = integerBinary[uint32](op)
	case tensor.Uint64:
		k = integerBinary[uint64](op)
	case tensor.Float16:
		k = smallBinary(op, fromHalf, toHalf)
	case tensor.BFloat16:
		k = smallBinary(op, fromBrain, toBrain)
	case tensor.Complex64:
		k = complexBinary[complex64](op)
	case tensor.Complex128:
		k = complexBinary[complex128](op)
	case tensor.Bool:
		k = boolBinary(op)
	}
	if k == nil {
		return nil, noType("T", d)
	}
	return k, nil
}

func boolBinary(op string) binaryOp {
	if f, ok := map[string]func(x, y bool) bool{
		"Equal": func(x, y bool) bool { return x == y }, "NotEqual": func(x, y bool) bool { return x != y },
		"LogicalAnd": func(x, y bool) bool { return x && y }, "LogicalOr": func(x, y bool) bool { return x || y },
	}[op]; ok {
		return &binaryKernel[bool, bool]{each(f)}
	}
	return nil
}

// smallBinary computes with 16-bit floats in float. Where an op has two steps, the result of the first
// is rounded, as in TensorFlow: the second may magnify the difference.
func smallBinary[T tensor.Float16Bits | tensor.BFloat16Bits](op string, from func(T) float32, to func(float32) T) binaryOp {
	switch op {
	case "SquaredDifference":
		return &binaryKernel[T, T]{each(func(x, y T) T {
			d := from(to(from(x) - from(y)))
			return to(d * d)
		})}
	case "FloorDiv":
		return &binaryKernel[T, T]{each(func(x, y T) T {
			return to(float32(math.Floor(float64(from(to(from(x) / from(y)))))))
		})}
	}
	switch k := floatBinary[float32](op).(type) {
	case *binaryKernel[float32, float32]:
		f := k.scalar()
		return &binaryKernel[T, T]{each(func(x, y T) T { return to(f(from(x), from(y))) })}
	case *binaryKernel[float32, bool]:
		f := k.scalar()
		return &binaryKernel[T, bool]{each(func(x, y T) bool { return f(from(x), from(y)) })}
	}
	return nil
}

// scalar returns the function of two elements that the loops compute.
func (l loops[T, R]) scalar() func(x, y T) R {
	return func(x, y T) R {
		var z [1]R
		l.vs(z[:], []T{x}, y)
		return z[0]
	}
}
