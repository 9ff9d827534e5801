package library

import (
	"testing"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensorflow/ops"
)

// TestWhatIsPrivate: the object of a node without a shared_name belongs to its kernel, unless the kernel
// takes the node's name for it, or the name as it is.
func TestWhatIsPrivate(t *testing.T) {
	const named = `; container: string = ""; shared_name: string = ""`
	text := func(s string) *tfpb.AttrValue { return &tfpb.AttrValue{Value: &tfpb.AttrValue_S{S: []byte(s)}} }
	yes := &tfpb.AttrValue{Value: &tfpb.AttrValue_B{B: true}}
	for _, c := range []struct {
		def  string
		attr map[string]*tfpb.AttrValue
		want bool
	}{
		{"FIFOQueueV2() -> (handle: resource)" + named + "; stateful", nil, true},
		{"FIFOQueue() -> (handle: Ref(string))" + named + "; stateful", nil, true},
		{"FIFOQueueV2() -> (handle: resource)" + named + "; stateful", map[string]*tfpb.AttrValue{"shared_name": text("q")}, false},
		{"HashTableV2() -> (table_handle: resource)" + named + "; use_node_name_sharing: bool = false; stateful", nil, true},
		{"HashTableV2() -> (table_handle: resource)" + named + "; use_node_name_sharing: bool = false; stateful", map[string]*tfpb.AttrValue{"use_node_name_sharing": yes}, false},
		{"VarHandleOp() -> (resource: resource)" + named + "; stateful", nil, false},
		{"MutexV2() -> (resource: resource)" + named + "; stateful", nil, false},
		{"VariableV2() -> (ref: Ref(dtype)); dtype: type" + named + "; stateful", nil, false},
		{"StageSize() -> (size: int32)" + named + "; stateful", nil, false},
		{"AnonymousIterator() -> (handle: resource); stateful", nil, false},
		{"NoOp()", nil, false},
	} {
		def, err := ops.ParseDef(c.def)
		if err != nil {
			t.Fatal(err)
		}
		if got := isPrivate(def, &tfpb.NodeDef{Op: def.GetName(), Attr: c.attr}); got != c.want {
			t.Errorf("%s with %v is private: %v", c.def, c.attr, got)
		}
	}
}

// TestNamedBarrierInAFunctionIsRefused: what it refers to ends with the function.
func TestNamedBarrierInAFunctionIsRefused(t *testing.T) {
	n := &tfpb.NodeDef{Name: "b", Op: barrier, Attr: map[string]*tfpb.AttrValue{"shared_name": {Value: &tfpb.AttrValue_S{S: []byte("x")}}}}
	if err := barrierInBody(n); status.CodeOf(err) != status.Unimplemented {
		t.Errorf("with a name: %v", err)
	}
	n.Attr = nil
	if err := barrierInBody(n); err != nil {
		t.Errorf("without a name: %v", err)
	}
}
