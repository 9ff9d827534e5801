package worker

import (
	"sync"
	"time"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensorproto"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// costs are what the nodes of a graph took in one step, for record_costs.
type costs struct {
	mu    sync.Mutex // guards nodes
	nodes map[*graph.Node]*cost
}

// cost is what a node took: the sum over the iterations of a loop, and the outputs of the last one.
type cost struct {
	took    time.Duration
	outputs []*tfpb.CostGraphDef_Node_OutputInfo
}

func newCosts() *costs { return &costs{nodes: make(map[*graph.Node]*cost)} }

func (c *costs) add(run graph.NodeRun) {
	var outputs []*tfpb.CostGraphDef_Node_OutputInfo
	for i, v := range run.Outputs {
		info := &tfpb.CostGraphDef_Node_OutputInfo{AliasInputPort: -1, Dtype: tensorproto.DTypeToProto(run.Node.OutTypes[i])}
		v.Look(func(t *tensor.Tensor) {
			if t != nil {
				info.Size, info.Shape = t.Size(), tensorproto.ShapeToProto(t.Shape())
			}
		})
		outputs = append(outputs, info)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.nodes[run.Node]
	if of == nil {
		of = new(cost)
		c.nodes[run.Node] = of
	}
	of.took += run.End.Sub(run.Start)
	of.outputs = outputs
}

// graph returns the costs of the nodes of all parts. The ids of a later part follow those of the
// earlier ones.
func (c *costs) graph(parts []part) *tfpb.CostGraphDef {
	c.mu.Lock()
	defer c.mu.Unlock()
	def, first := new(tfpb.CostGraphDef), 0
	for _, p := range parts {
		id := func(n *graph.Node) int32 { return int32(first + n.ID) } //nolint:gosec // Import bounds the nodes
		for _, n := range p.graph.Nodes {
			node := &tfpb.CostGraphDef_Node{Name: n.Name, Device: n.Device, Id: id(n)}
			for _, in := range n.In {
				node.InputInfo = append(node.InputInfo, &tfpb.CostGraphDef_Node_InputInfo{
					PrecedingNode: id(in.Node), PrecedingPort: int32(in.Index), //nolint:gosec // an index of an output
				})
			}
			for _, in := range n.ControlIn {
				node.ControlInput = append(node.ControlInput, id(in))
			}
			if of := c.nodes[n]; of != nil {
				node.ComputeCost, node.ComputeTime, node.OutputInfo = of.took.Microseconds(), of.took.Microseconds(), of.outputs
			}
			def.Node = append(def.Node, node)
		}
		first += len(p.graph.Nodes)
	}
	return def
}

// partition returns a part of a graph as a GraphDef, for record_partition_graphs. It shares the nodes.
func partition(g *graph.Graph) *tfpb.GraphDef {
	def := &tfpb.GraphDef{Versions: &tfpb.VersionDef{Producer: g.Producer}}
	for _, n := range g.Nodes {
		def.Node = append(def.Node, n.Def)
	}
	return def
}
