package verbstransport_test

import (
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/transporttest"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/shm"
	"github.com/tryst-rdma/tryst/verbs/tcp"
)

// overOne is a cluster whose tasks have one device each, of another provider than the fabric. Each is
// disturbed by its gate. gRPC is used only for the bootstrap.
func overOne(open func(cluster.Task) (verbs.Device, error)) clusterOptions {
	return clusterOptions{
		require: true, gate: true, open: open,
		tune: func(_ cluster.Task, o *verbstransport.Options) {
			o.Backoff = gateBackoff
			o.Addresses = []string{"127.0.0.1:1"} // that in the endpoint's data counts
			o.Fixed, o.PortOptions = append(o.Fixed, o.PortOptions), verbstransport.PortOptions{}
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

// smoke returns the parts of the suite to run: with -short a few, else those; all without any.
func smoke(parts ...string) []string {
	if testing.Short() {
		return []string{"Content", "Order", "Stop"}
	}
	return parts
}

// TestTCPSuite runs the suite over queue pairs that are TCP connections.
func TestTCPSuite(t *testing.T) {
	transporttest.Run(t, transporttest.Suite{New: newCluster(overOne(openTCP)), MaxSize: largest, Registered: true, Parallel: true, Only: smoke()})
}

// TestSharedSuite runs the suite over shared memory.
func TestSharedSuite(t *testing.T) {
	transporttest.Run(t, transporttest.Suite{New: newCluster(overOne(openShared)), MaxSize: largest, Registered: true, Parallel: true, Only: smoke()})
}

// TestSharedAndTCPSuite runs parts of the suite over shared memory, with TCP as the next route.
// What breaks connections breaks those over the route that is in use.
func TestSharedAndTCPSuite(t *testing.T) {
	o := overOne(openShared)
	o.beside, o.gateFixed = openTCP, true
	transporttest.Run(t, transporttest.Suite{New: newCluster(o), MaxSize: largest, Registered: true, Parallel: true,
		Only: smoke("Cancel", "Cut", "Peer", "Stop")})
}

// TestSharedMemoryIsReplacedByTCP: two processes with both devices use shared memory. When it
// breaks TCP takes over, and nothing takes gRPC.
func TestSharedMemoryIsReplacedByTCP(t *testing.T) {
	o := overOne(openShared)
	o.beside, o.require = openTCP, false
	o.path.Timeout = verbs.TimeoutCode(500 * time.Millisecond) // TCP does not break when a goroutine rests
	s := newStage(t, o)
	from, to := s.pair()
	from.overRoute(to, "shm")
	from.exchange(to, 1)
	waits := from.key(to, "waits")
	waiting := to.recv(2, waits)
	from.waiting(1)
	before := to.connection(from).Stats.Without
	s.c.gates.gate(from.task).cutAfter(0, func() {})
	from.exchange(to, 3)
	from.overRoute(to, "tcp")
	from.sendsBlob(2, waits, 9, 3*mib)
	waiting.isBlob(9, 3*mib)
	from.exchange(to, 4)
	if now := to.connection(from).Stats.Without; now != before {
		t.Errorf("%d receives took gRPC", now-before)
	}
}
