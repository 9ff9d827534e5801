package library

import (
	"fmt"
	"slices"
	"strings"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// A queue, an iterator, a barrier, an accumulator, a reader or a table without a shared_name belongs to
// the kernel of its node: TensorFlow keeps that kernel by session and node, and the object ends with it
// (ResourceOpKernel). Here such a node has a function of its own, which the session keeps as it keeps that
// of a random node (random.go). The handle is a value that the subgraphs take as an argument.
//
// The handle of an older op, such as Barrier, is a reference to two strings, which no reference op
// changes. It leaves its function as a value too. A subgraph makes a reference of it again for the nodes
// that take one (unit.reference).

// givenNames are the ops that make a handle and own nothing: the object has the shared_name as it is,
// also an empty one, and any session finds it.
var givenNames = []string{"VarHandleOp", "MutexV2", "SummaryWriter",
	"BoostedTreesEnsembleResourceHandleOp", "BoostedTreesQuantileStreamResourceHandleOp"}

// barrier is the op whose objects refer to memory of the kernel that has made them, in each TensorFlow
// so far: one that another session finds by its shared_name needs that kernel.
const barrier = "Barrier"

// makesHandle reports whether the kernel of an op makes an object, or finds the one of a name, and gives
// a handle of it. What it gives when two names are equal depends on the attributes of the node.
func makesHandle(op *tfpb.OpDef) bool {
	if len(op.GetOutputArg()) == 0 || slices.Contains(givenNames, op.GetName()) || !hasAttr(op, "shared_name") {
		return false
	}
	out := op.GetOutputArg()[0]
	return out.GetType() == tfpb.DataType_DT_RESOURCE || out.GetIsRef() && out.GetType() == tfpb.DataType_DT_STRING
}

func hasAttr(op *tfpb.OpDef, name string) bool {
	return slices.ContainsFunc(op.GetAttr(), func(a *tfpb.OpDef_AttrDef) bool { return a.GetName() == name })
}

// isPrivate reports whether the kernel of a node owns the object whose handle it gives. In a function
// whose caller gives the name it may.
func isPrivate(op *tfpb.OpDef, n *tfpb.NodeDef) bool {
	return makesHandle(op) && len(n.GetAttr()["shared_name"].GetS()) == 0 && !n.GetAttr()["use_node_name_sharing"].GetB()
}

// lifetime says how long TensorFlow keeps the kernel of a node.
type lifetime uint8

const (
	ofGraph   lifetime = iota // with the graph; nothing depends on it
	ofSession                 // all graphs of the session use it
	ofState                   // all sessions that share the state use it, also later ones
)

// lifetime returns that of the kernel of a node.
func (c *cutter) lifetime(n *node) lifetime {
	switch {
	case n.place == inGo || c.library.has(n.op):
		return ofGraph
	case isRandom(n.opDef), isPrivate(n.opDef, n.def):
		return ofSession
	case n.op == barrier:
		return ofState
	}
	return ofGraph
}

// passHandles makes the handles of lasting nodes values, and with them what the ops of control flow in Go
// pass on.
func (c *cutter) passHandles() {
	users := map[*node][]*node{}
	var todo []*node
	for _, n := range c.nodes {
		for _, in := range n.inputs {
			users[in.n] = append(users[in.n], n)
		}
		if c.lifetime(n) != ofGraph && n.outTypes[0].IsRef() {
			n.outTypes = []tensor.DType{n.outTypes[0].Base()}
			todo = append(todo, n)
		}
	}
	for len(todo) > 0 {
		n := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, u := range users[n] {
			if u.place == inGo && strings.HasPrefix(u.op, "Ref") {
				c.dereference(u, tensor.String)
				todo = append(todo, u)
			}
		}
	}
}

// reference adds the nodes that make a reference of a handle, which is a value of the function, for
// input i of a node, and returns the name of the reference. The reference is the handle of a Stack, which is
// new in each run, with the strings of this one.
func (u *unit) reference(def *tfpb.FunctionDef, n *node, i int, handle string, taken map[string]bool) string {
	unique := func(name string) string {
		for taken[name] {
			name += "_"
		}
		taken[name] = true
		return name
	}
	stack, assign := unique(n.name+"/handle"), unique(n.name+"/reference")
	def.NodeDef = append(def.NodeDef,
		&tfpb.NodeDef{Name: stack, Op: "Stack", Attr: map[string]*tfpb.AttrValue{"elem_type": typeAttr(tensor.Bool)}},
		&tfpb.NodeDef{Name: assign, Op: "Assign", Input: []string{stack + ":handle:0", handle}, Attr: map[string]*tfpb.AttrValue{"T": typeAttr(tensor.String)}})
	return assign + ":output_ref:0"
}

// barrierInBody refuses a Barrier with a name in a function: the function, and with it what the Barrier
// refers to, may be gone when another graph finds it.
func barrierInBody(n *tfpb.NodeDef) error {
	if n.GetOp() != barrier || len(n.GetAttr()["shared_name"].GetS()) == 0 {
		return nil
	}
	return status.Errorf(status.Unimplemented, "node %q: a Barrier with a shared_name (%q) in a function is not supported; make it outside of the function, or without a shared_name",
		n.GetName(), n.GetAttr()["shared_name"].GetS())
}

// separateBatches gives the session queues of its own in the objects of BatchFunction nodes: a batch of two
// sessions would run with the function of one of them.
func (s *state) separateBatches(f *tfpb.FunctionDef) {
	for _, n := range f.GetNodeDef() {
		if n.GetOp() == "BatchFunction" {
			queue := fmt.Sprintf("%s/%s/session %d", n.GetAttr()["batching_queue"].GetS(), n.GetAttr()["f"].GetFunc().GetName(), s.session)
			setAttr(n, "batching_queue", &tfpb.AttrValue{Value: &tfpb.AttrValue_S{S: []byte(queue)}})
		}
	}
}
