package discovery_test

import (
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tryst-rdma/tryst/internal/discovery"
	"github.com/tryst-rdma/tryst/internal/discovery/discoverytest"
	"github.com/tryst-rdma/tryst/verbs"
)

var update = flag.Bool("update", false, "write testdata anew")

// choices are the cases of Choose: a tree, a wish, and a name for the place in
// testdata where the choice stands in words.
var choices = []struct {
	name, tree string
	want       discovery.Want
}{
	{"a kernel without RDMA", "no-rdma", discovery.Want{}},
	{"no devices", "no-devices", discovery.Want{}},
	{"RoCE v2 over IPv4 on the port that is active", "mlx5-two-ports", discovery.Want{}},
	{"by device", "mlx5-two-ports", discovery.Want{Device: "mlx5_0"}},
	{"a device whose port is down", "mlx5-two-ports", discovery.Want{Device: "mlx5_1"}},
	{"by netdev", "mlx5-two-ports", discovery.Want{Device: "eth0"}},
	{"by the netdev of a VLAN", "mlx5-two-ports", discovery.Want{Device: "eth0.100"}},
	{"a netdev without an RDMA device", "mlx5-two-ports", discovery.Want{Device: "lo"}},
	{"by address", "mlx5-two-ports", discovery.Want{Device: "198.51.100.1"}},
	{"by IPv6 address", "mlx5-two-ports", discovery.Want{Device: "2001:db8::1"}},
	{"by link-local address with a zone", "mlx5-two-ports", discovery.Want{Device: "fe80::e42:a1ff:fe65:4ca2%eth0"}},
	{"by an address that has no RDMA", "mlx5-two-ports", discovery.Want{Device: "127.0.0.1"}},
	{"by an address of another host", "mlx5-two-ports", discovery.Want{Device: "192.0.2.200"}},
	{"a name that means nothing", "mlx5-two-ports", discovery.Want{Device: "mlx5_7"}},
	{"RoCE v1 asked for", "mlx5-two-ports", discovery.Want{Type: verbs.GIDTypeRoCEv1}},
	{"IPv6 asked for", "mlx5-two-ports", discovery.Want{Family: discovery.FamilyIPv6}},
	{"the GID of one index asked for", "mlx5-two-ports", discovery.Want{GIDIndex: new(2)}},
	{"an MTU equal to the active one", "mlx5-two-ports", discovery.Want{MTU: verbs.MTU4096}},
	{"an MTU below the active one", "mlx5-two-ports", discovery.Want{MTU: verbs.MTU1024}},
	{"an MTU above the active one", "irdma", discovery.Want{MTU: verbs.MTU2048}},
	{"a service level that Ethernet has not", "mlx5-two-ports", discovery.Want{ServiceLevel: 8}},
	{"the highest priority of Ethernet", "mlx5-two-ports", discovery.Want{ServiceLevel: 7}},
	{"a service level of InfiniBand", "infiniband", discovery.Want{ServiceLevel: 15}},
	{"an MTU that is none", "mlx5-two-ports", discovery.Want{MTU: 1500}},
	{"two ports of one device", "mlx4-two-ports", discovery.Want{}},
	{"by port", "mlx4-two-ports", discovery.Want{Device: "mlx4_0", Port: 1}},
	{"a port that there is not", "mlx4-two-ports", discovery.Want{Device: "mlx4_0", Port: 3}},
	{"a bond that is one device", "mlx5-bond", discovery.Want{}},
	{"a bond by the netdev of a part", "mlx5-bond", discovery.Want{Device: "eth0"}},
	{"a bond's device before its parts'", "bond-with-parts", discovery.Want{}},
	{"a part of a bond asked for", "bond-with-parts", discovery.Want{Device: "bnxt_re0"}},
	{"InfiniBand takes GID 0", "infiniband", discovery.Want{}},
	{"InfiniBand by the address of IPoIB", "infiniband", discovery.Want{Device: "198.51.100.9"}},
	{"InfiniBand by IPoIB's netdev", "infiniband", discovery.Want{Device: "ib0"}},
	{"an InfiniBand GID asked for", "infiniband", discovery.Want{GIDIndex: new(3)}},
	{"an empty InfiniBand GID asked for", "infiniband", discovery.Want{GIDIndex: new(1)}},
	{"RoCE asked for on InfiniBand", "infiniband", discovery.Want{Type: verbs.GIDTypeRoCEv2}},
	{"Soft-RoCE", "rxe", discovery.Want{}},
	{"Soft-RoCE on loopback", "rxe", discovery.Want{Device: "lo"}},
	{"iWARP is passed over", "irdma", discovery.Want{}},
	{"iWARP asked for", "irdma", discovery.Want{Device: "irdma0"}},
	{"a sparse table", "sriov", discovery.Want{}},
	{"index 5 of a sparse table (fault 30)", "sriov", discovery.Want{GIDIndex: new(5)}},
	{"index 11 of a table of five entries", "sriov", discovery.Want{Device: "mlx5_0", GIDIndex: new(11)}},
	{"an empty entry of a sparse table", "sriov", discovery.Want{Device: "mlx5_0", GIDIndex: new(4)}},
	{"an index beyond the table", "sriov", discovery.Want{Device: "mlx5_0", GIDIndex: new(16)}},
	{"a negative index", "sriov", discovery.Want{GIDIndex: new(-1)}},
	{"a virtual function", "sriov", discovery.Want{Device: "mlx5_2"}},
	{"a virtual function without a GID", "sriov", discovery.Want{Device: "mlx5_4"}},
	{"the faster of several, then the lower number", "many", discovery.Want{}},
	{"software by name", "many", discovery.Want{Device: "rxe0"}},
	{"a device without reliable connections", "many", discovery.Want{Device: "efa_0"}},
	{"the address by which peers come", "mlx5-two-ports", near("2001:db8::1")},
	{"loopback by which peers come", "rxe", near("127.0.0.1")},
	{"another loopback address", "rxe", near("127.0.1.1")},
	{"an address by which peers come and RDMA does not", "rxe", near("203.0.113.77")},
}

func near(a string) discovery.Want {
	return discovery.Want{LocalAddr: netip.MustParseAddr(a), LocalAddrWhy: "the server listens there"}
}

// told is a choice or its error in full.
func told(c discovery.Choice, err error) string {
	var s strings.Builder
	against := c.Against
	if err == nil {
		fmt.Fprintf(&s, "%s\n", c)
		if c.Understood != "" {
			fmt.Fprintf(&s, "  understood: %s\n", c.Understood)
		}
		fmt.Fprintf(&s, "  reason:     %s\n", c.Reason)
		if c.NUMA >= 0 {
			fmt.Fprintf(&s, "  NUMA node:  %d\n", c.NUMA)
		}
		for _, w := range c.Warnings {
			fmt.Fprintf(&s, "  warning:    %s\n", w)
		}
		for _, r := range against {
			fmt.Fprintf(&s, "  not %s: %s\n", r.What, r.Why)
		}
		return s.String()
	}
	return "error: " + strings.ReplaceAll(err.Error(), "; ", ";\n  ") + "\n"
}

// The words of every choice and rejection are in testdata/choices.txt
// (go test -update writes it anew).
func TestChooseTellsItsReasons(t *testing.T) {
	var s strings.Builder
	for _, tt := range choices {
		wish := tt.want.String()
		fmt.Fprintf(&s, "## %s\n%s: %s\n%s\n", tt.name, tt.tree, wish, told(discovery.Choose(discoverytest.Read(t, tt.tree), tt.want)))
	}
	golden(t, "choices.txt", s.String())
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	name = filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); d != "" {
		t.Errorf("%s (-want +got):\n%s", name, d)
	}
}

// What the golden words must not be the only witness of.
func TestChoose(t *testing.T) {
	for _, tt := range []struct {
		name, device string
		port         uint8
		index        int
		mtu          verbs.MTU
		netdev       string
		numa         int
	}{
		{"RoCE v2 over IPv4 on the port that is active", "mlx5_0", 1, 3, 4096, "eth0", 0},
		{"by the netdev of a VLAN", "mlx5_0", 1, 7, 4096, "eth0.100", 0},
		{"by IPv6 address", "mlx5_0", 1, 5, 4096, "eth0", 0},
		{"RoCE v1 asked for", "mlx5_0", 1, 2, 4096, "eth0", 0},
		{"an MTU equal to the active one", "mlx5_0", 1, 3, 4096, "eth0", 0},
		{"an MTU below the active one", "mlx5_0", 1, 3, 1024, "eth0", 0},
		{"two ports of one device", "mlx4_0", 2, 1, 1024, "eth2", -1},
		{"a bond that is one device", "mlx5_bond_0", 1, 3, 4096, "bond0", 1},
		{"a bond's device before its parts'", "bnxt_re_bond0", 1, 3, 4096, "bond0", 0},
		{"a part of a bond asked for", "bnxt_re0", 1, 3, 4096, "bond0", 0},
		{"InfiniBand takes GID 0", "mlx5_0", 1, 0, 0, "ib0", 1},
		{"Soft-RoCE", "rxe0", 1, 1, 4096, "v0", -1},
		{"iWARP is passed over", "irdma1", 1, 1, 1024, "ens1f1", 0},
		{"a sparse table", "mlx5_0", 1, 5, 4096, "ens2f0np0", 0},
		{"index 11 of a table of five entries", "mlx5_0", 1, 11, 4096, "ens2f0np0", 0},
		{"the faster of several, then the lower number", "mlx5_2", 1, 3, 4096, "rail1", 1},
		{"software by name", "rxe0", 1, 1, 1024, "mgmt", -1},
		{"the address by which peers come", "mlx5_0", 1, 5, 4096, "eth0", 0},
		{"loopback by which peers come", "rxe_lo", 1, 1, 4096, "lo", -1},
		{"another loopback address", "rxe_lo", 1, 1, 4096, "lo", -1},
		{"an address by which peers come and RDMA does not", "rxe0", 1, 1, 4096, "v0", -1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			i := slices.IndexFunc(choices, func(c struct {
				name, tree string
				want       discovery.Want
			}) bool {
				return c.name == tt.name
			})
			c, err := discovery.Choose(discoverytest.Read(t, choices[i].tree), choices[i].want)
			if err != nil {
				t.Fatal(err)
			}
			if c.Device != tt.device || c.Port != tt.port || c.GIDIndex != tt.index || c.MTU != tt.mtu || c.Netdev != tt.netdev || c.NUMA != tt.numa {
				t.Errorf("chose %s, NUMA node %d; want %s port %d, GID %d on %s, MTU %d, NUMA node %d",
					c, c.NUMA, tt.device, tt.port, tt.index, tt.netdev, tt.mtu, tt.numa)
			}
		})
	}
}

// Whatever is asked for, every port of the host is either chosen or rejected
// with words, and every entry of the chosen port's table likewise.
func TestChooseLeavesNobodyOut(t *testing.T) {
	for _, tt := range choices {
		inv := discoverytest.Read(t, tt.tree)
		c, err := discovery.Choose(inv, tt.want)
		against := c.Against
		if none, ok := errors.AsType[*discovery.NoChoice](err); ok {
			against = none.Against
		} else if err != nil {
			continue // the wish itself is wrong
		}
		names := make(map[string]int)
		for _, r := range against {
			names[r.What]++
			if r.Why == "" {
				t.Errorf("%s: %s is rejected without a word", tt.name, r.What)
			}
		}
		for _, d := range inv.Devices {
			for _, p := range d.Ports {
				name := fmt.Sprintf("%s port %d", d.Name, p.Number)
				chosen := err == nil && c.Device == d.Name && c.Port == p.Number
				if got := names[name]; got != map[bool]int{true: 0, false: 1}[chosen] {
					t.Errorf("%s: %s is rejected %d times; chosen: %v", tt.name, name, got, chosen)
				}
				for _, g := range p.GIDs {
					if got := names[name+" "+g.String()]; chosen && got != map[bool]int{true: 0, false: 1}[g.Index == c.GIDIndex] {
						t.Errorf("%s: %s of the chosen port is rejected %d times", tt.name, g, got)
					}
				}
			}
		}
	}
}

func TestChooseDependsOnNoOrder(t *testing.T) {
	for _, tt := range choices {
		inv := discoverytest.Read(t, tt.tree)
		want, _ := discovery.Choose(inv, tt.want)
		slices.Reverse(inv.Devices)
		slices.Reverse(inv.Netdevs)
		for i := range inv.Devices {
			slices.Reverse(inv.Devices[i].Ports)
			for j := range inv.Devices[i].Ports {
				slices.Reverse(inv.Devices[i].Ports[j].GIDs)
			}
		}
		if got, _ := discovery.Choose(inv, tt.want); got.String() != want.String() {
			t.Errorf("%s: %s, and in the other order %s", tt.name, want, got)
		}
	}
}

func TestNoChoiceIsOfItsKind(t *testing.T) {
	for _, tt := range []struct {
		tree string
		want discovery.Want
		is   error
	}{
		{"no-rdma", discovery.Want{}, verbs.ErrUnavailable},
		{"no-devices", discovery.Want{}, verbs.ErrUnavailable},
		{"no-devices", discovery.Want{Port: 1}, verbs.ErrNotFound},
		{"mlx5-two-ports", discovery.Want{Device: "mlx5_1"}, verbs.ErrNotFound},
		{"mlx5-two-ports", discovery.Want{Device: "nothing"}, verbs.ErrNotFound},
		{"mlx5-two-ports", discovery.Want{MTU: 1500}, verbs.ErrInvalid},
		{"mlx5-two-ports", discovery.Want{GIDIndex: new(-1)}, verbs.ErrInvalid},
	} {
		if _, err := discovery.Choose(discoverytest.Read(t, tt.tree), tt.want); !errors.Is(err, tt.is) {
			t.Errorf("%s, %s: %v; want it to be %q", tt.tree, tt.want, err, tt.is)
		}
	}
}

// Link-local is taken when there is nothing else, and says so.
func TestLinkLocalOnlyWhenThereIsNothingElse(t *testing.T) {
	h := discoverytest.Load(t, "rxe")
	h.Remove("class/infiniband/rxe1")
	h.Remove("class/infiniband/rxe_lo")
	for _, index := range []string{"1", "2"} {
		h.Set("class/infiniband/rxe0/ports/1/gids/"+index, "0000:0000:0000:0000:0000:0000:0000:0000")
	}
	inv, err := h.System().Read()
	if err != nil {
		t.Fatal(err)
	}
	c, err := discovery.Choose(inv, discovery.Want{})
	if err != nil || c.GIDIndex != 0 {
		t.Fatalf("chose %s, %v; want GID 0", c, err)
	}
	if len(c.Warnings) != 1 || !strings.Contains(c.Warnings[0], "link-local") {
		t.Errorf("warnings %q, want one that it is link-local", c.Warnings)
	}
}
