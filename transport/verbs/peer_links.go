package verbstransport

import (
	"time"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport/internal/delivery"
	"github.com/tryst-rdma/tryst/transport/verbs/internal/handshake"
	"github.com/tryst-rdma/tryst/verbs"
)

// What a link reports to its peer record, and which link carries receives.

// linkUp records that the peer's HELLO has arrived on a link.
func (p *peer) linkUp(l *link) {
	down := p.transport.opts.Cache.Connected(l.requester) // may reply to requests, so no lock is held
	p.mu.Lock()
	p.markVerified(l)
	// A link that was left meanwhile must not become active: linkDown has run already.
	if l.id > p.lastLeft.id && p.links[l.id] == l && (p.active == nil || p.active.id < l.id) {
		p.setActive(l)
		p.cameUp = time.Now()
		p.disconnected, down = down, nil
	}
	p.do(p.machine.Hello(time.Now(), l.id))
	if down != nil {
		down()
	}
	p.transport.work.Go(p.logState) // a log handler may block, and the caller polls
}

// markVerified removes l from the unverified count, if it is counted. Called with mu held,
// when HELLO has arrived or l is destroyed.
func (p *peer) markVerified(l *link) {
	if l.unverified {
		l.unverified = false
		p.transport.unverified.release(p.source)
	}
}

// setActive changes which link carries receives. Called with mu held.
func (p *peer) setActive(l *link) {
	if p.disconnected != nil {
		p.transport.work.Go(p.disconnected)
		p.disconnected = nil
	}
	p.active = l
	p.noteState()
	close(p.changed)
	p.changed = make(chan struct{})
}

// linkDown records that nothing is posted on a link any more.
func (p *peer) linkDown(l *link) {
	p.mu.Lock()
	if p.active == l {
		p.setActive(nil)
	}
	if l.id > p.lastLeft.id {
		p.lastLeft = leftLink{l.id, l.requester.Incarnation, l.own.Generation}
	}
	p.counters.breaks.Add(1)
	p.mu.Unlock()
}

// linkGone records that the queue pairs of a link are destroyed, which was left because of
// err. connected says that it was more than an offer.
func (p *peer) linkGone(l *link, err error, connected bool) {
	sum := l.totals()
	p.mu.Lock()
	p.markVerified(l)
	delete(p.links, l.id)
	p.closed.add(sum) // under the same lock as the deletion, so nothing is counted twice
	present := p.machine.Has(l.id)
	p.mu.Unlock()
	if connected {
		p.logLeft(l, err, present)
	}
	p.mu.Lock()
	p.do(p.machine.Broken(time.Now(), l.id, err))
	p.logState()
	l.port.links.done()
	p.transport.links.done()
}

// offerGone ends a link that was offered and is not connected yet. The machine makes
// another one.
func (p *peer) offerGone(l *link, why error) {
	l.mu.Lock()
	offered := l.state == linkOffered
	l.mu.Unlock()
	p.mu.Lock()
	if !offered {
		p.mu.Unlock()
		return
	}
	p.do(p.machine.Broken(time.Now(), l.id, why))
}

// leftLink identifies a link that was left. peer is the incarnation of the peer.
type leftLink struct{ id, peer, generation uint64 }

// with returns the link's generation if it led to that incarnation of the peer, and 0
// otherwise.
func (l leftLink) with(incarnation uint64) uint64 {
	if l.peer != incarnation {
		return 0
	}
	return l.generation
}

// current returns the link that carries receives (nil when none does), the last link that
// was left, and a Go channel that is closed when the first changes.
func (p *peer) current() (l *link, last leftLink, changed <-chan struct{}) {
	p.mu.Lock()
	l, last, changed = p.active, p.lastLeft, p.changed
	p.mu.Unlock()
	return l, last, changed
}

// known returns the peer's process, as the link that carries receives knows it. ok is false
// when no link does.
func (p *peer) known() (process delivery.Peer, ok bool) {
	l, _, _ := p.current()
	if l == nil {
		return delivery.Peer{}, false
	}
	return delivery.Peer{Tryst: true, Incarnation: l.requester.Incarnation}, true
}

// checkLeft returns an error when a process of the peer reports that it has left a
// generation that neither side has offered.
func (p *peer) checkLeft(incarnation, generation uint64) error {
	p.mu.Lock()
	last, ok := p.machine.Last(incarnation)
	p.mu.Unlock()
	if ok && generation > last {
		return status.Errorf(status.FailedPrecondition, "%v reports that it has left generation %d; the highest generation between it and this process is %d", p.task, generation, last)
	}
	return nil
}

// closeLeft leaves the links of a generation and all earlier ones to a process of the peer,
// which has reported that it has left them.
func (p *peer) closeLeft(incarnation, generation uint64) {
	p.mu.Lock()
	var old []*link
	for _, l := range p.links {
		if l.own.Generation <= generation {
			old = append(old, l)
		}
	}
	p.mu.Unlock()
	for _, l := range old {
		if l.isTo(incarnation) {
			l.leave(status.Errorf(status.Unavailable, "%v left generation %d", p.task, generation))
		}
	}
}

// deviceLost ends every link on a device because the device is lost.
func (p *peer) deviceLost(on *port, err error) {
	p.mu.Lock()
	p.lost = err
	p.do(p.machine.Suspend(time.Now(), err))
	p.leaveAll(on, err)
}

// deviceFound has the machine make channels over a device with what self describes. moved is
// why a device that the process had until now is not used any more; nil without one.
func (p *peer) deviceFound(self handshake.Offer, moved error) {
	p.mu.Lock()
	p.lost, p.address, p.refused = nil, verbs.GID{}, nil
	now := time.Now()
	var acts []handshake.Action
	if moved != nil {
		acts = p.machine.Suspend(now, moved)
	}
	p.do(append(acts, p.machine.Resume(now, self)...))
}

// leaveAll leaves every connected link on a device because of err.
func (p *peer) leaveAll(on *port, err error) {
	for _, l := range p.existing() {
		if l.port == on {
			l.leave(err)
		}
	}
}

// existing returns the links that are not destroyed.
func (p *peer) existing() []*link {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []*link
	for _, l := range p.links {
		all = append(all, l)
	}
	return all
}

// close stops the handshake machine, which ends every link.
func (p *peer) close() {
	p.mu.Lock()
	if p.timer != nil {
		p.timer.Stop()
	}
	p.closing = true
	p.do(p.machine.Stop(time.Now()))
}
