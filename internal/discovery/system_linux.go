package discovery

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
)

// Host is the system that this process runs on.
func Host() (System, error) {
	return System{
		Sys:      os.DirFS("/sys"),
		Netlink:  kernelNetlink{},
		Map:      hostMap{},
		Addrs:    hostAddrs,
		OpenNode: openNode,
	}, nil
}

// Network is a number that processes have in common that share the network of one host,
// and so reach each other's loopback addresses; others have another one. It is made of
// the kernel's boot_id and the inode of the process's network namespace (random(4),
// namespaces(7)) and does not tell them. 0 where they cannot be read.
func Network() uint64 {
	namespace, err := os.Readlink("/proc/thread-self/ns/net") // "net:[4026531840]"
	if err != nil {
		return 0
	}
	return ofHost("network", namespace)
}

// User is a number that processes of one user in one user namespace of one host have in common;
// others have another one. It is made as Network is. 0 where it cannot be read.
func User() uint64 {
	namespace, err := os.Readlink("/proc/thread-self/ns/user")
	if err != nil {
		return 0
	}
	return ofHost("user", fmt.Sprintf("%s %d", namespace, os.Geteuid()))
}

// Directory is a number that processes of one host have in common that see the same directory at a
// path, which may be another path in each; others have another one. It is made as Network is. 0 for
// a path that is no directory.
func Directory(path string) uint64 {
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return 0
	}
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0
	}
	return ofHost("directory", fmt.Sprintf("%d %d", s.Dev, s.Ino))
}

// ofHost is a number for something of this host, which does not tell it. 0 if the host has none.
func ofHost(kind, name string) uint64 {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return 0
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "tryst %s %s %s", kind, boot, name))
	return binary.LittleEndian.Uint64(sum[:])
}

func openNode(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return f.Close()
}

func hostAddrs() (map[string][]netip.Prefix, error) {
	ifs, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	all := make(map[string][]netip.Prefix, len(ifs))
	for _, i := range ifs {
		addrs, err := i.Addrs()
		if err != nil {
			return nil, fmt.Errorf("addresses of %s: %w", i.Name, err)
		}
		for _, a := range addrs {
			p, err := netip.ParsePrefix(a.String())
			if err != nil {
				return nil, fmt.Errorf("addresses of %s: %w", i.Name, err)
			}
			all[i.Name] = append(all[i.Name], p)
		}
	}
	return all, nil
}
