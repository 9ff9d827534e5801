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
	Device
	IPv4, IPv6 netip.Prefix
}

// Pair is two RDMA devices on one machine, at the ends of a virtual cable (veth(4)). Their packets
// pass through the kernel's network stack.
type Pair [2]End

// DefaultPair returns the pair of the VM: rxe0 on v0 and rxe1 on v1. The addresses are in the
// ranges for documentation (RFC 5737, RFC 3849), which real networks do not use.
func DefaultPair() Pair {
	return Pair{
		{Device{"rxe0", "v0"}, netip.MustParsePrefix("192.0.2.1/24"), netip.MustParsePrefix("2001:db8::1/64")},
		{Device{"rxe1", "v1"}, netip.MustParsePrefix("192.0.2.2/24"), netip.MustParsePrefix("2001:db8::2/64")},
	}
}

// SetupPair adds the interfaces and their devices, and waits until both are active. If it fails, it
// removes what it has added. The kernel silently drops packets between two addresses of one machine
// unless accept_local is 1 and rp_filter is 0 (ip-sysctl in the kernel's documentation). So
// SetupPair sets both for the two interfaces, and rp_filter also for "all", since the larger value
// counts.
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
		if err := AddDevice(end.Name, end.Netdev); err != nil {
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
	links, err := Devices()
	if err != nil {
		return err
	}
	var errs []error
	for _, l := range links {
		if l == p[0].Device || l == p[1].Device {
			errs = append(errs, RemoveDevice(l.Name))
		}
	}
	veth, err := netlink.LinkByName(p[0].Netdev)
	switch {
	case errors.As(err, new(netlink.LinkNotFoundError)):
	case err != nil:
		errs = append(errs, status.Errorf(status.Internal, "find network interface %s: %w", p[0].Netdev, err))
	case veth.Type() == "veth": // the kernel removes the other end, too
		if err := netlink.LinkDel(veth); err != nil {
			errs = append(errs, status.Errorf(status.Internal, "remove network interface %s: %w", p[0].Netdev, err))
		}
	}
	return errors.Join(errs...)
}

// up sets the settings and addresses of the interface and brings it up.
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
		// Without duplicate address detection, which takes a second: there are no other hosts on
		// the cable. And the interface keeps its addresses when it is set down and up again, as
		// with IPv4.
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
			return status.Errorf(status.Internal, "add address %s to network interface %s: %w", prefix, e.Netdev, err)
		}
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return status.Errorf(status.Internal, "set network interface %s up: %w", e.Netdev, err)
	}
	return nil
}

// sysctl is the directory of the network settings.
const sysctl = "/proc/sys/net"

// setting is a network setting below sysctl.
type setting struct{ path, value string }

func (s setting) write() error {
	if err := os.WriteFile(filepath.Join(sysctl, s.path), []byte(s.value), 0); err != nil {
		return status.Errorf(status.FailedPrecondition, "set net/%s to %s: %w", s.path, s.value, err)
	}
	return nil
}

// pairError explains the kernel's error when the interfaces are added.
func pairError(p Pair, err error) error {
	what := fmt.Sprintf("add network interfaces %s and %s", p[0].Netdev, p[1].Netdev)
	switch {
	case errors.Is(err, unix.EEXIST):
		return status.Errorf(status.AlreadyExists, "%s: one of them exists already: %w", what, err)
	case errors.Is(err, unix.EPERM):
		return status.Errorf(status.PermissionDenied, "%s: the right to change the network is needed: run as root, or with CAP_NET_ADMIN: %w", what, err)
	case errors.Is(err, unix.EOPNOTSUPP):
		return status.Errorf(status.FailedPrecondition, "%s: the kernel has no veth loaded: modprobe veth: %w", what, err)
	default:
		return status.Errorf(status.Internal, "%s: %w", what, err)
	}
}
