package library

import (
	"testing"

	"google.golang.org/protobuf/proto"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
)

// TestFunctionsOfGraphsAreApart: functions with one name and different bodies get different names in
// a context, equal ones the same; all that name them follow.
func TestFunctionsOfGraphsAreApart(t *testing.T) {
	call := func(f string) *tfpb.AttrValue {
		return &tfpb.AttrValue{Value: &tfpb.AttrValue_Func{Func: &tfpb.NameAttrList{Name: f}}}
	}
	functions := func(op string) []*tfpb.FunctionDef {
		return []*tfpb.FunctionDef{
			{Signature: &tfpb.OpDef{Name: "inner"}, NodeDef: []*tfpb.NodeDef{{Name: "n", Op: op}}},
			{Signature: &tfpb.OpDef{Name: "outer"}, NodeDef: []*tfpb.NodeDef{
				{Name: "a", Op: "inner"}, {Name: "b", Op: "PartitionedCall", Attr: map[string]*tfpb.AttrValue{"f": call("inner"), "g": call("other")}}}},
		}
	}
	abs := functions("Abs")
	one, err := newLibrary(abs, "")
	if err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(abs[1], functions("Abs")[1]) {
		t.Error("the functions of the graph were changed")
	}
	same, err := newLibrary(functions("Abs"), "")
	if err != nil {
		t.Fatal(err)
	}
	other, err := newLibrary(functions("Neg"), "")
	if err != nil {
		t.Fatal(err)
	}
	if one.names["inner"] != same.names["inner"] || one.names["inner"] == other.names["inner"] {
		t.Errorf("inner is %q, %q and %q", one.names["inner"], same.names["inner"], other.names["inner"])
	}
	var outer tfpb.FunctionDef
	if err := proto.Unmarshal(one.all[1].def, &outer); err != nil {
		t.Fatal(err)
	}
	inner := one.names["inner"]
	if got := outer.GetNodeDef(); got[0].GetOp() != inner || got[1].GetAttr()["f"].GetFunc().GetName() != inner || got[1].GetAttr()["g"].GetFunc().GetName() != "other" {
		t.Errorf("outer calls %v", got)
	}
}
