package verbstransport

import (
	"context"
	"sync"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/transport/verbs/internal/handshake"
)

// peer is the record of one remote task: a route to it over each kind of device, with its
// handshake and links, and which link carries receives.
type peer struct {
	transport *RdmaRemoteRendezvous
	task      cluster.Task
	source    string // address of its first call; empty when this process called first
	counters  counters

	mu           sync.Mutex // guards what follows, up to logging, and the routes
	closed       totals     // counts of the links that are destroyed
	routes       [kinds]*peerRoute
	active       *link         // carries receives; nil when none does
	disconnected func()        // reports to the response cache that active has ended
	left         leftLink      // what this side has left of its channels
	serial       uint64        // of the newest link
	changed      chan struct{} // closed when active changes
	gone         bool          // the record was dropped; the task may have another one
	closing      bool          // this process closes the peer, so changes are not logged
	cameUp       time.Time     // when a channel was up for the first time, or again; zero for never
	since        since         // when the present state began

	logging sync.Mutex // keeps log lines in the order of the states; guards logged
	logged  peerLog
}

// newPeer makes the record of a task. Called with t.mu held.
func newPeer(t *RdmaRemoteRendezvous, task cluster.Task, source string) *peer {
	p := &peer{transport: t, task: task, source: source, changed: make(chan struct{})}
	for k := range kinds {
		p.routes[k] = newRoute(p, k)
	}
	p.noteState()
	return p
}

// keepConnected has the machine make a channel, and another one after each break.
func (p *peer) keepConnected() {
	p.mu.Lock()
	r := p.routes[kindFabric]
	r.do(r.machine.Maintain(time.Now()))
}

// connectNow shortens the back-off of the next attempt, for a caller without a fallback.
func (p *peer) connectNow() {
	for _, r := range p.routes {
		p.mu.Lock()
		r.do(r.machine.Expedite(time.Now()))
	}
}

// route returns the route of a kind.
func (p *peer) route(k kind) *peerRoute { return p.routes[k] }

// request passes a bootstrap call of the peer to the machine of its route and waits for the
// answer.
func (p *peer) request(ctx context.Context, from handshake.Offer) (handshake.Offer, error) {
	return p.route(kindOf(from.Link)).request(ctx, from)
}
