package safetensors_test

import (
	"bytes"
	"testing"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/safetensors"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
)

// The files in testdata are the reference implementation's (testdata/make.py).

var referenceTypes = map[string]tensor.DType{
	"t.bool":            tensor.Bool,
	"t.uint8":           tensor.Uint8,
	"t.int8":            tensor.Int8,
	"t.float8_e5m2":     tensor.Float8E5M2,
	"t.float8_e4m3fn":   tensor.Float8E4M3FN,
	"t.float8_e4m3fnuz": tensor.Float8E4M3FNUZ,
	"t.float8_e5m2fnuz": tensor.Float8E5M2FNUZ,
	"t.int16":           tensor.Int16,
	"t.uint16":          tensor.Uint16,
	"t.float16":         tensor.Float16,
	"t.bfloat16":        tensor.BFloat16,
	"t.int32":           tensor.Int32,
	"t.uint32":          tensor.Uint32,
	"t.float32":         tensor.Float32,
	"t.complex64":       tensor.Complex64,
	"t.float64":         tensor.Float64,
	"t.int64":           tensor.Int64,
	"t.uint64":          tensor.Uint64,
}

func TestReadReferenceTypes(t *testing.T) {
	f := mustOpen(t, golden(t, "dtypes.safetensors"))
	if len(f.Tensors()) != len(referenceTypes) {
		t.Fatalf("%d tensors, want %d", len(f.Tensors()), len(referenceTypes))
	}
	a := tensortest.NewAllocator(t)
	for _, info := range f.Tensors() {
		got, err := f.Read(info.Name, a)
		if err != nil {
			t.Fatal(err)
		}
		want := counting(t, referenceTypes[info.Name], tensor.Vector(2))
		if !tensor.Equal(got, want) || got.Name() != info.Name {
			t.Errorf("%s: got %v named %q with % x, want %v with % x", info.Name, got, got.Name(), got.Bytes(), want, want.Bytes())
		}
		got.Release()
	}
}

func TestReadReferenceShapes(t *testing.T) {
	f := mustOpen(t, golden(t, "shapes.safetensors"))
	if f.Metadata()["format"] != "pt" || len(f.Metadata()) != 1 {
		t.Errorf("metadata is %v", f.Metadata())
	}
	for _, c := range []struct {
		name string
		want func() (*tensor.Tensor, error)
	}{
		{"scalar", func() (*tensor.Tensor, error) { return tensor.FromSlice(tensor.Shape{}, []float32{1.5}) }},
		{"empty", func() (*tensor.Tensor, error) { return tensor.FromSlice(shape(t, 3, 0), []tensor.Float16Bits{}) }},
		{"matrix", func() (*tensor.Tensor, error) {
			return tensor.FromSlice(shape(t, 2, 3), []int32{1, -2, 3, -4, 5, -6})
		}},
		{"bytes", func() (*tensor.Tensor, error) { return tensor.FromSlice(shape(t, 1, 3), []byte("abc")) }},
		{"quo\"te\\<&>\tä😀", func() (*tensor.Tensor, error) { return tensor.FromSlice(tensor.Vector(1), []byte{7}) }},
	} {
		want, err := c.want()
		if err != nil {
			t.Fatal(err)
		}
		got, err := f.Read(c.name, tensor.Heap{})
		if err != nil {
			t.Error(err)
			continue
		}
		if !tensor.Equal(got, want) {
			t.Errorf("%s: got %v % x, want %v % x", c.name, got, got.Bytes(), want, want.Bytes())
		}
	}
	_, err := f.Read("absent", tensor.Heap{})
	wantCode(t, err, status.NotFound)
}

// A type that package tensor lacks is read as its bytes.
func TestReadPackedTypes(t *testing.T) {
	f := mustOpen(t, golden(t, "fp4.safetensors"))
	x, err := f.Read("w.fp4", tensortest.NewAllocator(t))
	if err != nil {
		t.Fatal(err)
	}
	defer x.Release()
	if info, _ := f.Lookup("w.fp4"); info.Packed.String() != "F4[4]" || x.String() != "uint8[2]" || string(x.Bytes()) != "\x12\x34" {
		t.Errorf("%v is read as %v with % x", info.Packed, x, x.Bytes())
	}
	for _, c := range []struct {
		p    safetensors.Packed
		want string
	}{
		{safetensors.Packed{Type: "F8_E8M0", Shape: shape(t, 2, 3)}, "uint8[2,3]"},
		{safetensors.Packed{Type: "F8_E8M0"}, "uint8[]"},
		{safetensors.Packed{Type: "F4", Shape: shape(t, 2, 3)}, "uint8[3]"},
		{safetensors.Packed{Type: "F6_E2M3", Shape: shape(t, 2, 6)}, "uint8[9]"},
		{safetensors.Packed{Type: "F6_E3M2", Shape: shape(t, 4)}, "uint8[3]"},
		{safetensors.Packed{Type: "F4", Shape: shape(t, 5, 0)}, "uint8[0]"},
	} {
		d, s, err := c.p.Tensor()
		if got := d.String() + s.String(); err != nil || got != c.want {
			t.Errorf("%v is %s, %v; want %s", c.p, got, err, c.want)
		}
	}
	for _, p := range []safetensors.Packed{{}, {Type: "F32"}, {Type: "F4"}, {Type: "F6_E2M3", Shape: shape(t, 2)}} {
		_, _, err := p.Tensor()
		wantCode(t, err, status.InvalidArgument)
	}
}

// TestWriteReferenceBytes writes what was read, sorted as the reference does,
// and gets the reference's file.
func TestWriteReferenceBytes(t *testing.T) {
	for _, name := range []string{"dtypes.safetensors", "shapes.safetensors", "none.safetensors", "fp4.safetensors"} {
		want := golden(t, name)
		f := mustOpen(t, want)
		var specs []safetensors.Spec
		for _, info := range f.Tensors() {
			specs = append([]safetensors.Spec{info.Spec}, specs...)
		}
		safetensors.Sort(specs)
		var got bytes.Buffer
		w, err := safetensors.NewWriter(&got, specs, f.Metadata())
		if err != nil {
			t.Fatal(err)
		}
		for _, spec := range specs {
			x, err := f.Read(spec.Name, tensor.Heap{})
			if err != nil {
				t.Fatal(err)
			}
			if err := w.Write(spec.Name, x); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.Bytes(), want) {
			t.Errorf("%s:\ngot  %q\nwant %q", name, got.Bytes(), want)
		}
		if w.Size() != int64(len(want)) || f.Size() != int64(len(want)) {
			t.Errorf("%s: sizes %d and %d, want %d", name, w.Size(), f.Size(), len(want))
		}
	}
}
