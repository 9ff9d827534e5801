//go:build rxe

package verbstransport_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/transport/transporttest"
	"github.com/tryst-rdma/tryst/verbs"
	libibverbs "github.com/tryst-rdma/tryst/verbs/cgo"
)

// slow is how much longer an emulated processor takes than a real one.
const slow = 40

// rxeDevices are the two ends of a veth pair.
func rxeDevices(t *testing.T) []string {
	t.Helper()
	names := strings.Split(os.Getenv("TRYST_TEST_DEVICES"), ",")
	if len(names) < 2 {
		t.Fatalf("TRYST_TEST_DEVICES is %q, and must name two devices", os.Getenv("TRYST_TEST_DEVICES"))
	}
	return names
}

// TestRxeSuite: verbs is a transport on the kernel's Soft-RoCE. Tasks are on one
// device or the other in turn, and nothing goes over gRPC but the bootstrap.
func TestRxeSuite(t *testing.T) {
	names := rxeDevices(t)
	transporttest.Run(t, transporttest.Suite{
		New: newCluster(clusterOptions{
			require: true,
			open: func(task cluster.Task) (verbs.Device, error) {
				return libibverbs.New(libibverbs.Options{}).Open(names[task.Index%2])
			},
			path: verbs.Path{Port: 1, Timeout: verbs.TimeoutCode(200 * time.Millisecond), Retry: 6, RNRRetry: 6},
		}),
		MaxSize: 64 << 20, Registered: true, Slow: slow,
		Only: []string{"Order", "Content", "Size", "Step", "Publication", "Callback", "Stop"},
	})
}
