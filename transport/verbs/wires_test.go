package verbstransport_test

import (
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/transport/transporttest"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/shm"
	"github.com/tryst-rdma/tryst/verbs/tcp"
)

// overOne is a cluster whose tasks have one device each, of another kind than the fabric. Each is
// disturbed by its gate. gRPC is used only for the bootstrap.
func overOne(open func(cluster.Task) (verbs.Device, error)) clusterOptions {
	return clusterOptions{
		require: true, gate: true, open: open,
		tune: func(_ cluster.Task, o *verbstransport.Options) {
			o.Backoff = gateBackoff
			o.PortOptions.Addresses = []string{"127.0.0.1:1"} // that in the endpoint's data counts
			o.Others, o.PortOptions = []verbstransport.PortOptions{o.PortOptions}, verbstransport.PortOptions{}
			o.Host, o.User = 1, 1
		},
		path: verbs.Path{Port: 1, Timeout: verbs.TimeoutCode(20 * time.Millisecond), Retry: 6, RNRRetry: 6},
	}
}

func openTCP(cluster.Task) (verbs.Device, error) {
	return tcp.New(tcp.Options{ListenOn: "127.0.0.1:0"}).Open("tcp0")
}

func openShared(cluster.Task) (verbs.Device, error) {
	return shm.New(shm.Options{}).Open(shm.DeviceName)
}

// TestTCPSuite runs the suite over queue pairs that are TCP connections.
func TestTCPSuite(t *testing.T) {
	transporttest.Run(t, transporttest.Suite{New: newCluster(overOne(openTCP)), MaxSize: largest, Registered: true, Parallel: true})
}

// TestSharedSuite runs the suite over shared memory.
func TestSharedSuite(t *testing.T) {
	transporttest.Run(t, transporttest.Suite{New: newCluster(overOne(openShared)), MaxSize: largest, Registered: true, Parallel: true})
}
