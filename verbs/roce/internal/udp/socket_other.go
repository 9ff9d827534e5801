//go:build !linux

package udp

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"syscall"
)

// There are no control messages here.
const controlRoom = 1

func (r *Receiver) configure(options) error {
	r.missing = append(r.missing, "on "+runtime.GOOS+" each datagram is received alone, and marks of congestion are not seen")
	if err := r.conn.SetReadBuffer(receiveBuffer); err == nil {
		r.buffer = receiveBuffer // what the system makes of it is its own affair
		return nil
	}
	r.missing = append(r.missing, fmt.Sprintf("the receive buffer is the system's own, since it refused %d bytes", receiveBuffer))
	r.buffer = defaultBuffer
	return nil
}

// defaultBuffer is what the systems give a UDP socket at least, in bytes
// (net.inet.udp.recvspace has 42,080 on FreeBSD, 786,896 on macOS).
const defaultBuffer = 42_080

func (s *Sender) configure(options) error {
	s.missing = append(s.missing, "on "+runtime.GOOS+" each datagram is sent alone, without traffic class, and may be cut on its way")
	return nil
}

func appendControl(b []byte, _ bool, _ int, _ uint8) []byte { return b }

func parseControl([]byte) received { return received{} }

func isTruncated(int) bool { return false }

func isTaken(err error) bool { return errors.Is(err, syscall.EADDRINUSE) }

func isFull(err error) bool { return errors.Is(err, syscall.ENOBUFS) }

func isTooBig(err error) bool { return errors.Is(err, syscall.EMSGSIZE) }

func refusesSegments(error) bool { return false }

func pathMTU(netip.Addr, netip.AddrPort) (int, error) { return 0, errors.ErrUnsupported }
