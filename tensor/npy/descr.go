package npy

import (
	"strconv"
	"strings"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/internal/fileio"
)

// plain are the types whose elements have the same bytes in a file and in
// memory, but for their order, by kind and size as NumPy writes them.
var plain = [...]struct {
	code  string
	dtype tensor.DType
}{
	{"b1", tensor.Bool},
	{"i1", tensor.Int8},
	{"u1", tensor.Uint8},
	{"i2", tensor.Int16},
	{"u2", tensor.Uint16},
	{"i4", tensor.Int32},
	{"u4", tensor.Uint32},
	{"i8", tensor.Int64},
	{"u8", tensor.Uint64},
	{"f2", tensor.Float16},
	{"f4", tensor.Float32},
	{"f8", tensor.Float64},
	{"c8", tensor.Complex64},
	{"c16", tensor.Complex128},
}

// element is how one element stands in a file.
type element struct {
	dtype tensor.DType
	size  int64 // in bytes; never 0
	kind  byte  // 'S' or 'U' for characters, else 0
	// number is the size of the numbers whose bytes are in reverse order in
	// the file: half an element for complex ones; 0 when nothing is reversed.
	number int
}

// parseDescr understands the text that NumPy calls dtype.str: an optional byte
// order, a letter, a size.
func parseDescr(descr string) (element, error) {
	code := descr
	big := false
	if code != "" && strings.IndexByte("<>=|", code[0]) >= 0 {
		big = code[0] == '>'
		code = code[1:]
	}
	for _, p := range plain {
		if p.code == code {
			e := element{dtype: p.dtype, size: int64(p.dtype.Size())}
			if big && e.size > 1 {
				e.number = int(e.size)
				if code[0] == 'c' {
					e.number /= 2
				}
			}
			return e, nil
		}
	}
	kind, digits := byte(0), ""
	if code != "" {
		kind, digits = code[0], code[1:]
	}
	switch kind {
	case 'S', 'U':
		return parseCharacters(descr, kind, digits, big)
	case 'O':
		return element{}, unsupported(descr, "objects are stored as a pickle, which can run code")
	case 'V':
		return element{}, unsupported(descr, "bytes without a type; NumPy stores bfloat16 and 8-bit floats so: convert them or use safetensors")
	case 'M', 'm':
		return element{}, unsupported(descr, "dates and times have no tensor type")
	case 'f', 'c', 'i', 'u':
		if _, err := strconv.ParseUint(digits, 10, 16); err == nil {
			return element{}, unsupported(descr, "no tensor type has this size")
		}
	}
	return element{}, invalid("descr: %s is no type of NumPy", fileio.Quote(descr))
}

// parseCharacters reads the length of 'S' elements in bytes, of 'U' elements
// in characters of four bytes.
func parseCharacters(descr string, kind byte, digits string, big bool) (element, error) {
	n, err := strconv.ParseUint(digits, 10, 31)
	switch {
	case err != nil:
		return element{}, invalid("descr: %s is no type of NumPy", fileio.Quote(descr))
	case n == 0:
		// Any number of them would fit into a file without data.
		return element{}, unsupported(descr, "elements without bytes")
	}
	e := element{dtype: tensor.String, size: int64(n), kind: kind}
	if kind == 'U' {
		e.size *= 4
		if big {
			e.number = 4
		}
	}
	return e, nil
}

// Supported reports whether an array can be written from a tensor of type d.
func Supported(d tensor.DType) bool {
	_, ok := code(d)
	return ok || d == tensor.String
}

// code returns NumPy's kind and size of a plain type.
func code(d tensor.DType) (string, bool) {
	for _, p := range plain {
		if p.dtype == d {
			return p.code, true
		}
	}
	return "", false
}

func invalid(format string, args ...any) *status.Error {
	return status.Errorf(status.InvalidArgument, format, args...)
}

func unsupported(descr, why string) *status.Error {
	return status.Errorf(status.Unimplemented, "descr: %s is not supported: %s", fileio.Quote(descr), why)
}
