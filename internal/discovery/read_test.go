package discovery_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tryst-rdma/tryst/internal/discovery"
	"github.com/tryst-rdma/tryst/internal/discovery/discoverytest"
	"github.com/tryst-rdma/tryst/verbs"
)

// describe is an inventory in lines.
func describe(inv discovery.Inventory) string {
	var s strings.Builder
	for _, d := range inv.Devices {
		fmt.Fprintf(&s, "%s: %s, driver %q, PCI %q, model %q, firmware %q, GUID %016x, NUMA %d, node %q, virtual %v\n",
			d.Name, d.NodeType, d.Driver, d.PCI, d.Model, d.Firmware, d.NodeGUID, d.NUMA, d.Uverbs, d.Virtual)
		for _, p := range d.Ports {
			fmt.Fprintf(&s, "  port %d: %s, %s, %s, LID %d, %q (%d Mb/s), on %q, MTU %d, %d of %d GIDs\n",
				p.Number, p.State, p.Physical, p.Link, p.LID, p.Rate.Text, p.Rate.Mbps, p.Netdev, int(p.ActiveMTU), len(p.GIDs), p.TableSize)
			for _, g := range p.GIDs {
				fmt.Fprintf(&s, "    %s %s\n", g, g.Netdev)
			}
		}
		for _, err := range d.Problems {
			fmt.Fprintf(&s, "  problem: %v\n", err)
		}
	}
	for _, n := range inv.Netdevs {
		fmt.Fprintf(&s, "netdev %s: MTU %d, up %v, bond %v, part of %q, %v\n", n.Name, n.MTU, n.Up, n.Bond, n.Master, n.Addrs)
	}
	for _, err := range inv.Problems {
		fmt.Fprintf(&s, "problem: %v\n", err)
	}
	return s.String()
}

// What each tree has is in testdata/inventories.txt.
func TestReadTrees(t *testing.T) {
	var s strings.Builder
	for _, name := range discoverytest.Names() {
		fmt.Fprintf(&s, "## %s\n%s\n", name, describe(discoverytest.Read(t, name)))
	}
	if strings.Contains(s.String(), "problem:") {
		t.Errorf("a tree cannot be read without problems:\n%s", s.String())
	}
	golden(t, "inventories.txt", s.String())
}

// Without netlink, sysfs alone finds the same, but for a bond's netdev: netlink
// names the active part, and the GIDs name the bond.
func TestReadWithoutNetlink(t *testing.T) {
	for _, name := range discoverytest.Names() {
		want := discoverytest.Read(t, name)
		s := discoverytest.Load(t, name).System()
		s.Netlink = nil
		got, err := s.Read()
		if err != nil {
			t.Fatal(err)
		}
		a, b := describe(got), describe(want)
		if strings.Contains(name, "bond") {
			a, b = strings.ReplaceAll(a, `on "bond0"`, `on "eth0"`), strings.ReplaceAll(b, `on "bond0"`, `on "eth0"`)
		}
		if a != b && name != "irdma" && name != "sriov" { // their tables do not name a netdev
			t.Errorf("%s: without netlink\n%s, with it\n%s", name, a, b)
		}
	}
}

// A netlink that cannot be asked is a problem that is told, not the end.
func TestReadWithBrokenNetlink(t *testing.T) {
	h := discoverytest.Load(t, "rxe")
	h.Netlink.Err = syscall.EPERM
	inv, err := h.System().Read()
	if err != nil || len(inv.Devices) != 3 {
		t.Fatalf("%d devices, %v", len(inv.Devices), err)
	}
	if !errors.Is(errors.Join(inv.Problems...), syscall.EPERM) {
		t.Errorf("problems %v, want netlink's", inv.Problems)
	}
}

// Reading the type of an empty entry gives EINVAL on some kernels and an empty
// GID on others; neither is a problem. An entry that cannot be read otherwise is.
func TestReadEmptyGIDs(t *testing.T) {
	const gids, types = "class/infiniband/rxe0/ports/1/gids/", "class/infiniband/rxe0/ports/1/gid_attrs/types/"
	for _, tt := range []struct {
		name     string
		change   func(*discoverytest.Host)
		left     int
		problems int
	}{
		{"as it is", func(*discoverytest.Host) {}, 3, 0},
		{"the GID gives EINVAL", func(h *discoverytest.Host) { h.Fail(gids+"0", syscall.EINVAL) }, 2, 0},
		{"the entry went before its type was read", func(h *discoverytest.Host) { h.Fail(types+"0", syscall.EINVAL) }, 2, 0},
		{"the GID gives EIO", func(h *discoverytest.Host) { h.Fail(gids+"0", syscall.EIO) }, 2, 1},
		{"the type gives EIO", func(h *discoverytest.Host) { h.Fail(types+"0", syscall.EIO) }, 3, 1},
		{"a type of the future", func(h *discoverytest.Host) { h.Set(types+"0", "RoCE v3") }, 3, 1},
		{"no GID at all", func(h *discoverytest.Host) { h.Set(gids+"0", "192.0.2.1") }, 2, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := discoverytest.Load(t, "rxe")
			tt.change(h)
			inv, err := h.System().Read()
			if err != nil {
				t.Fatal(err)
			}
			d := inv.Device("rxe0")
			if len(d.Ports[0].GIDs) != tt.left || len(d.Problems) != tt.problems || d.Ports[0].TableSize != 1024 {
				t.Errorf("%d GIDs of %d, problems %v; want %d of 1024 and %d problems", len(d.Ports[0].GIDs), d.Ports[0].TableSize, d.Problems, tt.left, tt.problems)
			}
		})
	}
}

// One broken device hides neither the others nor what can be read of it.
func TestReadTellsWhatItCannotRead(t *testing.T) {
	for file, err := range map[string]error{
		"node_guid": syscall.EACCES, "node_type": syscall.EIO, "ports/1/state": syscall.EIO, "ports/1/link_layer": syscall.EACCES,
		"ports/1/rate": syscall.EIO, "ports/1/lid": syscall.EIO, "ports/1/phys_state": syscall.EIO, "ports": syscall.EACCES, "ports/1/gids": syscall.EIO,
		"fw_ver": syscall.EIO,
	} {
		h := discoverytest.Load(t, "mlx5-two-ports")
		if h.Files["class/infiniband/mlx5_0/"+file] != nil {
			h.Fail("class/infiniband/mlx5_0/"+file, err)
		} else {
			h.Fails["class/infiniband/mlx5_0/"+file] = err
		}
		inv, failed := h.System().Read()
		if failed != nil || len(inv.Devices) != 2 || len(inv.Devices[1].Problems) != 0 || inv.Devices[0].Name != "mlx5_0" {
			t.Errorf("%s: %v, inventory\n%s", file, failed, describe(inv))
			continue
		}
		all := errors.Join(inv.Devices[0].Problems...)
		if !errors.Is(all, err) || !strings.Contains(all.Error(), "class/infiniband/mlx5_0/"+file) {
			t.Errorf("%s: problems %v; want the file and %v", file, all, err)
		}
	}
}

// rdmamap says nil for both: no RDMA is an empty list, an unreadable sysfs an error.
func TestReadTellsNoneFromUnreadable(t *testing.T) {
	for _, name := range []string{"no-rdma", "no-devices"} {
		if inv, err := discoverytest.Load(t, name).System().Read(); err != nil || len(inv.Devices) != 0 {
			t.Errorf("%s: %d devices, %v; want none", name, len(inv.Devices), err)
		}
	}
	h := discoverytest.Load(t, "mlx5-two-ports")
	h.Fails["class/infiniband"] = syscall.EACCES
	if inv, err := h.System().Read(); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("unreadable class: %d devices, %v; want the error", len(inv.Devices), err)
	}
	s := discovery.System{Sys: os.DirFS(filepath.Join(t.TempDir(), "nothing"))}
	if inv, err := s.Read(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no sysfs: %d devices, %v; want the error", len(inv.Devices), err)
	}
}

func TestReadRefusesWhatIsNoSysfs(t *testing.T) {
	h := discoverytest.Load(t, "rxe")
	h.Set("class/infiniband/rxe0/node_guid", strings.Repeat("x", 5000))
	h.Set("class/infiniband/rxe0/ports/0/state", "4: ACTIVE")
	h.Set("class/infiniband/rxe0/ports/one/state", "4: ACTIVE")
	h.Set("class/infiniband/rxe0/ports/1/gids/-1", "x")
	inv, err := h.System().Read()
	if err != nil {
		t.Fatal(err)
	}
	if d := inv.Device("rxe0"); len(d.Problems) != 4 || len(d.Ports) != 1 {
		t.Errorf("%d ports, problems %v; want 1 port and 4 problems", len(d.Ports), d.Problems)
	}
}

func TestCounters(t *testing.T) {
	h := discoverytest.Load(t, "mlx5-two-ports")
	counters, err := h.System().Counters("mlx5_0", 1)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]uint64{"port_xmit_data": 123456, "port_rcv_data": 789, "np_cnp_sent": 0, "rp_cnp_handled": 0, "out_of_sequence": 17, "packet_seq_err": 4}
	if fmt.Sprint(counters) != fmt.Sprint(want) {
		t.Errorf("counters %v, want %v: those without a value are left out, not 0", counters, want)
	}
	h.Fail("class/infiniband/mlx5_0/ports/1/hw_counters/out_of_sequence", syscall.EIO)
	h.Set("class/infiniband/mlx5_0/ports/1/hw_counters/packet_seq_err", "-4")
	counters, err = h.System().Counters("mlx5_0", 1)
	if _, ok := counters["out_of_sequence"]; ok || !errors.Is(err, syscall.EIO) || !strings.Contains(err.Error(), "packet_seq_err") || counters["port_rcv_data"] != 789 {
		t.Errorf("counters %v, %v; want the others, and the errors of two", counters, err)
	}
	for _, tt := range []struct {
		device string
		port   uint8
		is     error
	}{{"mlx5_0", 2, verbs.ErrNotFound}, {"mlx5_9", 1, verbs.ErrNotFound}, {"mlx5_1", 1, verbs.ErrUnavailable}} {
		if c, err := h.System().Counters(tt.device, tt.port); !errors.Is(err, tt.is) {
			t.Errorf("%s port %d: %v, %v; want %v", tt.device, tt.port, c, err, tt.is)
		}
	}
}

func TestResources(t *testing.T) {
	h := discoverytest.Load(t, "rxe")
	h.Netlink.Counts[1] = map[string]uint64{"qp": 3, "cq": 2, "mr": 7, "pd": 1, "cm_id": 4, "ctx": 5, "srq": 6, "dmah": 9}
	got, err := h.System().Resources("rxe1")
	if want := (discovery.ResourceCounts{QPs: 3, CQs: 2, MRs: 7, PDs: 1, CMIDs: 4, Contexts: 5, SRQs: 6}); err != nil || got != want {
		t.Errorf("%s, %v; want %s", got, err, want)
	}
	if got, err := h.System().Resources("rxe0"); !errors.Is(err, verbs.ErrUnavailable) {
		t.Errorf("an answer without counts: %s, %v; want an error", got, err)
	}
	if got, err := h.System().Resources("rxe7"); !errors.Is(err, verbs.ErrNotFound) || !strings.Contains(err.Error(), "rxe_lo") {
		t.Errorf("no such device: %s, %v; want an error that lists those that are", got, err)
	}
	h.Netlink.Err = syscall.EPERM
	if got, err := h.System().Resources("rxe1"); !errors.Is(err, syscall.EPERM) {
		t.Errorf("netlink fails: %s, %v; want its error", got, err)
	}
	if got, err := (discovery.System{}).Resources("rxe1"); !errors.Is(err, verbs.ErrUnavailable) {
		t.Errorf("no netlink: %s, %v; want an error", got, err)
	}
}

func TestKernel(t *testing.T) {
	h := discoverytest.Load(t, "rxe")
	h.Nodes["/dev/infiniband/uverbs1"] = syscall.EACCES
	h.Remove("class/infiniband_verbs/uverbs2")
	h.Netlink.OneNetns = true
	s := h.System()
	inv, err := s.Read()
	if err != nil {
		t.Fatal(err)
	}
	k := s.Kernel(inv)
	if !k.Core || !k.Uverbs || len(k.Drivers) != 1 || k.Drivers[0] != "rdma_rxe" || !k.Exclusive || !k.ModeKnown || len(k.Problems) != 0 {
		t.Errorf("kernel %+v", k)
	}
	for i, want := range []struct {
		path string
		err  error
	}{{"/dev/infiniband/uverbs0", nil}, {"/dev/infiniband/uverbs1", fs.ErrPermission}, {"", fs.ErrNotExist}} {
		if n := k.Nodes[i]; n.Path != want.path || !errors.Is(n.Err, want.err) {
			t.Errorf("node of %s: %q, %v; want %q, %v", n.Device, n.Path, n.Err, want.path, want.err)
		}
	}
	s = discoverytest.Load(t, "no-rdma").System()
	if k := s.Kernel(discovery.Inventory{}); k.Core || k.Uverbs || len(k.Drivers) != 0 {
		t.Errorf("a kernel without RDMA: %+v", k)
	}
}
