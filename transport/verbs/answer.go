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

// ask hands a request over to the outbox, or has the machine answer it at once: then
// there is more to do. Called with the lock held; the key is in a message that will
// be gone.
func (l *link) ask(a *channel.Ask) (answered bool) {
	if a.Left > l.named { // each request says it, once is enough
		l.named = a.Left
		l.outbox = append(l.outbox, outgoing{kind: outLeft, left: a.Left})
	}
	if own := l.peer.transport.opts.Self.Incarnation; a.Sender != own {
		l.machine.Answer(time.Now(), a.ID, a.Attempt, channel.Answer{Err: transport.OtherProcess(a.Sender, own)})
		return true
	}
	key, err := l.keys.asked(a)
	if err != nil {
		l.machine.Answer(time.Now(), a.ID, a.Attempt, channel.Answer{Err: status.From(err)})
		return true
	}
	l.outbox = append(l.outbox, outgoing{kind: outAsk, ask: transport.Ask{
		Asker: l.asker, ID: a.ID, Attempt: a.Attempt, Step: a.Step, Key: key,
	}})
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
		l.peer.transport.work.Go(func() { l.answerProto(at, t) })
	default:
		l.answerPlain(at, t)
	}
}

// answerPlain answers with plain memory, whose reference it takes over: out of a
// message, from where it lies, or from a copy.
func (l *link) answerPlain(id attemptID, t *tensor.Tensor) {
	l.mu.Lock()
	a := channel.Answer{Value: l.describe(t)}
	if t.Size() == 0 {
		l.answerLocked(id, a, source{})
		l.peer.transport.release(t.Buffer())
		return
	}
	if l.machine.Eager(&a.Value) {
		l.answerLocked(id, a, source{buf: t.Buffer(), bytes: t.Bytes()})
		return
	}
	if piece, ok := l.peer.transport.port.memory.Find(t.Buffer(), t.Bytes()); ok {
		l.answerLocked(id, a, source{buf: t.Buffer(), piece: piece})
		return
	}
	l.mu.Unlock()
	l.peer.transport.work.Go(func() {
		defer t.Release()
		l.answerCopy(id, channel.Answer{Value: describe(t)}, t.Bytes())
	})
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
	if src.buf != nil {
		a.Source.Handle = l.sources.put(src)
	}
	now := time.Now()
	l.machine.Watch(now, true) // until the table keeps nothing for the peer
	if l.machine.Answer(now, id.id, id.attempt, a) && a.Err == nil {
		l.peer.counters.sent.Add(1)
		l.peer.counters.sentBytes.Add(a.Value.Size)
	}
	l.run(now)
}

// source is memory that content is sent from, with the reference that keeps it; the
// zero source is none.
type source struct {
	buf   *tensor.Buffer
	bytes []byte    // of what goes within a message
	piece mem.Piece // of what is written
}
