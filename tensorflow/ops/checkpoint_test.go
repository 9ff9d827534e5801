package ops

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// newFileBench returns a bench whose graphs may use files below a directory.
func newFileBench(t testing.TB, dirs ...string) *bench {
	t.Helper()
	b := newBench(t)
	if err := b.set.AllowFiles(dirs...); err != nil {
		t.Fatal(err)
	}
	return b
}

// saved runs SaveV2 with names, parts and tensors in turn.
func (b *bench) saved(prefix string, values ...any) error {
	b.t.Helper()
	n, inputs := b.saveNode(prefix, values...)
	_, err := b.try(n, inputs...)
	return err
}

func (b *bench) saveNode(prefix string, values ...any) (*graph.Node, []graph.Value) {
	var names, parts []string
	var tensors []graph.Value
	var types []tensor.DType
	for i := 0; i < len(values); i += 3 {
		name, _ := values[i].(string)
		part, _ := values[i+1].(string)
		v, _ := values[i+2].(graph.Value)
		names, parts = append(names, name), append(parts, part)
		tensors, types = append(tensors, v), append(types, v.Tensor.DType())
	}
	inputs := append([]graph.Value{text(nil, prefix), text([]int64{int64(len(names))}, names...), text([]int64{int64(len(parts))}, parts...)}, tensors...)
	return b.node("save", "SaveV2", attrs{"dtypes": types}, inputs...), inputs
}

// restored runs RestoreV2 with names, parts and types in turn.
func (b *bench) restored(prefix string, values ...any) ([]graph.Value, error) {
	b.t.Helper()
	var names, parts []string
	var types []tensor.DType
	for i := 0; i < len(values); i += 3 {
		name, _ := values[i].(string)
		part, _ := values[i+1].(string)
		dtype, _ := values[i+2].(tensor.DType)
		names, parts, types = append(names, name), append(parts, part), append(types, dtype)
	}
	inputs := []graph.Value{text(nil, prefix), text([]int64{int64(len(names))}, names...), text([]int64{int64(len(parts))}, parts...)}
	return b.try(b.node("restore", "RestoreV2", attrs{"dtypes": types}, inputs...), inputs...)
}

// merged runs MergeV2Checkpoints.
func (b *bench) merged(a attrs, to string, from ...string) error {
	b.t.Helper()
	all := attrs{"delete_old_dirs": true, "allow_missing_files": false}
	maps.Copy(all, a)
	inputs := []graph.Value{text([]int64{int64(len(from))}, from...), text(nil, to)}
	_, err := b.try(b.node("merge", "MergeV2Checkpoints", all, inputs...), inputs...)
	return err
}

// TestCheckpointsAreSavedAndRestored: what a Saver does with two devices: names of files, a part of the variables each, a
// merge, and a restore of all, also of other parts than were saved.
func TestCheckpointsAreSavedAndRestored(t *testing.T) {
	dir := t.TempDir()
	b := newFileBench(t, dir)
	x, s := in([]int64{4, 2}, float32(1), 2, 3, 4, 5, 6, 7, 8), text([]int64{2}, "a", strings.Repeat("long", 100000))
	var parts []string
	for i := range int32(2) {
		name := b.run("ShardedFilename", nil, text(nil, dir+"/ckpt-1_temp/part"), scalar(i), scalar[int32](2))[0]
		parts = append(parts, name.Tensor.Elements()[0])
	}
	if want := dir + "/ckpt-1_temp/part-00001-of-00002"; parts[1] != want {
		t.Errorf("got %s, want %s", parts[1], want)
	}
	err := errors.Join(
		b.saved(parts[0], "v", "6 2 0,4:-", x, "s", "", s),
		b.saved(parts[1], "v", "6 2 4,2:-", in([]int64{2, 2}, float32(9), 10, 11, 12), "step", "", scalar[int64](7)),
		b.merged(nil, dir+"/ckpt-1", parts...))
	if err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 3 {
		t.Errorf("the directory has %v, %v", entries, err)
	}
	outs, err := b.restored(dir+"/ckpt-1", "v", "", tensor.Float32, "v", "6 2 3,2:1,1", tensor.Float32, "step", "", tensor.Int64, "s", "", tensor.String)
	if err != nil {
		t.Fatal(err)
	}
	b.want(outs[0], "float[6,2]: 1 2 3 4 5 6 7 8 9 10 11 12")
	b.want(outs[1], "float[2,1]: 8 10")
	b.want(outs[2], "int64[]: 7")
	if !tensor.Equal(outs[3].Tensor, s.Tensor) {
		t.Errorf("the strings are %.100v", show(outs[3]))
	}
}

// TestErrorsOfCheckpoints: codes and texts are those of TensorFlow 2.21.
func TestErrorsOfCheckpoints(t *testing.T) {
	dir := t.TempDir()
	b := newFileBench(t, dir)
	x := vec[float32](1, 2, 3)
	at := dir + "/c"
	if err := b.saved(at, "x", "", x, "v", "5 0,3", x); err != nil {
		t.Fatal(err)
	}
	restored := func(prefix string, values ...any) error {
		_, err := b.restored(prefix, values...)
		return err
	}
	node := func(op string, a attrs, inputs ...graph.Value) error {
		_, err := b.try(b.node("n", op, a, inputs...), inputs...)
		return err
	}
	one := attrs{"dtypes": []tensor.DType{tensor.Float32}}
	names := func(n ...string) graph.Value { return text([]int64{int64(len(n))}, n...) }
	for _, c := range []struct {
		err  error
		code status.Code
		want string
	}{
		{b.saved(at, "x", "3 0,2", x), status.InvalidArgument, "Slice in shape_and_slice specification does not match the shape of the tensor to  save: 3 0,2, tensor: [3]"},
		{b.saved(at, "x", "3", x), status.InvalidArgument, "Need least two elements in shape_and_slice specification: 3"},
		{b.saved(at, "x", "", x, "x", "", x), status.InvalidArgument, "Adding duplicate key: x"},
		{b.saved(dir+"/no/such/c", "x", "", x), status.NotFound, dir + "/no/such; No such file or directory"},
		{node("SaveV2", one, text([]int64{2}, at, at), names("x"), names(""), x), status.InvalidArgument, "Input prefix should have a single element, got 2 instead."},
		{node("SaveV2", one, text(nil, at), text([]int64{1, 1}, "x"), names(""), x), status.InvalidArgument, "Input tensor_names and shape_and_slices should be an 1-D tensors, got [1,1] and [1] instead."},
		{node("SaveV2", one, text(nil, at), names("x", "y"), names(""), x), status.InvalidArgument, "tensor_names and shape_and_slices have different number of elements: 2 vs. 1"},
		{node("SaveV2", one, text(nil, at), names("x", "y"), names("", ""), x), status.InvalidArgument, "Got 2 tensor names but 1 tensors."},
		{restored(at, "y", "", tensor.Float32), status.NotFound, "Key y not found in checkpoint"},
		{restored(at, "x", "", tensor.Int32), status.InvalidArgument, "tensor_name = x; expected dtype int32 does not equal original dtype float"},
		{restored(at, "x", "4 0,2", tensor.Float32), status.InvalidArgument, "tensor_name = x; shape in shape_and_slice spec [4] does not match the shape stored in checkpoint: [3]"},
		{restored(at, "x", "3 2,2", tensor.Float32), status.Internal, "Extent in dimension 0 out of bounds: shape = [3], slice = 2,2"},
		{restored(at, "v", "", tensor.Float32), status.InvalidArgument, "Does not have sufficient slices for partitioned tensor v to restore in slice_spec: -"},
		{restored(dir+"/none", "x", "", tensor.Float32), status.NotFound, "Unsuccessful TensorSliceReader constructor: Failed to find any matching files for " + dir + "/none"},
		{node("RestoreV2", one, text(nil, at), names("x", "y"), names("", "")), status.InvalidArgument, "Got 2 tensor names, but 1 expected dtypes."},
		{node("RestoreV2", one, text(nil, at), names("x"), names("", "")), status.InvalidArgument, "tensor_names and shape_and_slices have different number of elements: 1 vs. 2"},
		{b.merged(nil, dir+"/m", at, dir+"/none"), status.InvalidArgument, "allow_missing_files was set to false and " + dir + "/none did not exist"},
		{b.merged(attrs{"allow_missing_files": true}, dir+"/m", dir+"/none"), status.InvalidArgument, "At least one prefix checkpoint file must exist, but none existed."},
		{node("MergeV2Checkpoints", attrs{"delete_old_dirs": true}, text(nil, at), text(nil, at)), status.InvalidArgument, "Input checkpoint_prefixes should be an 1-D tensor, got [] instead."},
		{node("MergeV2Checkpoints", attrs{"delete_old_dirs": true}, names(at), names(at)), status.InvalidArgument, "Input destination_prefix should be a scalar tensor, got [1] instead."},
		{b.fails("ShardedFilename", nil, names("b"), scalar[int32](1), scalar[int32](2)), status.InvalidArgument, "basename must be a scalar, got shape [1]"},
		{b.fails("ShardedFilename", nil, text(nil, "b"), vec[int32](1, 2), scalar[int32](2)), status.InvalidArgument, "shard must be a scalar, got shape [2]"},
		{b.saved("gs://bucket/c", "x", "", x), status.Unimplemented, "File system scheme 'gs' not implemented (file: 'gs://bucket/c')"},
	} {
		if status.CodeOf(c.err) != c.code || !strings.Contains(c.err.Error(), c.want) {
			t.Errorf("got  %v\nwant %v: %s", c.err, c.code, c.want)
		}
	}
	data, err := os.ReadFile(at + ".data-00000-of-00001")
	if err != nil {
		t.Fatal(err)
	}
	data[0] ^= 1
	if err := os.WriteFile(at+".data-00000-of-00001", data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := restored(at, "x", "", tensor.Float32); status.CodeOf(err) != status.DataLoss || !strings.Contains(err.Error(), "TensorBundle at "+at+" shard 0 (12 bytes): Checksum does not match: stored 944629635 vs. calculated on the restored bytes 154940339") {
		t.Errorf("a changed byte: %v", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
		t.Errorf("the directory has %v, %v: what a failed save began is left", entries, err)
	}
}

// TestCheckpointsNeedADirectory: without AllowFiles the ops that use files are refused when the graph is registered, with
// what to do. The one that makes a name is not.
func TestCheckpointsNeedADirectory(t *testing.T) {
	b := newBench(t)
	if err := b.set.AllowFiles(); err != nil {
		t.Fatal(err)
	}
	for _, op := range []string{"SaveV2", "RestoreV2", "MergeV2Checkpoints"} {
		n := &graph.Node{Name: "n", Op: op, OpDef: b.set.OpDef(op), Def: &tfpb.NodeDef{}}
		_, err := b.state.NewKernel(n)
		if want := `node "n": op ` + op + ` reads or writes files of this server, which allows none; start it with --tensorflow-files DIR`; status.CodeOf(err) != status.PermissionDenied || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", op, err)
		}
	}
	b.run("ShardedFilename", nil, text(nil, "b"), scalar[int32](1), scalar[int32](2))
}

// TestCheckpointsAreBelowTheDirectory: a graph names files below the directories in any way, and no others.
func TestCheckpointsAreBelowTheDirectory(t *testing.T) {
	outer, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	dir, other, outside, alias := outer+"/dir", outer+"/dir/deep/other", outer+"/dirs", outer+"/alias"
	for _, d := range []string{dir, other, outside, dir + "/sub"} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Symlink(dir, alias), os.Symlink(outside, dir+"/out"), os.Symlink("sub", dir+"/in")); err != nil {
		t.Fatal(err)
	}
	b := newFileBench(t, alias+"/", other)
	x := vec[float32](1)
	for _, prefix := range []string{"/c", "//c", "/./c", "/sub/c", "/sub/../c", "/in/c", "/", "/deep/other/c"} {
		for _, d := range []string{dir, alias, "file://" + dir, "/" + dir, strings.Replace(dir, "/dir", "/./dir", 1)} {
			if err := b.saved(d+prefix, "x", "", x); err != nil {
				t.Errorf("save %s%s: %v", d, prefix, err)
			}
			if _, err := b.restored(d+prefix, "x", "", tensor.Float32); err != nil {
				t.Errorf("restore %s%s: %v", d, prefix, err)
			}
		}
	}
	t.Chdir(dir)
	if err := b.saved("relative", "x", "", x); err != nil {
		t.Errorf("a relative path: %v", err)
	}
	before := tree(t, outer)
	for _, prefix := range []string{dir, dir + "s/c", outside + "/c", dir + "/../dirs/c", dir + "/sub/../../dirs/c", dir + "/out/c", "/etc/passwd", "/c", "/", "../dirs/c", "file:///etc/c", "/proc/self/cwd/c"} {
		err := b.saved(prefix, "x", "", x)
		if status.CodeOf(err) != status.PermissionDenied || !strings.Contains(err.Error(), "Permission denied") {
			t.Errorf("save %q: %v", prefix, err)
		}
		if _, err := b.restored(prefix, "x", "", tensor.Float32); status.CodeOf(err) != status.PermissionDenied {
			t.Errorf("restore %q: %v", prefix, err)
		}
		if err := b.merged(nil, prefix, dir+"/c"); status.CodeOf(err) != status.PermissionDenied {
			t.Errorf("merge into %q: %v", prefix, err)
		}
		if err := b.merged(nil, dir+"/m", prefix); status.CodeOf(err) != status.PermissionDenied {
			t.Errorf("merge %q: %v", prefix, err)
		}
	}
	if after := tree(t, outer); !slices.Equal(before, after) {
		t.Errorf("the files are %q, and were %q", after, before)
	}
}

// TestADirectoryForFilesIsALinkInAnother: the directory that is nearest to a file decides.
func TestADirectoryForFilesIsALinkInAnother(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	if err := os.Symlink(outside, dir+"/out"); err != nil {
		t.Fatal(err)
	}
	for _, dirs := range [][]string{{dir, dir + "/out"}, {dir + "/out", dir}} {
		b := newFileBench(t, dirs...)
		if err := b.saved(dir+"/out/c", "x", "", vec[float32](1)); err != nil {
			t.Errorf("%q: %v", dirs, err)
		}
	}
}

func tree(t *testing.T, dir string) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		paths = append(paths, path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// TestADirectoryForFilesExists: a directory that is missing is an error at the start.
func TestADirectoryForFilesExists(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/file", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir + "/none", dir + "/file"} {
		if err := New().AllowFiles(dir, path); status.CodeOf(err) != status.FailedPrecondition || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestTypesOfCheckpoints: types that no checkpoint has are refused when the graph is registered.
func TestTypesOfCheckpoints(t *testing.T) {
	b := newFileBench(t, t.TempDir())
	save := &graph.Node{Name: "n", Op: "SaveV2", Def: &tfpb.NodeDef{}, InTypes: []tensor.DType{tensor.String, tensor.String, tensor.String, tensor.Variant}}
	restore := &graph.Node{Name: "n", Op: "RestoreV2", Def: &tfpb.NodeDef{}, OutTypes: []tensor.DType{tensor.Resource}}
	for _, n := range []*graph.Node{save, restore} {
		if _, err := b.state.NewKernel(n); status.CodeOf(err) != status.Unimplemented {
			t.Errorf("%s: %v", n.Op, err)
		}
	}
}

// TestKernelsThatUseFilesWait: so many run at once, and one that waits for its turn ends with its step. Memory for it is
// counted.
func TestKernelsThatUseFilesWait(t *testing.T) {
	b := newFileBench(t, t.TempDir())
	for range maxFileKernels {
		b.set.files.running <- struct{}{}
	}
	n, inputs := b.saveNode(t.TempDir()+"/c", "x", "", vec[float32](1))
	k, err := b.state.NewKernel(n)
	if err != nil {
		t.Fatal(err)
	}
	pool := tensor.NewPool(tensor.PoolOptions{Limit: 1 << 20})
	b.step.Allocator = pool
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	async, _ := k.(graph.AsyncKernel)
	async.ComputeAsync(&graph.Context{Ctx: ctx, Step: b.step, Node: n, Inputs: inputs}, func(err error) { done <- err })
	if used := pool.Stats().InUse; used < waitBytes {
		t.Errorf("%d bytes are counted, want %d", used, waitBytes)
	}
	select {
	case err := <-done:
		t.Fatalf("the kernel did not wait: %v", err)
	default:
	}
	cancel()
	if err := <-done; status.CodeOf(err) != status.Cancelled || pool.Stats().InUse != 0 {
		t.Errorf("%v, %d bytes", err, pool.Stats().InUse)
	}
	b.step.Allocator = tensor.NewPool(tensor.PoolOptions{Limit: 1})
	if _, err := b.compute(k, n, inputs...); status.CodeOf(err) != status.ResourceExhausted {
		t.Errorf("without memory: %v", err)
	}
}

// TestPanicsOfKernelsThatUseFiles end the step and not the process, and others run after them.
func TestPanicsOfKernelsThatUseFiles(t *testing.T) {
	b := newFileBench(t, t.TempDir())
	state, _ := b.state.(*State)
	k, err := newFileKernel(&graph.Node{Name: "save", Op: "SaveV2"}, state, func(c *graph.Context, _ *files) error {
		return errors.New(c.Input(0).Elements()[0]) // there is no input
	})
	if err != nil {
		t.Fatal(err)
	}
	for range maxFileKernels + 1 {
		if err := k.Compute(&graph.Context{Ctx: t.Context(), Step: b.step}); status.CodeOf(err) != status.Internal || !strings.Contains(err.Error(), "op SaveV2 panicked, which is a bug") {
			t.Fatal(err)
		}
	}
}

// TestMemoryOfCheckpoints: what a restore gives and a save keeps is in the memory of the step.
func TestMemoryOfCheckpoints(t *testing.T) {
	dir := t.TempDir()
	b := newFileBench(t, dir)
	x := vec(make([]float32, 1<<18)...)
	if err := b.saved(dir+"/c", "x", "", x); err != nil {
		t.Fatal(err)
	}
	pool := tensor.NewPool(tensor.PoolOptions{Limit: 1 << 20, Keep: -1})
	b.step.Allocator = pool
	if _, err := b.restored(dir+"/c", "x", "", tensor.Float32); status.CodeOf(err) != status.ResourceExhausted {
		t.Errorf("a restore of 1 MiB with 1 MiB: %v", err)
	}
	if used := pool.Stats().InUse; used != 0 {
		t.Errorf("%d bytes are not released", used)
	}
}
