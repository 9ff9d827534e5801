//go:build !linux

package udp

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"syscall"
)

// This system has no control messages.
const controlSpace = 1

func (r *Receiver) configure(options) error {
	r.missing = append(r.missing, "on "+runtime.GOOS+" each datagram is received alone, and congestion marks (ECN) are not received")
	if err := r.conn.SetReadBuffer(receiveBuffer); err == nil {
		r.buffer = receiveBuffer // the system may grant less
		return nil
	}
	r.missing = append(r.missing, fmt.Sprintf("the receive buffer has the default size of the system, which refused %d bytes", receiveBuffer))
	r.buffer = defaultBuffer
	return nil
}

// defaultBuffer is the minimum default of a UDP socket, in bytes
// (net.inet.udp.recvspace is 42,080 on FreeBSD and 786,896 on macOS).
const defaultBuffer = 42_080

func (s *Sender) configure(options) error {
	s.missing = append(s.missing, "on "+runtime.GOOS+" each datagram is sent alone, without traffic class, and may be fragmented")
	return nil
}

func appendControl(b []byte, _ bool, _ int, _ uint8) []byte { return b }

func parseControl([]byte) controlInfo { return controlInfo{} }

func isTruncated(int) bool { return false }

func isPortInUse(err error) bool { return errors.Is(err, syscall.EADDRINUSE) }

func isFull(err error) bool { return errors.Is(err, syscall.ENOBUFS) }

func isTooBig(err error) bool { return errors.Is(err, syscall.EMSGSIZE) }

func refusesSegments(error) bool { return false }

func pathMTU(netip.Addr, netip.AddrPort) (int, error) { return 0, errors.ErrUnsupported }
