package discovery_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/internal/discovery"
	"github.com/tryst-rdma/tryst/verbs"
)

// ethernet is an inventory of RoCE devices named after their addresses, one each.
func ethernet(addresses ...string) (inv discovery.Inventory) {
	for _, a := range addresses {
		g := discovery.GID{GIDEntry: verbs.GIDEntry{GID: verbs.GIDFromAddr(netip.MustParseAddr(a)), Type: verbs.GIDTypeRoCEv2}}
		inv.Devices = append(inv.Devices, discovery.Device{Name: a, NodeType: discovery.NodeCA, Ports: []discovery.Port{{
			Number: 1, State: verbs.PortActive, Link: verbs.LinkEthernet, TableSize: 1, GIDs: []discovery.GID{g},
		}}})
	}
	return inv
}

// TestLoopbackIsNotForPeersOnOtherHosts: where peers reach this process by another address,
// loopback is no choice, and the process may go on without a device. A device that was asked
// for is taken.
func TestLoopbackIsNotForPeersOnOtherHosts(t *testing.T) {
	lo := ethernet("127.0.0.1", "::1")
	_, err := discovery.Choose(lo, near("192.0.2.1"))
	if !errors.Is(err, verbs.ErrUnavailable) || !strings.Contains(err.Error(), "it is loopback, and peers reach this process by 192.0.2.1") {
		t.Errorf("got %v, want that loopback is not for peers on other hosts", err)
	}
	named := near("192.0.2.1")
	named.Device = "127.0.0.1"
	for what, want := range map[string]discovery.Want{"nothing is known": {}, "peers are on this host": near("127.0.0.1"), "it is named": named} {
		if c, err := discovery.Choose(lo, want); err != nil || c.Device != "127.0.0.1" || !c.Near && what != "it is named" {
			t.Errorf("%s: %v, %v; want 127.0.0.1", what, c, err)
		}
	}
	c, err := discovery.Choose(ethernet("127.0.0.1", "198.51.100.1"), near("192.0.2.1"))
	if err != nil || c.Device != "198.51.100.1" || c.Near {
		t.Errorf("%v, %v; want 198.51.100.1, which is not near", c, err)
	}
}

// TestAddressThatWasUsedBefore: it is preferred to others that reach as far, and to no other.
func TestAddressThatWasUsedBefore(t *testing.T) {
	inv := ethernet("127.0.0.1", "192.0.2.1", "192.0.2.2", "fe80::1")
	for before, device := range map[string]string{"192.0.2.2": "192.0.2.2", "127.0.0.1": "192.0.2.1", "fe80::1": "192.0.2.1", "192.0.2.9": "192.0.2.1"} {
		want := discovery.Want{Before: verbs.GIDFromAddr(netip.MustParseAddr(before))}
		if c, err := discovery.Choose(inv, want); err != nil || c.Device != device {
			t.Errorf("%s before: %v, %v; want %s", before, c, err, device)
		}
	}
}
