//go:build interop

package tensorflow_test

import (
	"slices"
	"testing"

	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
)

// TestTensorFlowToTryst: what a _Send of TensorFlow sends here arrives bit for
// bit. TensorFlow encodes, we decode.
func TestTensorFlowToTryst(t *testing.T) {
	w := start(t, options{})
	for _, v := range append(smallValues(), largeValues()...) {
		t.Run(v.name, func(t *testing.T) {
			w := w.in(t)
			x := v.make(t, w.alloc)
			defer x.Release()
			g := w.graph()
			g.send("x", g.constant("c", x), x.DType())
			s := w.run(g)
			w.wantValue(s, "x", x)
			s.end()
		})
	}
}

// TestThereAndBack: TensorFlow pulls a value from here by RecvTensor, and sends
// it back. We encode without copying, TensorFlow decodes; that the value is
// still the same shows in what comes back. TensorFlow takes no chunks: whatever
// its size, a tensor goes in one message each way.
func TestThereAndBack(t *testing.T) {
	w := start(t, options{})
	values := append(smallValues(), largeValues()...)
	values = append(values,
		random("resource", tensor.Resource, 3),
		// A VariantTensorDataProto: TensorFlow takes only types that it knows, as int.
		elements("variant", tensor.Variant, []int64{2}, "\n\x03int\x12\x04\x2a\x00\x00\x00", "\n\x03int\x12\x04\xff\xff\xff\xff"))
	if !testing.Short() {
		values = append(values, random("1 GiB", tensor.Float32, 1<<8, 1<<20))
	}
	for _, v := range values {
		t.Run(v.name, func(t *testing.T) {
			w := w.in(t)
			x := v.make(t, w.alloc)
			defer x.Release()
			s := w.run(w.echo(x.DType()))
			w.send(s, "there", x)
			w.wantValue(s, "back", x)
			s.end()
		})
	}
}

// TestDead: the output of a Switch that was not taken reaches us as a dead
// value, and a dead value of ours goes through TensorFlow's graph as one.
func TestDead(t *testing.T) {
	w := start(t, options{})
	t.Run("to Tryst", func(t *testing.T) {
		w := w.in(t)
		taken, one := slice(t, true), slice[float32](t, 1)
		g := w.graph()
		sw := g.add("switch", "Switch", attrs{"T": typeAttr(tensor.Float32)}, g.constant("data", one), g.constant("pred", taken))
		g.send("if_false", sw, tensor.Float32)
		g.send("if_true", sw+":1", tensor.Float32)
		s := w.run(g)
		w.wantDead(s, "if_false")
		w.wantValue(s, "if_true", one)
		s.end()
	})
	t.Run("there and back", func(t *testing.T) {
		w := w.in(t)
		s := w.run(w.echo(tensor.Float32))
		if err := s.Send(w.toTF("there"), rendezvous.Args{}, nil, true); err != nil {
			t.Fatal(err)
		}
		w.wantDead(s, "back")
		s.end()
	})
}

// TestRequestBeforeStep: whoever asks first waits for the other. TensorFlow's
// request for a step that nobody here has heard of is held, and ours for a step
// that TensorFlow has not run yet is held there.
func TestRequestBeforeStep(t *testing.T) {
	w := start(t, options{})
	x := slice[float32](t, 1, 2, 3)
	t.Run("TensorFlow asks first", func(t *testing.T) {
		w := w.in(t)
		s := w.begin(w.soon(), w.register(w.echo(tensor.Float32)))
		w.until("TensorFlow's request", func() bool { return w.steps() == 1 })
		s.Rendezvous = w.server.Rendezvous(s.id)
		w.send(s, "there", x)
		w.wantValue(s, "back", x)
		s.end()
	})
	t.Run("Tryst asks first", func(t *testing.T) {
		w := w.in(t)
		s := w.newStep()
		got := w.receive(s, "back")
		w.send(s, "there", x)
		s.runGraph(w.soon(), w.register(w.echo(tensor.Float32)))
		o := await(t, got, "the value")
		if o.err != nil {
			t.Fatal(o.err)
		}
		defer o.v.Tensor.Release()
		tensortest.RequireEqual(t, x, o.v.Tensor)
		s.end()
	})
}

// TestManySteps: many runs of one graph at once, each in a step of its own, do
// not take each other's values.
func TestManySteps(t *testing.T) {
	const runs = 500
	w := start(t, options{})
	handle := w.register(w.echo(tensor.Int64))
	steps := make([]*step, runs)
	got := make([]<-chan outcome, runs)
	for i := range steps {
		steps[i] = w.begin(w.soon(), handle)
		steps[i].Rendezvous = w.server.Rendezvous(steps[i].id)
		got[i] = w.receive(steps[i], "back")
	}
	for i, s := range slices.Backward(steps) {
		w.send(s, "there", slice(t, int64(i)))
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
