//go:build rxe

package doctor

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/server"
)

// examineHost is the report about this host with the transport verbs.
func examineHost(t *testing.T, r server.RDMA) (Report, string) {
	t.Helper()
	if os.Getenv("TRYST_TEST_DEVICES") == "" {
		t.Skip("TRYST_TEST_DEVICES is not set: there are no Soft-RoCE devices made for tests")
	}
	report := Examine(Gather(t.Context(), Options{Client: settings("verbs", r)}.OnThisHost()))
	var s strings.Builder
	if err := report.WriteText(&s); err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + s.String())
	return report, s.String()
}

// On the kernel's Soft-RoCE everything works, through the real libibverbs, and
// the open port has the MTU that follows from the netdev's. (Packets that other tests
// have lost are counted, too.)
func TestRxeDoctor(t *testing.T) {
	r, text := examineHost(t, server.RDMA{})
	if r.Worst() == Fail {
		t.Error("a check fails")
	}
	for _, want := range []string{
		"OK    kernel", "OK    node of rxe0", "OK    libibverbs", "rxe0, rxe1", "OK    rxe0 port 1", "driver rxe",
		"the port's path MTU is 4096", "  congestion ",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in the report", want)
		}
	}
	// The kernel gives the index, and another one when a test has taken an address away before.
	if chosen := `rxe0 port 1, GID \d+ \(192\.0\.2\.1, RoCE v2\) on v0, MTU 4096`; !regexp.MustCompile(chosen).MatchString(text) {
		t.Errorf("nothing in the report matches %s", chosen)
	}
}

func TestRxeDoctorSeesASmallMTUAndAPortThatIsDown(t *testing.T) {
	if os.Getenv("TRYST_TEST_DEVICES") == "" {
		t.Skip("TRYST_TEST_DEVICES is not set: there are no Soft-RoCE devices made for tests")
	}
	ip := func(args ...string) {
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			t.Errorf("ip %s: %v: %s", strings.Join(args, " "), err, out)
		}
	}
	t.Cleanup(func() { ip("link", "set", "v0", "mtu", "9000") })
	ip("link", "set", "v0", "mtu", "1500")
	r, text := examineHost(t, server.RDMA{Device: "rxe0"})
	if r.Worst() != Warn || !strings.Contains(text, "v0 has MTU 1500, which makes a path MTU of 1024") {
		t.Errorf("%s; want a WARN about the MTU of v0", r.Worst())
	}
	r, text = examineHost(t, server.RDMA{Device: "rxe0", MTU: 4096})
	if r.Worst() != Fail || !strings.Contains(text, "4096") {
		t.Errorf("%s; want a FAIL for an MTU that the port does not have", r.Worst())
	}
	t.Cleanup(func() { // the address of IPv6 goes with the link
		ip("link", "set", "v1", "up")
		ip("addr", "replace", "2001:db8::2/64", "dev", "v1", "nodad")
	})
	ip("link", "set", "v1", "down")
	r, text = examineHost(t, server.RDMA{Device: "rxe1"})
	if r.Worst() != Fail || !strings.Contains(text, "rxe1 port 1: the port is DOWN") {
		t.Errorf("%s; want a FAIL for the port that is down", r.Worst())
	}
}

// A peer on the other end of the cable is reached by RDMA; when the cable is cut
// there, it is not, and the line says so with what to do.
func TestRxeDoctorReachesAPeer(t *testing.T) {
	if os.Getenv("TRYST_TEST_DEVICES") == "" {
		t.Skip("TRYST_TEST_DEVICES is not set: there are no Soft-RoCE devices made for tests")
	}
	cfg := server.Config{}
	cfg.Listen, cfg.Transport, cfg.RDMA.Device = nobody(t), "verbs", "rxe1"
	cfg.RDMA.Arena, cfg.RDMA.ArenaLimit = 4<<20, 64<<20
	cfg.Cluster = map[string][]string{"worker": {cfg.Listen}}
	start(t, cfg, server.Options{})
	client := verbsOn("rxe0")
	client.Cluster = cfg.Cluster
	examine := func() (Report, string) {
		report := Examine(Gather(t.Context(), Options{Client: client}.OnThisHost()))
		var s strings.Builder
		if err := report.WriteText(&s); err != nil {
			t.Fatal(err)
		}
		t.Log("\n" + s.String())
		return report, s.String()
	}
	if r, text := examine(); r.Worst() == Fail || !strings.Contains(text, "it answers over rdma") || !strings.Contains(text, "a channel to 192.0.2.2, path MTU 4096, and 24 KiB in full packets came through") {
		t.Error("the peer is not reached")
	}
	run := func(command string) {
		words := strings.Fields(command)
		if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", command, err, out)
		}
	}
	// Packets alone are to be lost, not the addresses of the neighbours.
	for address, devs := range map[string][2]string{"192.0.2.1": {"v0", "v1"}, "192.0.2.2": {"v1", "v0"}} {
		mac, err := os.ReadFile("/sys/class/net/" + devs[0] + "/address")
		if err != nil {
			t.Fatal(err)
		}
		run("ip neigh replace " + address + " lladdr " + strings.TrimSpace(string(mac)) + " nud permanent dev " + devs[1])
		defer run("ip neigh del " + address + " dev " + devs[1])
	}
	run("tc qdisc add dev v1 root netem loss 100%")
	defer run("tc qdisc del dev v1 root")
	if r, text := examine(); r.Count(Fail) != 1 || !strings.Contains(text, "it cannot be reached over rdma") ||
		!strings.Contains(text, "transport retry counter exceeded") || !strings.Contains(text, "UDP port 4791") {
		t.Error("want one FAIL, for the peer, with what to do")
	}
}
