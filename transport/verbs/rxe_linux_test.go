//go:build rxe

package verbstransport_test

import (
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/discovery"
	"github.com/tryst-rdma/tryst/internal/transporttest"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
	"github.com/tryst-rdma/tryst/verbs"
	libibverbs "github.com/tryst-rdma/tryst/verbs/cgo"
)

// slow is how many times slower an emulated processor is than a real one.
const slow = 40

// rxeDevices are the devices at the two ends of a veth pair.
func rxeDevices(t *testing.T) []string {
	t.Helper()
	names := strings.Split(os.Getenv("TRYST_TEST_DEVICES"), ",")
	if len(names) < 2 {
		t.Fatalf("TRYST_TEST_DEVICES is %q, and must name two devices", os.Getenv("TRYST_TEST_DEVICES"))
	}
	return names
}

// kernelCountsComeBack checks by netlink, at the end of the test, that the kernel has as
// many objects of each kind as before.
func kernelCountsComeBack(t *testing.T, devices []string) {
	t.Helper()
	count := func() (all []discovery.ResourceCounts) {
		for _, d := range devices {
			n, err := discovery.Resources(d)
			if err != nil {
				t.Error(err)
			}
			all = append(all, n)
		}
		return all
	}
	before := count()
	t.Cleanup(func() {
		now := count()
		for end := time.Now().Add(slow * time.Second); !slices.Equal(now, before) && time.Now().Before(end); now = count() {
			runtime.Gosched()
		}
		if !slices.Equal(now, before) {
			t.Errorf("the kernel has %v, and had %v before", now, before)
		}
	})
}

// suiteSlow is slow for the suite. Several of its cases wait for a peer timeout that is
// multiplied with it: 5 s, the longest wait. Its deadlines are then 40 s; with slow, a
// case that hangs would outlive the VM and not be reported.
const suiteSlow = 10

// TestRxeSuite runs the suite on the kernel's Soft-RoCE. Tasks are on two devices in
// turn, with two queue pairs per peer, as the server configures them. They are disturbed
// by their gates, and gRPC is used only for the bootstrap. A queue pair fails after half
// a second of retries, since one end waits for that in each cut. Larger tensors are left
// out: an emulated processor takes a minute to fill and compare them.
func TestRxeSuite(t *testing.T) {
	names := rxeDevices(t)
	kernelCountsComeBack(t, names)
	transporttest.Run(t, transporttest.Suite{
		New: newCluster(clusterOptions{
			require: true,
			open: func(task cluster.Task) (verbs.Device, error) {
				return libibverbs.New(libibverbs.Options{}).Open(names[task.Index%2])
			},
			gate: true,
			tune: func(_ cluster.Task, o *verbstransport.Options) { o.Rails, o.Backoff = 2, gateBackoff },
			path: verbs.Path{Port: 1, Timeout: verbs.TimeoutCode(50 * time.Millisecond), Retry: 6, RNRRetry: 6},
		}),
		MaxSize: 32 << 20, Registered: true, TimeScale: suiteSlow,
	})
}
