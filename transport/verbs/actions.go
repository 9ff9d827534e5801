package verbstransport

import (
	"cmp"
	"slices"
	"time"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/transport"
	"github.com/tryst-rdma/tryst/transport/internal/channel"
	"github.com/tryst-rdma/tryst/transport/internal/delivery"
	"github.com/tryst-rdma/tryst/transport/verbs/internal/regmem"
	"github.com/tryst-rdma/tryst/verbs"
)

// The way of an event:
//
//	1. An event takes the lock: completions (completed), an attempt of ours
//	   (attempt.go), a response of the cache (respond.go), the clock (tick).
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
		case channel.ActRequest:
			again = l.request(now, &a.Request) || again
		case channel.ActDetach:
			l.outbox = append(l.outbox, outgoing{kind: outDetach, id: attemptID{a.ID, a.Attempt}})
		case channel.ActDrop:
			if s, ok := l.sources.take(a.Source.Handle); ok {
				l.staged.Release(s.staged)
				l.outbox = append(l.outbox, outgoing{kind: outRelease, buf: s.buf})
			}
		case channel.ActAcked:
			l.outbox = append(l.outbox, outgoing{kind: outAck, ids: a.IDs.AppendTo(nil)})
		case channel.ActCancelled:
			// From here on the CANCEL counts as taken: no request of the peer by another way
			// may be answered before it has been dealt with.
			end, err := l.peer.transport.opts.Cache.BeginCancel(l.requester, a.IDs.AppendTo(nil))
			if err != nil { // the peer cancels more than it may, or another process has its name
				l.fails(now, witnessCause, err)
				again = true
				continue
			}
			l.outbox = append(l.outbox, outgoing{kind: outCancel, rest: end})
		case channel.ActTaken:
			l.confirms(a.Taken)
		case channel.ActUp:
			l.outbox = append(l.outbox, outgoing{kind: outUp})
		case channel.ActClose:
			l.leaving(a.Err)
		}
	}
	again = l.post(posting) || again
	for _, p := range l.places {
		l.place(p, regmem.Stay)
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
	l.machine.Watch(now, l.peer.transport.opts.Cache.Holds(l.requester))
	l.machine.Tick(now)
	l.run(now)
}

// outgoing is something to be done outside the lock.
type outgoing struct {
	kind    outKind
	request transport.Request
	id      attemptID
	buf     *tensor.Buffer
	ids     []uint64
	left    uint64
	rest    func()
}

type outKind uint8

const (
	outLeft    outKind = iota // the peer has left a generation: before its request is looked at
	outRequest                // to the response cache
	outDetach                 // the peer does not wait for the response to id any more
	outRelease                // buf
	outAck                    // ids
	outCancel                 // rest of a cancel that has begun
	outRest                   // rest of a request that has its response
	outUp                     // the channel carries both ways
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
	l.outbox = nil
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
			if polls && batch[i].kind == outCancel {
				l.carryAside(batch, i)
				return
			}
			l.carry(&batch[i])
		}
		l.mu.Lock()
		if len(l.outbox) == 0 {
			l.emptying = false
			l.mu.Unlock()
			return
		}
		batch, from, l.outbox = l.outbox, 0, nil
		l.mu.Unlock()
	}
}

// carryAside is carryOut where nothing is polled.
func (l *link) carryAside(batch []outgoing, from int) {
	l.aside(func() { l.carryOut(batch, from, false) })
}

func (l *link) carry(o *outgoing) {
	cache := l.peer.transport.opts.Cache
	switch o.kind {
	case outLeft:
		l.peer.leftBy(l.requester.Incarnation, o.left)
	case outRequest:
		resp, ok, rest := cache.RequestNow(l, o.request)
		if rest != nil {
			rest()
		}
		if ok {
			l.Reply(o.request.ID, o.request.Attempt, resp)
		}
	case outDetach:
		cache.Detach(l, l.requester, o.id.id, o.id.attempt)
	case outRelease:
		l.peer.transport.release(o.buf)
	case outAck:
		cache.Ack(l.requester, o.ids)
	case outCancel, outRest:
		o.rest()
	case outUp:
		l.peer.linkUp(l)
	}
}

// aside does what would hold up who polls on a goroutine of its own.
func (l *link) aside(f func()) { l.peer.transport.work.Go(f) }

// attempt finds an attempt that has not ended. Handles are used again, so its id is checked.
// Called with the lock held.
func (l *link) attempt(handle uint64, id attemptID) *attempt {
	a, _ := l.attempts.get(handle)
	if a == nil || a.id != id {
		return nil
	}
	return a
}

// end ends an attempt of this side.
func (l *link) end(e *channel.Action, now time.Time) {
	a := l.attempt(e.Handle, attemptID{e.ID, e.Attempt})
	if a != nil {
		l.attempts.take(e.Handle)
		a.own = 0
	}
	dest, written := l.takeDest(e.Dest)
	if a != nil {
		l.outcome(a, e, &dest, now)
	}
	if written {
		l.release(&dest)
	}
	if a != nil { // the memory is the receiver's alone from here on
		a.waiter.Done()
	}
}

// outcome notes what an attempt has ended with.
func (l *link) outcome(a *attempt, e *channel.Action, dest *destination, now time.Time) {
	a.t.Ended = now
	switch e.Outcome {
	case channel.OutcomeEager:
		e.Value.CopyTo(&a.meta)
		a.content = slices.Clone(e.Content)
	case channel.OutcomeWritten:
		e.Value.CopyTo(&a.meta)
		a.buf = dest.Buffer().Retain()
	case channel.OutcomeFallback:
		a.err = &delivery.FallbackError{Err: cmp.Or(a.noPlace, e.Err)}
		switch c := &l.peer.counters; {
		case e.ByPeer:
			c.peerNoMemory.Add(1)
		case a.noPlace != nil:
			c.noMemory.Add(1)
		default:
			c.noFit.Add(1)
		}
	case channel.OutcomeLost:
		a.err = lostBy(cmp.Or(l.err, e.Err)) // the link may know a cause that the machine does not
	default:
		l.quarantine(now, a) // when CANCEL was sent for it before its own cancel came here
		a.err = e.Err
		switch {
		case delivery.IsOtherProcess(e.Err):
			a.err = &delivery.RestartedError{Err: e.Err}
		case !e.ByPeer:
			a.err = &delivery.ReceiverError{Err: e.Err}
		}
	}
}
