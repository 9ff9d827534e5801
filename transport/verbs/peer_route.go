package verbstransport

import (
	"context"
	"time"

	"github.com/tryst-rdma/tryst/internal/handshake"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
	"github.com/tryst-rdma/tryst/transport/verbs/internal/route"
	"github.com/tryst-rdma/tryst/verbs"
)

// peerRoute is one route to a peer: the handshake over it, and its
// links. One goroutine at a time executes the actions of the handshake machine, in order: each
// may take time, and the machine relies on the order. peer.mu guards it.
type peerRoute struct {
	peer *peer
	over route.Route

	machine  *handshake.Machine
	actions  []handshake.Action
	running  bool
	links    map[uint64]*link                        // by id; those that are not destroyed
	requests map[uint64]func(handshake.Offer, error) // bootstrap calls of the peer without answer
	lastReq  uint64
	address  verbs.GID   // of this process, for this peer; zero for that of the port (family.go)
	refused  []verbs.GID // addresses that the peer has refused
	timer    *time.Timer
	alarm    alarm  // of timer
	failures uint64 // of the machine, that the router knows of
	failed   bool   // it has failed since a channel carried receives
	lost     error  // why this process has no device for it; nil while there is one
}

// newRoute makes one route. Called with t.mu held.
func newRoute(p *peer, k route.Route) *peerRoute {
	t := p.transport
	c := handshake.Config{Self: t.opts.identity(), Peer: p.task, Callable: t.opts.Callable(p.task), Jitter: t.opts.jitter(), Backoff: t.opts.Backoff}
	if len(t.opts.Fixed) > 0 {
		c.Lane, c.Lanes = k.Lane(), route.Lanes
	}
	on := t.ports[k]
	if on != nil {
		c.Self = on.self
	}
	r := &peerRoute{
		peer: p, over: k, links: make(map[uint64]*link),
		requests: make(map[uint64]func(handshake.Offer, error)), machine: handshake.New(c),
	}
	if on == nil {
		r.lost = t.lost[k]
		r.machine.Suspend(time.Now(), r.lost) // it has nothing to end
	}
	return r
}

// do takes actions of the machine. It is called with mu held and unlocks it.
func (r *peerRoute) do(acts []handshake.Action) {
	r.take(acts)
	r.peer.unlock()
}

// take queues actions of the machine and starts a goroutine that executes them, unless one
// runs. Called with mu held.
func (r *peerRoute) take(acts []handshake.Action) {
	for i := range acts {
		if acts[i].Kind == handshake.Make {
			r.peer.transport.links.add() // Close waits for the link from here on
			r.peer.noteGeneration(r, acts[i].Generation)
		}
	}
	r.actions = append(r.actions, acts...)
	r.arm()
	if !r.running && len(r.actions) > 0 {
		r.running = true
		r.peer.transport.work.Go(r.runActions)
	}
}

// runActions executes the queued actions until none is left.
func (r *peerRoute) runActions() {
	for {
		r.peer.mu.Lock()
		if len(r.actions) == 0 {
			r.running = false
			r.peer.noteEnd()
			r.peer.mu.Unlock()
			return
		}
		a := r.actions[0]
		r.actions = r.actions[1:]
		r.peer.mu.Unlock()
		r.execute(a)
	}
}

// arm sets the timer to the machine's next deadline. Called with mu held.
func (r *peerRoute) arm() {
	at := r.machine.Wake()
	if at.IsZero() || r.peer.transport.base.Err() != nil || !r.alarm.set(at) {
		return
	}
	if r.timer == nil {
		r.timer = time.AfterFunc(time.Until(at), r.tick)
		return
	}
	r.timer.Reset(time.Until(at))
}

// tick reports the time to the machine when the timer fires.
func (r *peerRoute) tick() {
	r.peer.mu.Lock()
	now := time.Now()
	if wait := r.alarm.fires(now, false); wait > 0 { // HELLO may have arrived and wait to be read
		r.timer.Reset(wait)
		r.peer.mu.Unlock()
		return
	}
	r.do(r.machine.Tick(now))
}

// execute executes one action of the machine. Called without mu.
func (r *peerRoute) execute(a handshake.Action) {
	t := r.peer.transport
	switch a.Kind {
	case handshake.Make:
		if !r.makeLink(a) {
			return
		}
	case handshake.Destroy:
		if l := r.linkOf(a.ID); l != nil {
			l.discard(a.Err, a.Left)
		}
	case handshake.Connect:
		err := r.connect(a)
		r.peer.mu.Lock()
		if err != nil {
			r.do(r.machine.ConnectFailed(time.Now(), a.ID, err))
			return
		}
		r.awaitHello(r.links[a.ID])
		r.do(r.machine.Connected(time.Now(), a.ID))
	case handshake.Open:
		if l := r.linkOf(a.ID); l != nil {
			l.open()
		}
	case handshake.Call:
		t.work.Go(func() { r.call(a.Call, a.Offer) })
	case handshake.Respond, handshake.Refuse:
		r.peer.mu.Lock()
		answer := r.requests[a.Request]
		delete(r.requests, a.Request)
		r.peer.mu.Unlock()
		if answer != nil {
			answer(a.Offer, a.Err)
		}
	}
	r.peer.logState()
}

// makeLink makes the link of an offer and reports to the machine whether that succeeded.
func (r *peerRoute) makeLink(a handshake.Action) (ok bool) {
	t := r.peer.transport
	unverified := r.peer.client.Load()
	failed := func(err error) bool {
		t.links.done()
		on := t.present(r.over)
		r.peer.mu.Lock()
		acts := r.machine.MakeFailed(time.Now(), a.ID, err)
		r.do(append(acts, r.nextOfFamily(on)...))
		return false
	}
	if unverified {
		if err := t.unverified.take(r.peer.address, "channels that wait for the first message of a client"); err != nil {
			return failed(err)
		}
	}
	l, err := r.newLink(a.ID, a.Generation)
	if err != nil {
		if unverified {
			t.unverified.release(r.peer.address)
		}
		return failed(err)
	}
	r.peer.mu.Lock()
	r.links[a.ID], l.unverified = l, unverified
	r.peer.serial++
	l.serial = r.peer.serial
	r.peer.noteLeft()
	r.do(r.machine.Made(time.Now(), l.id, l.own))
	return true
}

// newLink makes a link on the device in use.
func (r *peerRoute) newLink(id, generation uint64) (l *link, err error) {
	on, err := r.peer.transport.takePort(r.over)
	if err != nil {
		return nil, err
	}
	r.peer.mu.Lock()
	from := r.address
	r.peer.mu.Unlock()
	err = r.peer.transport.withPort(on, func() (err error) {
		l, err = newLink(r, on, from, id, generation)
		return err
	})
	if err != nil {
		on.links.done()
		return nil, err
	}
	return l, nil
}

// linkOf returns the link with an id; nil when it is destroyed.
func (r *peerRoute) linkOf(id uint64) *link {
	r.peer.mu.Lock()
	defer r.peer.mu.Unlock()
	return r.links[id]
}

// connect connects a link with the peer's offer. The response cache has to accept the
// peer's process first, since it sends requests over the channel.
func (r *peerRoute) connect(a handshake.Action) error {
	l := r.linkOf(a.ID)
	if l == nil {
		return status.Errorf(status.Internal, "there is no generation %d to connect", a.Generation)
	}
	t := r.peer.transport
	requester := transport.Process{Name: a.Offer.Task.String(), Incarnation: a.Offer.Incarnation}
	if err := t.opts.Cache.Introduce(t.base, requester, r.peer.address); err != nil {
		return err
	}
	return t.withPort(l.port, func() error { return l.connect(a.Offer) })
}

// call makes a bootstrap call and reports its outcome to the machine.
func (r *peerRoute) call(id uint64, own handshake.Offer) {
	r.peer.counters.bootstraps.Add(1)
	r.peer.mu.Lock()
	own.Inventory = r.peer.inventory()
	r.peer.mu.Unlock()
	ctx, cancel := context.WithTimeout(r.peer.transport.base, handshake.CallTimeout)
	offer, err := r.peer.transport.exchanger.Exchange(ctx, r.peer.task, own)
	cancel()
	on := r.peer.transport.present(r.over)
	r.peer.mu.Lock()
	var acts []handshake.Action
	if err == nil && r.peer.router != nil && handshake.Validate(offer) == nil {
		r.peer.carryOut(r.peer.router.Shown(time.Now(), route.SideOf(offer)))
	}
	if r.machine.Calls(id) {
		acts = r.nextAddress(on, offer, err)
	}
	r.do(append(acts, r.machine.CallDone(time.Now(), id, offer, err)...))
	r.peer.logState()
}

// request passes a bootstrap call of the peer to the machine and waits for the answer.
func (r *peerRoute) request(ctx context.Context, from handshake.Offer) (handshake.Offer, error) {
	type result struct {
		offer handshake.Offer
		err   error
	}
	done := make(chan result, 1)
	on := r.peer.transport.present(r.over)
	r.peer.mu.Lock()
	if r.peer.gone {
		r.peer.mu.Unlock()
		return handshake.Offer{}, errForgotten
	}
	if err := r.propose(from); err != nil {
		r.peer.unlock()
		return handshake.Offer{}, err
	}
	r.lastReq++
	id := r.lastReq
	r.requests[id] = func(o handshake.Offer, err error) { done <- result{o, err} }
	acts := r.adapt(on, from)
	r.do(append(acts, r.machine.Request(time.Now(), id, from)...))
	select {
	case d := <-done:
		if d.err == nil {
			r.peer.mu.Lock()
			d.offer.Inventory = r.peer.inventory()
			r.peer.mu.Unlock()
		}
		return d.offer, d.err
	case <-ctx.Done():
		r.peer.mu.Lock()
		delete(r.requests, id)
		r.peer.mu.Unlock()
		return handshake.Offer{}, status.From(context.Cause(ctx))
	}
}

// propose passes a bootstrap call of the peer to the router, as its proposal of this route. The
// error refuses the call. Called with mu held.
func (r *peerRoute) propose(from handshake.Offer) error {
	p := r.peer
	if p.router == nil || p.closing || handshake.Validate(from) != nil {
		return nil // the handshake refuses it
	}
	p.doubtFailed(from.Inventory)
	p.hears(nil)
	acts, err := p.router.Request(time.Now(), route.SideOf(from), r.over)
	p.carryOut(acts)
	return err
}
