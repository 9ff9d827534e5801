//go:build interop

package library

import (
	"context"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// inProcess returns a set whose functions a child of its own runs, confined to directories if there are
// any.
func inProcess(t *testing.T, below ...string) *Set {
	t.Helper()
	own := new(goSet)
	o := Options{Directory: os.Getenv("TRYST_TENSORFLOW_LIBRARY"), Go: own, Process: []string{os.Args[0], asKernelProcess}}
	if len(below) > 0 {
		if err := landlockReady(); err != nil {
			t.Skip(err)
		}
		o.Files, o.Directories = FilesBelow, below
	}
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	own.s = s
	t.Cleanup(s.Close)
	return s
}

func stateOf(t *testing.T, s *Set) graph.State {
	t.Helper()
	st, err := s.NewState()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(st.Close)
	return st
}

// assignAndRead are two graphs over one variable.
func assignAndRead(t *testing.T, s *Set, st graph.State) (assign, read *program) {
	t.Helper()
	assign = newBuilder(t, s).variable("v", 2).recv("x", tensor.Float32).add("assign", "Assign", "v x", "T", tensor.Float32).send("out", "assign").must(st)
	read = newBuilder(t, s).variable("v", 2).send("out", "v").must(st)
	t.Cleanup(assign.close)
	t.Cleanup(read.close)
	return assign, read
}

// TestKernelProcess: values of all kinds pass to the child and back, and errors and cancels.
func TestKernelProcess(t *testing.T) {
	s := inProcess(t)
	st := stateOf(t, s)
	if s.Version() != tensorFlow(t).Version() || len(s.Ops()) != len(tensorFlow(t).Ops()) {
		t.Errorf("TensorFlow %s with %d ops", s.Version(), len(s.Ops()))
	}
	assign, read := assignAndRead(t, s, st)
	x := vector(t, 3, 4)
	if _, err := assign.run(t.Context(), map[string]*tensor.Tensor{"x": x}); err != nil {
		t.Fatal(err)
	}
	out, err := read.run(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	want(t, "v", out["out"], 3, 4)

	p := newBuilder(t, s).recv("x", tensor.String).add("up", "StringUpper", "x").send("out", "up").must(st)
	defer p.close()
	text, err := tensor.FromStrings(tensor.Vector(2), []string{"", strings.Repeat("a", 1000)})
	if err != nil {
		t.Fatal(err)
	}
	out, err = p.run(t.Context(), map[string]*tensor.Tensor{"x": text})
	if err != nil || out["out"].Elements()[1] != strings.Repeat("A", 1000) {
		t.Errorf("%v, %v", out["out"], err)
	}

	handles := newBuilder(t, s).add("q", "FIFOQueueV2", "", "component_types", []tensor.DType{tensor.Float32}, "capacity", 2).
		recv("x", tensor.Float32).add("put", "QueueEnqueueV2", "q x", "Tcomponents", []tensor.DType{tensor.Float32}).
		add("take", "QueueDequeueV2", "q ^put", "component_types", []tensor.DType{tensor.Float32}).send("out", "take").
		add("again", "QueueDequeueV2", "q ^take", "component_types", []tensor.DType{tensor.Float32}).must(st)
	defer handles.close()
	ctx, cancel := context.WithCancel(t.Context())
	handles.after = func(n *graph.Node, out []graph.Value) {
		if n.Name == "take" {
			want(t, "taken", out[0].Tensor.Retain(), 3, 4)
			cancel()
		}
	}
	_, err = handles.run(ctx, map[string]*tensor.Tensor{"x": x})
	if status.CodeOf(err) != status.Cancelled {
		t.Errorf("the second dequeue waits for ever: %v", err)
	}
}

// TestKernelProcessIsKilled: as a failed CHECK does. The step fails in words, and the next session gets
// a new process.
func TestKernelProcessIsKilled(t *testing.T) {
	s := inProcess(t)
	st := stateOf(t, s)
	assign, read := assignAndRead(t, s, st)
	x := vector(t, 3, 4)
	if _, err := assign.run(t.Context(), map[string]*tensor.Tensor{"x": x}); err != nil {
		t.Fatal(err)
	}
	waits := newBuilder(t, s).add("q", "FIFOQueueV2", "", "component_types", []tensor.DType{tensor.Float32}, "capacity", 2).
		add("take", "QueueDequeueV2", "q", "component_types", []tensor.DType{tensor.Float32}).send("out", "take").must(st)
	defer waits.close()
	end := make(chan error, 1)
	go func() {
		_, err := waits.run(t.Context(), nil)
		end <- err
	}()
	for len(as[*state](t, st).waiting) == 0 {
		runtime.Gosched()
	}
	child := as[*process](t, s.engine)
	if err := child.cmd.Process.Signal(syscall.SIGABRT); err != nil {
		t.Fatal(err)
	}
	const words = `TensorFlow's kernel process was killed by SIGABRT: abort, and the variables of its sessions are lost; the next session gets a new one.`
	if err := <-end; status.CodeOf(err) != status.Unavailable || !strings.Contains(err.Error(), words) || !strings.Contains(err.Error(), "[[{{node ") {
		t.Errorf("a step under way: %v", err)
	}
	if _, err := read.run(t.Context(), nil); status.CodeOf(err) != status.Unavailable || !strings.Contains(err.Error(), words) {
		t.Errorf("a step afterwards: %v", err)
	}

	if err := child.ended(); !strings.Contains(err.Error(), "Its last lines: ") || strings.Contains(err.Error(), "PC=") {
		t.Errorf("the last lines: %v", err)
	}

	next := stateOf(t, s)
	assign, read = assignAndRead(t, s, next)
	if _, err := assign.run(t.Context(), map[string]*tensor.Tensor{"x": x}); err != nil {
		t.Fatal(err)
	}
	out, err := read.run(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	want(t, "v", out["out"], 3, 4)

	// A state that several sessions share goes on when a graph is registered again.
	_, read = assignAndRead(t, s, st)
	if _, err := read.run(t.Context(), nil); status.CodeOf(err) != status.FailedPrecondition {
		t.Errorf("a new graph of the old state: %v", err)
	}
}
