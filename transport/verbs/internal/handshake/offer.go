package handshake

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/verbs"
)

// Offer is one side's end of a channel, as it is shown to the peer: queue pairs
// in INIT with all their receives posted. A channel is a pair of offers with the
// same generation. An offer is never changed once it was shown, and a process
// never shows two different ones with the same generation to a peer.
type Offer struct {
	Task        cluster.Task // who gives it
	Incarnation uint64       // of that process, not 0
	Version     uint32       // of the protocol; of two sides the lower counts
	Generation  uint64       // from 1; higher than that of any offer to this peer before
	For         uint64       // in a call: incarnation of the process that is meant; 0 for not known
	Host        uint64       // what processes that share the network of a host have in common; 0 for not known

	// Rails are the queue pairs. The channel has as many as the side with fewer
	// offers; rail i of one side is connected to rail i of the other.
	Rails   []Rail
	Link    verbs.LinkLayer // of all rails
	GIDType verbs.GIDType   // of all rails

	Window      uint32 // receives that are posted on each rail, in messages
	ReceiveSize uint32 // bytes that each of them holds
	EagerLimit  uint32 // bytes of content that the giver takes within a message
	MaxMessage  uint32 // bytes of the longest message or write that the giver's ports take
}

// Rail is one queue pair of an offer.
type Rail struct {
	verbs.Endpoint
	MTU verbs.MTU // path MTU that the giver's port has; of two the lower counts
}

// Bare reports whether the offer has no queue pairs. As an answer it is an
// introduction: it says which process is there, and that this process does not
// believe the caller's name yet and will call it.
func (o Offer) Bare() bool { return len(o.Rails) == 0 }

// Equal reports whether both are the same offer.
func (o Offer) Equal(p Offer) bool {
	return o.Task == p.Task && o.Incarnation == p.Incarnation && o.Version == p.Version && o.Generation == p.Generation && o.Host == p.Host &&
		slices.EqualFunc(o.Rails, p.Rails, Rail.equal) && o.Link == p.Link && o.GIDType == p.GIDType &&
		o.Window == p.Window && o.ReceiveSize == p.ReceiveSize && o.EagerLimit == p.EagerLimit && o.MaxMessage == p.MaxMessage
}

func (r Rail) equal(s Rail) bool {
	return r.QPN == s.QPN && r.PSN == s.PSN && r.GID == s.GID && r.LID == s.LID && r.MTU == s.MTU &&
		r.UDP.Port == s.UDP.Port && r.UDP.Buffer == s.UDP.Buffer && slices.Equal(r.UDP.Sources, s.UDP.Sources)
}

func (o Offer) String() string {
	if o.Bare() {
		return fmt.Sprintf("introduction of %v (incarnation %016x)", o.Task, o.Incarnation)
	}
	rails := make([]string, len(o.Rails))
	for i, r := range o.Rails {
		rails[i] = r.String()
	}
	return fmt.Sprintf("generation %d of %v (incarnation %016x): %s", o.Generation, o.Task, o.Incarnation, strings.Join(rails, ", "))
}
