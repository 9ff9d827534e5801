package verbstransport

import (
	"context"
	"errors"
	"time"

	"github.com/tryst-rdma/tryst/internal/handshake"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
	"github.com/tryst-rdma/tryst/transport/verbs/internal/route"
	"github.com/tryst-rdma/tryst/verbs"
)

// Which route to a peer is used (PROTOCOL.md section 9). A process with several devices has a
// route.Router for each peer, which says over which route a channel is maintained. A
// process with one device has none: it maintains a channel over the fabric, and shows its device.

// side is this process as its peers know it, with the devices in use. Called with t.mu held, or
// before the transport is in use.
func (t *RdmaRemoteRendezvous) side() *route.Side {
	o := &t.opts
	s := &route.Side{Task: o.Task, Incarnation: o.Self.Incarnation, Host: o.Host}
	s.Inventory = &handshake.Inventory{User: o.User, TLS: max(o.TLS, handshake.NoTLS)}
	for _, p := range t.inUseLocked() {
		s.Devices = append(s.Devices, p.shown())
	}
	return s
}

// noteDevices notes which devices are in use, and the process as its peers know it. Called with t.mu
// held, or before the transport is in use.
func (t *RdmaRemoteRendezvous) noteDevices() {
	own, names := t.side(), [routes]string{}
	for _, p := range t.inUseLocked() {
		names[p.route] = p.name
	}
	t.own.Store(own)
	t.names.Store(&names)
}

// shown is the device of the port as an inventory has it.
func (p *port) shown() handshake.Device {
	d := handshake.Device{Link: p.self.Link}
	switch p.route {
	case route.Fabric:
		all := p.addresses()
		d.GIDType, d.GIDs, d.UDPPort = p.self.GIDType, all[:min(len(all), handshake.MaxReach)], p.self.Rails[0].UDP.Port
		d.Asked = p.options.Asked
	case route.TCP:
		d.Addresses = p.options.Addresses
	case route.Shared:
		d.Directory = p.options.Directory
	case route.None:
	}
	return d
}

// devicesChanged passes the present devices to all peers. Called without t.mu.
func (t *RdmaRemoteRendezvous) devicesChanged() {
	t.mu.Lock()
	t.noteDevices()
	t.mu.Unlock()
	for _, p := range t.all() {
		if p.router == nil {
			continue
		}
		p.mu.Lock()
		// A call at the same time may have noted a later change, and have passed it on already.
		p.carryOut(p.router.Own(time.Now(), *t.own.Load()))
		if p.router.Target() == route.None {
			p.expectNone()
		}
		p.unlock()
	}
}

// newRouter returns the router of a peer; nil for a process with one device.
func newRouter(p *peer) *route.Router {
	t := p.transport
	if len(t.opts.Fixed) == 0 {
		return nil
	}
	return route.New(route.Config{Own: *t.own.Load(), Peer: p.task, Callable: t.opts.Callable(p.task), Lazy: t.opts.Optional, Jitter: t.opts.jitter()})
}

// carryOut carries out actions of the router. Called with mu held.
func (p *peer) carryOut(acts []route.Action) {
	if p.closing || p.gone {
		return
	}
	now := time.Now()
	for _, a := range acts {
		switch a.Act {
		case route.Maintain:
			r := p.route(a.Route)
			r.take(r.machine.Maintain(now))
		case route.Rest:
			r := p.route(a.Route)
			r.take(r.machine.Rest(now, status.Errorf(status.Aborted, "%v takes another route to %v", p.transport.opts.Task, p.task)))
		case route.Leave:
			p.follow()
			for _, l := range p.route(a.Route).links {
				if l.up && !l.down {
					p.transport.work.Go(func() { l.replace(a.Err) })
				}
			}
		case route.Ask:
			p.transport.work.Go(p.ask)
		}
	}
}

// unlock passes to the router what the handshakes have failed for, and unlocks mu. Every event
// of the peer ends with it.
func (p *peer) unlock() {
	for _, r := range p.routes {
		if last, ok := r.machine.Last(r.machine.Accepted()); ok {
			p.noteGeneration(r, last)
		}
	}
	if p.router != nil {
		p.reportFailures()
		p.armRouter()
	} else if r := p.route(route.Fabric); p.first {
		if count, _ := r.machine.Failures(); count != r.failures {
			r.failures = count
			p.expectNone()
		}
	}
	p.noteState()
	p.mu.Unlock()
}

// noteGeneration passes a generation of a route to the others, whose next ones have to be above.
// Called with mu held.
func (p *peer) noteGeneration(of *peerRoute, generation uint64) {
	for _, r := range p.routes {
		if r != of {
			r.machine.Reached(of.machine.Accepted(), generation)
		}
	}
}

// reportFailures reports to the router each handshake that has failed since the last time.
func (p *peer) reportFailures() {
	for again := true; again; {
		again = false
		for _, r := range p.routes {
			if count, err := r.machine.Failures(); count != r.failures {
				r.failures, again = count, true
				p.carryOut(p.downOf(r, err))
			}
		}
	}
}

// downOf is the event that the channel of a route has ended, or could not be made.
func (p *peer) downOf(r *peerRoute, err error) []route.Action {
	// What a lost device leads to is known once it is noted (devicesChanged), which may be later.
	r.failed = r.failed || err != nil && !errors.Is(err, verbs.ErrDeviceGone)
	acts := p.router.Down(time.Now(), r.over, err)
	if errors.Is(err, handshake.ErrNotServed) || p.router.Away() {
		p.hears(err)
		p.heard++
	}
	if target := p.router.Target(); target == route.None || p.route(target).failed {
		p.expectNone() // no route is left that has not failed
	}
	return acts
}

// expectFirst lets receives wait for the first channel to a peer that answers calls. Otherwise gRPC would
// carry the first values of a process that has just started, since these come before the end of the
// handshake. It works once for each peer.
func (p *peer) expectFirst() {
	p.mu.Lock()
	_, unreached := errors.AsType[*handshake.UnreachedError](p.askErr) // it has answered since, over gRPC
	none := p.router != nil && p.router.Target() == route.None && (p.answered && p.router.Proven() || p.askErr != nil && !unreached)
	if !p.first && !none && p.active == nil && p.cameUp.IsZero() && !p.closing && !p.gone && p.transport.opts.Callable(p.task) && p.lostDevices() == nil {
		p.first, p.expected = true, time.Now().Add(p.transport.firstWait())
		for _, r := range p.routes {
			r.failed = false
			if p.router == nil {
				r.failures, _ = r.machine.Failures()
			}
		}
		p.signal()
	}
	p.unlock()
}

// firstWait is how long receives wait for the first channel to a peer.
func (t *RdmaRemoteRendezvous) firstWait() time.Duration {
	if t.opts.Optional {
		return firstWaitOptional
	}
	return firstWait
}

// expectNone ends the wait for a channel. Called with mu held.
func (p *peer) expectNone() {
	if p.active == nil && !p.expected.IsZero() {
		p.expected = time.Time{}
		p.signal()
	}
}

// awaitHello gives a link up that gets no first message for helloPatience, so that the next
// device is tried. l may be nil. Called with mu held.
func (r *peerRoute) awaitHello(l *link) {
	p := r.peer
	if p.router == nil || l == nil {
		return
	}
	l.hello.set(time.Now().Add(helloPatience))
	l.patience = time.AfterFunc(helloPatience, func() { r.noHello(l) })
}

// noHello gives a link up that has got no first message for helloPatience. An active link over
// another route keeps it from that, unless the peer sends nothing over that any more.
func (r *peerRoute) noHello(l *link) {
	p := r.peer
	p.mu.Lock()
	now := time.Now()
	if wait := l.hello.fires(now, false); wait > 0 { // HELLO may have arrived and wait to be read
		l.patience.Reset(wait)
		p.mu.Unlock()
		return
	}
	if l.up || l.down || r.links[l.id] != l || p.active != nil && p.active.movedAt.Load() == 0 || p.closing || !p.router.HasAlternative(now) {
		p.mu.Unlock()
		return
	}
	r.do(r.machine.Broken(now, l.id, status.Errorf(status.DeadlineExceeded, "no message from %v has come over %v within %v", p.task, r.over, helloPatience)))
	p.logState()
}

// armRouter sets the timer to the router's next deadline. Called with mu held.
func (p *peer) armRouter() {
	at := p.router.Wake()
	if at.IsZero() || p.closing || p.gone || !p.alarm.set(at) {
		return
	}
	if p.timer == nil {
		p.timer = time.AfterFunc(time.Until(at), p.tick)
		return
	}
	p.timer.Reset(time.Until(at))
}

// tick reports the time to the router when the timer fires.
func (p *peer) tick() {
	p.mu.Lock()
	now := time.Now()
	if wait := p.alarm.fires(now, true); wait > 0 {
		p.timer.Reset(wait)
		p.mu.Unlock()
		return
	}
	p.carryOut(p.router.Tick(now))
	p.unlock()
}

// ask calls the peer for its inventory.
func (p *peer) ask() {
	t := p.transport
	p.counters.bootstraps.Add(1)
	p.mu.Lock()
	own := handshake.Introduction(t.opts.identity())
	own.Inventory = p.inventory()
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(t.base, handshake.CallTimeout)
	offer, err := t.exchanger.Exchange(ctx, p.task, own)
	cancel()
	if err == nil {
		err = handshake.Validate(offer)
	}
	p.mu.Lock()
	now := time.Now()
	if err == nil {
		for _, r := range p.routes { // one with a channel to an earlier process leaves it
			r.take(r.machine.Met(now, offer.Incarnation))
		}
	}
	p.carryOut(p.router.Answered(now, route.SideOf(offer), err))
	if handshake.HasNoInventory(p.task, err) {
		err = nil
	}
	p.hears(err)
	p.heard++
	if p.router.Target() == route.None {
		p.expectNone()
		p.signal() // a caller that nothing but a channel can serve gives up
	}
	p.unlock()
	p.logState()
}

// inventory is what this process shows to the peer. Called with mu held.
func (p *peer) inventory() *handshake.Inventory {
	if p.router == nil {
		return p.transport.own.Load().Inventory
	}
	return p.router.Inventory(time.Now())
}

// tell shows the peer that a route has failed while another one goes on: its end of the channel
// may be idle and not notice. The peer may also learn it from the next call for a channel.
func (p *peer) tell() {
	t := p.transport
	p.counters.bootstraps.Add(1)
	own := handshake.Introduction(t.opts.identity())
	p.mu.Lock()
	own.Inventory = p.inventory()
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(t.base, handshake.CallTimeout)
	defer cancel()
	_, err := t.exchanger.Exchange(ctx, p.task, own)
	if err != nil {
		t.opts.Logger.Debug("a peer was not told that a route to it has failed", "peer", p.task.String(), "reason", err)
	}
}

// doubtFailed probes the channels of routes that the peer has seen fail, or for which it has no
// device any more. Called with mu held.
func (p *peer) doubtFailed(from *handshake.Inventory) {
	if from == nil {
		return
	}
	var works [routes]bool
	for _, d := range from.Devices {
		works[route.Of(d.Link)] = d.FailedFor == 0
	}
	for _, r := range p.routes {
		for _, l := range r.links {
			if l.up && !l.down && !works[r.over] {
				p.transport.work.Go(l.doubt)
			}
		}
	}
}

// asked answers a call of the peer that asks for the inventory.
func (p *peer) asked(from handshake.Offer) (handshake.Offer, error) {
	t := p.transport
	if err := handshake.Validate(from); err != nil {
		return handshake.Offer{}, err
	}
	p.mu.Lock()
	switch {
	case p.gone:
		p.mu.Unlock()
		return handshake.Offer{}, errForgotten
	case p.closing:
		p.mu.Unlock()
		return handshake.Offer{}, handshake.Stopping(t.opts.Task)
	}
	p.doubtFailed(from.Inventory)
	p.carryOut(p.router.Asked(time.Now(), route.SideOf(from)))
	p.hears(nil)
	own := handshake.Introduction(t.opts.identity())
	own.Inventory = p.inventory()
	p.unlock()
	return own, nil
}

// used tells the router from time to time that receives begin.
func (p *peer) used(t *transport.Receive) {
	if p.router == nil {
		return
	}
	now, last := t.Began.UnixNano(), p.lastUsed.Load()
	if now-last < int64(usedInterval) || !p.lastUsed.CompareAndSwap(last, now) {
		return
	}
	p.mu.Lock()
	p.carryOut(p.router.Used(t.Began))
	p.unlock()
}

// carrier returns the link that a receive is to take, or until when it should wait for one: a
// better route comes, or the next one in place of one that broke. It returns neither when no
// channel is up or expected. changed is closed when the result may have changed.
func (p *peer) carrier() (l *link, left leftLink, until time.Time, changed <-chan struct{}) {
	p.mu.Lock()
	l, left, changed, until = p.active, p.left, p.changed, p.expected
	p.mu.Unlock()
	if l != nil {
		moved := l.movedAt.Load()
		if moved == 0 {
			return l, left, time.Time{}, changed
		}
		until = time.Unix(0, moved).Add(movedWait) // the peer has the better channel up already
	}
	if !until.IsZero() && !time.Now().Before(until) {
		return l, left, time.Time{}, changed
	}
	return nil, left, until, changed
}

// awaitCarrier waits for a link while one is expected.
func (p *peer) awaitCarrier(ctx context.Context) {
	for {
		l, _, until, changed := p.carrier()
		if l != nil || until.IsZero() {
			return
		}
		timer := time.NewTimer(time.Until(until))
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}
