package identity

import (
	"context"
	"net/netip"

	"google.golang.org/grpc/peer"
)

// hostBits is the length of the prefix of an IPv6 network. A host can use all addresses of
// its network (RFC 4291, section 2.5.1).
const hostBits = 64

// Source returns the source of ctx's call, to which the limits for unknown processes apply:
// the IPv4 address of the caller, or the IPv6 network, without the port.
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
