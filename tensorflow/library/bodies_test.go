package library

import (
	"maps"
	"slices"
	"testing"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
)

func body(name string, nodes ...*tfpb.NodeDef) *tfpb.FunctionDef {
	return &tfpb.FunctionDef{Signature: &tfpb.OpDef{Name: name}, NodeDef: nodes}
}

// calling returns a node that has a function in an attribute.
func calling(op, f string) *tfpb.NodeDef {
	return &tfpb.NodeDef{Name: "n", Op: op, Attr: map[string]*tfpb.AttrValue{
		"branches": {Value: &tfpb.AttrValue_List{List: &tfpb.AttrValue_ListValue{Func: []*tfpb.NameAttrList{{Name: f}}}}}}}
}

// TestWaitsInBodies: a node that calls a function in which a node may wait has a place apart, so that it
// holds up nothing that computes; recursion does not hide it.
func TestWaitsInBodies(t *testing.T) {
	l, err := newLibrary([]*tfpb.FunctionDef{
		body("takes", &tfpb.NodeDef{Name: "n", Op: "QueueDequeueV2"}),
		body("calls", &tfpb.NodeDef{Name: "n", Op: "takes"}, calling("Case", "around")),
		body("around", calling("Case", "calls")),
		body("adds", &tfpb.NodeDef{Name: "n", Op: "AddV2"}),
		body("adds more", calling("Case", "adds")),
	}, "")
	if err != nil {
		t.Fatal(err)
	}
	if got := slices.Sorted(maps.Keys(l.waits)); !slices.Equal(got, []string{"around", "calls", "takes"}) {
		t.Errorf("%q may wait", got)
	}
	for op, want := range map[string]bool{"ResourceAccumulatorTakeGradient": true, "ReduceDataset": true, "DatasetToSingleElement": true, "RangeDataset": false, "AddV2": false} {
		if mayWait(op) != want {
			t.Errorf("mayWait(%q) is %v", op, !want)
		}
	}
	c := &cutter{set: &Set{}, library: l}
	waits, adds := &node{op: "Case", def: calling("Case", "around")}, &node{op: "Case", def: calling("Case", "adds more")}
	c.nodes = []*node{waits, adds}
	c.classify()
	if waits.place != apart || adds.place != inSubgraph {
		t.Errorf("the node that may wait is at place %d, that which adds at %d", waits.place, adds.place)
	}
}

// TestNodesOfBodiesAreChecked: an op without a kernel in a body is refused at the registration, with the
// node that calls it; a type that the caller gives is not.
func TestNodesOfBodiesAreChecked(t *testing.T) {
	typed := []constraint{{attr: "T", types: []tfpb.DataType{tfpb.DataType_DT_FLOAT}}}
	s := &Set{kernels: map[string][]*kernelDef{"Case": {{}}, "AddV2": {{constraints: typed}}, "Nccl": nil}}
	adding := func(a *tfpb.AttrValue) *tfpb.NodeDef {
		return &tfpb.NodeDef{Name: "n", Op: "AddV2", Attr: map[string]*tfpb.AttrValue{"T": a}}
	}
	for _, tt := range []struct {
		name string
		node *tfpb.NodeDef
		want status.Code
	}{
		{"no kernel", &tfpb.NodeDef{Name: "n", Op: "Nccl"}, status.Unimplemented},
		{"no kernel of the type", adding(&tfpb.AttrValue{Value: &tfpb.AttrValue_Type{Type: tfpb.DataType_DT_STRING}}), status.Unimplemented},
		{"a kernel", adding(&tfpb.AttrValue{Value: &tfpb.AttrValue_Type{Type: tfpb.DataType_DT_FLOAT}}), status.OK},
		{"a type of the caller", adding(&tfpb.AttrValue{Value: &tfpb.AttrValue_Placeholder{Placeholder: "T"}}), status.OK},
	} {
		functions := []*tfpb.FunctionDef{body("inner", tt.node), body("outer", calling("Case", "inner"), calling("Case", "outer"))}
		l, err := newLibrary(functions, "")
		if err != nil {
			t.Fatal(err)
		}
		c := &cutter{set: s, library: l, bodies: map[string]*tfpb.FunctionDef{"inner": functions[0], "outer": functions[1]}}
		s.own = noKernels{}
		n := &node{name: "caller", op: "Case", def: calling("Case", "outer")}
		if err := c.bodiesSupported(n); status.CodeOf(err) != tt.want {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}
