package verbstransport

import (
	"math"
	"slices"
	"time"

	"github.com/tryst-rdma/tryst/internal/handshake"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/verbs"
)

// Which address of the port a peer is reached from. Packets of one family, or of one link, do
// not reach addresses of another, and two hosts may prefer different families. So an offer of
// a peer selects the address: the called side takes one of its own that the offer reaches. If
// it has none it refuses, and the calling side tries its other families. Channels that are up
// stay as they are. An address that the user has chosen is used for all peers.

// addressFor returns the address for the peer: that of the port unless the peer needs another
// one. Called with mu held.
func (r *peerRoute) addressFor(on *port) verbs.GID {
	if r.address.IsZero() {
		return on.addresses()[0]
	}
	return r.address
}

// useAddress makes the peer's channels from another address of the port. Called with mu held.
func (r *peerRoute) useAddress(on *port, gid verbs.GID) []handshake.Action {
	now := time.Now()
	why := handshake.Changes("the address "+r.addressFor(on).String(), gid.String())
	r.address = gid
	return append(r.machine.Suspend(now, why), r.machine.Resume(now, on.selfAt(gid))...)
}

// adapt selects an address that the offer in a call of the peer reaches, unless the present one
// does. When this process calls the peer at the same time, one of the two must stay: the one
// with the lower name. Called with mu held.
func (r *peerRoute) adapt(on *port, from handshake.Offer) []handshake.Action {
	state, _ := r.machine.State()
	own := r.peer.transport.opts.Task
	if on == nil || from.IsIntroduction() || state == handshake.Up ||
		state == handshake.InProgress && r.peer.transport.opts.Callable(r.peer.task) && own.String() < from.Task.String() ||
		handshake.Meets(on.self, from, r.addressFor(on)) {
		return nil
	}
	for _, gid := range on.addresses() {
		if handshake.Meets(on.self, from, gid) {
			return r.useAddress(on, gid)
		}
	}
	return nil
}

// nextAddress selects another address after a call, if the peer has refused the present one
// (err), or has answered with an offer that it does not reach. Each family is tried once. When
// none is left it selects nothing, so the machine backs off, and the next call begins again.
// Called with mu held.
func (r *peerRoute) nextAddress(on *port, answer handshake.Offer, err error) []handshake.Action {
	if on == nil {
		return nil
	}
	was := r.addressFor(on)
	answered := err == nil && !answer.IsIntroduction()
	if answered && handshake.Meets(on.self, answer, was) || !answered && status.CodeOf(err) != status.FailedPrecondition {
		r.refused = nil
		return nil
	}
	r.refused = append(r.refused, was)
	for _, gid := range on.addresses() {
		tried := slices.ContainsFunc(r.refused, func(was verbs.GID) bool { return handshake.SameScope(was, gid) })
		if !tried && (!answered || handshake.Meets(on.self, answer, gid)) {
			return r.useAddress(on, gid)
		}
	}
	r.refused = nil
	return nil
}

// nextOfFamily selects another address of the same family, after no link could be made from
// the present one: the system may still look for a duplicate of it. The port's own address is
// left to refresh. Called with mu held.
func (r *peerRoute) nextOfFamily(on *port) []handshake.Action {
	if on == nil || r.address.IsZero() {
		return nil
	}
	all := on.addresses()
	for i := range all {
		gid := all[(slices.Index(all, r.address)+1+i)%len(all)]
		if gid != r.address && handshake.SameScope(gid, r.address) {
			r.address = gid
			return r.machine.Resume(time.Now(), on.selfAt(gid))
		}
	}
	return nil
}

// checkAddress gives up an address for the peer that the port has lost, and returns the one
// to use. Called without mu.
func (r *peerRoute) checkAddress(on *port) verbs.GID {
	own := on.addresses()[0]
	r.peer.mu.Lock()
	if r.address.IsZero() || slices.Contains(on.addresses(), r.address) {
		defer r.peer.mu.Unlock()
		return r.addressFor(on)
	}
	acts := r.useAddress(on, own)
	r.address, r.refused = verbs.GID{}, nil
	r.do(acts)
	return own
}

// selfAt is what offers from an address of the port share.
func (p *port) selfAt(gid verbs.GID) handshake.Offer {
	self := p.self
	self.Rails = slices.Clone(self.Rails)
	self.Rails[0].GID = gid
	return self
}

// addresses returns the addresses that the port may use, the one in use first. The caller does
// not change them.
func (p *port) addresses() []verbs.GID { return *p.reach.Load() }

// setUsable sets what addresses returns. Called with mu held, or before the port is in use.
func (p *port) setUsable() {
	all := []verbs.GID{p.gid}
	if p.replacement != nil && p.configured.Type == verbs.GIDTypeRoCEv2 {
		for _, e := range p.table {
			if e.Type == p.configured.Type && e.Index <= math.MaxUint8 && e.GID != p.gid {
				all = append(all, e.GID)
			}
		}
	}
	p.reach.Store(&all)
}

// pathFrom returns the path of queue pairs with an address; a zero one is that in use. Called
// with mu held.
func (p *port) pathFrom(gid verbs.GID) (verbs.Path, error) {
	path := p.path
	if gid == p.gid || gid.IsZero() {
		return path, nil
	}
	index, has := p.findAddress(p.table, gid, -1)
	if index < 0 {
		return path, verbs.Errorf("use", p.String(), ErrNoAddress, "its address %v is gone; %s", gid, has)
	}
	path.SGIDIndex = uint8(index) //nolint:gosec // at most MaxUint8
	return path, nil
}
