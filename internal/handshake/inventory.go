package handshake

import (
	"fmt"
	"slices"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
)

// Inventory is what a side shows of itself beside an offer: its devices, and what decides whether
// a device reaches the peer. It may change from call to call. Package route chooses a device by
// the inventories of both sides.
type Inventory struct {
	User    uint64   // equal for processes of one host, one user namespace and one user; 0 for not known
	TLS     TLS      // of its gRPC; never 0
	Serial  uint64   // grows with each inventory that a process shows to a peer; 0 for not counted
	Devices []Device // at most MaxDevices; for each route the first one counts
}

// TLS says how far a side's gRPC connections are protected.
type TLS uint8

// The values of the field tls (PROTOCOL.md section 9). 0 means an older build.
const (
	NoTLS     TLS = iota + 1
	ServerTLS     // the server proves its name
	MutualTLS     // both sides prove their names
)

func (t TLS) String() string {
	return [...]string{"an unknown TLS", "no TLS", "TLS", "mutual TLS"}[min(t, MutualTLS)]
}

// Device is a device of a side, as the peer gets it. Fields of other link layers are zero.
type Device struct {
	Link verbs.LinkLayer

	// InfiniBand and Ethernet.
	GIDType verbs.GIDType
	GIDs    []verbs.GID // that its port may use, that in use first; at most MaxReach
	UDPPort uint16      // on which a device in user space takes packets; 0 for one behind the kernel
	Asked   bool        // the user has named this device in user space

	// Addresses has the addresses that the peer can dial (TCP), as "host:port"; at most MaxReach,
	// none when the process cannot be reached.
	Addresses []string
	// Directory is equal for processes that see the same directory for sockets (shared
	// memory); 0 for none.
	Directory uint64

	// FailedFor is how long the route by this device is not tried with this peer, since it has
	// failed because of FailedWhy; 0 when it has not failed.
	FailedFor time.Duration
	FailedWhy string
}

// InKernel reports whether a device of InfiniBand or Ethernet is behind the kernel: a NIC or rxe.
func (d *Device) InKernel() bool {
	return d.Link == verbs.LinkInfiniBand || d.Link == verbs.LinkEthernet && d.UDPPort == 0
}

// SameReach reports whether both devices are the same but for failures.
func (d *Device) SameReach(e *Device) bool {
	return d.Link == e.Link && d.GIDType == e.GIDType && slices.Equal(d.GIDs, e.GIDs) && d.UDPPort == e.UDPPort && d.Asked == e.Asked &&
		slices.Equal(d.Addresses, e.Addresses) && d.Directory == e.Directory
}

// InventoryProblem describes what is wrong with the inventory of a peer; empty when nothing is.
func InventoryProblem(v *Inventory) string {
	if n := len(v.Devices); n > MaxDevices {
		return fmt.Sprintf("it has %d devices; at most %d are allowed", n, MaxDevices)
	}
	for i := range v.Devices {
		d := &v.Devices[i]
		switch {
		case len(d.GIDs) > MaxReach || len(d.Addresses) > MaxReach:
			return fmt.Sprintf("device %d has %d GIDs and %d addresses; at most %d of each are allowed", i, len(d.GIDs), len(d.Addresses), MaxReach)
		case slices.ContainsFunc(append(slices.Clip(d.Addresses), d.FailedWhy), func(s string) bool { return len(s) > MaxDeviceText }):
			return fmt.Sprintf("a string of device %d has more than %d bytes", i, MaxDeviceText)
		case d.FailedFor < 0 || d.FailedFor > MaxFailedFor:
			return fmt.Sprintf("device %d has failed for %v; it may be at most %v", i, d.FailedFor, MaxFailedFor)
		}
	}
	return ""
}

// Mismatch describes why two sides have no path to each other; empty when they may have one.
// Of own and peer it reads what Compatible reads.
func Mismatch(own, peer Offer) string { return mismatch(own, peer) }
