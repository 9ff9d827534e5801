package library

import (
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"weak"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// What requests of strangers must not leave behind in a state, which may live as long as the process.

func recordedState(t testing.TB) (*Set, *state) {
	t.Helper()
	s := recordedSet(t)
	st, err := s.NewState()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(st.Close)
	return s, as[*state](t, st)
}

// TestRefusedGraphLeavesNothing: a graph that was rewritten and then refused, so that it never got its
// kernels, is forgotten.
func TestRefusedGraphLeavesNothing(t *testing.T) {
	s, st := recordedState(t)
	rewrite := func() weak.Pointer[graph.Node] {
		g, err := graph.Import(&tfpb.GraphDef{Node: nodes("x = _Recv()\nneg = Neg(x)\nout = _Send(neg)")}, graph.ImportOptions{Set: s})
		if err != nil {
			t.Fatal(err)
		}
		if g, err = st.Rewrite(g); err != nil {
			t.Fatal(err)
		}
		for _, n := range g.Nodes {
			if n.Op == functionOp {
				return weak.Make(n)
			}
		}
		t.Fatal("there is no subgraph")
		return weak.Pointer[graph.Node]{}
	}
	n := rewrite()
	runtime.GC()
	runtime.GC()
	if n.Value() != nil {
		t.Error("the subgraph is still there")
	}
}

// TestResourcesStayOnTheirDevice: with TensorFlow's kernels too an edge of resources to another device is
// refused when the graph is registered.
func TestResourcesStayOnTheirDevice(t *testing.T) {
	s, st := recordedState(t)
	def := &tfpb.GraphDef{Node: nodes("v = VarHandleOp()\nsend = _Send(v)")}
	def.Node[0].Attr = map[string]*tfpb.AttrValue{"dtype": typeAttr(tensor.Float32), "shape": {Value: &tfpb.AttrValue_Shape{Shape: &tfpb.TensorShapeProto{}}}}
	send := def.GetNode()[1].GetAttr()
	send["T"], send["send_device"], send["recv_device"] = typeAttr(tensor.Resource), text(def.GetNode()[0].GetDevice()), text("/job:w/replica:0/task:1/device:CPU:0")
	g, err := graph.Import(def, graph.ImportOptions{Set: s})
	if err != nil {
		t.Fatal(err)
	}
	if g, err = st.Rewrite(g); err != nil {
		t.Fatal(err)
	}
	_, err = graph.NewExecutor(g, st)
	if status.CodeOf(err) != status.Unimplemented || !strings.Contains(err.Error(), "cannot leave its device") || !strings.Contains(err.Error(), "{{node send}}") {
		t.Errorf("error %v", err)
	}
}

// TestUnknownOpsLeaveNothing: the names of ops that TensorFlow does not have are not kept.
func TestUnknownOpsLeaveNothing(t *testing.T) {
	s, _ := recordedState(t)
	f := body("f")
	for i := range 100 {
		f.NodeDef = append(f.NodeDef, &tfpb.NodeDef{Name: "n", Op: "Strange" + strconv.Itoa(i)})
	}
	for i := range f.GetNodeDef() {
		one := body("f", f.GetNodeDef()[i])
		l, err := newLibrary([]*tfpb.FunctionDef{one}, "")
		if err != nil {
			t.Fatal(err)
		}
		c := &cutter{set: s, library: l, bodies: map[string]*tfpb.FunctionDef{"f": one}}
		if err := c.bodiesSupported(&node{name: "n", op: "Case", def: calling("Case", "f")}); status.CodeOf(err) != status.Unimplemented {
			t.Fatal(err)
		}
	}
	if n := len(s.kernels); n != 0 {
		t.Errorf("%d names of ops are kept", n)
	}
}

// TestUnknownContainersLeaveNothing: a reset of containers that no function has named is not remembered.
func TestUnknownContainersLeaveNothing(t *testing.T) {
	_, st := recordedState(t)
	st.used["box"] = true
	for i := range 100 {
		st.Reset([]string{"strange" + strconv.Itoa(i)})
	}
	if n := len(st.generations.of); n != 0 {
		t.Errorf("%d names of containers are kept", n)
	}
	st.Reset([]string{"localhost", "strange", "box"})
	st.used["other"] = true
	if st.Reset([]string{"box", "strange"}); st.generations.of["box"] != 1 || len(st.generations.of) != 1 {
		t.Errorf("generations %v", st.generations.of)
	}
}

// TestSetsOfAGraphAreBounded: nodes that wait for many receives, each for others, have sets of them that together grow
// faster than the graph. The test begins close to the bound, which takes half a gigabyte to reach.
func TestSetsOfAGraphAreBounded(t *testing.T) {
	s := recordedSet(t)
	var lines strings.Builder
	for i := range 20 { // each addition waits for one receive more
		fmt.Fprintf(&lines, "r%d = _Recv()\na%d = AddV2(r%d %s)\n", i, i, i, map[bool]string{true: "r0", false: "a" + strconv.Itoa(i-1)}[i == 0])
	}
	lines.WriteString("send = _Send(a19)\n")
	g, err := graph.Import(&tfpb.GraphDef{Node: nodes(lines.String())}, graph.ImportOptions{Set: s})
	if err != nil {
		t.Fatal(err)
	}
	const takes = 20*21/2 + 19 // the sets of the additions, and those of the other receives
	for _, beyond := range []int{0, 1} {
		c, err := newCutter(s, g)
		if err != nil {
			t.Fatal(err)
		}
		c.sets.size = maxSymbols - takes + beyond
		err = c.divide()
		if refused := status.CodeOf(err) == status.ResourceExhausted && strings.Contains(err.Error(), "too many receives"); refused != (beyond > 0) || !refused && err != nil {
			t.Errorf("%d symbols beyond the bound: %v", beyond, err)
		}
	}
}
