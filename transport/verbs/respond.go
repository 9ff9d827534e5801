package verbstransport

import (
	"errors"
	"time"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensorproto"
	"github.com/tryst-rdma/tryst/transport"
	"github.com/tryst-rdma/tryst/transport/internal/channel"
	"github.com/tryst-rdma/tryst/transport/internal/delivery"
	"github.com/tryst-rdma/tryst/transport/internal/wire"
	"github.com/tryst-rdma/tryst/transport/verbs/internal/regmem"
)

// The responder's side: a request of the peer goes to the response cache, and the
// response's memory to the machine.

// request looks for the response to a request of the peer. If there is one at once, the
// machine gets it, and there is more to do. Else the cache replies. Called with the lock
// held; the key is in a message that will be gone.
func (l *link) request(now time.Time, q *channel.Request) (answered bool) {
	id := attemptID{q.ID, q.Attempt}
	r, err := l.parse(q)
	if err != nil {
		l.answered(now, id, channel.Response{Err: status.From(err)}, source{})
		return true
	}
	if q.Left > l.named { // each request names it, once is enough
		l.named = q.Left
		l.outbox = append(l.outbox, outgoing{kind: outLeft, left: q.Left})
	}
	if l.emptying || len(l.outbox) > 0 { // behind what came before it
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
		a, src := l.plain(t)
		l.answered(now, id, a, src)
		return true
	}
	l.outbox = append(l.outbox, outgoing{kind: outRest, rest: func() { l.Reply(id.id, id.attempt, resp) }})
	return false
}

// parse checks a request that the machine has taken.
func (l *link) parse(q *channel.Request) (transport.Request, error) {
	if q.Left >= l.own.Generation { // what was left before is a lower one
		return transport.Request{}, status.Errorf(status.FailedPrecondition,
			"%v reports on %v that it has left generation %d", l.peer.task, l, q.Left)
	}
	if own := l.peer.transport.opts.Self.Incarnation; q.Responder != own {
		return transport.Request{}, delivery.OtherProcess(q.Responder, own)
	}
	key, err := l.keys.parse(q.Key)
	return transport.Request{Requester: l.requester, ID: q.ID, Attempt: q.Attempt, Step: q.Step, Key: key}, err
}

// Reply implements transport.Replier: ans is the response to a request of the peer. It
// runs on the goroutine of the Send, and must not hold it up: what takes time is
// done on a goroutine of its own.
func (l *link) Reply(id uint64, attempt uint32, ans transport.Response) {
	at := attemptID{id, attempt}
	if ans.Err != nil {
		var open *transport.UndecidedError
		l.answer(at, channel.Response{Err: status.From(ans.Err), Fallback: errors.As(ans.Err, &open)}, source{})
		return
	}
	t := ans.Value.Tensor
	switch {
	case ans.Value.Dead:
		l.answer(at, channel.Response{Value: deadValue()}, source{})
		l.peer.transport.release(t.Buffer())
	case !t.DType().Plain():
		l.aside(func() { l.answerProto(at, t) })
	default:
		l.answerPlain(at, t)
	}
}

// answerPlain answers with plain memory, whose reference it takes over. What is empty has
// no source.
func (l *link) answerPlain(id attemptID, t *tensor.Tensor) {
	l.mu.Lock()
	if t.Size() == 0 {
		l.answerLocked(id, channel.Response{Value: l.describe(t)}, source{})
		l.peer.transport.release(t.Buffer())
		return
	}
	a, src := l.plain(t)
	l.answerLocked(id, a, src)
}

// plain is the answer with plain memory that is not empty. Called with the lock held.
func (l *link) plain(t *tensor.Tensor) (channel.Response, source) {
	a := channel.Response{Value: l.describe(t)}
	src := source{buf: t.Buffer(), bytes: t.Bytes()}
	if !l.machine.Eager(&a.Value) {
		var registered bool
		src.piece, registered = l.peer.transport.port.memory.Find(src.buf, src.bytes)
		a.Unregistered = !registered
	}
	return a, src
}

// describe is the meta-data of a value whose elements are plain memory. Its dimensions are
// good until the next call. Called with the lock held.
func (l *link) describe(t *tensor.Tensor) wire.Value {
	l.shape = t.Shape().AppendDims(l.shape[:0])
	l.dims = wire.AppendDims(l.dims[:0], l.shape...)
	return wire.Value{DType: t.DType(), Size: uint64(t.Size()), Dims: l.dims} //nolint:gosec // never negative
}

// answerProto answers with elements that are not plain memory.
func (l *link) answerProto(id attemptID, t *tensor.Tensor) {
	defer t.Release()
	content, err := tensorproto.Append(nil, t)
	if err != nil {
		l.answer(id, channel.Response{Err: status.From(err)}, source{})
		return
	}
	a := channel.Response{Value: describeProto(t, len(content))}
	a.Unregistered = !l.machine.Eager(&a.Value)
	l.answer(id, a, source{buf: tensor.NewBuffer(content, nil), bytes: content})
}

// answer tells the machine. It takes over the source's reference.
func (l *link) answer(id attemptID, a channel.Response, src source) {
	l.mu.Lock()
	l.answerLocked(id, a, src)
}

// answerLocked is answer with the lock held, which it gives up.
func (l *link) answerLocked(id attemptID, a channel.Response, src source) {
	if l.state == linkGone {
		l.mu.Unlock()
		if src.buf != nil {
			l.peer.transport.release(src.buf)
		}
		return
	}
	now := time.Now()
	l.answered(now, id, a, src)
	l.run(now)
}

// answered tells the machine of an answer. Called with the lock held.
func (l *link) answered(now time.Time, id attemptID, a channel.Response, src source) {
	if src.buf != nil {
		a.Source.Handle = l.sources.put(src)
	}
	l.machine.Watch(now, true) // until the table keeps nothing for the peer
	if l.machine.Respond(now, id.id, id.attempt, a) && a.Err == nil {
		l.peer.counters.sent.Add(1)
		l.peer.counters.sentBytes.Add(a.Value.Size)
	}
}

// stage copies the content of a request into registered memory, as the machine wants it
// now that it knows where the content goes. The copy takes time, so another goroutine
// makes it. Called with the lock held.
func (l *link) stage(id attemptID, handle uint64) {
	from, ok := l.sources.get(handle)
	if !ok {
		return
	}
	from.buf = from.buf.Retain() // the request may be cancelled meanwhile
	l.aside(func() {
		src, err := l.peer.transport.port.memory.Stage(from.bytes, &l.staged)
		l.peer.transport.release(from.buf)
		l.mu.Lock()
		now := time.Now()
		if err != nil {
			l.machine.NotStaged(now, id.id, id.attempt, status.From(err))
		} else {
			to := source{buf: src.Buffer(), piece: src.Piece, staged: int64(len(from.bytes))}
			l.machine.Staged(now, id.id, id.attempt, channel.Source{Handle: l.sources.put(to)})
		}
		l.run(now)
	})
}

// source is memory that content is sent from, with the reference that keeps it; the
// zero source is none.
type source struct {
	buf    *tensor.Buffer
	bytes  []byte       // of what goes within a message, or is staged first
	piece  regmem.Piece // of what is written
	staged int64        // bytes of a copy in the sending pool; else 0
}
