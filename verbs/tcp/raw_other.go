//go:build !linux

package tcp

import (
	"errors"
	"net"
)

// rawSocket exists on Linux only. Elsewhere content is copied once more, as under TLS.
type rawSocket struct{}

func rawOf(net.Conn) *rawSocket { return nil }

func (*rawSocket) read(func(fd uintptr) bool) error { return errors.ErrUnsupported }

func (*rawSocket) control(func(fd uintptr)) error { return errors.ErrUnsupported }

func (*rawSocket) write(func(fd uintptr) bool) error { return errors.ErrUnsupported }

func readv(uintptr, [][]byte) (n int, wait bool, err error) { return 0, false, errors.ErrUnsupported }

func writev(uintptr, [][]byte) (n int, wait bool, err error) { return 0, false, errors.ErrUnsupported }

func prepare(net.Conn, bool) {}

func keepUnsent(uintptr, int) {}
