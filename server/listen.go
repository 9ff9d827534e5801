package server

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"strings"

	"github.com/tryst-rdma/tryst/internal/config"
)

// ownHost finds out about the host in the address of this task in the cluster.
type ownHost struct {
	lookup  func(name string) []netip.Addr
	isLocal func(netip.Addr) bool // of a network interface of this host
}

// listenAddress returns the address for the listener of a server: the setting listen. If that is
// the address of this task in the cluster, it may be one that only peers can use; reason says then
// why the server listens on all interfaces instead, or on loopback if no source has set the task.
func listenAddress(c config.Config, lookup func(name string) []netip.Addr) (address, reason string) {
	if !c.ListensInCluster() {
		return c.Listen, ""
	}
	h := ownHost{lookup: lookup, isLocal: isLocal}
	address, reason = h.listenAddress(c.Listen)
	if reason != "" && !c.TaskIsSet() { // a cluster alone opens no port to other hosts
		address = net.JoinHostPort("127.0.0.1", strings.TrimPrefix(address, ":"))
	}
	return address, reason
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

// listenAs opens the listener of a server. Peers that connect wait until the server accepts them.
func listenAs(ctx context.Context, c config.Config, own *ownAddress, log *slog.Logger) (net.Listener, error) {
	setting := "listen"
	if c.ListensInCluster() {
		setting = "listen, by default the address of this task in the cluster"
	}
	lis, err := listen(ctx, setting, own.listen)
	switch {
	case err != nil || own.reason == "":
	case !c.TaskIsSet():
		log.Warn("listening on loopback, where no other host reaches this server; the address of the default task in the cluster is not one of this host, and the setting task is not set; set task or listen",
			"cluster", c.Listen, "address", lis.Addr().String(), "reason", own.reason)
	default:
		log.Info("listening on all interfaces, at the port of this task in the cluster",
			"cluster", c.Listen, "address", lis.Addr().String(), "reason", own.reason)
	}
	return lis, err
}
