package graph

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// Split returns the parts of a graph by device, as TensorFlow's partitioner does
// (core/graph/graph_partition.cc):
//
//   - An edge to another device becomes a _Send and a _Recv; a control edge sends an empty Const. The
//     inputs of several nodes that get one value share a _Recv, unless they read a reference.
//   - In a loop a _Recv runs once an iteration, so a control edge leads to it from the Merge of a
//     control loop on its device: a loop of dummy values that follows the LoopCond of the loop.
//     TensorFlow's master adds them (their names begin with "_cloop"); loops without them get
//     theirs here.
//
// incarnation returns that of a device of this process; a node on another device is InvalidArgument.
// The graph may be part of the result and must not be used any more.
func Split(g *Graph, incarnation func(device string) (uint64, bool)) (map[string]*Graph, error) {
	s := &splitter{g: g, parts: make(map[string]*Graph), names: make(map[string]bool, len(g.Nodes)),
		received: make(map[receivedKey]*Node), incarnations: make(map[string]uint64)}
	for _, n := range g.Nodes {
		if err := s.place(n, incarnation); err != nil {
			return nil, err
		}
	}
	if len(s.parts) == 1 {
		s.parts[g.Nodes[0].Device] = g
		return s.parts, nil
	}
	if err := s.addControlLoops(); err != nil {
		return nil, err
	}
	for _, n := range s.g.Nodes {
		if err := s.splitInputs(n); err != nil {
			return nil, err
		}
	}
	for _, n := range slices.Concat(s.g.Nodes, s.added) {
		p := s.parts[n.Device]
		n.ID, n.Out = len(p.Nodes), nil
		p.Nodes = append(p.Nodes, n)
	}
	for device, p := range s.parts {
		if len(p.Nodes) == 0 {
			delete(s.parts, device)
		}
		for _, n := range p.Nodes {
			n.addOut()
		}
	}
	return s.parts, nil
}

type splitter struct {
	g            *Graph
	parts        map[string]*Graph
	incarnations map[string]uint64 // by device
	names        map[string]bool   // of all nodes
	added        []*Node           // behind those of g
	received     map[receivedKey]*Node
	reads        int // edges that addReads has added
	next         int // number of the next new name or edge
}

// receivedKey is a value or the end of a node on another device.
type receivedKey struct {
	from   *Node
	index  int // ControlSlot for the end of the node
	device string
}

// place records the device of a node.
func (s *splitter) place(n *Node, incarnation func(string) (uint64, bool)) error {
	s.names[n.Name] = true
	if n.Device == "" {
		return status.Errorf(status.InvalidArgument, "Missing device name in: %s", n.Name)
	}
	if s.parts[n.Device] == nil {
		number, ok := incarnation(n.Device)
		if !ok {
			return status.Errorf(status.InvalidArgument, "node %q is placed on %s, which is no device of this worker", n.Name, n.Device)
		}
		s.parts[n.Device] = &Graph{Library: s.g.Library, Producer: s.g.Producer}
		s.incarnations[n.Device] = number
	}
	if kindOf(n.Op) == kindTransfer && n.Int("send_device_incarnation") == 0 {
		// A master that does not know the incarnation leaves it to the worker of the device.
		if number, ok := incarnation(n.Text("send_device")); ok {
			n.setAttr("send_device_incarnation", integer(int64(number)))
		}
	}
	return nil
}

// setAttr sets an attribute in a definition of the node's own: the present one may be shared.
func (n *Node) setAttr(name string, v *tfpb.AttrValue) {
	attr := maps.Clone(n.Def.GetAttr())
	attr[name] = v
	n.Def = &tfpb.NodeDef{Name: n.Def.GetName(), Op: n.Def.GetOp(), Input: n.Def.GetInput(), Device: n.Def.GetDevice(), Attr: attr}
}

// splitInputs puts a _Recv in place of each input from another device.
func (s *splitter) splitInputs(dst *Node) error {
	pivot := controlPivot(dst)
	var here []*Node    // what dst waits for on its device
	var readers []*Node // _Recv nodes of references
	redirected := false
	for i, in := range dst.In {
		src := in.Node
		isRef := src.OutTypes[in.Index].IsRef()
		if src.Device == dst.Device {
			if !isRef {
				here = append(here, src)
			}
			continue
		}
		if dst.InTypes[i].IsRef() {
			return status.Errorf(status.InvalidArgument, "input %d of node %q on %s is a reference to output %d of %q on %s: a reference cannot leave its device", i, dst.Name, dst.Device, in.Index, src.Name, src.Device)
		}
		recv := s.received[receivedKey{src, in.Index, dst.Device}]
		if recv == nil {
			recv = s.transfer(in, dst)
			s.waitForPivot(recv, pivot)
			redirected = pivot != nil
			if isRef {
				readers = append(readers, recv)
			} else {
				s.received[receivedKey{src, in.Index, dst.Device}] = recv
				here = append(here, recv)
			}
		}
		dst.In[i] = Output{Node: recv}
	}
	for i, src := range dst.ControlIn {
		if src.Device != dst.Device {
			key := receivedKey{src, ControlSlot, dst.Device}
			if s.received[key] == nil {
				s.received[key] = s.transferControl(src, dst, pivot)
				redirected = pivot != nil
			}
			dst.ControlIn[i] = s.received[key]
		}
		if src != pivot {
			here = append(here, dst.ControlIn[i])
		}
	}
	// dst reads a reference when all its inputs are there. So does the _Recv in its place.
	if err := s.addReads(dst, readers, here); err != nil {
		return err
	}
	if redirected {
		dst.ControlIn = slices.DeleteFunc(dst.ControlIn, func(n *Node) bool { return n == pivot })
	}
	return nil
}

// addReads lets the _Recv nodes of dst that read references wait for what dst waits for.
func (s *splitter) addReads(dst *Node, readers, here []*Node) error {
	if len(readers) == 0 {
		return nil
	}
	has := make(map[*Node]bool, len(here))
	here = slices.DeleteFunc(here, func(n *Node) bool {
		double := has[n]
		has[n] = true
		return double
	})
	if s.reads += len(readers) * len(here); s.reads > DefaultMaxEdges {
		return status.Errorf(status.ResourceExhausted, "node %q on %s reads %d references of other devices and waits for %d nodes: with the edges between them the graph has more than %d: read the variables on their own device", dst.Name, dst.Device, len(readers), len(here), DefaultMaxEdges)
	}
	for _, r := range readers {
		pivot := controlPivot(r)
		for _, n := range here {
			if n != r && n != pivot {
				r.ControlIn = append(r.ControlIn, n)
			}
		}
	}
	return nil
}

// controlPivot returns the Merge of a control loop on its device that a node waits for; nil without one. A node
// of another device is none, whatever its name: an edge to it must be split.
func controlPivot(n *Node) *Node {
	for _, c := range n.ControlIn {
		if c.Device == n.Device && kindOf(c.Op) == kindMerge && strings.HasPrefix(c.Name, controlLoopPrefix) {
			return c
		}
	}
	return nil
}

func (s *splitter) waitForPivot(recv, pivot *Node) {
	if pivot != nil {
		recv.addControl(pivot)
	}
}

func (n *Node) addControl(from *Node) {
	if from != n && !slices.Contains(n.ControlIn, from) {
		n.ControlIn = append(n.ControlIn, from)
	}
}

// transfer sends an output to the device of dst, and returns the _Recv.
func (s *splitter) transfer(from Output, dst *Node) *Node {
	src := from.Node
	t := src.OutTypes[from.Index].Base()
	common := map[string]*tfpb.AttrValue{
		"tensor_name":             text("edge_" + strconv.Itoa(s.next) + "_" + src.Name),
		"send_device":             text(src.Device),
		"send_device_incarnation": integer(int64(s.incarnations[src.Device])),
		"recv_device":             text(dst.Device),
		"client_terminated":       boolean(false),
		"_src":                    text(src.Name),
		"_dst":                    text(dst.Name),
	}
	sendAttr, recvAttr := maps.Clone(common), common
	sendAttr["T"], recvAttr["tensor_type"] = typeValue(tfpb.DataType(t)), typeValue(tfpb.DataType(t))
	send := s.add(src.Name, src.Device, "_Send", sendAttr)
	send.InTypes, send.In = []tensor.DType{t}, []Output{from}
	recv := s.add(src.Name, dst.Device, "_Recv", recvAttr)
	recv.OutTypes = []tensor.DType{t}
	return recv
}

// transferControl sends the end of a node to the device of dst. It returns the node to wait for.
func (s *splitter) transferControl(src, dst, pivot *Node) *Node {
	c := s.empty(src.Name+"/ctrl", src.Device)
	c.ControlIn = []*Node{src}
	recv := s.transfer(Output{Node: c}, dst)
	s.waitForPivot(recv, pivot)
	id := s.add(src.Name, dst.Device, "Identity", map[string]*tfpb.AttrValue{"T": typeValue(tfpb.DataType_DT_FLOAT)})
	id.In, id.InTypes, id.OutTypes = []Output{{Node: recv}}, recv.OutTypes, recv.OutTypes
	return id
}

// empty adds a Const without elements.
func (s *splitter) empty(base, device string) *Node {
	shape := &tfpb.TensorShapeProto{Dim: []*tfpb.TensorShapeProto_Dim{{}}}
	c := s.add(base, device, "Const", map[string]*tfpb.AttrValue{"dtype": typeValue(tfpb.DataType_DT_FLOAT),
		"value": {Value: &tfpb.AttrValue_Tensor{Tensor: &tfpb.TensorProto{Dtype: tfpb.DataType_DT_FLOAT, TensorShape: shape}}}})
	c.OutTypes = []tensor.DType{tensor.Float32}
	return c
}

// add adds a node without inputs, with a new name that begins with base.
func (s *splitter) add(base, device, op string, attr map[string]*tfpb.AttrValue) *Node {
	name := s.newName(base)
	n := &Node{Name: name, Op: op, Device: device, OpDef: splitDef(op), Def: &tfpb.NodeDef{Name: name, Op: op, Device: device, Attr: attr}}
	s.added = append(s.added, n)
	return n
}

func (s *splitter) newName(base string) string {
	for {
		s.next++
		if name := base + "_G" + strconv.Itoa(s.next); !s.names[name] {
			s.names[name] = true
			return name
		}
	}
}

// splitDef returns the definition of an op that Split adds. A kernel set that makes functions names the
// outputs by it. The attributes of a transfer are left out: its node has all of them.
func splitDef(op string) *tfpb.OpDef {
	switch op {
	case "_Send":
		return &tfpb.OpDef{Name: op, IsStateful: true, InputArg: args(typeArg("tensor", "T"))}
	case "_Recv":
		return &tfpb.OpDef{Name: op, IsStateful: true, OutputArg: args(typeArg("tensor", "tensor_type"))}
	case "Const":
		return &tfpb.OpDef{Name: op, Attr: attrs(attrDef("value", "tensor"), attrDef("dtype", "type")), OutputArg: args(typeArg("output", "dtype"))}
	case "Identity":
		return &tfpb.OpDef{Name: op, Attr: attrs(attrDef("T", "type")), InputArg: args(typeArg("input", "T")), OutputArg: args(typeArg("output", "T"))}
	}
	return builtin(op)
}
