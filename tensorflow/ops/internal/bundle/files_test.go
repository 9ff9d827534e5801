package bundle

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// wantFiles checks what a directory has.
func wantFiles(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if !slices.Equal(got, want) {
		t.Errorf("the directory has %q, want %q", got, want)
	}
}

// one is a bundle with one tensor.
func one(t *testing.T, p Prefix, v int32) {
	t.Helper()
	write(t, p, func(w *Writer) error { return w.Add("x", ints(t, v)) })
}

// TestNothingIsWrittenOutside: no path and no link leads out of the root.
func TestNothingIsWrittenOutside(t *testing.T) {
	outer := t.TempDir()
	dir, outside := filepath.Join(outer, "dir"), filepath.Join(outer, "outside")
	for _, d := range []string{dir, outside} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	one(t, in(t, outside, "secret"), 1)
	one(t, in(t, dir, "mine"), 2)
	for name, to := range map[string]string{"link": outside, "up": "..", "relative": "../outside"} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(outside, "secret.index"), filepath.Join(dir, "linked.index")); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"../outside/secret", "link/secret", "up/outside/secret", "relative/secret", "linked", "x/../../outside/secret"} {
		p := in(t, dir, path)
		if _, err := get(t.Context(), p, "x", "", tensor.Heap{}); status.CodeOf(err) != status.PermissionDenied && (!strings.HasPrefix(path, "x/") || status.CodeOf(err) != status.NotFound) {
			t.Errorf("read %s: %v", path, err)
		}
		if path == "linked" {
			continue // its data file is new
		}
		w, err := NewWriter(t.Context(), p, tensor.Heap{})
		if err == nil {
			w.Close()
		}
		if status.CodeOf(err) != status.PermissionDenied && (!strings.HasPrefix(path, "x/") || status.CodeOf(err) != status.NotFound) {
			t.Errorf("write %s: %v", path, err)
		}
		mine := Prefix{p.Root, "mine", "mine"}
		if err := Merge(t.Context(), []Prefix{mine}, p, false, tensor.Heap{}); err == nil {
			t.Errorf("merged into %s", path)
		}
		if err := Merge(t.Context(), []Prefix{p}, Prefix{p.Root, "new", "new"}, false, tensor.Heap{}); err == nil {
			t.Errorf("merged %s", path)
		}
		if err := RemoveDirectory(p, mine); err == nil && !strings.HasPrefix(path, "x/") {
			t.Errorf("removed the directory of %s", path)
		}
	}
	one(t, in(t, dir, "linked"), 3) // in place of the link
	wantFiles(t, outside, "secret.data-00000-of-00001", "secret.index")
	x, err := get(t.Context(), in(t, outside, "secret"), "x", "", tensor.Heap{})
	if err != nil || !tensor.Equal(x, ints(t, 1)) {
		t.Errorf("the file outside has %v, %v", x, err)
	}
}

// TestOnlyRegularFilesAreRead: to open a named pipe does not wait.
func TestOnlyRegularFilesAreRead(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe.index"), 0o600); err != nil {
		t.Fatal(err)
	}
	one(t, in(t, dir, "f"), 1)
	if err := os.Remove(filepath.Join(dir, "f.data-00000-of-00001")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "f.data-00000-of-00001"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"pipe", "f"} {
		if _, err := get(t.Context(), in(t, dir, path), "x", "", tensor.Heap{}); status.CodeOf(err) != status.FailedPrecondition {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestNothingIsSeenBeforeItIsComplete: until Finish has returned an earlier checkpoint of the name stays, and a writer that
// ends before leaves nothing.
func TestNothingIsSeenBeforeItIsComplete(t *testing.T) {
	dir := t.TempDir()
	p := in(t, dir, "f")
	one(t, p, 1)
	w, err := NewWriter(t.Context(), p, tensor.Heap{})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Add("x", ints(t, 2)); err != nil {
		t.Fatal(err)
	}
	if x, err := get(t.Context(), p, "x", "", tensor.Heap{}); err != nil || !tensor.Equal(x, ints(t, 1)) {
		t.Errorf("during a write: %v, %v", x, err)
	}
	w.Close()
	wantFiles(t, dir, "f.data-00000-of-00001", "f.index")
	one(t, p, 3)
	if x, err := get(t.Context(), p, "x", "", tensor.Heap{}); err != nil || !tensor.Equal(x, ints(t, 3)) {
		t.Errorf("after the next write: %v, %v", x, err)
	}
	wantFiles(t, dir, "f.data-00000-of-00001", "f.index")
}

// TestErrorsOfWriters: wrong calls have TensorFlow's codes and texts.
func TestErrorsOfWriters(t *testing.T) {
	dir := t.TempDir()
	if _, err := NewWriter(t.Context(), in(t, dir, "a/b/c"), tensor.Heap{}); status.CodeOf(err) != status.NotFound || !strings.HasSuffix(err.Error(), "a/b; No such file or directory") {
		t.Errorf("a directory whose parent is missing: %v", err)
	}
	put(t, filepath.Join(dir, "file"), nil)
	if _, err := NewWriter(t.Context(), in(t, dir, "file/c"), tensor.Heap{}); status.CodeOf(err) != status.FailedPrecondition {
		t.Errorf("a file in place of a directory: %v", err)
	}
	w, err := NewWriter(t.Context(), in(t, dir, "f"), tensor.Heap{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	whole, half := shapeOf(t, 4), content(t, tensor.Float32, 2)
	if err := errors.Join(w.Add("x", ints(t, 1)), w.AddSlice("v", whole, Slice{{0, 2}}, half)); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"Adding duplicate key: x":  w.Add("x", ints(t, 1)),
		"1 to 65536 bytes":         w.Add("", ints(t, 1)),
		"has 65537":                w.Add(strings.Repeat("x", maxKey+1), ints(t, 1)),
		"Adding duplicate key: \"": w.AddSlice("v", whole, Slice{{0, 2}}, half),
		"different types":          w.AddSlice("v", shapeOf(t, 5), Slice{{2, 2}}, half),
		"parts are of tensors":     w.AddSlice("v", whole, Slice{{2, 1}}, intVector(t)),
		"and the tensor [2]":       w.AddSlice("v", whole, Slice{{2, 1}}, half),
		"duplicate key: x":         w.AddSlice("x", whole, Slice{{2, 2}}, half),
		"Adding duplicate key: v":  w.AddSlice("v", shapeOf(t, 2), Slice{{0, 2}}, half),
	} {
		if status.CodeOf(err) != status.InvalidArgument || !strings.Contains(err.Error(), what) {
			t.Errorf("%v, want %s", err, what)
		}
	}
}

func intVector(t *testing.T) *tensor.Tensor {
	x, err := tensor.FromSlice(tensor.Vector(1), []int32{1})
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// TestMergeErrors: what cannot be merged is refused with TensorFlow's codes and texts, before a file has another name.
func TestMergeErrors(t *testing.T) {
	dir := t.TempDir()
	a := in(t, dir, "a")
	at := func(name string) Prefix { return Prefix{a.Root, name, name} }
	one(t, a, 1)
	one(t, at("b"), 1)
	write(t, at("v1"), func(w *Writer) error {
		return w.AddSlice("v", shapeOf(t, 4), Slice{{0, 2}}, content(t, tensor.Float32, 2))
	})
	write(t, at("v2"), func(w *Writer) error {
		return w.AddSlice("v", shapeOf(t, 5), Slice{{2, 2}}, content(t, tensor.Float32, 2))
	})
	write(t, at("v3"), func(w *Writer) error { return w.Add("v", content(t, tensor.Float32, 4)) })
	one(t, at("lost"), 1)
	if err := os.Remove(filepath.Join(dir, "lost.data-00000-of-00001")); err != nil {
		t.Fatal(err)
	}
	files := func() (all []string) {
		all, err := filepath.Glob(filepath.Join(dir, "*"))
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	before := files()
	other := in(t, t.TempDir(), "m")
	for _, c := range []struct {
		from    []Prefix
		to      Prefix
		missing bool
		code    status.Code
		want    string
	}{
		{[]Prefix{a, at("b")}, at("m"), false, status.InvalidArgument, "Duplicate tensor keyed by x encountered, when merging prefix: b"},
		{[]Prefix{a, at("none")}, at("m"), false, status.InvalidArgument, "allow_missing_files was set to false and none did not exist"},
		{[]Prefix{at("none")}, at("m"), true, status.InvalidArgument, "At least one prefix checkpoint file must exist, but none existed."},
		{nil, at("m"), false, status.InvalidArgument, "At least one prefix checkpoint file must exist, but none existed."},
		{[]Prefix{at("v1"), at("v2")}, at("m"), false, status.InvalidArgument, "key v: the parts are of tensors of different types or shapes"},
		{[]Prefix{at("v1"), at("v3")}, at("m"), false, status.Internal, "Duplicate tensor keyed by v; attempting to merge in a non-slice bundle entry"},
		{[]Prefix{at("lost")}, at("m"), false, status.NotFound, "lost.data-00000-of-00001; No such file or directory"},
		{[]Prefix{a}, other, false, status.Unimplemented, "different directories"},
		{[]Prefix{a}, at("no/such/m"), false, status.NotFound, "no/such; No such file or directory"},
	} {
		err := Merge(t.Context(), c.from, c.to, c.missing, tensor.Heap{})
		if status.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %v: %s", err, c.code, c.want)
		}
	}
	if after := files(); !slices.Equal(before, after) {
		t.Errorf("the directory has %q, and had %q", after, before)
	}
	if err := Merge(t.Context(), []Prefix{a, at("none")}, at("a"), true, tensor.Heap{}); err != nil {
		t.Errorf("a bundle into itself: %v", err)
	}
	if x, err := get(t.Context(), a, "x", "", tensor.Heap{}); err != nil || !tensor.Equal(x, ints(t, 1)) {
		t.Errorf("a bundle that was merged into itself has %v, %v", x, err)
	}
}

// TestMergeOverwritesNoDataFile: a name that a data file to be merged has is not given to another one.
func TestMergeOverwritesNoDataFile(t *testing.T) {
	dir := t.TempDir()
	b := in(t, dir, "b")
	at := func(name string) Prefix { return Prefix{b.Root, name, name} }
	write(t, at("x"), func(w *Writer) error { return w.Add("z", ints(t, 1)) })
	write(t, at("y"), func(w *Writer) error { return w.Add("a", ints(t, 2)) })
	if err := Merge(t.Context(), []Prefix{at("x"), at("y")}, b, false, tensor.Heap{}); err != nil {
		t.Fatal(err)
	}
	// The first key is in the second file, which would get the name of the first.
	if err := Merge(t.Context(), []Prefix{b}, b, false, tensor.Heap{}); status.CodeOf(err) != status.InvalidArgument {
		t.Error(err)
	}
	for key, v := range map[string]int32{"z": 1, "a": 2} {
		if x, err := get(t.Context(), b, key, "", tensor.Heap{}); err != nil || !tensor.Equal(x, ints(t, v)) {
			t.Errorf("%s: %v, %v", key, x, err)
		}
	}
}

// TestOldDirectoriesAreRemoved: only those that are empty, and no links.
func TestOldDirectoriesAreRemoved(t *testing.T) {
	dir := t.TempDir()
	p := in(t, dir, "to/m")
	at := func(name string) Prefix { return Prefix{p.Root, name, name} }
	for _, d := range []string{"empty", "full", "to"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	put(t, filepath.Join(dir, "full", "file"), nil)
	if err := os.Symlink("full", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for name, code := range map[string]status.Code{"empty/a": status.OK, "none/a": status.OK, "full/a": status.FailedPrecondition, "link/a": status.FailedPrecondition, "to/a": status.OK, "a": status.OK} {
		if err := RemoveDirectory(at(name), p); status.CodeOf(err) != code {
			t.Errorf("%s: %v, want %v", name, err, code)
		}
	}
	wantFiles(t, dir, "full", "link", "to")
}
