package tensorproto

import (
	"bytes"

	"google.golang.org/protobuf/encoding/protowire"

	pb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// Field numbers of tensor.proto.
const (
	fieldDType   = 1 // TensorProto
	fieldShape   = 2
	fieldContent = 4
	fieldDim     = 2 // TensorShapeProto
	fieldSize    = 1 // TensorShapeProto.Dim
)

// ToProto returns t as a message with its elements in tensor_content, as
// TensorFlow's AsProtoTensorContent does. The content is a copy. A tensor that
// does not fit into a protobuf message (2 GiB) is Internal, as there.
func ToProto(t *tensor.Tensor) (*pb.TensorProto, error) {
	if err := checkSize(t); err != nil {
		return nil, err
	}
	p := &pb.TensorProto{Dtype: DTypeToProto(t.DType()), TensorShape: ShapeToProto(t.Shape())}
	if t.DType().Plain() {
		p.TensorContent = bytes.Clone(t.Bytes())
	} else {
		p.TensorContent = appendElements(make([]byte, 0, contentSize(t)), t.Elements())
	}
	return p, nil
}

// Append appends t's serialised TensorProto to b, in the order of the package
// comment, with a copy of its content. It fails like ToProto.
func Append(b []byte, t *tensor.Tensor) ([]byte, error) {
	if err := checkSize(t); err != nil {
		return nil, err
	}
	b = appendHeader(b, t)
	if t.DType().Plain() {
		return append(b, t.Bytes()...), nil
	}
	return appendElements(b, t.Elements()), nil
}

// AppendHeader appends to b what comes before the content in the serialised
// TensorProto of a tensor of plain elements: t.Bytes() behind it makes the
// message whole. It fails with InvalidArgument when the elements are not plain
// memory, and else like ToProto.
func AppendHeader(b []byte, t *tensor.Tensor) ([]byte, error) {
	if !t.DType().Plain() {
		return nil, status.Errorf(status.InvalidArgument,
			"the elements of tensor %v are not plain memory; use Append", t)
	}
	if err := checkSize(t); err != nil {
		return nil, err
	}
	return appendHeader(b, t), nil
}

// appendHeader ends with the tag and length of tensor_content, if there is one.
// TensorFlow's worker writes plain elements by hand: a scalar has no shape, and
// what is 0 or empty is written out. Others it leaves to protobuf: there always
// is a shape, and what is 0 or empty is left out.
func appendHeader(b []byte, t *tensor.Tensor) []byte {
	plain, content := t.DType().Plain(), contentSize(t)
	b = protowire.AppendTag(b, fieldDType, protowire.VarintType)
	b = protowire.AppendVarint(b, uint64(t.DType()))
	if s := t.Shape(); s.Rank() > 0 || !plain {
		b = protowire.AppendTag(b, fieldShape, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(shapeSize(s, plain)))
		for i := range s.Rank() {
			d := uint64(s.Dim(i))
			b = protowire.AppendTag(b, fieldDim, protowire.BytesType)
			b = protowire.AppendVarint(b, uint64(dimSize(d, plain)))
			if d > 0 || plain {
				b = protowire.AppendTag(b, fieldSize, protowire.VarintType)
				b = protowire.AppendVarint(b, d)
			}
		}
	}
	if content == 0 && !plain {
		return b
	}
	b = protowire.AppendTag(b, fieldContent, protowire.BytesType)
	return protowire.AppendVarint(b, uint64(content))
}

// shapeSize returns the bytes of a serialised TensorShapeProto. All tags in it
// and the length of a dim take one byte each.
func shapeSize(s tensor.Shape, plain bool) int {
	n := 0
	for i := range s.Rank() {
		n += 2 + dimSize(uint64(s.Dim(i)), plain)
	}
	return n
}

// dimSize returns the bytes of a serialised TensorShapeProto.Dim.
func dimSize(d uint64, plain bool) int {
	if d == 0 && !plain {
		return 0
	}
	return 1 + protowire.SizeVarint(d)
}

// contentSize returns the bytes of t's tensor_content.
func contentSize(t *tensor.Tensor) int64 {
	n := t.Size()
	for _, e := range t.Elements() {
		n += int64(protowire.SizeVarint(uint64(len(e))))
	}
	return n
}

// appendElements appends the lengths of all elements, then their bytes.
func appendElements(b []byte, elems []string) []byte {
	for _, e := range elems {
		b = protowire.AppendVarint(b, uint64(len(e)))
	}
	for _, e := range elems {
		b = append(b, e...)
	}
	return b
}

// checkSize refuses a tensor that does not fit into a message. TensorFlow counts the bytes of
// the elements alone, and does not notice a tensor that only its header makes too large.
func checkSize(t *tensor.Tensor) error {
	const largest = maxMessage - MaxHeader
	n := contentSize(t)
	switch {
	case n <= largest:
		return nil
	case t.Size() > protobufLimit:
		return status.Errorf(status.Internal,
			"Cannot encode a Tensor that exceeds the 2GB protobuf limit. Exceeded bytes: %d (tensor %v)", t.Size()-protobufLimit, t)
	}
	return status.Errorf(status.Internal,
		"Cannot encode a Tensor that exceeds the 2GB protobuf limit with its header: it has %d bytes, and %d fit (tensor %v)", n, largest, t)
}
