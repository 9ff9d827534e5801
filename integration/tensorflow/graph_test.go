//go:build interop

package tensorflow_test

import (
	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/tensorflow/master"
	"github.com/tryst-rdma/tryst/tensor"
)

// The devices of the two tasks.
const (
	tfDevice    = "/job:worker/replica:0/task:0/device:CPU:0"
	trystDevice = "/job:worker/replica:0/task:1/device:CPU:0"
)

// workerGraph is a graph of TensorFlow's device.
type workerGraph struct {
	*master.Graph
	bed *testbed
}

func (bed *testbed) graph() *workerGraph { return &workerGraph{bed.session.NewGraph(), bed} }

// echo returns a graph that sends back the value that it receives.
func (bed *testbed) echo(dtype tensor.DType) *workerGraph {
	g := bed.graph()
	g.send("back", g.Identity("same", g.recv("there", dtype), dtype), dtype)
	return g
}

// send sends an output of a node to our task.
func (g *workerGraph) send(edge, input string, dtype tensor.DType) {
	g.Send(edge, input, dtype, device(g.bed, trystDevice))
}

// recv receives a value from our task.
func (g *workerGraph) recv(edge string, dtype tensor.DType) string {
	return g.recvFrom(edge, g.bed.server.Incarnation(), dtype)
}

func (g *workerGraph) recvFrom(edge string, incarnation uint64, dtype tensor.DType) string {
	return g.Recv(edge, dtype, master.Peer{Device: device(g.bed, trystDevice), Incarnation: incarnation})
}

func device(bed *testbed, name string) cluster.Device {
	bed.t.Helper()
	d, err := cluster.ParseDevice(name)
	if err != nil {
		bed.t.Fatal(err)
	}
	return d
}
