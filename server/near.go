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
type near struct {
	addr netip.Addr
	why  string
}

// lookTime bounds each question to the resolver. The answer is a hint, and nobody
// waits for it longer.
const lookTime = 2 * time.Second

// LocalAddr is the address by which peers reach a server with these settings, and who says
// so; the zero Addr when it is not known.
func LocalAddr(ctx context.Context, c config.Config) (addr netip.Addr, why string) {
	n := nearServer(ctx, c)
	return n.addr, n.why
}

// nearServer asks, in this order: where the server listens, when that is one address;
// the cluster, which tells the peers where it is; and the way to the first of them
// that has one.
func nearServer(ctx context.Context, c config.Config) near {
	if host, _, err := net.SplitHostPort(c.Listen); err == nil && host != "" {
		if a := resolve(ctx, host); a.IsValid() && !a.IsUnspecified() {
			return near{a, "the server listens there"}
		}
	}
	if c.Cluster == nil {
		return near{}
	}
	own, _ := c.Cluster.Address(c.Task)
	if host, _, err := net.SplitHostPort(own); err == nil {
		if a := resolve(ctx, host); isOurs(a) {
			return near{a, "the cluster has it at " + own}
		}
	}
	for _, t := range c.Cluster.Tasks() {
		if address, _ := c.Cluster.Address(t); t != c.Task {
			if n := nearTo(ctx, t, address); n.addr.IsValid() {
				return n
			}
		}
	}
	return near{}
}

// nearTo is the address from which the way to a peer leads.
func nearTo(ctx context.Context, t cluster.Task, address string) near {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "udp", address) // it sends nothing
	if err != nil {
		return near{}
	}
	defer conn.Close()
	u, ok := conn.LocalAddr().(*net.UDPAddr)
	if !ok {
		return near{}
	}
	to := address
	if t != serverTask {
		to = fmt.Sprintf("%v at %s", t, address)
	}
	return near{u.AddrPort().Addr().Unmap(), "from there the way leads to " + to}
}

// resolve is the first address of a host, IPv4 before IPv6; the zero Addr when it has
// none.
func resolve(ctx context.Context, host string) netip.Addr {
	if a, err := netip.ParseAddr(host); err == nil {
		return a.Unmap()
	}
	ctx, cancel := context.WithTimeout(ctx, lookTime)
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

// isOurs reports whether an address is of this host.
func isOurs(a netip.Addr) bool {
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
