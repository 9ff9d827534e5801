package discovery

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
)

// The groups of rtnetlink(7): links, and addresses of both families.
const watchGroups = 1<<(syscall.RTNLGRP_LINK-1) | 1<<(syscall.RTNLGRP_IPV4_IFADDR-1) | 1<<(syscall.RTNLGRP_IPV6_IFADDR-1)

// Watch calls changed on a goroutine of its own whenever a network interface or an address
// of this network namespace may have changed, until stop is called. RDMA devices and the
// states of their ports mostly change together with an interface.
func Watch(changed func()) (stop func(), err error) {
	fd, err := syscall.Socket(syscall.AF_NETLINK, syscall.SOCK_RAW|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, syscall.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("watch the network interfaces: %w", os.NewSyscallError("socket", err))
	}
	if err := syscall.Bind(fd, &syscall.SockaddrNetlink{Family: syscall.AF_NETLINK, Groups: watchGroups}); err != nil {
		_ = syscall.Close(fd) // the first error is reported
		return nil, fmt.Errorf("watch the network interfaces: %w", os.NewSyscallError("bind", err))
	}
	f := os.NewFile(uintptr(fd), "rtnetlink")
	var work sync.WaitGroup
	work.Go(func() {
		b := make([]byte, 1<<16)
		for {
			// ENOBUFS: messages were lost, so there were changes too.
			if _, err := f.Read(b); err != nil && !errors.Is(err, syscall.ENOBUFS) {
				return
			}
			changed()
		}
	})
	return func() {
		_ = f.Close() // nothing was written
		work.Wait()
	}, nil
}
