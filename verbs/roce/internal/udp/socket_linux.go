package udp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// controlRoom holds the control messages of a datagram, both ways: segment size,
// traffic class, and on receipt the count of drops, each of at most 4 bytes
// (CMSG_SPACE: 24 with 64 bits).
const controlRoom = 3 * 24

// with calls f with the socket's descriptor.
func with(conn *net.UDPConn, f func(fd int) error) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := raw.Control(func(fd uintptr) { inner = f(int(fd)) }); err != nil {
		return err
	}
	return inner
}

// set sets an option that has an integer.
func set(fd, level, option, value int, name string) error {
	if err := unix.SetsockoptInt(fd, level, option, value); err != nil {
		return os.NewSyscallError("setsockopt "+name, err)
	}
	return nil
}

func (r *Receiver) configure(o options) error {
	return with(r.conn, func(fd int) error {
		if err := r.askForBuffer(fd); err != nil {
			return err
		}
		class := func() error { return set(fd, unix.IPPROTO_IP, unix.IP_RECVTOS, 1, "IP_RECVTOS") }
		if r.addr.Addr().Is6() {
			class = func() error { return set(fd, unix.IPPROTO_IPV6, unix.IPV6_RECVTCLASS, 1, "IPV6_RECVTCLASS") }
			// The kernel's rxe and NICs send UDP checksum 0 (annex A17.4.4), which
			// Linux drops over IPv6 unless a socket asks for it (RFC 6935, udp(7)).
			if err := set(fd, unix.IPPROTO_UDP, unix.UDP_NO_CHECK6_RX, 1, "UDP_NO_CHECK6_RX"); err != nil {
				r.missing = append(r.missing, "datagrams of kernels and NICs over IPv6 do not arrive: "+err.Error())
			}
		}
		if err := class(); err != nil {
			r.missing = append(r.missing, "marks of congestion are not seen: "+err.Error())
		}
		if err := set(fd, unix.SOL_SOCKET, unix.SO_RXQ_OVFL, 1, "SO_RXQ_OVFL"); err != nil {
			r.missing = append(r.missing, "datagrams that found the buffer full are not counted: "+err.Error())
		}
		if o.plain {
			return nil
		}
		if err := set(fd, unix.SOL_UDP, unix.UDP_GRO, 1, "UDP_GRO"); err != nil {
			r.missing = append(r.missing, "each datagram is received alone, which takes more time: "+err.Error()+"; Linux has it since 5.0")
			return nil
		}
		r.joins = true
		return nil
	})
}

// askForBuffer asks for receiveBuffer: by right when this process has
// CAP_NET_ADMIN, else for as much as net.core.rmem_max allows.
func (r *Receiver) askForBuffer(fd int) error {
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer) != nil {
		if err := set(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, receiveBuffer, "SO_RCVBUF"); err != nil {
			return err
		}
	}
	doubled, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF)
	if err != nil {
		return os.NewSyscallError("getsockopt SO_RCVBUF", err)
	}
	r.buffer = doubled
	if why := capped(doubled / 2); why != "" {
		r.missing = append(r.missing, why)
	}
	return nil
}

// capped says that a receive buffer is smaller than asked for, and what to do.
func capped(got int) string {
	if got >= receiveBuffer {
		return ""
	}
	return fmt.Sprintf("the receive buffer is capped at %d bytes by net.core.rmem_max, so peers may send less at once: sysctl -w net.core.rmem_max=%d", got, receiveBuffer)
}

func (s *Sender) configure(o options) error {
	return with(s.conn, func(fd int) error {
		level, option, value, name := unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO, "IP_MTU_DISCOVER"
		if s.addr.Addr().Is6() {
			level, option, value, name = unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DO, "IPV6_MTU_DISCOVER"
		}
		if err := set(fd, level, option, value, name); err != nil {
			return err
		}
		if err := set(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, sendBuffer, "SO_SNDBUF"); err != nil {
			return err
		}
		if err := set(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 0, "SO_RCVBUF"); err != nil { // the kernel's least
			return err
		}
		if o.plain {
			return nil
		}
		// 0 changes nothing: a kernel that knows the option takes it (udp(7)).
		if err := set(fd, unix.SOL_UDP, unix.UDP_SEGMENT, 0, "UDP_SEGMENT"); err != nil {
			s.missing = append(s.missing, "each datagram is sent alone, which takes more time: "+err.Error()+"; Linux has it since 4.18")
			return nil
		}
		s.segment = true
		return nil
	})
}

// appendControl appends the control messages of a message: UDP_SEGMENT unless
// segment is 0, and the traffic class.
func appendControl(b []byte, six bool, segment int, tos uint8) []byte {
	if segment > 0 {
		b = appendHeader(b, unix.SOL_UDP, unix.UDP_SEGMENT, 2)
		b = binary.NativeEndian.AppendUint16(b, uint16(segment)) //nolint:gosec // maxPayload at most
		b = align(b)
	}
	level, kind := unix.IPPROTO_IP, unix.IP_TOS
	if six {
		level, kind = unix.IPPROTO_IPV6, unix.IPV6_TCLASS
	}
	b = appendHeader(b, level, kind, 4)
	b = binary.NativeEndian.AppendUint32(b, uint32(tos))
	return align(b)
}

// appendHeader appends a struct cmsghdr: its length is a size_t (cmsg(3)).
func appendHeader(b []byte, level, kind, n int) []byte {
	if unix.SizeofCmsghdr == 16 {
		b = binary.NativeEndian.AppendUint64(b, uint64(unix.CmsgLen(n)))
	} else {
		b = binary.NativeEndian.AppendUint32(b, uint32(unix.CmsgLen(n)))
	}
	b = binary.NativeEndian.AppendUint32(b, uint32(level))
	return binary.NativeEndian.AppendUint32(b, uint32(kind))
}

// align pads to where the next control message begins.
func align(b []byte) []byte {
	for len(b)%(unix.SizeofCmsghdr-8) != 0 {
		b = append(b, 0)
	}
	return b
}

// parseControl reads the control messages of a datagram. What it does not know it
// passes over.
func parseControl(b []byte) (c received) {
	for len(b) >= unix.SizeofCmsghdr {
		h, data, rest, err := unix.ParseOneSocketControlMessage(b)
		if err != nil {
			return c
		}
		b = rest
		switch {
		case h.Level == unix.SOL_UDP && h.Type == unix.UDP_GRO && len(data) >= 4:
			c.segment = int(int32(binary.NativeEndian.Uint32(data)))
		case h.Level == unix.IPPROTO_IP && h.Type == unix.IP_TOS && len(data) >= 1:
			c.class = data[0]
		case h.Level == unix.IPPROTO_IPV6 && h.Type == unix.IPV6_TCLASS && len(data) >= 4:
			c.class = uint8(binary.NativeEndian.Uint32(data))
		case h.Level == unix.SOL_SOCKET && h.Type == unix.SO_RXQ_OVFL && len(data) >= 4:
			c.overflowed = binary.NativeEndian.Uint32(data)
		}
	}
	return c
}

func isTruncated(flags int) bool { return flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 }

func isTaken(err error) bool { return errors.Is(err, syscall.EADDRINUSE) }

// isFull: the send buffer, or, of some interfaces, their queue (send(2)).
func isFull(err error) bool {
	return errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.ENOBUFS) || errors.Is(err, syscall.ENOMEM)
}

func isTooBig(err error) bool { return errors.Is(err, syscall.EMSGSIZE) }

// refusesSegments: EIO when the interface computes no checksums or the packets are
// encrypted on the way, EINVAL for that and, before Linux 6.10, when a segment is
// longer than the MTU (udp_send_skb of net/ipv4/udp.c). In the last case the first
// segment, sent alone, is EMSGSIZE.
func refusesSegments(err error) bool {
	return errors.Is(err, syscall.EIO) || errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.EOPNOTSUPP)
}

func pathMTU(from netip.Addr, to netip.AddrPort) (int, error) {
	network, level, option := "udp4", unix.IPPROTO_IP, unix.IP_MTU
	if to.Addr().Is6() {
		network, level, option = "udp6", unix.IPPROTO_IPV6, unix.IPV6_MTU
	}
	conn, err := net.DialUDP(network, net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0)), net.UDPAddrFromAddrPort(to)) // nothing is sent
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	var mtu int
	err = with(conn, func(fd int) (err error) {
		if mtu, err = unix.GetsockoptInt(fd, level, option); err != nil {
			return os.NewSyscallError("getsockopt IP_MTU", err)
		}
		return nil
	})
	return mtu, err
}
