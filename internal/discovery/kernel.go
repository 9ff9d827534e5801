package discovery

import (
	"errors"
	"io/fs"
	"path"
)

// Kernel is the state of the kernel's part of RDMA.
type Kernel struct {
	// Core says that the kernel has RDMA: ib_core is loaded, or built in.
	Core bool
	// Uverbs says that processes can reach devices: ib_uverbs is loaded.
	Uverbs bool
	// Drivers are the drivers of devices that are loaded, as their modules are
	// called.
	Drivers []string
	// Nodes are the nodes of /dev/infiniband, one for each device.
	Nodes []Node
	// Exclusive says that a device belongs to one network namespace, and
	// that Mode could be read.
	Exclusive, ModeKnown bool
	// Problems are what could not be read.
	Problems []error
}

// Node is a device's node under /dev/infiniband.
type Node struct {
	Device string
	Path   string // "" when the kernel made none
	// Err is why this process cannot open it; nil when it can.
	Err error
}

// drivers are the modules that make RDMA devices.
var drivers = []string{
	"bnxt_re", "efa", "erdma", "hfi1", "hns_roce_hw_v2", "ib_mthca", "ib_qib", "iw_cxgb4", "irdma", "i40iw", "mana_ib",
	"mlx4_ib", "mlx5_ib", "ocrdma", "qedr", "rdma_rxe", "siw", "usnic_verbs", "vmw_pvrdma",
}

// Kernel looks which parts of the kernel are there, and tries to open the node of
// each device of an inventory.
func (s System) Kernel(inv Inventory) Kernel {
	t := s.sysfs()
	k := Kernel{
		// What is built in shows in /sys/module only if it has parameters, but
		// always makes its class.
		Core:   t.has(moduleDir, "ib_core") || t.has(classRDMA),
		Uverbs: t.has(moduleDir, "ib_uverbs") || t.has(classUverbs),
	}
	for _, d := range drivers {
		if t.has(moduleDir, d) {
			k.Drivers = append(k.Drivers, d)
		}
	}
	for i := range inv.Devices {
		n := Node{Device: inv.Devices[i].Name}
		nodes, err := s.devices().Nodes(n.Device)
		if err != nil {
			k.Problems = append(k.Problems, err)
		}
		for _, path := range nodes {
			if isUverbs(path) {
				n.Path = path
				break
			}
		}
		switch {
		case n.Path == "":
			n.Err = fs.ErrNotExist
		case s.OpenNode == nil:
			n.Err = errors.ErrUnsupported
		default:
			n.Err = s.OpenNode(n.Path)
		}
		k.Nodes = append(k.Nodes, n)
	}
	if s.Netlink != nil && k.Core {
		exclusive, err := s.Netlink.Exclusive()
		if err == nil {
			k.Exclusive, k.ModeKnown = exclusive, true
		} // kernels before 5.2 do not know the mode
	}
	return k
}

func isUverbs(node string) bool {
	ok, _ := path.Match("uverbs[0-9]*", path.Base(node))
	return ok
}
