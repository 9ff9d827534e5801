package roce

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// watch listens to rtnetlink(7). It ignores the content of notifications, since the
// interfaces are listed again on each change.
func (host) watch(changed func()) (func(), error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("watch the network interfaces: %w", err)
	}
	groups := uint32(unix.RTMGRP_LINK | unix.RTMGRP_IPV4_IFADDR | unix.RTMGRP_IPV6_IFADDR)
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}); err != nil {
		unix.Close(fd) //nolint:errcheck // report the first error
		return nil, fmt.Errorf("watch the network interfaces: %w", err)
	}
	f := os.NewFile(uintptr(fd), "rtnetlink")
	var done sync.WaitGroup
	done.Go(func() {
		b := make([]byte, 1<<16)
		for {
			// A receive queue overrun (ENOBUFS) means changes, too.
			if _, err := f.Read(b); err != nil && !errors.Is(err, unix.ENOBUFS) {
				return
			}
			changed()
		}
	})
	return func() {
		f.Close() //nolint:errcheck // nothing was written
		done.Wait()
	}, nil
}
