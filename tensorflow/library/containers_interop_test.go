//go:build interop

package library

import (
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// inContainer has graphs that write and read the variables of a container: a reference variable and
// a resource variable, both with the name v.
type inContainer struct {
	t                *testing.T
	name             string
	write, ref, read *program
}

func newInContainer(t *testing.T, s *Set, st graph.State, container string) *inContainer {
	t.Helper()
	b := func() *builder {
		return newBuilder(t, s).
			add("v", "VariableV2", "", "shape", []int64{2}, "dtype", tensor.Float32, "container", container, "shared_name", "v").
			add("h", "VarHandleOp", "", "shape", []int64{2}, "dtype", tensor.Float32, "container", container, "shared_name", "v")
	}
	c := &inContainer{t: t, name: orDefault([]string{container})[0]}
	c.write = b().recv("x", tensor.Float32).add("assign", "Assign", "v x", "T", tensor.Float32).
		add("assign_h", "AssignVariableOp", "h x", "dtype", tensor.Float32).must(st)
	c.ref = b().send("out", "v").must(st)
	c.read = b().add("read", "ReadVariableOp", "h", "dtype", tensor.Float32).send("out", "read").must(st)
	t.Cleanup(func() { c.write.close(); c.ref.close(); c.read.close() })
	return c
}

func (c *inContainer) set(values ...float32) {
	c.t.Helper()
	if _, err := c.write.run(c.t.Context(), map[string]*tensor.Tensor{"x": vector(c.t, values...)}); err != nil {
		c.t.Fatal(err)
	}
}

// want wants values in both variables, or no variables when there are no values.
func (c *inContainer) want(when string, values ...float32) {
	c.t.Helper()
	for _, p := range []*program{c.ref, c.read} {
		out, err := p.run(c.t.Context(), nil)
		switch {
		case values == nil && (status.CodeOf(err) != status.FailedPrecondition || strings.Contains(strings.ReplaceAll(err.Error(), c.name, ""), "reset-")):
			c.t.Errorf("%s: %v, want FailedPrecondition with the client's name of the container", when, err)
		case values != nil && err != nil:
			c.t.Errorf("%s: %v", when, err)
		case values != nil:
			want(c.t, when, out["out"], values...)
		}
	}
}

// TestResetDropsTheNamedContainers: a reset drops the variables of the containers that it names, and of
// the default container when it names none. Graphs that are registered go on.
func TestResetDropsTheNamedContainers(t *testing.T) {
	s, st := session(t)
	usual, box, like := newInContainer(t, s, st, ""), newInContainer(t, s, st, "box"), newInContainer(t, s, st, "box.reset-1")
	usual.set(1, 2)
	box.set(3, 4)
	like.set(5, 6)
	st.Reset([]string{"box"})
	usual.want("the default container after a reset of box", 1, 2)
	box.want("box after its reset")
	like.want("a container that is named like the next generation of box", 5, 6)
	box.set(7, 8)
	st.Reset(nil)
	usual.want("the default container after a reset that names none")
	box.want("box after a reset that names none", 7, 8)
	newInContainer(t, s, st, "box").want("box in graphs that are registered later", 7, 8)
	usual.set(9, 9)
	st.Reset([]string{"nobody"})
	usual.want("the default container after a reset of another", 9, 9)
	st.Reset([]string{"localhost"})
	usual.want("the default container after a reset that names it")
	st.Reset([]string{"", "box", "box.reset-1"})
	box.want("box after a reset of all")
	like.want("the third one after a reset of all")
}

// TestResetOfAllContainersFreesThem: when a reset names all containers, nothing holds their values.
func TestResetOfAllContainersFreesThem(t *testing.T) {
	s, st := session(t)
	newInContainer(t, s, st, "").set(1, 2)
	newInContainer(t, s, st, "box").set(3, 4)
	before := as[*state](t, st).context
	st.Reset([]string{"box"})
	if as[*state](t, st).context != before {
		t.Error("the reset of one container dropped the context of all")
	}
	st.Reset([]string{"localhost", "box"})
	if as[*state](t, st).context == before {
		t.Error("the context with the values of all containers is still there")
	}
}

// TestResetWhileFunctionsWait: a dequeue that waits in a container when it is reset goes on to wait in
// the old one, until it is cancelled; and its function is removed then.
func TestResetWhileFunctionsWait(t *testing.T) {
	s, st := session(t)
	newInContainer(t, s, st, "").set(1, 2)
	b := newBuilder(t, s).add("q", "FIFOQueue", "", "component_types", []tensor.DType{tensor.Float32}, "container", "box", "shared_name", "q")
	take := b.add("take", "QueueDequeue", "q", "component_types", []tensor.DType{tensor.Float32}).send("out", "take").must(st)
	defer take.close()
	b = newBuilder(t, s).add("q", "FIFOQueue", "", "component_types", []tensor.DType{tensor.Float32}, "container", "box", "shared_name", "q")
	put := b.recv("x", tensor.Float32).add("put", "QueueEnqueue", "q x", "Tcomponents", []tensor.DType{tensor.Float32}).must(st)
	defer put.close()

	var k *kernel
	for _, one := range take.kernels {
		if x, ok := one.(*kernel); ok && x.f.waits {
			k = x
		}
	}
	old, err := k.hold() // as a run under way does
	if err != nil {
		t.Fatal(err)
	}
	st.Reset([]string{"box"})
	x := vector(t, 4, 5)
	if _, err := put.run(t.Context(), map[string]*tensor.Tensor{"x": x}); err != nil {
		t.Fatal(err)
	}
	out, err := take.run(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	want(t, "out", out["out"], 4, 5)
	if n := old.x.users(old.f.name); n != 1 {
		t.Errorf("the function of a run under way has %d users", n)
	}
	k.put(old)
	if n := as[*state](t, st).context.users(old.f.name); n != 0 {
		t.Errorf("the function of the old generation has %d users after its last run", n)
	}
}

// users is how many kernels use a function.
func (c *countedContext) users(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.uses[name]
}
