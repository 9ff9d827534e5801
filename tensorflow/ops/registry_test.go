package ops

import (
	"strings"
	"testing"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

func TestANotationGivesTheDefinition(t *testing.T) {
	def, err := ParseDef(`Op(a: T, b: N*Ref(T), c: L, d: int32) -> (z: string); T: {float, int64} = int64; L: list(type) >= 1; ` +
		`N: int >= 2; s: string = "a;b"; i: list(int) = [1, -2]; f: float = 0.5; h: shape = [2, -1]; m: {"X", "Y"} = "X"; stateful`)
	if err != nil {
		t.Fatal(err)
	}
	in := def.InputArg
	if in[0].TypeAttr != "T" || in[1].NumberAttr != "N" || !in[1].IsRef || in[2].TypeListAttr != "L" ||
		in[3].Type != tfpb.DataType_DT_INT32 || def.OutputArg[0].Type != tfpb.DataType_DT_STRING || !def.IsStateful {
		t.Errorf("got %v", def)
	}
	attrs := map[string]*tfpb.OpDef_AttrDef{}
	for _, a := range def.Attr {
		attrs[a.Name] = a
	}
	if a := attrs["T"]; a.Type != "type" || len(a.AllowedValues.GetList().GetType()) != 2 || a.DefaultValue.GetType() != tfpb.DataType_DT_INT64 {
		t.Errorf("T: %v", a)
	}
	if a := attrs["N"]; !a.HasMinimum || a.Minimum != 2 || a.DefaultValue != nil {
		t.Errorf("N: %v", a)
	}
	if string(attrs["s"].DefaultValue.GetS()) != "a;b" || attrs["i"].DefaultValue.GetList().GetI()[1] != -2 ||
		attrs["f"].DefaultValue.GetF() != 0.5 || attrs["h"].DefaultValue.GetShape().GetDim()[1].GetSize() != -1 ||
		attrs["m"].Type != "string" {
		t.Errorf("got %v", def.Attr)
	}
}

func TestAWrongNotationIsRefused(t *testing.T) {
	for _, notation := range []string{
		"", "Op", "Op(a)", "Op(a: T)", "Op(a: nothing)", "Op() -> a: float", "Op(a: T); T: kind", "Op(); i: int = x",
		"Op(); i: int >= y", "Op(); b: bool = perhaps", `Op(); s: string = plain`, "Op(); l: list(int) = 1", "Op(); rubbish",
		"Op(); T: type = nothing", "Op(); f: func = x",
	} {
		if _, err := ParseDef(notation); status.CodeOf(err) != status.InvalidArgument {
			t.Errorf("%q: got %v", notation, err)
		}
	}
}

func TestAnOpIsRegisteredOnce(t *testing.T) {
	set := New()
	none := func(*graph.Node, *State) (graph.Kernel, error) { return nil, nil }
	if err := set.Register("NoOp()", none); status.CodeOf(err) != status.AlreadyExists {
		t.Errorf("got %v", err)
	}
	if err := set.Register("Mine()", none); err != nil || set.OpDef("Mine") == nil || New().OpDef("Mine") != nil {
		t.Errorf("got %v; registries share their ops, or do not keep them", err)
	}
}

func TestAFailedAssertionShowsItsData(t *testing.T) {
	b := newBench(t)
	b.run("Assert", nil, scalar(true), text(nil, "x"))
	err := b.fails("Assert", nil, scalar(false), text(nil, "too large:"), vec[int32](1, 2, 3, 4))
	if !strings.Contains(err.Error(), "assertion failed: [too large:] [1 2 3...]") {
		t.Error(err)
	}
}

func TestAFusedProductIsTheProductWithBiasAndActivation(t *testing.T) {
	b := newBench(t)
	x, w, bias := in([]int64{2, 2}, float32(1), 2, -3, 4), in([]int64{2, 2}, float32(0.5), -1, 2, 1), vec[float32](-1, 0.25)
	product := b.run("MatMul", nil, x, w)[0]
	want := show(b.run("Relu", nil, b.run("BiasAdd", nil, product, bias)[0])[0])
	b.want(b.run("_FusedMatMul", attrs{"fused_ops": []string{"BiasAdd", "Relu"}, "num_args": 1}, x, w, bias)[0], want)
	err := b.fails("_FusedMatMul", attrs{"fused_ops": []string{"FusedBatchNorm"}, "num_args": 1}, x, w, bias)
	if status.CodeOf(err) != status.Unimplemented || !strings.Contains(err.Error(), "FusedBatchNorm") {
		t.Error(err)
	}
}

func TestAConstantThatRepeatsAValueTakesMemoryOfTheStep(t *testing.T) {
	b := newBench(t)
	shape, err := tensor.NewShape(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	n := b.node("c", "Const", attrs{"dtype": tensor.Float32})
	n.Def.Attr["value"] = &tfpb.AttrValue{Value: &tfpb.AttrValue_Tensor{Tensor: &tfpb.TensorProto{
		Dtype: tfpb.DataType_DT_FLOAT, TensorShape: attrValue(t, shape).GetShape(), FloatVal: []float32{3},
	}}}
	pool := tensor.NewPool(tensor.PoolOptions{Limit: 1 << 20})
	b.step.Allocator = pool
	k, err := b.state.NewKernel(n)
	if err != nil || pool.Stats().InUse != 0 {
		t.Fatal(err)
	}
	if _, err := b.compute(k, n); status.CodeOf(err) != status.ResourceExhausted {
		t.Errorf("got %v, want that the limit of the step is exceeded", err)
	}
}
