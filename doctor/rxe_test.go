//go:build rxe

package doctor

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/config"
)

// examineHost is the report about this host with the transport verbs.
func examineHost(t *testing.T, r config.RDMA) (Report, string) {
	t.Helper()
	if os.Getenv("TRYST_RXE") == "" {
		t.Skip("TRYST_RXE is not set: there are no Soft-RoCE devices made for tests")
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
// the open port has the MTU that follows from the netdev's.
func TestRxeDoctor(t *testing.T) {
	r, text := examineHost(t, config.RDMA{})
	if r.Worst() == Fail {
		t.Error("a check fails")
	}
	for _, want := range []string{
		"OK    kernel", "OK    node of rxe0", "OK    libibverbs", "rxe0, rxe1", "OK    rxe0 port 1", "driver rxe",
		"rxe0 port 1, GID 1 (192.0.2.1, RoCE v2) on v0, MTU 4096", "the port's path MTU is 4096", "OK    congestion",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in the report", want)
		}
	}
}

func TestRxeDoctorSeesASmallMTUAndAPortThatIsDown(t *testing.T) {
	if os.Getenv("TRYST_RXE") == "" {
		t.Skip("TRYST_RXE is not set: there are no Soft-RoCE devices made for tests")
	}
	ip := func(args ...string) {
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			t.Errorf("ip %s: %v: %s", strings.Join(args, " "), err, out)
		}
	}
	t.Cleanup(func() { ip("link", "set", "v0", "mtu", "9000") })
	ip("link", "set", "v0", "mtu", "1500")
	r, text := examineHost(t, config.RDMA{Device: "rxe0"})
	if r.Worst() != Warn || !strings.Contains(text, "v0 has MTU 1500, which makes a path MTU of 1024") {
		t.Errorf("%s; want a WARN about the MTU of v0", r.Worst())
	}
	r, text = examineHost(t, config.RDMA{Device: "rxe0", MTU: 4096})
	if r.Worst() != Fail || !strings.Contains(text, "4096") {
		t.Errorf("%s; want a FAIL for an MTU that the port does not have", r.Worst())
	}
	t.Cleanup(func() { // the address of IPv6 goes with the link
		ip("link", "set", "v1", "up")
		ip("addr", "replace", "2001:db8::2/64", "dev", "v1", "nodad")
	})
	ip("link", "set", "v1", "down")
	r, text = examineHost(t, config.RDMA{Device: "rxe1"})
	if r.Worst() != Fail || !strings.Contains(text, "rxe1 port 1: the port is DOWN") {
		t.Errorf("%s; want a FAIL for the port that is down", r.Worst())
	}
}
