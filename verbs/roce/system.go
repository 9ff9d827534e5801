package roce

import (
	"net"
	"net/netip"

	"github.com/tryst-rdma/tryst/verbs/roce/internal/udp"
	"github.com/tryst-rdma/tryst/verbs/roce/internal/wire"
)

// system is what the devices stand on: the host's interfaces and sockets. Tests
// have one in memory.
type system interface {
	// interfaces lists all, also those without an address.
	interfaces() ([]netif, error)
	// watch calls changed whenever interfaces or addresses may have changed, from
	// a goroutine of its own, until stop is called.
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
	addrs []netip.Addr // with their zones
	// unread says that the addresses could not be read: they are taken to be what they
	// were.
	unread bool
}

// receiver and sender are the sockets of package udp.
type receiver interface {
	Addr() netip.AddrPort
	Buffer() int
	Missing() []string
	// Receive blocks until something is there. What it returns is lent until the
	// next call. idle is called before it waits.
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

// host is the system that this process runs on.
type host struct{ options []udp.Option }

func (h host) listen(addr netip.Addr) (receiver, error) {
	r, err := udp.Listen(addr, wire.Port, h.options...)
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

// Buffer is what peers are told: that of super-packets, which devices of this kind
// send. Where their way takes them apart it is too much, and packets are lost until
// the window is as small as it has to be.
func (s *socket) Buffer() int { return s.JoinedBuffer() }

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

// netifOf is an interface of the host with what reading its addresses gave.
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
