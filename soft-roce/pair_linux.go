package softroce

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/tryst-rdma/tryst/status"
)

// End is one end of a pair: a network interface with its addresses, and the RDMA device on it.
type End struct {
	Link
	IPv4, IPv6 netip.Prefix
}

// Pair is two RDMA devices on one machine whose packets really travel, from one end of a virtual cable (veth(4)) to the other.
type Pair [2]End

// DefaultPair is the pair that the VM has: rxe0 on v0 and rxe1 on v1. The addresses are of the ranges for documentation (RFC 5737,
// RFC 3849), which no real network uses.
func DefaultPair() Pair {
	return Pair{
		{Link{"rxe0", "v0"}, netip.MustParsePrefix("192.0.2.1/24"), netip.MustParsePrefix("2001:db8::1/64")},
		{Link{"rxe1", "v1"}, netip.MustParsePrefix("192.0.2.2/24"), netip.MustParsePrefix("2001:db8::2/64")},
	}
}

// SetupPair makes the interfaces and the devices on them, and waits until both are active. What it has made is removed again when it
// fails. Packets between two addresses of one machine are dropped as forged, without a word, unless accept_local is 1 and rp_filter
// is 0 (ip-sysctl in the kernel's documentation): it sets both on the two interfaces, and rp_filter for "all", of which the
// larger value counts.
func SetupPair(ctx context.Context, p Pair) (err error) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = p[0].Netdev, pairMTU
	veth := netlink.NewVeth(attrs)
	veth.PeerName, veth.PeerMTU = p[1].Netdev, pairMTU
	if err := netlink.LinkAdd(veth); err != nil {
		return pairError(p, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.remove())
		}
	}()
	for _, end := range p {
		if err := end.up(); err != nil {
			return err
		}
	}
	for _, end := range p {
		if err := AddLink(end.Name, end.Netdev); err != nil {
			return err
		}
	}
	for _, end := range p {
		if err := WaitActive(ctx, end.Name); err != nil {
			return err
		}
	}
	return nil
}

// RemovePair removes the devices and the interfaces. rp_filter of "all" stays 0.
func RemovePair(p Pair) error { return p.remove() }

func (p Pair) remove() error {
	links, err := Links()
	if err != nil {
		return err
	}
	var errs []error
	for _, l := range links {
		if l == p[0].Link || l == p[1].Link {
			errs = append(errs, RemoveLink(l.Name))
		}
	}
	veth, err := netlink.LinkByName(p[0].Netdev)
	switch {
	case errors.As(err, new(netlink.LinkNotFoundError)):
	case err != nil:
		errs = append(errs, status.Errorf(status.Internal, "find network interface %s: %w", p[0].Netdev, err))
	case veth.Type() == "veth": // Its other end goes with it.
		if err := netlink.LinkDel(veth); err != nil {
			errs = append(errs, status.Errorf(status.Internal, "remove network interface %s: %w", p[0].Netdev, err))
		}
	}
	return errors.Join(errs...)
}

// up gives the interface its settings and addresses and switches it on.
func (e End) up() error {
	link, err := netlink.LinkByName(e.Netdev)
	if err != nil {
		return status.Errorf(status.Internal, "find network interface %s: %w", e.Netdev, err)
	}
	settings := []setting{
		{"ipv4/conf/all/rp_filter", "0"},
		{"ipv4/conf/" + e.Netdev + "/rp_filter", "0"},
		{"ipv4/conf/" + e.Netdev + "/accept_local", "1"},
	}
	prefixes := []netip.Prefix{e.IPv4}
	if _, err := os.Stat(filepath.Join(sysctl, "ipv6")); err == nil {
		prefixes = append(prefixes, e.IPv6)
		// Nobody else is on the cable: to wait for another owner of an address would cost a second.
		// And who switches the interface off and on again has its addresses as before, as with IPv4.
		settings = append(settings, setting{"ipv6/conf/" + e.Netdev + "/accept_dad", "0"}, setting{"ipv6/conf/" + e.Netdev + "/keep_addr_on_down", "1"})
	}
	for _, s := range settings {
		if err := s.write(); err != nil {
			return err
		}
	}
	for _, prefix := range prefixes {
		addr, err := netlink.ParseAddr(prefix.String())
		if err != nil {
			return status.Errorf(status.InvalidArgument, "address %s of %s: %w", prefix, e.Netdev, err)
		}
		if err := netlink.AddrAdd(link, addr); err != nil {
			return status.Errorf(status.Internal, "give %s the address %s: %w", e.Netdev, prefix, err)
		}
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return status.Errorf(status.Internal, "switch %s on: %w", e.Netdev, err)
	}
	return nil
}

// sysctl is where the network's settings are.
const sysctl = "/proc/sys/net"

// setting is one of them.
type setting struct{ path, value string }

func (s setting) write() error {
	if err := os.WriteFile(filepath.Join(sysctl, s.path), []byte(s.value), 0); err != nil {
		return status.Errorf(status.FailedPrecondition, "set net/%s to %s: %w", s.path, s.value, err)
	}
	return nil
}

// pairError puts the answer to the request for the interfaces into words.
func pairError(p Pair, err error) error {
	what := fmt.Sprintf("make the network interfaces %s and %s", p[0].Netdev, p[1].Netdev)
	switch {
	case errors.Is(err, unix.EEXIST):
		return status.Errorf(status.AlreadyExists, "%s: one of them is there already: %w", what, err)
	case errors.Is(err, unix.EPERM):
		return status.Errorf(status.PermissionDenied, "%s: the right to change the network is needed: run as root, or with CAP_NET_ADMIN: %w", what, err)
	case errors.Is(err, unix.EOPNOTSUPP):
		return status.Errorf(status.FailedPrecondition, "%s: the kernel has no veth loaded: modprobe veth: %w", what, err)
	default:
		return status.Errorf(status.Internal, "%s: %w", what, err)
	}
}
