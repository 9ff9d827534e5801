package tryst_test

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// severShared breaks the connections by which processes share memory with this one. Nothing else here has sockets of this
// type.
func severShared() {
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return
	}
	for _, e := range all {
		fd, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
		if err != nil || kind != unix.SOCK_SEQPACKET {
			continue
		}
		if listens, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN); err == nil && listens == 0 {
			_ = unix.Shutdown(fd, unix.SHUT_RDWR) // it may have ended
		}
	}
}
