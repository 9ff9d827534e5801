//go:build interop

package library

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// ints adds a Const of a vector of int32.
func (b *builder) ints(name string, values ...int32) *builder {
	return b.add(name, "Const", "", "dtype", tensor.Int32, "value", &tfpb.TensorProto{Dtype: tfpb.DataType_DT_INT32, IntVal: values,
		TensorShape: &tfpb.TensorShapeProto{Dim: []*tfpb.TensorShapeProto_Dim{{Size: int64(len(values))}}}})
}

// normal adds a random node of a shape that another node gives, and sends its values as out.
func (b *builder) normal(name, shape string) *builder {
	return b.add(name, "RandomStandardNormal", shape, "T", tensor.Int32, "dtype", tensor.Float32, "seed", 5, "seed2", 7).send("out", name)
}

// once runs a program with the shape [3] as its feed, and returns what it sends as out.
func (p *program) once() []float32 {
	p.t.Helper()
	shape, err := tensor.FromSlice(tensor.Vector(1), []int32{3})
	if err != nil {
		p.t.Fatal(err)
	}
	sent, err := p.run(p.t.Context(), map[string]*tensor.Tensor{"shape": shape})
	if err != nil {
		p.t.Fatal(err)
	}
	defer func() {
		for _, v := range sent {
			v.Release()
		}
	}()
	v, err := tensor.Values[float32](sent["out"])
	if err != nil {
		p.t.Fatal(err)
	}
	return slices.Clone(v)
}

func newSession(t testing.TB, st graph.State) graph.State {
	s := st.NewSession()
	t.Cleanup(s.Close)
	return s
}

// TestRandomNodeGoesOnInAnotherGraph: the graphs of a session share the sequence of a random node, by its
// name, whatever else they compute, and also when the graph that has begun it is gone. Another
// session that shares the context begins anew.
func TestRandomNodeGoesOnInAnotherGraph(t *testing.T) {
	s, st := session(t)
	graphs := []func() *builder{
		func() *builder { return newBuilder(t, s).ints("three", 3).normal("x", "three") },
		func() *builder { return newBuilder(t, s).recv("shape", tensor.Int32).normal("x", "shape") },
		func() *builder {
			return newBuilder(t, s).ints("two", 2).ints("one", 1).add("three", "AddV2", "two one", "T", tensor.Int32).normal("x", "three").
				floats("ten", 10).add("more", "Mul", "x ten", "T", tensor.Float32).send("more", "more")
		},
	}
	alone := graphs[0]().must(newSession(t, st))
	defer alone.close()
	var sequence [][]float32
	for range 8 {
		sequence = append(sequence, alone.once())
	}
	here, there := newSession(t, st), newSession(t, st)
	want := func(what string, p *program, i int) {
		t.Helper()
		if got := p.once(); !slices.Equal(got, sequence[i]) {
			t.Errorf("%s: got %v, want %v", what, got, sequence[i])
		}
	}
	first, elsewhere := graphs[0]().must(here), graphs[0]().must(there)
	want("the first graph", first, 0)
	want("another session", elsewhere, 0)
	for i, g := range graphs {
		p := g().must(here)
		want(fmt.Sprint("graph ", i), p, 2*i+1)
		want(fmt.Sprint("graph ", i, " again"), p, 2*i+2)
		if i == 0 {
			first.close()
		}
		p.close()
	}
	last := graphs[1]().must(here)
	want("when no other graph is there", last, 7)
	last.close()
	want("the other session again", elsewhere, 1)
	elsewhere.close()
	x := as[*state](t, st).context
	there.Close()
	here.Close()
	if n := len(x.uses); n != 1 {
		t.Errorf("the functions %v are used after their sessions, want only that of the node which is left", x.uses)
	}
}

// TestFirstRunsAtOnceShareTheGenerator: the first runs of a random node come at the same time, as the
// iterations of a loop do.
func TestFirstRunsAtOnceShareTheGenerator(t *testing.T) {
	s, st := session(t)
	alone := newBuilder(t, s).ints("three", 3).normal("x", "three").must(newSession(t, st))
	defer alone.close()
	const runs = 4
	want := map[string]bool{}
	for range runs {
		want[fmt.Sprint(alone.once())] = true
	}
	for range 100 {
		here := newSession(t, st)
		begin, got := make(chan struct{}), make(chan string)
		for range runs {
			p := newBuilder(t, s).ints("three", 3).normal("x", "three").must(here)
			defer p.close()
			go func() {
				<-begin
				got <- fmt.Sprint(p.once())
			}()
		}
		close(begin)
		found := map[string]bool{}
		for range runs {
			found[<-got] = true
		}
		if !maps.Equal(found, want) {
			t.Fatalf("got %v, want %v", found, want)
		}
	}
}

// TestRandomNodeIsOneWhateverIsUsedOfIt: graphs that use other outputs of a sampler, and have other
// notes of the master, and that shuffle a reference variable behind other nodes, share the sequence.
func TestRandomNodeIsOneWhateverIsUsedOfIt(t *testing.T) {
	s, st := session(t)
	sampler := func(uses ...int) *builder {
		b := newBuilder(t, s).add("true", "Const", "", "dtype", tensor.Int64, "value", &tfpb.TensorProto{Dtype: tfpb.DataType_DT_INT64, Int64Val: []int64{1},
			TensorShape: &tfpb.TensorShapeProto{Dim: []*tfpb.TensorShapeProto_Dim{{Size: 1}, {Size: 1}}}}).
			add("sample", "LogUniformCandidateSampler", "true", "num_true", 1, "num_sampled", 5, "unique", true, "range_max", 10000, "seed", 5, "seed2", 7, "_note", fmt.Sprint(uses)).
			add("values", "Cast", "sample", "SrcT", tensor.Int64, "DstT", tensor.Float32).send("out", "values")
		b.node("sample").Def.ExperimentalDebugInfo = &tfpb.NodeDef_ExperimentalDebugInfo{OriginalNodeNames: []string{fmt.Sprint(uses)}}
		for _, i := range uses {
			b.send(fmt.Sprint("more", i), fmt.Sprint("sample:", i))
		}
		return b
	}
	shuffle := func(assigns bool) *builder {
		b := newBuilder(t, s).variable("v", 6)
		from := "v"
		if assigns {
			b.floats("c", 1, 2, 3, 4, 5, 6).add("set", "Assign", "v c", "T", tensor.Float32)
			from = "v ^set"
		}
		return b.add("mix", "RandomShuffle", from, "T", tensor.Float32, "seed", 5, "seed2", 7).send("out", "mix")
	}
	for name, graphs := range map[string][]*builder{
		"sampler": {sampler(), sampler(1), sampler(2, 1)},
		"shuffle": {shuffle(true), shuffle(false), shuffle(true)},
	} {
		one := newSession(t, st)
		alone := graphs[0].must(newSession(t, st))
		for i, b := range graphs {
			want := alone.once()
			p := b.must(one)
			if got := p.once(); !slices.Equal(got, want) {
				t.Errorf("%s, graph %d: got %v, want %v", name, i, got, want)
			}
			p.close()
		}
		alone.close()
	}
}

// TestFunctionsOfDroppedGraphsAreBounded: a client that registers and drops graphs with new random nodes
// leaves no more than maxKept functions.
func TestFunctionsOfDroppedGraphsAreBounded(t *testing.T) {
	s, st := session(t)
	one := newSession(t, st)
	x := as[*state](t, st).context
	stays := newBuilder(t, s).ints("three", 3).normal("stays", "three").must(one)
	defer stays.close()
	alone := newBuilder(t, s).ints("three", 3).normal("stays", "three").must(newSession(t, st))
	defer alone.close()
	for range 2 {
		if got, want := stays.once(), alone.once(); !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		for i := range maxKept + 10 {
			newBuilder(t, s).ints("three", 3).normal(fmt.Sprint("x", i), "three").must(one).close()
		}
		if n := len(x.uses); n > maxKept+2 {
			t.Errorf("%d functions, want at most %d and two of graphs that are there", n, maxKept)
		}
	}
}
