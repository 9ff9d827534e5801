package loss

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// update reads the counters of a connection (tcp(7), TCP_INFO). It returns false if the
// connection is closed.
func (c *Conn) update(conn *net.TCPConn) bool {
	raw, err := conn.SyscallConn()
	if err != nil {
		return false
	}
	var info *unix.TCPInfo
	if err := raw.Control(func(fd uintptr) { info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) }); err != nil {
		return false
	}
	if err != nil {
		return true // the system does not tell
	}
	c.sent, c.resent = uint64(info.Data_segs_out), uint64(info.Total_retrans)
	c.MSS, c.roundTrip = int(info.Snd_mss), time.Duration(info.Rtt)*time.Microsecond
	return true
}
