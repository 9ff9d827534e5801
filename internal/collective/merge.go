package collective

import (
	"math"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// Merge is how an all-reduce merges the elements of the members.
type Merge int

// The values of Merge, with the names that TensorFlow's attribute merge_op has. Mean is a sum that
// is divided by the number of members.
const (
	Add Merge = iota
	Mul
	Min
	Max
	Mean
)

// String returns the name.
func (m Merge) String() string {
	if m < 0 || int(m) >= len(mergeNames) {
		return "Merge(?)"
	}
	return mergeNames[m]
}

var mergeNames = [...]string{"Add", "Mul", "Min", "Max", "Mean"}

// parseMerge returns the Merge of the attributes merge_op and final_op.
func parseMerge(mergeOp, finalOp string) (m Merge, divide bool, err error) {
	switch finalOp {
	case "Id":
	case "Div":
		divide = true
	default:
		return 0, false, status.Errorf(status.InvalidArgument, "final_op must be one of {\"Id\", \"Div\"} but got %s", finalOp)
	}
	for m := Add; m <= Max; m++ {
		if m.String() == mergeOp {
			return m, divide, nil
		}
	}
	return 0, false, status.Errorf(status.InvalidArgument, "merge_op must be one of {\"Min\", \"Max\", \"Mul\", \"Add\"} but got %s", mergeOp)
}

// arithmetic computes on the elements of one type. All slices have the same number of elements.
type arithmetic struct {
	// merge stores the merged elements of own and other in dst, which may be one of them.
	merge func(m Merge, dst, own, other *tensor.Tensor) error
	// divide divides each element by n.
	divide func(t *tensor.Tensor, n int) error
}

// arithmeticOf returns the arithmetic of a type; InvalidArgument for a type that TensorFlow's
// all-reduce does not have either.
func arithmeticOf(d tensor.DType) (arithmetic, error) {
	switch d {
	case tensor.Float32:
		return arithmeticFor[float32](), nil
	case tensor.Float64:
		return arithmeticFor[float64](), nil
	case tensor.Int32:
		return arithmeticFor[int32](), nil
	case tensor.Int64:
		return arithmeticFor[int64](), nil
	case tensor.Float16:
		return arithmeticOf16(func(h tensor.Float16Bits) float32 { return halfToFloat(uint16(h)) },
			func(f float32) tensor.Float16Bits { return tensor.Float16Bits(floatToHalf(f)) }), nil
	case tensor.BFloat16:
		return arithmeticOf16(func(b tensor.BFloat16Bits) float32 { return math.Float32frombits(uint32(b) << 16) }, floatToBrain), nil
	}
	return arithmetic{}, status.Errorf(status.InvalidArgument, "an all-reduce of %v is not possible; the types are float, double, half, bfloat16, int32 and int64", d)
}

type number interface {
	~float32 | ~float64 | ~int32 | ~int64
}

func arithmeticFor[T interface {
	number
	tensor.Element
}]() arithmetic {
	return arithmetic{
		merge: func(m Merge, dst, own, other *tensor.Tensor) error {
			d, a, b, err := values3[T](dst, own, other)
			if err == nil {
				mergeSlices(m, d, a, b)
			}
			return err
		},
		divide: func(t *tensor.Tensor, n int) error {
			v, err := tensor.Values[T](t)
			for i := range v {
				v[i] /= T(n)
			}
			return err
		},
	}
}

func values3[T tensor.Element](dst, own, other *tensor.Tensor) (d, a, b []T, err error) {
	if d, err = tensor.Values[T](dst); err != nil {
		return nil, nil, nil, err
	}
	if a, err = tensor.Values[T](own); err != nil {
		return nil, nil, nil, err
	}
	b, err = tensor.Values[T](other)
	return d, a, b, err
}

// mergeSlices merges a and b into dst.
func mergeSlices[T number](m Merge, dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	switch m {
	case Mul:
		for i := range dst {
			dst[i] = a[i] * b[i]
		}
	case Min:
		for i := range dst {
			dst[i] = minNumber(a[i], b[i])
		}
	case Max:
		for i := range dst {
			dst[i] = maxNumber(a[i], b[i])
		}
	default:
		for i := range dst {
			dst[i] = a[i] + b[i]
		}
	}
}

// minNumber is the smaller one; not-a-number if one of them is.
func minNumber[T number](a, b T) T {
	if a < b || a != a { //nolint:gocritic // a != a for not-a-number
		return a
	}
	return b
}

// maxNumber is the larger one; not-a-number if one of them is.
func maxNumber[T number](a, b T) T {
	if a > b || a != a { //nolint:gocritic // a != a for not-a-number
		return a
	}
	return b
}

// arithmeticOf16 computes on 16-bit floats as TensorFlow does: each operation in float32, then
// rounded.
func arithmeticOf16[T interface {
	~uint16
	tensor.Element
}](wide func(T) float32, narrow func(float32) T) arithmetic {
	return arithmetic{
		merge: func(m Merge, dst, own, other *tensor.Tensor) error {
			d, a, b, err := values3[T](dst, own, other)
			if err != nil {
				return err
			}
			for i := range d {
				x, y := wide(a[i]), wide(b[i])
				switch m {
				case Mul:
					x *= y
				case Min:
					x = minNumber(x, y)
				case Max:
					x = maxNumber(x, y)
				default:
					x += y
				}
				d[i] = narrow(x)
			}
			return nil
		},
		divide: func(t *tensor.Tensor, n int) error {
			v, err := tensor.Values[T](t)
			by := wide(narrow(float32(n)))
			for i := range v {
				v[i] = narrow(wide(v[i]) / by)
			}
			return err
		},
	}
}

// floatToBrain rounds to the nearest bfloat16, to even in the middle.
func floatToBrain(f float32) tensor.BFloat16Bits {
	b := math.Float32bits(f)
	if f != f { //nolint:gocritic // not-a-number must not become infinity
		return tensor.BFloat16Bits(b>>16 | 0x40)
	}
	return tensor.BFloat16Bits((b + 0x7fff + b>>16&1) >> 16)
}

// halfToFloat returns the value of an IEEE 754 binary16.
func halfToFloat(h uint16) float32 {
	sign, exp, frac := uint32(h&0x8000)<<16, uint32(h>>10&0x1f), uint32(h&0x3ff)
	switch exp {
	case 0:
		f := float32(frac) * (1.0 / (1 << 24))
		return math.Float32frombits(math.Float32bits(f) | sign)
	case 0x1f:
		return math.Float32frombits(sign | 0x7f800000 | frac<<13)
	}
	return math.Float32frombits(sign | (exp+112)<<23 | frac<<13)
}

// floatToHalf rounds to the nearest binary16, to even in the middle.
func floatToHalf(f float32) uint16 {
	b := math.Float32bits(f)
	sign, abs := uint16(b>>16&0x8000), b&0x7fffffff
	switch {
	case abs > 0x7f800000: // not-a-number
		return sign | 0x7e00 | uint16(abs>>13&0x3ff)
	case abs >= 0x47800000: // 65536 and more
		return sign | 0x7c00
	case abs >= 0x38800000: // normal; rounding may carry into the exponent, up to infinity
		abs -= 112 << 23
		return sign | uint16((abs+0xfff+abs>>13&1)>>13)
	default: // subnormal: adding 0.5 aligns the fraction, and rounds
		return sign | uint16(math.Float32bits(math.Float32frombits(abs)+0.5)-math.Float32bits(0.5))
	}
}
