package grpctransport

import (
	"errors"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// reply is where a response goes. The codec parses it with the bounds of its call.
type reply struct {
	to      any
	largest int64 // in bytes, after decompression
	answers *answers
	err     error // why it is refused; nil when it is only no message
}

// reply returns where a response goes: to itself without a limit, and with a codec of the caller's.
func (a *answers) reply(to any, largest int64) (r *reply, into any) {
	if a == nil || largest < 0 {
		return nil, to
	}
	r = &reply{to: to, largest: largest, answers: a}
	return r, r
}

// largestOf returns how large a response to a call with these options may be, in bytes; −1 with a codec of the
// caller's.
func largestOf(opts []grpc.CallOption) int64 {
	largest := int64(maxAnswer)
	for _, o := range opts {
		switch o := o.(type) {
		case grpc.MaxRecvMsgSizeCallOption:
			largest = int64(o.MaxRecvMsgSize)
		case grpc.ForceCodecCallOption, grpc.ForceCodecV2CallOption, grpc.CustomCodecCallOption:
			return -1
		}
	}
	return largest
}

// unmarshal parses a response. What it takes beside the bytes that came is reserved meanwhile.
func (r *reply) unmarshal(c codec, data mem.BufferSlice) error {
	p := parsing{from: r.answers.from}
	defer r.answers.parsed(int64(data.Len())) // as it came
	defer p.end()
	if to, ok := r.to.(*received); ok {
		to.by = &p
		defer func() { to.by = nil }()
	}
	if data, r.err = plainOf(data, r.largest, &p); r.err != nil {
		return r.err
	}
	err := c.parse(data, r.to, &p)
	if err != nil {
		r.err = p.refused
	}
	return err
}

// plainOf returns a message decompressed, if it is compressed.
func plainOf(data mem.BufferSlice, largest int64, by taker) (mem.BufferSlice, error) {
	if len(data) != 1 || !isGzip(data[0].ReadOnlyData()) {
		return data, nil
	}
	b, _, err := inflate(data[0].ReadOnlyData(), largest, by)
	if err == nil && int64(len(b)) > largest {
		err = largerThan(len(b), largest)
	}
	return mem.BufferSlice{mem.SliceBuffer(b)}, err
}

// parsing is what the parsing of a response has reserved. It implements taker.
type parsing struct {
	from    tensor.Reserver
	held    []reservation
	refused error // the last one
}

// take implements taker. What is given back was taken at once.
func (p *parsing) take(n int64) error {
	if n > 0 {
		b, err := p.from.Reserve(n)
		return p.hold(n, b, err)
	}
	if i := slices.IndexFunc(p.held, func(r reservation) bool { return r.bytes == -n }); i >= 0 {
		p.held[i].buffer.Release()
		p.held = slices.Delete(p.held, i, i+1)
	}
	return nil
}

// allocate takes n bytes and returns their memory, which is not on the Go heap when it is large: there it would
// stay until the next collection.
func (p *parsing) allocate(n int64) ([]byte, error) {
	b, err := p.from.Allocate(int(n))
	if err := p.hold(n, b, err); err != nil {
		return nil, err
	}
	return b.Bytes()[:0:n], nil
}

func (p *parsing) hold(n int64, b *tensor.Buffer, err error) error {
	if err != nil {
		p.refused = refusedHere(err)
		return p.refused
	}
	p.held = append(p.held, reservation{n, b})
	return nil
}

// end gives everything back.
func (p *parsing) end() {
	for _, r := range p.held {
		r.buffer.Release()
	}
	p.held = nil
}

func refusedHere(why error) error {
	return status.From(why).WithPrefix("a response is larger than what this process has left")
}

// explain returns the reason of a call whose response this process has refused. r may be nil.
func (a *answers) explain(err error, r *reply) error {
	switch {
	case a == nil || err == nil:
		return err
	case r != nil && r.err != nil:
		return ownError{status.From(r.err)}
	}
	s := grpcstatus.Convert(err)
	switch {
	case s.Code() != codes.ResourceExhausted:
	case strings.Contains(s.Message(), "ENHANCE_YOUR_CALM"):
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.reason != nil { // otherwise it is of the peer
			return ownError{status.From(refusedHere(a.reason))}
		}
	case strings.HasPrefix(s.Message(), "grpc: received message larger than max"):
		return ownError{status.New(status.ResourceExhausted, "the response is larger than what this call takes: "+s.Message())}
	}
	return err
}

// ownErrorOf returns why this process did not make a call, or did not take its response; nil when err is not so.
func ownErrorOf(err error) *status.Error {
	if own, ok := errors.AsType[ownError](err); ok {
		return own.why
	}
	return nil
}

// stream returns a stream whose responses have a limit, and errors with their reasons.
func (a *answers) stream(s grpc.ClientStream, opts []grpc.CallOption) grpc.ClientStream {
	if a == nil {
		return s
	}
	return boundedStream{s, a, largestOf(opts)}
}

type boundedStream struct {
	grpc.ClientStream
	answers *answers
	largest int64
}

// RecvMsg implements grpc.ClientStream.
func (s boundedStream) RecvMsg(m any) error {
	r, into := s.answers.reply(m, s.largest)
	return s.answers.explain(s.ClientStream.RecvMsg(into), r)
}
