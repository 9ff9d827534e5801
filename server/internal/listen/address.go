package listen

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/internal/discovery"
)

// Address is where a server listens and how peers reach it.
type Address struct {
	o              Options
	listen, reason string // see choose
	look           LookupFunc
	// first has what was looked up for listen. The first call of local uses it: a lookup may
	// take long, and the answer is not another one.
	first map[string][]netip.Addr
}

// Options are the settings of a listener.
type Options struct {
	// Listen is the setting listen. InCluster reports whether it is the address of this task in the
	// cluster, and TaskIsSet whether a source has set that task.
	Listen               string
	InCluster, TaskIsSet bool
	// Cluster and Task are where peers know the process.
	Cluster *cluster.Spec
	Task    cluster.Task
}

// LookupFunc returns the addresses of a name, each once; nil if there are none.
type LookupFunc func(ctx context.Context, name string) []netip.Addr

// Choose chooses where a server listens.
func Choose(ctx context.Context, o Options, look LookupFunc) *Address {
	a := &Address{o: o, look: look, first: make(map[string][]netip.Addr)}
	a.listen, a.reason = o.choose(func(name string) []netip.Addr {
		all := look(ctx, name)
		a.first[name] = all
		return all
	})
	return a
}

// choose returns the address for the listener: the setting listen. If that is
// the address of this task in the cluster, it may be one that only peers can use; reason says then
// why the server listens on all interfaces instead, or on loopback if no source has set the task.
func (o Options) choose(lookup func(name string) []netip.Addr) (address, reason string) {
	if !o.InCluster {
		return o.Listen, ""
	}
	h := ownHost{lookup: lookup, isLocal: IsLocal}
	address, reason = h.listenAddress(o.Listen)
	if reason != "" && !o.TaskIsSet { // a cluster alone opens no port to other hosts
		address = net.JoinHostPort("127.0.0.1", strings.TrimPrefix(address, ":"))
	}
	return address, reason
}

// Open opens the listener. Peers that connect wait until the server accepts them.
func (a *Address) Open(ctx context.Context, log *slog.Logger) (net.Listener, error) {
	setting := config.ListenKey
	if a.o.InCluster {
		setting = "listen, by default the address of this task in the cluster"
	}
	lis, err := TCP(ctx, setting, a.listen)
	switch {
	case err != nil || a.reason == "":
	case !a.o.TaskIsSet:
		log.Warn("listening on loopback, where no other host reaches this server; the address of the default task in the cluster is not one of this host, and the setting task is not set; set task or listen",
			"cluster", a.o.Listen, "address", lis.Addr().String(), "reason", a.reason)
	default:
		log.Info("listening on all interfaces, at the port of this task in the cluster",
			"cluster", a.o.Listen, "address", lis.Addr().String(), "reason", a.reason)
	}
	return lis, err
}

// Dialed returns the addresses at which peers may dial a server with its listener: that of
// its task in the cluster, which may be forwarded, or that on which it listens. For a server that
// listens on all interfaces these are the addresses of the host.
func (a *Address) Dialed(listener net.Addr) []string {
	if own, ok := a.o.Cluster.Address(a.o.Task); ok {
		return []string{own}
	}
	at, ok := listener.(*net.TCPAddr)
	if !ok || !at.IP.IsUnspecified() {
		return []string{listener.String()}
	}
	interfaces, err := discovery.Interfaces()
	if err != nil {
		return nil // peers know an address, since they dial gRPC
	}
	var all, loopbacks []string
	for _, i := range interfaces {
		for _, p := range i.Addrs {
			ip := p.Addr().Unmap()
			switch text := net.JoinHostPort(ip.String(), strconv.Itoa(at.Port)); {
			case ip.IsLoopback():
				loopbacks = append(loopbacks, text)
			case !ip.IsLinkLocalUnicast() && len(all) < maxDialedAddresses:
				all = append(all, text)
			}
		}
	}
	if len(all) == 0 {
		return loopbacks
	}
	return all
}

// Local takes, in this order: the address on which the server listens, unless it is a wildcard;
// the address of this task in the cluster, if it is local; the local address of the route to the
// first reachable peer. The address is zero if there is none. Calls must not overlap.
func (a *Address) Local(ctx context.Context) (addr netip.Addr, why string) {
	known := a.first
	a.first = nil
	look := func(ctx context.Context, name string) []netip.Addr {
		if all, ok := known[name]; ok {
			return all
		}
		return a.look(ctx, name)
	}
	if host, _, err := net.SplitHostPort(a.listen); err == nil && host != "" {
		if is := resolve(ctx, host, look); is.IsValid() && !is.IsUnspecified() {
			return is, "the server listens there"
		}
	}
	if a.o.Cluster == nil {
		return netip.Addr{}, ""
	}
	own, _ := a.o.Cluster.Address(a.o.Task)
	if host, _, err := net.SplitHostPort(own); err == nil {
		if is := resolve(ctx, host, look); IsLocal(is) {
			return is, "the cluster spec has this task at " + own
		}
	}
	for _, t := range a.o.Cluster.Tasks() {
		if address, _ := a.o.Cluster.Address(t); t != a.o.Task {
			if addr, why = RouteTo(ctx, address, t.String()); addr.IsValid() {
				return addr, why
			}
		}
	}
	return netip.Addr{}, ""
}

// RouteTo returns the local address of the route to a peer, and says so; zero if there is none.
// name is that of the peer; it may be empty.
func RouteTo(ctx context.Context, address, name string) (addr netip.Addr, why string) {
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
	if name != "" {
		to = name + " at " + address
	}
	return u.AddrPort().Addr().Unmap(), "it is the local address of the route to " + to
}

// resolve returns the first address of a host, IPv4 before IPv6, or the zero Addr if it has none.
func resolve(ctx context.Context, host string, look LookupFunc) netip.Addr {
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

// Lookup is a LookupFunc that asks the resolver of the host.
func Lookup(ctx context.Context, name string) []netip.Addr {
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

// IsLocal reports whether a network interface of this host has the address.
func IsLocal(a netip.Addr) bool {
	list, err := discovery.Interfaces()
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
