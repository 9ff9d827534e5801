package ops

import (
	"math"

	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

func castOps() []entry {
	const cast = `(x: SrcT) -> (y: DstT); SrcT: type; DstT: type; Truncate: bool = false`
	return []entry{
		{`Cast` + cast, newCast},
		{`_HostCast` + cast, newCast},
	}
}

func newCast(n *graph.Node, _ *State) (graph.Kernel, error) {
	src, dst := n.Type("SrcT"), n.Type("DstT")
	if src == dst {
		return graph.KernelFunc(forwardAll), nil
	}
	cast, err := findCast(src, dst)
	if err != nil {
		return nil, err
	}
	if n.Bool("Truncate") && isSmallFloat(dst) {
		return nil, noType("Truncate = true, DstT", dst)
	}
	return graph.KernelFunc(func(c *graph.Context) error {
		t, err := c.Allocate(dst, c.Input(0).Shape())
		if err != nil {
			return err
		}
		if dst == tensor.Bool {
			clear(t.Bytes())
		}
		c.Set(0, t)
		return cast(t, c.Input(0))
	}), nil
}

// castFunc sets the elements of to, which has the shape of from.
type castFunc func(to, from *tensor.Tensor) error

func findCast(src, dst tensor.DType) (castFunc, error) {
	var f castFunc
	switch src {
	case tensor.Float32:
		f = castReal[float32](dst)
	case tensor.Float64:
		f = castReal[float64](dst)
	case tensor.Int8:
		f = castReal[int8](dst)
	case tensor.Int16:
		f = castReal[int16](dst)
	case tensor.Int32:
		f = castReal[int32](dst)
	case tensor.Int64:
		f = castReal[int64](dst)
	case tensor.Uint8:
		f = castReal[uint8](dst)
	case tensor.Uint16:
		f = castReal[uint16](dst)
	case tensor.Uint32:
		f = castReal[uint32](dst)
	case tensor.Uint64:
		f = castReal[uint64](dst)
	case tensor.Bool:
		f = castBool(dst)
	case tensor.Float16:
		f = castSmall(dst, fromHalf)
	case tensor.BFloat16:
		f = castSmall(dst, fromBrain)
	case tensor.Complex64:
		f = castComplex[complex64](dst)
	case tensor.Complex128:
		f = castComplex[complex128](dst)
	}
	if f == nil {
		return nil, noType("SrcT = "+src.String()+", DstT", dst)
	}
	return f, nil
}

// castWith is a castFunc from the function of one element.
func castWith[S, D tensor.Element](f func(S) D) castFunc {
	return func(to, from *tensor.Tensor) error {
		out, err := tensor.Values[D](to)
		if err != nil {
			return err
		}
		return mapTensor(out, from, f)
	}
}

func castReal[S ordered](dst tensor.DType) castFunc {
	switch dst {
	case tensor.Float32:
		return castWith(func(x S) float32 { return float32(x) })
	case tensor.Float64:
		return castWith(func(x S) float64 { return float64(x) })
	case tensor.Int8:
		return castWith(func(x S) int8 { return int8(toInt(x)) })
	case tensor.Int16:
		return castWith(func(x S) int16 { return int16(toInt(x)) })
	case tensor.Int32:
		return castWith(toInt32[S])
	case tensor.Int64:
		return castWith(toInt[S])
	case tensor.Uint8:
		return castWith(func(x S) uint8 { return uint8(toInt(x)) })
	case tensor.Uint16:
		return castWith(func(x S) uint16 { return uint16(toInt(x)) })
	case tensor.Uint32:
		return castWith(func(x S) uint32 { return uint32(toInt(x)) })
	case tensor.Uint64:
		return castWith(toUint[S])
	case tensor.Bool:
		return castWith(func(x S) bool { return x != 0 })
	case tensor.Float16:
		return castWith(func(x S) tensor.Float16Bits { return toHalf(float32(x)) })
	case tensor.BFloat16:
		return castWith(func(x S) tensor.BFloat16Bits { return toBrain(float32(x)) })
	case tensor.Complex64:
		return castWith(func(x S) complex64 { return complex(float32(x), 0) })
	case tensor.Complex128:
		return castWith(func(x S) complex128 { return complex(float64(x), 0) })
	}
	return nil
}

// toInt converts as x86-64 does, on every machine: a float that int64 does not hold is the least int64.
func toInt[S ordered](x S) int64 {
	if f := float64(x); f != f || f >= math.MaxInt64 || f < math.MinInt64 {
		if S(1)/S(2) == 0 { // an integer
			return int64(x)
		}
		return math.MinInt64
	}
	return int64(x)
}

// toInt32 is toInt for int32.
func toInt32[S ordered](x S) int32 {
	if S(1)/S(2) != 0 {
		if f := float64(x); f != f || f >= 1<<31 || f <= -(1<<31)-1 {
			return math.MinInt32
		}
	}
	return int32(toInt(x))
}

func toUint[S ordered](x S) uint64 {
	if f := float64(x); f >= 1<<63 && f < 1<<64 {
		return uint64(x)
	}
	return uint64(toInt(x))
}

func castBool(dst tensor.DType) castFunc {
	toByte := func(b bool) uint8 {
		if b {
			return 1
		}
		return 0
	}
	inner := castReal[uint8](dst)
	if inner == nil {
		return nil
	}
	return func(to, from *tensor.Tensor) error {
		bytes, err := tensor.FromBytes(tensor.Uint8, from.Shape(), make([]byte, from.Shape().Elements()))
		if err != nil {
			return err
		}
		if err := castWith(toByte)(bytes, from); err != nil {
			return err
		}
		return inner(to, bytes)
	}
}

func castSmall[S tensor.Float16Bits | tensor.BFloat16Bits](dst tensor.DType, wide func(S) float32) castFunc {
	switch dst {
	case tensor.Float32:
		return castWith(wide)
	case tensor.Float64:
		return castWith(func(x S) float64 { return float64(wide(x)) })
	case tensor.Float16:
		return castWith(func(x S) tensor.Float16Bits { return toHalf(wide(x)) })
	case tensor.BFloat16:
		return castWith(func(x S) tensor.BFloat16Bits { return toBrain(wide(x)) })
	case tensor.Int32:
		return castWith(func(x S) int32 { return toInt32(wide(x)) })
	case tensor.Int64:
		return castWith(func(x S) int64 { return toInt(wide(x)) })
	case tensor.Uint8:
		return castWith(func(x S) uint8 { return uint8(toInt(wide(x))) })
	case tensor.Int8:
		return castWith(func(x S) int8 { return int8(toInt(wide(x))) })
	case tensor.Int16:
		return castWith(func(x S) int16 { return int16(toInt(wide(x))) })
	case tensor.Uint16:
		return castWith(func(x S) uint16 { return uint16(toInt(wide(x))) })
	case tensor.Bool:
		return castWith(func(x S) bool { return wide(x) != 0 })
	}
	return nil
}

func castComplex[S complex64 | complex128](dst tensor.DType) castFunc {
	switch dst {
	case tensor.Complex64:
		return castWith(func(x S) complex64 { return complex64(x) })
	case tensor.Complex128:
		return castWith(func(x S) complex128 { return complex128(x) })
	case tensor.Float32:
		return castWith(func(x S) float32 { return float32(real(complex128(x))) })
	case tensor.Float64:
		return castWith(func(x S) float64 { return real(complex128(x)) })
	}
	return nil
}
