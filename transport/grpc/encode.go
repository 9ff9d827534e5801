package grpctransport

import (
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensorproto"
	"github.com/tryst-rdma/tryst/transport"
)

// Field numbers of RecvTensorResponse (TensorFlow's worker.proto).
const (
	fieldTensor          = 1
	fieldDead            = 2
	fieldSendStartMicros = 3
	fieldOptions         = 4
	fieldRequireAck      = 5
)

// response is a RecvTensorResponse that is ready to be sent.
type response struct{ buffers mem.BufferSlice }

// takeBuffers implements payload.
func (r *response) takeBuffers() mem.BufferSlice {
	b := r.buffers
	r.buffers = nil
	return b
}

// drop frees a response that was not sent; it does nothing to one that was.
func (r *response) drop() { r.takeBuffers().Free() }

// weigh returns how many bytes gRPC will hold of an answer with t, and how many of them are
// copies: what is small is copied and not counted.
func weigh(t *tensor.Tensor) (n, copies int64, err error) {
	if !t.DType().Plain() {
		size, err := tensorproto.Size(t)
		if err != nil {
			return 0, 0, tooLarge(err)
		}
		copies = int64(size)
	}
	if n = max(t.Size(), copies); n <= copyLimit {
		return 0, 0, nil
	}
	return n, copies, nil
}

// encodeResponse returns r as bytes. It takes over the reference to the
// response's tensor and the charge for what it weighs, whether it fails or not: large content
// is lent to gRPC, small content is copied. A tensor that
// is too large for protobuf is Internal, with the text that TensorFlow has.
func encodeResponse(r *transport.TensorResponse, charged charge) (*response, error) {
	t := r.Tensor
	if !t.DType().Plain() {
		defer t.Release()
		return encodeElements(r, charged)
	}
	l := newLease(t, charged)
	defer l.end()
	b, err := appendFields(make([]byte, 0, headSize), r)
	if err != nil {
		return nil, err
	}
	var scratch [headSize]byte
	head, err := tensorproto.AppendHeader(scratch[:0], t)
	if err != nil {
		return nil, tooLarge(err)
	}
	content := t.Bytes()
	b = protowire.AppendTag(b, fieldTensor, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(len(head)+len(content)))
	b = append(b, head...)
	if len(content) > copyLimit {
		return &response{mem.BufferSlice{mem.SliceBuffer(b), l.buffer(content)}}, nil
	}
	b = append(b, content...)
	return &response{mem.BufferSlice{mem.SliceBuffer(b)}}, nil
}

// headSize has room for the bytes before the content of usual shapes; longer
// ones make append allocate.
const headSize = 128

// encodeElements is for tensors that are not plain memory: the whole
// TensorProto, and the other fields behind it. TensorFlow leaves these answers
// to protobuf, which writes fields in the order of their numbers.
func encodeElements(r *transport.TensorResponse, charged charge) (*response, error) {
	l := newLease(nil, charged)
	defer l.end()
	size, err := tensorproto.Size(r.Tensor)
	if err != nil {
		return nil, tooLarge(err)
	}
	p, err := tensorproto.Append(make([]byte, 0, size), r.Tensor)
	if err != nil {
		return nil, tooLarge(err)
	}
	fields, err := appendFields(nil, r)
	if err != nil {
		return nil, err
	}
	b := protowire.AppendTag(nil, fieldTensor, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(len(p)))
	return &response{mem.BufferSlice{mem.SliceBuffer(b), l.buffer(p), mem.SliceBuffer(fields)}}, nil
}

// appendFields appends the fields beside the tensor.
func appendFields(b []byte, r *transport.TensorResponse) ([]byte, error) {
	if r.Dead {
		b = protowire.AppendTag(b, fieldDead, protowire.VarintType)
		b = protowire.AppendVarint(b, 1)
	}
	b = protowire.AppendTag(b, fieldSendStartMicros, protowire.VarintType)
	b = protowire.AppendVarint(b, uint64(r.SendStartMicros))
	if r.Options != nil {
		b = protowire.AppendTag(b, fieldOptions, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(proto.Size(r.Options)))
		var err error
		if b, err = (proto.MarshalOptions{UseCachedSize: true}).MarshalAppend(b, r.Options); err != nil {
			return nil, status.Errorf(status.Internal, "transport_options of the answer: %w", err)
		}
	}
	if r.RequireAck {
		b = protowire.AppendTag(b, fieldRequireAck, protowire.VarintType)
		b = protowire.AppendVarint(b, 1)
	}
	return b, nil
}

// deadTensor is what every dead value is on the wire, whatever its tensor was.
func deadTensor() *tensor.Tensor {
	t, _ := tensor.FromBytes(tensor.Float32, tensor.Vector(0), nil) // no bytes for no elements
	return t
}

func tooLarge(err error) error {
	return status.Errorf(status.CodeOf(err), "Failed to encode tensor to byte buffer: %s", status.From(err).Message())
}
