package delivery

import (
	"errors"
	"slices"
	"time"

	"github.com/tryst-rdma/tryst/internal/channel"
	"github.com/tryst-rdma/tryst/internal/wire"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/transport"
	"github.com/tryst-rdma/tryst/verbs"
)

// A channel between the two processes of a duo: the shell of package
// verbstransport (link.go, teardown.go, actions.go, attempt.go, respond.go) in small, and
// the queue pairs under it.

// duoEnd is a side's end of one generation: its link.
type duoEnd struct {
	ch       *channel.Channel
	peer     uint64 // the process at the other end
	state    endState
	wire     []duoPacket // posted here and not landed yet, in order
	packets  uint32      // how many were posted
	messages uint32      // those of them that take a receive
	posted   int         // receives
	cq       []duoCompletion
	counted  bool        // the table counts it as a connection of the peer
	sources  []duoSource // by handle-1
	batches  []duoChannelBatch
	hello    bool // HELLO has come
	replaced bool // by a better channel
	moved    bool // the peer has had a request sent again on a better channel
	byes     bool // it closes as one that was replaced
	taken    channel.Marks
	outbox   []func()
	emptying bool
}

type endState uint8

const (
	endOpen    endState = iota
	endLeaving          // its queue pair is in ERR
	endGone             // and destroyed
)

// duoPacket is a work request on its way.
type duoPacket struct {
	post    channel.Post
	message []byte
	value   byte   // whose content it writes
	number  uint32 // counts the packets of its end
}

type duoCompletion struct {
	sent    bool
	slot    uint32
	number  uint32
	message []byte // of a receive; nil: imm
	imm     uint32
}

type duoSource struct {
	value byte
	gone  bool
}

// duoChannelBatch is an ACK or CANCEL on a channel that the peer has not confirmed.
type duoChannelBatch struct {
	act  simAct
	mark channel.Mark
}

func (y *duoChannelBatch) reached(m channel.Marks) bool {
	if y.act.kind == doCancel {
		return m.Cancels >= y.mark
	}
	return m.Acks >= y.mark
}

const (
	duoWindow = channel.MinWindow
	duoQueue  = channel.MinSendQueue
	duoEager  = 256
	duoSoon   = 20 * time.Millisecond // what is due earlier is a move; later times do not come
)

// connect makes a channel. Its maker's bootstrap was answered; the other side may
// send when HELLO has come.
func (w *duo) connect(maker int) { w.connectBeside(maker, false) }

// connectBeside is connect. With beside the present channel stays, until the new one replaces it.
func (w *duo) connectBeside(maker int, beside bool) {
	for i := range w.sides { // each has its table accept the other one before it takes its offer
		table, peer := w.sides[i].table, w.requester(1-i)
		k, acts, err := table.introduce(w.now, peer, "")
		w.keep(i, acts)
		if k == nil && err == nil {
			_, acts, err = table.verified(w.now, peer, "", peer.Incarnation, nil)
			w.keep(i, acts)
		}
		if err != nil {
			return // the bootstrap fails
		}
	}
	w.gens++
	for i := range w.sides {
		s, peer := &w.sides[i], &w.sides[1-i]
		for g := range s.ends { // the offer of a higher generation destroys a live channel, which sends BYE
			if e := &s.ends[g]; e.state == endOpen && !beside {
				e.ch.Bye(w.now, "there is a higher generation")
				w.run(i, g+1)
			}
		}
		ch, err := channel.New(w.now, channel.Config{
			Peer: "the peer", Generation: uint64(w.gens), OwnIncarnation: s.process, PeerIncarnation: peer.process, //nolint:gosec // small
			Rails: 1, Window: duoWindow, PeerWindow: duoWindow, Message: wire.MinMessage, PeerMessage: wire.MinMessage,
			Eager: duoEager, SendQueue: duoQueue, Chunk: duoPage, Outstanding: 2 * duoPage, MaxMetas: 4,
		})
		if err != nil {
			w.fail("%v", err)
			return
		}
		s.ends = append(slices.Clone(s.ends), duoEnd{ch: ch, peer: peer.process, posted: duoWindow})
	}
	w.sides[maker].ends[w.gens-1].ch.Ready(w.now)
	w.run(maker, w.gens)
	w.run(1-maker, w.gens)
}

// receive is link.begin.
func (w *duo) receive(i, n int) {
	s := &w.sides[i]
	t := &s.attempts[n]
	e := &s.ends[t.generation-1]
	a := t.act
	req := channel.Receive{
		ID: a.id, Attempt: a.attempt, Responder: a.peer, Left: uint64(w.leftOf(i)), Step: 1, //nolint:gosec // small
		Key: w.cfg.parsed[1-i][s.recvs[a.id-1].key].String(), Acks: a.ids,
	}
	if v, ok := e.ch.CachedMeta(req.Key); ok {
		d := w.destination(i, v.Size)
		req.Early, req.Value, t.dest = &d, v, int(d.Handle) //nolint:gosec // small
	}
	if ids := w.unconfirmed(e, a.cancels); len(ids) > 0 {
		e.ch.CancelBefore(w.now, ids) // link.sendCancels
	}
	e.ch.Receive(w.now, req)
	w.run(i, t.generation)
}

// unconfirmed returns the ids to cancel before a request: all but those of a batch that is under
// way.
func (w *duo) unconfirmed(e *duoEnd, ids []uint64) []uint64 {
	if w.cfg.rules.cancelLate {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(ids), func(id uint64) bool {
		return slices.ContainsFunc(e.batches, func(y duoChannelBatch) bool { return y.act.kind == doCancel && slices.Contains(y.act.ids, id) })
	})
}

func (w *duo) destination(i int, size uint64) channel.Dest {
	s := &w.sides[i]
	s.mem = append(s.mem, duoDest{pages: make([]byte, (size+duoPage-1)/duoPage)})
	n := uint64(len(s.mem))
	d := channel.Dest{Handle: n}
	d.Rails[0].Addr = n << 32
	return d
}

// run is link.run.
func (w *duo) run(i, generation int) {
	for again := true; again; {
		again = w.act(i, generation) || w.closeReplaced(i, generation)
	}
	e := &w.sides[i].ends[generation-1]
	if e.emptying {
		return
	}
	e.emptying = true
	for len(e.outbox) > 0 {
		next := e.outbox[0]
		e.outbox = e.outbox[1:]
		next()
		e = &w.sides[i].ends[generation-1]
	}
	e.outbox, e.emptying = nil, false
	if w.closeReplaced(i, generation) {
		w.run(i, generation)
	}
}

// closeReplaced is link.closeReplaced.
func (w *duo) closeReplaced(i, generation int) bool {
	e := &w.sides[i].ends[generation-1]
	if !e.replaced || e.state != endOpen || len(e.outbox) > 0 || e.emptying || !e.ch.Idle() {
		return false
	}
	e.byes = true
	e.ch.Bye(w.now, "there is a better channel")
	return true
}

// replace is link.replace for all channels before the one that is up. Over one route there are
// none: the handshake ends them.
func (w *duo) replace(i int) {
	if w.cfg.changes == 0 {
		return
	}
	for g := range w.sides[i].up - 1 {
		if e := &w.sides[i].ends[g]; e.state == endOpen && e.hello && !e.replaced {
			e.replaced = true
			e.ch.Redirect(w.now, errMoved())
			w.run(i, g+1)
		}
	}
}

func errMoved() *status.Error {
	return transport.Moved(status.New(status.Unavailable, "there is a better channel"))
}

// waits is peer.carrier, for a side whose peer has a better channel up already. The real one tries
// again after a while; here it waits until both know that this channel has ended.
func (w *duo) waits(i int) bool {
	s := &w.sides[i]
	if s.up == 0 || !s.ends[s.up-1].moved {
		return false
	}
	for g := s.up; g < len(s.ends); g++ {
		if s.ends[g].state == endOpen || g < len(w.sides[1-i].ends) && w.sides[1-i].ends[g].state == endOpen {
			return true
		}
	}
	return false
}

// leftOf is the highest generation that a side has left together with all before it.
func (w *duo) leftOf(i int) int {
	s := &w.sides[i]
	for g := range s.gone {
		if s.ends[g].state == endOpen && !w.cfg.rules.leftAll {
			return g
		}
	}
	return s.gone
}

// act is link.act.
func (w *duo) act(i, generation int) (again bool) {
	s := &w.sides[i]
	e := &s.ends[generation-1]
	var places []channel.Action
	out := func(f func()) { e.outbox = append(e.outbox, f) }
	for _, a := range e.ch.Actions(w.now) {
		switch a.Kind {
		case channel.ActEnd:
			w.ended(i, generation, &a)
		case channel.ActFree:
			w.free(i, a.Dest)
		case channel.ActRepost:
			if e.posted += a.Count; e.posted > duoWindow {
				w.fail("%s has %d receives posted", duoNames[i], e.posted)
			}
		case channel.ActPost:
			w.post(i, generation, a.Post)
		case channel.ActPlace:
			places = append(places, a)
		case channel.ActRequest:
			w.request(i, generation, &a.Request, out)
		case channel.ActDetach:
			c := duoCaller{generation: generation, id: a.ID, attempt: a.Attempt}
			if w.cfg.rules.moveCancel && e.replaced {
				ids := []uint64{a.ID}
				out(func() { w.cancel(i, e.peer, ids) })
				continue
			}
			out(func() { // ResponseCache.Detach
				for _, x := range s.callers {
					if c.call = x.call; x == c {
						w.detach(i, x.call)
						return
					}
				}
			})
		case channel.ActDrop:
			if a.Source.Handle == 0 {
				continue
			}
			src := &e.sources[a.Source.Handle-1]
			if src.gone {
				w.fail("source %d of %s is dropped twice", a.Source.Handle, duoNames[i])
			}
			src.gone = true
			w.release(src.value)
		case channel.ActAcked:
			ids := a.IDs.AppendTo(nil)
			out(func() { w.finish(i, transport.Process{Name: w.requester(1 - i).Name, Incarnation: e.peer}, ids, false) })
		case channel.ActCancelled:
			ids := a.IDs.AppendTo(nil)
			out(func() { w.cancel(i, e.peer, ids) })
		case channel.ActTaken:
			e.taken = a.Taken
			var confirmed []duoChannelBatch
			e.batches = slices.DeleteFunc(slices.Clone(e.batches), func(y duoChannelBatch) bool {
				if y.reached(a.Taken) {
					confirmed = append(confirmed, y)
					return true
				}
				return false
			})
			out(func() {
				for _, y := range confirmed {
					w.flushed(i, y.act, nil)
				}
			})
		case channel.ActUp:
			out(func() {
				e := &s.ends[generation-1]
				if s.up < generation && e.state == endOpen {
					e.hello = true
					w.connClosed(i)
					w.setUp(i, generation)
					w.replace(i)
				}
			})
		case channel.ActClose:
			if peer := &w.sides[1-i].ends[generation-1]; peer.state == endOpen && !e.byes && !peer.byes {
				w.fail("%s closes channel %d: %v", duoNames[i], generation, a.Err)
			}
			again = w.leaving(i, generation) || again
		}
	}
	for _, a := range places {
		again = true
		if n := w.attemptOf(i, a.ID, a.Attempt); w.left.full > 0 {
			w.left.full--
			e.ch.NoPlace(w.now, a.ID, a.Attempt)
		} else {
			d := w.destination(i, a.Value.Size)
			if n >= 0 {
				s.attempts[n].dest = int(d.Handle) //nolint:gosec // small
			}
			e.ch.Place(w.now, a.ID, a.Attempt, d)
		}
	}
	return again
}

// request is link.request and ResponseCache.Request.
func (w *duo) request(i, generation int, a *channel.Request, out func(func())) {
	s := &w.sides[i]
	e := &s.ends[generation-1]
	switch { // as link.request and link.parse do
	case e.replaced:
		e.ch.Respond(w.now, a.ID, a.Attempt, channel.Response{Err: errMoved(), Fallback: true})
		out(func() { w.run(i, generation) })
		return
	case a.Left >= uint64(generation): //nolint:gosec // small
		e.ch.Respond(w.now, a.ID, a.Attempt, channel.Response{Err: status.New(status.FailedPrecondition, "it has left this channel")})
		out(func() { w.run(i, generation) })
		return
	}
	if a.Responder != s.process && !w.cfg.rules.anyProcess {
		e.ch.Respond(w.now, a.ID, a.Attempt, channel.Response{Err: transport.OtherProcess(a.Responder, s.process)})
		out(func() { w.run(i, generation) })
		return
	}
	request := transport.Request{Requester: transport.Process{Name: w.requester(1 - i).Name, Incarnation: e.peer}, ID: a.ID, Attempt: a.Attempt, Step: a.Step}
	for _, k := range w.cfg.parsed[i] {
		if k.String() == string(a.Key) {
			request.Key = k
		}
	}
	left := int(a.Left) //nolint:gosec // small
	out(func() {
		if !w.cfg.rules.stayOpen && !w.cfg.rules.callsOnly {
			w.leftBy(i, request.Requester.Incarnation, left)
		}
		w.asks(i, request, generation)
	})
}

// answered is link.Reply and link.response. The reference to the value is its.
func (w *duo) answered(i int, c duoCaller, name byte, err error) {
	e := &w.sides[i].ends[c.generation-1]
	if e.state == endGone {
		w.release(name)
		return
	}
	a := channel.Response{}
	var open *transport.UndecidedError
	if err != nil {
		a.Err, a.Fallback = status.From(err), errors.As(err, &open)
	} else {
		e.sources = append(slices.Clone(e.sources), duoSource{value: name})
		a.Value, a.Source.Handle = valueSized(w.value(name).size), uint64(len(e.sources))
	}
	e.ch.Respond(w.now, c.id, c.attempt, a)
	w.run(i, c.generation)
}

// valueSized is the meta-data of a value of size bytes.
func valueSized(size int64) wire.Value {
	return wire.Value{DType: tensor.Uint8, Size: uint64(size), Dims: wire.AppendDims(nil, size)} //nolint:gosec // not negative
}

func (w *duo) post(i, generation int, p channel.Post) {
	e := &w.sides[i].ends[generation-1]
	if e.state != endOpen {
		w.fail("%s posts on channel %d, which it has left", duoNames[i], generation)
		return
	}
	k := duoPacket{post: p, number: e.packets}
	if e.packets++; p.Op != verbs.OpWrite {
		e.messages++
	}
	if e.packets > 100 {
		w.fail("it never ends: %v", &p)
	}
	k.post.Message = nil
	if p.Op == verbs.OpSend {
		k.message = append(slices.Clone(p.Message), make([]byte, p.Length)...)
	}
	if p.Length > 0 {
		src := e.sources[p.Source.Handle-1]
		if k.value = src.value; src.gone {
			w.fail("%s writes out of source %d, which was dropped", duoNames[i], p.Source.Handle)
		}
		if k.message != nil {
			k.message[len(k.message)-1] = k.value
		}
	}
	e.wire = append(slices.Clone(e.wire), k)
}

// land lets the next packet that a side has posted arrive. At a queue pair in ERR
// nothing completes any more, but bytes are still written.
func (w *duo) land(from, generation int) {
	e, to := &w.sides[from].ends[generation-1], &w.sides[1-from].ends[generation-1]
	for more := true; more && len(e.wire) > 0; {
		p := e.wire[0]
		e.wire = e.wire[1:]
		writes := p.post.Op != verbs.OpSend && p.post.Length > 0
		more = to.state != endOpen && !writes
		if writes {
			w.write(1-from, &p)
		}
		if to.state != endOpen {
			continue
		}
		if p.post.Op != verbs.OpWrite {
			if to.posted--; to.posted < 0 {
				w.fail("%v meets an empty receive queue at %s", &p.post, duoNames[1-from])
			}
			to.cq = append(slices.Clone(to.cq), duoCompletion{message: p.message, imm: p.post.Imm})
		}
		if p.post.Signaled && e.state == endOpen {
			e.cq = append(slices.Clone(e.cq), duoCompletion{sent: true, slot: p.post.Slot, number: p.number})
		}
	}
}

// write lets bytes arrive in the memory of a side.
func (w *duo) write(i int, p *duoPacket) {
	s := &w.sides[i]
	d, page := int(p.post.RemoteAddr>>32)-1, p.post.RemoteAddr&(1<<32-1)/duoPage //nolint:gosec // small
	switch {
	case d < 0 || d >= len(s.mem) || page >= uint64(len(s.mem[d].pages)):
		w.fail("%v is written out of bounds", &p.post)
	case s.mem[d].free:
		w.fail("value %d is written into destination %d of %s, which was given back", p.value, d+1, duoNames[i])
	default:
		s.mem[d].pages = slices.Clone(s.mem[d].pages)
		s.mem[d].pages[page] = p.value
	}
}

// poll takes a completion, and the completions of sends before it.
func (w *duo) poll(i, generation int) {
	e := &w.sides[i].ends[generation-1]
	for len(e.cq) > 0 {
		c := e.cq[0]
		e.cq = e.cq[1:]
		switch {
		case c.sent:
			e.ch.Sent(w.now, 0, c.slot)
		case c.message != nil:
			e.ch.Message(w.now, 0, c.message)
		default:
			e.ch.Imm(w.now, 0, c.imm)
		}
		w.run(i, generation)
		e = &w.sides[i].ends[generation-1]
		if !c.sent {
			return
		}
	}
}

// leave is link.leave and what link.tearDown does first.
func (w *duo) leave(i, generation int) {
	e := &w.sides[i].ends[generation-1]
	if e.state != endOpen {
		return
	}
	e.ch.Leave(w.now, errLost)
	w.leaving(i, generation)
	w.run(i, generation)
}

func (w *duo) leaving(i, generation int) bool {
	s := &w.sides[i]
	e := &s.ends[generation-1]
	if e.state != endOpen {
		return false
	}
	e.state = endLeaving
	if s.up == generation {
		w.connClosed(i)
		w.next(i)
	}
	s.gone = max(s.gone, generation)
	if w.cfg.rules.giveBack {
		e.ch.Destroyed(w.now)
	}
	return true
}

// destroy is the end of link.tearDown.
func (w *duo) destroy(i, generation int) {
	e := &w.sides[i].ends[generation-1]
	e.state, e.cq = endGone, nil
	w.sides[1-i].ends[generation-1].wire = nil
	e.ch.Destroyed(w.now)
	batches := e.batches
	e.batches = nil
	w.run(i, generation)
	for _, y := range batches {
		w.flushed(i, y.act, errLost)
	}
}

// connClosed is peer.setUp for a side that has no channel any more.
func (w *duo) connClosed(i int) {
	s := &w.sides[i]
	if s.up != 0 {
		if e := &s.ends[s.up-1]; e.counted {
			e.counted = false
			s.table.connClosed(w.now, s.table.known(transport.Process{Name: w.requester(1 - i).Name, Incarnation: e.peer}))
		}
		s.up = 0
	}
}

// setUp makes a channel carry receives.
func (w *duo) setUp(i, generation int) {
	s := &w.sides[i]
	e := &s.ends[generation-1]
	s.up = generation
	k, acts := s.table.connOpened(w.now, transport.Process{Name: w.requester(1 - i).Name, Incarnation: e.peer})
	e.counted = k != nil
	w.keep(i, acts)
}

// next is peer.next: a channel that was being replaced carries receives again.
func (w *duo) next(i int) {
	s := &w.sides[i]
	if w.cfg.changes == 0 {
		return
	}
	for g := len(s.ends); g > 0; g-- {
		if e := &s.ends[g-1]; e.hello && e.state == endOpen {
			e.replaced, e.moved = false, false
			w.setUp(i, g)
			return
		}
	}
}

// leftBy is Transport.LeftGeneration.
func (w *duo) leftBy(i int, process uint64, generation int) {
	for g := range min(generation, len(w.sides[i].ends)) {
		if e := &w.sides[i].ends[g]; e.peer == process && e.state == endOpen {
			w.leave(i, g+1)
		}
	}
}

func (w *duo) free(i int, dest uint64) {
	x := &w.sides[i].mem[dest-1]
	if x.free {
		w.fail("destination %d of %s is given back twice", dest, duoNames[i])
	}
	x.free = true
}

// ended is link.end.
func (w *duo) ended(i, generation int, a *channel.Action) {
	s := &w.sides[i]
	e := &s.ends[generation-1]
	var name byte
	var err error
	switch a.Outcome {
	case channel.OutcomeEager:
		name = a.Content[len(a.Content)-1]
		if int64(len(a.Content)) != w.value(name).size {
			w.fail("%d bytes of value %d, which has %d", len(a.Content), name, w.value(name).size)
		}
	case channel.OutcomeWritten:
		pages := s.mem[a.Dest-1].pages
		for _, p := range pages {
			if name = pages[0]; p == 0 || p != name {
				w.fail("receive %d of %s ends with pages %v", a.ID, duoNames[i], pages)
				return
			}
		}
		w.free(i, a.Dest)
	case channel.OutcomeFallback:
		err = &transport.FallbackError{Err: a.Err}
		if transport.IsMoved(a.Err) {
			err, e.moved = &transport.MovedError{Err: a.Err}, true
		}
	case channel.OutcomeLost:
		err = &transport.LostError{Err: a.Err}
	default:
		if err = a.Err; transport.IsOtherProcess(err) {
			err = &transport.RestartedError{Err: err}
		}
	}
	n := w.attemptOf(i, a.ID, a.Attempt)
	if n < 0 || s.attempts[n].state != attemptOnChannel || s.attempts[n].generation != generation {
		return // it was dropped
	}
	if name != 0 {
		w.value(name).refs++ // the receiver's own copy
	}
	t := &s.attempts[n]
	t.state, t.value, t.err, t.dest = attemptReturns, name, err, 0
	if w.left.cancels == 0 && !t.dropped {
		id, attempt := a.ID, a.Attempt
		e.outbox = append(e.outbox, func() {
			if n := w.attemptOf(i, id, attempt); n >= 0 {
				w.returns(i, n)
			}
		})
	}
}
