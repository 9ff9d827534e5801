package grpctransport

import (
	"slices"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensorproto"
	"github.com/tryst-rdma/tryst/transport"
)

// received is a received RecvTensorResponse.
//
// A message of the usual form is parsed in place: the content is copied once, into memory
// from alloc. The generated code parses any other message, for instance one with repeated
// fields, lists of values or strings. Both give the same result.
//
// A receive with a destination of the receiver's (transport.Receive.Into) has its content
// parsed into that memory, and any other form is copied there.
type received struct {
	alloc tensor.Allocator
	t     *transport.Receive // nil for a call of a Worker
	by    taker              // what parsing takes is charged to it; nil for no limit

	// The result of parse: the response, or err.
	transport.TensorResponse
	extra *trystpb.RecvExtra // nil when the peer sent none
	err   error

	// The type of the tensor to fetch, when the response has a ticket and no tensor.
	dtype tensor.DType
	shape tensor.Shape
}

// parse implements parser.
func (r *received) parse(data mem.BufferSlice) {
	r.release() // gRPC may parse twice
	done, err := r.parseUsual(newCursor(data))
	if err == nil && !done {
		r.release()
		if err = r.parseAny(data); err == nil && r.Tensor != nil && r.t != nil {
			r.Tensor, err = r.t.Deliver(r.Tensor, r.Dead)
		}
	}
	if err != nil {
		r.release()
		r.err = err
	}
}

// release releases the tensor and clears the result.
func (r *received) release() {
	if r.Tensor != nil {
		r.Tensor.Release()
	}
	*r = received{alloc: r.alloc, t: r.t, by: r.by}
}

// charged returns what parsing is charged to.
func (r *received) charged() taker {
	if r.by == nil {
		return new(unlimited)
	}
	return r.by
}

func unparsable(why error) error {
	return status.New(status.InvalidArgument, "Cannot parse tensor from response: "+status.From(why).Message())
}

// ticket returns the ticket for content that is not in the message, or nil.
func (r *received) ticket() *trystpb.Ticket { return r.extra.GetTicket() }

// setDead makes the result an empty float[0], whatever tensor the peer sent: the content of
// a dead value is not used (PROTOCOL.md section 3).
func (r *received) setDead() {
	r.Tensor = deadTensor()
	if r.extra != nil {
		r.extra.Ticket = nil
	}
}

// setOptions sets Options to a, and extra if a is a RecvExtra.
func (r *received) setOptions(a *anypb.Any) error {
	r.Options = a
	var extra trystpb.RecvExtra
	if !a.MessageIs(&extra) {
		return nil
	}
	if err := a.UnmarshalTo(&extra); err != nil {
		return unparsable(err)
	}
	r.extra = &extra
	return nil
}

// parseUsual parses a message of the usual form. It returns false for any other message,
// valid or not.
func (r *received) parseUsual(c cursor) (done bool, err error) {
	var content cursor // the TensorProto
	found := false
	for c.left > 0 {
		num, typ, ok := c.tag()
		if !ok {
			return false, nil
		}
		switch {
		case num == fieldTensor && typ == protowire.BytesType:
			twice := found
			if content, found = c.message(); !found || twice {
				return false, nil
			}
		case num == fieldOptions && typ == protowire.BytesType:
			options, ok := c.message()
			if !ok || r.Options != nil {
				return false, nil
			}
			if err := r.charged().take(restFactor * int64(options.left)); err != nil {
				return false, err
			}
			b, a := make([]byte, options.left), new(anypb.Any)
			options.copyTo(b)
			if proto.Unmarshal(b, a) != nil {
				return false, nil
			}
			if err := r.setOptions(a); err != nil {
				return false, err
			}
		case typ == protowire.VarintType:
			v, ok := c.varint()
			if !ok {
				return false, nil
			}
			switch num {
			case fieldDead:
				r.Dead = v != 0
			case fieldSendStartMicros:
				r.SendStartMicros = int64(v)
			case fieldRequireAck:
				r.RequireAck = v != 0
			}
		case !c.skip(typ):
			return false, nil
		}
	}
	switch {
	case r.Dead:
		r.setDead()
		return true, nil
	case !found, r.ticket() != nil:
		return false, nil
	}
	return r.parseTensor(content)
}

// parseTensor parses a TensorProto whose content is the memory of the elements. It checks
// that the content has the size of the shape before it allocates.
func (r *received) parseTensor(c cursor) (ok bool, err error) {
	h, ok := tensorproto.ParseHeader(c.peek(tensorproto.MaxHeader), c.left)
	if !ok {
		return false, nil
	}
	if r.t != nil && r.t.Into != nil {
		if err := r.t.CheckInto(h.DType, h.Shape); err != nil {
			return false, err
		}
		r.Tensor = r.t.Into.Tensor().Retain()
	} else if r.Tensor, err = tensor.Allocate(r.alloc, h.DType, h.Shape); err != nil {
		return false, err
	}
	c.advance(h.Start)
	c.copyTo(r.Tensor.Bytes())
	return true, nil
}

// parseAny parses a message of any form. It joins the buffers first, which costs a second
// copy of the content.
func (r *received) parseAny(data mem.BufferSlice) error {
	b, err := joined(data, r.charged())
	if err != nil {
		return err
	}
	var m tfpb.RecvTensorResponse
	content, rest, err := splitTensor(b, r.charged())
	if err != nil {
		return err
	}
	if err := proto.Unmarshal(rest, &m); err != nil {
		return unparsable(err)
	}
	r.Dead, r.SendStartMicros, r.RequireAck = m.GetIsDead(), m.GetSendStartMicros(), m.GetRequireAck()
	if a := m.GetTransportOptions(); a != nil {
		if err := r.setOptions(a); err != nil {
			return err
		}
	}
	d := tensorproto.Decoder{Allocator: r.alloc}
	switch {
	case r.Dead:
		r.setDead()
	case r.ticket() == nil:
		r.Tensor, err = d.Unmarshal(content)
	default:
		r.dtype, r.shape, err = d.Type(content)
	}
	if status.CodeOf(err) == status.InvalidArgument {
		return unparsable(err)
	}
	return err
}

// splitTensor returns the TensorProto of a RecvTensorResponse, and its other known fields.
// Package tensorproto parses the TensorProto, since it reserves memory from the allocator
// first. A repeated field is concatenated, which merges the values as protobuf does. Copies are
// charged to by.
func splitTensor(b []byte, by taker) (content, rest []byte, err error) {
	joined := false
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return nil, nil, unparsable(protowire.ParseError(n))
		}
		m := protowire.ConsumeFieldValue(num, typ, b[n:])
		if m < 0 {
			return nil, nil, unparsable(protowire.ParseError(m))
		}
		switch {
		case num == fieldTensor && typ == protowire.BytesType:
			value, _ := protowire.ConsumeBytes(b[n : n+m])
			if content == nil {
				content = slices.Clip(value)
				break
			}
			copied := len(value)
			if !joined {
				copied += len(content)
			}
			joined = true
			if err := by.take(copyFactor * int64(copied)); err != nil {
				return nil, nil, err
			}
			content = append(content, value...)
		case num <= fieldRequireAck: // the last one
			if err := by.take(restFactor * int64(n+m)); err != nil {
				return nil, nil, err
			}
			rest = append(rest, b[:n+m]...)
		}
		b = b[n+m:]
	}
	return content, rest, nil
}

// take returns the response. The caller owns its tensor from now on.
func (r *received) take() transport.TensorResponse {
	t := r.TensorResponse
	r.Tensor = nil
	return t
}
