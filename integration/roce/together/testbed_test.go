//go:build rxe && linux && cgo

package together_test

import (
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tryst-rdma/tryst/integration/roce/internal/cabletest"
	"github.com/tryst-rdma/tryst/verbs"
	libibverbs "github.com/tryst-rdma/tryst/verbs/cgo"
	"github.com/tryst-rdma/tryst/verbs/roce"
	"github.com/tryst-rdma/tryst/verbs/verbstest"
)

// slow is the factor by which waits may take longer than outside the VM.
const slow = 10

// testbed is a cable with a device on each end.
type testbed struct {
	first        *cabletest.Namespace
	kernel, ours verbs.Provider
}

func newTestbed(t *testing.T, o roce.Options) *testbed {
	t.Helper()
	bed := &testbed{first: cabletest.Enter(t, firstFile)}
	cabletest.Switch(t, cabletest.Here{}, "lo", true)
	cabletest.New(t, bed.first, cabletest.Here{})
	o.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	bed.kernel, bed.ours = libibverbs.New(libibverbs.Options{}), roce.New(o)
	return bed
}

// family is IPv4 or IPv6, as the index of its addresses.
type family int

func (f family) String() string { return [...]string{"IPv4", "IPv6"}[f] }

// direction selects the first end of the suite, which sends most requests.
type direction bool

const (
	kernelToUs direction = false
	usToKernel direction = true
)

func (d direction) String() string {
	if d == usToKernel {
		return "to the kernel"
	}
	return "from the kernel"
}

// env returns the environment of the suite.
func (bed *testbed) env(t *testing.T, f family, d direction) verbstest.Env {
	t.Helper()
	kernel := end(t, bed.kernel, cabletest.KernelDevice, cabletest.KernelAddrs()[f].Addr())
	ours := end(t, bed.ours, roce.Name+"-"+cabletest.OurNetdev, cabletest.OurAddrs()[f].Addr())
	env := verbstest.Env{
		Ends: func(testing.TB) (a, b verbstest.End) {
			if d == usToKernel {
				return ours, kernel
			}
			return kernel, ours
		},
		Memory:    mapped,
		TimeScale: slow,
		// As in the suite of two kernel devices.
		Path: verbs.Path{Timeout: verbs.TimeoutCode(250 * time.Millisecond)},
		Unsupported: map[verbstest.Feature]string{
			verbstest.MaxRegion: "neither has a limit below the address space",
		},
		SetPort: bed.setPort,
	}
	if d == usToKernel {
		env.Unsupported[verbstest.Windows] = "the kernel's device has none that an application could use"
		env.Unsupported[verbstest.QPEvents] = "rxe 6.1 breaks a queue pair that refused a request without an event"
	}
	return env
}

// setPort takes an end of the cable up or down.
func (bed *testbed) setPort(t testing.TB, e verbstest.End, up bool) {
	t.Helper()
	bed.change(t, e, up)
	if up { // the kernel has forgotten the neighbour's address
		cabletest.Introduce(t, bed.first, cabletest.Here{})
	}
}

func (bed *testbed) change(t testing.TB, e verbstest.End, up bool) {
	t.Helper()
	if e.Device == cabletest.KernelDevice {
		cabletest.Switch(t, bed.first, cabletest.KernelNetdev, up)
	} else {
		cabletest.Switch(t, cabletest.Here{}, cabletest.OurNetdev, up)
	}
}

// end returns the device with an address.
func end(t *testing.T, p verbs.Provider, device string, addr netip.Addr) verbstest.End {
	t.Helper()
	d, err := p.Open(device)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	gids, err := d.GIDs(1)
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range gids {
		if g.GID == verbs.GIDFromAddr(addr) && g.Type == verbs.GIDTypeRoCEv2 {
			return verbstest.End{Provider: p, Device: device, Port: 1, GIDIndex: uint8(g.Index)} //nolint:gosec // a small index
		}
	}
	t.Fatalf("%s has no GID %v: %v", device, addr, gids)
	return verbstest.End{}
}

// mapped returns memory that the kernel can register.
func mapped(t testing.TB, size int) []byte {
	t.Helper()
	mem, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Munmap(mem); err != nil {
			t.Error(err)
		}
	})
	return mem
}

// lose drops a percentage of the packets that each end sends, until the test ends.
func (bed *testbed) lose(t *testing.T, percent float32) {
	t.Helper()
	if percent == 0 {
		return
	}
	t.Cleanup(cabletest.Lose(t, bed.first, cabletest.KernelNetdev, percent))
	t.Cleanup(cabletest.Lose(t, cabletest.Here{}, cabletest.OurNetdev, percent))
}
