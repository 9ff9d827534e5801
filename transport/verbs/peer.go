package verbstransport

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/handshake"
	"github.com/tryst-rdma/tryst/transport/verbs/internal/route"
)

// peer is the record of one remote task: its routes, each with its
// handshake and links, and which link carries receives.
type peer struct {
	transport *RdmaRemoteRendezvous
	task      cluster.Task
	address   string      // address of its first call; empty when this process called first
	client    atomic.Bool // it has no address; counted in transport.clients; set with transport.mu held
	counters  counters
	lastUsed  atomic.Int64 // when the router heard of a receive, in nanoseconds since 1970

	mu           sync.Mutex    // guards what follows, up to logging, and the routes
	closed       totals        // counts of the links that are destroyed
	router       *route.Router // nil in a process with one device
	routes       []*peerRoute  // in the order of route.Routes
	active       *link         // carries receives; nil when none does
	disconnected func()        // reports to the response cache that active has ended
	left         leftLink      // what this side has left of its channels
	serial       uint64        // of the newest link
	changed      chan struct{} // closed when active or expected changes
	expected     time.Time     // until then receives wait for the next link; zero when none is expected
	first        bool          // receives wait for the first channel, or have waited for it
	askErr       error         // of the last call for the peer's inventory; nil if it has come
	answered     bool          // the peer has shown an inventory, or that it has none
	heard        uint64        // how often calls to its address have set askErr and answered
	timer        *time.Timer   // of router
	alarm        alarm         // of timer
	gone         bool          // the record was dropped; the task may have another one
	ended        chan struct{} // closed when everything of a peer that has left the cluster is destroyed; nil before
	closing      bool          // this process closes the peer, so changes are not logged
	cameUp       time.Time     // when a channel was up for the first time, or again; zero for never
	cameUpTo     uint64        // the incarnation of the peer of that channel
	since        since         // when the present state began
	lastRoute    string        // of device of the last channel that was up; empty before the first
	lastDevice   string        // of this process, of that channel

	logging sync.Mutex // keeps log lines in the order of the states; guards logged
	logged  peerLog
}

// newPeer makes the record of a task. Called with t.mu held.
func newPeer(t *RdmaRemoteRendezvous, task cluster.Task, address string) *peer {
	p := &peer{transport: t, task: task, address: address, changed: make(chan struct{})}
	for _, k := range route.Routes {
		p.routes = append(p.routes, newRoute(p, k))
	}
	p.router = newRouter(p)
	p.noteState()
	return p
}

// keepConnected has a channel made, and another one after each break.
func (p *peer) keepConnected() {
	p.mu.Lock()
	if p.router != nil {
		p.carryOut(p.router.Want(time.Now()))
		p.unlock()
		return
	}
	r := p.route(route.Fabric)
	r.do(r.machine.Maintain(time.Now()))
}

// addressed is the event that the task of a client has come to the cluster: it has an address, at which it is called from
// now on.
func (p *peer) addressed() {
	p.mu.Lock()
	now := time.Now()
	for _, r := range p.routes {
		r.take(r.machine.Addressed(now))
	}
	if p.router != nil {
		p.carryOut(p.router.Addressed(now))
	}
	p.unlock()
}

// connectNow shortens the back-off of the next attempt, for a caller without a fallback.
func (p *peer) connectNow() {
	p.mu.Lock()
	now := time.Now()
	for _, r := range p.routes {
		r.take(r.machine.Expedite(now))
	}
	if p.router != nil {
		p.carryOut(p.router.Expedite(now))
	}
	p.unlock()
}

// reachedNow is connectNow for a peer that has just answered over gRPC: it is asked at once.
func (p *peer) reachedNow() {
	p.connectNow()
	if p.router == nil {
		return
	}
	p.mu.Lock()
	p.carryOut(p.router.Reached(time.Now()))
	p.unlock()
}

// hears notes the end of a call for the peer's inventory, or, with nil, that the peer has shown one. Called with mu held.
func (p *peer) hears(err error) {
	p.askErr, p.answered = err, err == nil || p.answered && !errors.Is(err, handshake.ErrNotServed)
}

// route returns the state of a route.
func (p *peer) route(k route.Route) *peerRoute { return p.routes[k-route.Routes[0]] }

// request passes a bootstrap call of the peer to the machine of its route and waits for the
// answer.
func (p *peer) request(ctx context.Context, from handshake.Offer) (handshake.Offer, error) {
	if p.router != nil && from.IsIntroduction() {
		return p.asked(from)
	}
	k := route.Of(from.Link)
	if k == route.None {
		k = route.Fabric // its handshake says what is wrong
	}
	return p.route(k).request(ctx, from)
}
