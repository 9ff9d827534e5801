package graph

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

func TestExecutorRunsInOrderOfInputs(t *testing.T) {
	out, err := runGraph(t, newFakeSet(), `
		c = Const() dtype=int32 value=#1
		two = AddV2(c, c) T=int32
		three = AddV2(two, c) T=int32
		six = AddV2(three, three) T=int32`+fetch("x", "six"))
	if err != nil {
		t.Fatal(err)
	}
	if got := scalar(t, out["x"]); got != 6 {
		t.Errorf("x = %d", got)
	}
}

func TestExecutorRunsAgainAndAtOnce(t *testing.T) {
	s := newFakeSet()
	e, err := NewExecutor(importGraph(t, s, "c = Const() dtype=int32 value=#1\ni = AddV2(c, c) T=int32"+fetch("x", "i")), s)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				m := newMailbox()
				if err := e.Run(t.Context(), &Step{Allocator: tensor.Heap{}, Collectives: m}); err != nil {
					t.Error(err)
				}
				if got := scalar(t, m.values()["x"]); got != 2 {
					t.Errorf("x = %d", got)
				}
			}
		})
	}
	wg.Wait()
}

// order records the order in which nodes ran.
type order struct {
	mu    sync.Mutex
	names []string
}

func (o *order) observe(r NodeRun) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.names = append(o.names, r.Node.Name)
}

func TestExecutorKeepsControlEdges(t *testing.T) {
	s := newFakeSet()
	e, err := NewExecutor(importGraph(t, s, "d = NoOp(^c)\nc = NoOp(^b)\nb = NoOp(^a)\na = NoOp()"), s)
	if err != nil {
		t.Fatal(err)
	}
	var o order
	if err := e.Run(t.Context(), &Step{Observe: o.observe}); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(o.names, ""); got != "abcd" {
		t.Errorf("order %s", got)
	}
}

func TestExecutorReportsTheRootError(t *testing.T) {
	_, err := runGraph(t, newFakeSet(), `
		d = Fail() derived=true text="derived"
		c = NoOp()
		f = Fail(^c) text="root"
		b = Block()`)
	if status.IsDerived(err) && status.CodeOf(err) == status.Cancelled {
		t.Errorf("the error of a stopped kernel: %v", err)
	}
	_, err = runGraph(t, newFakeSet(), "f = Fail() text=\"root\"\nb = Block()\nn = NoOp(^f)\ng = Fail(^n) text=\"later\"")
	checkError(t, "root", err, status.InvalidArgument, "root\n\t [[{{node f}}]]")
	if strings.Contains(err.Error(), "later") {
		t.Errorf("a node behind the one that failed has run: %v", err)
	}
}

func TestExecutorPrefersRootErrorsToDerivedOnes(t *testing.T) {
	s := newFakeSet()
	g := importGraph(t, s, "a = Block()")
	e, err := NewExecutor(g, s)
	if err != nil {
		t.Fatal(err)
	}
	stopped := status.New(status.Cancelled, "stopped")
	root, derived := status.New(status.Internal, "root"), status.New(status.Aborted, "derived").Derived()
	for _, list := range [][]error{{derived, root}, {root, derived}, {derived, root, status.New(status.Internal, "third")}, {root, stopped}, {derived, stopped, root}} {
		r := e.newRun(t.Context(), &Step{}, nil)
		for _, err := range list {
			r.fail(err)
		}
		if !errors.Is(r.err, root) {
			t.Errorf("%v: got %v", list, r.err)
		}
		r.stop(nil)
	}
}

func TestExecutorEndsWithItsContext(t *testing.T) {
	s := newFakeSet()
	e, err := NewExecutor(importGraph(t, s, "b = Block()\nn = NoOp(^b)"), s)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error)
	go func() { done <- e.Run(ctx, &Step{}) }()
	cancel(status.New(status.Unavailable, "the peer is gone"))
	err = <-done
	checkError(t, "cancel", err, status.Cancelled, "Step was cancelled: the peer is gone")
	if !status.IsDerived(err) {
		t.Error("the error is not derived")
	}
	ctx2, cancel2 := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel2()
	checkError(t, "deadline", e.Run(ctx2, &Step{}), status.DeadlineExceeded, "Timed out waiting for the step")
}

func TestExecutorChecksOutputs(t *testing.T) {
	for lines, want := range map[string]string{
		"e = Empty()":     "Missing 0-th output from {{node e}}: the kernel of op Empty did not set it to a value of type float",
		"w = WrongType()": "the kernel of op WrongType set output 0 to a tensor of type int32, and the node declares float\n\t [[{{node w}}]]",
		"p = Panic()":     "the kernel of op Panic panicked, which is a bug: runtime error: index out of range",
	} {
		_, err := runGraph(t, newFakeSet(), lines)
		checkError(t, lines, err, status.Internal, want)
	}
}

// TestX5RecvInvalidRefDtype: a reference to a variable of another type than the node declares ends the step
// with Internal, before a _Send reads it.
func TestX5RecvInvalidRefDtype(t *testing.T) {
	_, err := runGraph(t, newFakeSet(), "w = WrongRefType()\nout = _Send(w) T=float tensor_name=\"out\""+sendAttrs)
	checkError(t, "WrongRefType", err, status.Internal, "the kernel of op WrongRefType set output 0 to a variable of type int32, and the node declares float_ref\n\t [[{{node w}}]]")
}

func TestExecutorReadsVariables(t *testing.T) {
	s := newFakeSet()
	const vars = "v = VariableV2() dtype=int32\n"
	run := func(lines string) (map[string]Value, error) {
		def := parseGraph(t, vars+lines)
		def.Node[0].Attr["shape"] = shapeAttr()
		g, err := Import(def, ImportOptions{Set: s})
		if err != nil {
			t.Fatal(err)
		}
		return runGraphs(t, s, g)
	}
	const c = "c = Const() dtype=int32 value=#7\n"
	_, err := run("i = Identity(v) T=int32")
	checkError(t, "read", err, status.FailedPrecondition, "Attempting to use uninitialized value v\n\t [[{{node i}}]]")
	_, err = run("i = CountUpTo(v) T=int32")
	checkError(t, "reference", err, status.FailedPrecondition, "Attempting to use uninitialized value v\n\t [[{{node i}}]]")
	if _, err := run(c + "a = Assign(v, c) T=int32"); err != nil {
		t.Fatal(err)
	}
	out, err := run("i = Identity(v) T=int32" + fetch("x", "i") + fetch("y", "v"))
	if err != nil || scalar(t, out["x"]) != 7 || scalar(t, out["y"]) != 7 {
		t.Errorf("read %v, %v", out, err)
	}
}

func TestExecutorSwitchLive(t *testing.T) {
	out, err := runGraph(t, newFakeSet(), switchGraph(1))
	if err != nil || out["false"].Tensor != nil || !out["false"].Dead || scalar(t, out["true"]) != 1 || scalar(t, out["merged"]) != 1 || scalar(t, out["index"]) != 1 {
		t.Errorf("%+v, %v", out, err)
	}
}

func TestExecutorSwitchDead(t *testing.T) {
	out, err := runGraph(t, newFakeSet(), switchGraph(5))
	if err != nil || !out["true"].Dead || scalar(t, out["false"]) != 5 || scalar(t, out["merged"]) != 5 || scalar(t, out["index"]) != 0 {
		t.Errorf("%+v, %v", out, err)
	}
}

// switchGraph takes the true branch when v is below 3.
func switchGraph(v int) string {
	return `
		v = Const() dtype=int32 value=#` + string(rune('0'+v)) + `
		limit = Const() dtype=int32 value=#3
		pred = Less(v, limit) T=int32
		s = Switch(v, pred) T=int32
		f = Identity(s) T=int32
		t = Identity(s:1) T=int32
		m = Merge(f, t) T=int32 N=2
		trigger = ControlTrigger(^f, ^t)
		nine = Const(^trigger) dtype=int32 value=#9
	` + fetch("false", "f") + fetch("true", "t") + fetch("merged", "m") + fetch("index", "m:1") + fetch("after", "nine")
}

// TestExecutorReleasesEverything counts the references of a buffer that passes through all kinds of
// edges, also when the run fails half-way.
func TestExecutorReleasesEverything(t *testing.T) {
	for _, fails := range []bool{false, true} {
		s := newFakeSet()
		var live atomic.Int64
		counted(s, &live)
		lines := `
			a = Source()
			unused = Source()
			i = Identity(a) T=float
			j = Identity(a, ^i) T=float
			p = Const() dtype=int32 value=#1
			b = Less(p, p) T=int32
			sw = Switch(j, b) T=float
			m = Merge(sw, sw:1, j) T=float N=3
			w = AddN(m, a, sw:1) T=float N=3`
		if fails {
			lines += "\nf = Fail(^i)\nlast = AddN(a, m, ^b2) T=float N=2\nb2 = Block()"
		}
		_, err := runGraph(t, s, lines)
		if (err != nil) != fails {
			t.Errorf("fails=%v: %v", fails, err)
		}
		if n := live.Load(); n != 0 {
			t.Errorf("fails=%v: %d buffers are left", fails, n)
		}
	}
}

// TestErrorNamesOneNode: the one that failed, not also those that pass the error on.
func TestErrorNamesOneNode(t *testing.T) {
	err := NodeError("first", status.New(status.InvalidArgument, "wrong"))
	if again := NodeError("second", err); again.Error() != err.Error() || !strings.Contains(err.Error(), "{{node first}}") {
		t.Errorf("%v", again)
	}
}
