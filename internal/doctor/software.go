package doctor

import (
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/tryst-rdma/tryst/internal/discovery"
	"github.com/tryst-rdma/tryst/verbs/roce"
)

// softwareProvider is the provider of Software. Its sockets are checked, so this file knows its package.
const softwareProvider = roce.Name

// Software has the facts about the device in user space that the settings lead to.
type Software struct {
	// Asked reports whether it was checked.
	Asked bool
	// Inventory has all such devices, Choice is the chosen one, and Err why there
	// is none.
	Inventory discovery.Inventory
	Choice    discovery.Choice
	Err       error
	// Sockets has the facts about sockets on its address.
	Sockets Sockets
}

// Sockets has the facts about sockets on an address.
type Sockets struct {
	// Err is why sockets cannot be opened.
	Err error
	// Taken is why the port of RoCE is not available; nil if it is free.
	Taken error
	// Buffer is how many bytes peers may have in flight to this address.
	Buffer int
	// ReceiveMax is net.core.rmem_max in bytes; 0 if it is not known.
	ReceiveMax uint64
	// Missing lists the features that the kernel lacks, each with what to do.
	Missing []string
}

// chooseSoftware chooses one of the devices in user space and checks its sockets.
func chooseSoftware(o Options, want discovery.Want, selected Selected) Software {
	s := Software{Asked: true}
	if s.Inventory, s.Err = o.Software.Inventory(); s.Err != nil {
		return s
	}
	want.LocalAddr, want.LocalAddrWhy = o.LocalAddr, o.LocalAddrWhy
	if selected.Provider == softwareProvider && selected.Err == nil {
		s.Choice = selected.Choice
	} else if s.Choice, s.Err = discovery.Choose(s.Inventory, want); s.Err != nil {
		return s
	}
	if o.Sockets != nil {
		addr := s.Choice.GID.Addr()
		if addr.Is6() && addr.IsLinkLocalUnicast() {
			addr = addr.WithZone(s.Choice.Netdev)
		}
		s.Sockets = o.Sockets(addr)
	}
	return s
}

// hostSockets opens sockets as the device does, and closes them.
func hostSockets(addr netip.Addr) (s Sockets) {
	probe, err := roce.ProbeSockets(addr)
	s = Sockets{Err: err, Taken: probe.PortErr, Buffer: probe.Buffer, Missing: probe.Missing}
	if err != nil {
		return s
	}
	if b, err := os.ReadFile("/proc/sys/net/core/rmem_max"); err == nil {
		s.ReceiveMax, _ = strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64) // 0 is "not known"
	}
	return s
}
