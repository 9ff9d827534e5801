//go:build interop

package tensorflow_test

import (
	"slices"
	"testing"

	"github.com/tryst-rdma/tryst/internal/tensorflow/master"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
)

// TestTensorFlowToTryst: a value that TensorFlow's _Send sends arrives here unchanged. TensorFlow
// encodes, we decode.
func TestTensorFlowToTryst(t *testing.T) {
	bed := start(t, options{})
	for _, v := range append(smallValues(t), largeValues()...) {
		t.Run(v.name, func(t *testing.T) {
			bed := bed.in(t)
			x := v.make(t, bed.alloc)
			defer x.Release()
			g := bed.graph()
			g.send("x", g.Const("c", x), x.DType())
			s := bed.run(g)
			bed.wantValue(s, "x", x)
			s.end()
		})
	}
}

// TestRoundTripThroughTensorFlow: TensorFlow receives a value from here and sends it back
// unchanged. We encode without a copy, and TensorFlow decodes. TensorFlow has no chunks, so a
// tensor of any size is one message in each direction.
func TestRoundTripThroughTensorFlow(t *testing.T) {
	bed := start(t, options{})
	values := append(smallValues(t), largeValues()...)
	values = append(values,
		random("resource", tensor.Resource, 3),
		// A VariantTensorDataProto. TensorFlow accepts only the types that it knows, such as int.
		elements("variant", tensor.Variant, []int64{2}, "\n\x03int\x12\x04\x2a\x00\x00\x00", "\n\x03int\x12\x04\xff\xff\xff\xff"))
	if !testing.Short() {
		values = append(values, random("1 GiB", tensor.Float32, 1<<8, 1<<20))
	}
	for _, v := range values {
		t.Run(v.name, func(t *testing.T) {
			bed := bed.in(t)
			x := v.make(t, bed.alloc)
			defer x.Release()
			s := bed.run(bed.echo(x.DType()))
			bed.send(s, "there", x)
			bed.wantValue(s, "back", x)
			s.end()
		})
	}
}

// TestDead: the output of a Switch that was not taken reaches us as a dead value, and our dead
// value stays dead in TensorFlow's graph.
func TestDead(t *testing.T) {
	bed := start(t, options{})
	t.Run("to Tryst", func(t *testing.T) {
		bed := bed.in(t)
		taken, one := slice(t, true), slice[float32](t, 1)
		g := bed.graph()
		sw := g.Add("switch", "Switch", master.Attrs{"T": master.Type(tensor.Float32)}, g.Const("data", one), g.Const("pred", taken))
		g.send("if_false", sw, tensor.Float32)
		g.send("if_true", sw+":1", tensor.Float32)
		s := bed.run(g)
		bed.wantDead(s, "if_false")
		bed.wantValue(s, "if_true", one)
		s.end()
	})
	t.Run("there and back", func(t *testing.T) {
		bed := bed.in(t)
		s := bed.run(bed.echo(tensor.Float32))
		if err := s.Send(bed.toTF("there"), rendezvous.Args{}, nil, true); err != nil {
			t.Fatal(err)
		}
		bed.wantDead(s, "back")
		s.end()
	})
}

// TestRequestBeforeStep: a request may come before its step. We hold TensorFlow's request until the
// step exists here, and TensorFlow holds ours until it runs the step.
func TestRequestBeforeStep(t *testing.T) {
	bed := start(t, options{})
	x := slice[float32](t, 1, 2, 3)
	t.Run("TensorFlow requests first", func(t *testing.T) {
		bed := bed.in(t)
		s := bed.begin(bed.soon(), bed.register(bed.echo(tensor.Float32)))
		bed.until("TensorFlow's request", func() bool { return bed.steps() == 1 })
		s.Rendezvous = bed.server.Rendezvous(s.id)
		bed.send(s, "there", x)
		bed.wantValue(s, "back", x)
		s.end()
	})
	t.Run("Tryst requests first", func(t *testing.T) {
		bed := bed.in(t)
		s := bed.newStep()
		got := bed.receive(s, "back")
		bed.send(s, "there", x)
		s.runGraph(bed.soon(), bed.register(bed.echo(tensor.Float32)))
		o := await(t, got, "the value")
		if o.err != nil {
			t.Fatal(o.err)
		}
		defer o.v.Tensor.Release()
		tensortest.RequireEqual(t, x, o.v.Tensor)
		s.end()
	})
}

// TestManySteps: concurrent runs of one graph, each in its own step, get their own values.
func TestManySteps(t *testing.T) {
	const runs = 500
	bed := start(t, options{})
	handle := bed.register(bed.echo(tensor.Int64))
	steps := make([]*step, runs)
	got := make([]<-chan outcome, runs)
	for i := range steps {
		steps[i] = bed.begin(bed.soon(), handle)
		steps[i].Rendezvous = bed.server.Rendezvous(steps[i].id)
		got[i] = bed.receive(steps[i], "back")
	}
	for i, s := range slices.Backward(steps) {
		bed.send(s, "there", slice(t, int64(i)))
	}
	for i, s := range steps {
		o := await(t, got[i], "the value")
		if o.err != nil {
			t.Fatal(o.err)
		}
		tensortest.RequireEqual(t, slice(t, int64(i)), o.v.Tensor)
		o.v.Tensor.Release()
		s.end()
	}
}
