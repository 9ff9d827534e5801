package safetensors

import (
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// dtypes are the format's types in its own order, which is by the size of an
// element; tensors are sorted by it (see Sort). Those that no tensor holds are
// Invalid: elements packed into less than a byte each, and a bare exponent.
var dtypes = [...]struct {
	name  string
	dtype tensor.DType
}{
	{"BOOL", tensor.Bool},
	{"F4", tensor.Invalid},
	{"F6_E2M3", tensor.Invalid},
	{"F6_E3M2", tensor.Invalid},
	{"U8", tensor.Uint8},
	{"I8", tensor.Int8},
	{"F8_E5M2", tensor.Float8E5M2},
	{"F8_E4M3", tensor.Float8E4M3FN},
	{"F8_E8M0", tensor.Invalid},
	{"F8_E4M3FNUZ", tensor.Float8E4M3FNUZ},
	{"F8_E5M2FNUZ", tensor.Float8E5M2FNUZ},
	{"I16", tensor.Int16},
	{"U16", tensor.Uint16},
	{"F16", tensor.Float16},
	{"BF16", tensor.BFloat16},
	{"I32", tensor.Int32},
	{"U32", tensor.Uint32},
	{"F32", tensor.Float32},
	{"C64", tensor.Complex64},
	{"F64", tensor.Float64},
	{"I64", tensor.Int64},
	{"U64", tensor.Uint64},
}

// parseDType returns the type with the format's name.
func parseDType(name string) (tensor.DType, error) {
	for _, d := range dtypes {
		if d.name != name {
			continue
		}
		if d.dtype == tensor.Invalid {
			return 0, status.Errorf(status.Unimplemented, "elements of type %s cannot be held in a tensor", name)
		}
		return d.dtype, nil
	}
	return 0, invalid("%s is no type of the format", quote(name))
}

// rank returns the place of d in the format's order, -1 when the format has no
// such type.
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
