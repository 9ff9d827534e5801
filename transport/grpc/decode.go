package grpctransport

import (
	"slices"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	trystpb "github.com/tryst-rdma/tryst/proto/tryst"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensorproto"
	"github.com/tryst-rdma/tryst/transport"
)

// received is a RecvTensorResponse that arrives.
//
// Messages of the usual form are read in place, and their content is copied
// once, into memory from alloc. As soon as anything else turns up (fields that
// come twice, lists of values, strings), the whole is parsed by the generated
// code. Both ways give the same.
type received struct {
	alloc tensor.Allocator

	// What was read; err says why nothing was.
	transport.TensorResponse
	extra *trystpb.RecvExtra // nil when the peer sent none
	err   error

	// With a ticket there is no tensor yet; this is what it will be.
	dtype tensor.DType
	shape tensor.Shape
}

// parse implements parser.
func (r *received) parse(data mem.BufferSlice) {
	r.release() // gRPC may ask twice
	done, err := r.parseUsual(newCursor(data))
	if err == nil && !done {
		r.release()
		err = r.parseAny(data)
	}
	if err != nil {
		r.release()
		r.err = err
	}
}

// release drops what was read.
func (r *received) release() {
	if r.Tensor != nil {
		r.Tensor.Release()
	}
	*r = received{alloc: r.alloc}
}

func unparsable(why error) error {
	return status.New(status.InvalidArgument, "Cannot parse tensor from response: "+status.From(why).Message())
}

// ticket returns the ticket for content that is not in the message, or nil.
func (r *received) ticket() *trystpb.Ticket { return r.extra.GetTicket() }

// setDead makes an empty float[0] of a dead value, whatever the peer says that it is: nobody
// reads its content (PROTOCOL.md section 3).
func (r *received) setDead() {
	r.Tensor = deadTensor()
	if r.extra != nil {
		r.extra.Ticket = nil
	}
}

// setOptions reads the peer's RecvExtra, if that is what a is.
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

// parseUsual reads a message of the usual form; false means that it has
// another one, or is broken.
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
			b, ok := c.bytes()
			a := new(anypb.Any)
			if !ok || r.Options != nil || proto.Unmarshal(b, a) != nil {
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

// parseTensor reads a TensorProto whose content is memory. That there is as
// much of it as the shape says is known before memory is taken.
func (r *received) parseTensor(c cursor) (ok bool, err error) {
	h, ok := tensorproto.ParseHeader(c.peek(tensorproto.MaxHeader), c.left)
	if !ok {
		return false, nil
	}
	r.Tensor, err = tensor.Allocate(r.alloc, h.DType, h.Shape)
	if err != nil {
		return false, err
	}
	c.advance(h.Start)
	c.copyTo(r.Tensor.Bytes())
	return true, nil
}

// parseAny reads a message of any form. All of it is gathered first, so large
// tensors of peers that are neither TensorFlow nor Tryst cost a second copy.
func (r *received) parseAny(data mem.BufferSlice) error {
	var m tfpb.RecvTensorResponse
	content, rest, err := cutTensor(data.Materialize())
	if err == nil {
		err = proto.Unmarshal(rest, &m)
	}
	if err != nil {
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

// cutTensor returns the TensorProto of a RecvTensorResponse, and the message without it. So
// package tensorproto parses it, which reserves memory before. If the field comes more than
// once, protobuf merges: it parses one value behind the other.
func cutTensor(b []byte) (content, rest []byte, err error) {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return nil, nil, protowire.ParseError(n)
		}
		m := protowire.ConsumeFieldValue(num, typ, b[n:])
		if m < 0 {
			return nil, nil, protowire.ParseError(m)
		}
		if num == fieldTensor && typ == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(b[n : n+m])
			if content == nil {
				content = slices.Clip(value)
			} else {
				content = append(content, value...)
			}
		} else {
			rest = append(rest, b[:n+m]...)
		}
		b = b[n+m:]
	}
	return content, rest, nil
}

// take gives what was read to the caller, and with it the tensor.
func (r *received) take() transport.TensorResponse {
	t := r.TensorResponse
	r.Tensor = nil
	return t
}
