package discovery

import (
	"io/fs"
	"net/netip"
	"syscall"
)

// nodeDir is where udev puts the nodes of RDMA devices.
const nodeDir = "/dev/infiniband/"

// errNotDir is what the parts of a path say that is no directory.
const errNotDir = syscall.ENOTDIR

// System is where discovery looks: this host (Host), or a recorded tree with
// fakes beside it. Only Sys is needed; without one of the others, less is known,
// and that is no Problem.
type System struct {
	// Sys is the tree of /sys. Symbolic links are followed and read.
	Sys fs.FS
	// Netlink asks the kernel.
	Netlink Netlink
	// Map lists devices and nodes; nil: Sys does.
	Map Map
	// Addrs lists the addresses of each netdev.
	Addrs func() (map[string][]netip.Prefix, error)
	// OpenNode opens and closes a node under /dev/infiniband for reading and
	// writing, and so finds out what libibverbs would: permission bits do not
	// tell what a container's device rules refuse.
	OpenNode func(path string) error
}

func (s System) sysfs() sysfs { return sysfs{s.Sys} }

func (s System) devices() Map {
	if s.Map != nil {
		return s.Map
	}
	return treeMap{s.sysfs()}
}
