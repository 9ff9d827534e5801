package grpctransport

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
)

// payload is a message that encodes itself. gRPC frees the buffers that takeBuffers returns.
type payload interface {
	takeBuffers() mem.BufferSlice
}

// parser is a message that parses itself. The buffers are valid until parse returns. It
// keeps its error itself, since gRPC would replace an error's code by Internal.
type parser interface {
	parse(mem.BufferSlice)
}

// codec is gRPC's protobuf codec, except for payload and parser. It is an option of each
// server and each client, and is not registered globally.
type codec struct {
	encoding.CodecV2 // gRPC's, for all other messages
}

func newCodec() codec { return codec{encoding.GetCodecV2("proto")} }

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if p, ok := v.(payload); ok {
		return p.takeBuffers(), nil
	}
	return c.CodecV2.Marshal(v)
}

// Unmarshal implements encoding.CodecV2.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if p, ok := v.(parser); ok {
		p.parse(data)
		return nil
	}
	return c.CodecV2.Unmarshal(data, v)
}

// serverCodec is the codec of a server, which may receive larger messages with graphs than others.
type serverCodec struct{ codec }

// Unmarshal implements encoding.CodecV2. It refuses a message that is larger than its method needs
// before it parses it.
func (c serverCodec) Unmarshal(data mem.BufferSlice, v any) error {
	if n := data.Len(); n > maxRequest {
		switch v.(type) {
		case *tfpb.RegisterGraphRequest, *tfpb.RunGraphRequest:
		default:
			return status.Errorf(status.ResourceExhausted, "a message of %d bytes is larger than max (%d)", n, maxRequest)
		}
	}
	return c.codec.Unmarshal(data, v)
}
