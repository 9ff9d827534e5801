package identity

import (
	"context"
	"net"
	"net/netip"

	"google.golang.org/grpc/peer"
)

// hostBits is the length of the prefix of an IPv6 network. A host can use all addresses of
// its network (RFC 4291, section 2.5.1).
const hostBits = 64

// Address returns the address of the caller of ctx's call (AddressOf), or "" outside of a call.
func Address(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return ""
	}
	return AddressOf(p.Addr)
}

// AddressOf returns the host of a connection's remote address, to which the limits for
// connections and for unknown processes apply: the IPv4 address, or the IPv6 network, without
// the port. It returns an address that is no IP address unchanged, for instance that of a
// Unix socket.
func AddressOf(a net.Addr) string {
	address := a.String()
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
