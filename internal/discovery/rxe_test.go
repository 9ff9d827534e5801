//go:build rxe

package discovery_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/internal/discovery"
	"github.com/tryst-rdma/tryst/verbs"
)

// Against the kernel: rxe0 on v0 and rxe1 on v1, the two ends of a veth pair
// (soft-roce). What rdma-core's tools say is the measure.

func rxeSystem(t *testing.T) discovery.System {
	t.Helper()
	if os.Getenv("TRYST_TEST_DEVICES") == "" {
		t.Skip("TRYST_TEST_DEVICES is not set: there are no Soft-RoCE devices made for tests")
	}
	s, err := discovery.Host()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func rxeInventory(t *testing.T, s discovery.System) discovery.Inventory {
	t.Helper()
	inv, err := s.Read()
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range inv.Problems {
		t.Error(err)
	}
	for _, d := range inv.Devices {
		for _, err := range d.Problems {
			t.Error(err)
		}
	}
	for _, name := range []string{"rxe0", "rxe1"} {
		if d := inv.Device(name); d == nil || len(d.Ports) != 1 {
			t.Fatalf("%s is not there with one port:\n%s", name, describe(inv))
		}
	}
	return inv
}

func rxePort(t *testing.T, s discovery.System, device string) discovery.Port {
	t.Helper()
	inv := rxeInventory(t, s)
	return inv.Device(device).Ports[0]
}

// run runs a command of the system and returns what it wrote.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Skipf("%s is not installed: %v", name, err)
	}
	b, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, b)
	}
	return string(b)
}

// eventually waits, by asking again, until the kernel has followed.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(time.Minute)
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("a minute passed, and it is not so that %s", what)
		}
	}
}

// devinfo has a field of ibv_devinfo -v.
func devinfo(t *testing.T, device, field string) string {
	t.Helper()
	out := run(t, "ibv_devinfo", "-v", "-d", device)
	m := regexp.MustCompile(`(?m)^\s*` + field + `:\s*(\S+)`).FindStringSubmatch(out)
	if m == nil {
		t.Fatalf("ibv_devinfo does not tell %s:\n%s", field, out)
	}
	return m[1]
}

func TestRxeInventory(t *testing.T) {
	s := rxeSystem(t)
	inv := rxeInventory(t, s)
	for name, netdev := range map[string]string{"rxe0": "v0", "rxe1": "v1"} {
		d := inv.Device(name)
		p := d.Ports[0]
		if d.Driver != "rxe" || !d.Software() || d.NodeType != discovery.NodeCA || d.NUMA != -1 || d.PCI != "" || d.Uverbs == "" ||
			p.State != verbs.PortActive || p.Link != verbs.LinkEthernet || p.Netdev != netdev || p.Number != 1 {
			t.Errorf("%s is not as it was made:\n%s", name, describe(inv))
		}
		guid := strings.ReplaceAll(devinfo(t, name, "node_guid"), ":", "")
		if want := fmt.Sprintf("%016x", d.NodeGUID); want != guid {
			t.Errorf("%s: GUID %s, ibv_devinfo says %s", name, want, guid)
		}
		if got := devinfo(t, name, "active_mtu"); got != strconv.Itoa(int(p.ActiveMTU)) {
			t.Errorf("%s: active MTU %d, ibv_devinfo says %s", name, p.ActiveMTU, got)
		}
		// ibv_devinfo lists what is not empty, and in which version of RoCE.
		told := regexp.MustCompile(`GID\[\s*(\d+)\]:\s+\S+, (RoCE v\d)`).FindAllStringSubmatch(run(t, "ibv_devinfo", "-v", "-d", name), -1)
		var theirs, ours []string
		for _, m := range told {
			theirs = append(theirs, m[1]+" "+m[2])
		}
		for _, g := range p.GIDs {
			ours = append(ours, fmt.Sprintf("%d %s", g.Index, g.Type))
		}
		if !slices.Equal(ours, theirs) {
			t.Errorf("%s: GIDs %v, ibv_devinfo says %v", name, ours, theirs)
		}
	}
	// sysfs alone says the same.
	s.Netlink = nil
	if got, want := describe(rxeInventory(t, s)), describe(inv); got != want {
		t.Errorf("without netlink\n%s\nwith it\n%s", got, want)
	}
}

func TestRxeChoice(t *testing.T) {
	s := rxeSystem(t)
	inv := rxeInventory(t, s)
	for want, is := range map[string]string{
		"": "rxe0 192.0.2.1", "rxe1": "rxe1 192.0.2.2", "v1": "rxe1 192.0.2.2", "192.0.2.2": "rxe1 192.0.2.2",
		"2001:db8::1": "rxe0 2001:0db8:0000:0000:0000:0000:0000:0001",
	} {
		c, err := discovery.Choose(inv, discovery.Want{Device: want})
		if got := fmt.Sprint(c.Device, " ", c.GID); err != nil || got != is || c.Type != verbs.GIDTypeRoCEv2 {
			t.Errorf("%q: chose %s, %v; want %s", want, c, err, is)
		}
		t.Log(told(c, err))
	}
}

func TestRxeKernel(t *testing.T) {
	s := rxeSystem(t)
	k := s.Kernel(rxeInventory(t, s))
	if !k.Core || !k.Uverbs || !slices.Contains(k.Drivers, "rdma_rxe") || !k.ModeKnown || k.Exclusive || len(k.Problems) != 0 {
		t.Errorf("kernel %+v", k)
	}
	for _, n := range k.Nodes {
		if n.Err != nil || !strings.HasPrefix(n.Path, "/dev/infiniband/uverbs") {
			t.Errorf("node of %s: %q, %v", n.Device, n.Path, n.Err)
		}
	}
}

// The path MTU follows the netdev's: what is computed is what the driver does.
func TestRxeMTUFollowsTheNetdev(t *testing.T) {
	s := rxeSystem(t)
	rxeInventory(t, s)
	t.Cleanup(func() { _ = exec.Command("ip", "link", "set", "v0", "mtu", "9000").Run() })
	for _, mtu := range []int{1500, 4175, 4176, 9000} {
		run(t, "ip", "link", "set", "v0", "mtu", strconv.Itoa(mtu))
		got := rxePort(t, s, "rxe0").ActiveMTU
		if is := devinfo(t, "rxe0", "active_mtu"); is != strconv.Itoa(int(got)) {
			t.Errorf("netdev MTU %d: active MTU %d, ibv_devinfo says %s", mtu, got, is)
		}
	}
}

// A link that goes down is a port that is named as down; when it is back, its GID
// is found again, wherever it is.
func TestRxePortFlap(t *testing.T) {
	s := rxeSystem(t)
	want := discovery.Want{Device: "rxe1"}
	was, err := discovery.Choose(rxeInventory(t, s), want)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // the address of IPv6 goes with the link
		_ = exec.Command("ip", "link", "set", "v1", "up").Run()
		_ = exec.Command("ip", "addr", "replace", "2001:db8::2/64", "dev", "v1", "nodad").Run()
	})
	run(t, "ip", "link", "set", "v1", "down")
	eventually(t, "the port is down", func() bool {
		_, err := discovery.Choose(rxeInventory(t, s), want)
		return errors.Is(err, verbs.ErrNotFound) && strings.Contains(err.Error(), "rxe1 port 1: the port is DOWN")
	})
	run(t, "ip", "link", "set", "v1", "up")
	var table []verbs.GIDEntry
	eventually(t, "the port is back with its GID", func() bool {
		p := rxePort(t, s, "rxe1")
		table = nil
		for _, g := range p.GIDs {
			table = append(table, g.GIDEntry)
		}
		now, same, err := discovery.Again(table, verbs.GIDEntry{Index: was.GIDIndex, GID: was.GID, Type: was.Type})
		return p.State == verbs.PortActive && err == nil && same && now.GID == was.GID
	})
	// Another address instead: its equal is found, and said not to be the same.
	// (Of another network, since the kernel takes a network's other addresses
	// away with its first.)
	run(t, "ip", "addr", "add", "198.51.100.2/24", "dev", "v1")
	run(t, "ip", "addr", "del", was.GID.String()+"/24", "dev", "v1")
	t.Cleanup(func() {
		_ = exec.Command("ip", "addr", "add", was.GID.String()+"/24", "dev", "v1").Run()
		_ = exec.Command("ip", "addr", "del", "198.51.100.2/24", "dev", "v1").Run()
	})
	eventually(t, "the new address is found", func() bool {
		table = nil
		for _, g := range rxePort(t, s, "rxe1").GIDs {
			table = append(table, g.GIDEntry)
		}
		now, same, err := discovery.Again(table, verbs.GIDEntry{Index: was.GIDIndex, GID: was.GID, Type: was.Type})
		return err == nil && !same && now.GID.String() == "198.51.100.2"
	})
}

// The kernel's counts are a witness: they see what a process takes, and that it
// is gone when the process is.
func TestRxeResources(t *testing.T) {
	s := rxeSystem(t)
	rxeInventory(t, s)
	if _, err := exec.LookPath("ibv_rc_pingpong"); err != nil {
		t.Skipf("ibv_rc_pingpong is not installed: %v", err)
	}
	before, err := discovery.Resources("rxe0")
	if err != nil {
		t.Fatal(err)
	}
	rxe1, err := discovery.Resources("rxe1")
	if err != nil {
		t.Fatal(err)
	}
	// A server that waits for a client holds one of each.
	cmd := exec.Command("ibv_rc_pingpong", "-d", "rxe0", "-g", "1", "-p", "18599")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { // also when a look fails
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	want := before
	want.QPs, want.CQs, want.MRs, want.PDs, want.Contexts = before.QPs+1, before.CQs+1, before.MRs+1, before.PDs+1, before.Contexts+1
	var during discovery.ResourceCounts
	eventually(t, "the kernel counts what the server holds", func() bool {
		during, err = discovery.Resources("rxe0")
		return err != nil || during == want
	})
	if err != nil {
		t.Error(err)
	}
	t.Logf("before %s; with a server %s", before, during)
	if other, err := discovery.Resources("rxe1"); err != nil || other != rxe1 {
		t.Errorf("rxe1 has %s, %v, and had %s: what rxe0 has is not its", other, err, rxe1)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	eventually(t, "nothing is left", func() bool {
		after, err := discovery.Resources("rxe0")
		return err == nil && after == before
	})
}

// Counters can be read, and are those that `rdma statistic` shows.
func TestRxeCounters(t *testing.T) {
	s := rxeSystem(t)
	rxeInventory(t, s)
	counters, err := s.Counters("rxe0", 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(counters)
	if _, ok := counters["sent_pkts"]; !ok {
		t.Errorf("counters %v have no sent_pkts", counters)
	}
	told := run(t, "rdma", "statistic", "show", "link", "rxe0/1")
	for name := range counters {
		if !strings.Contains(told, name+" ") {
			t.Errorf("rdma statistic does not show %s:\n%s", name, told)
		}
	}
}
