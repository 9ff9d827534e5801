//go:build interop

package tensorflow_test

import (
	"fmt"
	"sync/atomic"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensorproto"
)

// The devices of the two tasks.
const (
	tfDevice    = "/job:worker/replica:0/task:0/device:CPU:0"
	trystDevice = "/job:worker/replica:0/task:1/device:CPU:0"
)

// graph builds a GraphDef as TensorFlow's master sends it to a worker: each node has its full
// device name.
type graph struct {
	bed *testbed
	def *tfpb.GraphDef
}

func (bed *testbed) graph() *graph {
	return &graph{bed: bed, def: &tfpb.GraphDef{Versions: &tfpb.VersionDef{Producer: 2000}}}
}

var nodes atomic.Int64

// echo returns a graph that sends back the value that it receives.
func (bed *testbed) echo(dtype tensor.DType) *graph {
	g := bed.graph()
	g.send("back", g.identity("same", g.recv("there", dtype), dtype), dtype)
	return g
}

type attrs map[string]*tfpb.AttrValue

// add adds a node on TensorFlow's device and returns its name, which also means its first output.
// It appends a number that is unique among all graphs: a session keeps stateful kernels, such as
// _Send and _Recv, by the names of their nodes, and the next graph would get the kernels of the
// last one, with their attributes.
func (g *graph) add(name, op string, a attrs, inputs ...string) string {
	name = fmt.Sprintf("%s_S%d", name, nodes.Add(1))
	g.def.Node = append(g.def.Node, &tfpb.NodeDef{Name: name, Op: op, Device: tfDevice, Input: inputs, Attr: a})
	return name
}

func (g *graph) constant(name string, x *tensor.Tensor) string {
	g.bed.t.Helper()
	p, err := tensorproto.ToProto(x)
	if err != nil {
		g.bed.t.Fatal(err)
	}
	return g.add(name, "Const", attrs{"dtype": typeAttr(x.DType()), "value": {Value: &tfpb.AttrValue_Tensor{Tensor: p}}})
}

func (g *graph) identity(name, input string, dtype tensor.DType) string {
	return g.add(name, "Identity", attrs{"T": typeAttr(dtype)}, input)
}

// send adds the node that the master adds where an edge leads from TensorFlow's task to ours.
func (g *graph) send(edge, input string, dtype tensor.DType) {
	a := edgeAttrs(edge, tfDevice, g.bed.tfIncarnation, trystDevice)
	a["T"] = typeAttr(dtype)
	g.add("send_"+edge, "_Send", a, input)
}

// recv adds the node that the master adds where an edge leads from our task to TensorFlow's.
func (g *graph) recv(edge string, dtype tensor.DType) string {
	return g.recvFrom(edge, g.bed.server.Incarnation(), dtype)
}

func (g *graph) recvFrom(edge string, incarnation uint64, dtype tensor.DType) string {
	a := edgeAttrs(edge, trystDevice, incarnation, tfDevice)
	a["tensor_type"] = typeAttr(dtype)
	return g.add("recv_"+edge, "_Recv", a)
}

func edgeAttrs(edge, src string, incarnation uint64, dst string) attrs {
	return attrs{
		"tensor_name":             bytesAttr(edge),
		"send_device":             bytesAttr(src),
		"send_device_incarnation": {Value: &tfpb.AttrValue_I{I: int64(incarnation)}},
		"recv_device":             bytesAttr(dst),
		"client_terminated":       {Value: &tfpb.AttrValue_B{}},
	}
}

func typeAttr(d tensor.DType) *tfpb.AttrValue {
	return &tfpb.AttrValue{Value: &tfpb.AttrValue_Type{Type: tensorproto.DTypeToProto(d)}}
}

func bytesAttr(s string) *tfpb.AttrValue {
	return &tfpb.AttrValue{Value: &tfpb.AttrValue_S{S: []byte(s)}}
}
