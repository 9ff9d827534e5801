//go:build linux || darwin || freebsd

package safetensors_test

import (
	"bytes"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/safetensors"
)

func openMapped(t *testing.T, path string) *safetensors.Mapped {
	t.Helper()
	m, err := safetensors.OpenMapped(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

func TestMappedReadsTheSame(t *testing.T) {
	for _, name := range []string{"dtypes.safetensors", "shapes.safetensors", "none.safetensors"} {
		f := mustOpen(t, golden(t, name))
		m := openMapped(t, filepath.Join("testdata", name))
		for _, info := range f.Tensors() {
			want, err := f.Read(info.Name, tensor.Heap{})
			if err != nil {
				t.Fatal(err)
			}
			got, err := m.Tensor(info.Name)
			if err != nil {
				t.Fatal(err)
			}
			if !tensor.Equal(got, want) || got.Name() != info.Name {
				t.Errorf("%s: got %v % x, want %v % x", info.Name, got, got.Bytes(), want, want.Bytes())
			}
			got.Release()
		}
		_, err := m.Tensor("absent")
		wantCode(t, err, status.NotFound)
	}
}

// TestMappedOutlivesClose: tensors keep the memory, Close ends the giving out.
func TestMappedOutlivesClose(t *testing.T) {
	m := openMapped(t, "testdata/shapes.safetensors")
	x, err := m.Tensor("bytes")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if string(x.Bytes()) != "abc" {
		t.Errorf("after Close the tensor holds %q", x.Bytes())
	}
	x.Release()
	_, err = m.Tensor("bytes")
	wantError(t, err, status.FailedPrecondition, `tensor "bytes": the mapped file is closed`)
}

// TestMappedIsFrozen: nobody may write to memory that others can still get,
// and what the last holder writes stays his own.
func TestMappedIsFrozen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "w.safetensors")
	content := file(`{"w":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}`, "abcd")
	if err := os.WriteFile(path, content, 0o400); err != nil {
		t.Fatal(err)
	}
	m := openMapped(t, path)
	x, err := m.Tensor("w")
	if err != nil {
		t.Fatal(err)
	}
	if x.Buffer().Unique() {
		t.Error("a tensor of an open file may be written")
	}
	m.Close()
	if !x.Buffer().Unique() {
		t.Error("the last holder may not write")
	}
	x.Bytes()[0] = 'X'
	x.Release()
	if after, _ := os.ReadFile(path); !bytes.Equal(after, content) {
		t.Errorf("the file holds %q", after)
	}
}

func TestMappedUnaligned(t *testing.T) {
	header := `{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"F32","shape":[1],"data_offsets":[1,5]}}`
	for len(header)%8 != 0 {
		header += " "
	}
	path := filepath.Join(t.TempDir(), "odd.safetensors")
	if err := os.WriteFile(path, file(header, "x\x00\x00\xc0\x3f"), 0o600); err != nil {
		t.Fatal(err)
	}
	x, err := openMapped(t, path).Tensor("b")
	if err != nil {
		t.Fatal(err)
	}
	defer x.Release()
	_, err = tensor.Values[float32](x)
	wantCode(t, err, status.FailedPrecondition)
	c, err := x.Clone(tensor.Heap{})
	if err != nil {
		t.Fatal(err)
	}
	if v, err := tensor.Values[float32](c); err != nil || v[0] != 1.5 {
		t.Errorf("the copy holds %v, %v", v, err)
	}
}

func TestMappedConcurrent(t *testing.T) {
	m := openMapped(t, "testdata/dtypes.safetensors")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for _, info := range m.Tensors() {
				x, err := m.Tensor(info.Name)
				if err != nil {
					wantCode(t, err, status.FailedPrecondition)
					return
				}
				if x.Bytes()[0] != 0 {
					t.Error("wrong content")
				}
				x.Release()
			}
		})
	}
	m.Close()
	wg.Wait()
}

func TestOpenMappedFails(t *testing.T) {
	dir := t.TempDir()
	_, err := safetensors.OpenMapped(filepath.Join(dir, "absent"))
	wantError(t, err, status.NotFound, "mapping "+dir+"/absent: no such file or directory")
	_, err = safetensors.OpenMapped(dir)
	wantError(t, err, status.InvalidArgument, "mapping "+dir+": not a regular file")
	bad := filepath.Join(dir, "bad")
	if err := os.WriteFile(bad, []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = safetensors.OpenMapped(bad)
	wantError(t, err, status.DataLoss, "mapping "+bad+": safetensors: the file has 5 bytes")
}
