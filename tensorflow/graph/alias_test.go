package graph

import (
	"testing"

	"github.com/tryst-rdma/tryst/tensor"
)

// TestReadValueIsTheMemoryOfTheVariable: a node that runs after an update gets the new value by way of nodes
// that have read the variable before it, and have handed the value on.
func TestReadValueIsTheMemoryOfTheVariable(t *testing.T) {
	s := newFakeSet()
	const before = `
		v = VariableV2() dtype=int32
		seven = Const() dtype=int32 value=#7
		nine = Const() dtype=int32 value=#9
		zero = Const() dtype=int32 value=#0
		`
	run := func(lines string) map[string]Value {
		def := parseGraph(t, before+lines)
		def.Node[0].Attr["shape"] = shapeAttr()
		g, err := Import(def, ImportOptions{Set: s})
		if err != nil {
			t.Fatal(err)
		}
		out, err := runGraphs(t, s, g)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	run("a = Assign(v, seven) T=int32")
	out := run(`
		r = Identity(v) T=int32
		old = AddV2(r, zero) T=int32
		again = Identity(r) T=int32
		yes = Less(zero, nine) T=int32
		branch = Switch(again, yes) T=int32
		taken = Identity(branch:1) T=int32
		other = Identity(branch) T=int32
		merged = Merge(other, taken) T=int32 N=2
		enter = Enter(merged) T=int32 frame_name="loop"
		exit = Exit(enter) T=int32
		update = Assign(v, nine, ^old, ^exit) T=int32
		x = AddV2(r, zero, ^update) T=int32
		y = AddV2(exit, zero, ^update) T=int32
		z = Identity(again, ^update) T=int32` +
		fetch("old_value", "old") + fetch("read", "x") + fetch("handed_on", "y") + fetch("sent", "z"))
	for name, want := range map[string]int32{"old_value": 7, "read": 9, "handed_on": 9, "sent": 9} {
		if got := scalar(t, out[name]); got != want {
			t.Errorf("%s: got %d, want %d", name, got, want)
		}
	}
}

// TestLookAtWhatAReadNodeGives: an observer gets the tensor that a variable has, and none while it has none.
func TestLookAtWhatAReadNodeGives(t *testing.T) {
	v := &Variable{DType: tensor.Int32}
	(Value{Var: v}).Look(func(x *tensor.Tensor) {
		if x != nil {
			t.Errorf("a variable without a value has %v", x)
		}
	})
	seven := ints(7)
	if err := v.Update(func(*tensor.Tensor) (*tensor.Tensor, error) { return seven, nil }); err != nil {
		t.Fatal(err)
	}
	for _, value := range []Value{{Var: v}, {Tensor: seven}} {
		value.Look(func(x *tensor.Tensor) {
			if x != seven {
				t.Errorf("got %v", x)
			}
		})
	}
	if !seven.Buffer().Unique() {
		t.Error("the reference was not given back")
	}
}
