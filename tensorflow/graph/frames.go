package graph

import (
	"github.com/tryst-rdma/tryst/status"
)

// frame is a loop of the graph as it is written; a step may run it many times. The root frame, which
// is no loop, has no parent and no name.
type frame struct {
	index    int
	name     string
	parent   *frame
	parallel int // iterations that may run at once

	// nodes are those that run in an iteration of the frame. The Enter nodes that lead into it are
	// not among them; the Exit nodes that leave it are.
	nodes  []*Node
	enters []*Node
}

// frames is where each node of a graph runs.
type frames struct {
	all      []*frame // all[0] is the root
	of       []*frame // by Node.ID
	children map[frameKey]*frame
}

// output returns the frame that the outputs of n belong to.
func (fs *frames) output(n *Node) *frame {
	switch f := fs.of[n.ID]; kindOf(n.Op) {
	case kindEnter:
		return fs.child(f, n)
	case kindExit:
		return f.parent
	default:
		return f
	}
}

// child returns the frame that an Enter node of f leads into; nil when it does not exist yet.
func (fs *frames) child(f *frame, enter *Node) *frame {
	return fs.children[frameKey{f, enter.Text("frame_name")}]
}

// analyseFrames returns the frame of each node. All inputs of a node must come from one frame. The
// graph must have no cycle but those through NextIteration.
func analyseFrames(g *Graph) (*frames, error) {
	root := &frame{parallel: 1}
	fs := &frames{all: []*frame{root}, of: make([]*frame, len(g.Nodes)), children: make(map[frameKey]*frame)}
	first := make([]*Node, len(g.Nodes)) // the input that gave a node its frame
	var queue []*Node
	for _, n := range g.Nodes {
		if len(n.In) == 0 && len(n.ControlIn) == 0 {
			fs.of[n.ID] = root
			queue = append(queue, n)
		}
	}
	for i := 0; i < len(queue); i++ {
		n := queue[i]
		out := fs.of[n.ID]
		switch kindOf(n.Op) {
		case kindEnter:
			var err error
			if out, err = fs.enter(out, n); err != nil {
				return nil, err
			}
		case kindExit:
			if out.parent == nil {
				return nil, status.Errorf(status.InvalidArgument, "node %q (%s) leaves a loop, and none of its inputs comes from one", n.Name, n.Op)
			}
			out = out.parent
		case kindNextIteration, kindForward:
			if out.parent == nil {
				return nil, status.Errorf(status.InvalidArgument, "node %q (%s) belongs into a loop, and none of its inputs comes from one", n.Name, n.Op)
			}
		}
		for _, e := range n.Out {
			switch had := fs.of[e.To.ID]; {
			case had == nil:
				fs.of[e.To.ID], first[e.To.ID] = out, n
				queue = append(queue, e.To)
			case had != out:
				return nil, status.Errorf(status.InvalidArgument, "{{node %s}} has inputs from different frames. The input {{node %s}} is in frame '%s'. The input {{node %s}} is in frame '%s'.",
					e.To.Name, n.Name, out.name, first[e.To.ID].Name, had.name)
			}
		}
	}
	for _, n := range g.Nodes {
		f := fs.of[n.ID]
		if f == nil { // only loops without an Enter are left after checkCycles
			return nil, status.Errorf(status.InvalidArgument, "node %q (%s) can never run: it waits for a loop that no Enter node leads into", n.Name, n.Op)
		}
		f.nodes = append(f.nodes, n)
	}
	return fs, nil
}

type frameKey struct {
	parent *frame
	name   string
}

// enter returns the frame that an Enter node leads into, and makes it at the first one.
func (fs *frames) enter(parent *frame, n *Node) (*frame, error) {
	name := n.Text("frame_name")
	if name == "" {
		return nil, status.Errorf(status.InvalidArgument, "The Enter {{node %s}} must have a frame name.", n.Name)
	}
	parallel := n.Int("parallel_iterations")
	if parallel < 1 {
		return nil, status.Errorf(status.InvalidArgument, "node %q (%s): parallel_iterations is %d, and must be 1 or more", n.Name, n.Op, parallel)
	}
	key := frameKey{parent, name}
	f := fs.children[key]
	if f == nil {
		f = &frame{index: len(fs.all), name: name, parent: parent, parallel: int(min(parallel, maxParallelIterations))}
		fs.children[key] = f
		fs.all = append(fs.all, f)
	}
	f.enters = append(f.enters, n)
	return f, nil
}
