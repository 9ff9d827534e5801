package tensorproto

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/tryst-rdma/tryst/status"
)

// checkPacked refuses a serialised TensorProto, or VariantTensorDataProto, whose packed lists come in many
// parts, or whose messages are nested too deep. The parser copies a list for each further part of it,
// which takes time with the square of the parts; writers of protobuf make one.
func checkPacked(b []byte, variant bool) error {
	most := maxCopies * int64(len(b))
	switch n, deep := copies(b, variant, maxDepth); {
	case deep:
		return status.Errorf(status.InvalidArgument, "a TensorProto has messages nested more than %d deep", maxDepth)
	case n > most+minCopies:
		return status.Errorf(status.InvalidArgument, "a TensorProto of %d bytes has its lists in too many parts: parsing it would copy %d bytes", len(b), n)
	}
	return nil
}

// copies returns how many bytes on the wire of earlier parts the parser copies.
func copies(b []byte, variant bool, depth int) (n int64, deep bool) {
	if depth == 0 {
		return 0, true
	}
	var lists int64
	fields(b, func(num protowire.Number, typ protowire.Type, value []byte) {
		switch {
		case deep || typ != protowire.BytesType:
		case variant && num == fieldVariantTensors, !variant && num == fieldVariants:
			of, too := copies(value, !variant, depth-1)
			n, deep = n+of, too
		case !variant && isPacked(num):
			n += lists
			lists += int64(len(value))
		}
	})
	return n, deep
}

// isPacked reports whether a field of a TensorProto is a list of numbers.
func isPacked(num protowire.Number) bool {
	switch num {
	case fieldFloats, fieldDoubles, fieldInts, fieldComplex64s, fieldInt64s, fieldBools, fieldComplex128s, fieldHalfs, fieldUint32s, fieldUint64s:
		return true
	}
	return false
}
