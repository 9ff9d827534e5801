package library

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
)

// TestGenerationsOfContainers: all nodes of a function, and of those that it calls, name the present
// generation of their container; the originals are not changed.
func TestGenerationsOfContainers(t *testing.T) {
	text := func(s string) *tfpb.AttrValue { return &tfpb.AttrValue{Value: &tfpb.AttrValue_S{S: []byte(s)}} }
	s := &Set{ops: map[string]*tfpb.OpDef{
		"Var":  {Name: "Var", Attr: []*tfpb.OpDef_AttrDef{{Name: "container", Type: "string", DefaultValue: text("")}}},
		"Vars": {Name: "Vars", Attr: []*tfpb.OpDef_AttrDef{{Name: "containers", Type: "list(string)"}}},
		"Abs":  {Name: "Abs"},
	}}
	list := &tfpb.AttrValue{Value: &tfpb.AttrValue_List{List: &tfpb.AttrValue_ListValue{S: [][]byte{[]byte(""), []byte("box")}}}}
	inner := &tfpb.FunctionDef{Signature: &tfpb.OpDef{Name: "inner"}, NodeDef: []*tfpb.NodeDef{
		{Name: "a", Op: "Var"}, {Name: "b", Op: "Vars", Attr: map[string]*tfpb.AttrValue{"containers": list}},
		{Name: "c", Op: "Var", Attr: map[string]*tfpb.AttrValue{"container": {Value: &tfpb.AttrValue_Placeholder{Placeholder: "c"}}}},
	}}
	before := proto.CloneOf(inner)
	l, err := newLibrary([]*tfpb.FunctionDef{inner}, "")
	if err != nil {
		t.Fatal(err)
	}
	l.containers = s.containers(inner)
	if !slices.Equal(l.containers, []string{"box", "localhost"}) {
		t.Errorf("containers %q", l.containers)
	}
	f, err := newFunction(&tfpb.FunctionDef{Signature: &tfpb.OpDef{}, NodeDef: []*tfpb.NodeDef{
		{Name: "call", Op: l.names["inner"]}, {Name: "v", Op: "Var", Attr: map[string]*tfpb.AttrValue{"container": text("box")}}}}, "")
	if err != nil {
		t.Fatal(err)
	}
	f.library, f.containers = l, l.containers
	g := (&generations{}).next([]string{"other"})
	if same, err := f.at(s, g); err != nil || same != f {
		t.Errorf("a reset of another container made another function: %v", err)
	}
	g = g.next([]string{"box"})
	now, err := f.at(s, g)
	if err != nil {
		t.Fatal(err)
	}
	if now.name == f.name || now.library.all[0].name == l.all[0].name {
		t.Errorf("the functions have the names of the old ones, %s and %s", now.name, now.library.all[0].name)
	}
	var def, callee tfpb.FunctionDef
	if err := proto.Unmarshal(now.def, &def); err != nil {
		t.Fatal(err)
	}
	if err := proto.Unmarshal(now.library.all[0].def, &callee); err != nil {
		t.Fatal(err)
	}
	if got := def.GetNodeDef(); got[0].GetOp() != now.library.all[0].name || string(got[1].GetAttr()["container"].GetS()) != "box.reset-1" {
		t.Errorf("the function has %v", got)
	}
	got := callee.GetNodeDef()
	if list := got[1].GetAttr()["containers"].GetList().GetS(); string(list[1]) != "box.reset-1" || len(list[0]) != 0 || got[0].GetAttr()["container"] != nil {
		t.Errorf("the function that is called has %v", got)
	}
	if !proto.Equal(inner, before) {
		t.Error("the function of the graph was changed")
	}
	if again, err := f.library.at(s, g); err != nil || again != now.library {
		t.Errorf("the next function of the graph gets another library: %v", err)
	}
	if text := now.originals("no v in box.reset-1 or localhost"); strings.Contains(text, "reset") {
		t.Error(text)
	}
}
