package tcp

import (
	"errors"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// rawSocket makes system calls of its own on a socket: they do not block, and hold no lock of
// the user's memory while the goroutine waits.
type rawSocket struct{ c syscall.RawConn }

// rawOf returns the raw socket of a connection; nil if it has none, as under TLS.
func rawOf(c net.Conn) *rawSocket {
	t := socketOf(c)
	if t == nil {
		return nil
	}
	raw, err := t.SyscallConn()
	if err != nil {
		return nil
	}
	return &rawSocket{c: raw}
}

// read calls try until it returns true, each time when the socket can be read.
func (s *rawSocket) read(try func(fd uintptr) bool) error { return s.c.Read(try) }

// control calls f once, without waiting.
func (s *rawSocket) control(f func(fd uintptr)) error { return s.c.Control(f) }

// write calls try until it returns true, each time when the socket can be written.
func (s *rawSocket) write(try func(fd uintptr) bool) error { return s.c.Write(try) }

// readv reads into the buffers; wait means that there is nothing yet.
func readv(fd uintptr, buffers [][]byte) (n int, wait bool, err error) {
	for {
		n, err = unix.Readv(int(fd), buffers) //nolint:gosec // a file descriptor
		if !errors.Is(err, unix.EINTR) {
			return max(n, 0), errors.Is(err, unix.EAGAIN), ignore(err)
		}
	}
}

// writev writes the buffers, or some of them; wait means that the socket is full.
func writev(fd uintptr, buffers [][]byte) (n int, wait bool, err error) {
	for {
		n, err = unix.Writev(int(fd), buffers) //nolint:gosec // a file descriptor
		if !errors.Is(err, unix.EINTR) {
			return max(n, 0), errors.Is(err, unix.EAGAIN), ignore(err)
		}
	}
}

func ignore(err error) error {
	if errors.Is(err, unix.EAGAIN) {
		return nil
	}
	return err
}

// prepare sets the options of a socket. Without them it works, only slower. The send buffer is not short
// under Options.Busy: a reader that spins takes the processor that the writer needs to fill it in time.
func prepare(c net.Conn, busy bool) {
	if t, ok := c.(interface{ NetConn() net.Conn }); ok { // under TLS
		c = t.NetConn()
	}
	t := socketOf(c)
	if t == nil {
		return
	}
	t.SetNoDelay(true) //nolint:errcheck // Go's default anyway
	raw, err := t.SyscallConn()
	if err != nil {
		return
	}
	raw.Control(func(fd uintptr) { //nolint:errcheck // the connection is closed then
		keepUnsent(fd, minShare)
		if !busy && withinHost(t.LocalAddr(), t.RemoteAddr()) {
			unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF, hostSendBuffer) //nolint:errcheck,gosec // the kernel's maximum may be less
		}
	})
}

// keepUnsent sets how much the kernel takes that it has not sent yet (tcp(7), TCP_NOTSENT_LOWAT).
func keepUnsent(fd uintptr, n int) {
	unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, n) //nolint:errcheck,gosec // Linux has it since 3.12
}
