package doctor

import (
	"fmt"
	"strings"

	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/verbs/roce"
)

// software judges the device in software, when it is the one that is used or was
// asked for.
func (e *examiner) software() {
	f := e.facts
	s := f.Software
	provider, _ := f.uses()
	if !s.Asked || provider == config.ProviderLibibverbs || f.Provider == config.ProviderLibibverbs {
		return
	}
	const check = config.ProviderRoCE
	if s.Err != nil {
		e.lacks(check, "ask for an interface that is up and has an address (--rdma-device), or for none", "%v", s.Err)
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
		e.lacks(check, "look for a limit of sockets or a filter of system calls", "it has no sockets: %v", k.Err)
		return
	}
	port := fmt.Sprintf("UDP port %d", roce.Port)
	if k.Taken != nil {
		e.warn(port, fmt.Sprintf("if peers have RDMA of a kernel or a NIC, end who has it: ss -ulnp 'sport = :%d'", roce.Port),
			"of %v: %v; RDMA devices of kernels and NICs send to no other, so peers that have one get gRPC", c.GID.Addr(), k.Taken)
	} else {
		e.ok(port, "of %v is free", c.GID.Addr())
	}
	e.receiveBuffer(k)
	lacks := false
	for _, m := range k.Missing {
		if _, capped := sysctl(m); !capped {
			e.warn("sockets", "it works so; a kernel that has it takes less of the processor", "%s", m)
			lacks = true
		}
	}
	if !lacks {
		e.ok("sockets", "the kernel has UDP_GRO and UDP_SEGMENT: many packets go in one call")
	}
}

// receiveBuffer says how much peers may send at once, and what would make it more.
func (e *examiner) receiveBuffer(k Sockets) {
	const check = "receive buffer"
	text := fmt.Sprintf("peers may have %s under way to here at once, all together", bytesText(uint64(k.Buffer))) //nolint:gosec // a size
	if k.ReceiveMax > 0 {
		text += fmt.Sprintf(" (net.core.rmem_max is %d)", k.ReceiveMax)
	}
	for _, m := range k.Missing {
		if do, capped := sysctl(m); capped {
			e.warn(check, do+", and the same in /etc/sysctl.d to keep it", "%s: fast and many peers wait for each other", text)
			return
		}
	}
	e.ok(check, "%s", text)
}

// sysctl is the command that package udp advises against a small buffer.
func sysctl(missing string) (do string, found bool) {
	_, do, found = strings.Cut(missing, ": sysctl ")
	return "sysctl " + do, found
}
