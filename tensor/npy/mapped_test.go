//go:build linux || darwin || freebsd

package npy_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/npy"
)

func store(t *testing.T, b []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a.npy")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestMapped maps every file of NumPy: it gives the same tensor as reading, or
// says that the file has to be read.
func TestMapped(t *testing.T) {
	mapped := 0
	for name, b := range arrays(t) {
		if strings.HasPrefix(name, "refused/") {
			continue
		}
		want, err := read(b, tensor.Heap{})
		if err != nil {
			t.Fatal(err)
		}
		path := store(t, b)
		m, err := npy.OpenMapped(path)
		foreign := strings.HasPrefix(name, "text/") || strings.HasSuffix(name, "-f-little") ||
			strings.HasSuffix(name, "-big") && name != "plain/i1-c-big" && name != "plain/u1-c-big" ||
			name == "shape/2x3-f" || name == "shape/2x1x3x2x2-f"
		if foreign {
			wantError(t, err, status.Unimplemented, "mapping "+path+": npy: descr ")
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		mapped++
		got, err := m.Tensor()
		if err != nil {
			t.Fatal(err)
		}
		if info := m.Info(); info.Bytes != got.Size() || info.DType != got.DType() {
			t.Errorf("%s: %+v does not fit %v", name, info, got)
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
		if !tensor.Equal(got, want) {
			t.Errorf("%s: got %v % x, want %v % x", name, got, got.Bytes(), want, want.Bytes())
		}
		got.Release()
		_, err = m.Tensor()
		wantError(t, err, status.FailedPrecondition, "npy: the mapped file is closed")
	}
	if want := 13 + 2 + 1 + 13 + 3; mapped != want {
		t.Errorf("%d files were mapped, want %d", mapped, want)
	}
}

func TestMappedFails(t *testing.T) {
	_, err := npy.OpenMapped(store(t, nil))
	wantError(t, err, status.DataLoss, "npy: the file has 0 bytes")
	_, err = npy.OpenMapped("absent.npy")
	wantError(t, err, status.NotFound, "mapping absent.npy: no such file or directory")
}
