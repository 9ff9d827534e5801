//go:build interop

package library

import (
	"strconv"
	"testing"

	"github.com/tryst-rdma/tryst/tensor"
)

// TestOps: the definitions are TensorFlow's, with defaults, and include the internal ones.
func TestOps(t *testing.T) {
	s := tensorFlow(t)
	t.Logf("TensorFlow %s has %d ops", s.Version(), len(s.Ops()))
	if len(s.Ops()) < 1000 {
		t.Errorf("%d ops", len(s.Ops()))
	}
	for _, op := range []string{"_Send", "_Recv", "ApplyAdam", "VariableV2", "FIFOQueueV2", "SaveV2"} {
		if s.OpDef(op) == nil {
			t.Errorf("no op %s", op)
		}
	}
	if s.OpDef("NoSuchOp") != nil {
		t.Error("an op that nobody has")
	}
}

// TestOneFunction: nodes between a receive and a send run as one function.
func TestOneFunction(t *testing.T) {
	s, st := session(t)
	p := newBuilder(t, s).
		recv("x", tensor.Float32).floats("two", 2).
		add("double", "Mul", "x two", "T", tensor.Float32).
		add("sum", "AddV2", "double x", "T", tensor.Float32).
		send("out", "sum").must(st)
	defer p.close()
	if n := len(p.g.Nodes); n != 3 {
		t.Errorf("%d nodes: %v", n, names(p))
	}
	x := vector(t, 1, 2, 3)
	defer x.Release()
	out, err := p.run(t.Context(), map[string]*tensor.Tensor{"x": x})
	if err != nil {
		t.Fatal(err)
	}
	want(t, "out", out["out"], 3, 6, 9)
}

func names(p *program) (all []string) {
	for _, n := range p.g.Nodes {
		all = append(all, n.Op+" "+n.Name)
	}
	return all
}

// adam adds a variable with ApplyAdam for a gradient that is received, as a parameter server has it.
func adam(b *builder) *builder {
	for _, v := range []string{"w", "m", "v"} {
		b.variable(v, 2)
	}
	b.variable("beta1_power").variable("beta2_power")
	b.floats("lr", 0.1).floats("beta1", 0.9).floats("beta2", 0.999).floats("epsilon", 1e-8)
	b.recv("gradient", tensor.Float32)
	b.add("adam", "ApplyAdam", "w m v beta1_power beta2_power lr beta1 beta2 epsilon gradient", "T", tensor.Float32)
	for _, beta := range []string{"beta1", "beta2"} {
		b.add(beta+"/mul", "Mul", beta+"_power "+beta+" ^adam", "T", tensor.Float32)
		b.add(beta+"/assign", "Assign", beta+"_power "+beta+"/mul", "T", tensor.Float32)
	}
	return b.add("train", "NoOp", "^adam ^beta1/assign ^beta2/assign")
}

func initialise(b *builder) *builder {
	b.floats("ones", 1, 1).floats("zeros", 0, 0).floats("b1", 0.9).floats("b2", 0.999)
	for v, from := range map[string]string{"w": "ones", "m": "zeros", "v": "zeros"} {
		b.variable(v, 2).add(v+"/init", "Assign", v+" "+from, "T", tensor.Float32)
	}
	for v, from := range map[string]string{"beta1_power": "b1", "beta2_power": "b2"} {
		b.variable(v).add(v+"/init", "Assign", v+" "+from, "T", tensor.Float32)
	}
	return b
}

// TestReferenceVariables: variables, their initialisers and ApplyAdam are in different graphs and
// different subgraphs, and are the same variables.
func TestReferenceVariables(t *testing.T) {
	s, st := session(t)
	start := initialise(newBuilder(t, s)).must(st)
	defer start.close()
	train := adam(newBuilder(t, s)).must(st)
	defer train.close()
	read := newBuilder(t, s).variable("w", 2).add("w/read", "Identity", "w", "T", tensor.Float32).send("out", "w/read").send("direct", "w").must(st)
	defer read.close()
	if _, err := start.run(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	g := vector(t, 0.5, -0.25)
	defer g.Release()
	for range 3 {
		if _, err := train.run(t.Context(), map[string]*tensor.Tensor{"gradient": g}); err != nil {
			t.Fatal(err)
		}
	}
	out, err := read.run(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	// With equal gradients each step of Adam goes by the rate.
	want(t, "w", out["out"], 0.7, 1.3)
	want(t, "w, sent without a read node", out["direct"], 0.7, 1.3)
}

// BenchmarkFunction runs a function of n nodes in a chain.
func BenchmarkFunction(b *testing.B) {
	for _, n := range []int{1, 200} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			s, st := session(b)
			g := newBuilder(b, s).floats("one", 1).recv("x", tensor.Float32)
			last := "x"
			for i := range n {
				name := "add" + strconv.Itoa(i)
				g.add(name, "AddV2", last+" one", "T", tensor.Float32)
				last = name
			}
			p := g.send("out", last).must(st)
			defer p.close()
			x := vector(b, 1, 2, 3)
			for b.Loop() {
				out, err := p.run(b.Context(), map[string]*tensor.Tensor{"x": x})
				if err != nil {
					b.Fatal(err)
				}
				out["out"].Release()
			}
		})
	}
}
