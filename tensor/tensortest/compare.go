package tensortest

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/tryst-rdma/tryst/tensor"
)

// RequireEqual fails the test, with the first difference, unless both tensors have
// the same type, shape and elements. Floats are compared bit by bit. Names are not
// compared.
func RequireEqual(t testing.TB, want, got *tensor.Tensor) {
	t.Helper()
	if diff := Diff(want, got); diff != "" {
		t.Fatal(diff)
	}
}

// Diff describes the first difference of got from want in one line; "" when they
// are equal.
func Diff(want, got *tensor.Tensor) string {
	switch {
	case want == nil || got == nil:
		if want == got {
			return ""
		}
		return fmt.Sprintf("got tensor %v, want %v", got, want)
	case want.DType() != got.DType() || !want.Shape().Equal(got.Shape()):
		return fmt.Sprintf("got tensor %v, want %v", got, want)
	case tensor.Equal(want, got):
		return ""
	}
	if size := want.DType().Size(); size > 0 {
		w, g := want.Bytes(), got.Bytes()
		for i := 0; i < len(w); i += size {
			if !bytes.Equal(w[i:i+size], g[i:i+size]) {
				return fmt.Sprintf("element %d of %v is % x, want % x", i/size, got, g[i:i+size], w[i:i+size])
			}
		}
	}
	w, g := want.Elements(), got.Elements()
	for i := range w {
		if w[i] != g[i] {
			return fmt.Sprintf("element %d of %v is %.100q, want %.100q", i, got, g[i], w[i])
		}
	}
	return fmt.Sprintf("%v: tensor.Equal is false, but the elements are equal", got)
}
