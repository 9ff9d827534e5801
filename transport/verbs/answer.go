package verbstransport

import (
	"time"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensorproto"
	"github.com/tryst-rdma/tryst/transport"
	"github.com/tryst-rdma/tryst/transport/verbs/channel"
	"github.com/tryst-rdma/tryst/transport/verbs/mem"
	"github.com/tryst-rdma/tryst/transport/verbs/wire"
)

// The sender's side: a request of the peer goes to the table of answers, and the
// answer's memory to the machine.

// ask hands a request over to the outbox, or has the machine refuse it: then there is more
// to do. Called with the lock held; the key is in a message that will be gone.
func (l *link) ask(now time.Time, a *channel.Ask) (refused bool) {
	if a.Left > l.named { // each request says it, once is enough
		l.named = a.Left
		l.outbox = append(l.outbox, outgoing{kind: outLeft, left: a.Left})
	}
	if own := l.peer.transport.opts.Self.Incarnation; a.Sender != own {
		l.machine.Answer(now, a.ID, a.Attempt, channel.Answer{Err: transport.OtherProcess(a.Sender, own)})
		return true
	}
	key, err := l.keys.parse(a.Key)
	if err != nil {
		l.machine.Answer(now, a.ID, a.Attempt, channel.Answer{Err: status.From(err)})
		return true
	}
	ask := transport.Ask{Asker: l.asker, ID: a.ID, Attempt: a.Attempt, Step: a.Step, Key: key}
	l.outbox = append(l.outbox, outgoing{kind: outAsk, ask: ask})
	return false
}

// Reply implements transport.Replier: ans is what the table has for a request. It
// runs on the goroutine of the Send, and must not hold it up: what takes time is
// done on a goroutine of its own.
func (l *link) Reply(id uint64, attempt uint32, ans transport.Answer) {
	at := attemptID{id, attempt}
	if ans.Err != nil {
		l.answer(at, channel.Answer{Err: status.From(ans.Err)}, source{})
		return
	}
	t := ans.Value.Tensor
	switch {
	case ans.Value.Dead:
		l.answer(at, channel.Answer{Value: deadValue()}, source{})
		l.peer.transport.release(t.Buffer())
	case !t.DType().Plain():
		l.aside(func() { l.answerProto(at, t) })
	default:
		l.answerPlain(at, t)
	}
}

// answerPlain answers with plain memory, whose reference it takes over: out of a
// message, from where it lies, or from a copy.
func (l *link) answerPlain(id attemptID, t *tensor.Tensor) {
	l.mu.Lock()
	if a, src, ok := l.plain(t); ok {
		l.answerLocked(id, a, src)
		if src.buf == nil {
			l.peer.transport.release(t.Buffer())
		}
		return
	}
	l.mu.Unlock()
	l.aside(func() {
		defer t.Release()
		l.answerCopy(id, channel.Answer{Value: describe(t)}, t.Bytes())
	})
}

// plain is the answer with plain memory out of which it is sent as it lies: ok is false
// where that cannot be. What is empty has no source. Called with the lock held; a is good
// until the next call.
func (l *link) plain(t *tensor.Tensor) (a channel.Answer, src source, ok bool) {
	a.Value = l.describe(t)
	switch {
	case t.Size() == 0:
		return a, src, true
	case l.machine.Eager(&a.Value):
		return a, source{buf: t.Buffer(), bytes: t.Bytes()}, true
	}
	src.buf = t.Buffer()
	src.piece, ok = l.peer.transport.port.memory.Find(src.buf, t.Bytes())
	return a, src, ok
}

// describe is the function of that name for a value that is answered at once: its
// dimensions are good until the next call. Called with the lock held.
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
		l.answer(id, channel.Answer{Err: status.From(err)}, source{})
		return
	}
	a := channel.Answer{Value: describeProto(t, len(content))}
	if l.machine.Eager(&a.Value) {
		l.answer(id, a, source{buf: tensor.NewBuffer(content, nil), bytes: content})
		return
	}
	l.answerCopy(id, a, content)
}

// answerCopy answers with a copy of content in registered memory.
func (l *link) answerCopy(id attemptID, a channel.Answer, content []byte) {
	m := l.peer.transport.port.memory
	src, err := m.Copy(content, mem.MayGrow)
	if err != nil {
		l.answer(id, channel.Answer{Elsewhere: true, Err: status.From(err)}, source{})
		return
	}
	l.answer(id, a, source{buf: src.Buffer(), piece: src.Piece})
}

// answer tells the machine. It takes over the source's reference.
func (l *link) answer(id attemptID, a channel.Answer, src source) {
	l.mu.Lock()
	l.answerLocked(id, a, src)
}

// answerLocked is answer with the lock held, which it gives up.
func (l *link) answerLocked(id attemptID, a channel.Answer, src source) {
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
func (l *link) answered(now time.Time, id attemptID, a channel.Answer, src source) {
	if src.buf != nil {
		a.Source.Handle = l.sources.put(src)
	}
	l.machine.Watch(now, true) // until the table keeps nothing for the peer
	if l.machine.Answer(now, id.id, id.attempt, a) && a.Err == nil {
		l.peer.counters.sent.Add(1)
		l.peer.counters.sentBytes.Add(a.Value.Size)
	}
}

// source is memory that content is sent from, with the reference that keeps it; the
// zero source is none.
type source struct {
	buf   *tensor.Buffer
	bytes []byte    // of what goes within a message
	piece mem.Piece // of what is written
}
