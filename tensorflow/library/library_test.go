//go:build interop

package library

import (
	"os"
	"sync"
	"testing"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensorproto"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// open opens the library once for all tests, which may use any file: that of TRYST_TENSORFLOW_LIBRARY, or
// of the Python on PATH.
var open = sync.OnceValues(func() (*Set, error) {
	own := new(goSet)
	s, err := Open(Options{Directory: os.Getenv("TRYST_TENSORFLOW_LIBRARY"), Go: own, Files: AllFiles})
	own.s = s
	return s, err
})

// tensorFlow returns the open library. These tests are built with the tag interop only, so one that is
// absent is a failure.
func tensorFlow(t testing.TB) *Set {
	t.Helper()
	s, err := open()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// session returns a new state. At the end of the test no memory is lent to the library any more.
func session(t testing.TB) (*Set, graph.State) {
	t.Helper()
	s := tensorFlow(t)
	st, err := s.NewState()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(st.Close)
	return s, st
}

func fromProto(p *tfpb.TensorProto) (*tensor.Tensor, error) {
	return tensorproto.FromProto(p, tensor.Heap{})
}

// vector returns a tensor of floats.
func vector(t testing.TB, values ...float32) *tensor.Tensor {
	t.Helper()
	v, err := tensor.FromSlice(tensor.Vector(len(values)), values)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// want compares a tensor of floats, and releases it.
func want(t testing.TB, name string, got *tensor.Tensor, values ...float32) {
	t.Helper()
	if got == nil {
		t.Fatalf("%s was dead or not sent", name)
	}
	defer got.Release()
	v, err := tensor.Values[float32](got)
	if err != nil {
		t.Fatal(err)
	}
	if len(v) != len(values) {
		t.Fatalf("%s is %v, want %v", name, v, values)
	}
	for i := range v {
		if d := v[i] - values[i]; d > 1e-5 || d < -1e-5 {
			t.Fatalf("%s is %v, want %v", name, v, values)
		}
	}
}
