//go:build interop

package tensorflow_test

import (
	"testing"

	"github.com/tryst-rdma/tryst/internal/tensorflow/master"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
)

// TestGoMasterFeedsAndFetches: a Go program feeds values to a stock TensorFlow worker and fetches
// them, in the messages of RunGraph.
func TestGoMasterFeedsAndFetches(t *testing.T) {
	bed := start(t, options{})
	for _, v := range smallValues(t) {
		t.Run(v.name, func(t *testing.T) {
			bed := bed.in(t)
			x := v.make(t, bed.alloc)
			defer x.Release()
			g := bed.session.NewGraph()
			g.Fetch("y", g.Identity("same", g.Feed("x", x.DType()), x.DType()), x.DType())
			got := bed.fetch(g, map[string]*tensor.Tensor{"x": x})
			defer got["y"].Release()
			tensortest.RequireEqual(t, x, got["y"])
		})
	}
}

// TestGoMasterVariables: variables keep their values from step to step, two sessions share them, and
// an isolated session has its own.
func TestGoMasterVariables(t *testing.T) {
	bed := start(t, options{})
	counter := func(s *master.Session) *master.Program {
		g := s.NewGraph()
		f := master.Type(tensor.Float32)
		v := g.AddNamed("counter", "VariableV2", master.Attrs{"dtype": f, "shape": master.Shape(tensor.Shape{})})
		set := g.AddNamed("set", "Assign", master.Attrs{"T": f}, v, g.Feed("x", tensor.Float32))
		g.Fetch("y", g.Identity("value", set, tensor.Float32), tensor.Float32)
		p, err := s.Register(bed.soon(), g)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	for name, isolate := range map[string]bool{"shared": false, "isolated": true} {
		t.Run(name, func(t *testing.T) {
			bed := bed.in(t)
			s, err := master.Open(bed.soon(), bed.tf, master.Options{Isolate: isolate})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := s.Close(bed.soonAfterTest()); err != nil {
					t.Error(err)
				}
			}()
			values, err := counter(s).Step(bed.soon(), map[string]*tensor.Tensor{"x": slice[float32](t, 3)})
			if err != nil {
				t.Fatal(err)
			}
			tensortest.RequireEqual(t, slice[float32](t, 3), values["y"])

			g := bed.session.NewGraph()
			f := master.Type(tensor.Float32)
			v := g.AddNamed("counter", "VariableV2", master.Attrs{"dtype": f, "shape": master.Shape(tensor.Shape{})})
			g.Fetch("is", g.Add("is", "IsVariableInitialized", master.Attrs{"dtype": f}, v), tensor.Bool)
			is := bed.fetch(g, nil)
			tensortest.RequireEqual(t, slice(t, !isolate), is["is"])
			if _, err := bed.tf.CleanupAll(bed.soon(), nil); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestGoMasterError: the error of a kernel of the worker has TensorFlow's code and text.
func TestGoMasterError(t *testing.T) {
	bed := start(t, options{})
	g := bed.session.NewGraph()
	bad := g.Add("check", "CheckNumerics", master.Attrs{"T": master.Type(tensor.Float32), "message": master.Text("not finite")}, g.Feed("x", tensor.Float32))
	g.Fetch("y", bad, tensor.Float32)
	p, err := bed.session.Register(bed.soon(), g)
	if err != nil {
		t.Fatal(err)
	}
	zero := float32(0)
	_, err = p.Step(bed.soon(), map[string]*tensor.Tensor{"x": slice(t, 1/zero)})
	wantError(t, err, status.InvalidArgument, "not finite : Tensor had Inf values")
}

// fetch registers a graph, runs it once and returns its fetches.
func (bed *testbed) fetch(g *master.Graph, feeds map[string]*tensor.Tensor) map[string]*tensor.Tensor {
	bed.t.Helper()
	p, err := bed.session.Register(bed.soon(), g)
	if err != nil {
		bed.t.Fatal(err)
	}
	values, err := p.Step(bed.soon(), feeds)
	if err != nil {
		bed.t.Fatal(err)
	}
	return values
}
