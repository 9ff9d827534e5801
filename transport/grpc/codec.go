package grpctransport

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"io"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/tryst-rdma/tryst/internal/wiresize"
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

// codec is gRPC's protobuf codec, except for payload and parser, and counts what a message takes
// before it parses it. It is an option of each server and each client, and is not registered
// globally.
type codec struct {
	encoding.CodecV2 // gRPC's, for all other messages
	scanner          *wiresize.Scanner
}

func newCodec() codec { return codec{encoding.GetCodecV2("proto"), new(wiresize.Scanner)} }

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if p, ok := v.(payload); ok {
		return p.takeBuffers(), nil
	}
	return c.CodecV2.Marshal(v)
}

// Unmarshal implements encoding.CodecV2.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	switch v := v.(type) {
	case *reply:
		return v.unmarshal(c, data)
	default:
		return c.parse(data, v, new(unlimited))
	}
}

// parse parses v. It charges to by what that takes.
func (c codec) parse(data mem.BufferSlice, v any, by taker) error {
	switch v := v.(type) {
	case parser:
		v.parse(data)
		return nil
	case proto.Message:
		b, err := joined(data, by)
		if err != nil {
			return err
		}
		return unmarshal(c.scanner, b, v, by)
	}
	return c.CodecV2.Unmarshal(data, v)
}

// joined returns the bytes of data in one buffer, whose memory is charged to by. They are valid as long as data
// is, and as what by has.
func joined(data mem.BufferSlice, by taker) ([]byte, error) {
	if len(data) == 1 {
		return data[0].ReadOnlyData(), nil
	}
	b, err := memoryOf(by, int64(data.Len()))
	if err != nil {
		return nil, err
	}
	b = b[:cap(b)]
	data.CopyTo(b)
	return b, nil
}

// serverCodec is the codec of a server, for messages that Guard has not wrapped. It takes larger messages
// with graphs than others, and decompresses them.
type serverCodec struct {
	codec
	largest int64
}

// Unmarshal implements encoding.CodecV2.
func (c serverCodec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(proto.Message)
	if !ok {
		return c.codec.Unmarshal(data, v)
	}
	return inOne(data, func(b []byte) error { return unmarshalRequest(c.scanner, b, m, c.largest, new(unlimited)) })
}

// inOne calls f with the bytes of data, which are valid until it returns.
func inOne(data mem.BufferSlice, f func([]byte) error) error {
	if len(data) == 1 {
		return f(data[0].ReadOnlyData())
	}
	b := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer b.Free()
	return f(b.ReadOnlyData())
}

// taker charges bytes to somebody.
type taker interface {
	// take charges n more bytes, or less when n is negative.
	take(n int64) error
}

// memoryOf returns an empty slice with a capacity of n bytes, which are charged to by. When they are given back the
// slice is not valid any more.
func memoryOf(by taker, n int64) ([]byte, error) {
	if p, ok := by.(*parsing); ok {
		return p.allocate(n)
	}
	if err := by.take(n); err != nil {
		return nil, err
	}
	return make([]byte, 0, n), nil
}

// unlimited takes any number of bytes.
type unlimited struct{}

func (*unlimited) take(int64) error { return nil }

// unmarshal parses m after it has counted, and charged to by, what that takes. What is no message is Internal,
// as gRPC has it.
func unmarshal(s *wiresize.Scanner, b []byte, m proto.Message, by taker) error {
	size, err := s.Size(b, m, wiresize.Bound(len(b)))
	if status.CodeOf(err) == status.InvalidArgument {
		return status.New(status.Internal, status.From(err).Message())
	}
	if err != nil {
		return err
	}
	if err := by.take(size); err != nil {
		return err
	}
	if err := proto.Unmarshal(b, m); err != nil {
		return status.Errorf(status.Internal, "cannot parse a %s of %d bytes: %w", m.ProtoReflect().Descriptor().FullName(), len(b), err)
	}
	return nil
}

// unmarshalRequest is unmarshal for a request, which may be compressed. It refuses a message that is
// larger than its method needs.
func unmarshalRequest(s *wiresize.Scanner, b []byte, m proto.Message, largest int64, by taker) error {
	limit := int64(maxRequest)
	switch m.(type) {
	case *tfpb.RegisterGraphRequest, *tfpb.RunGraphRequest:
		limit = largest
	}
	if isGzip(b) {
		var err error
		var charged int64
		if b, charged, err = inflate(b, limit, by); err != nil {
			return err
		}
		defer func() { _ = by.take(-charged) }() // gives back
	}
	if int64(len(b)) > limit {
		return largerThan(len(b), limit)
	}
	return unmarshal(s, b, m, by)
}

func largerThan(n int, limit int64) error {
	return status.Errorf(status.ResourceExhausted, "a message of %d bytes is larger than max (%d)", n, limit)
}

// laterGzip leaves a compressed message as it is. The codec decompresses it, since it knows whom to charge:
// gRPC would decompress up to its limit of any message first. It implements grpc.Decompressor.
type laterGzip struct{}

// Do implements grpc.Decompressor.
func (laterGzip) Do(r io.Reader) ([]byte, error) {
	sized, ok := r.(interface{ Remaining() int })
	if !ok {
		return io.ReadAll(r)
	}
	b := make([]byte, sized.Remaining()) // ReadAll would take more
	_, err := io.ReadFull(r, b)
	return b, err
}

// Type implements grpc.Decompressor.
func (laterGzip) Type() string { return "gzip" }

// isGzip reports whether b is gzip's (RFC 1952, 2.3.1) and no protobuf message: 0x1f is a tag with a
// wire type that does not exist.
func isGzip(b []byte) bool { return len(b) > 1 && b[0] == 0x1f && b[1] == 0x8b }

// sizeHint returns the size after decompression that the end of b names (RFC 1952, 2.3.1), which may be
// a lie.
func sizeHint(b []byte) int64 {
	if len(b) < 4 {
		return 0
	}
	return int64(binary.LittleEndian.Uint32(b[len(b)-4:]))
}

// inflate decompresses b, to at most limit bytes. It charges its memory to by as it grows; the caller
// gives back what is charged when there is no error.
func inflate(b []byte, limit int64, by taker) (out []byte, charged int64, err error) {
	defer func() {
		if err != nil {
			_ = by.take(-charged) // gives back
			charged = 0
		}
	}()
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, 0, status.Errorf(status.InvalidArgument, "cannot decompress a message of %d bytes: %w", len(b), err)
	}
	for {
		if len(out) == cap(out) {
			if int64(len(out)) > limit {
				return nil, charged, status.Errorf(status.ResourceExhausted, "a compressed message of %d bytes is larger than max (%d) after decompression", len(b), limit)
			}
			more := min(max(2*int64(cap(out)), sizeHint(b)+1), limit+1)
			grown, err := memoryOf(by, more)
			if err != nil {
				return nil, charged, err
			}
			charged += more
			grown = append(grown, out...)
			_ = by.take(-int64(cap(out))) // gives back
			charged -= int64(cap(out))
			out = grown
		}
		n, err := z.Read(out[len(out):cap(out)])
		out = out[:len(out)+n]
		switch {
		case errors.Is(err, io.EOF):
			return out, charged, nil
		case err != nil:
			return nil, charged, status.Errorf(status.InvalidArgument, "cannot decompress a message of %d bytes: %w", len(b), err)
		}
	}
}
