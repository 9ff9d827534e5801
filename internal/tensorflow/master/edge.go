package master

import (
	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/tensor"
)

// Key returns the rendezvous key of an edge of a graph, as its _Send and _Recv nodes build it
// outside of loops.
func Key(name string, from Peer, to cluster.Device) string {
	return rendezvous.CreateKey(from.Device.String(), from.Incarnation, to.String(), name, rendezvous.FrameIter{})
}

// edge is an edge between two devices.
type edge struct {
	name string
	from Peer
	to   cluster.Device
}

func (e edge) key() string { return Key(e.name, e.from, e.to) }

func (e edge) attrs() Attrs {
	return Attrs{
		"tensor_name":             Text(e.name),
		"send_device":             Text(e.from.Device.String()),
		"send_device_incarnation": Int(int64(e.from.Incarnation)),
		"recv_device":             Text(e.to.String()),
		"client_terminated":       Bool(false),
	}
}

// send adds the node that a master adds where an edge leaves the device of g.
func (e edge) send(g *Graph, input string, dtype tensor.DType) {
	a := e.attrs()
	a["T"] = Type(dtype)
	g.Add("send_"+e.name, "_Send", a, input)
}

// recv adds the node that a master adds where an edge arrives at the device of g.
func (e edge) recv(g *Graph, dtype tensor.DType) string {
	a := e.attrs()
	a["tensor_type"] = Type(dtype)
	return g.Add("recv_"+e.name, "_Recv", a)
}
