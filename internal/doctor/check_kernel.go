package doctor

import (
	"errors"
	"io/fs"
	"strings"
)

const (
	loadSoftRoCE = "load the driver of the NIC, or create a Soft-RoCE device: modprobe rdma_rxe && rdma link add rxe0 type rxe netdev eth0"
	loadUverbs   = "modprobe ib_uverbs"
)

func (e *examiner) kernel() {
	f := e.facts
	if f.NoDiscovery != nil {
		e.absent("kernel", doElsewhere, "RDMA devices cannot be listed: %v", f.NoDiscovery)
		return
	}
	k := f.Kernel
	switch {
	case !k.Core:
		e.absent("kernel", loadSoftRoCE, "the kernel has no RDMA: ib_core is not loaded")
		return
	case !k.Uverbs:
		e.absent("kernel", loadUverbs, "processes cannot use RDMA devices: ib_uverbs is not loaded")
	default:
		e.ok("kernel", "ib_core and ib_uverbs are loaded; drivers: %s", orNone(strings.Join(k.Drivers, ", ")))
	}
	if k.ModeKnown && k.Exclusive {
		e.warn("kernel", "rdma system set netns shared, or move the device: rdma dev set DEVICE netns NAME",
			"each RDMA device belongs to one network namespace: a container sees only those that were moved into it")
	}
	for _, n := range k.Nodes {
		check := "node of " + n.Device
		switch {
		case n.Err == nil:
			e.ok(check, "%s can be opened", n.Path)
		case n.Path == "":
			e.lacksFor(n.Device, check, loadUverbs, "it has no node under /dev/infiniband")
		case errors.Is(n.Err, fs.ErrPermission):
			e.lacksFor(n.Device, check, "give this user read and write permission ("+n.Path+"; usually the group rdma), and in a container pass the device in: --device "+n.Path,
				"it cannot be opened: %v", n.Err)
		case errors.Is(n.Err, fs.ErrNotExist):
			e.lacksFor(n.Device, check, "in a container pass the device in: --device "+n.Path+"; on a host check that udev runs", "%s does not exist", n.Path)
		case errors.Is(n.Err, errors.ErrUnsupported): // not tried on this system
		default:
			e.lacksFor(n.Device, check, "read the log of the kernel (dmesg), and reload the driver or replug the device", "%s cannot be opened: %v", n.Path, n.Err)
		}
	}
	for _, err := range k.Problems {
		e.warn("kernel", doRead, "some facts could not be read: %v", err)
	}
}

func (e *examiner) library() {
	f := e.facts
	switch l := f.Library; {
	case !l.Asked:
	case l.Err != nil && f.NoDiscovery == nil && !f.Kernel.Core: // the check of the kernel reports it
	case l.Err != nil:
		text, do := hinted(l.Err, "install it with its drivers: libibverbs1 and ibverbs-providers (Debian, Ubuntu), or rdma-core and libibverbs (Fedora, RHEL)")
		e.absent("libibverbs", do, "%s", text)
	default:
		known := make(map[string]bool)
		var names []string
		for _, d := range l.Devices {
			known[d.Name] = true
			names = append(names, d.Name)
		}
		e.ok("libibverbs", "it knows %s", orNone(strings.Join(names, ", ")))
		for _, d := range f.Inventory.Devices {
			if !known[d.Name] {
				e.lacksFor(d.Name, "libibverbs", "install the drivers of libibverbs (ibverbs-providers, or rdma-core), of the same release as the library",
					"it does not know %s, which the kernel has", d.Name)
			}
		}
	}
}
