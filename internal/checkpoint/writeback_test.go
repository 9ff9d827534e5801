package checkpoint

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/tryst-rdma/tryst/status"
)

// TestWritebackBeginsWhileTheFileIsWritten: the disk does not wait for the sync at the end. What has
// been written goes to the disk after every 8 MiB, in whatever order it was written.
func TestWritebackBeginsWhileTheFileIsWritten(t *testing.T) {
	const MiB = 1 << 20
	x, err := createTarget(filepath.Join(t.TempDir(), "file"), 32*MiB, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(x.discard)
	var begun []piece
	x.flush = func(f *os.File, p piece) {
		if f != x.file {
			t.Errorf("writeback of %v, want the file of the target", f.Name())
		}
		begun = append(begun, p)
	}
	chunk := make([]byte, 4*MiB)
	for _, at := range []int64{8, 4, 0, 16, 12, 24} {
		if err := x.writeAt(chunk, at*MiB); err != nil {
			t.Fatal(err)
		}
	}
	if want := []piece{{4 * MiB, 8 * MiB}, {0, 20 * MiB}, {12 * MiB, 16 * MiB}}; !reflect.DeepEqual(begun, want) {
		t.Errorf("writeback of the ranges %v, want %v", begun, want)
	}
}

// A disk that is full although there was room when the file was made.
func TestWritingToAFullDevice(t *testing.T) {
	f, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	if err != nil {
		t.Skip("no /dev/full here")
	}
	full := &target{path: "out", file: f, reserve: new(reserve)}
	err = full.writeAt([]byte("abc"), 0)
	if status.CodeOf(err) != status.ResourceExhausted {
		t.Errorf("got %v", err)
	}
	f.Close()
}
