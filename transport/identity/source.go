package identity

import (
	"context"
	"net/netip"

	"google.golang.org/grpc/peer"
)

// hostBits is how much of an IPv6 address names a network: a host has all addresses in
// its own (RFC 4291, section 2.5.1).
const hostBits = 64

// Source is the address that a call came from, as far as it counts for the share of
// what peers may make this process remember: without the port, and of IPv6 the
// network of the host, which has each address in it.
func Source(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return ""
	}
	return sourceAt(p.Addr.String())
}

func sourceAt(address string) string {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return address
	}
	ip := at.Addr().Unmap().WithZone("")
	if ip.Is6() && !ip.IsLoopback() {
		if network, err := ip.Prefix(hostBits); err == nil {
			return network.String()
		}
	}
	return ip.String()
}
