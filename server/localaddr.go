package server

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/internal/devices"
)

// LocalAddr returns the address by which peers reach a server with these settings, and the reason
// for it. The address is zero when it is not known.
func LocalAddr(ctx context.Context, c config.Config) (addr netip.Addr, why string) {
	return newOwnAddress(ctx, c, lookup).local(ctx)
}

// ownAddress is where a server listens and how peers reach it.
type ownAddress struct {
	cfg            config.Config
	listen, reason string // see listenAddress
	look           lookupFunc
	// first has what was looked up for listen. The first call of local uses it: a lookup may
	// take long, and the answer is not another one.
	first map[string][]netip.Addr
}

// lookupFunc returns the addresses of a name, each once; nil if there are none.
type lookupFunc func(ctx context.Context, name string) []netip.Addr

// newOwnAddress chooses where the server listens.
func newOwnAddress(ctx context.Context, c config.Config, look lookupFunc) *ownAddress {
	o := &ownAddress{cfg: c, look: look, first: make(map[string][]netip.Addr)}
	o.listen, o.reason = listenAddress(c, func(name string) []netip.Addr {
		all := look(ctx, name)
		o.first[name] = all
		return all
	})
	return o
}

// local takes, in this order: the address on which the server listens, unless it is a wildcard;
// the address of this task in the cluster, if it is local; the local address of the route to the
// first reachable peer. The address is zero if there is none. Calls must not overlap.
func (o *ownAddress) local(ctx context.Context) (addr netip.Addr, why string) {
	known := o.first
	o.first = nil
	look := func(ctx context.Context, name string) []netip.Addr {
		if all, ok := known[name]; ok {
			return all
		}
		return o.look(ctx, name)
	}
	if host, _, err := net.SplitHostPort(o.listen); err == nil && host != "" {
		if a := resolve(ctx, host, look); a.IsValid() && !a.IsUnspecified() {
			return a, "the server listens there"
		}
	}
	c := o.cfg
	if c.Cluster == nil {
		return netip.Addr{}, ""
	}
	own, _ := c.Cluster.Address(c.Task)
	if host, _, err := net.SplitHostPort(own); err == nil {
		if a := resolve(ctx, host, look); isLocal(a) {
			return a, "the cluster spec has this task at " + own
		}
	}
	for _, t := range c.Cluster.Tasks() {
		if address, _ := c.Cluster.Address(t); t != c.Task {
			if addr, why = routedLocalAddr(ctx, t, address); addr.IsValid() {
				return addr, why
			}
		}
	}
	return netip.Addr{}, ""
}

// routedLocalAddr returns the local address of the route to a peer, and says so; zero if there is none.
func routedLocalAddr(ctx context.Context, t cluster.Task, address string) (addr netip.Addr, why string) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "udp", address) // a route lookup; no packet is sent
	if err != nil {
		return netip.Addr{}, ""
	}
	defer conn.Close()
	u, ok := conn.LocalAddr().(*net.UDPAddr)
	if !ok {
		return netip.Addr{}, ""
	}
	to := address
	if t != serverTask {
		to = fmt.Sprintf("%v at %s", t, address)
	}
	return u.AddrPort().Addr().Unmap(), "it is the local address of the route to " + to
}

// resolve returns the first address of a host, IPv4 before IPv6, or the zero Addr if it has none.
func resolve(ctx context.Context, host string, look lookupFunc) netip.Addr {
	if a, err := netip.ParseAddr(host); err == nil {
		return a.Unmap()
	}
	all := look(ctx, host)
	if len(all) == 0 {
		return netip.Addr{}
	}
	if i := slices.IndexFunc(all, netip.Addr.Is4); i >= 0 {
		return all[i]
	}
	return all[0]
}

// lookup is a lookupFunc that asks the resolver of the host.
func lookup(ctx context.Context, name string) []netip.Addr {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", name)
	if err != nil {
		return nil
	}
	var all []netip.Addr
	for _, a := range found {
		if a = a.Unmap(); !slices.Contains(all, a) {
			all = append(all, a)
		}
	}
	return all
}

// isLocal reports whether a network interface of this host has the address.
func isLocal(a netip.Addr) bool {
	list, err := devices.Interfaces()
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
