package doctor

import (
	"fmt"
	"strings"

	"github.com/tryst-rdma/tryst/server"
	"github.com/tryst-rdma/tryst/verbs/roce"
)

// software checks the device in user space, if it is used or the settings name it.
func (e *examiner) software() {
	f := e.facts
	s := f.Software
	provider, _ := f.uses()
	const check = softwareProvider
	if !s.Asked || provider != "" && provider != check || f.Provider != server.ProviderAuto && f.Provider != check {
		return
	}
	if s.Err != nil {
		e.lacks(check, "name an interface that is up and has an address (--rdma-device), or none", "%v", s.Err)
		return
	}
	c := s.Choice
	e.chosenIs(check, c)
	if n := s.Inventory.Netdev(c.Netdev); n != nil {
		if d := s.Inventory.Device(c.Device); d != nil {
			e.mtuOfNetdev(n.Name, n.MTU, d.Headers())
		}
	}
	k := s.Sockets
	if k.Err != nil {
		e.lacks(check, "check the limit of open files and filters of system calls", "its sockets cannot be opened: %v", k.Err)
		return
	}
	port := fmt.Sprintf("UDP port %d", roce.Port)
	switch {
	case k.Taken != nil && f.Provider != check: // peers with an RDMA device are reached over tcp
		e.ok(port, "of %v: %v, so roce uses another one; only a peer with an RDMA device of its kernel needs this one", c.GID.Addr(), k.Taken)
	case k.Taken != nil:
		e.warn(port, fmt.Sprintf("if peers use the RDMA of a kernel or a NIC, stop the process that uses the port: ss -ulnp 'sport = :%d'", roce.Port),
			"of %v: %v; RDMA devices of kernels and NICs send to no other port, so peers with such a device use gRPC", c.GID.Addr(), k.Taken)
	default:
		e.ok(port, "of %v is free", c.GID.Addr())
	}
	e.receiveBuffer(k)
	lacks := false
	for _, m := range k.Missing {
		if _, capped := sysctl(m); !capped {
			e.warn("sockets", "it works without; a kernel that has it uses less processor time", "%s", m)
			lacks = true
		}
	}
	if !lacks {
		e.ok("sockets", "the kernel has UDP_GRO and UDP_SEGMENT: one call sends or receives many packets")
	}
}

// receiveBuffer reports how much peers may send at once, and how to increase it.
func (e *examiner) receiveBuffer(k Sockets) {
	const check = "receive buffer"
	text := fmt.Sprintf("all peers together may have %s in flight to this host", bytesText(uint64(k.Buffer))) //nolint:gosec // a size
	if k.ReceiveMax > 0 {
		text += fmt.Sprintf(" (net.core.rmem_max is %d)", k.ReceiveMax)
	}
	for _, m := range k.Missing {
		if do, capped := sysctl(m); capped {
			e.warn(check, do+", and the same in /etc/sysctl.d to keep it", "%s: fast or many peers will wait for each other", text)
			return
		}
	}
	e.ok(check, "%s", text)
}

// sysctl returns the command that package udp suggests for a small buffer.
func sysctl(missing string) (do string, found bool) {
	_, do, found = strings.Cut(missing, ": sysctl ")
	return "sysctl " + do, found
}
