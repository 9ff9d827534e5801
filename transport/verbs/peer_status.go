package verbstransport

import (
	"errors"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/handshake"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
	"github.com/tryst-rdma/tryst/transport/verbs/internal/route"
)

// status returns how the peer is reached, without counts.
func (p *peer) status() Connection {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := Connection{Task: p.task, Since: p.since.verbsAt, StateSince: p.since.stateAt, LastRoute: p.lastRoute, LastDevice: p.lastDevice}
	k.State, k.Reason = p.shown().machine.State()
	k.Routes = p.routeStatus()
	switch {
	case p.active != nil:
		k.Verbs, k.Generation, k.QueuePairs, k.Reason = true, p.active.own.Generation, len(p.active.rails), nil
		k.Device, k.Local, k.Remote = p.active.port.name, p.active.own.Rails[0].GID, p.active.remote
		k.Socket, k.Route = p.active.socket, p.active.route.over.String()
	default:
		if lost := p.lostDevices(); lost != nil {
			k.Reason = lost
		} else if why := p.noRoute(); why != nil {
			k.Reason = why
		}
	}
	return k
}

// statusWithCounts is status with all counts.
func (p *peer) statusWithCounts() Connection {
	k := p.status()
	k.Stats = p.counters.read()
	p.mu.Lock()
	sum := p.closed
	var all []*link
	for _, r := range p.routes {
		for _, l := range r.links {
			all = append(all, l)
		}
	}
	p.mu.Unlock()
	for _, l := range all {
		sum.add(l.totals())
	}
	k.Stats.MessagesSent, k.Stats.MessagesReceived, k.Poll = sum.messages.Sent, sum.messages.Received, sum.poll
	return k
}

// noRoute is why no route to the peer is tried: its devices are not known, or none reaches it. It
// is nil when one is tried, and when nothing has been found out yet. Called with mu held.
func (p *peer) noRoute() error {
	switch {
	case p.router == nil || p.router.Target() != route.None:
		return nil
	case p.askErr != nil:
		return p.askErr
	case !p.answered:
		return nil
	}
	return status.New(status.FailedPrecondition, p.router.NoRoute(time.Now()))
}

// never is why no channel to the process that the peer was last can be made: it does not serve verbs, or the devices of
// both are known, and none reaches it. It is nil while that may change: before a call to the peer's address has shown it, and, for what the devices
// are the reason of, when one of this process has gone and may return, or has not come yet, and after a channel to this very process has been up.
func (p *peer) never() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.ended != nil:
		return transport.TaskLeft(p.task)
	case p.active != nil, p.closing:
		return nil
	}
	if why := p.notServed(); why != nil {
		return why
	}
	if !p.cameUp.IsZero() && (p.router == nil || p.router.PeerIncarnation() == p.cameUpTo) {
		return nil
	}
	for _, r := range p.routes {
		if r.lost != nil && (!neverHad(r.lost) || p.mayCome(r.over)) {
			return nil
		}
	}
	if p.router == nil {
		if _, err := p.route(route.Fabric).machine.State(); route.IsUnreachable(err) {
			return err
		}
		return nil
	}
	if p.askErr != nil || !p.router.Known() || !p.router.Proven() {
		return nil
	}
	return p.noRoute()
}

// mayCome reports whether a device for a route may come that this process never had, and the peer has one. Called with mu
// held.
func (p *peer) mayCome(k route.Route) bool {
	return k == route.Fabric && p.transport.opts.MayHaveDevice && p.router != nil && p.router.PeerHas(k)
}

// hasLeft reports whether the peer has left the cluster, whatever was heard of it.
func (p *peer) hasLeft() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ended != nil
}

// notServed is the error of a peer that does not serve verbs, with what to do about it; nil for another peer. Called with
// mu held.
func (p *peer) notServed() error {
	err := p.askErr
	if p.router == nil {
		_, err = p.route(route.Fabric).machine.State()
	}
	if errors.Is(err, handshake.ErrNotServed) {
		return status.Errorf(status.CodeOf(err), "%w; start it with the setting transport auto or verbs, or set fallback to grpc here", err)
	}
	return nil
}

// evidence counts what never follows from: it is the same while no more calls to the peer have ended. Calls in its name do
// not count: a stranger may make them.
func (p *peer) evidence() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.router != nil {
		return p.heard
	}
	count, _ := p.route(route.Fabric).machine.Failures()
	return count
}

// routeStatus returns the state of each route, the best one first. Called with mu held.
func (p *peer) routeStatus() []RouteStatus {
	if p.router == nil {
		return nil
	}
	whys := make(map[route.Route]string, len(route.Routes))
	for _, x := range p.router.Reasons(time.Now()) {
		whys[x.Route] = x.Why
	}
	own := p.transport.names.Load()
	var all []RouteStatus
	better := p.active != nil
	for _, k := range p.router.Order() {
		r := p.route(k)
		s := RouteStatus{Route: k.String(), Device: own[k], Why: whys[k], Used: p.active != nil && p.active.route == r}
		s.State, _ = r.machine.State()
		if s.Used {
			better, s.Why = false, ""
		} else if _, err := r.machine.State(); s.Why == "" && err != nil {
			s.Why = err.Error()
		}
		s.Better = better
		all = append(all, s)
	}
	return all
}

// whyNot returns the text of the Reason of a peer without a channel.
func whyNot(reason error) string {
	if reason == nil {
		return "an attempt is under way, and none has failed yet"
	}
	return reason.Error()
}

// IsWithoutDevice reports whether err, the reason why there is no channel to a peer, is that the
// peer has no device for now.
func IsWithoutDevice(peer cluster.Task, err error) bool { return handshake.IsWithoutDevice(peer, err) }
