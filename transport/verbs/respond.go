package verbstransport

import (
	"errors"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/channel"
	"github.com/tryst-rdma/tryst/internal/wire"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensorproto"
	"github.com/tryst-rdma/tryst/transport"
	"github.com/tryst-rdma/tryst/transport/verbs/internal/regmem"
)

// The responder's side: a request of the peer goes to the response cache, and the memory of
// the response to the state machine.

// request serves a request of the peer. If the response is available at once and is plain
// memory, request passes it to the machine and returns true. Otherwise the cache calls Reply
// later. Called with mu held. q.Key is valid until request returns.
func (l *link) request(now time.Time, q *channel.Request) (answered bool) {
	id := attemptID{q.ID, q.Attempt}
	l.peer.transport.active()
	if l.replaced != nil {
		l.respondLocked(now, id, channel.Response{Err: transport.Moved(l.replaced), Fallback: true}, contentMemory{})
		return true
	}
	r, err := l.parse(q)
	if err != nil {
		l.respondLocked(now, id, channel.Response{Err: status.From(err)}, contentMemory{})
		if isNotProven(err) {
			l.outbox = append(l.outbox, outgoing{kind: outRest, rest: func() { l.refused(err) }})
		}
		return true
	}
	if q.Left > l.peerLeft { // each request repeats it
		l.peerLeft = q.Left
		l.outbox = append(l.outbox, outgoing{kind: outLeft, left: q.Left})
	}
	if l.outboxBusy || len(l.outbox) > 0 { // keep the order of arrival
		l.outbox = append(l.outbox, outgoing{kind: outRequest, request: r})
		return false
	}
	resp, ok, rest := l.peer.transport.opts.Cache.RequestNow(l, r)
	if rest != nil {
		l.outbox = append(l.outbox, outgoing{kind: outRest, rest: rest})
	}
	if !ok {
		return false
	}
	if t := resp.Value.Tensor; resp.Err == nil && !resp.Value.Dead && t.DType().Plain() && t.Size() > 0 {
		a, src := l.plainResponse(t)
		l.respondLocked(now, id, a, src)
		return true
	}
	l.outbox = append(l.outbox, outgoing{kind: outRest, rest: func() { l.Reply(id.id, id.attempt, resp) }})
	return false
}

// parse checks and converts a request.
func (l *link) parse(q *channel.Request) (transport.Request, error) {
	if q.Left >= l.own.Generation { // a generation that was left earlier is lower
		return transport.Request{}, status.Errorf(status.FailedPrecondition,
			"%v reports on %v that it has left generation %d", l.peer.task, l, q.Left)
	}
	if own := l.peer.transport.opts.Self.Incarnation; q.Responder != own {
		return transport.Request{}, transport.OtherProcess(q.Responder, own)
	}
	key, err := l.keys.parse(q.Key)
	r := transport.Request{Requester: l.requester, ID: q.ID, Attempt: q.Attempt, Step: q.Step, Key: key}
	if err == nil && l.receiver != nil {
		r.Guard, err = l.receiver(key)
	}
	return r, err
}

// refused reports a request that was refused because it is not for the peer. Called without locks.
func (l *link) refused(err error) {
	if o := &l.peer.transport.opts; o.Refused != nil && isNotProven(err) {
		o.Refused(l.peer.task, err)
	}
}

// isNotProven reports whether an error refuses a name. The code alone does not tell: a kernel that may not
// open a file has the same.
func isNotProven(err error) bool {
	_, is := errors.AsType[cluster.NotProven](err)
	return is
}

// Reply implements transport.Replier: resp is the response to a request of the peer. It may
// run on the goroutine that calls Send and must not block it, so slow work runs on another
// goroutine.
func (l *link) Reply(id uint64, attempt uint32, resp transport.Response) {
	at := attemptID{id, attempt}
	if resp.Err != nil {
		var undecided *transport.UndecidedError
		l.refused(resp.Err)
		l.respond(at, channel.Response{Err: status.From(resp.Err), Fallback: errors.As(resp.Err, &undecided)}, contentMemory{})
		return
	}
	t := resp.Value.Tensor
	switch {
	case resp.Value.Dead:
		l.respond(at, channel.Response{Value: deadValue()}, contentMemory{})
		l.peer.transport.release(t.Buffer())
	case !t.DType().Plain():
		l.async(func() { l.respondProto(at, t) })
	default:
		l.respondPlain(at, t)
	}
}

// respondPlain responds with a tensor of plain memory and takes over its reference. An empty
// tensor has no content.
func (l *link) respondPlain(id attemptID, t *tensor.Tensor) {
	l.mu.Lock()
	if t.Size() == 0 {
		l.respondUnlock(id, channel.Response{Value: l.describe(t)}, contentMemory{})
		l.peer.transport.release(t.Buffer())
		return
	}
	a, src := l.plainResponse(t)
	l.respondUnlock(id, a, src)
}

// plainResponse returns the response with a tensor of plain memory that is not empty. Called
// with mu held.
func (l *link) plainResponse(t *tensor.Tensor) (channel.Response, contentMemory) {
	a := channel.Response{Value: l.describe(t)}
	src := contentMemory{buf: t.Buffer(), bytes: t.Bytes()}
	if !l.machine.Eager(&a.Value) {
		var registered bool
		src.at, registered = l.port.memory.Find(src.buf, src.bytes)
		a.Unregistered = !registered
	}
	return a, src
}

// describe returns the meta-data of a value whose elements are plain memory. Its Dims are
// valid until the next call. Called with mu held.
func (l *link) describe(t *tensor.Tensor) wire.Value {
	l.shape = t.Shape().AppendDims(l.shape[:0])
	l.dims = wire.AppendDims(l.dims[:0], l.shape...)
	return wire.Value{DType: t.DType(), Size: uint64(t.Size()), Dims: l.dims} //nolint:gosec // never negative
}

// respondProto responds with a tensor whose elements are not plain memory, as a serialised
// TensorProto. It takes over the tensor's reference.
func (l *link) respondProto(id attemptID, t *tensor.Tensor) {
	defer t.Release()
	content, err := tensorproto.Append(nil, t)
	if err != nil {
		l.peer.transport.opts.Cache.Fail(l.requester, id.id, id.attempt, err)
		l.respond(id, channel.Response{Err: status.From(err)}, contentMemory{})
		return
	}
	a := channel.Response{Value: describeProto(t, len(content))}
	a.Unregistered = !l.machine.Eager(&a.Value)
	l.respond(id, a, contentMemory{buf: tensor.NewBuffer(content, nil), bytes: content})
}

// respond passes a response to the machine. It takes over the reference of src.
func (l *link) respond(id attemptID, a channel.Response, src contentMemory) {
	l.mu.Lock()
	l.respondUnlock(id, a, src)
}

// respondUnlock is respond for callers that hold mu, which it unlocks.
func (l *link) respondUnlock(id attemptID, a channel.Response, src contentMemory) {
	if l.state == linkGone {
		l.mu.Unlock()
		if src.buf != nil {
			l.peer.transport.release(src.buf)
		}
		return
	}
	now := time.Now()
	l.respondLocked(now, id, a, src)
	l.run(now)
}

// respondLocked passes a response to the machine without running its actions. It takes over
// the reference of src. Called with mu held.
func (l *link) respondLocked(now time.Time, id attemptID, a channel.Response, src contentMemory) {
	if src.buf != nil {
		a.Source.Handle = l.sources.put(src)
	}
	l.machine.Watch(now, true) // watch the peer until the cache holds nothing for it (tick)
	if l.machine.Respond(now, id.id, id.attempt, a) && a.Err == nil {
		l.peer.counters.sent.Add(1)
		l.peer.counters.sentBytes.Add(a.Value.Size)
	}
}

// stage copies the content of a response into registered memory, on another goroutine. The
// machine requests the copy when the peer has sent the destination. Where registering costs nothing,
// content that finds no room is registered where it lies, so that no peer keeps others from theirs.
// Called with mu held.
func (l *link) stage(id attemptID, handle uint64) {
	from, ok := l.sources.get(handle)
	if !ok {
		return
	}
	from.buf = from.buf.Retain() // the request may be cancelled during the copy
	l.async(func() {
		to := contentMemory{staged: int64(len(from.bytes))}
		src, err := l.port.memory.Stage(from.bytes, &l.staged)
		if err != nil {
			if in, e := l.port.memory.InPlace(from.buf, from.bytes); e == nil {
				src, err, to.staged = in, nil, 0
			}
		}
		l.peer.transport.release(from.buf)
		l.mu.Lock()
		now := time.Now()
		if err != nil {
			l.machine.NotStaged(now, id.id, id.attempt, status.From(err))
		} else {
			to.buf, to.at = src.Buffer(), src.Range
			l.machine.Staged(now, id.id, id.attempt, channel.Source{Handle: l.sources.put(to)})
		}
		l.run(now)
	})
}

// contentMemory is memory that content is sent from. It owns a reference to buf. The zero contentMemory
// is for responses without content.
type contentMemory struct {
	buf    *tensor.Buffer
	bytes  []byte       // content that is sent in a message, or is staged first
	at     regmem.Range // registered memory that is sent by RDMA write
	staged int64        // size of a copy in the sending pool, in bytes; else 0
}
