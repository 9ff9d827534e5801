package grpctransport

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	trystpb "github.com/tryst-rdma/tryst/proto/tryst"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensorproto"
	"github.com/tryst-rdma/tryst/transport"
)

// Field numbers of tryst.Chunk.
const (
	fieldChunkOffset = 1
	fieldChunkData   = 2
)

// Fetch implements trystgrpc.ChunksServer.
func (s *service) Fetch(req *trystpb.FetchRequest, stream grpc.ServerStreamingServer[trystpb.Chunk]) error {
	return toGRPC(stream.Context(), s.fetch(req, stream))
}

func (s *service) fetch(req *trystpb.FetchRequest, stream grpc.ServerStream) error {
	if asked := req.GetSenderIncarnation(); asked != 0 && asked != s.Self.Incarnation {
		return transport.OtherProcess(asked, s.Self.Incarnation)
	}
	a := transport.Asker{Name: req.GetAsker(), Incarnation: req.GetAskerIncarnation()}
	if err := s.mayBe(stream.Context(), a); err != nil {
		return err
	}
	v, err := s.Kept.Value(a.Incarnation, req.GetId())
	if err != nil {
		return err
	}
	t := v.Tensor
	defer t.Release()
	content := t.Bytes()
	plain := t.DType().Plain()
	if !plain {
		if content, err = tensorproto.Append(nil, t); err != nil {
			return tooLarge(err)
		}
	}
	if req.GetOffset() > uint64(len(content)) {
		return status.Errorf(status.OutOfRange, "receive %016x: fetch from byte %d of %d", req.GetId(), req.GetOffset(), len(content))
	}
	for at := int(req.GetOffset()); at < len(content); {
		n := min(chunkSize, len(content)-at)
		c := &chunk{offset: at, data: content[at : at+n : at+n]}
		if plain {
			c.tensor = t
		}
		if err := stream.SendMsg(c); err != nil {
			return err // gRPC's own: the client is gone
		}
		at += n
	}
	return nil
}

// chunk is a tryst.Chunk that is sent.
type chunk struct {
	offset int
	data   []byte
	tensor *tensor.Tensor // the owner of data; nil when data belongs to nobody else
}

// takeBuffers implements payload.
func (c *chunk) takeBuffers() mem.BufferSlice {
	b := make([]byte, 0, 32)
	b = protowire.AppendTag(b, fieldChunkOffset, protowire.VarintType)
	b = protowire.AppendVarint(b, uint64(c.offset))
	b = protowire.AppendTag(b, fieldChunkData, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(len(c.data)))
	switch {
	case c.tensor == nil:
		return mem.BufferSlice{mem.SliceBuffer(b), mem.SliceBuffer(c.data)}
	case len(c.data) <= copyLimit:
		return mem.BufferSlice{mem.SliceBuffer(append(b, c.data...))}
	}
	return mem.BufferSlice{mem.SliceBuffer(b), lend(c.tensor.Retain(), c.data)}
}
