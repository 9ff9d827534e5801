package discovery_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/discovery"
	"github.com/tryst-rdma/tryst/verbs/discovery/discoverytest"
)

func roce(addr string, typ verbs.GIDType) discovery.Side {
	return discovery.Side{Link: verbs.LinkEthernet, Type: typ, GID: verbs.GIDOf(netip.MustParseAddr(addr))}
}

func infiniband(prefix byte, lid verbs.LID) discovery.Side {
	return discovery.Side{Link: verbs.LinkInfiniBand, Type: verbs.GIDTypeIB, GID: verbs.GID{0xfe, 0x80, 7: prefix, 15: byte(lid)}, LID: lid}
}

func TestCompatible(t *testing.T) {
	const v1, v2 = verbs.GIDTypeRoCEv1, verbs.GIDTypeRoCEv2
	for _, tt := range []struct {
		name string
		a, b discovery.Side
		why  string // "" when they can talk
	}{
		{"RoCE v2 over IPv4", roce("192.0.2.1", v2), roce("203.0.113.9", v2), ""},
		{"RoCE v2 over IPv6", roce("2001:db8::1", v2), roce("2001:db8:1::1", v2), ""},
		{"RoCE v2, both link-local", roce("fe80::1", v2), roce("fe80::2", v2), ""},
		{"one host", roce("127.0.0.1", v2), roce("127.0.0.1", v2), ""},
		{"RoCE v1", roce("192.0.2.1", v1), roce("192.0.2.2", v1), ""},
		{"InfiniBand", infiniband(0, 3), infiniband(0, 4), ""},
		{"InfiniBand and Ethernet", infiniband(0, 3), roce("192.0.2.1", v2), "one side is InfiniBand and the other Ethernet"},
		{"RoCE v1 and v2", roce("192.0.2.1", v1), roce("192.0.2.2", v2), "one side is RoCE v1 and the other RoCE v2"},
		{"IPv4 and IPv6", roce("192.0.2.1", v2), roce("2001:db8::1", v2), "no route between IPv4 and IPv6"},
		{"link-local and routed", roce("fe80::1", v2), roce("2001:db8::1", v2), "no route"},
		{"loopback and another host", roce("127.0.0.1", v2), roce("192.0.2.1", v2), "loopback, which reaches this host only"},
		{"two InfiniBand subnets", infiniband(0, 3), infiniband(1, 3), "two InfiniBand subnets"},
		{"InfiniBand without a subnet manager", infiniband(0, 0), infiniband(0, 4), "no subnet manager"},
		{"no GID", discovery.Side{Link: verbs.LinkEthernet, Type: v2}, roce("192.0.2.1", v2), "no GID"},
		{"nothing known", discovery.Side{}, discovery.Side{}, "link layer is not known"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, err := range []error{discovery.Compatible(tt.a, tt.b), discovery.Compatible(tt.b, tt.a)} {
				if tt.why == "" {
					if err != nil {
						t.Errorf("%v; want that they can talk", err)
					}
					continue
				}
				a, b, _ := strings.Cut(tt.why, " and the other ")
				if !errors.Is(err, discovery.ErrIncompatible) || !strings.Contains(err.Error(), strings.TrimPrefix(a, "one side is ")) || !strings.Contains(err.Error(), b) {
					t.Errorf("%v; want that they cannot talk: %s", err, tt.why)
				}
			}
		})
	}
}

func TestTheSideOfAChoice(t *testing.T) {
	for tree, want := range map[string]discovery.Side{
		"mlx5-two-ports": roce("192.0.2.1", verbs.GIDTypeRoCEv2),
		"infiniband": {Link: verbs.LinkInfiniBand, Type: verbs.GIDTypeIB, LID: 0x1a,
			GID: verbs.GIDOf(netip.MustParseAddr("fe80::ec0d:9a03:78:ff10"))},
	} {
		c, err := discovery.Choose(discoverytest.Read(t, tree), discovery.Want{})
		if err != nil || c.Side() != want {
			t.Errorf("%s: %+v, %v; want %+v", tree, c.Side(), err, want)
		}
	}
}
