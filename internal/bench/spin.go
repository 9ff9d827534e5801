package bench

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/tryst-rdma/tryst/status"
)

// spinning is a connection whose reads and writes try again at once while the socket is not ready,
// so neither waits for the kernel to wake it. One goroutine at a time may read, and one may write.
type spinning struct {
	net.Conn
	raw      syscall.RawConn
	in, out  attempt
	readFrom func(fd uintptr) bool // made once, since the loop makes it millions of times
	writeTo  func(fd uintptr) bool
}

// attempt is one system call.
type attempt struct {
	b   []byte
	n   int
	err error
}

func newSpinning(conn net.Conn) (*spinning, error) {
	c, ok := conn.(syscall.Conn)
	if !ok {
		return nil, status.Errorf(status.InvalidArgument, "a %T has no socket to spin on", conn)
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	s := &spinning{Conn: conn, raw: raw}
	s.readFrom = func(fd uintptr) bool {
		s.in.n, s.in.err = unix.Read(int(fd), s.in.b)
		return true // whatever came, the runtime shall not wait
	}
	s.writeTo = func(fd uintptr) bool {
		s.out.n, s.out.err = unix.Write(int(fd), s.out.b)
		return true
	}
	return s, nil
}

// dialSpinning connects, and spins at this side.
func dialSpinning(ctx context.Context, network, address string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	s, err := newSpinning(conn)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return s, nil
}

// again reports whether a call found the socket not ready.
func (a *attempt) again() bool {
	return errors.Is(a.err, unix.EAGAIN) || errors.Is(a.err, unix.EINTR)
}

// Read implements net.Conn. It ends when the connection is closed.
func (s *spinning) Read(b []byte) (int, error) {
	for s.in.b = b; ; {
		if err := s.raw.Read(s.readFrom); err != nil {
			return 0, err
		}
		switch {
		case s.in.again():
		case s.in.err != nil:
			return 0, s.in.err
		case s.in.n == 0 && len(b) > 0:
			return 0, io.EOF
		default:
			return s.in.n, nil
		}
	}
}

// Write implements net.Conn: it writes all of b.
func (s *spinning) Write(b []byte) (written int, err error) {
	for written < len(b) {
		s.out.b = b[written:]
		if err := s.raw.Write(s.writeTo); err != nil {
			return written, err
		}
		if s.out.again() {
			continue
		}
		if s.out.err != nil {
			return written, s.out.err
		}
		written += s.out.n
	}
	return written, nil
}
