//go:build !linux

package loss

import "net"

// update returns false if the connection is closed. Only Linux has the counters.
func (c *Conn) update(conn *net.TCPConn) bool {
	raw, err := conn.SyscallConn()
	return err == nil && raw.Control(func(uintptr) {}) == nil
}
