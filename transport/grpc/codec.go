package grpctransport

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
)

// payload is a message that writes its own bytes: what Marshal returns is
// gRPC's to free.
type payload interface {
	takeBuffers() mem.BufferSlice
}

// parser is a message that reads its own bytes, out of buffers that are valid
// until it returns.
type parser interface {
	parse(mem.BufferSlice)
}

// codec is protobuf, and for the messages of this package the bytes as they are.
// It is given to each server and each call and registered nowhere.
type codec struct {
	encoding.CodecV2 // of gRPC, for everything else
}

func newCodec() codec { return codec{encoding.GetCodecV2("proto")} }

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if p, ok := v.(payload); ok {
		return p.takeBuffers(), nil
	}
	return c.CodecV2.Marshal(v)
}

// Unmarshal implements encoding.CodecV2. What a parser finds wrong is its own to
// keep, since gRPC would make Internal of it.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if p, ok := v.(parser); ok {
		p.parse(data)
		return nil
	}
	return c.CodecV2.Unmarshal(data, v)
}
