package bundle

import (
	"bytes"
	"context"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// types are those of integration/tensorflow/bundles.py, with their names in Python.
var types = []struct {
	name string
	d    tensor.DType
}{
	{"float32", tensor.Float32},
	{"float64", tensor.Float64},
	{"int32", tensor.Int32},
	{"uint8", tensor.Uint8},
	{"int16", tensor.Int16},
	{"int8", tensor.Int8},
	{"string", tensor.String},
	{"complex64", tensor.Complex64},
	{"int64", tensor.Int64},
	{"bool", tensor.Bool},
	{"qint8", tensor.QInt8},
	{"quint8", tensor.QUint8},
	{"qint32", tensor.QInt32},
	{"bfloat16", tensor.BFloat16},
	{"qint16", tensor.QInt16},
	{"quint16", tensor.QUint16},
	{"uint16", tensor.Uint16},
	{"complex128", tensor.Complex128},
	{"float16", tensor.Float16},
	{"uint32", tensor.Uint32},
	{"uint64", tensor.Uint64},
}

var shapes = [][]int64{{}, {3}, {2, 0, 4}, {2, 3, 4}}

// inParts are variables in parts.
var inParts = []struct {
	d     tensor.DType
	shape []int64
	parts []string
}{
	{tensor.Float32, []int64{10, 4}, []string{"0,3:-", "3,6:-", "9,1:-"}},
	{tensor.Int64, []int64{3, 5}, []string{"-:0,2", "-:2,3"}},
	{tensor.Float64, []int64{4, 4}, []string{"0,2:0,2", "0,2:2,2", "2,2:0,2", "2,2:2,2"}},
}

// large is how many variables the index of several blocks has.
const large = 4000

func largeName(i int) string {
	return fmt.Sprintf("a/scope/of/some/length/variable_%d/%s", i*7919%large, strings.Repeat("x", i%173))
}

func shapeOf(t testing.TB, dims ...int64) tensor.Shape {
	t.Helper()
	s, err := tensor.NewShape(dims...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// content is the tensor of a type and a shape.
func content(t testing.TB, d tensor.DType, dims ...int64) *tensor.Tensor {
	t.Helper()
	shape := shapeOf(t, dims...)
	if d == tensor.String {
		elems := make([]string, shape.Elements())
		for i := range elems {
			elems[i] = strings.Repeat(fmt.Sprint(i), i*i%301)
		}
		x, err := tensor.FromStrings(shape, elems)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	x, err := tensor.Allocate(tensor.Heap{}, d, shape)
	if err != nil {
		t.Fatal(err)
	}
	for i := range x.Bytes() {
		x.Bytes()[i] = byte((7*i + 3) % 120)
		if d == tensor.Bool {
			x.Bytes()[i] = 0
			if i%3 == 1 {
				x.Bytes()[i] = 1
			}
		}
	}
	return x
}

// cut returns a part of a tensor of plain memory.
func cut(t testing.TB, x *tensor.Tensor, spec string) *tensor.Tensor {
	t.Helper()
	_, s, shape, err := ParseSpec(specOf(x.Shape(), spec))
	if err != nil {
		t.Fatal(err)
	}
	y, err := tensor.Allocate(tensor.Heap{}, x.DType(), shape)
	if err != nil {
		t.Fatal(err)
	}
	box, size := s.within(x.Shape()), int64(x.DType().Size())
	eachRun(box, box, Slice(nil).within(x.Shape()), func(to, at, n int64) {
		copy(y.Bytes()[to*size:(to+n)*size], x.Bytes()[at*size:(at+n)*size])
	})
	return y
}

// specOf is an element of shape_and_slices.
func specOf(whole tensor.Shape, part string) string {
	return strings.Trim(strings.ReplaceAll(whole.String(), ",", " "), "[]") + " " + part
}

// in returns a prefix below a directory.
func in(t testing.TB, dir, path string) Prefix {
	t.Helper()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return Prefix{root, path, filepath.Join(dir, path)}
}

// write writes a bundle.
func write(t testing.TB, p Prefix, add func(w *Writer) error) {
	t.Helper()
	w, err := NewWriter(t.Context(), p, tensor.Heap{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := add(w); err != nil {
		t.Fatal(err)
	}
	if err := w.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// writeAll writes what bundles.py write and large do.
func writeAll(t testing.TB, dir string) {
	t.Helper()
	write(t, in(t, dir, "whole"), func(w *Writer) error {
		for _, d := range types {
			for _, dims := range shapes {
				if err := w.Add(d.name+shapeOf(t, dims...).String(), content(t, d.d, dims...)); err != nil {
					return err
				}
			}
		}
		return nil
	})
	type part struct {
		key, spec string
		x         *tensor.Tensor
	}
	var parts []part
	for i, v := range inParts {
		for _, spec := range v.parts {
			x := content(t, v.d, v.shape...)
			parts = append(parts, part{fmt.Sprint("parts/", i), specOf(x.Shape(), spec), cut(t, x, spec)})
		}
	}
	add := func(w *Writer, p part) error {
		whole, s, _, err := ParseSpec(p.spec)
		if err != nil {
			return err
		}
		return w.AddSlice(p.key, whole, s, p.x)
	}
	write(t, in(t, dir, "parts"), func(w *Writer) error {
		for _, p := range parts {
			if err := add(w, p); err != nil {
				return err
			}
		}
		return nil
	})
	var tasks []Prefix
	for i := range 2 {
		at := in(t, dir, fmt.Sprint("temp/part-", i))
		if len(tasks) > 0 {
			at.Root = tasks[0].Root
		}
		tasks = append(tasks, at)
		write(t, at, func(w *Writer) error {
			for j, p := range parts {
				if j%2 != i {
					continue
				}
				if err := add(w, p); err != nil {
					return err
				}
			}
			return w.Add(fmt.Sprint("own", i), ints(t, int32(i)))
		})
	}
	to := Prefix{tasks[0].Root, "merged", filepath.Join(dir, "merged")}
	if err := Merge(t.Context(), tasks, to, false, tensor.Heap{}); err != nil {
		t.Fatal(err)
	}
	if err := RemoveDirectory(tasks[0], to); err != nil {
		t.Fatal(err)
	}
	write(t, in(t, dir, "large"), func(w *Writer) error {
		for i := range large {
			if err := w.Add(largeName(i), ints(t, int32(i))); err != nil {
				return err
			}
		}
		return nil
	})
}

// ints is a scalar.
func ints(t testing.TB, v int32) *tensor.Tensor {
	t.Helper()
	x, err := tensor.FromSlice(tensor.Shape{}, []int32{v})
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// get reads a tensor, or a part of it.
func get(ctx context.Context, p Prefix, key, spec string, memory tensor.Allocator) (*tensor.Tensor, error) {
	r, err := Open(p, memory)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	e, err := r.Lookup(key)
	if err != nil {
		return nil, err
	}
	var s Slice
	if spec != "" {
		if _, s, _, err = ParseSpec(spec); err != nil {
			return nil, err
		}
	}
	return r.Read(ctx, key, e, s)
}

// checkAll compares what is in a directory with what writeAll writes.
func checkAll(t *testing.T, dir string, prefixes ...string) {
	t.Helper()
	pool := tensor.NewPool(tensor.PoolOptions{Limit: 64 << 20, Keep: -1})
	same := func(p, key, spec string, want *tensor.Tensor) {
		t.Helper()
		got, err := get(t.Context(), in(t, dir, p), key, spec, pool)
		if err != nil {
			t.Errorf("%s, key %s %s: %v", p, key, spec, err)
			return
		}
		defer got.Release()
		if !tensor.Equal(got, want) {
			t.Errorf("%s, key %s %s: got %v %x, want %v %x", p, key, spec, got, got.Bytes(), want, want.Bytes())
		}
	}
	for _, p := range prefixes {
		switch p {
		case "whole":
			for _, d := range types {
				for _, dims := range shapes {
					same(p, d.name+shapeOf(t, dims...).String(), "", content(t, d.d, dims...))
				}
			}
		case "large":
			for i := 0; i < large; i += 37 {
				same(p, largeName(i), "", ints(t, int32(i)))
			}
		default:
			for i, v := range inParts {
				x := content(t, v.d, v.shape...)
				same(p, fmt.Sprint("parts/", i), "", x)
				for _, part := range append([]string{"-:-", "1,2:-", "-:1,3", "1,2:1,3", "0,3:2,1"}, v.parts...) {
					same(p, fmt.Sprint("parts/", i), specOf(x.Shape(), part), cut(t, x, part))
				}
			}
			for i := range 2 {
				if p == "merged" {
					same(p, fmt.Sprint("own", i), "", ints(t, int32(i)))
				}
			}
		}
	}
	if s := pool.Stats(); s.InUse != 0 {
		t.Errorf("%d bytes are not released", s.InUse)
	}
}

// TestReadsWhatTensorFlowWrote: testdata has what bundles.py has written.
func TestReadsWhatTensorFlowWrote(t *testing.T) { checkAll(t, "testdata", "whole", "parts", "merged") }

// TestWritesTheBytesOfTensorFlow: the files are those that TensorFlow writes for the same calls, but for the order of the
// data files in a merged bundle, which a hash table of TensorFlow decides.
func TestWritesTheBytesOfTensorFlow(t *testing.T) {
	dir := t.TempDir()
	writeAll(t, dir)
	checkAll(t, dir, "whole", "parts", "merged", "large")
	for _, name := range []string{"whole.index", "whole.data-00000-of-00001", "parts.index", "parts.data-00000-of-00001"} {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s differs:\n%x\nwant\n%x", name, got, want)
		}
	}
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(names) != 2+2+3+2 {
		t.Errorf("the directory has %q, %v", names, err)
	}
}

// TestKeysOfParts: the ordered code of extents of every length is right at its bounds.
func TestKeysOfParts(t *testing.T) {
	for _, c := range []struct {
		start int64
		want  string
	}{
		{0, "\x80"}, {-1, "\x7f"}, {63, "\xbf"}, {64, "\xc0\x40"}, {-64, "\x40"}, {-65, "\x3f\xbf"}, {8191, "\xdf\xff"}, {8192, "\xe0\x20\x00"},
		{1<<62 - 1, "\xff\xbf\xff\xff\xff\xff\xff\xff\xff"}, {1 << 62, "\xff\xc0\x40\x00\x00\x00\x00\x00\x00\x00"},
	} {
		if got := appendSigned(nil, c.start); string(got) != c.want {
			t.Errorf("%d is %x, want %x", c.start, got, c.want)
		}
	}
	last := ""
	for _, v := range []int64{-1 << 62, -1 << 40, -8193, -65, -1, 0, 1, 63, 64, 65, 8191, 8192, 1 << 20, 1 << 33, 1 << 40, 1 << 50, 1 << 62} {
		if code := string(appendSigned(nil, v)); code <= last {
			t.Errorf("the code %x of %d is not greater than that of a smaller number, %x", code, v, last)
		} else {
			last = code
		}
	}
	if got, want := (Slice{{0, Full}, {4, 2}}).key("a\x00b\xff"), "\x00a\x00\xffb\xff\x00\x00\x01\x01\x02\x80\x7f\x84\x82"; got != want {
		t.Errorf("got %x, want %x", got, want)
	}
}

// TestSpecs: shape_and_slices are parsed as TensorFlow does, with its codes and texts.
func TestSpecs(t *testing.T) {
	for _, c := range []struct {
		spec, want string
	}{
		{"4 0,3", "[4] 0,3 [3]"},
		{"4 1,3:", "[4] 1,3 [3]"},
		{"4 2 -:0,1", "[4,2] -:0,1 [4,1]"},
		{"3", "InvalidArgument: Need least two elements in shape_and_slice specification: 3"},
		{"3 0,4", "Internal: Extent in dimension 0 out of bounds: shape = [3], slice = 0,4"},
		{"4 4,3", "Internal: Extent in dimension 0 out of bounds: shape = [4], slice = 4,3"},
		{"4 9223372036854775807,9223372036854775807", "Internal: Extent in dimension 0 out of bounds: shape = [4], slice = 9223372036854775807,9223372036854775807"},
		{"a 0,3", "InvalidArgument: Non numerical dimension in shape_and_slice: a 0,3"},
		{"4 0,3 ", "InvalidArgument: Non numerical dimension in shape_and_slice: 4 0,3 "},
		{" 4 0,3", "InvalidArgument: Non numerical dimension in shape_and_slice:  4 0,3"},
		{"4 x", "InvalidArgument: Expected a pair of numbers or '-' but got 'x': string = x"},
		{"4 0,0", "InvalidArgument: Expected non-negative start and positive length but got start = 0, length = 0: string = 0,0"},
		{"4 0,3:-", "Internal: Mismatching ranks: shape = [4], slice = 0,3:-"},
		{strings.Repeat("1 ", 1<<14), "InvalidArgument: a shape_and_slice specification of 32768 bytes; at most 16384 are possible"},
	} {
		whole, s, part, err := ParseSpec(c.spec)
		got := fmt.Sprint(err)
		if err == nil {
			got = fmt.Sprint(whole, s, part)
		}
		if got != c.want {
			t.Errorf("%.40q: %s\nwant %s", c.spec, got, c.want)
		}
	}
	if _, _, _, err := ParseSpec("-1 -"); status.CodeOf(err) != status.InvalidArgument {
		t.Errorf("a negative extent: %v", err)
	}
	if _, _, _, err := ParseSpec(strings.Repeat("9223372036854775807 ", 3) + "-:-:-"); status.CodeOf(err) != status.InvalidArgument {
		t.Errorf("more elements than a tensor may have: %v", err)
	}
}

// TestShortKeysOfTheIndex: the index has LevelDB's short keys between blocks.
func TestShortKeysOfTheIndex(t *testing.T) {
	for _, c := range [][3]string{{"abcdef", "abzz", "abd"}, {"abc", "abd", "abc"}, {"ab", "abc", "ab"}, {"a\xffb", "b", "a\xffb"}, {"a", "z", "b"}} {
		if got := string(separator([]byte(c[0]), []byte(c[1]))); got != c[2] {
			t.Errorf("between %q and %q: %q, want %q", c[0], c[1], got, c[2])
		}
	}
	for in, want := range map[string]string{"abc": "b", "\xff\xffa": "\xff\xffb", "\xff": "\xff"} {
		if got := string(successor([]byte(in))); got != want {
			t.Errorf("after %q: %q, want %q", in, got, want)
		}
	}
}

// TestLengthsBeyond4GiB: the checksum has a length of 8 bytes where 4 are not enough.
func TestLengthsBeyond4GiB(t *testing.T) {
	short, long := addLength(0, 1<<32-1), addLength(0, 1<<32)
	if short != crc32.Checksum([]byte{255, 255, 255, 255}, castagnoli) || long != crc32.Checksum([]byte{0, 0, 0, 0, 1, 0, 0, 0}, castagnoli) {
		t.Errorf("%08x, %08x", short, long)
	}
}
