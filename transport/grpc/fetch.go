package grpctransport

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	trystpb "github.com/tryst-rdma/tryst/proto/tryst"
	"github.com/tryst-rdma/tryst/proto/trystgrpc"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensorproto"
	"github.com/tryst-rdma/tryst/transport"
)

// fetch gets the content that the ticket in resp stands for, and makes the
// tensor of it. What arrives is kept in the attempt's Partial, and the next
// attempt goes on from there.
func (w *wire) fetch(ctx context.Context, a *transport.Attempt, resp *received) error {
	size, err := contentSize(resp)
	if err != nil {
		return err
	}
	p := a.Partial
	if p.Buffer != nil && p.Buffer.Len() != size {
		p.Drop()
	}
	if p.Buffer == nil {
		if p.Buffer, err = w.worker.alloc.Allocate(size); err != nil {
			return err
		}
	}
	if err := w.fetchInto(ctx, a, resp.extra.GetSenderIncarnation()); err != nil {
		return err
	}
	if resp.ticket().GetProto() {
		resp.Tensor, err = tensorproto.Unmarshal(p.Buffer.Bytes(), w.worker.alloc)
		p.Drop()
		return err
	}
	if resp.Tensor, err = tensor.New(resp.dtype, resp.shape, p.Buffer); err == nil {
		*p = transport.Partial{} // the buffer is the tensor's now
	}
	return err
}

// contentSize checks a ticket against the tensor that it is for. The peer has
// kept the content, so there is that much of it; more than the allocator gives
// is refused there.
func contentSize(resp *received) (int, error) {
	ticket := resp.ticket()
	n := int(ticket.GetBytes())
	if n < 0 || uint64(n) != ticket.GetBytes() {
		return 0, status.Errorf(status.InvalidArgument, "the ticket of a tensor is for %d bytes", ticket.GetBytes())
	}
	if ticket.GetProto() {
		return n, nil
	}
	want, err := tensor.ByteSize(resp.dtype, resp.shape)
	if err != nil {
		return 0, err
	}
	if n != want {
		return 0, status.Errorf(status.InvalidArgument,
			"the ticket of a %v tensor of shape %v is for %d bytes; it has %d", resp.dtype, resp.shape, n, want)
	}
	return n, nil
}

// fetchInto fills the attempt's partial buffer.
func (w *wire) fetchInto(ctx context.Context, a *transport.Attempt, sender uint64) error {
	p := a.Partial
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the stream on every way out
	stream, err := w.worker.conn.NewStream(ctx, &trystgrpc.Chunks_ServiceDesc.Streams[0], trystgrpc.Chunks_Fetch_FullMethodName)
	if err != nil {
		return w.failed(ctx, a, err, nil)
	}
	req := &trystpb.FetchRequest{
		AskerIncarnation: a.Asker.Incarnation, Id: a.ID, Attempt: a.Attempt,
		Offset: uint64(p.Bytes), SenderIncarnation: sender,
	}
	if err := stream.SendMsg(req); err != nil && !errors.Is(err, io.EOF) { // EOF: RecvMsg knows why
		return w.failed(ctx, a, err, nil)
	}
	if err := stream.CloseSend(); err != nil {
		return w.failed(ctx, a, err, nil)
	}
	dst := p.Buffer.Bytes()
	for {
		part := arriving{dst: dst[p.Bytes:], offset: uint64(p.Bytes)}
		switch err := stream.RecvMsg(&part); {
		case errors.Is(err, io.EOF):
			if p.Bytes != int64(len(dst)) {
				return status.Errorf(status.DataLoss, "%v ended the content of receive %016x at byte %d of %d",
					w.task, a.ID, p.Bytes, len(dst))
			}
			return nil
		case err != nil:
			return w.failed(ctx, a, err, stream.Trailer())
		case part.err != nil:
			return part.err
		}
		p.Bytes += int64(part.n)
	}
}

// arriving is a tryst.Chunk that arrives: its data is copied once, to dst.
type arriving struct {
	dst    []byte // what is still missing
	offset uint64 // of dst in the content
	n      int    // bytes that have come
	err    error
}

// parse implements parser.
func (a *arriving) parse(data mem.BufferSlice) {
	var offset uint64
	var content cursor
	for c := newCursor(data); c.left > 0; {
		num, typ, ok := c.tag()
		switch {
		case ok && num == fieldChunkOffset && typ == protowire.VarintType:
			offset, ok = c.varint()
		case ok && num == fieldChunkData && typ == protowire.BytesType:
			content, ok = c.message()
		case ok:
			ok = c.skip(typ)
		}
		if !ok {
			a.err = status.New(status.InvalidArgument, "Cannot parse a chunk of a tensor's content")
			return
		}
	}
	if offset != a.offset || content.left == 0 || content.left > len(a.dst) {
		a.err = status.Errorf(status.InvalidArgument,
			"a chunk of a tensor's content has %d bytes from byte %d; expected at most %d from byte %d",
			content.left, offset, len(a.dst), a.offset)
		return
	}
	a.n = content.left
	content.copyTo(a.dst[:a.n])
}
