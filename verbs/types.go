package verbs

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
)

// QPN is a queue pair number: 24 bits, unique per device.
type QPN uint32

func (n QPN) String() string { return fmt.Sprintf("0x%06x", uint32(n)) }

// PSN is a packet sequence number: 24 bits, wrapping.
type PSN uint32

// RandomPSN returns an initial PSN that an attacker cannot guess: one that is not on the
// path would need it to forge a packet.
func RandomPSN() PSN {
	var b [4]byte
	rand.Read(b[:]) // never fails (crypto/rand)
	return PSN(binary.NativeEndian.Uint32(b[:]) & psnMask)
}

// psnMask covers the 24 bits of a PSN.
const psnMask = 1<<24 - 1

// LKey names a memory region in work requests of its own process.
type LKey uint32

// RKey grants the remote rights of a memory region or window. It is a capability: a peer
// with the key and a queue pair of the same protection domain can use it.
type RKey uint32

// LID is a local identifier of InfiniBand; 0 on Ethernet.
type LID uint16

// GID is the global identifier of a port: 16 bytes in network byte order. For RoCE v2 it is
// an IP address, with IPv4 as ::ffff:a.b.c.d.
type GID [16]byte

// GIDFromAddr returns the GID of a RoCE port with IP address a.
func GIDFromAddr(a netip.Addr) GID { return a.As16() }

// IsZero reports whether g is zero, as in an empty entry of a GID table.
func (g GID) IsZero() bool { return g == GID{} }

// Addr returns the IP address of a RoCE GID; an IPv4-mapped one as IPv4.
func (g GID) Addr() netip.Addr { return netip.AddrFrom16(g).Unmap() }

// Words returns the GID as in TensorFlow's bootstrap messages: subnet prefix and interface
// ID, each as the little-endian value of its 8 bytes. TensorFlow reads the union ibv_gid
// of <infiniband/verbs.h> that way on a little-endian host.
func (g GID) Words() (prefix, id uint64) {
	for i := range 8 {
		prefix |= uint64(g[i]) << (8 * i)
		id |= uint64(g[8+i]) << (8 * i)
	}
	return prefix, id
}

// GIDFromWords is the inverse of GID.Words.
func GIDFromWords(prefix, id uint64) GID {
	var g GID
	for i := range 8 {
		g[i] = byte(prefix >> (8 * i))
		g[8+i] = byte(id >> (8 * i))
	}
	return g
}

// String returns a dotted quad for an IPv4-mapped GID, else eight groups of hex digits as
// rdma(8) and ibv_devinfo(1) print them.
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

// GIDType is the packet format of a GID table entry.
type GIDType uint8

// The types in sysfs: /sys/class/infiniband/DEVICE/ports/PORT/gid_attrs/types/INDEX.
const (
	GIDTypeUnknown GIDType = iota
	GIDTypeIB              // InfiniBand; sysfs has "IB/RoCE v1"
	GIDTypeRoCEv1          // Ethernet frames of type 0x8915, not routable
	GIDTypeRoCEv2          // UDP port 4791 over IP
	// GIDTypeProcess is a random number of the device of a process (LinkTCP, LinkShared). It is
	// no address.
	GIDTypeProcess
)

func (t GIDType) String() string {
	return nameOf(t, "unknown", "InfiniBand", "RoCE v1", "RoCE v2", "process")
}

// GIDEntry is an entry of a port's GID table. Tables are sparse: Index is the position in
// the table, including empty entries.
type GIDEntry struct {
	Index int
	GID   GID
	Type  GIDType
}

// LinkLayer is the link layer of a port.
type LinkLayer uint8

// The values of IBV_LINK_LAYER_* in <infiniband/verbs.h>, and behind them those of devices that
// only this project has.
const (
	LinkUnspecified LinkLayer = iota
	LinkInfiniBand
	LinkEthernet
	LinkTCP    // verbs/tcp: queue pairs are TCP connections
	LinkShared // verbs/shm: memory that two processes of a host share
)

func (l LinkLayer) String() string {
	return nameOf(l, "unspecified", "InfiniBand", "Ethernet", "TCP", "shared memory")
}

// PortState is the logical state of a port.
type PortState uint8

// The values of IBV_PORT_* in <infiniband/verbs.h>.
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

// MTU is the maximum payload of a packet in bytes.
type MTU int

// The path MTUs of the specification (volume 1, 9.2.1).
const (
	MTU256  MTU = 256
	MTU512  MTU = 512
	MTU1024 MTU = 1024
	MTU2048 MTU = 2048
	MTU4096 MTU = 4096
)

// Valid reports whether m is one of these five.
func (m MTU) Valid() bool {
	return m == MTU256 || m == MTU512 || m == MTU1024 || m == MTU2048 || m == MTU4096
}

// Access is a set of rights to a memory region or window, or through a queue pair. The
// device may always read registered memory for its owner.
type Access uint8

// The rights of ibv_reg_mr(3).
const (
	AccessLocalWrite   Access = 1 << iota // the device may write: for receives, reads, and writes of peers
	AccessRemoteWrite                     // peers may write; needs AccessLocalWrite
	AccessRemoteRead                      // peers may read
	AccessRemoteAtomic                    // peers may execute atomics; needs AccessLocalWrite
	AccessBindWindow                      // memory windows may be bound to it
	// AccessRelaxedOrdering lets the device write to memory in any order before the
	// completion. A device without it ignores it.
	AccessRelaxedOrdering
)

// nameOf returns the name of v, or its number if it has none.
func nameOf[T ~uint8](v T, names ...string) string {
	if int(v) < len(names) && names[v] != "" {
		return names[v]
	}
	return fmt.Sprintf("%d", v)
}
