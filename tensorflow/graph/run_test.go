package graph

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// counted adds the op Source, whose tensors are counted until their release.
func counted(s *fakeSet, live *atomic.Int64) {
	source := func(c *Context) error {
		live.Add(1)
		x, err := tensor.New(tensor.Float32, tensor.Shape{}, tensor.NewBuffer(make([]byte, 4), func() { live.Add(-1) }))
		c.Set(0, x)
		return err
	}
	s.ops["Source"] = fakeOp{def: s.ops["Empty"].def, kernel: kernel(source)}
	s.ops["FailLate"] = fakeOp{def: s.ops["Empty"].def, kernel: kernel(func(c *Context) error {
		if err := source(c); err != nil {
			return err
		}
		return status.New(status.Internal, "after the output was set")
	})}
}

// TestInputsAreReleasedWhenTheirNodeHasRun: a kernel may change memory in place that nobody else needs.
func TestInputsAreReleasedWhenTheirNodeHasRun(t *testing.T) {
	s := newFakeSet()
	var live atomic.Int64
	counted(s, &live)
	s.ops["Check"] = fakeOp{def: s.ops["NoOp"].def, kernel: kernel(func(*Context) error {
		if n := live.Load(); n != 0 {
			return status.Errorf(status.Internal, "%d tensors are left", n)
		}
		return nil
	})}
	if _, err := runGraph(t, s, "a = Source()\nn = Sink(a)\nc = Check(^n)"); err != nil {
		t.Error(err)
	}
}

func TestOutputsOfAFailedKernelAreReleased(t *testing.T) {
	s := newFakeSet()
	var live atomic.Int64
	counted(s, &live)
	_, err := runGraph(t, s, "a = FailLate()")
	checkError(t, "late", err, status.Internal, "after the output was set")
	if n := live.Load(); n != 0 {
		t.Errorf("%d tensors are left", n)
	}
}

// TestValuesOfAnUnfinishedLoopAreReleased: constants of a loop, values that wait for the next iteration,
// and those in an inner frame.
func TestValuesOfAnUnfinishedLoopAreReleased(t *testing.T) {
	s := newFakeSet()
	var live atomic.Int64
	counted(s, &live)
	_, err := runGraph(t, s, loopGraph(5, 1)+`
		src = Source()
		inv = Enter(src) T=float frame_name="w" is_constant=true
		var = Enter(src) T=float frame_name="w"
		vm = Merge(var, vn) T=float N=2
		vs = Switch(vm, c) T=float
		vn = NextIteration(vs:1) T=float
		use = AddN(inv, vs:1) T=float N=2
		block = Block(^use)
		fail = Fail(^b)
		held = AddN(inv, vm, ^block) T=float N=2`)
	checkError(t, "loop", err, status.InvalidArgument, "failed")
	if n := live.Load(); n != 0 {
		t.Errorf("%d tensors are left", n)
	}
}

func TestNothingBeginsAfterAnError(t *testing.T) {
	s := newFakeSet()
	var ran atomic.Int32
	s.ops["Count"] = fakeOp{def: s.ops["NoOp"].def, kernel: kernel(func(*Context) error { ran.Add(1); return nil })}
	e, err := NewExecutor(importGraph(t, s, "a = Count()\nb = Count(^a)"), s)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	r := e.newRun(t.Context(), &Step{}, func(err error) { done <- err })
	r.fail(status.New(status.Internal, "first"))
	r.start(false)
	checkError(t, "error", <-done, status.Internal, "first")
	if ran.Load() != 0 {
		t.Errorf("%d kernels ran", ran.Load())
	}
}

func TestEndOfTheContextIsReportedForAKernelThatItStopped(t *testing.T) {
	s := newFakeSet()
	e, err := NewExecutor(importGraph(t, s, "a = NoOp()"), s)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(status.New(status.Unavailable, "why"))
	r := e.newRun(ctx, &Step{}, nil)
	r.fail(status.New(status.Aborted, "a receive was stopped"))
	checkError(t, "error", r.err, status.Cancelled, "Step was cancelled: why")
}

// TestWorkersBoundKernels has ten kernels that begin and do not end.
func TestWorkersBoundKernels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeSet()
		var now atomic.Int32
		release := make(chan struct{})
		s.ops["Slow"] = fakeOp{def: s.ops["NoOp"].def, kernel: kernel(func(*Context) error {
			now.Add(1)
			<-release
			now.Add(-1)
			return nil
		})}
		var lines strings.Builder
		for i := range 10 {
			lines.WriteString("n" + string(rune('0'+i)) + " = Slow()\n")
		}
		e, err := NewExecutor(importGraph(t, s, lines.String()), s)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 2)
		w := NewWorkers(3)
		for range 2 { // two steps share the bound
			go func() { done <- e.Run(t.Context(), &Step{Workers: w}) }()
		}
		synctest.Wait()
		if now.Load() != 3 {
			t.Errorf("%d kernels run at once, want 3", now.Load())
		}
		close(release)
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}

// blockingFunc is a BlockingKernel that is a function.
type blockingFunc func(c *Context) error

func (f blockingFunc) Compute(c *Context) error { return f(c) }
func (blockingFunc) Blocks()                    {}

// TestBlockingKernelsHoldNobodyBack: ten kernels that keep their threads until all of them run, with one worker,
// beside what comes after a receive; the outputs of each are its own.
func TestBlockingKernelsHoldNobodyBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const kernels = 10
		s := newFakeSet()
		var running, right atomic.Int32
		all, resume := make(chan struct{}), make(chan func(error), 1)
		s.ops["Block"] = fakeOp{def: s.ops["Const"].def, kernel: func(n *Node) (Kernel, error) {
			return blockingFunc(func(c *Context) error {
				if running.Add(1) == kernels+1 { // with the one after the receive
					close(all)
				}
				<-all
				v, err := tensor.FromSlice(tensor.Shape{}, []int32{int32(n.ID)})
				c.Set(0, v)
				return err
			}), nil
		}}
		s.ops["Wait"] = fakeOp{def: s.ops["NoOp"].def, kernel: asyncKernel(func(_ *Context, done func(error)) { resume <- done })}
		s.ops["Check"] = fakeOp{def: s.ops["Identity"].def, kernel: kernel(func(c *Context) error {
			if scalar(t, c.Inputs[0]) == int32(c.Node.In[0].Node.ID) {
				right.Add(1)
			}
			c.Forward(0, 0)
			return nil
		})}
		lines := "w = Wait()\n"
		for i := range kernels + 1 {
			name := string(rune('a' + i))
			after := ""
			if i == kernels {
				after = "^w"
			}
			lines += name + " = Block(" + after + ") value=#0 dtype=int32\nc" + name + " = Check(" + name + ") T=int32\n"
		}
		e, err := NewExecutor(importGraph(t, s, lines), s)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- e.Run(t.Context(), &Step{Workers: NewWorkers(1)}) }()
		(<-resume)(nil)
		if err := <-done; err != nil || right.Load() != kernels+1 {
			t.Errorf("%d kernels had their own outputs: %v", right.Load(), err)
		}
	})
}

// TestBlockingKernelThatFails: an error, and a panic, end the step when all kernels have ended.
func TestBlockingKernelThatFails(t *testing.T) {
	for name, fails := range map[string]func(*Context) error{
		"error": func(*Context) error { return status.New(status.InvalidArgument, "failed") },
		"panic": func(c *Context) error { return status.New(status.Internal, c.Input(0).Shape().String()) }, // it has no input
	} {
		s := newFakeSet()
		var running atomic.Int32
		s.ops["Block"] = fakeOp{def: s.ops["NoOp"].def, kernel: func(n *Node) (Kernel, error) {
			return blockingFunc(func(c *Context) error {
				running.Add(1)
				defer running.Add(-1)
				if n.Name == "a" {
					return fails(c)
				}
				<-c.Ctx.Done()
				return status.From(c.Ctx.Err()).Derived()
			}), nil
		}}
		_, err := runGraph(t, s, "a = Block()\nb = Block()")
		if err == nil || !strings.Contains(err.Error(), "{{node a}}") || running.Load() != 0 {
			t.Errorf("%s: %v, and %d kernels run", name, err, running.Load())
		}
	}
}

// TestCheapKernelsRunBesideExpensiveOnes: what comes after a receive does not wait for a worker.
func TestCheapKernelsRunBesideExpensiveOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeSet()
		release := make(chan struct{})
		s.ops["Slow"] = fakeOp{def: s.ops["NoOp"].def, kernel: kernel(func(*Context) error { <-release; return nil })}
		var resume func(error)
		s.ops["Wait"] = fakeOp{def: s.ops["NoOp"].def, kernel: asyncKernel(func(_ *Context, done func(error)) { resume = done })}
		var ran atomic.Bool
		s.ops["Cheap"] = fakeOp{def: s.ops["NoOp"].def, kernel: asyncKernel(func(_ *Context, done func(error)) { ran.Store(true); done(nil) })}
		e, err := NewExecutor(importGraph(t, s, "w = Wait()\nc = Cheap(^w)\ns1 = Slow()\ns2 = Slow()"), s)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- e.Run(t.Context(), &Step{Workers: NewWorkers(1)}) }()
		synctest.Wait()
		resume(nil)
		synctest.Wait()
		if !ran.Load() {
			t.Error("a node waits for a kernel that it does not need")
		}
		close(release)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestRunAllocatesNothingForANode: what a run allocates does not grow with the graph.
func TestRunAllocatesNothingForANode(t *testing.T) {
	s := newFakeSet()
	var lines strings.Builder
	lines.WriteString("c = Const() dtype=int32 value=#1\ni0 = Identity(c) T=int32\n")
	for i := range 200 {
		fmt.Fprintf(&lines, "i%d = Identity(i%d) T=int32\n", i+1, i)
	}
	e, err := NewExecutor(importGraph(t, s, lines.String()), s)
	if err != nil {
		t.Fatal(err)
	}
	step := &Step{Allocator: tensor.Heap{}}
	allocs := testing.AllocsPerRun(20, func() {
		if err := e.Run(t.Context(), step); err != nil {
			t.Error(err)
		}
	})
	if allocs > 60 {
		t.Errorf("a run of 200 nodes allocates %v times", allocs)
	}
}
