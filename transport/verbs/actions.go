package verbstransport

import (
	"errors"
	"time"

	"github.com/tryst-rdma/tryst/internal/channel"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport/verbs/internal/regmem"
	"github.com/tryst-rdma/tryst/verbs"
)

// The flow of an event:
//
//	1. The event takes mu: completions (completed), an attempt of this side (attempt.go),
//	   a response of the cache (respond.go), the timer (tick).
//	2. The event is passed to the state machine.
//	3. run executes the machine's actions: it posts receives again, collects sends and
//	   posts them in one list per rail, and ends attempts. Calls out of the package go
//	   into outbox.
//	4. run unlocks mu and runs the outbox (outbox.go).

// completed handles completions, in order, that were polled at the time now. The progress
// queue calls it from one goroutine at a time.
func (l *link) completed(wcs []verbs.WC, now time.Time) {
	l.mu.Lock()
	for i := range wcs {
		l.completion(now, &wcs[i])
	}
	l.run(now)
}

// completion passes one completion to the machine. Called with mu held.
func (l *link) completion(now time.Time, wc *verbs.WC) {
	if l.machine == nil || wc.ID.Channel() != l.index {
		return // of a queue pair that was never connected
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
			return // of a queue pair without a counterpart at the peer
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
		r := rankCause
		if wc.Status == verbs.StatusFlushed {
			r = rankFlushed
		}
		if l.state == linkOpen || r < l.rank {
			l.fail(now, r, l.completionError(wc))
		}
	}
	if l.state == linkLeaving && l.isDrained() {
		l.drained.Broadcast()
	}
}

// completionError returns the error of a failed completion.
func (l *link) completionError(wc *verbs.WC) error {
	if why, own := l.connectionError(wc.QPN); own {
		return status.Errorf(status.Unavailable, "%v: QP %v: %v: %w", l, wc.QPN, wc.Status, why)
	}
	return status.Errorf(status.Unavailable, "%v: QP %v: %v (%s): %s",
		l, wc.QPN, wc.Status, verbs.VendorError(l.port.device.Info().Vendor, wc.VendorErr), wc.Status.Cause())
}

// connectionError returns why a queue pair has no connection. own is false for a device that makes
// none for its queue pairs.
func (l *link) connectionError(qpn verbs.QPN) (why error, own bool) {
	for i := range l.rails {
		q, ok := l.rails[i].qp.(verbs.ConnectionReporter)
		if !ok {
			continue
		}
		own = true
		if err := q.ConnectionError(); err != nil && (why == nil || q.QPN() == qpn) {
			why = err
		}
	}
	if own && why == nil {
		why = errors.New("the peer's process gives no sign of life, or has refused the request (its log says why)")
	}
	return why, own
}

// run executes the machine's actions until there are none, and then runs the outbox. now is
// the time of the event; reading the clock again would be expensive here. It is called with
// mu held and unlocks it.
func (l *link) run(now time.Time) {
	if l.machine != nil {
		for l.execute(l.machine.Actions(now), now) || l.closeReplaced(now) {
		}
		l.arm(now)
	}
	l.flushOutbox()
}

// execute executes actions and reports whether that has passed new events to the machine.
// Called with mu held.
func (l *link) execute(acts []channel.Action, now time.Time) (again bool) {
	l.sends, l.sges = l.sends[:0], l.sges[:0]
	posting := 0 // rail of the sends that are collected
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
				again = l.postFailed(err) || again
			}
		case channel.ActPost:
			if a.Post.Rail != posting {
				again = l.post(posting) || again
				posting = a.Post.Rail
			}
			l.collect(&a.Post)
		case channel.ActPlace:
			l.destRequests = append(l.destRequests, l.destRequest(a))
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
			// From BeginCancel on the cache holds up the peer's requests, also those over
			// gRPC, until the cancel is finished.
			end, err := l.peer.transport.opts.Cache.BeginCancel(l.requester, a.IDs.AppendTo(nil))
			if err != nil { // the peer exceeds the limit of cancels, has left, or another process has its name
				l.fail(now, rankCause, err)
				again = true
			}
			l.outbox = append(l.outbox, outgoing{kind: outCancel, rest: end})
		case channel.ActTaken:
			l.batchesConfirmed(a.Taken)
		case channel.ActUp:
			l.outbox = append(l.outbox, outgoing{kind: outUp})
		case channel.ActClose:
			l.startLeaving(a.Err)
		}
	}
	again = l.post(posting) || again
	for _, p := range l.destRequests {
		l.assignDest(p, regmem.NoGrow)
		again = true
	}
	l.destRequests = l.destRequests[:0]
	return again
}

// collect adds a work request to the next post of its rail.
func (l *link) collect(p *channel.Post) {
	r := l.rails[p.Rail]
	at := p.Rail*l.peer.transport.opts.SendQueue + int(p.Slot) // index in l.out
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
		wr.SGL = l.sgl(verbs.SGE{Addr: s.at.Addr + p.Offset, Length: p.Length, LKey: s.at.LKey})
	}
	l.sends = append(l.sends, wr)
}

// sgl returns a list with one entry. The lists of a post share one array; when it has to
// grow, earlier lists keep the old array.
func (l *link) sgl(e verbs.SGE) []verbs.SGE {
	l.sges = append(l.sges, e)
	return l.sges[len(l.sges)-1 : len(l.sges) : len(l.sges)]
}

// post posts the sends that were collected for a rail.
func (l *link) post(at int) (again bool) {
	if len(l.sends) == 0 {
		return false
	}
	_, err := l.rails[at].qp.PostSend(l.sends)
	clear(l.sends)
	l.sends, l.sges = l.sends[:0], l.sges[:0]
	return err != nil && l.postFailed(err)
}

// postFailed leaves the channel because a post failed.
func (l *link) postFailed(err error) bool {
	if l.state != linkOpen {
		return false
	}
	l.machine.Leave(time.Now(), err)
	l.startLeaving(err)
	return true
}

// arm sets the timer to the machine's next deadline. Called with mu held.
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

// tick reports the time to the machine when the timer fires.
func (l *link) tick() {
	polled := l.queue.PollOnce() // completions count before a timeout of the peer does
	l.mu.Lock()
	if l.state == linkGone {
		l.mu.Unlock()
		return
	}
	now := time.Now()
	if wait := l.alarm.fires(now, polled); wait > 0 {
		l.timer.Reset(wait)
		l.mu.Unlock()
		return
	}
	l.machine.Watch(now, l.watches(now))
	l.machine.Tick(now)
	l.run(now)
}
