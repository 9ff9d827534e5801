// Package listen chooses where a server listens and finds out how peers reach it; its listeners go on
// after errors and bound their connections.
package listen

import (
	"context"
	"net"
	"net/netip"
	"strings"

	"github.com/tryst-rdma/tryst/status"
)

// ownHost finds out about the host in the address of this task in the cluster.
type ownHost struct {
	lookup  func(name string) []netip.Addr
	isLocal func(netip.Addr) bool // of a network interface of this host
}

// listenAddress takes a literal address of this host, and localhost, as they are. It takes a name
// that has exactly one address, if that is one of this host. In all other cases it returns all
// interfaces at the port of the cluster, as TensorFlow's servers listen:
//
//   - another host or a load balancer forwards the port;
//   - the name is not known yet, as that of a pod that is not ready;
//   - the name has several addresses, and peers may choose another one;
//   - /etc/hosts has the name at a loopback address, which peers do not use.
func (h ownHost) listenAddress(own string) (address, reason string) {
	host, port, err := net.SplitHostPort(own)
	if err != nil || host == "" || isLocalhost(host) { // the setting is valid: err is nil
		return own, ""
	}
	if a, err := netip.ParseAddr(host); err == nil {
		if a.IsUnspecified() || a.IsLoopback() || h.isLocal(a.Unmap()) {
			return own, ""
		}
		return ":" + port, "no network interface has this address"
	}
	switch all := h.lookup(host); {
	case len(all) == 0:
		return ":" + port, "the name has no address here, or not yet"
	case len(all) > 1:
		return ":" + port, "the name has several addresses"
	case all[0].IsLoopback():
		return ":" + port, "here the name has the address " + all[0].String() + ", which peers cannot use"
	case !h.isLocal(all[0]):
		return ":" + port, "the name has the address " + all[0].String() + ", which no network interface has"
	default:
		return net.JoinHostPort(all[0].String(), port), ""
	}
}

// isLocalhost reports whether a name always means the loopback interface (RFC 6761, section 6.3).
func isLocalhost(host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// TCP opens a TCP listener. Its error names the setting that gave the address.
func TCP(ctx context.Context, setting, address string) (net.Listener, error) {
	var lc net.ListenConfig
	lis, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, status.Errorf(status.Unavailable, "%s: cannot listen on %s: %w", setting, address, err)
	}
	return withZone(lis, address), nil
}

// withZone returns a listener whose address has the zone of the address that it listens on. The
// kernel does not tell the zone of an MPTCP socket, which listeners of Go are.
func withZone(lis net.Listener, address string) net.Listener {
	at, ok := lis.Addr().(*net.TCPAddr)
	host, _, err := net.SplitHostPort(address)
	if !ok || err != nil || at.Zone != "" || !at.IP.IsLinkLocalUnicast() {
		return lis
	}
	a, err := netip.ParseAddr(host)
	if err != nil || a.Zone() == "" {
		return lis
	}
	return zoneListener{lis, &net.TCPAddr{IP: at.IP, Port: at.Port, Zone: a.Zone()}}
}

// zoneListener is a listener with another address.
type zoneListener struct {
	net.Listener
	address net.Addr
}

// Addr implements net.Listener.
func (l zoneListener) Addr() net.Addr { return l.address }
