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

// nestedLoops has two loops, each with so many iterations at once. The inner one waits in each iteration.
func nestedLoops(parallel int) string {
	outer := loopGraph(1_000_000, parallel)
	frame := fmt.Sprintf(`T=int32 frame_name="inner" parallel_iterations=%d`, parallel)
	return outer + fmt.Sprintf(`
		ie = Enter(s:1) %s
		ionec = Enter(onec) %s is_constant=true
		ilimitc = Enter(limitc) %s is_constant=true
		im = Merge(ie, in) T=int32 N=2
		il = Less(im, ilimitc) T=int32
		ic = LoopCond(il)
		is = Switch(im, ic) T=int32
		ib = AddV2(is:1, ionec) T=int32
		in = NextIteration(ib) T=int32
		wait = Wait(is:1)
		`, frame, frame, frame)
}

// TestIterationsOfNestedLoopsAreBounded: 64 iterations of 64 iterations would wait at once. Each loop
// has one iteration at least.
func TestIterationsOfNestedLoopsAreBounded(t *testing.T) {
	for _, tc := range []struct{ ahead, least, most int }{{0, 1, 1}, {100, 20, 110}, {1_000_000, 64 * 64, 64 * 64}} {
		synctest.Test(t, func(t *testing.T) {
			s := newFakeSet()
			waiting := 0
			s.ops["Wait"] = fakeOp{def: s.ops["Zero"].def, kernel: asyncKernel(func(c *Context, done func(error)) {
				waiting++ // one place: one kernel begins at a time
				blocked(c, done)
			})}
			e, err := NewExecutor(importGraph(t, s, nestedLoops(64)), s)
			if err != nil {
				t.Fatal(err)
			}
			e.state = int64(tc.ahead) * e.plan.frames[2].state
			ctx, cancel := context.WithCancel(t.Context())
			go func() { _ = e.Run(ctx, &Step{Workers: NewWorkers(1), Allocator: tensor.Heap{}}) }()
			synctest.Wait()
			if waiting < tc.least || waiting > tc.most {
				t.Errorf("%d iterations wait, want %d to %d", waiting, tc.least, tc.most)
			}
			cancel()
		})
	}
}

// TestALoopEndsWithoutSpace: iterations that may not run ahead run one after another.
func TestALoopEndsWithoutSpace(t *testing.T) {
	s := newFakeSet()
	e, err := NewExecutor(importGraph(t, s, loopGraph(1000, 10)+fetch("r", "x")), s)
	if err != nil {
		t.Fatal(err)
	}
	e.state = 0
	m := newMailbox()
	if err := e.Run(t.Context(), &Step{Allocator: tensor.Heap{}, Collectives: m}); err != nil || scalar(t, m.values()["r"]) != 1000 {
		t.Error(m.values(), err)
	}
}

// TestCallsUnderWayAreBounded: a function that calls itself twice has 2^256 calls before one of them
// is too deep.
func TestCallsUnderWayAreBounded(t *testing.T) {
	f := function(t, "f(x: int32) -> (y: int32)", "a = f(x)\nb = f(x)\ns = AddV2(a:y:0, b:y:0) T=int32\ny <- s:z:0")
	s := newFakeSet()
	g, err := Import(withLibrary(t, three+"c = f(three)", f), ImportOptions{Set: s})
	if err != nil {
		t.Fatal(err)
	}
	e, err := NewExecutor(g, s)
	if err != nil {
		t.Fatal(err)
	}
	e.state = 1 << 20
	err = e.Run(t.Context(), &Step{Allocator: tensor.Heap{}})
	checkError(t, "recursion", err, status.ResourceExhausted, `function "f": with this call the calls and iterations under way in the step take more than 1048576 bytes`)
	if !strings.Contains(err.Error(), "call itself less often") {
		t.Error(err)
	}
}

// TestCallsUnderWayAreReserved: they fit into the memory of the step, and give it back.
func TestCallsUnderWayAreReserved(t *testing.T) {
	f := function(t, "f(x: int32) -> (y: int32)", "a = f(x)\nb = f(x)\ns = AddV2(a:y:0, b:y:0) T=int32\ny <- s:z:0")
	s := newFakeSet()
	g, err := Import(withLibrary(t, three+"c = f(three)", f), ImportOptions{Set: s})
	if err != nil {
		t.Fatal(err)
	}
	e, err := NewExecutor(g, s)
	if err != nil {
		t.Fatal(err)
	}
	e.state = 16 << 20
	var refused atomic.Bool
	pool := tensor.NewPool(tensor.PoolOptions{Limit: 1 << 20, Refused: func(error) { refused.Store(true) }})
	err = e.Run(t.Context(), &Step{Allocator: pool})
	checkError(t, "recursion", err, status.ResourceExhausted, "or than the process has left")
	if !refused.Load() {
		t.Error("the calls took more than the memory of the step has")
	}
	if n := pool.Stats().InUse; n != 0 {
		t.Errorf("%d bytes are reserved afterwards", n)
	}
}
