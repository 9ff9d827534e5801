package route

import (
	"errors"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/handshake"
	"github.com/tryst-rdma/tryst/status"
)

// Config configures a Router.
type Config struct {
	// Own is this process with its devices, without failures. Its Inventory is not nil.
	Own Side
	// Peer is the task at the other end. Callable says that it has an address.
	Peer     cluster.Task
	Callable bool
	// Lazy says that a peer without a route to it is asked again only when a receive begins (Used), and called for a
	// channel again only then once a call has not reached it: a process at rest does nothing.
	Lazy bool
	// Jitter returns numbers from 0 to 1, which spread the calls to many peers; nil for none.
	Jitter func() float64
}

// Router is the choice of the route to one peer. Its methods take events, with the present time,
// and return actions. They are not safe for concurrent use. The caller owns the returned slice.
type Router struct {
	cfg      Config
	proposes bool // this side proposes
	out      []Action
	last     time.Time // the time of the last event

	wanted bool
	known  bool // the peer has shown its inventory, or has none
	peer   Side // if known; its failures are in paths
	other  Side // another process that has called while one was connected
	proven bool // a call to the peer's address was answered with what is known, or with no more than that
	paths  [TCP + 1]path
	target Route  // which one is maintained
	shown  uint64 // Serial of the last inventory that the peer has got

	// The side that does not propose.
	proposal    Route     // what the peer has proposed; None for nothing that is valid
	differsFrom time.Time // since when Choose has another result; zero when it has not
	ownAfter    time.Time // the proposal stays until then, after the peer has insisted on it

	// Calls that ask for the inventory.
	asking      bool
	askOld      bool      // a channel has come up since the present one began
	askAgain    bool      // for a reason other than an inventory that is not known
	heard       bool      // an inventory has come in a call of the peer since the present one began
	lastAsk     time.Time // when the last one began
	nextAsk     time.Time // no call before, after one that failed
	askFailures int
	askErr      error // of the last one; nil if it succeeded
	needed      bool  // a receive has begun since the last one
	away        bool  // with Lazy: a call for a channel has not reached the peer, and nothing has needed it since
}

// path is the state of one route.
type path struct {
	up      bool
	upSince time.Time
	leaving bool // Leave was returned

	// Failures that this side has seen.
	count     int // in a row
	failedAt  time.Time
	until     time.Time // not tried before; zero for not failed
	why       string
	peerUntil time.Time // the same of the peer, as it shows it
	peerWhy   string
}

// New returns a router that asks nobody and maintains nothing until Want, or until the peer asks.
func New(c Config) *Router {
	if c.Jitter == nil {
		c.Jitter = func() float64 { return 0 }
	}
	return &Router{cfg: c, proposes: proposes(c.Own.Task, c.Peer)}
}

// proposes reports whether own proposes the route to peer.
func proposes(own, peer cluster.Task) bool {
	if client := own.Job == cluster.ClientJob; client != (peer.Job == cluster.ClientJob) {
		return client
	}
	return own.String() < peer.String()
}

// Proposes reports whether this side proposes the route.
func (r *Router) Proposes() bool { return r.proposes }

// Target is the route of which a channel is maintained; None when there is none.
func (r *Router) Target() Route { return r.target }

// Proven reports whether a call to the peer's address has shown what is known of it: anybody may call in its name. What a
// process that has no address shows is all that there is.
func (r *Router) Proven() bool { return r.proven || !r.cfg.Callable }

// Away reports whether nothing is maintained because a call for a channel has not reached the peer.
func (r *Router) Away() bool { return r.away }

// PeerHas reports whether the peer has a device for a route. One of an older build, which shows none, may have it.
func (r *Router) PeerHas(k Route) bool { return r.peer.Inventory == nil || r.peer.device(k) != nil }

// PeerIncarnation is that of the process that is the peer; 0 if it is not known.
func (r *Router) PeerIncarnation() uint64 { return r.peer.Incarnation }

// Want is the event that a channel is wanted, from now on. It comes again whenever the peer is looked for.
func (r *Router) Want(now time.Time) []Action {
	r.wanted, r.needed, r.away = true, true, false
	return r.done(now)
}

// Addressed is the event that the peer, which had no address, has one.
func (r *Router) Addressed(now time.Time) []Action {
	r.cfg.Callable = true
	return r.done(now)
}

// Expedite is the event that a receive waits and has no other connection. It limits the wait
// before the next call to the peer.
func (r *Router) Expedite(now time.Time) []Action {
	if soon := now.Add(MinAskBackoff); r.nextAsk.After(soon) {
		r.nextAsk = soon
	}
	return r.done(now)
}

// Reached is the event that the peer has answered another call, and a receive waits. Why a call for the inventory has
// failed may have passed, and what is known of the peer may be of the process before.
func (r *Router) Reached(now time.Time) []Action {
	r.needed, r.away, r.nextAsk = true, false, time.Time{}
	r.askAgain = r.askAgain || r.known && r.target == None && !r.anyUp()
	return r.done(now)
}

// Used is the event that a receive begins, over a channel or not. A process that the peer cannot call learns of a better
// route by it, at most every RefreshEvery.
func (r *Router) Used(now time.Time) []Action {
	r.needed, r.away = true, false
	if r.cfg.Own.Task.Job == cluster.ClientJob && r.known && !r.asking && r.peer.Inventory != nil && r.mayImprove() && !now.Before(r.lastAsk.Add(RefreshEvery)) {
		r.askAgain = true
	}
	return r.done(now)
}

// Own is the event that devices of this process have come, gone or changed.
func (r *Router) Own(now time.Time, own Side) []Action {
	r.forgive(r.cfg.Own, own)
	r.cfg.Own = own
	r.askAgain = r.askAgain || r.known && r.peer.Inventory != nil // the peer hears of it by our call
	return r.done(now)
}

// Asked is the event that the peer has called without queue pairs: it wants a channel. The
// caller answers with an introduction and the inventory.
func (r *Router) Asked(now time.Time, peer Side) []Action {
	r.learn(now, peer, false)
	r.wanted = true
	return r.done(now)
}

// Answered is the event that a call of Ask has ended, with the peer's introduction or with an
// error.
func (r *Router) Answered(now time.Time, peer Side, err error) []Action {
	r.asking, r.askErr = false, err
	switch {
	case err == nil:
		// A process that has connected since the call began may be a later one than that which answered.
		if !r.learn(now, peer, !r.askOld || peer.Incarnation == r.peer.Incarnation) {
			r.askAgain = true
		}
	case handshake.HasNoInventory(r.cfg.Peer, err):
		r.learn(now, Side{Task: r.cfg.Peer, Incarnation: r.peer.Incarnation}, true)
		r.askErr = nil
	}
	switch {
	case r.askErr == nil:
		r.askFailures, r.nextAsk = 0, time.Time{}
	case errors.Is(err, handshake.ErrNotServed) && !r.anyUp():
		r.forget(now, err)
	default:
		r.backOff(now, err)
		r.askAgain = r.known
	}
	return r.done(now)
}

// Shown is the event that the peer has answered a call for a channel: its response shows its
// inventory.
func (r *Router) Shown(now time.Time, peer Side) []Action {
	if !r.learn(now, peer, false) {
		r.askAgain = true // the response may be older than the process that is connected
	}
	return r.done(now)
}

// Request is the event that the peer calls for a channel over a route. If err is nil the caller
// passes the call to the handshake of that route. Otherwise it carries out the actions and refuses
// the call with err.
func (r *Router) Request(now time.Time, peer Side, route Route) (acts []Action, err error) {
	if !r.learn(now, peer, false) {
		return r.done(now), nil // the handshake finds out which process is the peer
	}
	r.wanted = true
	own := r.cfg.Own
	own.alias = ownAlias // the peer quotes the sentence as this side's
	if why := Problem(own, r.peer, route); why != "" {
		return r.done(now), status.Errorf(status.FailedPrecondition, noRoutePrefix+"%v: %s", route, why)
	}
	if r.proposes {
		acts = r.done(now)
		if r.target != route {
			return acts, r.instead()
		}
		return acts, nil
	}
	if r.failedUntil(route).After(now) && r.hasFresh(now) {
		return r.done(now), status.Errorf(status.FailedPrecondition, "the route over %v has failed: %s", route, r.paths[route].why)
	}
	r.setProposal(route, time.Time{})
	return r.done(now), nil
}

// Up is the event that the channel over a route is up: the HELLO of a process of the peer has come.
func (r *Router) Up(now time.Time, route Route, incarnation uint64) []Action {
	switch {
	case !r.known || r.peer.Incarnation == incarnation:
	case r.other.Incarnation == incarnation:
		r.accept(now, r.other, false)
	default: // a process of an older build, or one that has shown nothing yet
		r.askAgain = r.peer.Incarnation != 0
		r.peer.Incarnation = incarnation
	}
	p := &r.paths[route]
	p.up, p.upSince, p.leaving = true, now, false
	r.askOld, r.away = r.asking, false
	p.until, p.peerUntil = time.Time{}, time.Time{}
	return r.done(now)
}

// Down is the event that the channel over a route has ended, or that one could not be made. err is
// why; nil if the router had it ended.
func (r *Router) Down(now time.Time, route Route, err error) []Action {
	p := &r.paths[route]
	if p.up && now.Sub(p.upSince) >= Steady {
		p.count = 0
	}
	counts := !p.leaving && (p.up || route == r.target)
	p.up, p.leaving = false, false
	if errors.Is(err, handshake.ErrNotServed) && !r.anyUp() {
		r.forget(now, err)
		return r.done(now)
	}
	_, unreached := errors.AsType[*handshake.UnreachedError](err)
	r.away = r.away || r.cfg.Lazy && unreached && !r.anyUp()
	if err != nil && counts && r.isOfRoute(err) {
		p.count++
		p.failedAt, p.why = now, short(err)
		p.until = now.Add(backoff(p.count))
		if r.proposal == route {
			r.setProposal(None, time.Time{})
		}
	}
	if !r.proposes && IsInstead(r.cfg.Peer, err) {
		r.setProposal(r.up(), now.Add(ChangeBack))
	}
	if _, said := errors.AsType[*status.Said](err); said && r.peer.Inventory != nil {
		r.askAgain = true // what it says may follow from what has changed there
	}
	return r.done(now)
}

// Tick is the event that time has passed.
func (r *Router) Tick(now time.Time) []Action { return r.done(now) }
