package rendezvous_test

import (
	"context"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// intoCase is a rendezvous whose sender and receiver are one process.
type intoCase struct {
	name string
	r    rendezvous.Rendezvous
}

func intoCases(t *testing.T) []intoCase {
	b := rendezvous.NewBaseRemote(1, nil)
	if err := b.Initialize(session(t)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	p := rendezvous.NewIntraProcess(nil)
	t.Cleanup(p.Close)
	return []intoCase{{"BaseRemote", b}, {"IntraProcess", p}}
}

// receiveInto receives into dst, by Recv or RecvAsync.
func receiveInto(ctx context.Context, t *testing.T, r rendezvous.Rendezvous, k rendezvous.Key, dst *tensor.Tensor, async bool) (rendezvous.Value, error) {
	t.Helper()
	into, err := rendezvous.NewInto(dst)
	if err != nil {
		t.Fatal(err)
	}
	if !async {
		return r.Recv(ctx, k, into.Args())
	}
	type outcome struct {
		v   rendezvous.Value
		err error
	}
	c := make(chan outcome, 1)
	r.RecvAsync(ctx, k, into.Args(), func(v rendezvous.Value, _ rendezvous.Args, err error) { c <- outcome{v, err} })
	o := <-c
	return o.v, o.err
}

func forInto(t *testing.T, do func(t *testing.T, r rendezvous.Rendezvous, async bool)) {
	for _, async := range []bool{false, true} {
		for _, c := range intoCases(t) {
			name := c.name + "/Recv"
			if async {
				name = c.name + "/RecvAsync"
			}
			t.Run(name, func(t *testing.T) { do(t, c.r, async) })
		}
	}
}

// TestRecvIntoOfALocalValue: the value of a sender in this process is copied into the
// receiver's memory, which has no other reference afterwards than those of the receiver.
func TestRecvIntoOfALocalValue(t *testing.T) {
	forInto(t, func(t *testing.T, r rendezvous.Rendezvous, async bool) {
		c := counted(t)
		k := key(t, "v")
		x, dst := c.make(7), c.make(0)
		defer dst.Release()
		if err := r.Send(k, noArgs, x, false); err != nil {
			t.Fatal(err)
		}
		v, err := receiveInto(t.Context(), t, r, k, dst, async)
		if err != nil {
			t.Fatal(err)
		}
		if v.Tensor.Buffer() != dst.Buffer() || !tensor.Equal(x, dst) {
			t.Errorf("received %v over other memory, or other content", v.Tensor)
		}
		x.Release()
		v.Tensor.Release()
		if !dst.Buffer().Unique() {
			t.Error("the memory still has another reference")
		}
	})
}

// TestRecvIntoThatDoesNotFitConsumesNothing: the error names both, and the next receive
// gets the value, before those that were sent later.
func TestRecvIntoThatDoesNotFitConsumesNothing(t *testing.T) {
	forInto(t, func(t *testing.T, r rendezvous.Rendezvous, async bool) {
		c := counted(t)
		k := key(t, "v")
		dst, err := tensor.Allocate(c.alloc, tensor.Float32, tensor.Vector(2)) // as many bytes
		if err != nil {
			t.Fatal(err)
		}
		defer dst.Release()
		for n := range 2 {
			x := c.make(n)
			if err := r.Send(k, noArgs, x, false); err != nil {
				t.Fatal(err)
			}
			x.Release()
		}
		_, err = receiveInto(t.Context(), t, r, k, dst, async)
		if status.CodeOf(err) != status.InvalidArgument || !strings.Contains(err.Error(), "int64[]") || !strings.Contains(err.Error(), "float[2]") {
			t.Fatalf("got %v, want InvalidArgument that names both types", err)
		}
		for n := range 2 {
			v, err := r.Recv(t.Context(), k, noArgs)
			if err != nil {
				t.Fatal(err)
			}
			want := c.make(n)
			if !tensor.Equal(want, v.Tensor) {
				t.Errorf("value %d is another one", n)
			}
			want.Release()
			v.Tensor.Release()
		}
	})
}

// TestRecvIntoOfADeadValue: the destination stays as it was.
func TestRecvIntoOfADeadValue(t *testing.T) {
	forInto(t, func(t *testing.T, r rendezvous.Rendezvous, async bool) {
		c := counted(t)
		k := key(t, "v")
		dst, was := c.make(5), c.make(5)
		defer dst.Release()
		defer was.Release()
		if err := r.Send(k, noArgs, nil, true); err != nil {
			t.Fatal(err)
		}
		v, err := receiveInto(t.Context(), t, r, k, dst, async)
		if err != nil {
			t.Fatal(err)
		}
		v.Tensor.Release()
		if !v.Dead || !tensor.Equal(dst, was) || !dst.Buffer().Unique() {
			t.Errorf("dead %v; the destination was touched, or has another reference", v.Dead)
		}
	})
}

// TestRecvIntoMemoryInUse: memory with another reference is refused, and nothing is
// consumed; a cancelled receive gives its memory back.
func TestRecvIntoMemoryInUse(t *testing.T) {
	forInto(t, func(t *testing.T, r rendezvous.Rendezvous, async bool) {
		c := counted(t)
		k := key(t, "v")
		dst := c.make(0)
		defer dst.Release()
		dst.Retain()
		if _, err := receiveInto(t.Context(), t, r, k, dst, async); status.CodeOf(err) != status.FailedPrecondition {
			t.Errorf("got %v, want FailedPrecondition", err)
		}
		dst.Release()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := receiveInto(ctx, t, r, k, dst, async); status.CodeOf(err) != status.Cancelled {
			t.Errorf("got %v, want Cancelled", err)
		}
		if !dst.Buffer().Unique() {
			t.Error("a cancelled receive keeps a reference")
		}
	})
}

// TestIntoOfStrings: strings have no memory that could be written to.
func TestIntoOfStrings(t *testing.T) {
	x, err := tensor.FromStrings(tensor.Vector(1), []string{"a"})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Release()
	if _, err := rendezvous.NewInto(x); status.CodeOf(err) != status.InvalidArgument {
		t.Errorf("got %v, want InvalidArgument", err)
	}
}
