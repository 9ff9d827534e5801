package route

import "github.com/tryst-rdma/tryst/verbs"

// Route is what carries the tensors of a peer: a device, or None for gRPC. A process has at most
// one open device for each. A peer is reached by at most one, but for the time of a change.
type Route uint8

// The routes, in the order of preference; Choose has the exceptions.
const (
	None   Route = iota // no device reaches the peer: receives take gRPC
	Shared              // memory that two processes of a host share: verbs/shm
	Fabric              // RDMA: verbs/cgo or verbs/roce
	TCP                 // verbs/tcp
)

// Routes has all routes. Nobody changes it.
var Routes = [...]Route{Shared, Fabric, TCP}

// String returns the word for a route in logs, metrics, reasons and reports. Where a route has one
// provider, it is the provider's name.
func (k Route) String() string {
	return [...]string{"none", "shm", "rdma", "tcp"}[min(k, TCP)]
}

// Of returns the route of a device with a link layer; None for one that is not known.
func Of(l verbs.LinkLayer) Route {
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

// Lanes is the number of lanes into which the routes divide the generations of a peer
// (handshake.Config.Lanes): two routes never take the same one.
const Lanes = uint64(len(Routes))

// Lane is the lane of a route (handshake.Config.Lane). Fabric takes 1, 4, 7, ...
func (k Route) Lane() uint64 {
	switch k {
	case Fabric:
		return 1
	case TCP:
		return 2
	}
	return 0
}
