package roce

import (
	"net"
	"net/netip"

	"github.com/tryst-rdma/tryst/internal/rocewire"
	"github.com/tryst-rdma/tryst/verbs/roce/internal/udp"
)

// system is the host as devices use it: its interfaces and sockets. Tests replace it.
type system interface {
	// interfaces lists all interfaces, also those without an address.
	interfaces() ([]netif, error)
	// watch calls changed on its own goroutine whenever interfaces or addresses may
	// have changed, until stop is called.
	watch(changed func()) (stop func(), err error)
	listen(netip.Addr) (receiver, error)
	sender(netip.Addr) (sender, error)
}

// netif is a network interface.
type netif struct {
	index int
	name  string
	mtu   int
	up    bool // and has a carrier
	mac   net.HardwareAddr
	addrs []netip.Addr // link-local ones with their zones
	// unread is set if reading the addresses failed; the previous addresses then stay
	// valid.
	unread bool
}

// receiver and sender are the sockets of package udp.
type receiver interface {
	Addr() netip.AddrPort
	Buffer() int
	Missing() []string
	// PortTaken describes that another socket has Port; empty when this one has it.
	PortTaken() string
	// Overflowed is the number of datagrams that were dropped because the buffer was full.
	Overflowed() uint64
	// Receive blocks until datagrams arrive. They are valid until the next call. It
	// calls idle before it blocks.
	Receive(idle func()) ([]udp.Datagram, error)
	Close() error
}

type sender interface {
	Addr() netip.AddrPort
	MaxSegments(*udp.Destination, int) int
	Missing() []string
	Send([]udp.Message) (int, error)
	Close() error
}

// host is the host that this process runs on.
type host struct{ options []udp.Option }

func (h host) listen(addr netip.Addr) (receiver, error) {
	r, err := udp.Listen(addr, rocewire.Port, h.options...)
	if err != nil {
		return nil, err
	}
	return &socket{Receiver: r, batch: udp.NewBatch()}, nil
}

func (h host) sender(addr netip.Addr) (sender, error) { return udp.NewSender(addr, h.options...) }

// socket is a receiving socket with its batch.
type socket struct {
	*udp.Receiver
	batch     *udp.Batch
	datagrams []udp.Datagram
}

// Buffer is the capacity that this side reports to peers. It is that for super-packets, which
// devices of this package send. If the path splits these, it is too much: packets are
// lost until the window has shrunk.
func (s *socket) Buffer() int { return s.JoinedBuffer() }

// Overflowed counts what the kernel has reported with the datagrams that were received.
func (s *socket) Overflowed() uint64 { return s.Stats().Overflowed }

func (s *socket) Receive(idle func()) ([]udp.Datagram, error) {
	if err := s.Receiver.Receive(s.batch, idle); err != nil {
		return nil, err
	}
	s.datagrams = s.datagrams[:0]
	for i := range s.batch.Len() {
		s.datagrams = append(s.datagrams, s.batch.Datagram(i))
	}
	return s.datagrams, nil
}

func (host) interfaces() ([]netif, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	list := make([]netif, 0, len(all))
	for _, i := range all {
		addrs, err := i.Addrs()
		list = append(list, netifOf(i, addrs, err))
	}
	return list, nil
}

// netifOf converts an interface of the host. err is the error of reading its addresses.
func netifOf(i net.Interface, addrs []net.Addr, err error) netif {
	n := netif{
		index: i.Index, name: i.Name, mtu: i.MTU, mac: i.HardwareAddr, up: i.Flags&net.FlagUp != 0 && i.Flags&net.FlagRunning != 0,
		unread: err != nil,
	}
	for _, a := range addrs {
		prefix, err := netip.ParsePrefix(a.String())
		if err != nil {
			continue
		}
		addr := prefix.Addr().Unmap()
		if addr.Is6() && addr.IsLinkLocalUnicast() {
			addr = addr.WithZone(i.Name)
		}
		n.addrs = append(n.addrs, addr)
	}
	return n
}
