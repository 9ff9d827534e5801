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

// response is an encoded RecvTensorResponse.
type response struct {
	buffers mem.BufferSlice
	sent    func(error) // TensorResponse.Sent
}

// takeBuffers implements payload.
func (r *response) takeBuffers() mem.BufferSlice {
	b := r.buffers
	r.buffers = nil
	r.report(nil)
	return b
}

// drop frees the buffers if gRPC has not taken them.
func (r *response) drop() {
	r.report(status.New(status.Unavailable, "the response was replaced before it was sent"))
	r.takeBuffers().Free()
}

// report tells the sender what has become of its value; the first call counts.
func (r *response) report(err error) {
	if r.sent != nil {
		r.sent(err)
		r.sent = nil
	}
}

// heldBytes returns how many bytes gRPC will hold of a response with t, and how many of them
// are copies rather than the tensor's own memory. Responses up to copyLimit are not counted.
func heldBytes(t *tensor.Tensor) (n, copies int64, err error) {
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

// encodeResponse encodes r. It takes over the reference to r's tensor and the charge, also
// when it fails. Content above copyLimit is lent to gRPC, smaller content is copied. A tensor
// that is too large for protobuf is Internal with TensorFlow's text.
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
		return &response{buffers: mem.BufferSlice{mem.SliceBuffer(b), l.buffer(content)}}, nil
	}
	b = append(b, content...)
	return &response{buffers: mem.BufferSlice{mem.SliceBuffer(b)}}, nil
}

// headSize is the space for the bytes before the content. It suffices for usual shapes;
// append allocates more for longer ones.
const headSize = 128

// encodeElements encodes a response whose tensor is not plain memory: first the whole
// TensorProto, then the other fields. TensorFlow encodes these with protobuf, which writes
// fields in the order of their numbers.
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
	return &response{buffers: mem.BufferSlice{mem.SliceBuffer(b), l.buffer(p), mem.SliceBuffer(fields)}}, nil
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
			return nil, status.Errorf(status.Internal, "cannot encode transport_options of the response: %w", err)
		}
	}
	if r.RequireAck {
		b = protowire.AppendTag(b, fieldRequireAck, protowire.VarintType)
		b = protowire.AppendVarint(b, 1)
	}
	return b, nil
}

// deadTensor returns the tensor that is sent for every dead value.
func deadTensor() *tensor.Tensor {
	t, _ := tensor.FromBytes(tensor.Float32, tensor.Vector(0), nil) // no bytes for no elements
	return t
}

func tooLarge(err error) error {
	return status.Errorf(status.CodeOf(err), "Failed to encode tensor to byte buffer: %s", status.From(err).Message())
}
