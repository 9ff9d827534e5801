package handshake

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/verbs"
)

// Validate checks an offer of a peer. Its error is FailedPrecondition, which makes the
// peer use gRPC.
func Validate(o Offer) error {
	if why := problem(o); why != "" {
		return status.Errorf(status.FailedPrecondition, "the offer of %v for a verbs channel cannot be used: %s", o.Task, why)
	}
	return nil
}

// problem describes what is wrong with an offer; empty when nothing is.
func problem(o Offer) string {
	if why := VersionProblem(o.Version); why != "" {
		return why
	}
	switch {
	case o.Task == cluster.Task{}:
		return "it names no task"
	case o.Incarnation == 0:
		return "its incarnation is 0"
	case o.IsIntroduction() && o.Generation == 0:
		return "" // an introduction: Offer.IsIntroduction
	case o.Generation == 0 || o.Generation > MaxGeneration:
		return fmt.Sprintf("its generation is %d; it must be 1 to %d", o.Generation, uint64(MaxGeneration))
	case len(o.Rails) == 0 || len(o.Rails) > MaxRails:
		return fmt.Sprintf("it has %d rails; it must have 1 to %d", len(o.Rails), MaxRails)
	case o.Link < verbs.LinkInfiniBand || o.Link > verbs.LinkShared:
		return fmt.Sprintf("its link layer is %v", o.Link)
	case o.Link == verbs.LinkEthernet && o.GIDType != verbs.GIDTypeRoCEv1 && o.GIDType != verbs.GIDTypeRoCEv2:
		return fmt.Sprintf("its GID type on Ethernet is %v", o.GIDType)
	case o.Link == verbs.LinkInfiniBand && o.GIDType != verbs.GIDTypeIB:
		return fmt.Sprintf("its GID type on InfiniBand is %v", o.GIDType)
	case o.ofProcess() && o.GIDType != verbs.GIDTypeProcess:
		return fmt.Sprintf("its GID type on %v is %v", o.Link, o.GIDType)
	case o.Window < MinWindow || o.Window > MaxWindow:
		return fmt.Sprintf("its window is %d messages; it must be %d to %d", o.Window, MinWindow, MaxWindow)
	case o.ReceiveSize < MinReceiveSize || o.ReceiveSize > MaxReceiveSize:
		return fmt.Sprintf("its receives hold %d bytes; they must hold %d to %d", o.ReceiveSize, MinReceiveSize, MaxReceiveSize)
	case o.EagerLimit > o.ReceiveSize:
		return fmt.Sprintf("its eager limit is %d bytes, and its receives hold %d", o.EagerLimit, o.ReceiveSize)
	case o.MaxMessage < o.ReceiveSize:
		return fmt.Sprintf("its ports take messages of %d bytes, and its receives hold %d", o.MaxMessage, o.ReceiveSize)
	}
	for i, r := range o.Rails {
		if why := railProblem(o.Link, r); why != "" {
			return fmt.Sprintf("rail %d: %s", i, why)
		}
		for _, before := range o.Rails[:i] {
			if before.QPN == r.QPN && before.GID == r.GID && before.LID == r.LID {
				return fmt.Sprintf("rail %d: queue pair %v is also that of another rail", i, r.QPN)
			}
		}
	}
	return ""
}

// ofProcess reports whether the offer is of a device whose queue pairs connect by Endpoint.Data: TCP
// or shared memory.
func (o Offer) ofProcess() bool { return o.Link == verbs.LinkTCP || o.Link == verbs.LinkShared }

// VersionProblem describes why this process cannot use the protocol version of a peer;
// empty when it can. Check it first: in another version other fields may have another
// meaning.
func VersionProblem(version uint32) string {
	switch {
	case version == 0:
		return "it names no protocol version; the peer is not a Tryst server with verbs"
	case version < MinVersion:
		return fmt.Sprintf("it speaks protocol version %d, and this process needs version %d at least; run the same release of Tryst on both sides", version, MinVersion)
	}
	return ""
}

// Queue pair numbers and packet sequence numbers have 24 bits (InfiniBand specification,
// volume 1, 9.2). Queue pairs 0 and 1 are reserved for subnet management and general
// services, and the highest number for multicast (same, 3.5.10, 9.2.5).
const (
	minQPN = 2
	maxQPN = 1<<24 - 2
	maxPSN = 1<<24 - 1
)

// broadcast is the address of all hosts of a network (RFC 919, section 7).
var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

func railProblem(link verbs.LinkLayer, r Rail) string {
	switch {
	case r.QPN < minQPN || r.QPN > maxQPN:
		return fmt.Sprintf("no queue pair has the number %#x", uint32(r.QPN))
	case r.PSN > maxPSN:
		return fmt.Sprintf("the packet sequence number %#x has more than 24 bits", uint32(r.PSN))
	case !r.MTU.Valid():
		return fmt.Sprintf("there is no MTU of %d bytes", r.MTU)
	case link != verbs.LinkInfiniBand && r.GID.IsZero():
		return "the GID is empty"
	case link == verbs.LinkEthernet && r.GID.Addr().IsMulticast():
		return fmt.Sprintf("the GID %v is of a multicast group", r.GID)
	case link == verbs.LinkEthernet && r.GID.Addr() == broadcast:
		return fmt.Sprintf("the GID %v is the broadcast address", r.GID)
	case link == verbs.LinkEthernet && r.GID.Addr().IsUnspecified():
		return fmt.Sprintf("the GID %v is the unspecified address", r.GID)
	case link == verbs.LinkInfiniBand && r.LID == 0:
		return "the LID is 0"
	case len(r.Data) > verbs.MaxEndpointData:
		return fmt.Sprintf("its data has %d bytes; at most %d are allowed", len(r.Data), verbs.MaxEndpointData)
	case r.UDP.Port != 0 && len(r.UDP.Sources) == 0:
		return fmt.Sprintf("it takes packets on UDP port %d and names no port that they come from, so packets of any sender would have to be accepted", r.UDP.Port)
	case len(r.UDP.Sources) > MaxUDPSources:
		return fmt.Sprintf("it has %d UDP source ports; at most %d are allowed", len(r.UDP.Sources), MaxUDPSources)
	}
	return ""
}

// Compatible checks whether two sides have a path to each other. Its error names both, since
// the peer quotes it. It is FailedPrecondition, or Unavailable when a side is on loopback and
// the other is not, or on another host: a process takes loopback while it has no other address, and
// changes to one that comes. Queue pair numbers and generation of own do not matter, so it can
// be called before own has queue pairs.
func Compatible(own, peer Offer) error {
	why := mismatch(own, peer)
	if why == "" {
		return nil
	}
	code := status.FailedPrecondition
	if own.onLoopback() != peer.onLoopback() || own.onLoopback() && own.Host != peer.Host {
		code = status.Unavailable
	}
	return status.Errorf(code, "%v and %v cannot talk by verbs: %s", own.Task, peer.Task, why)
}

// onLoopback reports whether the address of the first rail is loopback.
func (o Offer) onLoopback() bool {
	return o.GIDType == verbs.GIDTypeRoCEv2 && len(o.Rails) > 0 && scopeOf(o.Rails[0].GID).loopback
}

// Meets reports whether the sides could have a path to each other if own had another GID.
func Meets(own, peer Offer, gid verbs.GID) bool {
	own.Rails = slices.Clone(own.Rails)
	for i := range own.Rails {
		own.Rails[i].GID = gid
	}
	return mismatch(own, peer) == ""
}

// SameScope reports whether addresses of RoCE v2 have the same family and reach.
func SameScope(a, b verbs.GID) bool { return scopeOf(a) == scopeOf(b) }

// mismatch describes why two sides have no path to each other; empty when they may have one.
func mismatch(own, peer Offer) string {
	if own.Link != peer.Link {
		return fmt.Sprintf("%v has %v (%v), %v has %v (%v)", own.Task, own.Link, gids(own), peer.Task, peer.Link, gids(peer))
	}
	if own.GIDType != peer.GIDType {
		return fmt.Sprintf("%v has %v (%v), %v has %v (%v); choose GIDs of one type (the setting rdma.gid-index)", own.Task, own.GIDType, gids(own), peer.Task, peer.GIDType, gids(peer))
	}
	hostsKnown := own.Host != 0 && peer.Host != 0
	for i := range min(len(own.Rails), len(peer.Rails)) {
		a, b := own.Rails[i], peer.Rails[i]
		switch own.GIDType {
		case verbs.GIDTypeIB:
			if !bytes.Equal(a.GID[:8], b.GID[:8]) {
				return fmt.Sprintf("%v is in the InfiniBand subnet %x, %v in %x", own.Task, a.GID[:8], peer.Task, b.GID[:8])
			}
		case verbs.GIDTypeRoCEv2:
			sa, sb := scopeOf(a.GID), scopeOf(b.GID)
			switch {
			case sa.ip4 != sb.ip4 || sa.link != sb.link || sa.loopback != sb.loopback && (!hostsKnown || own.Host != peer.Host):
				return fmt.Sprintf("no route leads from GID %v of %v (%v) to %v of %v (%v); choose another (the settings rdma.device, rdma.gid-index)", a.GID, own.Task, sa, b.GID, peer.Task, sb)
			case sa.loopback && sb.loopback && hostsKnown && own.Host != peer.Host:
				return fmt.Sprintf("GID %v of %v and %v of %v are loopback, and of two hosts, or of two network namespaces; choose another (the setting rdma.device)", a.GID, own.Task, b.GID, peer.Task)
			}
		}
		if inKernel(a) && offPort(b) || inKernel(b) && offPort(a) {
			return fmt.Sprintf("a device behind the kernel sends to UDP port %d only; that of %v takes %d, that of %v %d (0: a device behind the kernel)",
				rocePort, own.Task, a.UDP.Port, peer.Task, b.UDP.Port)
		}
	}
	return ""
}

// rocePort is the UDP port of RoCE v2 (InfiniBand specification, annex A17.3).
const rocePort = 4791

// inKernel reports whether the device of the rail is behind the kernel: a NIC or rxe.
func inKernel(r Rail) bool { return r.UDP.Port == 0 }

// offPort reports whether the rail takes packets on a port that only devices in user
// space send to.
func offPort(r Rail) bool { return r.UDP.Port != 0 && r.UDP.Port != rocePort }

// scope is how far packets from an address get. Within one network namespace any address
// reaches the loopback addresses.
type scope struct {
	ip4            bool
	loopback, link bool // no further than the host, or the link
}

// scopeOf returns the scope of a RoCE v2 GID.
func scopeOf(g verbs.GID) scope {
	a := g.Addr()
	return scope{ip4: a.Is4(), loopback: a.IsLoopback(), link: a.IsLinkLocalUnicast() && !a.Is4()}
}

func (r scope) String() string {
	family := "IPv6"
	if r.ip4 {
		family = "IPv4"
	}
	switch {
	case r.loopback:
		return family + " loopback"
	case r.link:
		return family + " of one link"
	}
	return family
}

func gids(o Offer) []verbs.GID {
	all := make([]verbs.GID, len(o.Rails))
	for i, r := range o.Rails {
		all[i] = r.GID
	}
	return all
}
