//go:build linux

// This file calls the kernel without telling Go's scheduler, which the standard library and golang.org/x/net have no way to do:
// the structures of sendmmsg(2) and recvmsg(2) hold addresses. Each stays in memory that its socket keeps for as long as it lives.
//
// A call that the scheduler is told of may block, so the scheduler has a thread watch it (runtime.sysmon), which it has to
// wake when the process was idle before: on a machine that waits for a packet now and then, that is with each packet. These
// calls do not block (MSG_DONTWAIT); they hold their processor for as long as the kernel copies. An exchange of 8 bytes
// between two processes took 1.2 to 1.6 times the time, and 1.4 to 1.7 times the processor, with calls that the scheduler was told of.

package udp

import (
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// sockaddr is an address as the kernel has it: the larger of the two families, which begin alike (RawSockaddrInet4 is not longer).
type sockaddr struct {
	raw unix.RawSockaddrInet6
	len uint32
}

func newSockaddr(a netip.AddrPort) (s sockaddr) {
	port := [2]byte{byte(a.Port() >> 8), byte(a.Port())}
	if ip := a.Addr(); ip.Is4() {
		four := (*unix.RawSockaddrInet4)(unsafe.Pointer(&s.raw))
		four.Family, four.Addr = unix.AF_INET, ip.As4()
		*(*[2]byte)(unsafe.Pointer(&four.Port)) = port
		s.len = unix.SizeofSockaddrInet4
		return s
	}
	s.raw.Family, s.raw.Addr, s.raw.Scope_id = unix.AF_INET6, a.Addr().As16(), scopeOf(a.Addr().Zone())
	*(*[2]byte)(unsafe.Pointer(&s.raw.Port)) = port
	s.len = unix.SizeofSockaddrInet6
	return s
}

// scopeOf is the number of a zone; 0, which no link has, for one that is not there.
func scopeOf(zone string) uint32 {
	if zone == "" {
		return 0
	}
	if i, err := net.InterfaceByName(zone); err == nil {
		return uint32(i.Index) //nolint:gosec // positive
	}
	n, _ := strconv.ParseUint(zone, 10, 32) // 0 when it is no number
	return uint32(n)
}

// addrPort is the address, with that zone if it is one of a link.
func (s *sockaddr) addrPort(zone string) netip.AddrPort {
	if s.raw.Family == unix.AF_INET {
		four := (*unix.RawSockaddrInet4)(unsafe.Pointer(&s.raw))
		return netip.AddrPortFrom(netip.AddrFrom4(four.Addr), portOf(&four.Port))
	}
	a := netip.AddrFrom16(s.raw.Addr)
	if a.IsLinkLocalUnicast() {
		a = a.WithZone(zone)
	}
	return netip.AddrPortFrom(a, portOf(&s.raw.Port))
}

// portOf is a port in network byte order.
func portOf(p *uint16) uint16 {
	b := (*[2]byte)(unsafe.Pointer(p))
	return uint16(b[0])<<8 | uint16(b[1])
}

// mmsghdr is struct mmsghdr of sendmmsg(2).
type mmsghdr struct {
	header unix.Msghdr
	length uint32 //nolint:unused // the kernel writes it
}

// direct is a kernel whose send the scheduler is not told of.
type direct struct {
	batchWriter
	raw   syscall.RawConn
	call  func(fd uintptr) bool // made once
	msgs  [maxSegments]mmsghdr
	n     int
	iovec []unix.Iovec
	sent  int
	err   error
}

func newKernel(conn *net.UDPConn) (kernel, error) {
	raw, err := conn.SyscallConn()
	d := &direct{batchWriter: newBatchWriter(conn), raw: raw}
	d.call = d.sendmmsg
	return d, err
}

func (d *direct) wait(p *packing, at int) (int, error) { return d.WriteBatch(p.msgs[at:p.n], 0) }

func (d *direct) send(p *packing, at int) (int, error) {
	d.iovec, d.n = d.iovec[:0], p.n-at
	pieces := 0
	for i := at; i < p.n; i++ {
		pieces += len(p.msgs[i].Buffers)
	}
	d.iovec = slices.Grow(d.iovec, pieces) // it must not move while it is filled
	for i := range d.n {
		m, to, h := &p.msgs[at+i], &p.to[at+i].sockaddr, &d.msgs[i].header
		first := len(d.iovec)
		for _, b := range m.Buffers {
			v := unix.Iovec{Base: unsafe.SliceData(b)}
			v.SetLen(len(b))
			d.iovec = append(d.iovec, v)
		}
		h.Name, h.Namelen = (*byte)(unsafe.Pointer(&to.raw)), to.len
		h.Iov = unsafe.SliceData(d.iovec[first:])
		h.SetIovlen(len(d.iovec) - first)
		h.Control = unsafe.SliceData(m.OOB)
		h.SetControllen(len(m.OOB))
	}
	err := d.raw.Write(d.call)
	clear(d.iovec) // the pieces are not ours any more
	if err != nil {
		return 0, err
	}
	return d.sent, d.err
}

// sendmmsg is
//
//	int sendmmsg(int sockfd, struct mmsghdr *msgvec, unsigned int vlen, int flags);
//
// which returns how many messages were sent, or -1 when the first was not.
func (d *direct) sendmmsg(fd uintptr) bool {
	for {
		n, _, errno := syscall.RawSyscall6(unix.SYS_SENDMMSG, fd, uintptr(unsafe.Pointer(&d.msgs)), uintptr(d.n), unix.MSG_DONTWAIT, 0, 0)
		if errno == unix.EINTR {
			continue
		}
		d.sent, d.err = int(n), nil //nolint:gosec // at most maxSegments
		if errno != 0 {
			d.sent, d.err = 0, os.NewSyscallError("sendmmsg", errno)
		}
		return true
	}
}

// directReceiver receives one datagram in a call that never waits; if there is none, Go's poller does.
type directReceiver struct {
	raw   syscall.RawConn
	call  func(fd uintptr) bool // made once
	msg   unix.Msghdr
	iovec unix.Iovec
	from  sockaddr
	idle  func()
	n     int
	err   error
}

func (d *directReceiver) init(conn *net.UDPConn) (err error) {
	d.raw, err = conn.SyscallConn()
	d.call = d.recvmsg
	return err
}

// receive fills data and control, neither of them empty, and returns how much of each, and the flags of recvmsg(2).
func (d *directReceiver) receive(data, control []byte, idle func()) (n, controls, flags int, err error) {
	d.iovec.Base = unsafe.SliceData(data)
	d.iovec.SetLen(len(data))
	d.msg = unix.Msghdr{Name: (*byte)(unsafe.Pointer(&d.from.raw)), Namelen: unix.SizeofSockaddrInet6, Iov: &d.iovec, Control: unsafe.SliceData(control)}
	d.msg.SetIovlen(1)
	d.msg.SetControllen(len(control))
	d.idle = idle
	if err := d.raw.Read(d.call); err != nil {
		return 0, 0, 0, err
	}
	return d.n, int(d.msg.Controllen), int(d.msg.Flags), d.err //nolint:gosec // a small size
}

// recvmsg is
//
//	ssize_t recvmsg(int sockfd, struct msghdr *msg, int flags);
//
// which returns the length of the datagram. It reports whether it is to be told; if not, it is called again when there is something.
func (d *directReceiver) recvmsg(fd uintptr) bool {
	for {
		n, _, errno := syscall.RawSyscall(unix.SYS_RECVMSG, fd, uintptr(unsafe.Pointer(&d.msg)), unix.MSG_DONTWAIT)
		d.n, d.err = int(n), nil //nolint:gosec // at most maxReceive
		switch errno {
		case 0:
			return true
		case unix.EINTR:
		case unix.EAGAIN:
			// What arrives from here on is seen: the poller was reset before the call.
			if d.idle != nil {
				d.idle()
			}
			return false
		default:
			d.n, d.err = 0, os.NewSyscallError("recvmsg", errno)
			return true
		}
	}
}

func (d *directReceiver) sender(zone string) netip.AddrPort { return d.from.addrPort(zone) }
