package discovery

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/tryst-rdma/tryst/verbs"
)

// Netlink is what the kernel tells about RDMA devices by netlink and not, or not
// so surely, by sysfs.
type Netlink interface {
	// Devices lists the devices. An error with verbs.ErrUnavailable says that the
	// kernel has no RDMA; without devices the list is empty.
	Devices() ([]NetlinkDevice, error)
	// Ports lists the ports of a device.
	Ports(index uint32) ([]NetlinkPort, error)
	// Objects counts the objects of a device by their kind, as the kernel names
	// it: "qp", "cq", "mr", "pd", "cm_id", "ctx", "srq".
	Objects(index uint32) (map[string]uint64, error)
	// Driver tells the driver's number and the node under /dev/infiniband.
	Driver(index uint32) (NetlinkDriver, error)
	// Exclusive reports whether a device belongs to one network namespace
	// (`rdma system show netns`).
	Exclusive() (bool, error)
	// PFC tells how a netdev pauses priorities; errors.ErrUnsupported when it
	// does not tell.
	PFC(netdev string) (PFC, error)
}

// NetlinkDevice is a device as netlink has it.
type NetlinkDevice struct {
	Index    uint32 // names it in further requests
	Name     string
	NodeGUID uint64
	Ports    uint32 // how many; numbered from 1
	Firmware string
	Protocol string // "ib", "roce", "iw"; "" from kernels before 5.4
}

// NetlinkPort is a port as netlink has it.
type NetlinkPort struct {
	Number   uint32
	State    verbs.PortState
	Physical uint8
	LID      uint32
	Netdev   string // "" when it has none in this namespace
}

// NetlinkDriver is enum rdma_driver_id of <rdma/ib_user_ioctl_verbs.h>, and a node.
type NetlinkDriver struct {
	ID   uint64
	Node string // "uverbs0"
}

// The drivers that are made of software.
const (
	driverIDRxe = 14
	driverIDSiw = 18
)

// The commands and attributes of <rdma/rdma_netlink.h> that are used here.
const (
	rdmaNLDev = 5 // RDMA_NL_NLDEV, above the command at bit 10

	cmdGet        = 1
	cmdPortGet    = 5
	cmdSysGet     = 6
	cmdResGet     = 9
	cmdGetChardev = 15

	attrDevIndex    = 1
	attrDevName     = 2
	attrPortIndex   = 3 // in answers to cmdGet the number of ports
	attrFirmware    = 5
	attrNodeGUID    = 6
	attrLID         = 9
	attrPortState   = 12
	attrPhysState   = 13
	attrResSummary  = 15
	attrResEntry    = 16
	attrResName     = 17
	attrResCurrent  = 18
	attrNetdevName  = 51
	attrNetnsMode   = 66
	attrProtocol    = 67
	attrChardevType = 69
	attrChardevName = 70
	attrDriverID    = 73
)

// An attribute of netlink has its length and its type in front, two bytes each in
// the order of the host; the upper two bits of the type are flags; the next one
// begins at a multiple of four (<linux/netlink.h>, struct nlattr).
const (
	attrHeader   = 4
	attrTypeMask = 1<<14 - 1
)

// attribute is one of a message; its bytes are of the message.
type attribute struct {
	kind  uint16
	value []byte
}

// attributes takes a message apart. A length that does not fit is an error.
func attributes(b []byte) ([]attribute, error) {
	var all []attribute
	for len(b) > 0 {
		if len(b) < attrHeader {
			return nil, fmt.Errorf("netlink: %d bytes are left, too few for an attribute", len(b))
		}
		n := int(binary.NativeEndian.Uint16(b))
		kind := binary.NativeEndian.Uint16(b[2:]) & attrTypeMask
		if n < attrHeader || n > len(b) {
			return nil, fmt.Errorf("netlink: attribute %d says that it has %d bytes, of %d", kind, n, len(b))
		}
		all = append(all, attribute{kind, b[attrHeader:n]})
		b = b[min((n+3)&^3, len(b)):]
	}
	return all, nil
}

// number is the value as a whole number of 1, 2, 4 or 8 bytes.
func (a attribute) number() (uint64, error) {
	switch len(a.value) {
	case 1:
		return uint64(a.value[0]), nil
	case 2:
		return uint64(binary.NativeEndian.Uint16(a.value)), nil
	case 4:
		return uint64(binary.NativeEndian.Uint32(a.value)), nil
	case 8:
		return binary.NativeEndian.Uint64(a.value), nil
	}
	return 0, fmt.Errorf("netlink: attribute %d has %d bytes, and is no number", a.kind, len(a.value))
}

// text is the value as a string: it ends in one zero byte, which is not a part.
func (a attribute) text() (string, error) {
	s, ok := strings.CutSuffix(string(a.value), "\x00")
	if !ok || strings.Contains(s, "\x00") {
		return "", fmt.Errorf("netlink: attribute %d: %q is no text that ends in a zero byte", a.kind, a.value)
	}
	return s, nil
}

// fields parses the attributes of a message that it has a place for, and passes
// the others over: newer kernels say more.
func fields(b []byte, places map[uint16]any) error {
	all, err := attributes(b)
	if err != nil {
		return err
	}
	for _, a := range all {
		place, ok := places[a.kind]
		if !ok {
			continue
		}
		if s, ok := place.(*string); ok {
			if *s, err = a.text(); err != nil {
				return err
			}
			continue
		}
		n, err := a.number()
		if err != nil {
			return err
		}
		fits := true
		switch p := place.(type) {
		case *uint8:
			*p = uint8(n)
			fits = uint64(*p) == n
		case *uint32:
			*p = uint32(n)
			fits = uint64(*p) == n
		case *uint64:
			*p = n
		case *verbs.PortState:
			*p = verbs.PortState(n)
			fits = n <= uint64(verbs.PortActiveDefer)
		}
		if !fits {
			return fmt.Errorf("netlink: attribute %d: %d is out of its range", a.kind, n)
		}
	}
	return nil
}

func parseDeviceMessage(b []byte) (NetlinkDevice, error) {
	var l NetlinkDevice
	err := fields(b, map[uint16]any{
		attrDevIndex: &l.Index, attrDevName: &l.Name, attrPortIndex: &l.Ports,
		attrNodeGUID: &l.NodeGUID, attrFirmware: &l.Firmware, attrProtocol: &l.Protocol,
	})
	if err == nil && l.Name == "" {
		err = fmt.Errorf("netlink: device %d has no name", l.Index)
	}
	return l, err
}

func parsePortMessage(b []byte) (NetlinkPort, error) {
	var p NetlinkPort
	err := fields(b, map[uint16]any{
		attrPortIndex: &p.Number, attrPortState: &p.State, attrPhysState: &p.Physical,
		attrLID: &p.LID, attrNetdevName: &p.Netdev,
	})
	if err == nil && p.Number == 0 {
		err = fmt.Errorf("netlink: a port without a number")
	}
	return p, err
}

func parseDriverMessage(b []byte) (NetlinkDriver, error) {
	var d NetlinkDriver
	err := fields(b, map[uint16]any{attrDriverID: &d.ID, attrChardevName: &d.Node})
	return d, err
}

// parseObjectsMessage takes the table of kinds and counts out of the answer to
// RDMA_NLDEV_CMD_RES_GET. An answer without the table is an error, not nothing.
func parseObjectsMessage(b []byte) (map[string]uint64, error) {
	all, err := attributes(b)
	if err != nil {
		return nil, err
	}
	for _, a := range all {
		if a.kind != attrResSummary {
			continue
		}
		entries, err := attributes(a.value)
		if err != nil {
			return nil, err
		}
		counts := make(map[string]uint64, len(entries))
		for _, e := range entries {
			if e.kind != attrResEntry {
				continue
			}
			name, count := "", ^uint64(0)
			if err := fields(e.value, map[uint16]any{attrResName: &name, attrResCurrent: &count}); err != nil {
				return nil, err
			}
			if name == "" || count == ^uint64(0) {
				return nil, fmt.Errorf("netlink: a kind of objects without its name or its count")
			}
			counts[name] = count
		}
		return counts, nil
	}
	return nil, fmt.Errorf("netlink: the answer has no table of objects")
}
