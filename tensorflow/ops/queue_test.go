package ops

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// begun is a kernel that may wait.
type begun struct {
	b      *bench
	c      *graph.Context
	cancel context.CancelFunc
	err    chan error
}

// begin begins a node, which may wait, in a session.
func (b *bench) begin(s graph.State, op string, a attrs, inputs ...graph.Value) *begun {
	b.t.Helper()
	n := b.node(op, op, a, inputs...)
	k, err := s.NewKernel(n)
	if err != nil {
		b.t.Fatal(err)
	}
	async, ok := k.(graph.AsyncKernel)
	if !ok {
		b.t.Fatalf("the kernel of %s holds its goroutine when it waits", op)
	}
	ctx, cancel := context.WithCancel(b.t.Context())
	g := &begun{b: b, cancel: cancel, err: make(chan error, 1)}
	g.c = &graph.Context{Ctx: ctx, Step: b.step, Node: n, Outputs: make([]graph.Value, len(n.OutTypes))}
	for _, v := range inputs {
		g.c.Inputs = append(g.c.Inputs, v.Retain())
	}
	async.ComputeAsync(g.c, func(err error) { g.err <- err })
	return g
}

// end waits for the kernel, and returns what it gives as text.
func (g *begun) end() string {
	err := <-g.err
	g.cancel()
	for _, v := range g.c.Inputs {
		v.Release()
	}
	if err != nil {
		return status.From(err).Message()
	}
	var texts []string
	for _, v := range g.c.Outputs {
		texts = append(texts, show(v))
		v.Release()
	}
	return strings.Join(texts, "; ")
}

func (g *begun) waits() bool { return len(g.err) == 0 }

var int32s = []tensor.DType{tensor.Int32}

// queue makes a queue of scalars of int32.
func (b *bench) queue(a attrs) graph.Value {
	b.t.Helper()
	all := attrs{"component_types": int32s, "shapes": [][]int64{{}}}
	maps.Copy(all, a)
	return b.runNamed("q", "FIFOQueueV2", all)[0]
}

func (b *bench) enqueue(q graph.Value, values ...int32) *begun {
	b.t.Helper()
	return b.begin(b.state, "QueueEnqueueManyV2", nil, q, vec(values...))
}

func (b *bench) dequeue(q graph.Value) *begun {
	b.t.Helper()
	return b.begin(b.state, "QueueDequeueV2", attrs{"component_types": int32s}, q)
}

func (b *bench) wantText(got, want string) {
	b.t.Helper()
	if got != want {
		b.t.Errorf("got  %q\nwant %q", got, want)
	}
}

// pooled lets the steps of the bench have their memory from a pool.
func (b *bench) pooled(limit int64) *tensor.Pool {
	pool := tensor.NewPool(tensor.PoolOptions{Limit: limit})
	b.step.Allocator = pool
	return pool
}

func TestADequeueGetsWhatAnotherStepEnqueues(t *testing.T) {
	b := newBench(t)
	q := b.queue(attrs{"capacity": 2})
	first, second := b.dequeue(q), b.dequeue(q)
	many := b.enqueue(q, 1, 2, 3, 4, 5)
	b.wantText(first.end(), "int32[]: 1")
	b.wantText(second.end(), "int32[]: 2")
	if !many.waits() {
		t.Error("five elements are in a queue for two")
	}
	b.want(b.run("QueueSizeV2", nil, q)[0], "int32[]: 2")
	b.wantText(b.dequeue(q).end(), "int32[]: 3")
	b.wantText(many.end(), "")
	batch := b.begin(b.state, "QueueDequeueManyV2", attrs{"component_types": int32s}, q, scalar[int32](2))
	b.wantText(batch.end(), "int32[2]: 4 5")
}

// A step that ends takes its kernels along, wherever they wait.
func TestAKernelThatWaitsEndsWithItsStep(t *testing.T) {
	b := newBench(t)
	q := b.queue(attrs{"capacity": 1})
	empty := b.runNamed("empty", "FIFOQueueV2", attrs{"component_types": int32s})[0]
	a := b.runNamed("a", "ResourceConditionalAccumulator", attrs{"dtype": tensor.Float32, "shape": tensor.Shape{}})[0]
	enqueue := b.enqueue(q, 1, 2)
	for _, c := range []struct {
		g    *begun
		want string
	}{
		{b.begin(b.state, "QueueCloseV2", nil, q), "Close operation was cancelled"}, // behind the enqueue
		{enqueue, "Enqueue operation was cancelled"},
		{b.dequeue(empty), "Dequeue operation was cancelled"},
		{b.begin(b.state, "ResourceAccumulatorTakeGradient", attrs{"dtype": tensor.Float32}, a, scalar[int32](1)), "TakeGrad operation was cancelled"},
	} {
		if !c.g.waits() {
			t.Fatal("it does not wait")
		}
		c.g.cancel()
		b.wantText(c.g.end(), c.want)
	}
}

// What an incomplete batch has taken is lost with its step, and its memory is free.
func TestACancelledBatchGivesItsMemoryBack(t *testing.T) {
	b := newBench(t)
	pool := b.pooled(1 << 30)
	q := b.queue(nil)
	b.enqueue(q, 1, 2).end()
	many := b.begin(b.state, "QueueDequeueManyV2", attrs{"component_types": int32s}, q, scalar[int32](5))
	many.cancel()
	b.wantText(many.end(), "Dequeue operation was cancelled")
	b.state.Reset(nil)
	if n := pool.Stats().InUse; n != 0 {
		t.Errorf("%d bytes are left", n)
	}
}

// A step waits in a dequeue, and the only place of Workers is free for the one that enqueues.
func TestAStepThatWaitsHoldsNoPlace(t *testing.T) {
	b := newBench(t)
	b.step.Workers = graph.NewWorkers(1)
	b.step.Observe = nil
	source := func(more ...*graph.Node) (list []*graph.Node) {
		q := b.node("q", "FIFOQueueV2", attrs{"component_types": int32s, "shared_name": "shared"})
		q.Out = nil
		return append([]*graph.Node{q}, more...)
	}
	executor := func(nodes []*graph.Node) *graph.Executor {
		t.Helper()
		for i, n := range nodes {
			n.ID = i
		}
		e, err := graph.NewExecutor(&graph.Graph{Nodes: nodes}, b.state)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	connect := func(from *graph.Node, to *graph.Node, input int) {
		from.Out = append(from.Out, graph.Edge{To: to, Input: input})
		to.In = append(to.In, graph.Output{Node: from})
	}
	handle := graph.Value{Opaque: &queue{}}
	out := b.node("out", "QueueDequeueV2", attrs{"component_types": int32s}, handle)
	waiting := source(out)
	connect(waiting[0], out, 0)
	value := b.node("value", "Const", attrs{"dtype": tensor.Int32, "value": scalar[int32](7).Tensor})
	in := b.node("in", "QueueEnqueueV2", nil, handle, scalar[int32](7))
	feeding := source(value, in)
	connect(feeding[0], in, 0)
	connect(value, in, 1)

	first := executor(waiting)
	done := make(chan error, 8)
	for range 4 {
		go func() { done <- first.Run(t.Context(), b.step) }()
	}
	second := executor(feeding)
	for range 4 {
		if err := second.Run(t.Context(), b.step); err != nil {
			t.Fatal(err)
		}
	}
	for range 4 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// TestAQueueIsFoundByItsName: by its shared_name in all sessions, by the name of its node in one.
func TestAQueueIsFoundByItsName(t *testing.T) {
	b := newBench(t)
	here, there := b.state.NewSession(), b.state.NewSession()
	find := func(s graph.State, name, op string, a attrs) graph.Value {
		t.Helper()
		a["component_types"] = int32s
		n := b.node(name, op, a)
		k, err := s.NewKernel(n)
		if err != nil {
			t.Fatal(err)
		}
		outs, err := b.compute(k, n)
		if err != nil {
			t.Fatal(err)
		}
		if v := outs[0]; v.Var != nil {
			return graph.Value{Opaque: v.Var.Object}
		}
		return outs[0]
	}
	named := find(here, "q", "FIFOQueueV2", attrs{"shared_name": "shared"})
	for what, c := range map[string]struct {
		v    graph.Value
		same bool
		as   graph.Value
	}{
		"a shared_name in another session": {find(there, "other", "FIFOQueueV2", attrs{"shared_name": "shared"}), true, named},
		"the first version":                {find(there, "other", "FIFOQueue", attrs{"shared_name": "shared"}), true, named},
		"another container":                {find(there, "q", "FIFOQueueV2", attrs{"shared_name": "shared", "container": "box"}), false, named},
		"a node of the name":               {find(here, "shared", "FIFOQueueV2", attrs{}), false, named},
		"a node in another graph":          {find(here, "q", "FIFOQueueV2", attrs{}), true, find(here, "q", "FIFOQueueV2", attrs{})},
		"a node in another session":        {find(there, "q", "FIFOQueueV2", attrs{}), false, find(here, "q", "FIFOQueueV2", attrs{})},
		"a node with another name":         {find(here, "r", "FIFOQueueV2", attrs{}), false, find(here, "q", "FIFOQueueV2", attrs{})},
		"a node in a container of its own": {find(here, "s", "FIFOQueueV2", attrs{"container": "box"}), false, find(here, "q", "FIFOQueueV2", attrs{})},
		"an accumulator has names of its own": {func() graph.Value {
			return b.run("ResourceConditionalAccumulator", attrs{"dtype": tensor.Float32, "shape": tensor.Shape{}, "shared_name": "shared"})[0]
		}(), false, named},
	} {
		if (c.v.Opaque == c.as.Opaque) != c.same {
			t.Errorf("%s: the same is %v", what, !c.same)
		}
	}
}

// A session takes its own queues along; those with a shared_name stay.
func TestTheQueuesOfASessionEndWithIt(t *testing.T) {
	b := newBench(t)
	pool := b.pooled(1 << 30)
	s := b.state.NewSession()
	for _, a := range []attrs{{}, {"shared_name": "shared"}} {
		a["component_types"] = int32s
		n := b.node("q", "FIFOQueueV2", a)
		k, err := s.NewKernel(n)
		if err != nil {
			t.Fatal(err)
		}
		outs, err := b.compute(k, n)
		if err != nil {
			t.Fatal(err)
		}
		b.wantText(b.begin(s, "QueueEnqueueV2", nil, outs[0], scalar[int32](7)).end(), "")
	}
	both := pool.Stats().InUse
	s.Close()
	if one := pool.Stats().InUse; one <= 0 || one >= both {
		t.Errorf("%d bytes of %d are left, want those of the shared queue", one, both)
	}
	shared := b.queue(attrs{"shared_name": "shared", "shapes": [][]int64{}})
	size := b.run("QueueSizeV2", nil, shared)[0]
	b.want(size, "int32[]: 1")
	size.Release()
	b.state.Reset(nil)
	if n := pool.Stats().InUse; n != 0 {
		t.Errorf("%d bytes are left", n)
	}
}

// A client that registers and drops graphs with new names has no more than maxUnused queues here.
func TestQueuesOfDroppedGraphsAreBounded(t *testing.T) {
	b := newBench(t)
	s := b.state.NewSession()
	for i := range maxUnused + 10 {
		n := b.node(fmt.Sprint("q", i), "FIFOQueueV2", attrs{"component_types": int32s})
		k, err := s.NewKernel(n)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.compute(k, n); err != nil {
			t.Fatal(err)
		}
		closer, ok := k.(interface{ Close() error })
		if !ok {
			t.Fatalf("%T has no Close", k)
		}
		for range 2 {
			if err := closer.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	st, ok := b.state.(*State)
	if !ok {
		t.Fatalf("the state is a %T", b.state)
	}
	if n := len(st.containers[defaultContainer]); n != maxUnused {
		t.Errorf("%d queues, want %d", n, maxUnused)
	}
}

// TestWhatAQueueHoldsIsCounted: also elements that have no bytes, constants, which only their graph counts, and
// strings. A queue without a capacity takes no more than the memory allows, and gives all of it back.
func TestWhatAQueueHoldsIsCounted(t *testing.T) {
	const limit = 4 << 20
	for name, c := range map[string]struct {
		value graph.Value
		most  int // elements
	}{
		"numbers":          {in[int32](nil, 7), limit / (elementBytes + partBytes)},
		"no bytes":         {vec[int32](), limit / (elementBytes + partBytes)},
		"a large constant": {vec(make([]int32, 1<<14)...), limit >> 16},
	} {
		for _, op := range []string{"QueueEnqueueV2", "QueueEnqueueManyV2"} {
			t.Run(name+" "+op, func(t *testing.T) {
				b := newBench(t)
				pool := b.pooled(limit)
				q := b.runNamed("q", "FIFOQueueV2", attrs{"component_types": int32s})[0]
				value := c.value
				if op == "QueueEnqueueManyV2" {
					value = b.run("ExpandDims", nil, c.value, scalar[int32](0))[0]
				}
				n := 0
				var text string
				for ; text == "" && n <= c.most; n++ {
					text = b.begin(b.state, op, nil, q, value).end()
				}
				if !strings.Contains(text, "the pool's limit") || n < c.most/4 {
					t.Errorf("enqueue %d of at most %d ended with %q", n, c.most, text)
				}
				for range n - 1 {
					b.dequeue(q).end()
				}
				b.state.Reset(nil)
				if value.Tensor != c.value.Tensor {
					value.Release()
				}
				if held := pool.Stats().InUse; held != 0 {
					t.Errorf("%d bytes are counted when all is gone", held)
				}
			})
		}
	}
}

// TestKernelsThatWaitAreCounted: a graph has 250,000 nodes, and each step that runs waits with all of them.
func TestKernelsThatWaitAreCounted(t *testing.T) {
	const limit = 1 << 20
	for _, op := range []string{"QueueEnqueueV2", "QueueDequeueV2", "QueueCloseV2", "ResourceAccumulatorTakeGradient"} {
		t.Run(op, func(t *testing.T) {
			b := newBench(t)
			pool := b.pooled(limit)
			empty, full := b.queue(nil), b.runNamed("full", "FIFOQueueV2", attrs{"component_types": int32s, "capacity": 1})[0]
			b.wantText(b.enqueue(full, 1).end(), "")
			blocked := b.enqueue(full, 2)
			a := b.runNamed("a", "ResourceConditionalAccumulator", attrs{"dtype": tensor.Float32, "shape": tensor.Shape{}})[0]
			begin := map[string]func() *begun{
				"QueueEnqueueV2":                  func() *begun { return b.enqueue(full, 3) },
				"QueueDequeueV2":                  func() *begun { return b.dequeue(empty) },
				"QueueCloseV2":                    func() *begun { return b.begin(b.state, op, nil, full) },
				"ResourceAccumulatorTakeGradient": func() *begun { return b.begin(b.state, op, attrs{"dtype": tensor.Float32}, a, scalar[int32](1)) },
			}[op]
			list := []*begun{blocked}
			next := begin()
			for ; next.waits() && len(list) < 2*limit/waitBytes; next = begin() {
				list = append(list, next)
			}
			if !next.waits() {
				if text := next.end(); !strings.Contains(text, "the pool's limit") {
					t.Errorf("kernel %d ended with %q", len(list), text)
				}
			} else {
				t.Errorf("%d kernels wait, which take %d bytes each, in a memory of %d", len(list), waitBytes, limit)
				list = append(list, next)
			}
			if len(list) < limit/waitBytes/2 {
				t.Errorf("only %d kernels wait", len(list))
			}
			for _, g := range list {
				g.cancel()
				g.end()
			}
			b.state.Reset(nil)
			if held := pool.Stats().InUse; held != 0 {
				t.Errorf("%d bytes are counted when nothing waits", held)
			}
		})
	}
}

// What waits for a queue that a reset drops ends at once, and later steps find a new queue.
func TestAResetEndsWhatWaitsForItsQueues(t *testing.T) {
	b := newBench(t)
	pool := b.pooled(1 << 30)
	q := b.queue(attrs{"capacity": 1})
	full, empty := b.enqueue(q, 1, 2), b.runNamed("empty", "FIFOQueueV2", attrs{"component_types": int32s})[0]
	out := b.dequeue(empty)
	a := b.runNamed("a", "ResourceConditionalAccumulator", attrs{"dtype": tensor.Float32, "shape": tensor.Shape{}})[0]
	b.run("ResourceAccumulatorApplyGradient", nil, a, scalar[int64](0), scalar[float32](1))
	take := b.begin(b.state, "ResourceAccumulatorTakeGradient", attrs{"dtype": tensor.Float32}, a, scalar[int32](2))
	b.state.Reset(nil)
	for _, g := range []*begun{full, out, take, b.dequeue(q), b.enqueue(q, 1)} {
		if text := g.end(); !strings.Contains(text, "was removed by a reset of its container") {
			t.Errorf("it ended with %q", text)
		}
	}
	if n := pool.Stats().InUse; n != 0 {
		t.Errorf("%d bytes are left", n)
	}
	again := b.queue(attrs{"capacity": 1})
	b.wantText(b.enqueue(again, 3).end(), "")
	b.wantText(b.dequeue(again).end(), "int32[]: 3")
	b.run("DestroyResourceOp", nil, again)
	if text := b.dequeue(again).end(); !strings.Contains(text, "was removed") {
		t.Errorf("after DestroyResourceOp: %q", text)
	}
}

// TestAShuffledQueueHasTheOrderOfTensorFlow with the same seeds.
func TestAShuffledQueueHasTheOrderOfTensorFlow(t *testing.T) {
	b := newBench(t)
	q := b.run("RandomShuffleQueueV2", attrs{
		"component_types": int32s, "shapes": [][]int64{{}}, "seed": 4, "seed2": 7, "min_after_dequeue": 2, "capacity": 30,
	})[0]
	numbers := make([]int32, 20)
	for i := range numbers {
		numbers[i] = int32(i)
	}
	b.enqueue(q, numbers...).end()
	a := attrs{"component_types": int32s}
	b.wantText(b.begin(b.state, "QueueDequeueManyV2", a, q, scalar[int32](10)).end(), "int32[10]: 11 8 1 2 3 13 0 12 4 19")
	b.wantText(b.dequeue(q).end(), "int32[]: 7")
	b.begin(b.state, "QueueCloseV2", nil, q).end()
	if text := b.begin(b.state, "QueueDequeueManyV2", a, q, scalar[int32](10)).end(); !strings.Contains(text, "(requested 10, current size 9)") {
		t.Error(text)
	}
	b.wantText(b.begin(b.state, "QueueDequeueUpToV2", a, q, scalar[int32](10)).end(), "int32[9]: 10 6 9 18 14 15 16 5 17")
}

// Elements of one batch are padded with zeros, or empty strings, to the largest.
func TestElementsOfABatchArePadded(t *testing.T) {
	b := newBench(t)
	types := []tensor.DType{tensor.Int32, tensor.String}
	q := b.run("PaddingFIFOQueueV2", attrs{"component_types": types, "shapes": [][]int64{{-1, 2}, {-1}}})[0]
	for _, e := range [][2]graph.Value{
		{in([]int64{1, 2}, int32(1), 2), text([]int64{2}, "a", "b")},
		{in[int32]([]int64{0, 2}), text([]int64{0})},
		{in([]int64{2, 2}, int32(3), 4, 5, 6), text([]int64{1}, "c")},
	} {
		b.wantText(b.begin(b.state, "QueueEnqueueV2", nil, q, e[0], e[1]).end(), "")
	}
	batch := b.begin(b.state, "QueueDequeueManyV2", attrs{"component_types": types}, q, scalar[int32](3))
	b.wantText(batch.end(), "int32[3,2,2]: 1 2 0 0 0 0 0 0 3 4 5 6; string[3,2]: a b   c ")
	wide := b.runNamed("wide", "PaddingFIFOQueueV2", attrs{"component_types": int32s, "shapes": [][]int64{{-1, -1}}})[0]
	for _, e := range []graph.Value{in([]int64{2, 1}, int32(1), 2), in([]int64{1, 2}, int32(3), 4)} {
		b.wantText(b.begin(b.state, "QueueEnqueueV2", nil, wide, e).end(), "")
	}
	batch = b.begin(b.state, "QueueDequeueManyV2", attrs{"component_types": int32s}, wide, scalar[int32](2))
	b.wantText(batch.end(), "int32[2,2,2]: 1 0 2 0 3 4 0 0")
	wrong := b.begin(b.state, "QueueEnqueueV2", nil, q, in([]int64{1, 3}, int32(1), 2, 3), text([]int64{0}))
	b.wantText(wrong.end(), "Shape mismatch in tuple component 0. Expected [?,2], got [1,3]")
}

// Many steps at once enqueue, dequeue and end before their time. Each element comes out once, or was lost with a step.
func TestStepsShareAQueue(t *testing.T) {
	const steps, each = 8, 200
	b := newBench(t)
	pool := b.pooled(1 << 30)
	q := b.queue(attrs{"capacity": 5})
	var all sync.WaitGroup
	var mu sync.Mutex
	seen := map[string]int{}
	for step := range steps {
		all.Add(2)
		go func() {
			defer all.Done()
			for i := range each {
				b.enqueue(q, int32(step*each+i)).end()
			}
		}()
		go func() {
			defer all.Done()
			for i := range each {
				g := b.dequeue(q)
				if i%4 == 0 {
					go g.cancel()
				}
				for text := g.end(); ; text = b.dequeue(q).end() {
					if !strings.Contains(text, "cancelled") {
						mu.Lock()
						seen[text]++
						mu.Unlock()
						break
					}
				}
			}
		}()
	}
	all.Wait()
	if len(seen) != steps*each {
		t.Errorf("%d different elements came out, want %d", len(seen), steps*each)
	}
	b.state.Reset(nil)
	if n := pool.Stats().InUse; n != 0 {
		t.Errorf("%d bytes are left", n)
	}
}

// A graph that gives a queue to an op of accumulators gets an error.
func TestAHandleOfAnotherKindIsRefused(t *testing.T) {
	b := newBench(t)
	q := b.queue(nil)
	if err := b.fails("ResourceAccumulatorNumAccumulated", nil, q); !strings.Contains(err.Error(), "handle is not an accumulator") {
		t.Error(err)
	}
	if err := b.fails("QueueSize", nil, b.variable("v", text([]int64{2}, "localhost", "q"))); !strings.Contains(err.Error(), "handle is not a queue") {
		t.Error(err)
	}
}

// A queue of resources would keep handles of other sessions.
func TestAQueueOfResourcesIsRefused(t *testing.T) {
	b := newBench(t)
	_, err := b.state.NewKernel(b.node("q", "FIFOQueueV2", attrs{"component_types": []tensor.DType{tensor.Resource}}))
	if status.CodeOf(err) != status.Unimplemented {
		t.Errorf("got %v", err)
	}
}
