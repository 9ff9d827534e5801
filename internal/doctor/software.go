package doctor

import (
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/server"
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

// noKernel is why no RDMA port of the kernel can be used; nil when one can.
func (f *Facts) noKernel() error {
	switch l := f.Library; {
	case f.NoDiscovery != nil:
		return f.NoDiscovery
	case f.NoChoice != nil:
		return f.NoChoice
	case l.Asked && l.Err != nil:
		return l.Err
	case l.Asked && l.OpenErr != nil:
		return l.OpenErr
	case l.Asked:
		_, err := discovery.PathMTU(f.Want.MTU, l.Port.ActiveMTU)
		return err
	}
	return nil
}

// works says that nothing is known against the device in software.
func (s Software) works() bool { return s.Asked && s.Err == nil && s.Sockets.Err == nil }

// uses is the provider that these settings lead to, and why; "" when none has a
// device. It is the rule of server.Select.
func (f *Facts) uses() (provider, why string) {
	err := f.noKernel()
	software := f.Software.works()
	switch {
	case f.Provider == config.ProviderRoCE:
		if software {
			return config.ProviderRoCE, "it was asked for"
		}
	case f.Provider == config.ProviderLibibverbs:
		if err == nil {
			return config.ProviderLibibverbs, "it was asked for"
		}
	case err == nil:
		return config.ProviderLibibverbs, server.Auto(nil)
	case software:
		return config.ProviderRoCE, server.Auto(err)
	}
	return "", ""
}

func (e *examiner) provider() {
	f := e.facts
	const check = "provider"
	switch provider, why := f.uses(); {
	case provider == config.ProviderRoCE && f.Provider != config.ProviderRoCE && len(f.Inventory.Devices) > 0:
		e.warn(check, "mend what is told of the RDMA devices above, or ask for it: --provider roce", "%s, a device in software, though there is RDMA: %s", provider, why)
	case provider == config.ProviderRoCE:
		e.ok(check, "%s, a device in software: %s", provider, why)
	case provider != "":
		e.ok(check, "%s: %s", provider, why)
	case f.Provider == config.ProviderLibibverbs && f.Software.works():
		e.lacks(check, "mend what is told above, or take the device in software: --provider auto", "libibverbs was asked for, and has no device that can be used")
	}
}

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
