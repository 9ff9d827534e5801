package safetensors_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/safetensors"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
)

// memoryFile is an io.WriterAt that grows.
type memoryFile struct {
	mu sync.Mutex // protects b
	b  []byte
}

func (m *memoryFile) WriteAt(p []byte, off int64) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if need := int(off) + len(p); need > len(m.b) {
		m.b = append(m.b, make([]byte, need-len(m.b))...)
	}
	return copy(m.b[off:], p), nil
}

func specsOf(tensors []*tensor.Tensor) []safetensors.Spec {
	var specs []safetensors.Spec
	for _, x := range tensors {
		specs = append(specs, safetensors.Spec{Name: x.Name(), DType: x.DType(), Shape: x.Shape()})
	}
	return specs
}

// everything returns tensors of every type in several shapes.
func everything(t testing.TB) []*tensor.Tensor {
	var all []*tensor.Tensor
	deep := make([]int64, tensor.MaxDims)
	for i := range deep {
		deep[i] = 1
	}
	deep[100] = 3
	for d := tensor.Float32; d <= tensor.Uint2; d++ {
		if !safetensors.Supported(d) {
			continue
		}
		for i, s := range []tensor.Shape{{}, tensor.Vector(0), tensor.Vector(5), shape(t, 2, 0, 3), shape(t, 2, 3, 4), shape(t, deep...)} {
			all = append(all, counting(t, d, s).Named(fmt.Sprintf("%v.%d", d, i)))
		}
	}
	return all
}

func TestRoundTrip(t *testing.T) {
	all := everything(t)
	if len(all) != 6*len(referenceTypes) {
		t.Fatalf("%d tensors; a type is missing", len(all))
	}
	metadata := map[string]string{"z": "<last>", "a": "ä\n\u2028", "": ""}
	var streamed bytes.Buffer
	w, err := safetensors.NewWriter(&streamed, specsOf(all), metadata)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range all {
		if err := w.Write(x.Name(), x); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}

	f := mustOpen(t, streamed.Bytes())
	for i, info := range f.Tensors() {
		x, err := f.Read(info.Name, tensortest.NewAllocator(t))
		if err != nil {
			t.Fatal(err)
		}
		if !tensor.Equal(x, all[i]) || info.Name != all[i].Name() {
			t.Errorf("%v %q came back as %v %q", all[i], all[i].Name(), x, info.Name)
		}
		x.Release()
	}
	if fmt.Sprint(f.Metadata()) != fmt.Sprint(metadata) {
		t.Errorf("metadata %v came back as %v", metadata, f.Metadata())
	}

	t.Run("any order gives the same bytes", func(t *testing.T) {
		var m memoryFile
		w, err := safetensors.NewWriterAt(&m, specsOf(all), metadata)
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for i := range all {
			x := all[len(all)-1-i]
			wg.Go(func() {
				if err := w.Write(x.Name(), x); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(m.b, streamed.Bytes()) || w.Size() != int64(len(m.b)) {
			t.Error("other bytes than the streaming writer's")
		}
	})
}

func TestSortAligns(t *testing.T) {
	all := everything(t)
	specs := specsOf(all)
	safetensors.Sort(specs)
	w, err := safetensors.NewWriter(io.Discard, specs, map[string]string{"odd": "x"})
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range w.Tensors() {
		size := int64(info.DType.Size())
		if info.DType == tensor.Complex64 {
			size = 4 // of one part, which is what Go aligns it to
		}
		if info.Offset%size != 0 {
			t.Errorf("%s begins at %d", info.Name, info.Offset)
		}
	}
	if first := w.Tensors()[0].Offset; first%8 != 0 {
		t.Errorf("the data begins at %d", first)
	}
}

func TestWriterRefusesSpecs(t *testing.T) {
	f32 := func(name string, dims ...int64) safetensors.Spec {
		return safetensors.Spec{Name: name, DType: tensor.Float32, Shape: shape(t, dims...)}
	}
	for _, c := range []struct {
		name     string
		specs    []safetensors.Spec
		metadata map[string]string
		code     status.Code
		want     string
	}{
		{"twice", []safetensors.Spec{f32("a"), f32("a")}, nil, status.AlreadyExists, `tensor "a" stands twice`},
		{"reserved", []safetensors.Spec{f32("__metadata__")}, nil, status.InvalidArgument, `tensor "__metadata__": the format keeps this name`},
		{"not UTF-8", []safetensors.Spec{f32("a\xff")}, nil, status.InvalidArgument, `tensor "a\xff": the name is not UTF-8`},
		{"strings", []safetensors.Spec{{Name: "s", DType: tensor.String}}, nil, status.InvalidArgument, `tensor "s": the format has no elements of type string`},
		{"complex128", []safetensors.Spec{{Name: "c", DType: tensor.Complex128}}, nil, status.InvalidArgument, `no elements of type complex128`},
		{"int4", []safetensors.Spec{{Name: "i", DType: tensor.Int4}}, nil, status.InvalidArgument, `no elements of type int4`},
		{"no packed type", []safetensors.Spec{{Name: "p", DType: tensor.Uint8, Packed: safetensors.Packed{Type: "U8"}}}, nil, status.InvalidArgument, `tensor "p": "U8" is no packed type`},
		{"other bytes than the packed elements", []safetensors.Spec{{Name: "p", DType: tensor.Uint8, Shape: shape(t, 3), Packed: safetensors.Packed{Type: "F4", Shape: shape(t, 4)}}}, nil, status.InvalidArgument, `tensor "p": the bytes of F4[4] are uint8[2], not uint8[3]`},
		{"invalid", []safetensors.Spec{{Name: "i"}}, nil, status.InvalidArgument, `no elements of type`},
		{"too large", []safetensors.Spec{f32("a", 1<<60), f32("b", 1<<60)}, nil, status.InvalidArgument, `tensor "b": with it the file has more than 2^63-1 bytes`},
		{"metadata not UTF-8", nil, map[string]string{"k": "\xff"}, status.InvalidArgument, `__metadata__: key "k" or its value`},
		{"header too large", nil, map[string]string{"k": strings.Repeat("x", safetensors.MaxHeader)}, status.InvalidArgument, `the header of 0 tensors takes more than 100000000 bytes`},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out bytes.Buffer
			_, err := safetensors.NewWriter(&out, c.specs, c.metadata)
			wantError(t, err, c.code, c.want)
			if out.Len() > 0 {
				t.Errorf("%d bytes are written", out.Len())
			}
			var m memoryFile
			_, err = safetensors.NewWriterAt(&m, c.specs, c.metadata)
			wantError(t, err, c.code, c.want)
		})
	}
}

func TestWriterMisuse(t *testing.T) {
	a, b := counting(t, tensor.Float32, tensor.Vector(2)), counting(t, tensor.Int8, tensor.Vector(3))
	specs := []safetensors.Spec{{Name: "a", DType: a.DType(), Shape: a.Shape()}, {Name: "b", DType: b.DType(), Shape: b.Shape()}}
	var out bytes.Buffer
	w, err := safetensors.NewWriter(&out, specs, nil)
	if err != nil {
		t.Fatal(err)
	}
	wantError(t, w.Close(), status.FailedPrecondition, `2 tensors are not written; the first is "a"`)
	wantError(t, w.Write("b", b), status.FailedPrecondition, `tensor "b": the next one to write is "a"`)
	wantError(t, w.Write("a", b), status.InvalidArgument, `tensor "a" is int8[3]; the header says float[2]`)
	wantError(t, w.Write("a", counting(t, tensor.Float32, tensor.Vector(3))), status.InvalidArgument, `float[3]`)
	if err := w.Write("a", a); err != nil {
		t.Fatal(err)
	}
	wantError(t, w.Write("a", a), status.FailedPrecondition, `the next one to write is "b"`)
	wantError(t, w.Close(), status.FailedPrecondition, `1 tensors are not written; the first is "b"`)
	if err := w.Write("b", b); err != nil {
		t.Fatal(err)
	}
	wantError(t, w.Write("b", b), status.FailedPrecondition, `tensor "b": all 2 tensors of the file are written`)
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	mustOpen(t, out.Bytes())
}

func TestWriterAtMisuse(t *testing.T) {
	a, b := counting(t, tensor.Float32, tensor.Vector(2)), counting(t, tensor.Int8, tensor.Vector(3))
	specs := []safetensors.Spec{{Name: "a", DType: a.DType(), Shape: a.Shape()}, {Name: "b", DType: b.DType(), Shape: b.Shape()}}
	var m memoryFile
	w, err := safetensors.NewWriterAt(&m, specs, nil)
	if err != nil {
		t.Fatal(err)
	}
	wantError(t, w.Write("c", a), status.NotFound, `no tensor "c" among the 2 of the file`)
	wantError(t, w.Write("b", a), status.InvalidArgument, `tensor "b" is float[2]; the header says int8[3]`)
	if err := w.Write("b", b); err != nil {
		t.Fatal(err)
	}
	wantError(t, w.Write("b", b), status.AlreadyExists, `tensor "b" is written already`)
	wantError(t, w.Close(), status.FailedPrecondition, `1 tensors are not written; the first is "a"`)
	if err := w.Write("a", a); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	mustOpen(t, m.b)
}

// fullDisk takes left bytes, then fails as a full file system does.
type fullDisk struct{ left int }

func (d *fullDisk) Write(p []byte) (int, error) {
	n := min(len(p), d.left)
	d.left -= n
	if n < len(p) {
		return n, &os.PathError{Op: "write", Path: "out.safetensors", Err: syscall.ENOSPC}
	}
	return n, nil
}

func (d *fullDisk) WriteAt(p []byte, _ int64) (int, error) { return d.Write(p) }

// shortWriter breaks io.Writer's rule: it takes less and says nothing.
type shortWriter struct{}

func (shortWriter) Write(p []byte) (int, error) { return len(p) / 2, nil }

func TestDiskFull(t *testing.T) {
	a := counting(t, tensor.Float32, tensor.Vector(100))
	specs := []safetensors.Spec{{Name: "a", DType: a.DType(), Shape: a.Shape()}}

	_, err := safetensors.NewWriter(&fullDisk{10}, specs, nil)
	wantError(t, err, status.ResourceExhausted, "safetensors header: writing")
	_, err = safetensors.NewWriterAt(&fullDisk{10}, specs, nil)
	wantError(t, err, status.ResourceExhausted, "safetensors header: writing")
	_, err = safetensors.NewWriter(shortWriter{}, specs, nil)
	if !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("got %v, want a short write", err)
	}

	const want = `tensor "a": writing 400 bytes: write out.safetensors: no space left on device`
	w, err := safetensors.NewWriter(&fullDisk{200}, specs, nil)
	if err != nil {
		t.Fatal(err)
	}
	wantError(t, w.Write("a", a), status.ResourceExhausted, want)
	wantError(t, w.Write("a", a), status.ResourceExhausted, want)
	wantError(t, w.Close(), status.ResourceExhausted, want)

	at, err := safetensors.NewWriterAt(&fullDisk{200}, specs, nil)
	if err != nil {
		t.Fatal(err)
	}
	wantError(t, at.Write("a", a), status.ResourceExhausted, want)
	wantError(t, at.Write("a", a), status.ResourceExhausted, want)
	wantError(t, at.Close(), status.ResourceExhausted, want)
}

func BenchmarkFile(b *testing.B) {
	const size = 16 << 20
	x := counting(b, tensor.Float32, tensor.Vector(size/4))
	specs := []safetensors.Spec{{Name: "w", DType: x.DType(), Shape: x.Shape()}}
	path := filepath.Join(b.TempDir(), "model.safetensors")
	file, err := os.Create(path)
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	b.Run("WriteAt", func(b *testing.B) {
		b.SetBytes(size)
		for b.Loop() {
			w, err := safetensors.NewWriterAt(file, specs, nil)
			if err != nil {
				b.Fatal(err)
			}
			if err := w.Write("w", x); err != nil {
				b.Fatal(err)
			}
		}
	})
	info, err := file.Stat()
	if err != nil {
		b.Fatal(err)
	}
	f, err := safetensors.Open(file, info.Size())
	if err != nil {
		b.Fatal(err)
	}
	b.Run("Read", func(b *testing.B) {
		b.SetBytes(size)
		for b.Loop() {
			x, err := f.Read("w", tensor.Heap{})
			if err != nil {
				b.Fatal(err)
			}
			x.Release()
		}
	})
}
