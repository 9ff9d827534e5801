package verbstransport

import (
	"context"
	"sync"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
	"github.com/tryst-rdma/tryst/transport/verbs/internal/handshake"
	"github.com/tryst-rdma/tryst/verbs"
)

// peer is the record of one remote task: the handshake with it, and its links. One
// goroutine at a time executes the actions of the handshake machine, in order: each may
// take time, and the machine relies on the order.
type peer struct {
	transport *RdmaRemoteRendezvous
	task      cluster.Task
	source    string // address of its first call; empty when this process called first
	counters  counters

	mu           sync.Mutex // guards what follows, up to logging
	closed       totals     // counts of the links that are destroyed
	machine      *handshake.Machine
	actions      []handshake.Action
	running      bool
	links        map[uint64]*link                        // by id; those that are not destroyed
	active       *link                                   // carries receives; nil when none does
	disconnected func()                                  // reports to the response cache that active has ended
	lastLeft     leftLink                                // the last channel that this side has left
	changed      chan struct{}                           // closed when active changes
	requests     map[uint64]func(handshake.Offer, error) // bootstrap calls of the peer without answer
	lastReq      uint64
	address      verbs.GID   // of this process, for this peer; zero for that of the port (family.go)
	refused      []verbs.GID // addresses that the peer has refused
	timer        *time.Timer
	alarm        alarm     // of timer
	lost         error     // why this process has no device; nil while there is one
	gone         bool      // the record was dropped; the task may have another one
	closing      bool      // this process closes the peer, so changes are not logged
	cameUp       time.Time // when a channel was up for the first time, or again; zero for never
	since        since     // when the present state began

	logging sync.Mutex // keeps log lines in the order of the states; guards logged
	logged  peerLog
}

// newPeer makes the record of a task. Called with t.mu held.
func newPeer(t *RdmaRemoteRendezvous, task cluster.Task, source string) *peer {
	c := handshake.Config{Self: t.opts.identity(), Peer: task, Callable: t.opts.Callable(task), Jitter: t.opts.jitter(), Backoff: t.opts.Backoff}
	if t.port != nil {
		c.Self = t.port.self
	}
	p := &peer{
		transport: t, task: task, source: source, links: make(map[uint64]*link), changed: make(chan struct{}),
		requests: make(map[uint64]func(handshake.Offer, error)), machine: handshake.New(c),
	}
	if t.port == nil {
		p.lost = t.lost
		p.machine.Suspend(time.Now(), t.lost) // it has nothing to end
	}
	p.noteState()
	return p
}

// keepConnected has the machine make a channel, and another one after each break.
func (p *peer) keepConnected() {
	p.mu.Lock()
	p.do(p.machine.Maintain(time.Now()))
}

// connectNow shortens the back-off of the next attempt, for a caller without a fallback.
func (p *peer) connectNow() {
	p.mu.Lock()
	p.do(p.machine.Expedite(time.Now()))
}

// do queues actions of the machine and starts a goroutine that executes them, unless one
// runs. It is called with mu held and unlocks it.
func (p *peer) do(acts []handshake.Action) {
	for i := range acts {
		if acts[i].Kind == handshake.Make {
			p.transport.links.add() // Close waits for the link from here on
		}
	}
	p.actions = append(p.actions, acts...)
	p.arm()
	p.noteState()
	if p.running || len(p.actions) == 0 {
		p.mu.Unlock()
		return
	}
	p.running = true
	p.mu.Unlock()
	p.transport.work.Go(p.runActions)
}

// runActions executes the queued actions until none is left.
func (p *peer) runActions() {
	for {
		p.mu.Lock()
		if len(p.actions) == 0 {
			p.running = false
			p.mu.Unlock()
			return
		}
		a := p.actions[0]
		p.actions = p.actions[1:]
		p.mu.Unlock()
		p.execute(a)
	}
}

// arm sets the timer to the machine's next deadline. Called with mu held.
func (p *peer) arm() {
	at := p.machine.Wake()
	if at.IsZero() || p.transport.base.Err() != nil || !p.alarm.set(at) {
		return
	}
	if p.timer == nil {
		p.timer = time.AfterFunc(time.Until(at), p.tick)
		return
	}
	p.timer.Reset(time.Until(at))
}

// tick reports the time to the machine when the timer fires.
func (p *peer) tick() {
	p.mu.Lock()
	now := time.Now()
	if wait := p.alarm.fires(now, false); wait > 0 { // HELLO may have arrived and wait to be read
		p.timer.Reset(wait)
		p.mu.Unlock()
		return
	}
	p.do(p.machine.Tick(now))
}

// execute executes one action of the machine. Called without mu.
func (p *peer) execute(a handshake.Action) {
	t := p.transport
	switch a.Kind {
	case handshake.Make:
		if !p.makeLink(a) {
			return
		}
	case handshake.Destroy:
		if l := p.linkOf(a.ID); l != nil {
			l.discard(a.Err, a.Left)
		}
	case handshake.Connect:
		err := p.connect(a)
		p.mu.Lock()
		if err != nil {
			p.do(p.machine.ConnectFailed(time.Now(), a.ID, err))
			return
		}
		p.do(p.machine.Connected(time.Now(), a.ID))
	case handshake.Open:
		if l := p.linkOf(a.ID); l != nil {
			l.open()
		}
	case handshake.Call:
		t.work.Go(func() { p.call(a.Call, a.Offer) })
	case handshake.Respond, handshake.Refuse:
		p.mu.Lock()
		answer := p.requests[a.Request]
		delete(p.requests, a.Request)
		p.mu.Unlock()
		if answer != nil {
			answer(a.Offer, a.Err)
		}
	}
	p.logState()
}

// makeLink makes the link of an offer and reports to the machine whether that succeeded.
func (p *peer) makeLink(a handshake.Action) (ok bool) {
	t := p.transport
	unverified := !t.opts.Callable(p.task)
	failed := func(err error) bool {
		t.links.done()
		on := t.present()
		p.mu.Lock()
		acts := p.machine.MakeFailed(time.Now(), a.ID, err)
		p.do(append(acts, p.nextOfFamily(on)...))
		return false
	}
	if unverified {
		if err := t.unverified.take(p.source, "channels that wait for the first message of a client"); err != nil {
			return failed(err)
		}
	}
	l, err := p.newLink(a.ID, a.Generation)
	if err != nil {
		if unverified {
			t.unverified.release(p.source)
		}
		return failed(err)
	}
	p.mu.Lock()
	p.links[a.ID], l.unverified = l, unverified
	p.do(p.machine.Made(time.Now(), l.id, l.own))
	return true
}

// newLink makes a link on the device in use.
func (p *peer) newLink(id, generation uint64) (l *link, err error) {
	on, err := p.transport.takePort()
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	from := p.address
	p.mu.Unlock()
	err = p.transport.withPort(on, func() (err error) {
		l, err = newLink(p, on, from, id, generation)
		return err
	})
	if err != nil {
		on.links.done()
		return nil, err
	}
	return l, nil
}

// linkOf returns the link with an id; nil when it is destroyed.
func (p *peer) linkOf(id uint64) *link {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.links[id]
}

// connect connects a link with the peer's offer. The response cache has to accept the
// peer's process first, since it sends requests over the channel.
func (p *peer) connect(a handshake.Action) error {
	l := p.linkOf(a.ID)
	if l == nil {
		return status.Errorf(status.Internal, "there is no generation %d to connect", a.Generation)
	}
	t := p.transport
	requester := transport.Process{Name: a.Offer.Task.String(), Incarnation: a.Offer.Incarnation}
	if err := t.opts.Cache.Introduce(t.base, requester, p.source); err != nil {
		return err
	}
	return t.withPort(l.port, func() error { return l.connect(a.Offer) })
}

// call makes a bootstrap call and reports its outcome to the machine.
func (p *peer) call(id uint64, own handshake.Offer) {
	p.counters.bootstraps.Add(1)
	ctx, cancel := context.WithTimeout(p.transport.base, handshake.CallTimeout)
	offer, err := p.transport.opts.Exchanger.Exchange(ctx, p.task, own)
	cancel()
	on := p.transport.present()
	p.mu.Lock()
	var acts []handshake.Action
	if p.machine.Calls(id) {
		acts = p.nextAddress(on, offer, err)
	}
	p.do(append(acts, p.machine.CallDone(time.Now(), id, offer, err)...))
	p.logState()
}

// request passes a bootstrap call of the peer to the machine and waits for the answer.
func (p *peer) request(ctx context.Context, from handshake.Offer) (handshake.Offer, error) {
	type result struct {
		offer handshake.Offer
		err   error
	}
	done := make(chan result, 1)
	on := p.transport.present()
	p.mu.Lock()
	if p.gone {
		p.mu.Unlock()
		return handshake.Offer{}, errForgotten
	}
	p.lastReq++
	id := p.lastReq
	p.requests[id] = func(o handshake.Offer, err error) { done <- result{o, err} }
	acts := p.adapt(on, from)
	p.do(append(acts, p.machine.Request(time.Now(), id, from)...))
	select {
	case r := <-done:
		return r.offer, r.err
	case <-ctx.Done():
		p.mu.Lock()
		delete(p.requests, id)
		p.mu.Unlock()
		return handshake.Offer{}, status.From(context.Cause(ctx))
	}
}
