package discovery

import (
	"fmt"
	"net"
	"net/netip"
	"os"
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
