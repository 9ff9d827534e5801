package verbstransport_test

import (
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/discovery"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
	"github.com/tryst-rdma/tryst/verbs"
)

// preferring returns options with which the task of that index prefers its IPv6 address, and
// the other one IPv4. Both may use the other family, unless fixed.
func preferring(index int, fixed bool) clusterOptions {
	return clusterOptions{tune: func(task cluster.Task, o *verbstransport.Options) {
		if !fixed {
			o.Again = discovery.Again
		}
		if task.Index != index {
			return
		}
		gids, _ := o.Device.GIDs(1) // without them no family is preferred, and the tests fail
		for _, g := range gids {
			if !g.GID.Addr().Is4() {
				o.Address = g
			}
		}
	}}
}

// TestTwoFamiliesMeet: hosts that prefer different families and have both get a channel,
// whichever side prefers which, and although both call.
func TestTwoFamiliesMeet(t *testing.T) {
	for index := range 2 {
		p := newPair(t, preferring(index, false))
		p.until("verbs", isUp)
		p.exchange()
		if l := p.connection(); l.Stats.Received != 1 {
			t.Errorf("task %d prefers IPv6: %+v; want a tensor over verbs", index, l)
		}
	}
}

// TestCallerTriesTheFamilyOfThePeer: a peer with one family is reached by it, although the
// calling side prefers the other.
func TestCallerTriesTheFamilyOfThePeer(t *testing.T) {
	p := newPair(t, preferring(0, false))
	p.until("verbs", isUp)
	p.nic(p.from).SetGID(1, 0, verbs.GID{}) // the address of the link: IPv4 is left
	p.exchange()
	p.until("verbs", isUp)
	p.exchange()
}

// TestChosenAddressIsKept: an address that the user has chosen is not changed for a peer.
func TestChosenAddressIsKept(t *testing.T) {
	p := newPair(t, preferring(0, true))
	p.until("no route", func(l verbstransport.Connection) bool {
		return !l.Verbs && l.Reason != nil && strings.Contains(l.Reason.Error(), "no route leads")
	})
	p.exchange()
}
