package doctor

import (
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/tryst-rdma/tryst/verbs/discovery"
	"github.com/tryst-rdma/tryst/verbs/roce"
)

// Software is the device in software that these settings lead to.
type Software struct {
	// Asked says that it was looked for.
	Asked bool
	// Inventory are those that there are, Choice is the one and Err why there is
	// none.
	Inventory discovery.Inventory
	Choice    discovery.Choice
	Err       error
	// Sockets are what the kernel gives for its address.
	Sockets Sockets
}

// Sockets are what the kernel gives for an address.
type Sockets struct {
	// Err is why there are none.
	Err error
	// Taken is why the port of RoCE cannot be had; nil when it is free.
	Taken error
	// Buffer is how many bytes peers may have under way to here at once.
	Buffer int
	// ReceiveMax is net.core.rmem_max in bytes; 0 when it is not known.
	ReceiveMax uint64
	// Missing is what the kernel refuses, and what to do, in words.
	Missing []string
}

// lookForSoftware chooses among the devices in software.
func lookForSoftware(o Options, want discovery.Want) Software {
	s := Software{Asked: true}
	if s.Inventory, s.Err = o.Software.Inventory(); s.Err != nil {
		return s
	}
	want.LocalAddr, want.LocalAddrWhy = o.LocalAddr, o.LocalAddrWhy
	if s.Choice, s.Err = discovery.Choose(s.Inventory, want); s.Err != nil {
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
