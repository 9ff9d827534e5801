package grpctransport

import (
	"syscall"
	"time"
)

// tcpUserTimeout is TCP_USER_TIMEOUT (tcp(7)): how long sent data may stay unacknowledged
// before the kernel closes the connection. Keepalive probes only idle connections. Without
// this option the kernel retransmits to an unreachable host for about 15 minutes.
const tcpUserTimeout = 18

// userTimeout returns a net.Dialer.Control that sets TCP_USER_TIMEOUT; nil when after is not
// positive.
func userTimeout(after time.Duration) func(network, address string, c syscall.RawConn) error {
	if after <= 0 {
		return nil
	}
	return func(_, _ string, c syscall.RawConn) error {
		var err error
		if e := c.Control(func(fd uintptr) {
			err = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, int(after.Milliseconds()))
		}); e != nil {
			return e
		}
		return err
	}
}
