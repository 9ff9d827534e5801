package tensorproto

import (
	"math"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/tryst-rdma/tryst/tensor"
)

// Header is what a serialised TensorProto says before its content.
type Header struct {
	DType tensor.DType // of plain elements
	Shape tensor.Shape
	Start int // where the content begins, counted from the start of the message
	Size  int // bytes of the content: what the shape takes
}

// ParseHeader reads the start of a serialised TensorProto of size bytes that
// has the form AppendHeader and TensorFlow's workers write: dtype, shape,
// content, in this order and nothing else. b is the start of the message, all
// of it or MaxHeader bytes at least.
//
// So a receiver can allocate the tensor and copy its content once, straight
// from the wire: the Size bytes from Start to the end of the message.
//
// It reports false for every other message, whether that has another form or
// is wrong; FromProto takes it or says what is wrong with it. (So it does when
// b ends before the content begins.) It keeps nothing of b.
func ParseHeader(b []byte, size int) (Header, bool) {
	var h Header
	rest := b

	dtype, rest, ok := cutVarint(rest, fieldDType)
	if !ok || dtype > math.MaxInt32 || !tensor.DType(dtype).Plain() {
		return Header{}, false
	}
	h.DType = tensor.DType(dtype)

	if shape, after, ok := cutBytes(rest, fieldShape); ok {
		if h.Shape, ok = parseShape(shape); !ok {
			return Header{}, false
		}
		rest = after
	}

	num, typ, n := protowire.ConsumeTag(rest)
	if n < 0 || num != fieldContent || typ != protowire.BytesType {
		return Header{}, false
	}
	content, m := protowire.ConsumeVarint(rest[n:])
	if m < 0 || content > math.MaxInt {
		return Header{}, false
	}
	h.Start = len(b) - len(rest) + n + m
	h.Size = int(content)

	want, err := tensor.ByteSize(h.DType, h.Shape)
	if err != nil || want != h.Size || size-h.Start != h.Size {
		return Header{}, false
	}
	return h, true
}

// parseShape reads a TensorShapeProto of sizes only.
func parseShape(b []byte) (tensor.Shape, bool) {
	dims := make([]int64, 0, 8)
	for len(b) > 0 {
		dim, rest, ok := cutBytes(b, fieldDim)
		if !ok || len(dims) == tensor.MaxDims {
			return tensor.Shape{}, false
		}
		var d uint64 // a size of 0 may be left out
		if len(dim) > 0 {
			var more []byte
			if d, more, ok = cutVarint(dim, fieldSize); !ok || len(more) > 0 {
				return tensor.Shape{}, false
			}
		}
		dims = append(dims, int64(d))
		b = rest
	}
	s, err := tensor.NewShape(dims...)
	return s, err == nil
}

// cutVarint takes the field with the given number off the start of b.
func cutVarint(b []byte, field protowire.Number) (v uint64, rest []byte, ok bool) {
	num, typ, n := protowire.ConsumeTag(b)
	if n < 0 || num != field || typ != protowire.VarintType {
		return 0, b, false
	}
	v, m := protowire.ConsumeVarint(b[n:])
	if m < 0 {
		return 0, b, false
	}
	return v, b[n+m:], true
}

// cutBytes is cutVarint for a field of bytes or a message.
func cutBytes(b []byte, field protowire.Number) (v, rest []byte, ok bool) {
	num, typ, n := protowire.ConsumeTag(b)
	if n < 0 || num != field || typ != protowire.BytesType {
		return nil, b, false
	}
	v, m := protowire.ConsumeBytes(b[n:])
	if m < 0 {
		return nil, b, false
	}
	return v, b[n+m:], true
}
