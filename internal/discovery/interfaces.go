package discovery

import (
	"net"
	"net/netip"
)

// Interfaces returns the network interfaces of this host, as package net knows them.
func Interfaces() ([]Netdev, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	var list []Netdev
	for _, i := range all {
		n := Netdev{Name: i.Name, MTU: i.MTU, Up: i.Flags&net.FlagUp != 0, State: "down"}
		if i.Flags&net.FlagRunning != 0 {
			n.State = "up"
		}
		addrs, err := i.Addrs()
		if err != nil {
			continue // it was removed in the meantime
		}
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				n.Addrs = append(n.Addrs, p)
			}
		}
		list = append(list, n)
	}
	return list, nil
}
