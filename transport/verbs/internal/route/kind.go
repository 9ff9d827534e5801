package route

import "github.com/tryst-rdma/tryst/verbs"

// Kind is a kind of device. A process has at most one open device of each kind, and a peer is
// reached by at most one of them, but for the time of a change.
type Kind uint8

// The kinds, in the order of preference; Choose has the exceptions.
const (
	None   Kind = iota // no device reaches the peer: receives take gRPC
	Shared             // memory that two processes of a host share: verbs/shm
	Fabric             // RDMA: verbs/cgo or verbs/roce
	TCP                // verbs/tcp
)

// Kinds has all kinds of devices. Nobody changes it.
var Kinds = [...]Kind{Shared, Fabric, TCP}

// String returns the word for a kind in logs, metrics, reasons and reports. Where a kind has one
// provider, it is the provider's name.
func (k Kind) String() string {
	return [...]string{"none", "shm", "rdma", "tcp"}[min(k, TCP)]
}

// KindOf returns the kind of a device with a link layer; None for one that is not known.
func KindOf(l verbs.LinkLayer) Kind {
	switch l {
	case verbs.LinkInfiniBand, verbs.LinkEthernet:
		return Fabric
	case verbs.LinkTCP:
		return TCP
	case verbs.LinkShared:
		return Shared
	}
	return None
}

// Lanes is the number of lanes into which the kinds divide the generations of a peer
// (handshake.Config.Lanes): two kinds never take the same one.
const Lanes = uint64(len(Kinds))

// Lane is the lane of a kind (handshake.Config.Lane). Fabric takes 1, 4, 7, ...
func (k Kind) Lane() uint64 {
	switch k {
	case Fabric:
		return 1
	case TCP:
		return 2
	}
	return 0
}
