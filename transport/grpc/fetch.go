package grpctransport

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
	"github.com/tryst-rdma/tryst/internal/proto/trystgrpc"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensorproto"
	"github.com/tryst-rdma/tryst/transport"
)

// content describes the content that a ticket is for.
type content struct {
	size  int  // in bytes
	proto bool // a serialised TensorProto; otherwise the memory of the elements
}

// fetch gets the content for the ticket in resp and sets resp.Tensor. The bytes received so
// far are in the transfer's Partial, with the content as its State: the next attempt resumes
// after the last byte received.
func (c *conn) fetch(ctx context.Context, t *transport.Receive, resp *received) error {
	of, err := contentOf(resp)
	if err != nil {
		return &transport.ReceiverError{Err: status.From(err).WithPrefix(c.task.String())}
	}
	if !of.proto {
		if err := t.CheckInto(resp.dtype, resp.shape); err != nil {
			return err
		}
	}
	p := &t.Partial
	if p.State != of {
		p.Drop()
		p.State = of
	}
	f := download{content: of, partial: p, alloc: c.worker.alloc}
	if t.Into != nil && !of.proto {
		f.into = t.Into.Tensor()
	}
	if err := f.reserve(0); err != nil {
		return &transport.ReceiverError{Err: status.From(err).WithPrefix(fmt.Sprintf("%v sent a ticket for a %v tensor of shape %v with %d bytes",
			c.task, resp.dtype, resp.shape, of.size))}
	}
	if err := c.fetchInto(ctx, t, &f, resp.extra.GetSenderIncarnation()); err != nil {
		return err
	}
	if of.proto {
		resp.Tensor, err = tensorproto.Unmarshal(p.Buffer.Bytes(), c.worker.alloc)
		p.Drop()
		if err == nil {
			resp.Tensor, err = t.Deliver(resp.Tensor, resp.Dead)
		}
	} else if f.into != nil {
		resp.Tensor = f.into
		*p = transport.Partial{} // the value has its reference now
	} else if resp.Tensor, err = tensor.New(resp.dtype, resp.shape, p.Buffer); err == nil {
		*p = transport.Partial{} // the tensor owns the buffer now
	}
	if err != nil {
		return receiverError(err)
	}
	return nil
}

// contentOf returns the content of the ticket in resp, checked against dtype and shape.
func contentOf(resp *received) (content, error) {
	size := resp.ticket().GetBytes()
	if resp.ticket().GetProto() {
		if size > maxMessage {
			return content{}, status.Errorf(status.InvalidArgument,
				"the ticket of a %v tensor of shape %v is for a message of %d bytes; protobuf's limit is %d",
				resp.dtype, resp.shape, size, maxMessage)
		}
		return content{int(size), true}, nil
	}
	want, err := tensor.ByteSize(resp.dtype, resp.shape)
	if err != nil {
		return content{}, err
	}
	if size != uint64(want) {
		return content{}, status.Errorf(status.InvalidArgument,
			"the ticket of a %v tensor of shape %v is for %d bytes; it has %d", resp.dtype, resp.shape, size, want)
	}
	return content{want, false}, nil
}

// fetchInto fetches the missing bytes of f.
func (c *conn) fetchInto(ctx context.Context, t *transport.Receive, f *download, sender uint64) error {
	p := f.partial
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the stream on every return
	stream, err := c.worker.conn.NewStream(ctx, &trystgrpc.Chunks_ServiceDesc.Streams[0], trystgrpc.Chunks_Fetch_FullMethodName,
		grpc.MaxCallRecvMsgSize(maxChunkAnswer))
	if err != nil {
		return c.failed(ctx, t, err, nil)
	}
	req := &trystpb.FetchRequest{
		Requester: t.Requester.Name, RequesterIncarnation: t.Requester.Incarnation, Id: t.ID, Attempt: t.Attempt,
		Offset: uint64(p.Bytes), SenderIncarnation: sender,
	}
	if err := stream.SendMsg(req); err != nil && !errors.Is(err, io.EOF) { // after EOF, RecvMsg returns the error
		return c.failed(ctx, t, err, nil)
	}
	if err := stream.CloseSend(); err != nil {
		return c.failed(ctx, t, err, nil)
	}
	for {
		part := arrivedChunk{download: f}
		switch err := stream.RecvMsg(&part); {
		case errors.Is(err, io.EOF):
			if f.missing() != 0 {
				return &transport.ReceiverError{Err: status.Errorf(status.DataLoss, "%v ended the content of receive %016x at byte %d of %d",
					c.task, t.ID, p.Bytes, f.size)}
			}
			return nil
		case err != nil:
			return c.failed(ctx, t, err, stream.Trailer())
		case part.err != nil:
			return &transport.ReceiverError{Err: status.From(part.err).WithPrefix(c.task.String())}
		}
		p.Bytes += int64(part.n)
	}
}

// download is a content that is being received.
type download struct {
	content
	partial *transport.Partial
	alloc   tensor.Allocator
	into    *tensor.Tensor // where it goes; nil for memory of alloc
}

// missing returns the number of bytes not yet received.
func (f *download) missing() int { return f.size - int(f.partial.Bytes) }

// reserve grows the buffer so that n more bytes fit; n is at most missing.
//
// The elements of a tensor are received in place, so the first call allocates the whole
// buffer, and the allocator decides about its size. A serialised tensor is parsed and
// dropped: its buffer grows with the bytes received, to at most twice as many plus growth.
func (f *download) reserve(n int) error {
	p, size := f.partial, f.size
	have := int(p.Bytes) + n
	switch {
	case p.Buffer != nil && p.Buffer.Len() >= have:
		return nil
	case f.into != nil:
		p.Buffer = f.into.Buffer().Retain()
		return nil
	case f.proto:
		size = have + min(size-have, have+growth)
	}
	b, err := f.alloc.Allocate(size)
	if err != nil {
		return err
	}
	if p.Buffer != nil {
		copy(b.Bytes(), p.Buffer.Bytes()[:p.Bytes])
		p.Buffer.Release()
	}
	p.Buffer = b
	return nil
}

// arrivedChunk is a received tryst.Chunk. parse copies its data to the end of the bytes
// received so far.
type arrivedChunk struct {
	*download
	n   int // bytes copied
	err error
}

// parse implements parser.
func (a *arrivedChunk) parse(data mem.BufferSlice) {
	var offset uint64
	var body cursor
	for c := newCursor(data); c.left > 0; {
		num, typ, ok := c.tag()
		switch {
		case ok && num == fieldChunkOffset && typ == protowire.VarintType:
			offset, ok = c.varint()
		case ok && num == fieldChunkData && typ == protowire.BytesType:
			body, ok = c.message()
		case ok:
			ok = c.skip(typ)
		}
		if !ok {
			a.err = status.New(status.InvalidArgument, "Cannot parse a chunk of a tensor's content")
			return
		}
	}
	at := a.partial.Bytes
	if offset != uint64(at) || body.left == 0 || body.left > a.missing() {
		a.err = status.Errorf(status.InvalidArgument,
			"a chunk of a tensor's content has %d bytes from byte %d; expected at most %d from byte %d",
			body.left, offset, a.missing(), at)
		return
	}
	if a.err = a.reserve(body.left); a.err != nil {
		return
	}
	a.n = body.left
	body.copyTo(a.partial.Buffer.Bytes()[at:][:a.n])
}
