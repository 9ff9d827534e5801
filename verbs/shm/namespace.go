//go:build linux

package shm

import (
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// The user namespace of a peer. Its own word is no proof: a process of the same kernel user in another
// user namespace, such as a container, could give the number of ours. Linux 6.11 and newer say it
// themselves: the socket has a pidfd of the process that connected or listens, and the pidfd leads
// to its user namespace.

const (
	soPeerPIDFD           = 77     // SO_PEERPIDFD (include/uapi/asm-generic/socket.h), Linux 6.5
	pidfdGetUserNamespace = 0xff09 // PIDFD_GET_USER_NAMESPACE (include/uapi/linux/pidfd.h), Linux 6.11
)

// errNotSaid means that the kernel does not say in which user namespace a peer is.
var errNotSaid = errors.New("the kernel is older than Linux 6.11")

// peerNamespace returns the number of the user namespace of the process at the other end. The kernel
// refuses it (EACCES) for a process that this one could not inspect: in another user namespace,
// or with capabilities that this one lacks.
func peerNamespace(c *net.UnixConn) (uint64, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	pidfd := -1
	var failed error
	if err := raw.Control(func(fd uintptr) { pidfd, failed = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, soPeerPIDFD) }); err != nil {
		return 0, err
	}
	if failed != nil {
		return 0, notSaid("SO_PEERPIDFD", failed)
	}
	defer unix.Close(pidfd)
	ns, err := unix.IoctlRetInt(pidfd, pidfdGetUserNamespace)
	if err != nil {
		return 0, notSaid("PIDFD_GET_USER_NAMESPACE", err)
	}
	defer unix.Close(ns)
	var st unix.Stat_t
	if err := unix.Fstat(ns, &st); err != nil {
		return 0, fmt.Errorf("stat of a user namespace: %w", err)
	}
	return st.Ino, nil
}

// notSaid tells a kernel that lacks a call from one that refuses it.
func notSaid(call string, err error) error {
	for _, lacks := range []error{unix.ENOPROTOOPT, unix.ENOTTY, unix.EOPNOTSUPP, unix.ENOSYS} {
		if errors.Is(err, lacks) {
			return errNotSaid
		}
	}
	return fmt.Errorf("%s: %w", call, err)
}
