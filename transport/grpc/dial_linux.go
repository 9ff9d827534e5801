package grpctransport

import (
	"syscall"
	"time"
)

// tcpUserTimeout is TCP_USER_TIMEOUT (tcp(7)): how long sent data may stay
// unacknowledged before the connection is given up. Keepalive probes only an
// idle connection; without this a request to a host that has vanished is
// repeated for a quarter of an hour.
const tcpUserTimeout = 18

func giveUpUnacknowledged(after time.Duration) func(network, address string, c syscall.RawConn) error {
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
