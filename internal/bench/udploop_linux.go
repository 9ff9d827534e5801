package bench

import (
	"encoding/binary"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// loopControl is the size of the control messages of a super-packet, in bytes.
const loopControl = 64

// The sizes that a device requests (verbs/roce/internal/udp).
const (
	loopReceiveBuffer = 4 << 20
	loopSendBuffer    = 512 << 10
)

// loopSuper is the control message that has the kernel cut a message into packets
// of loopPacket bytes: UDP_SEGMENT of udp(7).
var loopSuper = func() []byte {
	b := make([]byte, unix.CmsgSpace(2))
	rest := b[unix.SizeofCmsghdr-8:]
	binary.NativeEndian.PutUint32(b, uint32(unix.CmsgLen(2))) // the upper half of a size_t is 0
	binary.NativeEndian.PutUint32(rest, unix.SOL_UDP)
	binary.NativeEndian.PutUint32(rest[4:], unix.UDP_SEGMENT)
	binary.NativeEndian.PutUint16(rest[8:], loopPacket)
	return b
}()

// configure sets the options of the sockets.
func (e *loopEnd) configure() error {
	set := func(conn *net.UDPConn, level, option, value int, name string) error {
		raw, err := conn.SyscallConn()
		if err != nil {
			return err
		}
		var inner error
		if err := raw.Control(func(fd uintptr) { inner = unix.SetsockoptInt(int(fd), level, option, value) }); err != nil {
			return err
		}
		return os.NewSyscallError("setsockopt "+name, inner)
	}
	for _, o := range []struct {
		conn                 *net.UDPConn
		level, option, value int
		name                 string
	}{
		{e.in, unix.SOL_SOCKET, unix.SO_RCVBUF, loopReceiveBuffer, "SO_RCVBUF"},
		{e.in, unix.SOL_UDP, unix.UDP_GRO, 1, "UDP_GRO"},
		{e.in, unix.IPPROTO_IP, unix.IP_RECVTOS, 1, "IP_RECVTOS"},
		{e.out, unix.SOL_SOCKET, unix.SO_SNDBUF, loopSendBuffer, "SO_SNDBUF"},
		{e.out, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO, "IP_MTU_DISCOVER"},
	} {
		if err := set(o.conn, o.level, o.option, o.value, o.name); err != nil {
			return err
		}
	}
	return nil
}

// segmentOf returns the length of a super-packet's packets; n is its own.
func segmentOf(control []byte, n int) int {
	for len(control) >= unix.SizeofCmsghdr {
		h, data, rest, err := unix.ParseOneSocketControlMessage(control)
		if err != nil {
			break
		}
		if h.Level == unix.SOL_UDP && h.Type == unix.UDP_GRO && len(data) >= 4 {
			return max(int(binary.NativeEndian.Uint32(data)), 1)
		}
		control = rest
	}
	return n
}
