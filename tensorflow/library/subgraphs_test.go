//go:build interop

package library

import (
	"context"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// functions returns the nodes of each function of a program, sorted.
func functions(t testing.TB, s *Set, b *builder) (all []string) {
	t.Helper()
	c, err := cut(s, b.g)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range c.subgraphs {
		var ns []string
		for _, n := range p.nodes {
			ns = append(ns, n.name)
		}
		all = append(all, strings.Join(ns, " "))
	}
	slices.Sort(all)
	return all
}

// TestNoSubgraphWaitsForItsOwnOutput: the value that comes back from another worker may depend on what
// was sent, so what is sent is not computed together with what waits for it.
func TestNoSubgraphWaitsForItsOwnOutput(t *testing.T) {
	s, st := session(t)
	b := newBuilder(t, s).floats("one", 1).
		recv("x", tensor.Float32).
		add("early", "AddV2", "x one", "T", tensor.Float32).
		send("to", "early").
		recv("back", tensor.Float32).
		add("late", "AddV2", "early back", "T", tensor.Float32).
		send("out", "late")
	if got := functions(t, s, b); !slices.Equal(got, []string{"early", "late"}) {
		t.Errorf("functions %q", got)
	}
	p := b.must(st)
	defer p.close()
	x, back := vector(t, 1, 2), vector(t, 10, 20)
	defer x.Release()
	defer back.Release()
	out, err := p.run(t.Context(), map[string]*tensor.Tensor{"x": x, "back": back})
	if err != nil {
		t.Fatal(err)
	}
	want(t, "to", out["to"], 2, 3)
	want(t, "out", out["out"], 12, 23)
}

// TestLayersAreOneFunction: each layer waits for a weight of its own, and nothing but the next layer
// needs what it computes.
func TestLayersAreOneFunction(t *testing.T) {
	s, _ := session(t)
	b := newBuilder(t, s).recv("x", tensor.Float32).recv("w1", tensor.Float32).recv("w2", tensor.Float32).recv("w3", tensor.Float32).
		add("l1", "Mul", "x w1", "T", tensor.Float32).
		add("l2", "Mul", "l1 w2", "T", tensor.Float32).
		add("l3", "Mul", "l2 w3", "T", tensor.Float32).
		add("g1", "Mul", "l3 l1", "T", tensor.Float32).
		send("out", "g1")
	if got := functions(t, s, b); !slices.Equal(got, []string{"l1 l2 l3 g1"}) {
		t.Errorf("functions %q", got)
	}
}

// TestSmallNodesStayInGo: a function costs more than an Identity, a NoOp or a constant.
func TestSmallNodesStayInGo(t *testing.T) {
	s, _ := session(t)
	b := newBuilder(t, s).recv("x", tensor.Float32).add("i", "Identity", "x", "T", tensor.Float32).floats("c", 1).
		add("done", "NoOp", "^i").send("out", "i").send("const", "c ^done")
	if got := functions(t, s, b); len(got) > 0 {
		t.Errorf("functions %q", got)
	}
}

// TestDeadBranch: a subgraph in a branch that is not taken does not run; the other branch gives the value.
func TestDeadBranch(t *testing.T) {
	s, st := session(t)
	p := newBuilder(t, s).floats("one", 1).floats("ten", 10).
		recv("x", tensor.Float32).recv("p", tensor.Bool).
		add("s", "Switch", "x p", "T", tensor.Float32).
		add("no", "AddV2", "s:0 one", "T", tensor.Float32).
		add("yes", "Mul", "s:1 ten", "T", tensor.Float32).
		add("m", "Merge", "no yes", "T", tensor.Float32, "N", 2).
		add("both", "AddV2", "m x", "T", tensor.Float32).
		send("out", "both").send("taken", "yes").must(st)
	defer p.close()
	x := vector(t, 2, 3)
	defer x.Release()
	for _, yes := range []bool{false, true} {
		pred, err := tensor.FromSlice(tensor.Shape{}, []bool{yes})
		if err != nil {
			t.Fatal(err)
		}
		out, err := p.run(t.Context(), map[string]*tensor.Tensor{"x": x, "p": pred})
		if err != nil {
			t.Fatal(err)
		}
		if yes {
			want(t, "out", out["out"], 22, 33)
			want(t, "taken", out["taken"], 20, 30)
		} else {
			want(t, "out", out["out"], 5, 7)
			if out["taken"] != nil {
				t.Error("a branch that was not taken gave a value")
			}
		}
	}
}

// TestReferenceInABranch: an assignment behind a RefSwitch happens only when its branch is taken.
func TestReferenceInABranch(t *testing.T) {
	s, st := session(t)
	start := newBuilder(t, s).variable("v", 2).floats("c", 1, 2).add("init", "Assign", "v c", "T", tensor.Float32).must(st)
	defer start.close()
	p := newBuilder(t, s).variable("v", 2).recv("x", tensor.Float32).recv("p", tensor.Bool).
		add("s", "RefSwitch", "v p", "T", tensor.Float32).
		add("assign", "Assign", "s:1 x", "T", tensor.Float32).
		add("other", "Identity", "s:0", "T", tensor.Float32).
		add("m", "Merge", "assign other", "T", tensor.Float32, "N", 2).
		send("out", "m").must(st)
	defer p.close()
	if _, err := start.run(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	for i, yes := range []bool{false, true, false} {
		pred, err := tensor.FromSlice(tensor.Shape{}, []bool{yes})
		if err != nil {
			t.Fatal(err)
		}
		x := vector(t, 5, 6)
		out, err := p.run(t.Context(), map[string]*tensor.Tensor{"x": x, "p": pred})
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			want(t, "out", out["out"], 1, 2)
		} else {
			want(t, "out", out["out"], 5, 6)
		}
	}
}

// TestReferenceAcrossSubgraphs: what follows an assignment in another subgraph reads the new value, and
// assigns to the same variable.
func TestReferenceAcrossSubgraphs(t *testing.T) {
	s, st := session(t)
	p := newBuilder(t, s).variable("v", 2).floats("c", 1, 2).
		add("assign", "Assign", "v c", "T", tensor.Float32).
		recv("x", tensor.Float32).
		add("add", "AssignAdd", "assign x", "T", tensor.Float32).
		add("value", "Mul", "add x", "T", tensor.Float32).
		send("out", "value").send("after", "v ^add").must(st)
	defer p.close()
	x := vector(t, 10, 10)
	defer x.Release()
	out, err := p.run(t.Context(), map[string]*tensor.Tensor{"x": x})
	if err != nil {
		t.Fatal(err)
	}
	want(t, "out", out["out"], 110, 120)
	want(t, "after", out["after"], 11, 12)
}

// TestResourceVariables: a handle passes from subgraph to subgraph, and through a branch.
func TestResourceVariables(t *testing.T) {
	s, st := session(t)
	p := newBuilder(t, s).add("v", "VarHandleOp", "", "dtype", tensor.Float32, "shape", []int64{2}, "shared_name", "v").
		floats("c", 1, 2).add("init", "AssignVariableOp", "v c", "dtype", tensor.Float32).
		recv("p", tensor.Bool, "^init").recv("x", tensor.Float32).
		add("s", "Switch", "v p", "T", tensor.Resource).
		add("add", "AssignAddVariableOp", "s:1 x", "dtype", tensor.Float32).
		add("read", "ReadVariableOp", "s:1 ^add", "dtype", tensor.Float32).
		send("out", "read").must(st)
	defer p.close()
	pred, err := tensor.FromSlice(tensor.Shape{}, []bool{true})
	if err != nil {
		t.Fatal(err)
	}
	x := vector(t, 1, 1)
	for range 2 {
		out, err := p.run(t.Context(), map[string]*tensor.Tensor{"x": x, "p": pred})
		if err != nil {
			t.Fatal(err)
		}
		want(t, "out", out["out"], 2, 3)
	}
}

// TestErrorNamesTheNode: an error has TensorFlow's code and text, with the node of the graph and
// without the function that it runs in.
func TestErrorNamesTheNode(t *testing.T) {
	s, st := session(t)
	p := newBuilder(t, s).recv("x", tensor.Float32).floats("three", 1, 2, 3).
		add("bad/sum", "AddV2", "x three", "T", tensor.Float32).
		add("next", "Neg", "bad/sum", "T", tensor.Float32).
		send("out", "next").must(st)
	defer p.close()
	x := vector(t, 1, 2)
	_, err := p.run(t.Context(), map[string]*tensor.Tensor{"x": x})
	if got, want := status.From(err).Message(), "Incompatible shapes: [2] vs. [3]\n\t [[{{node bad/sum}}]]"; got != want || status.CodeOf(err) != status.InvalidArgument {
		t.Errorf("%v: %q, want %q", status.CodeOf(err), got, want)
	}
}

// TestUninitialisedVariable: the error is TensorFlow's.
func TestUninitialisedVariable(t *testing.T) {
	s, st := session(t)
	p := newBuilder(t, s).variable("v", 2).add("read", "Identity", "v", "T", tensor.Float32).send("out", "read").must(st)
	defer p.close()
	_, err := p.run(t.Context(), nil)
	if status.CodeOf(err) != status.FailedPrecondition || !strings.Contains(err.Error(), "Attempting to use uninitialized value v\n\t [[{{node read}}]]") {
		t.Error(err)
	}
}

// TestReadValueIsTheMemoryOfTheVariable: a subgraph that runs after an update gets the new value of a variable,
// although the node that reads it has run before: from the node itself, from others that hand the value on,
// in a branch, and when it is sent.
func TestReadValueIsTheMemoryOfTheVariable(t *testing.T) {
	for _, n := range []int64{1, 5000} { // from some size on a value stays in TensorFlow's memory
		s, st := session(t)
		start := newBuilder(t, s).variable("v", n).recv("x", tensor.Float32).add("assign", "Assign", "v x", "T", tensor.Float32).must(st)
		defer start.close()
		p := newBuilder(t, s).variable("v", n).
			add("read", "Identity", "v", "T", tensor.Float32).
			add("again", "StopGradient", "read", "T", tensor.Float32).
			add("old", "Neg", "read", "T", tensor.Float32).send("before", "old").
			recv("x", tensor.Float32).recv("p", tensor.Bool).
			add("assign", "Assign", "v x ^old", "T", tensor.Float32).
			add("one", "Neg", "read ^assign", "T", tensor.Float32).send("out1", "one").
			add("two", "Neg", "again ^assign", "T", tensor.Float32).send("out2", "two").
			add("three", "Identity", "read ^assign", "T", tensor.Float32).send("out3", "three").
			add("q", "LogicalNot", "p ^assign").
			add("branch", "Switch", "again q", "T", tensor.Float32).
			add("four", "Neg", "branch:1", "T", tensor.Float32).send("out4", "four").
			send("out5", "read ^assign").must(st)
		defer p.close()
		in := func(x float32) map[string]*tensor.Tensor {
			return map[string]*tensor.Tensor{"x": vector(t, slices.Repeat([]float32{x}, int(n))...)}
		}
		if _, err := start.run(t.Context(), in(7)); err != nil {
			t.Fatal(err)
		}
		no, err := tensor.FromSlice(tensor.Shape{}, []bool{false})
		if err != nil {
			t.Fatal(err)
		}
		feeds := in(9)
		feeds["p"] = no
		out, err := p.run(t.Context(), feeds)
		if err != nil {
			t.Fatal(err)
		}
		for name, x := range map[string]float32{"before": -7, "out1": -9, "out2": -9, "out3": 9, "out4": -9, "out5": 9} {
			want(t, name, out[name], slices.Repeat([]float32{x}, int(n))...)
		}
	}
}

// TestUnsupportedNode: what TensorFlow has no kernel for is refused when the graph is registered.
func TestUnsupportedNode(t *testing.T) {
	s, st := session(t)
	for _, tt := range []struct {
		b    *builder
		want string
	}{
		{newBuilder(t, s).recv("x", tensor.String).add("sum", "MatMul", "x x", "T", tensor.String), "has no kernel of op MatMul for a CPU with these types: T=DT_STRING"},
		{newBuilder(t, s).recv("x", tensor.Float32).add("n", "NcclAllReduce", "x", "T", tensor.Float32, "num_devices", 1, "shared_name", "x", "reduction", "sum"), "has no kernel of op NcclAllReduce for a CPU;"},
	} {
		if _, err := tt.b.prepare(st); status.CodeOf(err) != status.Unimplemented || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v, want %q", err, tt.want)
		}
	}
}

// TestStatesAreApart: two sessions have variables of their own, and a reset drops those of one.
func TestStatesAreApart(t *testing.T) {
	s, one := session(t)
	_, two := session(t)
	values := func() *builder {
		return newBuilder(t, s).variable("v", 2).recv("x", tensor.Float32).
			add("assign", "Assign", "v x", "T", tensor.Float32).send("out", "assign")
	}
	read := func() *builder { return newBuilder(t, s).variable("v", 2).send("out", "v") }
	reads := map[graph.State]*program{}
	for i, st := range []graph.State{one, two} {
		p, r := values().must(st), read().must(st)
		defer p.close()
		defer r.close()
		reads[st] = r
		x := vector(t, float32(i), 5)
		if _, err := p.run(t.Context(), map[string]*tensor.Tensor{"x": x}); err != nil {
			t.Fatal(err)
		}
	}
	for i, st := range []graph.State{one, two} {
		out, err := reads[st].run(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		want(t, "v", out["out"], float32(i), 5)
	}
	one.Reset(nil)
	if _, err := reads[one].run(t.Context(), nil); status.CodeOf(err) != status.FailedPrecondition {
		t.Errorf("after a reset: %v", err)
	}
	if _, err := reads[two].run(t.Context(), nil); err != nil {
		t.Errorf("after a reset of the other: %v", err)
	}
}

// TestRandomNodesAreApart: nodes with equal attributes have generators of their own, in one function
// and in two; a node goes on with its sequence from step to step.
func TestRandomNodesAreApart(t *testing.T) {
	s, st := session(t)
	shape := &tfpb.TensorProto{Dtype: tfpb.DataType_DT_INT32, TensorShape: &tfpb.TensorShapeProto{Dim: []*tfpb.TensorShapeProto_Dim{{Size: 1}}}, IntVal: []int32{4}}
	random := func(b *builder, name string, in string) {
		b.add(name, "RandomStandardNormal", in, "T", tensor.Int32, "dtype", tensor.Float32, "seed", 0, "seed2", 0).send("send_"+name, name)
	}
	b := newBuilder(t, s).add("shape", "Const", "", "dtype", tensor.Int32, "value", shape).recv("x", tensor.Int32)
	random(b, "a", "shape")
	random(b, "b", "shape")
	random(b, "c", "x")
	p := b.must(st)
	defer p.close()
	x, err := tensor.FromSlice(tensor.Vector(1), []int32{4})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]string{}
	for range 3 {
		out, err := p.run(t.Context(), map[string]*tensor.Tensor{"x": x})
		if err != nil {
			t.Fatal(err)
		}
		for name, v := range out {
			if other, ok := seen[string(v.Bytes())]; ok {
				t.Errorf("%s gave the values of %s", name, other)
			}
			seen[string(v.Bytes())] = name
		}
	}
}

// queue adds a queue of floats; v2 is its handle as a resource.
func queue(b *builder, v2 bool) (op string) {
	if v2 {
		b.add("q", "FIFOQueueV2", "", "component_types", []tensor.DType{tensor.Float32}, "capacity", 2)
		return "V2"
	}
	b.add("q", "FIFOQueue", "", "component_types", []tensor.DType{tensor.Float32}, "capacity", 2)
	return ""
}

// TestQueues: a dequeue waits for an enqueue of another step, and apart from nodes that need not
// wait; a cancel ends it.
func TestQueues(t *testing.T) {
	for _, v2 := range []bool{false, true} {
		s, st := session(t)
		b := newBuilder(t, s)
		op := queue(b, v2)
		take := b.add("take", "QueueDequeue"+op, "q", "component_types", []tensor.DType{tensor.Float32}).send("out", "take").must(st)
		defer take.close()
		b = newBuilder(t, s)
		queue(b, v2)
		put := b.recv("x", tensor.Float32).add("put", "QueueEnqueue"+op, "q x", "Tcomponents", []tensor.DType{tensor.Float32}).must(st)
		defer put.close()

		ctx, cancel := context.WithCancel(t.Context())
		end := make(chan error, 1)
		go func() {
			_, err := take.run(ctx, nil)
			end <- err
		}()
		cancel()
		if err := <-end; status.CodeOf(err) != status.Cancelled || !status.IsDerived(err) {
			t.Errorf("after a cancel: %v", err)
		}
		got := make(chan *tensor.Tensor, 1)
		go func() {
			out, err := take.run(t.Context(), nil)
			if err != nil {
				t.Error(err)
			}
			got <- out["out"]
		}()
		x := vector(t, 4, 5)
		if _, err := put.run(t.Context(), map[string]*tensor.Tensor{"x": x}); err != nil {
			t.Fatal(err)
		}
		want(t, "out", <-got, 4, 5)
	}
}

// TestBatchesWait: steps whose values become one batch wait for each other, and need no turn of those
// that compute.
func TestBatchesWait(t *testing.T) {
	s, st := session(t)
	const long = 30 * 60 * 1000 * 1000
	p := newBuilder(t, s).recv("x", tensor.Float32).
		add("batch", "Batch", "x", "T", []tensor.DType{tensor.Float32}, "num_batch_threads", 1, "max_batch_size", 2,
			"batch_timeout_micros", long, "grad_timeout_micros", long).
		send("out", "batch").must(st)
	defer p.close()
	for range cap(s.compute) {
		s.compute <- struct{}{} // others compute
	}
	defer func() {
		for range cap(s.compute) {
			<-s.compute
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	sizes := make(chan int64, 2)
	x := vector(t, 4)
	for range 2 {
		go func() {
			out, err := p.run(ctx, map[string]*tensor.Tensor{"x": x})
			if err != nil {
				t.Error(err)
				sizes <- 0
				return
			}
			sizes <- out["out"].Shape().Elements()
		}()
	}
	if a, b := <-sizes, <-sizes; a+b != 2 || a*b != 0 {
		t.Errorf("the steps got %d and %d elements, want both in one", a, b)
	}
}

// TestArraysLiveForAStep: a TensorArray passes from subgraph to subgraph, and is freed when its step has
// ended: after that its handle refers to nothing.
func TestArraysLiveForAStep(t *testing.T) {
	s, st := session(t)
	size := &tfpb.TensorProto{Dtype: tfpb.DataType_DT_INT32, TensorShape: &tfpb.TensorShapeProto{}, IntVal: []int32{1}}
	zero := &tfpb.TensorProto{Dtype: tfpb.DataType_DT_INT32, TensorShape: &tfpb.TensorShapeProto{}, IntVal: []int32{0}}
	p := newBuilder(t, s).add("size", "Const", "", "dtype", tensor.Int32, "value", size).add("zero", "Const", "", "dtype", tensor.Int32, "value", zero).
		recv("x", tensor.Float32).
		add("array", "TensorArrayV3", "size", "dtype", tensor.Float32).
		add("write", "TensorArrayWriteV3", "array zero x array:1", "T", tensor.Float32).
		recv("again", tensor.Float32).
		add("read", "TensorArrayReadV3", "array zero write ^again", "dtype", tensor.Float32).
		send("out", "read").must(st)
	defer p.close()
	x := vector(t, 1, 2)
	var kept *graph.Value
	p.after = func(n *graph.Node, out []graph.Value) {
		for _, v := range out {
			if v.Opaque != nil {
				v = v.Retain()
				kept = &v
			}
		}
	}
	ctx, end := context.WithCancel(t.Context())
	out, err := p.run(ctx, map[string]*tensor.Tensor{"x": x, "again": x})
	if err != nil {
		t.Fatal(err)
	}
	want(t, "out", out["out"], 1, 2)
	if kept == nil {
		t.Fatal("no handle went from subgraph to subgraph")
	}
	defer kept.Release()
	c, _ := as[*state](t, st).hold()
	defer c.release()
	end()
	for c.inSteps() > 0 {
		runtime.Gosched()
	}
	p.after = nil
	for _, n := range p.g.Nodes {
		if n.Name != "read" {
			continue
		}
		in := []graph.Value{*kept, {Tensor: x}}
		for i, d := range n.InTypes {
			if d == tensor.Resource {
				in[i] = *kept
			} else {
				f, err := tensor.FromSlice(tensor.Shape{}, []float32{0})
				if err != nil {
					t.Fatal(err)
				}
				in[i] = graph.Value{Tensor: f}
			}
		}
		if err := p.kernel(t.Context(), n, in, make([]graph.Value, len(n.OutTypes))); status.CodeOf(err) != status.NotFound {
			t.Errorf("in the next step the array is still there: %v", err)
		}
	}
}

// inSteps is how many steps have made what lives only for a step.
func (c *countedContext) inSteps() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.steps)
}

// TestWaitingIsApart: what may wait for another step has a function of its own, so that nothing else
// waits with it; and at most Options.Blocking of them run at a time, with those of other sessions maxBlocking.
func TestWaitingIsApart(t *testing.T) {
	s, st := session(t)
	b := newBuilder(t, s)
	queue(b, true)
	b.variable("v", 2).add("take", "QueueDequeueV2", "q", "component_types", []tensor.DType{tensor.Float32}).
		add("read", "Neg", "v", "T", tensor.Float32).send("now", "read").
		add("both", "AddV2", "take read", "T", tensor.Float32).send("later", "both")
	if got := functions(t, s, b); !slices.Equal(got, []string{"both", "q", "read", "take"}) {
		t.Errorf("functions %q", got)
	}
	b = newBuilder(t, s)
	queue(b, true)
	take := b.add("take", "QueueDequeueV2", "q", "component_types", []tensor.DType{tensor.Float32}).send("out", "take").must(st)
	defer take.close()
	for _, limit := range []struct {
		of   chan struct{}
		want string
	}{{as[*state](t, st).waiting, "of this session wait already for others, such as dequeues; the limit is 1024"}, {s.waiting, "of all sessions wait already for others, such as dequeues; the limit is 4096"}} {
		free := cap(limit.of) - len(limit.of)
		for range free {
			limit.of <- struct{}{}
		}
		if _, err := take.run(t.Context(), nil); status.CodeOf(err) != status.ResourceExhausted || !strings.Contains(err.Error(), limit.want) {
			t.Errorf("beyond the limit: %v, want %q", err, limit.want)
		}
		for range free {
			<-limit.of
		}
	}
}
