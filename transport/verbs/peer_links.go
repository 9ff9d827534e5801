package verbstransport

import (
	"errors"
	"time"

	"github.com/tryst-rdma/tryst/internal/channel"
	"github.com/tryst-rdma/tryst/internal/handshake"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
	"github.com/tryst-rdma/tryst/transport/verbs/internal/route"
	"github.com/tryst-rdma/tryst/verbs"
)

// What a link reports to its peer record, and which link carries receives.

// linkUp records that the peer's HELLO has arrived on a link.
func (p *peer) linkUp(l *link) {
	down := p.transport.opts.Cache.Connected(l.requester) // may reply to requests, so no lock is held
	p.mu.Lock()
	p.markVerified(l)
	// A link that was left meanwhile must not become active: linkDown has run already.
	now := time.Now()
	l.route.take(l.route.machine.Hello(now, l.id))
	if !l.down {
		l.up = true
		if l.patience != nil {
			l.patience.Stop()
		}
		if p.active == nil || p.prefers(l) {
			p.setActive(l)
			p.cameUp, p.cameUpTo, p.lastRoute, p.lastDevice = now, l.requester.Incarnation, l.route.over.String(), l.port.name
			p.disconnected, down = down, nil
		}
		if p.router != nil {
			p.met(now, l)
			p.carryOut(p.router.Up(now, l.route.over, l.requester.Incarnation))
		}
	}
	p.unlock()
	if down != nil {
		down()
	}
	p.transport.work.Go(func() { // a log handler may block, and the caller polls
		p.logState()
		p.transport.logClear(l)
	})
}

// met tells each route to which process another one has a channel since l is up. Called with mu held.
func (p *peer) met(now time.Time, l *link) {
	for _, r := range p.routes {
		r.take(r.machine.Met(now, l.requester.Incarnation))
		for _, other := range r.links {
			if other.up && !other.down {
				l.route.take(l.route.machine.Met(now, other.requester.Incarnation))
			}
		}
	}
}

// markVerified removes l from the unverified count, if it is counted. Called with mu held,
// when HELLO has arrived or l is destroyed.
func (p *peer) markVerified(l *link) {
	if l.unverified {
		l.unverified = false
		p.transport.unverified.release(p.address)
	}
}

// setActive changes which link carries receives. Called with mu held.
func (p *peer) setActive(l *link) {
	if p.disconnected != nil {
		p.transport.work.Go(p.disconnected)
		p.disconnected = nil
	}
	p.transport.carried.add(p.active, -1)
	p.transport.carried.add(l, 1)
	p.active = l
	if l != nil {
		p.expected = time.Time{}
		for _, r := range p.routes {
			r.failed = false
		}
	}
	p.noteState()
	p.signal()
}

// signal wakes those that wait for a change of active or expected. Called with mu held.
func (p *peer) signal() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// linkDown records that nothing is posted on a link any more.
func (p *peer) linkDown(l *link) {
	replaced := l.isReplaced()
	l.mu.Lock()
	err := l.err
	l.mu.Unlock()
	planned := replaced || l.endedByPlan(err)
	p.mu.Lock()
	l.down = true
	was := p.active == l
	if was {
		p.setActive(p.next())
	}
	p.left.add(l)
	p.noteLeft()
	p.counters.breaks.Add(1)
	if p.router != nil && l.up {
		if l.reported = true; planned {
			err = nil
		}
		if p.active == nil {
			p.expected = time.Now().Add(detourWait)
		}
		p.carryOut(p.downOf(l.route, err))
		if next := p.active; was && next != nil { // it stays, although it was being replaced
			if err != nil && !p.closing && p.transport.opts.Callable(p.task) {
				p.transport.work.Go(p.tell)
			}
			p.carryOut(p.router.Up(time.Now(), next.route.over, next.requester.Incarnation))
		}
	}
	p.unlock()
}

// endedByPlan reports whether this process has ended the link because of what it does next, which
// says nothing about the route. Called without locks.
func (l *link) endedByPlan(err error) bool {
	if errors.Is(err, ErrNoAddress) {
		_, gone := l.port.usable()
		return gone == nil // it uses another address
	}
	return errors.Is(err, channel.ErrClosedHere)
}

// linkGone records that the queue pairs of a link are destroyed, which was left because of
// err. connected says that it was more than an offer.
func (p *peer) linkGone(l *link, err error, connected bool) {
	sum := l.totals()
	replaced := l.isReplaced()
	p.mu.Lock()
	p.markVerified(l)
	delete(l.route.links, l.id)
	if l.patience != nil {
		l.patience.Stop()
	}
	p.noteLeft()
	p.closed.add(sum) // under the same lock as the deletion, so nothing is counted twice
	present := l.route.machine.Has(l.id) && !replaced
	p.mu.Unlock()
	if connected {
		p.logLeft(l, err, present)
	}
	p.mu.Lock()
	l.route.take(l.route.machine.Broken(time.Now(), l.id, err))
	if l.reported {
		l.route.failures, _ = l.route.machine.Failures()
	}
	p.noteEnd()
	p.unlock()
	p.logState()
	l.port.links.done()
	p.transport.links.done()
}

// offerGone ends a link that was offered and is not connected yet. The machine makes
// another one.
func (r *peerRoute) offerGone(l *link, why error) {
	l.mu.Lock()
	offered := l.state == linkOffered
	l.mu.Unlock()
	r.peer.mu.Lock()
	if !offered {
		r.peer.mu.Unlock()
		return
	}
	r.do(r.machine.Broken(time.Now(), l.id, why))
}

// leftLink says what was left of the channels to a process of the peer.
type leftLink struct {
	peer    uint64 // its incarnation
	serial  uint64 // of the newest link that was left
	highest uint64 // generation that was left
	// generation is the highest one that was left together with all before it. A channel over
	// another route may have a lower one than highest, and be in use.
	generation uint64
}

// add notes that a link was left.
func (x *leftLink) add(l *link) {
	switch incarnation := l.requester.Incarnation; {
	case incarnation == x.peer:
		x.serial, x.highest = max(x.serial, l.serial), max(x.highest, l.own.Generation)
	case l.serial > x.serial:
		*x = leftLink{peer: incarnation, serial: l.serial, highest: l.own.Generation}
	}
}

// with returns the generation if it is of channels to that incarnation of the peer, and 0
// otherwise.
func (x leftLink) with(incarnation uint64) uint64 {
	if x.peer != incarnation {
		return 0
	}
	return x.generation
}

// noteLeft updates left.generation when a link was made, left or destroyed. Called with mu held.
func (p *peer) noteLeft() {
	p.left.generation = p.left.highest
	for _, r := range p.routes {
		for _, l := range r.links {
			if !l.down {
				p.left.generation = min(p.left.generation, l.own.Generation-1)
			}
		}
	}
}

// current returns the link that carries receives (nil when none does), what was left, and a Go
// channel that is closed when the first changes.
func (p *peer) current() (l *link, left leftLink, changed <-chan struct{}) {
	p.mu.Lock()
	l, left, changed = p.active, p.left, p.changed
	p.mu.Unlock()
	return l, left, changed
}

// known returns the peer's process, as the link that carries receives knows it. ok is false
// when no link does.
func (p *peer) known() (process transport.Peer, ok bool) {
	l, _, _, _ := p.carrier()
	if l == nil {
		return transport.Peer{}, false
	}
	return transport.Peer{Tryst: true, Incarnation: l.requester.Incarnation}, true
}

// checkLeft returns an error when a process of the peer reports that it has left a
// generation that neither side has offered. Before the first channel with it nothing is known: a
// task that has left the cluster and come back has a new record here, and its own record still has
// the earlier generations.
func (p *peer) checkLeft(incarnation, generation uint64) error {
	p.mu.Lock()
	if p.cameUpTo != incarnation {
		p.mu.Unlock()
		return nil
	}
	var last uint64
	var known bool
	for _, r := range p.routes {
		if of, ok := r.machine.Last(incarnation); ok {
			last, known = max(last, of), true
		}
	}
	p.mu.Unlock()
	if known && generation > last {
		return status.Errorf(status.FailedPrecondition, "%v reports that it has left generation %d; the highest generation between it and this process is %d", p.task, generation, last)
	}
	return nil
}

// closeLeft leaves the links of a generation and all earlier ones to a process of the peer,
// which has reported that it has left them.
func (p *peer) closeLeft(incarnation, generation uint64) {
	for _, l := range p.existing() {
		if l.own.Generation <= generation && l.isTo(incarnation) {
			l.leave(status.Errorf(status.Unavailable, "%v left generation %d", p.task, generation))
		}
	}
}

// deviceLost ends every link on a device because the device is lost.
func (p *peer) deviceLost(on *port, err error) {
	r := p.route(on.route)
	p.mu.Lock()
	r.lost = err
	r.do(r.machine.Suspend(time.Now(), err))
	p.leaveAll(on, err)
}

// deviceFound makes channels over a device. moved is why the process no longer uses its earlier device of
// the same provider; nil if it had none.
func (p *peer) deviceFound(on *port, moved error) {
	r := p.route(on.route)
	p.mu.Lock()
	r.lost, r.address, r.refused = nil, verbs.GID{}, nil
	now := time.Now()
	var acts []handshake.Action
	if moved != nil {
		acts = r.machine.Suspend(now, moved)
	}
	r.do(append(acts, r.machine.Resume(now, on.self)...))
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
	for _, r := range p.routes {
		for _, l := range r.links {
			all = append(all, l)
		}
	}
	return all
}

// close stops the handshake machines, which ends every link.
func (p *peer) close() {
	p.mu.Lock()
	p.closing = true
	if p.timer != nil {
		p.timer.Stop()
	}
	for _, r := range p.routes {
		if r.timer != nil {
			r.timer.Stop()
		}
		r.take(r.machine.Stop(time.Now()))
	}
	p.unlock()
}

// prefers reports whether l is to carry receives instead of the active link. Called with mu held.
func (p *peer) prefers(l *link) bool {
	if l.route == p.active.route {
		return l.id > p.active.id
	}
	target := p.router.Target()
	return l.route.over == target && p.active.route.over != target
}

// follow makes the link over the router's choice carry receives, if it is up: the choice may change
// while two links are up. Called with mu held.
func (p *peer) follow() {
	target := p.router.Target()
	if target == route.None || p.active != nil && p.active.route.over == target {
		return
	}
	for _, l := range p.route(target).links {
		if l.up && !l.down && l.stays() {
			p.setActive(l)
			p.transport.work.Go(func() { p.carryOn(l) })
			return
		}
	}
}

// next returns the best link that is up after the active one has ended; nil when there is none.
// The link goes on, also if it was being replaced. Called with mu held.
func (p *peer) next() *link {
	for _, r := range p.routes {
		for _, l := range r.links {
			if l.up && !l.down && l.stays() {
				p.transport.work.Go(func() { p.carryOn(l) })
				return l
			}
		}
	}
	return nil
}

// carryOn makes a link carry receives again that was being replaced.
func (p *peer) carryOn(l *link) {
	l.restore()
	down := p.transport.opts.Cache.Connected(l.requester)
	p.mu.Lock()
	if p.active == l && p.disconnected == nil {
		p.disconnected, down = down, nil
	}
	p.mu.Unlock()
	if down != nil {
		down()
	}
}

// lostDevices is why this process has no device at all; nil while it has one. Called with mu held.
func (p *peer) lostDevices() error {
	for _, r := range p.routes {
		if r.lost == nil {
			return nil
		}
	}
	return p.route(route.Fabric).lost
}

// shown returns the route whose state is that of the peer. Called with mu held.
func (p *peer) shown() *peerRoute {
	if p.active != nil {
		return p.active.route
	}
	if p.router != nil && p.router.Target() != route.None {
		return p.route(p.router.Target())
	}
	return p.route(route.Fabric)
}
