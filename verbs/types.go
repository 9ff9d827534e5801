package verbs

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
)

// QPN is a queue pair number: 24 bits, unique on its device.
type QPN uint32

func (n QPN) String() string { return fmt.Sprintf("0x%06x", uint32(n)) }

// PSN is a packet sequence number: 24 bits, and wraps.
type PSN uint32

// RandomPSN is one to begin with, which nobody can guess: who is not on the path has to
// hit it to forge a packet.
func RandomPSN() PSN {
	var b [4]byte
	rand.Read(b[:]) // it never fails
	return PSN(binary.NativeEndian.Uint32(b[:]) & psnMask)
}

// psnMask has a packet sequence number's 24 bits.
const psnMask = 1<<24 - 1

// LKey names a memory region in the work requests of its own side.
type LKey uint32

// RKey gives a peer the remote rights of a memory region. It is a capability:
// who has it and a queue pair of the same protection domain can use it.
type RKey uint32

// LID is an InfiniBand local identifier; 0 on Ethernet.
type LID uint16

// GID is a port's global identifier, 16 bytes in network byte order. For RoCE v2
// it is an IP address, IPv4 as ::ffff:a.b.c.d.
type GID [16]byte

// GIDFromAddr is the GID of a RoCE port with that IP address.
func GIDFromAddr(a netip.Addr) GID { return a.As16() }

// IsZero reports whether the GID is an empty entry of a table.
func (g GID) IsZero() bool { return g == GID{} }

// Addr is the IP address that a RoCE GID is; IPv4 where it is IPv4-mapped.
func (g GID) Addr() netip.Addr { return netip.AddrFrom16(g).Unmap() }

// Words are the GID as TensorFlow's bootstrap has it: subnet prefix and
// interface id, each its 8 bytes read as a little-endian word, which is how the
// union in <infiniband/verbs.h> looks on the machines that it runs on.
func (g GID) Words() (prefix, id uint64) {
	for i := range 8 {
		prefix |= uint64(g[i]) << (8 * i)
		id |= uint64(g[8+i]) << (8 * i)
	}
	return prefix, id
}

// GIDFromWords undoes Words.
func GIDFromWords(prefix, id uint64) GID {
	var g GID
	for i := range 8 {
		g[i] = byte(prefix >> (8 * i))
		g[8+i] = byte(id >> (8 * i))
	}
	return g
}

// String is the address for RoCE v2 over IPv4, else eight groups of hex, as
// `rdma` and `ibv_devinfo -v` print it.
func (g GID) String() string {
	if a := g.Addr(); a.Is4() {
		return a.String()
	}
	b := make([]byte, 0, 39)
	for i := 0; i < 16; i += 2 {
		if i > 0 {
			b = append(b, ':')
		}
		b = hex.AppendEncode(b, g[i:i+2])
	}
	return string(b)
}

// GIDType says which packets a GID gives.
type GIDType uint8

// The types of sysfs, ports/P/gid_attrs/types/I.
const (
	GIDTypeUnknown GIDType = iota
	GIDTypeIB              // InfiniBand: "IB/RoCE v1" on an InfiniBand port
	GIDTypeRoCEv1          // Ethernet frames of their own type, within one L2 segment
	GIDTypeRoCEv2          // UDP port 4791 over IP
)

func (t GIDType) String() string {
	return nameOf(t, "unknown", "InfiniBand", "RoCE v1", "RoCE v2")
}

// GIDEntry is one entry of a port's GID table. Tables are sparse.
type GIDEntry struct {
	Index int
	GID   GID
	Type  GIDType
}

// LinkLayer is what a port is wired to.
type LinkLayer uint8

// The link layers of <infiniband/verbs.h>, IBV_LINK_LAYER_*.
const (
	LinkUnspecified LinkLayer = iota
	LinkInfiniBand
	LinkEthernet
)

func (l LinkLayer) String() string { return nameOf(l, "unspecified", "InfiniBand", "Ethernet") }

// PortState is the logical state of a port.
type PortState uint8

// The port states of <infiniband/verbs.h>, IBV_PORT_*.
const (
	PortNop PortState = iota
	PortDown
	PortInit
	PortArmed
	PortActive
	PortActiveDefer
)

func (s PortState) String() string {
	return nameOf(s, "no state", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER")
}

// MTU is the payload of one packet in bytes.
type MTU int

// The path MTUs that the InfiniBand specification knows (volume 1, 9.2.1 and
// table 45: IBV_MTU_*).
const (
	MTU256  MTU = 256
	MTU512  MTU = 512
	MTU1024 MTU = 1024
	MTU2048 MTU = 2048
	MTU4096 MTU = 4096
)

// Valid reports whether m is one of the five path MTUs.
func (m MTU) Valid() bool {
	return m == MTU256 || m == MTU512 || m == MTU1024 || m == MTU2048 || m == MTU4096
}

// Access is what may be done with a memory region, or through a queue pair.
// Reading by the owner is always allowed.
type Access uint8

// The rights of ibv_reg_mr(3).
const (
	AccessLocalWrite   Access = 1 << iota // the device may write: receives, reads, and what peers write
	AccessRemoteWrite                     // peers may write; needs AccessLocalWrite
	AccessRemoteRead                      // peers may read
	AccessRemoteAtomic                    // peers may do atomics; needs AccessLocalWrite
	AccessBindWindow                      // memory windows may be bound to it
	// AccessRelaxedOrdering lets the device order its writes to memory as it
	// likes before the completion. A device without it passes it over.
	AccessRelaxedOrdering
)

// nameOf is the name of a small enumeration's value.
func nameOf[T ~uint8](v T, names ...string) string {
	if int(v) < len(names) && names[v] != "" {
		return names[v]
	}
	return fmt.Sprintf("%d", v)
}
