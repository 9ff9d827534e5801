package roce

import (
	"errors"
	"net/netip"

	"github.com/tryst-rdma/tryst/internal/rocewire"
	"github.com/tryst-rdma/tryst/verbs/roce/internal/udp"
)

// Port is the UDP port of RoCEv2 (IBTA specification, volume 1, annex A17.4.3). The
// devices of kernels and NICs send to this port only.
const Port = rocewire.Port

// SocketReport describes the sockets that the kernel gives a device for a local
// address.
type SocketReport struct {
	// Buffer is how many bytes all peers together may have in flight to the address.
	Buffer int
	// PortErr is why the device cannot have Port; nil when the port is free.
	PortErr error
	// Missing lists, in words, the socket options that the kernel refused, and what to
	// do about each.
	Missing []string
}

// ProbeSockets opens the sockets of a device for a local address and closes them
// again. An IPv6 link-local address needs its zone.
func ProbeSockets(addr netip.Addr) (SocketReport, error) {
	receiver, err := udp.Listen(addr, 0)
	if err != nil {
		return SocketReport{}, err
	}
	sender, err := udp.NewSender(addr)
	if err != nil {
		return SocketReport{}, errors.Join(err, receiver.Close())
	}
	r := SocketReport{Buffer: receiver.JoinedBuffer(), Missing: append(receiver.Missing(), sender.Missing()...)}
	if err := errors.Join(receiver.Close(), sender.Close()); err != nil {
		return r, err
	}
	if receiver, err = udp.Listen(addr, Port); err != nil {
		r.PortErr = err
		return r, nil
	}
	if receiver.Addr().Port() != Port {
		r.PortErr = errors.New("another socket has it")
	}
	return r, receiver.Close()
}
