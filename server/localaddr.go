package server

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/config"
)

// near is the address by which peers reach a process, and who says so. The zero near
// says that it is not known.
type localAddr struct {
	addr netip.Addr
	why  string
}

// lookupTimeout bounds each question to the resolver. The answer is a hint, and nobody
// waits for it longer.
const lookupTimeout = 2 * time.Second

// LocalAddr is the address by which peers reach a server with these settings, and who says
// so; the zero Addr when it is not known.
func LocalAddr(ctx context.Context, c config.Config) (addr netip.Addr, why string) {
	n := serverLocalAddr(ctx, c)
	return n.addr, n.why
}

// serverLocalAddr asks, in this order: where the server listens, when that is one address;
// the cluster, which tells the peers where it is; and the way to the first of them
// that has one.
func serverLocalAddr(ctx context.Context, c config.Config) localAddr {
	if host, _, err := net.SplitHostPort(c.Listen); err == nil && host != "" {
		if a := resolve(ctx, host); a.IsValid() && !a.IsUnspecified() {
			return localAddr{a, "the server listens there"}
		}
	}
	if c.Cluster == nil {
		return localAddr{}
	}
	own, _ := c.Cluster.Address(c.Task)
	if host, _, err := net.SplitHostPort(own); err == nil {
		if a := resolve(ctx, host); isLocal(a) {
			return localAddr{a, "the cluster has it at " + own}
		}
	}
	for _, t := range c.Cluster.Tasks() {
		if address, _ := c.Cluster.Address(t); t != c.Task {
			if n := routedLocalAddr(ctx, t, address); n.addr.IsValid() {
				return n
			}
		}
	}
	return localAddr{}
}

// routedLocalAddr is the address from which the way to a peer leads.
func routedLocalAddr(ctx context.Context, t cluster.Task, address string) localAddr {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "udp", address) // it sends nothing
	if err != nil {
		return localAddr{}
	}
	defer conn.Close()
	u, ok := conn.LocalAddr().(*net.UDPAddr)
	if !ok {
		return localAddr{}
	}
	to := address
	if t != serverTask {
		to = fmt.Sprintf("%v at %s", t, address)
	}
	return localAddr{u.AddrPort().Addr().Unmap(), "from there the way leads to " + to}
}

// resolve is the first address of a host, IPv4 before IPv6; the zero Addr when it has
// none.
func resolve(ctx context.Context, host string) netip.Addr {
	if a, err := netip.ParseAddr(host); err == nil {
		return a.Unmap()
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	all, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil || len(all) == 0 {
		return netip.Addr{}
	}
	if i := slices.IndexFunc(all, func(a netip.Addr) bool { return a.Unmap().Is4() }); i >= 0 {
		return all[i].Unmap()
	}
	return all[0]
}

// isLocal reports whether an address is of this host.
func isLocal(a netip.Addr) bool {
	list, err := netdevs()
	if err != nil || !a.IsValid() {
		return false
	}
	for _, n := range list {
		for _, p := range n.Addrs {
			if p.Addr().Unmap().WithZone("") == a.WithZone("") {
				return true
			}
		}
	}
	return false
}
