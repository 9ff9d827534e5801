package handshake

import (
	"bytes"
	"fmt"
	"net/netip"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/verbs"
)

// Vet says why an offer that a peer gave cannot be one: FailedPrecondition, whose
// meaning is that gRPC is used; nil when it can.
func Vet(o Offer) error {
	if why := flaw(o); why != "" {
		return status.Errorf(status.FailedPrecondition, "the offer of %v for a verbs channel cannot be used: %s", o.Task, why)
	}
	return nil
}

// flaw is what is wrong with an offer, in words.
func flaw(o Offer) string {
	if why := VersionFlaw(o.Version); why != "" {
		return why
	}
	switch {
	case o.Task == cluster.Task{}:
		return "it names no task"
	case o.Incarnation == 0:
		return "its incarnation is 0"
	case o.Bare() && o.Generation == 0:
		return "" // an introduction: Offer.Bare
	case o.Generation == 0 || o.Generation > MaxGeneration:
		return fmt.Sprintf("its generation is %d; it must be 1 to %d", o.Generation, uint64(MaxGeneration))
	case len(o.Rails) == 0 || len(o.Rails) > MaxRails:
		return fmt.Sprintf("it has %d rails; it must have 1 to %d", len(o.Rails), MaxRails)
	case o.Link != verbs.LinkInfiniBand && o.Link != verbs.LinkEthernet:
		return fmt.Sprintf("its link layer is %v", o.Link)
	case o.Link == verbs.LinkEthernet && o.GIDType != verbs.GIDTypeRoCEv1 && o.GIDType != verbs.GIDTypeRoCEv2:
		return fmt.Sprintf("its GID type on Ethernet is %v", o.GIDType)
	case o.Link == verbs.LinkInfiniBand && o.GIDType != verbs.GIDTypeIB:
		return fmt.Sprintf("its GID type on InfiniBand is %v", o.GIDType)
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
		if why := railFlaw(o.Link, r); why != "" {
			return fmt.Sprintf("rail %d: %s", i, why)
		}
		for _, before := range o.Rails[:i] {
			if before.QPN == r.QPN && before.GID == r.GID && before.LID == r.LID {
				return fmt.Sprintf("rail %d: queue pair %v is that of another rail, too", i, r.QPN)
			}
		}
	}
	return ""
}

// VersionFlaw says why this process cannot use the protocol version that a peer offers;
// "" when it can. What else an offer of such a peer says may have another meaning.
func VersionFlaw(version uint32) string {
	switch {
	case version == 0:
		return "it names no protocol version; the peer is no Tryst server with verbs"
	case version < MinVersion:
		return fmt.Sprintf("it speaks protocol version %d, and this process needs version %d at least; run the same release of Tryst on both sides", version, MinVersion)
	}
	return ""
}

// Numbers of queue pairs and packets have 24 bits (InfiniBand specification,
// volume 1, 9.2). Queue pairs 0 and 1 are the subnet's and the general services',
// and the last number stands for multicast (same, 3.5.10, 9.2.5).
const (
	minQPN = 2
	maxQPN = 1<<24 - 2
	maxPSN = 1<<24 - 1
)

// broadcast is every host of a network (RFC 919, section 7).
var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

func railFlaw(link verbs.LinkLayer, r Rail) string {
	switch {
	case r.QPN < minQPN || r.QPN > maxQPN:
		return fmt.Sprintf("no queue pair has the number %#x", uint32(r.QPN))
	case r.PSN > maxPSN:
		return fmt.Sprintf("the packet number %#x has more than 24 bits", uint32(r.PSN))
	case !r.MTU.Valid():
		return fmt.Sprintf("there is no MTU of %d bytes", r.MTU)
	case link == verbs.LinkEthernet && r.GID.IsZero():
		return "the GID is empty"
	case link == verbs.LinkEthernet && r.GID.Addr().IsMulticast():
		return fmt.Sprintf("the GID %v is that of a multicast group", r.GID)
	case link == verbs.LinkEthernet && r.GID.Addr() == broadcast:
		return fmt.Sprintf("the GID %v is that of all hosts (broadcast)", r.GID)
	case link == verbs.LinkEthernet && r.GID.Addr().IsUnspecified():
		return fmt.Sprintf("the GID %v is no host's (unspecified)", r.GID)
	case link == verbs.LinkInfiniBand && r.LID == 0:
		return "the LID is 0"
	case r.UDP.Port != 0 && len(r.UDP.Sources) == 0:
		return fmt.Sprintf("it takes packets on UDP port %d and names no port that they come from, so that anybody's would have to be taken", r.UDP.Port)
	case len(r.UDP.Sources) > MaxUDPSources:
		return fmt.Sprintf("it has %d UDP source ports; at most %d are taken", len(r.UDP.Sources), MaxUDPSources)
	}
	return ""
}

// Talk says why two sides cannot talk by verbs, FailedPrecondition naming both;
// nil when nothing speaks against it. Of own neither queue pairs nor generation
// matter, so it can be asked before there are any.
func Talk(own, peer Offer) error {
	if why := gap(own, peer); why != "" {
		return status.Errorf(status.FailedPrecondition, "%v and %v cannot talk by verbs: %s", own.Task, peer.Task, why)
	}
	return nil
}

func gap(own, peer Offer) string {
	if own.Link != peer.Link {
		return fmt.Sprintf("here is %v (%v), there %v (%v)", own.Link, gids(own), peer.Link, gids(peer))
	}
	if own.GIDType != peer.GIDType {
		return fmt.Sprintf("here is %v (%v), there %v (%v); choose GIDs of one type (--rdma-gid-index)", own.GIDType, gids(own), peer.GIDType, gids(peer))
	}
	sure := own.Host != 0 && peer.Host != 0
	for i := range min(len(own.Rails), len(peer.Rails)) {
		a, b := own.Rails[i], peer.Rails[i]
		switch own.GIDType {
		case verbs.GIDTypeIB:
			if !bytes.Equal(a.GID[:8], b.GID[:8]) {
				return fmt.Sprintf("here is the InfiniBand subnet %x, there %x", a.GID[:8], b.GID[:8])
			}
		case verbs.GIDTypeRoCEv2:
			ka, kb := scope(a.GID), scope(b.GID)
			switch {
			case ka.ip4 != kb.ip4 || ka.link != kb.link || ka.loopback != kb.loopback && (!sure || own.Host != peer.Host):
				return fmt.Sprintf("no route leads from GID %v here (%v) to %v there (%v); choose another (--rdma-device, --rdma-gid-index)", a.GID, ka, b.GID, kb)
			case ka.loopback && kb.loopback && sure && own.Host != peer.Host:
				return fmt.Sprintf("GID %v here and %v there are loopback, and of two hosts, or of two network namespaces; choose another (--rdma-device)", a.GID, b.GID)
			}
		}
		if inKernel(a) && offPort(b) || inKernel(b) && offPort(a) {
			return fmt.Sprintf("a device of the kernel sends to UDP port %d only; the one in user space takes %d here and %d there (0: a device of the kernel)",
				rocePort, a.UDP.Port, b.UDP.Port)
		}
	}
	return ""
}

// rocePort is the UDP port of RoCE v2 (InfiniBand specification, annex A17.3).
const rocePort = 4791

// inKernel says whether the rail is a NIC's or rxe's, which have no sockets.
func inKernel(r Rail) bool { return r.UDP.Port == 0 }

// offPort says whether the rail takes packets on a port that only devices in user
// space can send to.
func offPort(r Rail) bool { return r.UDP.Port != 0 && r.UDP.Port != rocePort }

// reach is where packets from an address get to. Within a host, one network namespace
// of it, any address reaches those of its loopback.
type reach struct {
	ip4            bool
	loopback, link bool // no further than the host, or the link
}

// scope is the reach of a RoCE v2 GID.
func scope(g verbs.GID) reach {
	a := g.Addr()
	return reach{ip4: a.Is4(), loopback: a.IsLoopback(), link: a.IsLinkLocalUnicast() && !a.Is4()}
}

func (r reach) String() string {
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
