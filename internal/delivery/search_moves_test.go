package delivery

import (
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"slices"

	"github.com/tryst-rdma/tryst/internal/wire"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
)

// duoMove is something that can happen next: at side, to the n-th of its kind.
type duoMove struct {
	kind duoMoveKind
	side int
	n    int
}

type duoMoveKind uint8

const (
	duoSend     duoMoveKind = iota // n: key
	duoRecvs                       // n: key
	duoCancel                      // n: receive
	duoBreak                       // n: generation
	duoCut                         //
	duoChannel                     //
	duoChange                      //
	duoAbort                       //
	duoRestart                     //
	duoDie                         //
	duoClose                       // A closes
	duoClosed                      // and is closed
	duoDrain                       // B closes
	duoDrained                     // and is closed
	duoLook                        // B calls the address of A
	duoPass                        // time passes for the close of B
	duoForget                      //
	duoHello                       //
	duoBegin                       // n: attempt
	duoDrop                        // n: attempt
	duoReturn                      // n: attempt
	duoFlush                       //
	duoReport                      // n: report
	duoBack                        // the first value on its way back
	duoCancels                     // n: list of ids off a channel
	duoEnds                        // the table learns that the step has ended
	duoTake                        // n: call
	duoAddress                     // n: call whose requester is called at its address
	duoVerified                    // n: likewise
	duoVanish                      // n: call
	duoForge
	duoFull        // the cache of side
	duoDetach      // n: call
	duoAnswer      // n: call
	duoLose        // n: call
	duoUnsent      // n: call
	duoTakeBatch   // n: message over gRPC
	duoLoseBatch   // n
	duoReturnBatch // n
	duoLand        // n: generation; side is the poster
	duoPoll        // n: generation
	duoNotice      // n: generation
	duoDestroy     // n: generation
	duoTick        // n: generation
	duoWake        //
	duoCopied      // n: answer
)

// moves lists what can happen next. inner moves are those that happen without
// anything new from outside: a world without them is quiet.
func (w *duo) moves() (all []duoMove, inner int) {
	if w.closed {
		return nil, 1
	}
	add := func(kind duoMoveKind, side, n int) { all = append(all, duoMove{kind, side, n}) }
	if w.sides[0].closing && w.quiet() {
		add(duoClosed, 0, 0)
	}
	if w.sides[1].closing {
		over, look, later := w.drained()
		switch {
		case over:
			add(duoDrained, 1, 0)
		case look:
			add(duoLook, 1, 0)
		case !later.IsZero() && w.dead && !w.waited():
			add(duoPass, 1, 0)
		}
	}
	for i := range w.sides {
		w.innerMoves(i, add)
	}
	for n := range w.calls {
		c := &w.calls[n]
		switch {
		case c.state == callOut:
			add(duoTake, 1-c.from, n)
			if c.cut || !c.listening {
				add(duoVanish, 1-c.from, n)
			}
		case c.state == callHeld && (c.cut || !c.listening):
			add(duoDetach, 1-c.from, n)
		case c.state == callBack && c.listening && !c.cut:
			add(duoAnswer, c.from, n)
		}
		switch {
		case c.state == callHeld && c.verifying == verifyCalls:
			add(duoAddress, 1-c.from, n)
		case c.state == callHeld && c.verifying == verifyAnswers:
			add(duoVerified, 1-c.from, n)
		}
		if c.cut && c.listening {
			add(duoLose, c.from, n)
		}
	}
	for n := range w.batches {
		m := &w.batches[n]
		if !m.taken && !m.gone {
			add(duoTakeBatch, 1-m.from, n)
			if m.cut {
				add(duoLoseBatch, 1-m.from, n)
			}
		}
		if !m.returned && (m.taken || m.cut) {
			add(duoReturnBatch, m.from, n)
		}
	}
	inner = len(all)
	w.outerMoves(add)
	return all, inner
}

func (w *duo) innerMoves(i int, add func(duoMoveKind, int, int)) {
	s := &w.sides[i]
	if s.hellos > 0 && !w.waits(i) {
		add(duoHello, i, 0)
	}
	for n := range s.attempts {
		switch a := &s.attempts[n]; {
		case a.state == attemptBegins:
			add(duoBegin, i, n)
		case a.state == attemptReturns:
			add(duoReturn, i, n)
		case a.dropped:
			add(duoDrop, i, n)
		}
	}
	if len(s.flushes) > 0 {
		add(duoFlush, i, 0)
	}
	if !s.requests.wakeAt.IsZero() {
		add(duoWake, i, 0)
	}
	for n := range s.reports {
		add(duoReport, i, n)
	}
	if len(s.backs) > 0 {
		add(duoBack, i, 0)
	}
	for n := range s.copied {
		add(duoCopied, i, n)
	}
	for n := range s.cancelled {
		add(duoCancels, i, n)
	}
	if s.ending {
		add(duoEnds, i, 0)
	}
	if w.forgotten(i) {
		add(duoForget, i, 0)
	}
	for g := range s.ends {
		e := &s.ends[g]
		if g >= len(w.sides[1-i].ends) {
			continue
		}
		peer := &w.sides[1-i].ends[g]
		if len(e.wire) > 0 && peer.state != endGone {
			add(duoLand, i, g+1)
		}
		if e.state == endGone {
			continue
		}
		if len(e.cq) > 0 {
			add(duoPoll, i, g+1)
		}
		if e.state == endOpen && peer.state != endOpen {
			add(duoNotice, i, g+1)
		}
		if e.state == endLeaving && (len(e.cq) == 0 || w.cfg.hasty) {
			add(duoDestroy, i, g+1)
		}
		if at := e.ch.Deadline(); e.state == endOpen && !at.IsZero() && at.Sub(w.now) <= duoSoon {
			add(duoTick, i, g+1)
		}
	}
}

func (w *duo) outerMoves(add func(duoMoveKind, int, int)) {
	for i := range w.sides {
		asks, gives := (i == 0 || w.cfg.both) && !w.sides[i].closing, (i == 1 || w.cfg.both) && !w.sides[i].closing
		if i == 0 && w.dead {
			asks = false
		}
		for k := range w.cfg.keys {
			if gives && w.left.sends > 0 && !w.sides[i].over {
				add(duoSend, i, k)
			}
			waits := w.cfg.serial && w.underWay(i) || w.cfg.sent && w.left.sends > 0
			if asks && w.left.recvs > 0 && !waits {
				add(duoRecvs, i, k)
			}
		}
		if w.left.cancels > 0 {
			for n := range w.sides[i].recvs {
				if r := w.sides[i].recvs[n]; r.ended == 0 && !r.dead {
					add(duoCancel, i, n)
				}
			}
		}
		if gives && w.left.aborts > 0 {
			add(duoAbort, i, 0)
		}
	}
	if len(w.sides[0].recvs)+len(w.sides[1].recvs) == 0 {
		return // nothing that goes wrong now matters
	}
	for i := range w.sides {
		for g := range w.sides[i].ends {
			if w.left.breaks > 0 && w.sides[i].ends[g].state == endOpen {
				add(duoBreak, i, g+1)
			}
		}
		if w.left.channels > 0 && len(w.sides[i].ends) == w.gens && w.sides[i].ends[w.gens-1].state == endGone {
			add(duoChannel, i, 0)
		}
	}
	if a, b := &w.sides[0], &w.sides[1]; w.left.changes > 0 && a.up == w.gens && b.up == w.gens {
		add(duoChange, 0, 0)
		add(duoChange, 1, 0)
	}
	if w.left.cuts > 0 && len(w.calls)+len(w.batches) > 0 {
		add(duoCut, 0, 0)
	}
	if w.left.unsent > 0 {
		for n := range w.calls {
			if c := &w.calls[n]; c.state == callOut && c.listening && !c.cut {
				add(duoUnsent, c.from, n)
			}
		}
	}
	if w.left.forged > 0 {
		add(duoForge, 0, 0)
	}
	if w.left.drops > 0 && w.unreachable(1) != nil {
		add(duoFull, 1, 0)
	}
	if w.left.restarts > 0 {
		add(duoRestart, 1, 0)
	}
	if w.left.reborn > 0 {
		add(duoRestart, 0, 0)
	}
	if w.left.dies > 0 {
		add(duoDie, 0, 0)
	}
	if w.left.closes > 0 {
		add(duoClose, 0, 0)
	}
	if w.left.drains > 0 {
		add(duoDrain, 1, 0)
	}
}

// waited reports whether B has waited for A as long as Drain does.
func (w *duo) waited() bool {
	for _, k := range w.sides[1].table.requesters {
		if w.now.Sub(k.since) < drainGrace {
			return false
		}
	}
	return true
}

// underWay reports whether a receive of a side has not ended.
func (w *duo) underWay(i int) bool {
	return slices.ContainsFunc(w.sides[i].recvs, func(r duoRecv) bool { return r.ended == 0 && !r.dead })
}

func (w *duo) play(m duoMove) {
	s := &w.sides[m.side]
	switch m.kind {
	case duoSend:
		w.left.sends--
		w.values = append(w.values, duoValue{key: m.n, size: w.cfg.tensor[len(w.values)+1].Size(), refs: 1, home: s.process})
		w.put(m.side, byte(len(w.values)), false) //nolint:gosec // few
	case duoRecvs:
		w.left.recvs--
		w.clock++
		s.recvs = append(s.recvs, duoRecv{key: m.n, begun: w.clock})
		w.ask(m.side, s.requests.recvID(w.now, uint64(len(s.recvs)), w.sides[1-m.side].process))
	case duoCancel:
		w.left.cancels--
		s.recvs[m.n].cancelled = true
		w.ask(m.side, s.requests.cancelID(w.now, uint64(m.n)+1, status.New(status.Cancelled, ""))) //nolint:gosec // few
	case duoBreak:
		w.left.breaks--
		w.leave(m.side, m.n)
	case duoNotice:
		w.leave(m.side, m.n)
	case duoCut:
		w.left.cuts--
		w.cut()
	case duoChannel:
		w.left.channels--
		w.connect(m.side)
	case duoChange:
		w.left.changes--
		w.connectBeside(m.side, true)
	case duoAbort:
		w.left.aborts--
		w.abort(m.side)
	case duoRestart:
		if m.side == 1 {
			w.left.restarts--
		} else {
			w.left.reborn--
		}
		w.restart(m.side)
	case duoDie:
		w.left.dies--
		w.restart(0)
		w.dead = true
	case duoClose:
		w.left.closes--
		w.close()
	case duoDrain:
		w.left.drains--
		s.closing = true
	case duoClosed, duoDrained:
		w.isClosed(m.side)
	case duoLook:
		w.look()
	case duoPass:
		_, _, later := w.drained()
		w.now = later
	case duoForge:
		w.left.forged--
		w.calls = append(w.calls, duoCall{
			from: 0, peer: w.sides[1].process, cut: true, // and nobody waits for its answer
			request: transport.Request{Requester: transport.Process{Name: w.requester(0).Name, Incarnation: 99}, ID: 1, Attempt: 1, Step: 1, Key: w.cfg.parsed[1][0]},
		})
	case duoFull:
		w.left.drops--
		w.drops(m.side)
	case duoForget:
		acts, _ := s.table.tick(w.now.Add(expireAfter))
		w.keep(m.side, acts)
	case duoHello:
		w.hello(m.side)
	case duoBegin:
		w.attempt(m.side, m.n)
	case duoDrop:
		w.drop(m.side, m.n)
	case duoReturn:
		w.returns(m.side, m.n)
	case duoFlush:
		w.flush(m.side)
	case duoReport:
		w.report(m.side, m.n)
	case duoBack:
		name := s.backs[0]
		s.backs = s.backs[1:]
		w.back(m.side, name)
		w.due(m.side)
	case duoCancels:
		ids := s.cancelled[m.n]
		s.cancelled = slices.Delete(s.cancelled, m.n, m.n+1)
		w.cancelNow(m.side, ids)
	case duoEnds:
		s.ending = false
		w.keep(m.side, s.table.endStep(w.now, 1))
	case duoTake:
		w.take(m.n)
	case duoVanish:
		w.calls[m.n].state = callGone
	case duoAddress:
		c := &w.calls[m.n]
		c.is, c.verifying = w.sides[c.from].process, verifyAnswers
	case duoVerified:
		w.verified(m.n)
	case duoDetach:
		if c := &w.calls[m.n]; c.verifying != verifyNone { // the call of the address ends with it
			c.verifying = verifyNone
			_, acts, _ := s.table.verified(w.now, c.request.Requester, "", 0, errLost)
			w.keep(m.side, acts)
		}
		w.calls[m.n].state = callGone
		w.detach(m.side, w.calls[m.n].call)
	case duoAnswer:
		w.answer(m.n)
	case duoLose:
		w.lose(m.n)
	case duoUnsent:
		w.left.unsent--
		w.notSent(m.n)
	case duoTakeBatch:
		w.takeBatch(m.n)
	case duoLoseBatch:
		w.batches[m.n].gone = true
	case duoReturnBatch:
		batch := &w.batches[m.n]
		batch.returned = true
		if batch.cut || batch.undecided {
			w.flushed(batch.from, batch.act, errLost)
		} else {
			w.flushed(batch.from, batch.act, nil)
		}
	case duoLand:
		w.land(m.side, m.n)
	case duoPoll:
		w.poll(m.side, m.n)
	case duoDestroy:
		w.destroy(m.side, m.n)
	case duoTick:
		ch := s.ends[m.n-1].ch
		if at := ch.Deadline(); at.After(w.now) {
			w.now = at
		}
		ch.Tick(w.now)
		w.run(m.side, m.n)
	case duoCopied:
		a := s.copied[m.n]
		s.copied = slices.Delete(s.copied, m.n, m.n+1)
		w.answered(m.side, a.to, a.value, nil)
	case duoWake:
		w.now = later(w.now, s.requests.wakeAt)
		w.ask(m.side, s.requests.tick(w.now))
	}
	w.sweep()
}

// story is a move in words, for the world before it.
func (w *duo) story(m duoMove) string {
	me, other := duoNames[m.side], duoNames[1-m.side]
	s := &w.sides[m.side]
	switch m.kind {
	case duoSend:
		return fmt.Sprintf("%s sends value %d under key %d", me, len(w.values)+1, m.n)
	case duoRecvs:
		return fmt.Sprintf("%s begins receive %d of key %d", me, len(s.recvs)+1, m.n)
	case duoCancel:
		return fmt.Sprintf("%s cancels receive %d", me, m.n+1)
	case duoBreak:
		return fmt.Sprintf("a queue pair breaks: %s leaves channel %d, posts nothing more", me, m.n)
	case duoNotice:
		return fmt.Sprintf("%s finds out that %s has gone, and leaves channel %d", me, other, m.n)
	case duoCut:
		return "the gRPC connection is lost"
	case duoChannel:
		return fmt.Sprintf("%s bootstraps channel %d", me, w.gens+1)
	case duoChange:
		return fmt.Sprintf("%s bootstraps channel %d over a better route", me, w.gens+1)
	case duoAbort:
		return me + " cleans the step up"
	case duoRestart:
		return me + " restarts"
	case duoDie:
		return me + " dies"
	case duoClose, duoDrain:
		return me + " begins to close"
	case duoClosed, duoDrained:
		return me + " is closed"
	case duoLook:
		return fmt.Sprintf("%s calls the address of %s", me, other)
	case duoPass:
		return "time passes for the close of " + me
	case duoForge:
		return fmt.Sprintf("somebody asks %s in the name of %s", other, me)
	case duoFull:
		return fmt.Sprintf("the cache of %s is full, and drops what it keeps for %s, which has no connection", me, other)
	case duoForget:
		return fmt.Sprintf("a minute passes for what %s keeps for the process that %s was", me, other)
	case duoHello:
		return fmt.Sprintf("%s reaches %s", me, other)
	case duoBegin:
		a := &s.attempts[m.n].act
		return fmt.Sprintf("%s begins attempt %d of receive %d", me, a.attempt, a.id)
	case duoDrop:
		a := &s.attempts[m.n].act
		return fmt.Sprintf("%s drops attempt %d of receive %d", me, a.attempt, a.id)
	case duoReturn:
		a := &s.attempts[m.n]
		return fmt.Sprintf("%s has attempt %d of receive %d return value %d, error %v", me, a.act.attempt, a.act.id, a.value, a.err)
	case duoFlush:
		return fmt.Sprintf("%s sends %s", me, batchString(s.flushes[0]))
	case duoReport:
		r := &s.reports[m.n]
		if r.value == 0 {
			return fmt.Sprintf("%s: the rendezvous ends receive %x without a value", me, r.request.ID)
		}
		return fmt.Sprintf("%s: the rendezvous gives value %d to receive %x", me, r.value, r.request.ID)
	case duoBack:
		return fmt.Sprintf("%s: value %d is back", me, s.backs[0])
	case duoCancels:
		return fmt.Sprintf("%s: the table takes CANCEL %d", me, s.cancelled[m.n].ids)
	case duoEnds:
		return me + ": the table lets the step go"
	case duoTake:
		c := &w.calls[m.n]
		return fmt.Sprintf("%s takes the gRPC call for %v, which names generation %d", me, c, c.left)
	case duoVanish:
		return "the network loses the call for " + w.calls[m.n].String()
	case duoAddress:
		return fmt.Sprintf("the address of the requester of the call for %v answers", &w.calls[m.n])
	case duoVerified:
		return fmt.Sprintf("%s hears that process %d is at the address of the requester of the call for %v", me, w.calls[m.n].is, &w.calls[m.n])
	case duoDetach:
		return fmt.Sprintf("%s sees the end of the call for %v", me, &w.calls[m.n])
	case duoAnswer:
		c := &w.calls[m.n]
		return fmt.Sprintf("%s gets value %d, error %v by gRPC for %v", me, c.value, c.err, c)
	case duoUnsent:
		return fmt.Sprintf("%s has no connection for %v: the request does not leave", me, &w.calls[m.n])
	case duoLose:
		return fmt.Sprintf("%s loses the call for %v", me, &w.calls[m.n])
	case duoTakeBatch:
		return fmt.Sprintf("%s takes %s from gRPC", me, batchString(w.batches[m.n].act))
	case duoLoseBatch:
		return fmt.Sprintf("the network loses %s", batchString(w.batches[m.n].act))
	case duoReturnBatch:
		return fmt.Sprintf("%s learns the outcome of %s", me, batchString(w.batches[m.n].act))
	case duoLand:
		p := &s.ends[m.n-1].wire[0]
		if p.message != nil {
			return fmt.Sprintf("channel %d: %s arrives at %s", m.n, messageString(p.message), other)
		}
		return fmt.Sprintf("channel %d: %v of value %d arrives at %s", m.n, &p.post, p.value, other)
	case duoPoll:
		for _, c := range s.ends[m.n-1].cq {
			switch {
			case c.message != nil:
				return fmt.Sprintf("%s polls channel %d: %s", me, m.n, messageString(c.message))
			case !c.sent:
				return fmt.Sprintf("%s polls channel %d: %v", me, m.n, wire.Imm(c.imm))
			}
		}
		return fmt.Sprintf("%s polls channel %d: something was sent", me, m.n)
	case duoDestroy:
		return fmt.Sprintf("%s has polled what had come, and destroys its queue pair of channel %d", me, m.n)
	case duoTick:
		return fmt.Sprintf("some milliseconds pass for channel %d of %s", m.n, me)
	case duoCopied:
		a := &s.copied[m.n]
		return fmt.Sprintf("%s has copied value %d for attempt %d of receive %d", me, a.value, a.to.attempt, a.to.id)
	case duoWake:
		return "some milliseconds pass for the receives of " + me
	}
	return fmt.Sprint(m)
}

func (c *duoCall) String() string {
	return fmt.Sprintf("attempt %d of receive %d of %s", c.request.Attempt, c.request.ID, duoNames[c.from])
}

func batchString(a simAct) string {
	if a.kind == doCancel {
		return fmt.Sprintf("CANCEL %d", a.ids)
	}
	return fmt.Sprintf("ACK %d", a.ids)
}

// messageString describes a message of a channel.
func messageString(b []byte) string {
	kind, _ := wire.KindOf(b)
	text := kind.String()
	var request wire.Request
	var eager wire.Eager
	var again wire.ReRequest
	var meta wire.Meta
	var failed wire.Error
	id := uint64(0)
	switch {
	case kind == wire.KindRequest && request.Parse(b) == nil:
		id = request.ID
	case kind == wire.KindEager && eager.Parse(b) == nil:
		id = eager.ID
	case kind == wire.KindReRequest && again.Parse(b) == nil:
		id = again.ID
	case kind == wire.KindMeta && meta.Parse(b) == nil:
		id = meta.ID
	case kind == wire.KindError && failed.Parse(b) == nil:
		return fmt.Sprintf("ERROR of receive %d: %s", failed.ID, failed.Text)
	}
	if id != 0 {
		text += fmt.Sprintf(" of receive %d", id)
	}
	return text
}

// after is the world after a move; w stays what it is. The two share the machines
// of the side that does not move, which no other move touches.
func (w *duo) after(m duoMove) *duo {
	n := *w
	n.calls, n.batches, n.values = slices.Clone(w.calls), slices.Clone(w.batches), slices.Clone(w.values)
	for i := range n.sides {
		s := &n.sides[i]
		s.keys, s.reports, s.cancelled, s.callers = slices.Clone(s.keys), slices.Clone(s.reports), slices.Clone(s.cancelled), slices.Clone(s.callers)
		s.copied, s.backs, s.waiting = slices.Clone(s.copied), slices.Clone(s.backs), slices.Clone(s.waiting)
		s.recvs, s.attempts, s.flushes = slices.Clone(s.recvs), slices.Clone(s.attempts), slices.Clone(s.flushes)
		s.ends, s.mem = slices.Clone(s.ends), slices.Clone(s.mem)
		if m.kind == duoLand || m.side != i && m.kind != duoChannel && m.kind != duoChange {
			continue
		}
		s.table, s.requests = cloneResponses(s.table), cloneRequests(s.requests)
		for g := range s.ends {
			if e := &s.ends[g]; e.state != endGone {
				e.ch, e.sources = e.ch.SearchCopy(), slices.Clone(e.sources)
			}
		}
	}
	n.play(m)
	return &n
}

// state is what makes a difference for what can happen later.
func (w *duo) state() [2]uint64 {
	b := make([]byte, 0, 2048)
	num := func(xs ...uint64) { b = appendNums(b, xs...) }
	flag := func(xs ...bool) { b = appendFlags(b, xs...) }
	count := func(xs ...int) {
		for _, x := range xs {
			b = binary.AppendUvarint(b, uint64(x)) //nolint:gosec // not negative
		}
	}
	l := &w.left
	count(l.sends, l.recvs, l.cancels, l.breaks, l.cuts, l.channels, l.changes, l.aborts, l.restarts, l.reborn, l.unsent, l.full, l.forged, l.drops, l.closes, l.drains, l.dies, w.gens)
	flag(w.dead, w.closed)
	for k := range w.values {
		v := &w.values[k]
		count(v.key, v.refs, v.got, v.told)
		num(v.home)
		flag(v.lost, v.dropped, v.reported)
	}
	for i := range w.sides {
		s := &w.sides[i]
		num(s.process)
		if flag(s.closing); s.closing {
			for _, k := range s.table.requesters {
				flag(k.drain.gone, k.drain.callAt.After(w.now))
				num(uint64(min(w.now.Sub(k.since), drainGrace) / drainPause)) //nolint:gosec // not negative
			}
		}
		b = appendResponses(b, s.table, w.nameOf)
		for _, k := range s.keys {
			count(len(k.values))
			b = append(b, k.values...)
			count(len(k.waiting))
			for _, f := range k.waiting {
				num(f.request.ID)
			}
		}
		count(len(s.reports))
		for _, r := range s.reports {
			num(r.request.ID, uint64(r.value))
			e := s.table.known(r.request.Requester).entryOf(r.request.ID)
			flag(e != nil && e.fetch == r.fetch, r.stopped)
		}
		count(len(s.backs))
		b = append(b, s.backs...)
		count(len(s.waiting))
		for _, f := range s.waiting {
			num(f.request.ID)
		}
		count(len(s.callers))
		for _, c := range s.callers {
			count(c.generation)
			num(c.id, uint64(c.attempt))
		}
		count(len(s.copied))
		for _, a := range s.copied {
			count(a.to.generation)
			num(a.to.id, uint64(a.to.attempt), uint64(a.value))
		}
		flag(s.over, s.ending)
		count(len(s.cancelled))
		for _, ids := range s.cancelled {
			num(ids.requester)
			b = appendList(b, ids.ids)
		}
		b = appendRequests(b, s.requests)
		count(s.hellos)
		for _, r := range s.recvs {
			count(r.key)
			num(uint64(r.value), r.first)
			flag(r.ended != 0, r.cancelled, r.dead, r.left)
			for _, o := range s.recvs { // what is compared for the order
				flag(o.ended != 0 && o.ended < r.begun, o.ended > r.begun)
			}
		}
		count(len(s.attempts))
		for _, a := range s.attempts {
			num(a.act.id, uint64(a.act.attempt), uint64(a.state), uint64(a.value), a.act.peer)
			count(a.generation, a.dest)
			flag(a.dropped, a.act.fallback)
			b = appendError(b, a.err)
			b = appendList(b, a.act.ids)
			b = appendList(b, a.act.cancels)
		}
		count(len(s.flushes))
		for _, a := range s.flushes {
			b = w.appendBatch(b, i, a)
		}
		count(s.up, s.gone, len(s.mem))
		for _, d := range s.mem {
			flag(d.free)
			if !d.free {
				b = append(b, d.pages...)
			}
		}
		for g := range s.ends {
			b = w.appendEnd(b, i, g)
		}
	}
	count(len(w.calls))
	for k := range w.calls {
		c := &w.calls[k]
		count(c.from, c.left)
		num(c.request.Requester.Incarnation, c.request.ID, uint64(c.request.Attempt), c.peer, uint64(c.state), uint64(c.value))
		flag(c.listening, c.cut)
		num(uint64(c.verifying), c.is)
		b = appendError(b, c.err)
		b = appendList(b, c.finished)
		b = appendList(b, c.cancelled)
	}
	count(len(w.batches))
	for _, m := range w.batches {
		count(m.from)
		num(m.requester, m.peer)
		flag(m.taken, m.gone, m.returned, m.cut, m.undecided)
		b = w.appendBatch(b, m.from, m.act)
	}
	return [2]uint64{maphash.Bytes(duoSeed, b), maphash.Bytes(duoSeed2, b)}
}

var duoSeed, duoSeed2 = maphash.MakeSeed(), maphash.MakeSeed()

func appendError(b []byte, err error) []byte {
	if err == nil {
		return append(b, 0)
	}
	return append(append(b, fmt.Sprintf("%T", err)...), err.Error()...)
}

func (w *duo) appendBatch(b []byte, i int, a simAct) []byte {
	b = appendNums(b, uint64(a.kind), min(w.sides[i].requests.generation-a.generation, 2))
	return appendList(b, a.ids)
}

func (w *duo) appendEnd(b []byte, i, g int) []byte {
	e := &w.sides[i].ends[g]
	num := func(xs ...uint64) { b = appendNums(b, xs...) }
	num(uint64(e.state), e.peer)
	b = appendFlags(b, e.counted, e.hello && w.cfg.changes > 0, e.replaced, e.moved, e.byes)
	if e.ch == nil {
		return b
	}
	if e.state != endGone { // else it only drops what comes
		b = e.ch.AppendSearchState(b)
		num(uint64(e.posted), uint64(len(e.cq))) //nolint:gosec // not negative
		for _, c := range e.cq {
			b = appendFlags(b, c.sent, c.message != nil)
			if c.sent {
				num(uint64(e.packets - c.number))
			} else {
				num(uint64(c.imm))
				b = w.appendMessage(b, c.message, i, g)
			}
		}
		num(uint64(len(e.batches)))
		for _, y := range e.batches {
			b = w.appendBatch(b, i, y.act)
			num(uint64(y.mark-e.taken.Acks), uint64(y.mark-e.taken.Cancels))
		}
	}
	num(uint64(len(e.sources)))
	for _, src := range e.sources {
		num(uint64(src.value))
		b = appendFlags(b, src.gone)
	}
	num(uint64(len(e.wire)))
	for _, p := range e.wire {
		num(uint64(p.post.Op), uint64(p.post.Imm), p.post.RemoteAddr, uint64(p.value), uint64(e.packets-p.number))
		b = appendFlags(b, p.post.Signaled)
		b = w.appendMessage(b, p.message, 1-i, g)
	}
	return b
}

// appendMessage writes a message on its way to a side, with its count given by the
// distance from what that side has posted.
func (w *duo) appendMessage(b, m []byte, to, g int) []byte {
	const fixed = 12 // bytes of a header before its counts
	b = binary.AppendUvarint(b, uint64(len(m)))
	if len(m) < fixed+4 {
		return b
	}
	b = append(b, m[:fixed]...)
	b = binary.AppendUvarint(b, uint64(w.sides[to].ends[g].messages-binary.LittleEndian.Uint32(m[fixed:])))
	return append(b, m[fixed+4:]...)
}
