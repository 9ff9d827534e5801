package safetensors

import (
	"slices"

	"github.com/tryst-rdma/tryst/tensor"
)

type dtypeRow struct {
	name  string
	dtype tensor.DType
	bits  int64
}

// dtypes are the format's types in its own order, which is by the size of an
// element; tensors are sorted by it (see Sort). Those that package tensor lacks
// are Invalid, with the bits of an element: see Packed.
var dtypes = [...]dtypeRow{
	{"BOOL", tensor.Bool, 0},
	{"F4", tensor.Invalid, 4},
	{"F6_E2M3", tensor.Invalid, 6},
	{"F6_E3M2", tensor.Invalid, 6},
	{"U8", tensor.Uint8, 0},
	{"I8", tensor.Int8, 0},
	{"F8_E5M2", tensor.Float8E5M2, 0},
	{"F8_E4M3", tensor.Float8E4M3FN, 0},
	{"F8_E8M0", tensor.Invalid, 8},
	{"F8_E4M3FNUZ", tensor.Float8E4M3FNUZ, 0},
	{"F8_E5M2FNUZ", tensor.Float8E5M2FNUZ, 0},
	{"I16", tensor.Int16, 0},
	{"U16", tensor.Uint16, 0},
	{"F16", tensor.Float16, 0},
	{"BF16", tensor.BFloat16, 0},
	{"I32", tensor.Int32, 0},
	{"U32", tensor.Uint32, 0},
	{"F32", tensor.Float32, 0},
	{"C64", tensor.Complex64, 0},
	{"F64", tensor.Float64, 0},
	{"I64", tensor.Int64, 0},
	{"U64", tensor.Uint64, 0},
}

// Packed is the type and the shape that the header has for a tensor whose type
// package tensor lacks: F4, F6_E2M3, F6_E3M2 or F8_E8M0. The tensor is then
// Uint8 and has the bytes of the elements as they are in the file: with the
// shape of the elements for F8_E8M0, and as a vector for the others, whose
// elements take 4 or 6 bits without gaps. In the zero value, Type is empty: the
// tensor's type and shape are those of the header.
type Packed struct {
	Type  string
	Shape tensor.Shape
}

// Equal reports whether both have the same type and shape.
func (p Packed) Equal(q Packed) bool { return p.Type == q.Type && p.Shape.Equal(q.Shape) }

// String returns the type and the shape: "F4[2,3]".
func (p Packed) String() string { return p.Type + p.Shape.String() }

// Tensor returns the type and shape of the tensor that has the elements' bytes.
// It is InvalidArgument for a type that is not one of Packed's, and for elements
// that do not fill whole bytes.
func (p Packed) Tensor() (tensor.DType, tensor.Shape, error) {
	i := slices.IndexFunc(dtypes[:], func(d dtypeRow) bool { return d.name == p.Type && d.bits > 0 })
	if i < 0 {
		return 0, tensor.Shape{}, invalid("%s is no packed type of the format", quote(p.Type))
	}
	n, bits := p.Shape.Elements(), dtypes[i].bits
	if n%8*bits%8 != 0 {
		return 0, tensor.Shape{}, invalid("%v takes %d bits more than whole bytes", p, n%8*bits%8)
	}
	if bits == 8 {
		return tensor.Uint8, p.Shape, nil
	}
	shape, err := tensor.NewShape(n/8*bits + n%8*bits/8)
	return tensor.Uint8, shape, err
}

// parseDType sets the type and the shape of the tensor from those of the header.
func (s *Spec) parseDType(name string, shape tensor.Shape) (err error) {
	for _, d := range dtypes {
		if d.name != name {
			continue
		}
		s.DType, s.Shape = d.dtype, shape
		if d.bits > 0 {
			s.Packed = Packed{name, shape}
			s.DType, s.Shape, err = s.Packed.Tensor()
		}
		return err
	}
	return invalid("dtype: %s is no type of the format", quote(name))
}

// rank returns the place of the type in the format's order, -1 when the format
// has no such type.
func (s *Spec) rank() int {
	if s.Packed.Type == "" {
		return rank(s.DType)
	}
	return slices.IndexFunc(dtypes[:], func(d dtypeRow) bool { return d.name == s.Packed.Type })
}

// rank is that of a type of package tensor.
func rank(d tensor.DType) int {
	for i := range dtypes {
		if dtypes[i].dtype == d && d != tensor.Invalid {
			return i
		}
	}
	return -1
}

// Supported reports whether a file can hold elements of type d.
func Supported(d tensor.DType) bool { return rank(d) >= 0 }

// typeText returns the type and shape for messages: the header's if package
// tensor lacks the type.
func (s *Spec) typeText() string {
	if s.Packed.Type != "" {
		return s.Packed.String()
	}
	return s.DType.String() + s.Shape.String()
}
