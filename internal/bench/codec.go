package bench

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// codec encodes the messages of the pass-through call as their bytes, which is the least work
// of a gRPC call, and all others as protobuf.
type codec struct {
	encoding.CodecV2 // protobuf, for all other messages
}

func newCodec() codec { return codec{encoding.GetCodecV2("proto")} }

// content is the response of the pass-through call: memory that is not copied.
type content []byte

// question is the request of the pass-through call.
type question []byte

// arrived is a content at the receiver, copied once into memory from pool.
type arrived struct {
	pool   tensor.Allocator
	buffer *tensor.Buffer
}

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	switch v := v.(type) {
	case content:
		return mem.BufferSlice{mem.SliceBuffer(v)}, nil
	case question:
		return mem.BufferSlice{mem.SliceBuffer(v)}, nil
	}
	return c.CodecV2.Marshal(v)
}

// Unmarshal implements encoding.CodecV2.
func (c codec) Unmarshal(data mem.BufferSlice, v any) (err error) {
	switch v := v.(type) {
	case *question:
		*v = data.Materialize()
		return nil
	case *arrived:
		if v.buffer, err = v.pool.Allocate(data.Len()); err != nil {
			return status.From(err)
		}
		data.CopyTo(v.buffer.Bytes())
		return nil
	}
	return c.CodecV2.Unmarshal(data, v)
}
