package grpctransport

import (
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
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
	if want := req.GetSenderIncarnation(); want != 0 && want != s.Self.Incarnation {
		return transport.OtherProcess(want, s.Self.Incarnation)
	}
	a := transport.Process{Name: req.GetRequester(), Incarnation: req.GetRequesterIncarnation()}
	if err := s.checkName(stream.Context(), a); err != nil {
		return err
	}
	v, err := s.Cache.Value(a, req.GetId(), req.GetAttempt())
	if err != nil {
		return err
	}
	return s.sendChunks(req, stream, v.Tensor)
}

// sendChunks sends the content of t from the requested byte on. It takes over the caller's
// reference to t. The tensor is charged to the connection while the stream or gRPC holds
// it: the peer may acknowledge the receive meanwhile, and then the cache no longer counts it.
func (s *service) sendChunks(req *trystpb.FetchRequest, stream grpc.ServerStream, t *tensor.Tensor) error {
	of := receiveID{transport.Process{Name: req.GetRequester(), Incarnation: req.GetRequesterIncarnation()}, req.GetId(), req.GetAttempt()}
	ticket, err := ticketFor(t)
	if err == nil && req.GetOffset() > ticket.GetBytes() {
		err = status.Errorf(status.OutOfRange, "receive %016x: the fetch starts at byte %d, but the content has %d", req.GetId(), req.GetOffset(), ticket.GetBytes())
	}
	if err != nil {
		t.Release()
		return s.lost(of, err)
	}
	size, copies := int(ticket.GetBytes()), 0 //nolint:gosec // of a tensor in memory
	if ticket.GetProto() {
		copies = min(size, 2*chunkSize) // a chunk in gRPC's queue, and the next one
	}
	t, charged, err := s.chargeCached(stream.Context(), t, of, t.MemorySize()+int64(copies), int64(copies))
	if err != nil {
		return err
	}
	l := newLease(t, charged)
	defer l.end()
	at := int(req.GetOffset()) //nolint:gosec // at most size
	var encoded *tensorproto.Reader
	if ticket.GetProto() {
		if encoded, err = tensorproto.NewReader(t, at); err != nil {
			return s.lost(of, tooLarge(err))
		}
	}
	for at < size {
		c := &chunk{offset: at, lease: l}
		if n := min(chunkSize, size-at); encoded == nil {
			c.data = t.Bytes()[at : at+n : at+n]
		} else {
			c.data = make([]byte, n)
			if _, err := io.ReadFull(encoded, c.data); err != nil {
				return s.lost(of, status.Errorf(status.Internal, "receive %016x: %w", req.GetId(), err))
			}
		}
		if err := stream.SendMsg(c); err != nil {
			return err // gRPC's own: the client is gone
		}
		at += len(c.data)
	}
	return nil
}

// lost notes that the content of a receive cannot be sent, and returns err, which the peer
// gets.
func (s *service) lost(of receiveID, err error) error {
	s.Cache.Fail(of.requester, of.id, of.attempt, err)
	return err
}

// chunk is a tryst.Chunk to send.
type chunk struct {
	offset int
	data   []byte
	lease  *lease // of the stream
}

// takeBuffers implements payload.
func (c *chunk) takeBuffers() mem.BufferSlice {
	b := make([]byte, 0, 32)
	b = protowire.AppendTag(b, fieldChunkOffset, protowire.VarintType)
	b = protowire.AppendVarint(b, uint64(c.offset))
	b = protowire.AppendTag(b, fieldChunkData, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(len(c.data)))
	if len(c.data) <= copyLimit {
		return mem.BufferSlice{mem.SliceBuffer(append(b, c.data...))}
	}
	return mem.BufferSlice{mem.SliceBuffer(b), c.lease.buffer(c.data)}
}
