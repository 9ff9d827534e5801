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

// controlSpace is the space for the control messages of a datagram, in both directions:
// segment size, traffic class and, on receive, the drop count. Each has at most 4
// bytes, which CMSG_SPACE makes 24 on 64-bit systems.
const controlSpace = 3 * 24

// withFD calls f with the socket's descriptor.
func withFD(conn *net.UDPConn, f func(fd int) error) error {
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

// setOption sets an integer option.
func setOption(fd, level, option, value int, name string) error {
	if err := unix.SetsockoptInt(fd, level, option, value); err != nil {
		return os.NewSyscallError("setsockopt "+name, err)
	}
	return nil
}

func (r *Receiver) configure(o options) error {
	return withFD(r.conn, func(fd int) error {
		if err := r.setReceiveBuffer(fd); err != nil {
			return err
		}
		class := func() error { return setOption(fd, unix.IPPROTO_IP, unix.IP_RECVTOS, 1, "IP_RECVTOS") }
		if r.addr.Addr().Is6() {
			class = func() error { return setOption(fd, unix.IPPROTO_IPV6, unix.IPV6_RECVTCLASS, 1, "IPV6_RECVTCLASS") }
			// The kernel's rxe and NICs send UDP checksum 0 (annex A17.4.4), which
			// Linux drops over IPv6 without this option (RFC 6935, udp(7)).
			if err := setOption(fd, unix.IPPROTO_UDP, unix.UDP_NO_CHECK6_RX, 1, "UDP_NO_CHECK6_RX"); err != nil {
				r.missing = append(r.missing, "datagrams of kernels and NICs are not received over IPv6: "+err.Error())
			}
		}
		if err := class(); err != nil {
			r.missing = append(r.missing, "congestion marks (ECN) are not received: "+err.Error())
		}
		if err := setOption(fd, unix.SOL_SOCKET, unix.SO_RXQ_OVFL, 1, "SO_RXQ_OVFL"); err != nil {
			r.missing = append(r.missing, "datagrams dropped by a full buffer are not counted: "+err.Error())
		}
		if o.noOffload {
			return nil
		}
		if err := setOption(fd, unix.SOL_UDP, unix.UDP_GRO, 1, "UDP_GRO"); err != nil {
			r.missing = append(r.missing, "each datagram is received alone, which takes more time: "+err.Error()+"; Linux supports it since 5.0")
			return nil
		}
		r.joins = true
		return nil
	})
}

// setReceiveBuffer requests receiveBuffer. With CAP_NET_ADMIN the kernel grants it;
// otherwise net.core.rmem_max is the limit.
func (r *Receiver) setReceiveBuffer(fd int) error {
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer) != nil {
		if err := setOption(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, receiveBuffer, "SO_RCVBUF"); err != nil {
			return err
		}
	}
	doubled, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF)
	if err != nil {
		return os.NewSyscallError("getsockopt SO_RCVBUF", err)
	}
	r.buffer = doubled
	if why := bufferCapped(doubled / 2); why != "" {
		r.missing = append(r.missing, why)
	}
	return nil
}

// bufferCapped explains a receive buffer that is smaller than requested; "" if it is
// not.
func bufferCapped(got int) string {
	if got >= receiveBuffer {
		return ""
	}
	return fmt.Sprintf("the receive buffer is capped at %d bytes by net.core.rmem_max, so peers may send less at once: sysctl -w net.core.rmem_max=%d", got, receiveBuffer)
}

func (s *Sender) configure(o options) error {
	return withFD(s.conn, func(fd int) error {
		level, option, value, name := unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO, "IP_MTU_DISCOVER"
		if s.addr.Addr().Is6() {
			level, option, value, name = unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DO, "IPV6_MTU_DISCOVER"
		}
		if err := setOption(fd, level, option, value, name); err != nil {
			return err
		}
		if err := setOption(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, sendBuffer, "SO_SNDBUF"); err != nil {
			return err
		}
		if err := setOption(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 0, "SO_RCVBUF"); err != nil { // the kernel's minimum
			return err
		}
		if o.noOffload {
			return nil
		}
		// The value 0 changes nothing, but shows whether the kernel has the option
		// (udp(7)).
		if err := setOption(fd, unix.SOL_UDP, unix.UDP_SEGMENT, 0, "UDP_SEGMENT"); err != nil {
			s.missing = append(s.missing, "each datagram is sent alone, which takes more time: "+err.Error()+"; Linux supports it since 4.18")
			return nil
		}
		s.canSegment = true
		return nil
	})
}

// appendControl appends the control messages of a message: UDP_SEGMENT unless segment
// is 0, and the traffic class.
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

// appendHeader appends a struct cmsghdr, whose length field is a size_t (cmsg(3)).
func appendHeader(b []byte, level, kind, n int) []byte {
	if unix.SizeofCmsghdr == 16 {
		b = binary.NativeEndian.AppendUint64(b, uint64(unix.CmsgLen(n)))
	} else {
		b = binary.NativeEndian.AppendUint32(b, uint32(unix.CmsgLen(n)))
	}
	b = binary.NativeEndian.AppendUint32(b, uint32(level))
	return binary.NativeEndian.AppendUint32(b, uint32(kind))
}

// align pads to the beginning of the next control message.
func align(b []byte) []byte {
	for len(b)%(unix.SizeofCmsghdr-8) != 0 {
		b = append(b, 0)
	}
	return b
}

// parseControl parses the control messages of a datagram. It ignores unknown ones.
func parseControl(b []byte) (c controlInfo) {
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

func isPortInUse(err error) bool { return errors.Is(err, syscall.EADDRINUSE) }

// isFull reports whether the send buffer is full, or the queue of an interface
// (send(2)).
func isFull(err error) bool {
	return errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.ENOBUFS) || errors.Is(err, syscall.ENOMEM)
}

func isTooBig(err error) bool { return errors.Is(err, syscall.EMSGSIZE) }

// refusesSegments reports whether the kernel refused a super-packet: EIO if the
// interface computes no checksums or the path encrypts packets, EINVAL for the same
// reason and, before Linux 6.10, when a segment is longer than the MTU (udp_send_skb of
// net/ipv4/udp.c). In the last case, sending the first segment alone returns EMSGSIZE.
func refusesSegments(err error) bool {
	return errors.Is(err, syscall.EIO) || errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.EOPNOTSUPP)
}

func pathMTU(from netip.Addr, to netip.AddrPort) (int, error) {
	network, level, option := "udp4", unix.IPPROTO_IP, unix.IP_MTU
	if to.Addr().Is6() {
		network, level, option = "udp6", unix.IPPROTO_IPV6, unix.IPV6_MTU
	}
	conn, err := net.DialUDP(network, net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0)), net.UDPAddrFromAddrPort(to)) // sends nothing
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	var mtu int
	err = withFD(conn, func(fd int) (err error) {
		if mtu, err = unix.GetsockoptInt(fd, level, option); err != nil {
			return os.NewSyscallError("getsockopt IP_MTU", err)
		}
		return nil
	})
	return mtu, err
}
