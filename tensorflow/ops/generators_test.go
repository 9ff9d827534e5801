package ops

import (
	"fmt"
	"testing"

	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// registered is the kernel of a node in one graph.
type registered struct {
	b *bench
	n *graph.Node
	k graph.Kernel
}

// register makes the kernel of a random node in a graph of a session.
func (b *bench) register(s graph.State, name string, seed int) *registered {
	b.t.Helper()
	r := &registered{b: b, n: b.node(name, "RandomUniform", attrs{"dtype": tensor.Float32, "seed": seed, "seed2": 7}, vec[int32](3))}
	var err error
	if r.k, err = s.NewKernel(r.n); err != nil {
		b.t.Fatal(err)
	}
	return r
}

func (r *registered) run() string {
	r.b.t.Helper()
	outs, err := r.b.compute(r.k, r.n, vec[int32](3))
	if err != nil {
		r.b.t.Fatal(err)
	}
	return show(outs[0])
}

// drop closes the kernel, as the executor does when a graph is dropped.
func (r *registered) drop() {
	r.b.t.Helper()
	c, ok := r.k.(interface{ Close() error })
	if !ok {
		r.b.t.Fatalf("%T has no Close", r.k)
	}
	if err := c.Close(); err != nil {
		r.b.t.Error(err)
	}
}

// sequence returns what a node gives in a row.
func (b *bench) sequence(n int) (values []string) {
	b.t.Helper()
	one := b.register(b.state.NewSession(), "alone", 5)
	for range n {
		values = append(values, one.run())
	}
	return values
}

func (b *bench) wantSequence(what string, got, want string) {
	b.t.Helper()
	if got != want {
		b.t.Errorf("%s: got %s, want %s", what, got, want)
	}
}

// TestRandomNodeGoesOnInAnotherGraph: the graphs of a session share the sequence of a node, by its name
// and also when the graph that has begun it is gone. Another session begins anew.
func TestRandomNodeGoesOnInAnotherGraph(t *testing.T) {
	b := newBench(t)
	want := b.sequence(5)
	here, there := b.state.NewSession(), b.state.NewSession()
	one, two, elsewhere := b.register(here, "x", 5), b.register(here, "x", 5), b.register(there, "x", 5)
	b.wantSequence("the first graph", one.run(), want[0])
	b.wantSequence("the second graph", two.run(), want[1])
	b.wantSequence("another session", elsewhere.run(), want[0])
	b.wantSequence("another node", b.register(here, "y", 5).run(), want[0])
	b.wantSequence("the first graph again", one.run(), want[2])
	one.drop()
	one.drop()
	b.wantSequence("the second graph without the first", two.run(), want[3])
	two.drop()
	b.wantSequence("a third graph, after the first two", b.register(here, "x", 5).run(), want[4])
	if other := b.register(here, "x", 6).run(); other == want[0] {
		t.Error("a node with another seed has the sequence of its name")
	}
	b.wantSequence("another session again", elsewhere.run(), want[1])
}

// TestGeneratorsOfDroppedGraphsAreBounded: a client that registers and drops graphs with new names has
// no more than maxUnused generators here; those of graphs that are there stay.
func TestGeneratorsOfDroppedGraphsAreBounded(t *testing.T) {
	b := newBench(t)
	want := b.sequence(2)
	s := b.state.NewSession()
	stays := b.register(s, "stays", 5)
	stays.run()
	for i := range maxUnused + 100 {
		b.register(s, fmt.Sprint("n", i), 1).drop()
	}
	st, ok := s.(*State)
	if !ok {
		t.Fatalf("the session is a %T", s)
	}
	if n := len(st.generators.of); n != maxUnused+1 {
		t.Errorf("%d generators, want %d and the one in use", n, maxUnused)
	}
	b.wantSequence("the node that stays", b.register(s, "stays", 5).run(), want[1])
}
