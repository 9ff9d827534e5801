//go:build rxe && linux && cgo

package libibverbs_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
	libibverbs "github.com/tryst-rdma/tryst/verbs/cgo"
	"github.com/tryst-rdma/tryst/verbs/verbstest"
)

// slow is how much longer than outside waits may take: what does not come is
// waited for so long. A case has a minute: with 40, as other tests of the VM have, one that
// hangs would end later than the VM, which tells of none.
const slow = 10

func TestRxePassesTheSuite(t *testing.T) {
	provider := libibverbs.New(libibverbs.Options{})
	end := func(t testing.TB, device string) verbstest.End {
		return verbstest.End{Provider: provider, Device: device, Port: 1, GIDIndex: ipv4GID(t, provider, device)}
	}
	verbstest.Run(t, verbstest.Env{
		Ends: func(t testing.TB) (a, b verbstest.End) { return end(t, "rxe0"), end(t, "rxe1") },
		Memory: func(t testing.TB, size int) []byte {
			return mapped(t, size)
		},
		TimeScale: slow,
		// The tries for an acknowledgement last longer than the suite waits to see
		// that nothing happens: to rxe a receiver that is not ready is silent, too.
		Path: verbs.Path{Timeout: verbs.TimeoutCode(250 * time.Millisecond)},
		Unsupported: map[verbstest.Feature]string{
			verbstest.Windows:   "the provider registers memory with rights of its own instead",
			verbstest.QPEvents:  "rxe 6.1 breaks a queue pair that refused a request without an event",
			verbstest.MaxRegion: "rxe has no limit below the address space",
		},
		SetPort: func(t testing.TB, e verbstest.End, up bool) {
			state := "down"
			if up {
				state = "up"
			}
			run(t, "ip", "link", "set", netdev(t, e.Device), state)
		},
		KernelCounts: kernelCounts,
	})
}

func run(t testing.TB, command string, args ...string) []byte {
	t.Helper()
	out, err := exec.Command(command, args...).CombinedOutput() // also when the test ends, with its context
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", command, args, err, out)
	}
	return out
}

// netdev is the network interface below a device.
func netdev(t testing.TB, device string) string {
	t.Helper()
	name, err := os.ReadFile(filepath.Join("/sys/class/infiniband", device, "parent"))
	if err != nil {
		t.Fatal(err)
	}
	return string(name[:len(name)-1])
}

// kernelCounts asks the kernel by netlink, through the tool rdma: its own objects are among them.
func kernelCounts(t testing.TB, e verbstest.End) verbs.Counts {
	t.Helper()
	var devices []struct {
		Name           string `json:"ifname"`
		PD, MR, CQ, QP int
	}
	if err := json.Unmarshal(run(t, "rdma", "-j", "resource", "show"), &devices); err != nil {
		t.Fatal(err)
	}
	for _, d := range devices {
		if d.Name == e.Device {
			return verbs.Counts{PDs: d.PD, MRs: d.MR, CQs: d.CQ, QPs: d.QP}
		}
	}
	t.Fatalf("the kernel tells nothing of %s: %+v", e.Device, devices)
	return verbs.Counts{}
}

// ipv4GID is the index of the first GID that is an IPv4 address.
func ipv4GID(t testing.TB, p verbs.Provider, device string) uint8 {
	t.Helper()
	dev, err := p.Open(device)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	gids, err := dev.GIDs(1)
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range gids {
		if g.Type == verbs.GIDTypeRoCEv2 && g.GID.Addr().Is4() {
			return uint8(g.Index)
		}
	}
	t.Fatalf("%s has no IPv4 GID: %v", device, gids)
	return 0
}
