package verbstransport_test

import (
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/transport/transporttest"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/roce"
)

// TestRoceSuite: verbs is a transport on the device in user space, over the
// loopback interface. Each task has sockets of its own, disturbed by its gate, and
// nothing goes over gRPC but the bootstrap.
func TestRoceSuite(t *testing.T) {
	transporttest.Run(t, transporttest.Suite{
		New: newCluster(clusterOptions{
			require: true,
			open: func(cluster.Task) (verbs.Device, error) {
				return roce.New(roce.Options{}).Open("roce-lo")
			},
			gate: true,
			tune: func(_ cluster.Task, o *verbstransport.Options) { o.Backoff = gateBackoff },
			path: verbs.Path{Port: 1, Timeout: verbs.TimeoutCode(20 * time.Millisecond), Retry: 6, RNRRetry: 6},
		}),
		MaxSize: 64 << 20, Registered: true,
	})
}
