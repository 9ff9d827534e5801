package library

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// nodes makes nodes of lines "name = Op(input input:1 ^control)". Every attribute T and dtype is float,
// that of a node whose name begins with bool or
// int has that type; variables are scalars.
func nodes(lines string) (list []*tfpb.NodeDef) {
	for line := range strings.Lines(lines) {
		name, rest, ok := strings.Cut(strings.TrimSpace(line), " = ")
		if !ok {
			continue
		}
		op, in, _ := strings.Cut(strings.TrimSuffix(rest, ")"), "(")
		t := typeAttr(tensor.Float32)
		if strings.HasPrefix(name, "bool") {
			t = typeAttr(tensor.Bool)
		}
		if strings.HasPrefix(name, "int") {
			t = typeAttr(tensor.Int32)
		}
		n := &tfpb.NodeDef{Name: name, Op: op, Device: hereDevice, Input: strings.Fields(in), Attr: map[string]*tfpb.AttrValue{}}
		switch op {
		case "VariableV2":
			n.Attr["dtype"], n.Attr["shape"] = t, &tfpb.AttrValue{Value: &tfpb.AttrValue_Shape{Shape: &tfpb.TensorShapeProto{}}}
		case "_Recv":
			n.Attr = receiving(t.GetType())
		case "_Send":
			n.Attr = receiving(0)
			delete(n.Attr, "tensor_type")
			n.Attr["T"] = t
		case "LogicalNot", "NoOp", "ControlTrigger", "LoopCond":
		default:
			n.Attr["T"] = t
		}
		switch op {
		case "RefMerge", "Merge", "RefSelect":
			n.Attr["N"] = &tfpb.AttrValue{Value: &tfpb.AttrValue_I{I: 2}}
		case "RefEnter", "Enter":
			n.Attr["frame_name"] = text("loop")
		}
		list = append(list, n)
	}
	return list
}

// cutLines cuts a graph and checks it. It returns the nodes of each subgraph, separated by blanks, in
// alphabetical order of the subgraphs.
func cutLines(t testing.TB, lines string) (subgraphs []string, err error) {
	t.Helper()
	s := recordedSet(t)
	g, err := graph.Import(&tfpb.GraphDef{Node: nodes(lines)}, graph.ImportOptions{Set: s})
	if err != nil {
		t.Fatal(err)
	}
	wrong, err := cutAndCheck(s, g)
	for _, w := range wrong {
		t.Error(w)
	}
	if err != nil {
		return nil, err
	}
	c, err := cut(s, g)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range c.subgraphs {
		var names []string
		for _, n := range p.nodes {
			names = append(names, n.name)
		}
		subgraphs = append(subgraphs, strings.Join(names, " "))
	}
	slices.Sort(subgraphs)
	return subgraphs, nil
}

const (
	waitingVariable = `
		x = _Recv()
		y = _Recv()
		v = VariableV2(^x ^y)
		read = Neg(v)
		out = _Send(read)
		after = Neg(x ^v)
		out2 = _Send(after)
		out3 = _Send(v)
		w = VariableV2(^v)
		last = Abs(w)
		out4 = _Send(last)
		bool_p = _Recv()
		s = RefSwitch(v bool_p)
		taken = Neg(s:1)
		out5 = _Send(taken)`
	referenceLoop = `
		v = VariableV2()
		enter = RefEnter(v)
		merge = RefMerge(enter next)
		bool_p = _Recv()
		bool_e = Enter(bool_p)
		bool_c = LoopCond(bool_e)
		s = RefSwitch(merge bool_c)
		exit = RefExit(s:0)
		neg = Neg(s:1)
		assign = Assign(s:1 neg)
		next = RefNextIteration(assign)
		out = Neg(exit)
		send = _Send(out)`
)

// TestVariableThatWaits: a copy of the node that names a variable is in each subgraph that uses it. The subgraph
// waits for what the variable waited for, in data and in control edges, and is dead with it.
func TestVariableThatWaits(t *testing.T) {
	subgraphs, err := cutLines(t, waitingVariable)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(subgraphs, "taken") {
		t.Errorf("subgraphs %q", subgraphs)
	}
}

// TestLoopOverAReference: the variable behind a reference is found through a loop, and in no more time
// than the graph has edges, whatever the number of ways that lead to it.
func TestLoopOverAReference(t *testing.T) {
	if _, err := cutLines(t, referenceLoop); err != nil {
		t.Error(err)
	}
	lines := strings.Builder{}
	lines.WriteString("v = VariableV2()\nm0 = RefEnter(v)\n")
	for i := range 200 {
		fmt.Fprintf(&lines, "m%d = RefMerge(m%d m%d)\n", i+1, i, i)
	}
	lines.WriteString("exit = RefExit(m200)\nout = Neg(exit)\nsend = _Send(out)\n")
	if _, err := cutLines(t, lines.String()); err != nil {
		t.Error(err)
	}
}

// TestReferenceToOneOfTwoVariables: a subgraph cannot know which of two variables it would get, so the graph is
// refused with the node; a Merge and an op that selects are alike.
func TestReferenceToOneOfTwoVariables(t *testing.T) {
	for _, lines := range []string{`
		v = VariableV2()
		w = VariableV2()
		m = RefMerge(v w)
		out = Neg(m)
		send = _Send(out)`, `
		v = VariableV2()
		w = VariableV2()
		int_i = _Recv()
		s = RefSelect(int_i v w)
		x = _Recv()
		out = Assign(s x)
		send = _Send(out)`,
	} {
		_, err := cutLines(t, lines)
		if status.CodeOf(err) != status.Unimplemented || !strings.Contains(err.Error(), `node "out"`) || !strings.Contains(err.Error(), "its value is one of two variables") {
			t.Errorf("error %v", err)
		}
	}
}

// TestSubgraphReadsForItself: a subgraph has its own copy of the node that reads a variable, also by way of other
// such nodes. So has a Go node that waits for more, such as a Switch. What may be one of two variables is
// taken as it was read.
func TestSubgraphReadsForItself(t *testing.T) {
	subgraphs, err := cutLines(t, `
		v = VariableV2()
		read = Identity(v)
		again = StopGradient(read)
		out1 = _Send(read)
		x = _Recv()
		assign = Assign(v x)
		later = Neg(read ^assign)
		y = _Recv()
		last = Mul(again y ^later)
		copy = Identity(again ^last)
		out2 = _Send(last)
		out3 = _Send(copy)
		out4 = _Send(read ^last)
		bool_p = _Recv()
		s = Switch(again bool_p)
		taken = Neg(s:1)
		out5 = _Send(taken)
		s2 = Switch(again bool_p ^assign)
		enter = Enter(copy)
		exit = Exit(enter)
		out6 = _Send(exit)
		out7 = _Send(s2)`)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"assign later", "last copy out4", "read again", "s", "s2", "taken"}; !slices.Equal(subgraphs, want) {
		t.Errorf("subgraphs %q, want %q", subgraphs, want)
	}
	if _, err := cutLines(t, `
		v = VariableV2()
		w = VariableV2()
		int_i = _Recv()
		s = RefSelect(int_i v w)
		read = Identity(s)
		x = _Recv()
		out = Mul(read x)
		send = _Send(out)`); err != nil {
		t.Error(err)
	}
}

// TestPredicateOfAnotherVariable: the variable that a predicate is read from is not what a RefSwitch refers to.
func TestPredicateOfAnotherVariable(t *testing.T) {
	if _, err := cutLines(t, `
		bool_v = VariableV2()
		bool_w = VariableV2()
		bool_s = RefSwitch(bool_w bool_v)
		bool_t = RefSwitch(bool_v bool_s:1)
		bool_out = LogicalNot(bool_t:1)
		bool_send = _Send(bool_out)`); err != nil {
		t.Error(err)
	}
}

// TestNamesOfAddedNodes: a node that the cut adds gets a name that the graph does not have.
func TestNamesOfAddedNodes(t *testing.T) {
	if _, err := cutLines(t, `
		v = VariableV2()
		x = _Recv()
		assign = Assign(v x)
		bool_p = _Recv()
		s = RefSwitch(assign bool_p)
		assign/token = Neg(x)
		send = _Send(assign/token)
		out = Neg(s:1)
		send2 = _Send(out)`); err != nil {
		t.Error(err)
	}
}
