package handshake

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/verbs"
)

// Offer is one side's end of a channel, as the peer gets it: queue pairs in INIT with
// all receives posted. A channel is a pair of offers of the same generation. An offer
// does not change once it was shown, and a process never shows a peer two different
// offers of the same generation.
type Offer struct {
	Task        cluster.Task // the side that gives it
	Incarnation uint64       // of the process, not 0
	Version     uint32       // of the protocol; the channel uses the lower one of both sides
	Generation  uint64       // from 1; higher than that of any earlier offer to this process of the peer
	For         uint64       // in a call: incarnation of the process that the caller means; 0 for not known
	Host        uint64       // equal for processes that share a network namespace; 0 for not known

	// Inventory is nil in an offer of an older build. It is what its side shows at the time of the
	// call, and no part of the offer: Equal does not compare it.
	Inventory *Inventory

	// Rails are the queue pairs. The channel has as many rails as the shorter list. Rail i
	// of one side is connected to rail i of the other.
	Rails   []Rail
	Link    verbs.LinkLayer // of all rails
	GIDType verbs.GIDType   // of all rails

	Window      uint32 // receives posted on each rail, in messages
	ReceiveSize uint32 // bytes of each receive
	EagerLimit  uint32 // bytes of content that this side accepts within a message
	MaxMessage  uint32 // bytes of the longest message or write that the ports of this side carry
}

// Rail is one queue pair of an offer.
type Rail struct {
	verbs.Endpoint
	MTU verbs.MTU // path MTU of this side's port; the rail uses the lower one of both sides
}

// IsIntroduction reports whether the offer has no queue pairs. Such a response is an
// introduction: it names the process that responds. That process has not accepted the
// caller's incarnation yet, and will call the caller's address. A request without queue pairs
// asks for the inventory; an introduction is the response.
func (o Offer) IsIntroduction() bool { return len(o.Rails) == 0 }

// Introduction returns the introduction of a side, of which it takes name, version, incarnation
// and host. As a request it asks for the inventory.
func Introduction(self Offer) Offer {
	return Offer{Task: self.Task, Incarnation: self.Incarnation, Version: self.Version, Host: self.Host}
}

// Equal reports whether both are the same offer.
func (o Offer) Equal(p Offer) bool {
	return o.Task == p.Task && o.Incarnation == p.Incarnation && o.Version == p.Version && o.Generation == p.Generation && o.Host == p.Host &&
		slices.EqualFunc(o.Rails, p.Rails, Rail.equal) && o.Link == p.Link && o.GIDType == p.GIDType &&
		o.Window == p.Window && o.ReceiveSize == p.ReceiveSize && o.EagerLimit == p.EagerLimit && o.MaxMessage == p.MaxMessage
}

func (r Rail) equal(s Rail) bool {
	return r.QPN == s.QPN && r.PSN == s.PSN && r.GID == s.GID && r.LID == s.LID && r.MTU == s.MTU &&
		r.UDP.Port == s.UDP.Port && r.UDP.Buffer == s.UDP.Buffer && slices.Equal(r.UDP.Sources, s.UDP.Sources) && bytes.Equal(r.Data, s.Data)
}

func (o Offer) String() string {
	if o.IsIntroduction() {
		return fmt.Sprintf("introduction of %v (incarnation %016x)", o.Task, o.Incarnation)
	}
	rails := make([]string, len(o.Rails))
	for i, r := range o.Rails {
		rails[i] = r.String()
	}
	return fmt.Sprintf("generation %d of %v (incarnation %016x): %s", o.Generation, o.Task, o.Incarnation, strings.Join(rails, ", "))
}
