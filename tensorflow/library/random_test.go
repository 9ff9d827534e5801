package library

import (
	"testing"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/tensorflow/ops"
)

// TestWhatIsRandom: an op with two seeds has a generator in its kernel, unless the seeds decide all that it
// gives, or its generator is part of a resource.
func TestWhatIsRandom(t *testing.T) {
	set := ops.New()
	queue, err := ops.ParseDef("Shuffled() -> (handle: resource); seed: int = 0; seed2: int = 0; shared_name: string; stateful")
	if err != nil {
		t.Fatal(err)
	}
	for want, defs := range map[bool][]*tfpb.OpDef{
		true:  {set.OpDef("RandomUniform"), set.OpDef("TruncatedNormal"), set.OpDef("RandomUniformInt")},
		false: {set.OpDef("StatelessRandomUniform"), set.OpDef("AddV2"), set.OpDef("VariableV2"), queue, nil},
	} {
		for _, def := range defs {
			if got := isRandom(def); got != want {
				t.Errorf("%s is random: %v", def.GetName(), got)
			}
		}
	}
}

// TestFunctionsWithRandomNodesBelongToTheirGraph: the library of each graph has names of its own then,
// and only then.
func TestFunctionsWithRandomNodesBelongToTheirGraph(t *testing.T) {
	set := ops.New()
	s := &Set{ops: map[string]*tfpb.OpDef{"RandomUniform": set.OpDef("RandomUniform"), "AddV2": set.OpDef("AddV2")}}
	names := func(op string) string {
		functions := []*tfpb.FunctionDef{body("f", &tfpb.NodeDef{Name: "n", Op: op})}
		l, err := newLibrary(functions, s.saltFor(functions))
		if err != nil {
			t.Fatal(err)
		}
		return l.names["f"]
	}
	if a, b := names("RandomUniform"), names("RandomUniform"); a == b {
		t.Errorf("the functions of two graphs are one: %s", a)
	}
	if a, b := names("AddV2"), names("AddV2"); a != b {
		t.Errorf("the functions of two graphs without random nodes are %s and %s", a, b)
	}
}
