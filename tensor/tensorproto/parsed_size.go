package tensorproto

import "google.golang.org/protobuf/encoding/protowire"

// Field numbers of the lists in tensor.proto, and of variants.
const (
	fieldFloats         = 5
	fieldDoubles        = 6
	fieldInts           = 7
	fieldStrings        = 8
	fieldComplex64s     = 9
	fieldInt64s         = 10
	fieldBools          = 11
	fieldComplex128s    = 12
	fieldHalfs          = 13
	fieldResources      = 14
	fieldVariants       = 15
	fieldUint32s        = 16
	fieldUint64s        = 17
	fieldFloat8s        = 18
	fieldVariantTensors = 3 // VariantTensorDataProto
)

// What the generated code takes for parts of a message, in bytes. A slice that grows has
// its old memory beside the new one.
const (
	messageStruct = 1 << 10   // a TensorProto, the largest struct
	listElement   = 2 * 8     // a number of an unpacked list
	listString    = 2*24 + 16 // a string of a list
	smallMessages = 64        // per byte of a message that consists of empty messages, such as dims
	varintGrowth  = 8         // per byte of a packed list: an int64 of one byte
)

// parsedSize bounds the memory that a serialised TensorProto takes when it has been parsed,
// beside its own struct: a few bytes of a message may become a large struct. Bytes that are
// no message end it early, as they end the parser.
func parsedSize(b []byte, nesting int) (size int64) {
	fields(b, func(num protowire.Number, typ protowire.Type, value []byte) {
		n := int64(len(value))
		switch {
		case typ != protowire.BytesType:
			size += listElement + 2*n // the second for a group, which is kept as it is
		case num == fieldStrings:
			size += listString + n
		case num == fieldShape, num == fieldResources:
			size += messageStruct + smallMessages*n
		case num == fieldVariants:
			size += variantSize(value, nesting)
		case num == fieldContent, num == fieldFloats, num == fieldDoubles, num == fieldComplex64s,
			num == fieldBools, num == fieldComplex128s, num == fieldFloat8s:
			size += n
		default:
			size += varintGrowth * n
		}
	})
	return size
}

// variantSize is parsedSize of a VariantTensorDataProto.
func variantSize(b []byte, nesting int) int64 {
	if nesting == 0 {
		return messageStruct * int64(len(b)+1)
	}
	size := int64(messageStruct)
	fields(b, func(num protowire.Number, typ protowire.Type, value []byte) {
		if num == fieldVariantTensors && typ == protowire.BytesType {
			size += messageStruct + parsedSize(value, nesting-1)
		} else {
			size += listElement + 2*int64(len(value))
		}
	})
	return size
}

// fields calls do for each field of a message, with its value as it is encoded, but without
// a length.
func fields(b []byte, do func(num protowire.Number, typ protowire.Type, value []byte)) {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return
		}
		b = b[n:]
		if n = protowire.ConsumeFieldValue(num, typ, b); n < 0 {
			return
		}
		value := b[:n]
		if typ == protowire.BytesType {
			value, _ = protowire.ConsumeBytes(b[:n])
		}
		do(num, typ, value)
		b = b[n:]
	}
}
