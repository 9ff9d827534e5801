package discovery

import (
	"testing"

	"github.com/tryst-rdma/tryst/verbs"
)

// TestNamedNetworkDeviceIsUsed: the addresses of a port are also those of the VLANs on its
// network device, where packets leave in another network, and that one was asked for by its
// name. Those of a bond are its parts' own.
func TestNamedNetworkDeviceIsUsed(t *testing.T) {
	gid := func(i int, s, netdev string) GID {
		g, err := parseGID(s)
		if err != nil {
			t.Fatal(err)
		}
		return GID{GIDEntry: verbs.GIDEntry{Index: i, GID: g, Type: verbs.GIDTypeRoCEv2}, Netdev: netdev}
	}
	own := gid(0, "fd00:0000:0000:0000:0000:0000:0000:0002", "eth0")
	for _, c := range []struct {
		other, want string
		master      string
	}{
		{"eth0.100", "eth0", ""},
		{"bond0", "bond0", "bond0"}, // IPv4 is preferred
	} {
		inv := Inventory{
			Devices: []Device{{Name: "mlx5_0", NodeType: NodeCA, NUMA: -1, Ports: []Port{{
				Number: 1, State: verbs.PortActive, Link: verbs.LinkEthernet, Netdev: "eth0", ActiveMTU: verbs.MTU1024, TableSize: 8,
				GIDs: []GID{own, gid(1, "0000:0000:0000:0000:0000:ffff:c000:0201", c.other)},
			}}}},
			Netdevs: []Netdev{{Name: "eth0", MTU: 1500, Up: true, Master: c.master}, {Name: c.other, MTU: 1500, Up: true}},
		}
		got, err := Choose(inv, Want{Device: "eth0"})
		if err != nil || got.Netdev != c.want {
			t.Errorf("eth0 beside %s: chosen is %v on %s: %v", c.other, got.GID, got.Netdev, err)
		}
	}
}
