package verbstransport

import (
	"cmp"
	"slices"
	"time"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/transport"
	"github.com/tryst-rdma/tryst/transport/verbs/channel"
	"github.com/tryst-rdma/tryst/transport/verbs/mem"
	"github.com/tryst-rdma/tryst/verbs"
)

// The way of an event:
//
//	1. An event takes the lock: completions (completed), a receive of ours
//	   (receive.go), an answer of the table (answer.go), the clock (tick).
//	2. The machine hears it.
//	3. run carries out what the machine wants: receives are posted again, sends
//	   collected and posted in one list per rail, receives ended. What calls out
//	   of the package goes into outbox.
//	4. run gives the lock up, and the outbox is emptied.

// completed is called by the queue with completions in order, by one goroutine
// at a time, and when they came.
func (l *link) completed(wcs []verbs.WC, now time.Time) {
	l.mu.Lock()
	for i := range wcs {
		l.completion(now, &wcs[i])
	}
	l.run(now)
}

// completion tells one completion to the machine. Called with the lock held.
func (l *link) completion(now time.Time, wc *verbs.WC) {
	if l.machine == nil || wc.ID.Channel() != l.index {
		return // a queue pair that was shown and never paired
	}
	slot, o := int(wc.ID.Slot()), &l.peer.transport.opts
	switch wc.ID.Kind() {
	case kindMarker:
		l.rails[slot].marked = false
	case kindSend:
		if wc.Status == verbs.StatusOK {
			l.machine.Sent(now, slot/o.SendQueue, uint32(slot%o.SendQueue)) //nolint:gosec // a queue
		}
	case kindRecv:
		at := slot / o.Window
		if at >= len(l.rails) {
			return // of a queue pair that the peer had none for
		}
		l.rails[at].completed++
		switch {
		case wc.Status != verbs.StatusOK:
		case wc.Op == verbs.WCRecvWrite:
			l.machine.Imm(now, at, wc.Imm)
		default:
			l.machine.Message(now, at, l.inbox.Slot(slot)[:wc.Len])
		}
	}
	if wc.Status != verbs.StatusOK {
		w := witnessCause
		if wc.Status == verbs.StatusFlushed {
			w = witnessFlushed
		}
		if l.state == linkOpen || w < l.witness {
			l.fails(now, w, l.failed(wc))
		}
	}
	if l.state == linkLeaving && l.isDrained() {
		l.drained.Broadcast()
	}
}

// failed is a failed completion in words.
func (l *link) failed(wc *verbs.WC) error {
	e := status.Errorf(status.Unavailable, "%v: QP %v: %v (%s): %s",
		l, wc.QPN, wc.Status, verbs.VendorError(l.peer.transport.port.device.Info().Vendor, wc.VendorErr), wc.Status.Cause())
	return e
}

// run carries out what the machine wants until it wants nothing more. now is when
// the event was: to look at the clock once more would take as long as all the machine
// does. It is called with the lock held and gives it up.
func (l *link) run(now time.Time) {
	if l.machine != nil {
		for l.act(l.machine.Actions(now), now) {
		}
		l.arm(now)
	}
	l.empty()
}

// act carries out actions, and says whether that has led to new events.
func (l *link) act(acts []channel.Action, now time.Time) (again bool) {
	l.sends, l.sges = l.sends[:0], l.sges[:0]
	posting := 0 // rail of sends
	for i := range acts {
		a := &acts[i]
		switch a.Kind {
		case channel.ActEnd:
			l.end(a, now)
		case channel.ActFree:
			l.free(a.Dest)
		case channel.ActRepost:
			again = l.post(posting) || again
			if err := l.postReceives(a.Rail, a.Count); err != nil {
				again = l.broken(err) || again
			}
		case channel.ActPost:
			if a.Post.Rail != posting {
				again = l.post(posting) || again
				posting = a.Post.Rail
			}
			l.collect(&a.Post)
		case channel.ActPlace:
			l.places = append(l.places, placing{attemptID{a.ID, a.Attempt}, a.Handle, a.Value.Size})
		case channel.ActStage:
			l.stage(attemptID{a.ID, a.Attempt}, a.Source.Handle)
		case channel.ActAsk:
			again = l.ask(now, &a.Ask) || again
		case channel.ActDetach:
			l.outbox = append(l.outbox, outgoing{kind: outDetach, id: attemptID{a.ID, a.Attempt}})
		case channel.ActDrop:
			if s, ok := l.sources.take(a.Source.Handle); ok {
				l.staged.Release(s.staged)
				l.outbox = append(l.outbox, outgoing{kind: outRelease, buf: s.buf})
			}
		case channel.ActFinished:
			l.outbox = append(l.outbox, outgoing{kind: outFinished, ids: a.IDs.AppendTo(l.newIDs())})
		case channel.ActCancelled:
			// From here on the CANCEL counts as taken: no request of the peer by another way
			// may be answered before it has been dealt with.
			end, err := l.peer.transport.opts.Kept.BeginCancel(l.asker, a.IDs.AppendTo(nil))
			if err != nil { // the peer cancels more than it may, or another process has its name
				l.fails(now, witnessCause, err)
				again = true
				continue
			}
			l.outbox = append(l.outbox, outgoing{kind: outCancelled, end: end})
		case channel.ActTaken:
			l.took(a.Taken)
		case channel.ActUp:
			l.outbox = append(l.outbox, outgoing{kind: outUp})
		case channel.ActClose:
			l.leaving(a.Err)
		}
	}
	again = l.post(posting) || again
	for _, p := range l.places {
		l.place(p, mem.Stay)
		again = true
	}
	l.places = l.places[:0]
	return again
}

// collect adds a work request to those that post posts.
func (l *link) collect(p *channel.Post) {
	r := l.rails[p.Rail]
	at := p.Rail*l.peer.transport.opts.SendQueue + int(p.Slot) // each rail has messages under way
	wr := verbs.SendWR{
		ID: l.wrID(uint32(at), kindSend), Op: p.Op, Signaled: p.Signaled, //nolint:gosec // some queues
		RemoteAddr: p.RemoteAddr, RKey: p.RKey, Imm: p.Imm,
	}
	switch {
	case p.Op == verbs.OpSend:
		slot := l.out.Slot(at)
		n := copy(slot, p.Message)
		if s, ok := l.sources.get(p.Source.Handle); ok {
			n += copy(slot[n:], s.bytes[:p.Length])
		}
		if n <= r.inline {
			wr.Inline = slot[:n]
		} else {
			wr.SGL = l.sgl(l.out.SGE(at, n))
		}
	case p.Length > 0:
		s, _ := l.sources.get(p.Source.Handle)
		wr.SGL = l.sgl(verbs.SGE{Addr: s.piece.Addr + p.Offset, Length: p.Length, LKey: s.piece.LKey})
	}
	l.sends = append(l.sends, wr)
}

// sgl is a list of one. The lists of a batch lie one after the other; when their
// memory has to grow, those before keep what they had.
func (l *link) sgl(e verbs.SGE) []verbs.SGE {
	l.sges = append(l.sges, e)
	return l.sges[len(l.sges)-1 : len(l.sges) : len(l.sges)]
}

// post posts what was collected for a rail.
func (l *link) post(at int) (again bool) {
	if len(l.sends) == 0 {
		return false
	}
	_, err := l.rails[at].qp.PostSend(l.sends)
	clear(l.sends)
	l.sends, l.sges = l.sends[:0], l.sges[:0]
	return err != nil && l.broken(err)
}

// broken is the end of the channel because a post failed.
func (l *link) broken(err error) bool {
	if l.state != linkOpen {
		return false
	}
	l.machine.Leave(time.Now(), err)
	l.leaving(err)
	return true
}

// arm sees to it that the machine is asked again in time.
func (l *link) arm(now time.Time) {
	at := l.machine.Deadline()
	if at.IsZero() || l.state == linkGone || !l.alarm.set(at) {
		return
	}
	if l.timer == nil {
		l.timer = time.AfterFunc(at.Sub(now), l.tick)
		return
	}
	l.timer.Reset(at.Sub(now))
}

func (l *link) tick() {
	looked := l.queue.Look() // what has come counts before the peer is judged
	l.mu.Lock()
	if l.state == linkGone {
		l.mu.Unlock()
		return
	}
	now := time.Now()
	if wait := l.alarm.rings(now, looked); wait > 0 {
		l.timer.Reset(wait)
		l.mu.Unlock()
		return
	}
	l.machine.Watch(now, l.peer.transport.opts.Kept.Holds(l.asker))
	l.machine.Tick(now)
	l.run(now)
}

// outgoing is something to be done outside the lock.
type outgoing struct {
	kind outKind
	ask  transport.Ask
	id   attemptID
	buf  *tensor.Buffer
	ids  []uint64
	left uint64
	end  func() // of a cancel that has begun
}

type outKind uint8

const (
	outLeft      outKind = iota // the peer has left a generation: before its request is looked at
	outAsk                      // ask the table
	outDetach                   // nobody waits for the answer to id any more
	outRelease                  // buf
	outFinished                 // ids
	outCancelled                // end
	outUp                       // the channel carries both ways
)

// empty carries out the outbox, in order. It is called with the lock held and
// gives it up. One goroutine at a time does it; what others add meanwhile, it
// does too.
func (l *link) empty() {
	if l.emptying || len(l.outbox) == 0 {
		l.mu.Unlock()
		return
	}
	l.emptying = true
	batch := l.outbox
	l.outbox = l.spare.outbox[:0]
	l.mu.Unlock()
	l.carryOut(batch, 0, true)
}

// carryOut carries out a batch from a place on, and what has come into the outbox meanwhile.
// While completions are polled it stops at a CANCEL, since what goes back to its key may find
// a receiver there, whose callback must not run then. A goroutine of its own does that, and
// all that is behind it: a request behind a CANCEL is answered when it has been dealt with.
func (l *link) carryOut(batch []outgoing, from int, polls bool) {
	for {
		for i := from; i < len(batch); i++ {
			if polls && batch[i].kind == outCancelled {
				l.carryAside(batch, i)
				return
			}
			l.carry(&batch[i])
		}
		l.mu.Lock()
		for i := range batch {
			if o := &batch[i]; o.kind == outFinished {
				l.spare.ids = append(l.spare.ids, o.ids[:0])
			}
		}
		clear(batch)
		l.spare.outbox = batch
		if len(l.outbox) == 0 {
			l.emptying = false
			l.mu.Unlock()
			return
		}
		batch, from = l.outbox, 0
		l.outbox = l.spare.outbox[:0]
		l.mu.Unlock()
	}
}

// carryAside is carryOut where nothing is polled.
func (l *link) carryAside(batch []outgoing, from int) {
	l.aside(func() { l.carryOut(batch, from, false) })
}

// newIDs is memory for a list of ids that goes into the outbox. Called with the lock
// held.
func (l *link) newIDs() (ids []uint64) {
	if n := len(l.spare.ids); n > 0 {
		ids, l.spare.ids = l.spare.ids[n-1], l.spare.ids[:n-1]
	}
	return ids
}

func (l *link) carry(o *outgoing) {
	kept := l.peer.transport.opts.Kept
	switch o.kind {
	case outLeft:
		l.peer.leftBy(l.asker.Incarnation, o.left)
	case outAsk:
		kept.AskFor(l, o.ask) // the answer may be there before it returns
	case outDetach:
		kept.DetachFor(l, l.asker, o.id.id, o.id.attempt)
	case outRelease:
		l.peer.transport.release(o.buf)
	case outFinished:
		kept.Finish(l.asker, o.ids)
	case outCancelled:
		o.end()
	case outUp:
		l.peer.linkUp(l)
	}
}

// aside does what would hold up who polls on a goroutine of its own.
func (l *link) aside(f func()) { l.peer.transport.work.Go(f) }

// receive finds a receive that has not ended. A handle may be another one's by now, which
// its id shows. Called with the lock held.
func (l *link) receive(handle uint64, id attemptID) *receive {
	r, _ := l.receives.get(handle)
	if r == nil || r.id != id {
		return nil
	}
	return r
}

// end ends a receive of this side.
func (l *link) end(a *channel.Action, now time.Time) {
	r := l.receive(a.Handle, attemptID{a.ID, a.Attempt})
	if r != nil {
		l.receives.take(a.Handle)
		r.own = 0
	}
	dest, written := l.takeDest(a.Dest)
	if r == nil {
		if written {
			l.release(&dest)
		}
		return
	}
	switch a.Outcome {
	case channel.OutcomeEager:
		// Its value is made by who waits for it: memory comes from an allocator that
		// others wrote.
		a.Value.CopyTo(&r.meta)
		r.content = append(r.content[:0], a.Content...)
	case channel.OutcomeWritten:
		a.Value.CopyTo(&r.meta)
		r.buf = dest.Buffer().Retain()
	case channel.OutcomeElsewhere:
		r.err = &transport.ElsewhereError{Err: cmp.Or(r.noPlace, a.Err)}
		switch c := &l.peer.counters; {
		case a.ByPeer:
			c.peerNoMemory.Add(1)
		case r.noPlace != nil:
			c.noMemory.Add(1)
		default:
			c.noFit.Add(1)
		}
	case channel.OutcomeLost:
		r.err = lostBy(cmp.Or(l.err, a.Err)) // the link may know a cause that the machine does not
	default:
		l.quarantine(now, r) // when CANCEL was said for it before its own cancel came here
		r.err = a.Err
		switch {
		case transport.IsOtherProcess(a.Err):
			r.err = &transport.RestartedError{Err: a.Err}
		case !a.ByPeer:
			r.err = &transport.ReceiverError{Err: a.Err}
		}
	}
	if written {
		l.release(&dest)
	}
	r.attempt.Ended = now
	r.waiter.Done()
}

// say waits until the peer has taken what was said.
type say struct {
	cancel bool // CANCEL, else FINISHED
	ids    []uint64
	mark   channel.Mark
	done   chan struct{}
	err    error
}

func (s *say) end(err error) {
	s.err = err
	close(s.done)
}

func (s *say) reached(m channel.Marks) bool {
	if s.cancel {
		return m.Cancel >= s.mark
	}
	return m.Finish >= s.mark
}

// took ends the says that the peer has taken. Called with the lock held.
func (l *link) took(m channel.Marks) {
	l.taken = m
	l.says = slices.DeleteFunc(l.says, func(s *say) bool {
		if !s.reached(m) {
			return false
		}
		s.end(nil)
		return true
	})
}
