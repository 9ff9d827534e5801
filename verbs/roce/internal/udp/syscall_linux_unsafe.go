//go:build linux

// This file makes system calls without Go's scheduler, which neither the standard library
// nor golang.org/x/net offers. It needs unsafe because the structures of sendmmsg(2) and
// recvmsg(2) contain addresses. All of them lie in memory that belongs to a socket for the
// life of the socket.
//
// Go's scheduler must assume that a system call blocks, and has a thread monitor it
// (runtime.sysmon). In a process that is idle between packets, each call would wake that
// thread. The calls of this file do not block (MSG_DONTWAIT); they occupy their processor
// while the kernel copies.

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

// sockaddr is an address in the kernel's form. It has the size of the larger family;
// both begin alike.
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

// scopeOf returns the scope id of a zone; 0, which no link has, if the zone is unknown.
func scopeOf(zone string) uint32 {
	if zone == "" {
		return 0
	}
	if i, err := net.InterfaceByName(zone); err == nil {
		return uint32(i.Index) //nolint:gosec // positive
	}
	n, _ := strconv.ParseUint(zone, 10, 32) // 0 if it is not a number
	return uint32(n)
}

// addrPort returns the address; a link-local one gets the zone.
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

// portOf reads a port in network byte order.
func portOf(p *uint16) uint16 {
	b := (*[2]byte)(unsafe.Pointer(p))
	return uint16(b[0])<<8 | uint16(b[1])
}

// mmsghdr is struct mmsghdr of sendmmsg(2).
type mmsghdr struct {
	header unix.Msghdr
	length uint32 //nolint:unused // the kernel writes it
}

// nonBlockingKernel is a kernel whose send bypasses Go's scheduler.
type nonBlockingKernel struct {
	batchWriter
	raw   syscall.RawConn
	call  func(fd uintptr) bool // created once
	msgs  [maxSegments]mmsghdr
	n     int
	iovec []unix.Iovec
	sent  int
	err   error
}

func newKernel(conn *net.UDPConn) (kernel, error) {
	raw, err := conn.SyscallConn()
	d := &nonBlockingKernel{batchWriter: newBatchWriter(conn), raw: raw}
	d.call = d.sendmmsg
	return d, err
}

func (d *nonBlockingKernel) wait(p *packing, at int) (int, error) {
	return d.WriteBatch(p.msgs[at:p.n], 0)
}

func (d *nonBlockingKernel) send(p *packing, at int) (int, error) {
	d.iovec, d.n = d.iovec[:0], p.n-at
	buffers := 0
	for i := at; i < p.n; i++ {
		buffers += len(p.msgs[i].Buffers)
	}
	d.iovec = slices.Grow(d.iovec, buffers) // it must not move while it is filled
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
	clear(d.iovec) // drop the references to the buffers
	if err != nil {
		return 0, err
	}
	return d.sent, d.err
}

// sendmmsg implements
//
//	int sendmmsg(int sockfd, struct mmsghdr *msgvec, unsigned int vlen, int flags);
//
// which returns how many messages were sent, or -1 if the first one failed.
func (d *nonBlockingKernel) sendmmsg(fd uintptr) bool {
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

// socketReader receives one datagram with a call that does not block. If there is none,
// it waits in Go's poller.
type socketReader struct {
	raw   syscall.RawConn
	call  func(fd uintptr) bool // created once
	msg   unix.Msghdr
	iovec unix.Iovec
	from  sockaddr
	idle  func()
	n     int
	err   error
}

func (d *socketReader) init(conn *net.UDPConn) (err error) {
	d.raw, err = conn.SyscallConn()
	d.call = d.recvmsg
	return err
}

// receive fills data and control, which must not be empty. It returns how much of each
// was filled, and the flags of recvmsg(2).
func (d *socketReader) receive(data, control []byte, idle func()) (n, controls, flags int, err error) {
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

// recvmsg implements
//
//	ssize_t recvmsg(int sockfd, struct msghdr *msg, int flags);
//
// which returns the length of the datagram. It reports whether it is done; if not, Go's
// poller calls it again when the socket is readable.
func (d *socketReader) recvmsg(fd uintptr) bool {
	for {
		n, _, errno := syscall.RawSyscall(unix.SYS_RECVMSG, fd, uintptr(unsafe.Pointer(&d.msg)), unix.MSG_DONTWAIT)
		d.n, d.err = int(n), nil //nolint:gosec // at most maxReceive
		switch errno {
		case 0:
			return true
		case unix.EINTR:
		case unix.EAGAIN:
			// A datagram that arrives from now on wakes the poller, which was reset
			// before this call.
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

func (d *socketReader) sender(zone string) netip.AddrPort { return d.from.addrPort(zone) }
