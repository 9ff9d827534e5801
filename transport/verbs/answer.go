package verbstransport

import (
	"time"

	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensorproto"
	"github.com/tryst-rdma/tryst/transport"
	"github.com/tryst-rdma/tryst/transport/verbs/channel"
	"github.com/tryst-rdma/tryst/transport/verbs/mem"
)

// The sender's side: a request of the peer goes to the table of answers, and the
// answer's memory to the machine.

// asked is a request of the peer that the table of answers has. Its call is set
// when the table has it; who forgets it before then must not Detach it.
type asked struct{ call transport.Call }

// ask hands a request over to the outbox, or has the machine answer it at once: then
// there is more to do. Called with the lock held; the key is in a message that will
// be gone.
func (l *link) ask(a *channel.Ask) (answered bool) {
	if a.Left > l.named { // each request says it, once is enough
		l.named = a.Left
		l.outbox = append(l.outbox, outgoing{kind: outLeft, left: a.Left})
	}
	id := attemptID{a.ID, a.Attempt}
	if own := l.peer.transport.opts.Self.Incarnation; a.Sender != own {
		l.machine.Answer(time.Now(), a.ID, a.Attempt, channel.Answer{Err: transport.OtherProcess(a.Sender, own)})
		return true
	}
	key, err := rendezvous.ParseKey(string(a.Key))
	if err == nil {
		err = l.peer.transport.opts.Check(key)
	}
	if err != nil {
		l.machine.Answer(time.Now(), a.ID, a.Attempt, channel.Answer{Err: status.From(err)})
		return true
	}
	w := new(asked)
	l.asked[id] = w
	l.outbox = append(l.outbox, outgoing{kind: outAsk, asked: w, ask: transport.Ask{
		Asker: l.asker, ID: a.ID, Attempt: a.Attempt, Step: a.Step, Key: key,
	}})
	return false
}

// askTable asks the table of answers. The answer may be there before it returns.
func (l *link) askTable(a transport.Ask, w *asked) {
	w.call = l.peer.transport.opts.Kept.Ask(a, func(ans transport.Answer) { l.answered(attemptID{a.ID, a.Attempt}, ans) })
}

// forget takes a request from those that wait; nil when it has been answered.
func (l *link) forget(id attemptID) *asked {
	w := l.asked[id]
	delete(l.asked, id)
	return w
}

// answered is what the table has for a request, with a reference to the value. It
// runs on the goroutine of the Send, and must not hold it up: what takes time is
// done on a goroutine of its own.
func (l *link) answered(id attemptID, ans transport.Answer) {
	if ans.Err != nil {
		l.answer(id, channel.Answer{Err: status.From(ans.Err)}, nil)
		return
	}
	v := ans.Value
	t := v.Tensor
	switch {
	case v.Dead:
		t.Release()
		l.answer(id, channel.Answer{Value: deadValue()}, nil)
		return
	case !t.DType().Plain():
		l.peer.transport.work.Go(func() { l.answerProto(id, t) })
		return
	}
	a := channel.Answer{Value: describe(t)}
	if t.Size() == 0 {
		t.Release()
		l.answer(id, a, nil)
		return
	}
	if l.machine.Eager(&a.Value) {
		l.answer(id, a, &source{buf: t, bytes: t.Bytes()})
		return
	}
	if piece, ok := l.peer.transport.port.memory.Find(t.Buffer(), t.Bytes()); ok {
		l.answer(id, a, &source{buf: t, piece: piece})
		return
	}
	l.peer.transport.work.Go(func() {
		defer t.Release()
		l.answerCopy(id, a, t.Bytes())
	})
}

// answerProto answers with elements that are not plain memory.
func (l *link) answerProto(id attemptID, t *tensor.Tensor) {
	defer t.Release()
	content, err := tensorproto.Append(nil, t)
	if err != nil {
		l.answer(id, channel.Answer{Err: status.From(err)}, nil)
		return
	}
	a := channel.Answer{Value: describeProto(t, len(content))}
	if l.machine.Eager(&a.Value) {
		l.answer(id, a, &source{buf: nobody{}, bytes: content})
		return
	}
	l.answerCopy(id, a, content)
}

// answerCopy answers with a copy of content in registered memory.
func (l *link) answerCopy(id attemptID, a channel.Answer, content []byte) {
	m := l.peer.transport.port.memory
	src, err := m.Copy(content, mem.MayGrow)
	if err != nil {
		l.answer(id, channel.Answer{Elsewhere: true, Err: status.From(err)}, nil)
		return
	}
	l.answer(id, a, &source{buf: src, piece: src.Piece})
}

// answer tells the machine. It takes over the source's reference.
func (l *link) answer(id attemptID, a channel.Answer, src *source) {
	l.mu.Lock()
	if l.state == linkGone {
		l.mu.Unlock()
		if src != nil {
			src.buf.Release()
		}
		return
	}
	delete(l.asked, id)
	if src != nil {
		a.Source.Handle = l.sources.put(src)
	}
	if a.Err == nil {
		l.peer.counters.sent.Add(1)
		l.peer.counters.sentBytes.Add(a.Value.Size)
	}
	now := time.Now()
	l.machine.Watch(now, true) // until the table keeps nothing for the peer
	l.machine.Answer(now, id.id, id.attempt, a)
	l.run()
}

// source is memory that content is sent from, with the reference that keeps it.
type source struct {
	buf   releaser
	bytes []byte    // of what goes within a message
	piece mem.Piece // of what is written
}

// nobody is the reference to memory of Go that nobody else has.
type nobody struct{}

func (nobody) Release() {}
