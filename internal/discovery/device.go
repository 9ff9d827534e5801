package discovery

import (
	"fmt"
	"net/netip"

	"github.com/tryst-rdma/tryst/verbs"
)

// Inventory is what there is for RDMA on a host. Devices and Netdevs are in the
// order of their names, numbers in them by value (mlx5_2 before mlx5_10).
type Inventory struct {
	Devices []Device
	Netdevs []Netdev
	// Problems are what could not be read and belongs to no device. The
	// inventory is right without it, but says less.
	Problems []error
}

// Device is an RDMA device of the kernel.
type Device struct {
	Name     string // as in /sys/class/infiniband
	NodeGUID uint64 // 0 on many virtual functions
	NodeType NodeType
	Driver   string // the PCI driver ("mlx5_core"), "rxe", "siw" or "roce"; "" unknown
	PCI      string // "0000:3b:00.0"; "" when it is on no PCI bus
	Model    string // hca_type: "MT4119"
	Firmware string
	NUMA     int    // -1: none, or the machine has one node
	Uverbs   string // the node under /dev/infiniband: "uverbs0"; "" when there is none
	Virtual  bool   // an SR-IOV virtual function
	Ports    []Port
	// Problems are what could not be read of it.
	Problems []error
}

// Software reports whether the device is made of software on a netdev: Soft-RoCE or
// Soft-iWARP of the kernel, or RoCE in this process.
func (d *Device) Software() bool {
	return d.Driver == driverRxe || d.Driver == driverSiw || d.Driver == driverRoCE
}

// Port returns the port of that number, or nil.
func (d *Device) Port(number uint8) *Port {
	for i := range d.Ports {
		if d.Ports[i].Number == number {
			return &d.Ports[i]
		}
	}
	return nil
}

// The drivers that make a device of a netdev. They show no PCI device in sysfs;
// their devices have the name of the driver in hca_type or parent.
const (
	driverRxe = "rxe"
	driverSiw = "siw"
)

// driverRoCE stands for a provider of this process, which the kernel knows nothing of.
const driverRoCE = "roce"

// NodeType is what kind of device it is: enum rdma_node_type of the kernel.
type NodeType uint8

// The node types of sysfs, class/infiniband/X/node_type.
const (
	NodeUnknown     NodeType = 0
	NodeCA          NodeType = 1 // InfiniBand or RoCE
	NodeSwitch      NodeType = 2
	NodeRouter      NodeType = 3
	NodeRNIC        NodeType = 4 // iWARP
	NodeUsnic       NodeType = 5
	NodeUsnicUDP    NodeType = 6
	NodeUnspecified NodeType = 7 // EFA and others with transports of their own
)

func (t NodeType) String() string {
	names := [...]string{"unknown", "CA", "switch", "router", "iWARP", "usNIC", "usNIC UDP", "unspecified"}
	if int(t) < len(names) {
		return names[t]
	}
	return fmt.Sprintf("%d", uint8(t))
}

// Port is a port of a device.
type Port struct {
	Number   uint8 // from 1
	State    verbs.PortState
	Physical string // the physical state in the kernel's words: "LinkUp", "Disabled"
	Link     verbs.LinkLayer
	LID      verbs.LID // 0 on Ethernet, and without a subnet manager
	Rate     Rate
	// Netdev is the port's own network device; "" when it has none here (an
	// InfiniBand port without IPoIB, a netdev in another namespace).
	Netdev string
	// ActiveMTU is the largest path MTU that works, 0 when it is not known
	// before the device is opened: sysfs does not have it. On Ethernet it
	// follows from the netdev's MTU.
	ActiveMTU verbs.MTU
	// GIDs are the entries that are not empty, by index.
	GIDs []GID
	// TableSize counts the entries, empty ones included.
	TableSize int
}

// GID is an entry of a port's GID table with the netdev that it belongs to.
type GID struct {
	verbs.GIDEntry
	Netdev string // "" on InfiniBand, and when the kernel does not say
}

func (g GID) String() string {
	return fmt.Sprintf("GID %d (%s, %s)", g.Index, g.GID, g.Type)
}

// Rate is the speed of a port.
type Rate struct {
	Mbps int64  // 10^6 bits a second; 0 unknown
	Text string // "100 Gb/sec (4X EDR)"
}

// Netdev is a network device, as far as RDMA cares.
type Netdev struct {
	Name   string
	MTU    int // bytes
	Up     bool
	State  string // operstate: "up", "down", "unknown"
	Bond   bool   // it is a bond
	Master string // the bond or bridge that it is a part of; "" for none
	// Addrs are its addresses with their prefixes.
	Addrs []netip.Prefix

	hardware []byte // 20 bytes on IPoIB: the last 8 are the port's GUID
}

// Device finds a device by its name, or nil.
func (inv *Inventory) Device(name string) *Device {
	for i := range inv.Devices {
		if inv.Devices[i].Name == name {
			return &inv.Devices[i]
		}
	}
	return nil
}

// Netdev finds a network device by its name, or nil.
func (inv *Inventory) Netdev(name string) *Netdev {
	for i := range inv.Netdevs {
		if inv.Netdevs[i].Name == name {
			return &inv.Netdevs[i]
		}
	}
	return nil
}

// holder is the netdev that has the address, or nil.
func (inv *Inventory) holder(a netip.Addr) *Netdev {
	for i := range inv.Netdevs {
		for _, p := range inv.Netdevs[i].Addrs {
			if p.Addr().WithZone("") == a {
				return &inv.Netdevs[i]
			}
		}
	}
	return nil
}
