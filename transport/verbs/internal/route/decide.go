package route

import (
	"slices"
	"time"

	"github.com/tryst-rdma/tryst/internal/handshake"
)

// done ends an event: it takes the steps that have become possible, and returns the actions of
// the event.
func (r *Router) done(now time.Time) []Action {
	r.last = now
	if target := r.pick(now); target != r.target {
		old := r.target
		r.target = target
		if old != None {
			r.emit(Action{Act: Rest, Route: old})
		}
		if target != None {
			r.emit(Action{Act: Maintain, Route: target})
		}
	}
	if r.carries(r.target) {
		for _, k := range Routes {
			if k != r.target && r.carries(k) {
				r.paths[k].leaving = true
				r.emit(Action{Act: Leave, Route: k, Err: r.leaving()})
			}
		}
	}
	if at, ok := r.askAt(); ok && !now.Before(at) {
		r.asking, r.askOld, r.askAgain, r.heard, r.lastAsk, r.needed = true, false, false, false, now, false
		r.emit(Action{Act: Ask})
	}
	out := r.out
	r.out = nil
	return out
}

func (r *Router) emit(a Action) { r.out = append(r.out, a) }

// carries reports whether a channel over a route is up and stays.
func (r *Router) carries(k Route) bool { return k != None && r.paths[k].up && !r.paths[k].leaving }

// up returns the route of a channel that is up and stays; None when there is none.
func (r *Router) up() Route {
	for _, k := range Routes {
		if r.carries(k) {
			return k
		}
	}
	return None
}

func (r *Router) anyUp() bool {
	return slices.ContainsFunc(Routes[:], func(k Route) bool { return r.paths[k].up })
}

// pick returns the route that should be maintained.
func (r *Router) pick(now time.Time) Route {
	if !r.known || r.away {
		return None
	}
	best, _ := Choose(r.sides(now))
	if r.proposes || r.proposal == None {
		return best
	}
	switch {
	case best == r.proposal:
		r.differsFrom = time.Time{}
	case Problem(r.cfg.Own, r.peer, r.proposal) != "", !r.differsFrom.IsZero() && !now.Before(r.ownAt()):
		r.setProposal(None, time.Time{})
		return best
	case r.differsFrom.IsZero():
		r.differsFrom = now
	}
	return r.proposal
}

// setProposal records what the peer has proposed, which stays until ownAfter at least.
func (r *Router) setProposal(k Route, ownAfter time.Time) {
	r.proposal, r.differsFrom, r.ownAfter = k, time.Time{}, ownAfter
}

// ownAt is when this side gives up the proposal of the peer, since Choose has another result.
func (r *Router) ownAt() time.Time {
	at := r.differsFrom.Add(Grace)
	if at.Before(r.ownAfter) {
		return r.ownAfter
	}
	return at
}

// sides returns both sides with the failures that are respected now.
func (r *Router) sides(now time.Time) (own, peer Side) {
	own, peer = r.cfg.Own, r.peer
	own.alias = ownAlias
	own.Inventory = r.inventory(now)
	if peer.Inventory != nil {
		peer.Inventory = withFailures(peer.Inventory, func(k Route) (time.Time, string) {
			return r.paths[k].peerUntil, r.paths[k].peerWhy
		}, now)
	}
	return own, peer
}

// Inventory returns the inventory of this side as the peer gets it, with failures. The caller
// sends each one in one message: the peer ignores one that comes after a later one.
func (r *Router) Inventory(now time.Time) *handshake.Inventory {
	v := r.inventory(now)
	// The record of a client may be dropped and made again while the client goes on: the count
	// then has to be above that of before.
	r.shown = max(r.shown+1, uint64(max(now.UnixNano(), 0))) //nolint:gosec // not negative
	v.Serial = r.shown
	return v
}

func (r *Router) inventory(now time.Time) *handshake.Inventory {
	return withFailures(r.cfg.Own.Inventory, func(k Route) (time.Time, string) { return r.failedUntil(k), r.paths[k].why }, now)
}

func withFailures(v *handshake.Inventory, of func(Route) (until time.Time, why string), now time.Time) *handshake.Inventory {
	c := *v
	c.Devices = slices.Clone(v.Devices)
	for i := range c.Devices {
		d := &c.Devices[i]
		d.FailedFor, d.FailedWhy = 0, ""
		if until, why := of(Of(d.Link)); until.After(now) {
			d.FailedFor, d.FailedWhy = min(until.Sub(now), handshake.MaxFailedFor), why
		}
	}
	return &c
}

// failedUntil is until when this side does not try a route again; zero when it has not failed.
func (r *Router) failedUntil(k Route) time.Time {
	p := &r.paths[k]
	until := p.until
	if p.up || until.IsZero() {
		return time.Time{}
	}
	if back := p.failedAt.Add(ChangeBack); back.After(until) && k != r.Order()[len(Routes)-1] {
		until = back // a trial is a change back to a better route, or may be by then
	}
	return until
}

// Order returns the routes with this peer, the preferred one first. Nobody changes it.
func (r *Router) Order() []Route { return preference(&r.cfg.Own, &r.peer) }

// mayImprove reports whether a device of this side could reach the peer better than the present
// route, if the peer had one too.
func (r *Router) mayImprove() bool {
	for _, k := range r.Order() {
		if k == r.target {
			return false
		}
		if r.cfg.Own.device(k) != nil {
			return true
		}
	}
	return false
}

// hasFresh reports whether a route that has not failed is possible.
func (r *Router) hasFresh(now time.Time) bool {
	own, peer := r.sides(now)
	best, _ := Choose(own, peer)
	if best == None || own.Inventory == nil || peer.Inventory == nil {
		return false
	}
	wait, _ := failure(&own, &peer, best)
	return wait == 0
}

// Reasons returns for each route but the present target why it is not taken.
func (r *Router) Reasons(now time.Time) []Reason {
	if !r.known {
		return r.unknownReasons()
	}
	best, reasons := Choose(r.sides(now))
	if best == r.target {
		return reasons
	}
	all := []Reason{}
	for _, k := range r.Order() {
		i := slices.IndexFunc(reasons, func(x Reason) bool { return x.Route == k })
		switch k {
		case r.target:
		case best:
			all = append(all, Reason{k, r.insteadText(r.target)})
		default:
			all = append(all, reasons[i])
		}
	}
	return all
}

// HasAlternative reports whether another route than the present target may reach the peer and has not
// failed.
func (r *Router) HasAlternative(now time.Time) bool {
	own, peer := r.sides(now)
	if !r.known || own.Inventory == nil || peer.Inventory == nil {
		return false
	}
	return slices.ContainsFunc(Routes[:], func(k Route) bool {
		if k == r.target || Problem(own, peer, k) != "" {
			return false
		}
		wait, _ := failure(&own, &peer, k)
		return wait == 0
	})
}

// Better returns the reasons against the routes that are preferred to the present target.
func (r *Router) Better(now time.Time) []Reason {
	order := r.Order()
	at := slices.Index(order, r.target) // -1 for None: all are better
	return slices.DeleteFunc(r.Reasons(now), func(x Reason) bool { return at >= 0 && slices.Index(order, x.Route) > at })
}

// learn records what the peer shows. It returns false when another process of the peer is connected
// and this one has not answered a call to the peer's address: it counts once its channel is up.
func (r *Router) learn(now time.Time, peer Side, verified bool) bool {
	r.away = false
	was := r.peer.Incarnation
	other := r.known && was != 0 && peer.Incarnation != was
	switch {
	case other && !verified && r.anyUp():
		r.other = peer
		return false
	case verified || !r.cfg.Callable:
		r.accept(now, peer, verified)
		return true
	}
	// Anybody may call in the name of the peer unless TLS proves it. What such a call takes away is
	// taken back by a call to the peer's address.
	first, rank, paths := !r.known, r.rank(now), r.paths
	r.accept(now, peer, false)
	less := other || r.rank(now) > rank
	fails := slices.ContainsFunc(Routes[:], func(k Route) bool { return r.paths[k].peerUntil.Sub(paths[k].peerUntil) > AskEvery })
	r.proven = r.proven && !less
	r.askAgain = r.askAgain || first || less || fails
	return true
}

// rank is the place of the best route in the order of preference.
func (r *Router) rank(now time.Time) int {
	best, _ := Choose(r.sides(now))
	if best == None {
		return len(Routes)
	}
	return slices.Index(r.Order(), best)
}

// accept records what the process shows that is the peer from now on. verified says that it has
// answered a call to the peer's address: then that is newer than all that was known before the
// call, whatever its serial.
func (r *Router) accept(now time.Time, peer Side, verified bool) {
	switch was := r.peer.Incarnation; {
	case !r.known:
	case was != 0 && peer.Incarnation != was:
		r.proven = false
		r.forgiveAll()
		r.setProposal(None, time.Time{})
	case peer.Inventory != nil && r.peer.Inventory != nil && peer.Serial != 0 && peer.Serial <= r.peer.Serial && (!verified || r.heard):
		r.askAgain = r.askAgain || verified
		return // it is older than what is known
	default:
		r.forgive(r.peer, peer)
	}
	r.heard, r.proven = r.heard || !verified, r.proven || verified
	r.known, r.peer, r.other, r.askErr = true, peer, Side{}, nil
	for _, k := range Routes {
		p := &r.paths[k]
		p.peerUntil, p.peerWhy = time.Time{}, ""
		if d := peer.device(k); d != nil && d.FailedFor > 0 {
			p.peerUntil, p.peerWhy = now.Add(d.FailedFor), d.FailedWhy
		}
	}
}

// forget is the event that the process at the peer's address does not serve verbs: what another process there has shown
// counts no more, and the peer is asked as one of which nothing is known.
func (r *Router) forget(now time.Time, err error) {
	r.forgiveAll()
	r.setProposal(None, time.Time{})
	r.known, r.proven, r.peer, r.other, r.askAgain, r.askErr = false, false, Side{}, Side{}, false, err
	r.backOff(now, err)
}

// forgive ends the failures of the routes that differ between what a side was and what it is.
func (r *Router) forgive(was, is Side) {
	if (was.Inventory == nil) != (is.Inventory == nil) || was.Host != is.Host ||
		is.Inventory != nil && (was.User != is.User || was.TLS != is.TLS) {
		r.forgiveAll()
		return
	}
	for _, k := range Routes {
		d, e := was.device(k), is.device(k)
		if (d == nil) != (e == nil) || d != nil && !d.SameReach(e) {
			r.paths[k].forgive()
		}
	}
}

func (r *Router) forgiveAll() {
	for i := range r.paths {
		r.paths[i].forgive()
	}
}

func (p *path) forgive() {
	p.count, p.until, p.peerUntil = 0, time.Time{}, time.Time{}
}

// askAt is when the peer is to be asked for its inventory. ok is false when it is not to be.
func (r *Router) askAt() (at time.Time, ok bool) {
	if !r.cfg.Callable || r.asking || !r.wanted || r.rests() {
		return at, false
	}
	after := time.Duration(0)
	switch {
	case !r.known:
	case r.askAgain:
		after = AskEvery
	case r.target == None && !r.anyUp():
		after = MaxAskBackoff // the peer may come to have another device
	default:
		return at, false
	}
	if at = r.lastAsk.Add(after); at.Before(r.nextAsk) {
		at = r.nextAsk
	}
	return at, true
}

// rests reports whether a peer that the last call has not reached, or no route reaches, is not asked again before a
// receive needs it. A connected one is there, and has to hear of what has changed.
func (r *Router) rests() bool {
	without := !r.anyUp() && (r.askErr != nil || r.known && r.target == None && !r.askAgain)
	return r.cfg.Lazy && without && !r.needed
}

// Wake is the latest time for the next Tick; zero for never. It may change with each event.
func (r *Router) Wake() time.Time {
	var wake time.Time
	at := func(t time.Time) {
		if !t.IsZero() && (wake.IsZero() || t.Before(wake)) {
			wake = t
		}
	}
	if t, ok := r.askAt(); ok {
		at(t)
	}
	for _, k := range Routes {
		if k != r.target && Problem(r.cfg.Own, r.peer, k) == "" {
			for _, t := range [...]time.Time{r.failedUntil(k), r.paths[k].peerUntil} {
				if t.After(r.last) { // the last event has taken notice of an earlier one
					at(t)
				}
			}
		}
	}
	if !r.differsFrom.IsZero() {
		at(r.ownAt())
	}
	return wake
}
