package master

import (
	"fmt"
	"strings"

	"github.com/tryst-rdma/tryst/cluster"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensorproto"
)

// producer is the version that a graph claims. Ops are refused below the version that introduced
// them, so it is higher than those that exist.
const producer = 2000

// Attrs are the attributes of a node by name. Type, Text, Int and the others below make them.
type Attrs map[string]*tfpb.AttrValue

// Type is an attribute of the kind type.
func Type(d tensor.DType) *tfpb.AttrValue {
	return &tfpb.AttrValue{Value: &tfpb.AttrValue_Type{Type: tensorproto.DTypeToProto(d)}}
}

// Text is an attribute of the kind string.
func Text(s string) *tfpb.AttrValue {
	return &tfpb.AttrValue{Value: &tfpb.AttrValue_S{S: []byte(s)}}
}

// Int is an attribute of the kind int.
func Int(i int64) *tfpb.AttrValue { return &tfpb.AttrValue{Value: &tfpb.AttrValue_I{I: i}} }

// Bool is an attribute of the kind bool.
func Bool(b bool) *tfpb.AttrValue { return &tfpb.AttrValue{Value: &tfpb.AttrValue_B{B: b}} }

// Shape is an attribute of the kind shape.
func Shape(s tensor.Shape) *tfpb.AttrValue {
	return &tfpb.AttrValue{Value: &tfpb.AttrValue_Shape{Shape: tensorproto.ShapeToProto(s)}}
}

// Peer is a device of another task, at the other end of an edge.
type Peer struct {
	Device      cluster.Device
	Incarnation uint64
}

// Graph is a graph of one device of a worker, under construction. It is not safe for concurrent use.
// An error in its construction is returned by Register.
type Graph struct {
	session *Session
	device  Peer
	def     *tfpb.GraphDef
	// feeds and fetches are the keys of the values in the messages of a run, by the names of the
	// caller.
	feeds, fetches map[string]string
	err            error
}

// NewGraph returns an empty graph of the worker's first device.
func (s *Session) NewGraph() *Graph { return s.NewGraphOn(s.Devices()[0]) }

// NewGraphOn returns an empty graph of a device of the worker, one of Devices.
func (s *Session) NewGraphOn(device Peer) *Graph {
	return &Graph{
		session: s, device: device, def: &tfpb.GraphDef{Versions: &tfpb.VersionDef{Producer: producer}},
		feeds: map[string]string{}, fetches: map[string]string{},
	}
}

// Add adds a node and returns its name, which is also that of its first output; output i is
// "name:i". An input is such a name; "^name" is a control edge: the node runs after that one.
//
// The name that Add returns has a number appended that is unique in the session. A TensorFlow worker
// keeps stateful kernels of a session by the names of their nodes, so nodes of two graphs with one
// name would share their kernel. Use AddNamed where that is wanted, for variables.
func (g *Graph) Add(name, op string, a Attrs, inputs ...string) string {
	return g.AddNamed(fmt.Sprintf("%s_S%d", name, g.session.nodes.Add(1)), op, a, inputs...)
}

// AddNamed adds a node with exactly this name and returns it.
func (g *Graph) AddNamed(name, op string, a Attrs, inputs ...string) string {
	g.def.Node = append(g.def.Node, &tfpb.NodeDef{Name: name, Op: op, Device: g.device.Device.String(), Input: inputs, Attr: a})
	return name
}

// Const adds a constant. The content is copied.
func (g *Graph) Const(name string, x *tensor.Tensor) string {
	p, err := tensorproto.ToProto(x)
	if err != nil {
		g.fail(name, err)
	}
	return g.Add(name, "Const", Attrs{"dtype": Type(x.DType()), "value": {Value: &tfpb.AttrValue_Tensor{Tensor: p}}})
}

// Identity adds a node that passes its input on.
func (g *Graph) Identity(name, input string, dtype tensor.DType) string {
	return g.Add(name, "Identity", Attrs{"T": Type(dtype)}, input)
}

// Feed adds the place of a value that each Run must give under this name.
func (g *Graph) Feed(name string, dtype tensor.DType) string {
	e := g.own(name, "feed")
	g.feeds[name] = e.key()
	return e.recv(g, dtype)
}

// Fetch makes an output of a node a value that Run returns under this name.
func (g *Graph) Fetch(name, input string, dtype tensor.DType) {
	e := g.own(name, "fetch")
	g.fetches[name] = e.key()
	e.send(g, input, dtype)
}

// own returns the edge of a feed or fetch: it begins and ends at the worker, whose RunGraph puts the
// value into its rendezvous or takes it out.
func (g *Graph) own(name, kind string) edge {
	if strings.Contains(name, ";") {
		g.fail(name, status.New(status.InvalidArgument, "the name must not contain a semicolon"))
	}
	return edge{fmt.Sprintf("%s_%s_S%d", kind, name, g.session.nodes.Add(1)), g.device, g.device.Device}
}

// Send sends an output of a node to a device of another task, which receives it by the key that Key
// returns for the edge.
func (g *Graph) Send(name, input string, dtype tensor.DType, to cluster.Device) {
	edge{name, g.device, to}.send(g, input, dtype)
}

// Recv adds a node that receives the value that a device of another task sends by the edge.
func (g *Graph) Recv(name string, dtype tensor.DType, from Peer) string {
	return edge{name, from, g.device.Device}.recv(g, dtype)
}

// Def returns the graph as it will be registered. It belongs to g.
func (g *Graph) Def() *tfpb.GraphDef { return g.def }

func (g *Graph) fail(name string, err error) {
	if g.err == nil {
		g.err = status.From(err).WithPrefix(fmt.Sprintf("graph: node %s: ", name))
	}
}
