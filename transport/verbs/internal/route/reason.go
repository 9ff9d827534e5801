package route

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/handshake"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/verbs"
)

// Sentences that a side gets from the other, and recognises.

// ownAlias is how a sentence calls the process that says it.
const ownAlias = "this process"

// insteadPrefix begins the sentence by which the side that proposes refuses another route.
func insteadPrefix(t cluster.Task) string { return t.String() + " proposes the route over " }

// leavingPrefix begins the reason of a channel that ends because a better one is up.
func leavingPrefix(t cluster.Task) string { return t.String() + " has taken the route over " }

func (r *Router) insteadText(k Route) string {
	task := r.cfg.Peer
	if r.proposes {
		task = r.cfg.Own.Task
	}
	return insteadPrefix(task) + k.String()
}

// instead is the error by which this side refuses a route that it does not propose.
func (r *Router) instead() error { return status.New(status.Unavailable, r.insteadText(r.target)) }

// leaving is the reason of a channel that this side ends because that of the target is up.
func (r *Router) leaving() error {
	return status.New(status.Unavailable, leavingPrefix(r.cfg.Own.Task)+r.target.String())
}

// IsInstead reports whether the peer has refused a route because it proposes another one.
func IsInstead(peer cluster.Task, err error) bool { return says(err, insteadPrefix(peer)) }

// IsLeaving reports whether the peer has ended a channel because a better one is up.
func IsLeaving(peer cluster.Task, err error) bool { return says(err, leavingPrefix(peer)) }

// says reports whether err quotes a sentence of the peer that begins with prefix.
func says(err error, prefix string) bool {
	said, ok := errors.AsType[*status.Said](err)
	return ok && strings.HasPrefix(strings.TrimPrefix(said.Text, status.Unavailable.String()+": "), prefix)
}

// isOfRoute reports whether a channel that ended or could not be made because of err tells
// something about its route: not that the peer cannot be called, stops, restarts, has chosen, or
// has removed this process from its cluster.
func (r *Router) isOfRoute(err error) bool {
	if _, unreached := errors.AsType[*handshake.UnreachedError](err); unreached {
		return false
	}
	switch status.CodeOf(err) {
	case status.Aborted, status.Cancelled:
		return false
	}
	return !errors.Is(err, handshake.ErrNotKnown) && !errors.Is(err, verbs.ErrDeviceGone) &&
		!handshake.IsStopping(r.cfg.Peer, err) && !handshake.IsChanging(r.cfg.Peer, err) && !handshake.IsRemoved(r.cfg.Own.Task, err) &&
		!IsInstead(r.cfg.Peer, err) && !IsLeaving(r.cfg.Peer, err)
}

// unknownReasons returns the reason against each route while the peer's inventory is not known.
func (r *Router) unknownReasons() []Reason {
	why := fmt.Sprintf("the devices of %v are not known yet", r.cfg.Peer)
	if r.askErr != nil {
		why += ": " + status.From(r.askErr).Message()
	}
	var all []Reason
	for _, k := range Routes {
		all = append(all, Reason{k, why})
	}
	return all
}

// NoRoute describes why no device reaches the peer, for a router that maintains nothing and knows
// the peer. Where both sides have no route in common, it names the devices of both and
// what to do.
func (r *Router) NoRoute(now time.Time) string {
	own, peer := r.sides(now)
	common := own.Inventory == nil || peer.Inventory == nil
	for _, k := range Routes {
		common = common || own.device(k) != nil && peer.device(k) != nil
	}
	if !common {
		return fmt.Sprintf("%s has %s (setting provider), %s has %s: give both one in common, for example auto", own.name(), own.providers(), peer.name(), peer.providers())
	}
	var whys []string
	for _, x := range r.Reasons(now) {
		if x.Why != neitherHas {
			whys = append(whys, x.Route.String()+": "+x.Why)
		}
	}
	return fmt.Sprintf("no device of this process reaches %v: %s", r.cfg.Peer, strings.Join(whys, "; "))
}

// providers lists the devices of a side by the names that the setting provider has for them.
func (s *Side) providers() string {
	var names []string
	for _, k := range Routes {
		switch d := s.device(k); {
		case d == nil:
		case k == Fabric && d.InKernel():
			names = append(names, "libibverbs")
		case k == Fabric:
			names = append(names, "roce")
		default:
			names = append(names, k.String())
		}
	}
	if names == nil {
		return "no device"
	}
	return strings.Join(names, ", ")
}

// short returns the text of an error as a device in an inventory may have it.
func short(err error) string {
	s := strings.ToValidUTF8(status.WithoutQPNs(status.From(err).Message()), "?")
	if len(s) <= handshake.MaxDeviceText {
		return s
	}
	const mark = "..."
	at := handshake.MaxDeviceText - len(mark)
	for !utf8.RuneStart(s[at]) {
		at--
	}
	return s[:at] + mark
}

// backoff is how long a route is not tried after as many failures in a row.
func backoff(failures int) time.Duration {
	wait := MinBackoff
	for range failures - 1 {
		if wait *= 2; wait >= MaxBackoff {
			return MaxBackoff
		}
	}
	return wait
}

// backOff sets the time of the next call after one that failed, as the handshake does.
func (r *Router) backOff(now time.Time, err error) {
	r.askFailures++
	wait := MaxAskBackoff
	if n := r.askFailures - 1; n < 8 && !handshake.WillStay(r.cfg.Own.Task, err) {
		wait = min(MinAskBackoff<<n, MaxAskBackoff)
	}
	r.nextAsk = now.Add(wait + time.Duration(r.cfg.Jitter()*float64(wait)/4))
}
