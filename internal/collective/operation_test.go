package collective

import (
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// memberRun is what one member does in an operation.
type memberRun func(s *Step, o Operation) (*tensor.Tensor, error)

// run runs an operation of the first device of a process, as the kernel of a node does.
func (p *process) run(t *testing.T, step int64, o Operation, f memberRun) (out *tensor.Tensor, err error) {
	t.Helper()
	o.Name, o.Device = "op", device(p.task.Index, 0)
	if step == groupStep && p.plain { // TensorFlow's eager runtime has kernels there
		return f(p.Step(step), o)
	}
	ended := make(chan struct{})
	p.Run(o.Name, step, func(s *Step) (*tensor.Tensor, error) { return f(s, o) }, func(got *tensor.Tensor, e error) {
		out, err = got, e
		close(ended)
	})
	<-ended
	return out, err
}

// of returns an operation of a group.
func of(size int, key, instance int32) Operation {
	return Operation{GroupSize: size, GroupKey: key, InstanceKey: instance}
}

func reductionOf(t *testing.T, merge, final string, offsets ...int64) Reduction {
	t.Helper()
	r, err := ParseReduction(merge, final, offsets, 0)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func reduces(t *testing.T, in *tensor.Tensor, r Reduction) memberRun {
	return func(s *Step, o Operation) (*tensor.Tensor, error) { return s.AllReduce(t.Context(), o, in, r) }
}

func gathers(t *testing.T, in *tensor.Tensor) memberRun {
	return func(s *Step, o Operation) (*tensor.Tensor, error) { return s.Gather(t.Context(), o, in) }
}

func sends(t *testing.T, in *tensor.Tensor) memberRun {
	return func(s *Step, o Operation) (*tensor.Tensor, error) {
		return in, s.Send(t.Context(), o, in)
	}
}

func receives(t *testing.T, elements int) memberRun {
	return func(s *Step, o Operation) (*tensor.Tensor, error) {
		return s.Receive(t.Context(), o, tensor.Heap{}, tensor.Float32, tensor.Vector(elements))
	}
}

// TestOperationsAmongProcesses runs each operation among three processes, in two steps each.
func TestOperationsAmongProcesses(t *testing.T) {
	n := newNetwork(t, 1, 1, 1)
	n.process(1).plain = true // a TensorFlow worker, for the others
	in := func(rank int) *tensor.Tensor { return slice(t, float32(rank), 6, float32(-rank)) }
	for instance, c := range []struct {
		name string
		want []float32
		run  func(rank int) memberRun
	}{
		{"reduce with an offset", []float32{1, 6, -1}, func(rank int) memberRun { return reduces(t, in(rank), reductionOf(t, "Add", "Div", 0)) }},
		{"reduce", []float32{2, 6, 0}, func(rank int) memberRun { return reduces(t, in(rank), reductionOf(t, "Max", "Id")) }},
		{"gather", []float32{0, 6, 0, 1, 6, -1, 2, 6, -2}, func(rank int) memberRun { return gathers(t, in(rank)) }},
		{"broadcast", []float32{1, 6, -1}, func(rank int) memberRun {
			if rank == 1 {
				return sends(t, in(rank))
			}
			return receives(t, 3)
		}},
	} {
		for step := int64(100); step < 102; step++ {
			errs := each(3, func(rank int) error {
				out, err := n.process(rank).run(t, step, of(3, 5, int32(instance)), c.run(rank))
				if err == nil {
					wantElements(t, c.name, out, c.want...)
				}
				return err
			})
			if err := errors.Join(errs...); err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
		}
	}
}

// TestMistakesInOperations: each error names what is wrong, and ends the operation at all members.
func TestMistakesInOperations(t *testing.T) {
	matrix, err := tensor.FromSlice(mustShape(t, 1, 4), []float32{1, 2, 3, 4})
	if err != nil {
		t.Fatal(err)
	}
	sum := reductionOf(t, "Add", "Id")
	for _, c := range []struct {
		name, text string
		run        func(rank int) memberRun
	}{
		{"shape", "Shape mismatch in the collective instance 1. Op at device", func(rank int) memberRun {
			if rank == 1 {
				return reduces(t, matrix, sum)
			}
			return reduces(t, slice[float32](t, 1, 2, 3, 4), sum)
		}},
		{"kind", "use an instance_key for one operation only", func(rank int) memberRun {
			if rank == 1 {
				return gathers(t, slice[float32](t, 1))
			}
			return reduces(t, slice[float32](t, 1), sum)
		}},
		{"no source", "found no source for broadcast", func(int) memberRun { return receives(t, 1) }},
		{"two sources", "already has source", func(int) memberRun { return sends(t, slice[float32](t, 1)) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNetwork(t, 1, 1)
			errs := each(2, func(rank int) error {
				_, err := n.process(rank).run(t, 7, of(2, 1, 1), c.run(rank))
				return err
			})
			found := false
			for rank, err := range errs {
				if err == nil {
					t.Errorf("rank %d got a result", rank)
				}
				found = found || err != nil && strings.Contains(err.Error(), c.text)
			}
			if !found {
				t.Errorf("no error has %q: %v", c.text, errs)
			}
		})
	}
}

func mustShape(t *testing.T, dims ...int64) tensor.Shape {
	s, err := tensor.NewShape(dims...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestOperationsRefuse(t *testing.T) {
	p := newNetwork(t, 1).process(0)
	one := slice[float32](t, 1)
	scalar, err := tensor.FromSlice(tensor.Shape{}, []float32{1})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, text string
		size       int
		run        memberRun
	}{
		{"a size of 0", "group_size must be positive integer but got 0", 0, gathers(t, one)},
		{"a scalar", "input should have rank > 0", 1, gathers(t, scalar)},
		{"an offset", "subdiv_offsets has 5", 1, reduces(t, one, reductionOf(t, "Add", "Id", 5))},
	} {
		if _, err := p.run(t, 3, of(c.size, 1, 1), c.run); err == nil || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v; want a text with %q", c.name, err, c.text)
		}
		p.EndStep(3)
		p.ended = endedList{}
	}
}

func TestATimeoutEndsAnOperation(t *testing.T) {
	o := of(2, 1, 1)
	o.Timeout = time.Millisecond
	_, err := newNetwork(t, 1, 1).process(0).run(t, 9, o, gathers(t, slice[float32](t, 1)))
	if status.CodeOf(err) != status.DeadlineExceeded || !strings.Contains(err.Error(), timedOutWaiting) {
		t.Error(err)
	}
}

// TestCloseWaitsForOperations: when Close returns none is under way.
func TestCloseWaitsForOperations(t *testing.T) {
	p := newNetwork(t, 1).process(0)
	var ended atomic.Bool
	began := make(chan struct{})
	p.Run("op", 1, func(s *Step) (*tensor.Tensor, error) {
		close(began)
		<-s.ctx.Done()
		for range 1000 {
			runtime.Gosched()
		}
		return nil, errShutdown()
	}, func(*tensor.Tensor, error) { ended.Store(true) })
	<-began
	p.Close()
	if !ended.Load() {
		t.Error("an operation is still under way")
	}
	var after error
	p.Run("op", 1, nil, func(_ *tensor.Tensor, err error) { after = err })
	if status.CodeOf(after) != status.Aborted {
		t.Errorf("an operation after Close: %v", after)
	}
}

// TestAPanicIsTheErrorOfTheOperation: the graph comes from a stranger, and a bug must not end the process.
func TestAPanicIsTheErrorOfTheOperation(t *testing.T) {
	n := newNetwork(t, 1, 1)
	p := n.process(0)
	none := []int{}
	s := p.Step(4)
	done := make(chan error, 1)
	p.Run("op", 4, func(*Step) (*tensor.Tensor, error) { none[len(none)]++; return nil, nil }, func(_ *tensor.Tensor, err error) { done <- err })
	if err := <-done; status.CodeOf(err) != status.Internal || !strings.Contains(err.Error(), "index out of range") || s.ctx.Err() == nil {
		t.Errorf("an operation: %v; the step: %v", err, s.ctx.Err())
	}
	x := p.Step(5).newExchange(t.Context(), group(1), 0, "1", func(error) {})
	x.do(func() error { none[len(none)]++; return nil })
	if err := x.finish(); status.CodeOf(err) != status.Internal || !strings.Contains(err.Error(), "TestAPanic") {
		t.Errorf("a part of an operation: %v", err)
	}
}
