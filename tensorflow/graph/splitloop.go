package graph

import (
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// A control loop, on a device that takes part in a loop without having its LoopCond:
//
//	Const or Merge of the outer control loop
//	  │
//	Enter ──> Merge ──> Switch <── LoopCond of the loop, on another device
//	            ↑  ┊       │ true
//	            │  ┊       ↓
//	            └──┊── NextIteration
//	               └┄┄> each _Recv of the iteration
//
// It begins an iteration when the loop does, and ends with it.

// controlLoopPrefix begins the names of the nodes of control loops, as in TensorFlow.
const controlLoopPrefix = "_cloop"

// controlLoop is one control loop.
type controlLoop struct{ enter, merge *Node }

type loopKey struct {
	frame  *frame
	device string
}

// loopAdder adds control loops.
type loopAdder struct {
	s     *splitter
	conds map[*frame]*Node // the LoopCond of each loop
	loops map[loopKey]controlLoop
}

// crossing is an edge within a loop that leads to another device.
type crossing struct {
	dst   *Node
	frame *frame
}

// addControlLoops adds a control loop for each loop and device that an edge within the loop leads
// to, and a control edge from its Merge to the node at the end of the edge.
func (s *splitter) addControlLoops() error {
	fs, err := analyseFrames(s.g)
	if err != nil {
		return err
	}
	if err := s.colocate(); err != nil {
		return err
	}
	a := &loopAdder{s: s, conds: make(map[*frame]*Node), loops: make(map[loopKey]controlLoop)}
	for _, n := range s.g.Nodes {
		if kindOf(n.Op) == kindForward {
			a.conds[fs.of[n.ID]] = n
		}
	}
	for _, c := range s.crossings(fs) {
		if controlPivot(c.dst) != nil {
			continue // the master has added it
		}
		loop, err := a.loop(c.frame, c.dst)
		if err != nil {
			return err
		}
		c.dst.addControl(loop.merge)
	}
	// The Switch of a control loop gets the LoopCond by such an edge, so the nodes are split like the others.
	s.g.Nodes = append(s.g.Nodes, s.added...)
	s.added = nil
	return nil
}

// colocate moves Enter and NextIteration to the device of their readers. Their values come in one
// iteration only, or in all but the first, and a _Recv would wait for them in each.
func (s *splitter) colocate() error {
	for _, n := range s.g.Nodes {
		k := kindOf(n.Op)
		if k != kindEnter && k != kindNextIteration || n.OutTypes[0].IsRef() {
			continue
		}
		moved := false
		for _, e := range n.Out {
			switch {
			case e.From == ControlSlot:
			case !moved:
				n.Device, moved = e.To.Device, true
			case e.To.Device != n.Device && (k == kindNextIteration || !n.Bool("is_constant")):
				return status.Errorf(status.InvalidArgument, "node %q (%s) feeds nodes on two devices, %s and %s (%q): place them on one, since the value does not come in each iteration", n.Name, n.Op, n.Device, e.To.Device, e.To.Name)
			}
		}
	}
	return nil
}

// crossings returns the edges within loops that lead to another device, one for each node at their ends.
func (s *splitter) crossings(fs *frames) []crossing {
	var list []crossing
	listed := make(map[*Node]bool)
	for _, src := range s.g.Nodes {
		f := fs.output(src)
		if f.parent == nil {
			continue
		}
		for _, e := range src.Out {
			if src.Device != e.To.Device && !listed[e.To] {
				listed[e.To] = true
				list = append(list, crossing{e.To, f}) // all inputs of a node come from one frame
			}
		}
	}
	return list
}

// loop returns the control loop of a frame on the device of dst, with those of the frames around it.
func (a *loopAdder) loop(f *frame, dst *Node) (controlLoop, error) {
	key := loopKey{f, dst.Device}
	if l, ok := a.loops[key]; ok {
		return l, nil
	}
	cond := a.conds[f]
	if cond == nil {
		return controlLoop{}, status.Errorf(status.InvalidArgument, "A cross-device loop must have a pivot predicate: %s: node %q on %s is in the loop, which has no LoopCond", f.name, dst.Name, dst.Device)
	}
	var from *Node
	if f.parent.parent == nil {
		from = a.s.empty(dst.Name, dst.Device)
	} else {
		outer, err := a.loop(f.parent, dst)
		if err != nil {
			return controlLoop{}, err
		}
		from = outer.merge
	}
	l := a.add(f, dst, from, cond)
	a.loops[key] = l
	return l, nil
}

// add adds the nodes of a control loop.
func (a *loopAdder) add(f *frame, dst, from, cond *Node) controlLoop {
	attrs := func(more map[string]*tfpb.AttrValue) map[string]*tfpb.AttrValue {
		more["T"] = typeValue(tfpb.DataType_DT_FLOAT)
		return more
	}
	float := []tensor.DType{tensor.Float32}
	node := func(op string, attr map[string]*tfpb.AttrValue, in ...Output) *Node {
		n := a.s.add(controlLoopPrefix+dst.Name, dst.Device, op, attrs(attr))
		n.In, n.InTypes, n.OutTypes = in, float, float
		return n
	}
	enter := node("Enter", map[string]*tfpb.AttrValue{"frame_name": text(f.name), "is_constant": boolean(false),
		"parallel_iterations": integer(int64(f.parallel))}, Output{Node: from})
	merge := node("Merge", map[string]*tfpb.AttrValue{"N": integer(2)}, Output{Node: enter})
	merge.InTypes, merge.OutTypes = []tensor.DType{tensor.Float32, tensor.Float32}, []tensor.DType{tensor.Float32, tensor.Int32}
	sw := node("Switch", map[string]*tfpb.AttrValue{}, Output{Node: merge}, Output{Node: cond})
	sw.InTypes, sw.OutTypes = []tensor.DType{tensor.Float32, tensor.Bool}, []tensor.DType{tensor.Float32, tensor.Float32}
	sw.ControlIn = []*Node{merge}
	next := node("NextIteration", map[string]*tfpb.AttrValue{}, Output{Node: sw, Index: 1})
	merge.In = append(merge.In, Output{Node: next})
	return controlLoop{enter: enter, merge: merge}
}
