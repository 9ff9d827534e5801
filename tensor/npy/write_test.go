package npy_test

import (
	"bytes"
	"io"
	"strings"
	"syscall"
	"testing"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/npy"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
)

// TestWriteNumPyBytes writes what was read and gets NumPy's own file.
func TestWriteNumPyBytes(t *testing.T) {
	n := 0
	for name, want := range arrays(t) {
		if !strings.HasSuffix(name, "-c-little") && name != "plain/b1" && name != "text/S" &&
			(!strings.HasPrefix(name, "shape/") || strings.HasSuffix(name, "-f")) {
			continue
		}
		x, err := read(want, tensor.Heap{})
		if err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		if err := npy.Write(&got, x); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.Bytes(), want) {
			t.Errorf("%s:\ngot  %q\nwant %q", name, got.Bytes(), want)
		}
		n++
	}
	if want := 13 + 1 + 1 + 8; n != want {
		t.Errorf("%d files, want %d", n, want)
	}
}

func TestRoundTrip(t *testing.T) {
	deep := make([]int64, tensor.MaxDims)
	for i := range deep {
		deep[i] = 1
	}
	deep[100] = 3
	for _, s := range []tensor.Shape{{}, tensor.Vector(0), tensor.Vector(5), shape(t, 2, 0, 3), shape(t, 2, 3, 4), shape(t, deep...),
		shape(t, 0, 1<<60)} {
		for _, d := range types {
			x := counting(t, d, s)
			var b bytes.Buffer
			if err := npy.Write(&b, x); err != nil {
				t.Fatal(err)
			}
			if start := b.Len() - int(x.Size()); start%64 != 0 {
				t.Errorf("%v: the elements begin at %d", x, start)
			}
			got, err := read(b.Bytes(), tensortest.NewAllocator(t))
			if err != nil {
				t.Fatal(err)
			}
			if !tensor.Equal(got, x) {
				t.Errorf("%v came back as %v", x, got)
			}
			got.Release()
		}
	}
}

func TestWriteStrings(t *testing.T) {
	long := strings.Repeat("long", 1<<19) // padding larger than a buffer
	for _, elems := range [][]string{{}, {""}, {"a", "", "bcd"}, {"\x00a", "ä"}, {"", long, "x"}} {
		x, err := tensor.FromStrings(tensor.Vector(len(elems)), elems)
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := npy.Write(&b, x); err != nil {
			t.Fatal(err)
		}
		got, err := read(b.Bytes(), tensor.Heap{})
		if err != nil || !tensor.Equal(got, x) {
			t.Errorf("%.40q came back as %v, %v", elems, got, err)
		}
	}
	x, err := tensor.FromStrings(tensor.Vector(2), []string{"a", "b\x00"})
	if err != nil {
		t.Fatal(err)
	}
	wantError(t, npy.Write(io.Discard, x.Named("labels")), status.InvalidArgument, `npy: tensor "labels": element 1 ends in a zero byte`)
}

func TestWriteRefuses(t *testing.T) {
	n := 0
	for d := tensor.Float32; d.Valid(); d++ {
		if npy.Supported(d) {
			n++
			continue
		}
		if !d.Plain() {
			continue
		}
		err := npy.Write(io.Discard, counting(t, d, tensor.Vector(1)).Named("w"))
		wantError(t, err, status.InvalidArgument, `npy: tensor "w": NumPy has no elements of type `+d.String())
	}
	if want := len(types) + 1; n != want {
		t.Errorf("%d types are supported, want %d", n, want)
	}
	x, err := tensor.FromElements(tensor.Variant, tensor.Shape{}, []string{"v"})
	if err != nil {
		t.Fatal(err)
	}
	wantError(t, npy.Write(io.Discard, x), status.InvalidArgument, "npy: NumPy has no elements of type variant")
}

// fullDisk takes left bytes, then fails as a full file system does.
type fullDisk struct{ left int }

func (d *fullDisk) Write(p []byte) (int, error) {
	n := min(len(p), d.left)
	d.left -= n
	if n < len(p) {
		return n, syscall.ENOSPC
	}
	return n, nil
}

func TestDiskFull(t *testing.T) {
	x := counting(t, tensor.Float32, tensor.Vector(100)).Named("w")
	text, err := tensor.FromStrings(tensor.Vector(2), []string{"a", "b"})
	if err != nil {
		t.Fatal(err)
	}
	for _, left := range []int{0, 100, 128, 200} {
		wantError(t, npy.Write(&fullDisk{left}, x), status.ResourceExhausted, `npy: tensor "w": writing`)
	}
	for _, left := range []int{0, 129} {
		wantError(t, npy.Write(&fullDisk{left}, text.Named("s")), status.ResourceExhausted, `npy: tensor "s": `)
	}
}
