package checkpoint_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tryst-rdma/tryst/internal/checkpoint"
	"github.com/tryst-rdma/tryst/internal/fakemodel"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/npy"
	"github.com/tryst-rdma/tryst/tensor/safetensors"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
)

// foreign is a file whose header nobody here would write: other white space,
// an escaped name, fields in another order and one that the format lacks.
func foreign(t testing.TB, path string) string {
	t.Helper()
	header := `{ "\u0078":{"shape":[2],"more":1,"data_offsets":[ 0 ,8],"dtype":"F32"},"y":{"dtype":"U8","shape":[],"data_offsets":[8,9]} }   `
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	writeFile(t, path, append(append(b, header...), "12345678!"...))
	return path
}

// arrayFile writes an array with a header of version 1.0 that nobody here would write.
func arrayFile(t testing.TB, path, header, content string) string {
	t.Helper()
	b := append([]byte("\x93NUMPY\x01\x00"), byte(len(header)), byte(len(header)>>8))
	writeFile(t, path, append(append(b, header...), content...))
	return path
}

// foreignArray has 1 2 3 / 4 5 6, column-major and big-endian.
func foreignArray(t testing.TB, path string) string {
	return arrayFile(t, path, "{'descr': '>i2', 'fortran_order': True, 'shape': (2, 3)}\n", "\x00\x01\x00\x04\x00\x02\x00\x05\x00\x03\x00\x06")
}

// oldArray has elements as a tensor has them, after a header without padding.
func oldArray(t testing.TB, path string) string {
	return arrayFile(t, path, "{'shape': (2L,), 'descr': '<i2', 'fortran_order': False}\n", "\x01\x02\x03\x04")
}

// wideStrings has elements that are longer than any of its strings.
func wideStrings(t testing.TB, path string) string {
	return arrayFile(t, path, "{'descr': '>U3', 'fortran_order': False, 'shape': (2,)}\n",
		"\x00\x00\x00\xe4\x00\x00\x00b\x00\x00\x00\x00"+strings.Repeat("\x00", 12))
}

// rawSafetensors writes a file with a given header.
func rawSafetensors(t testing.TB, path, header, data string) string {
	t.Helper()
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	writeFile(t, path, append(append(b, header...), data...))
	return path
}

// packed has a tensor of each type that package tensor lacks.
func packed(t testing.TB, path string) string {
	return rawSafetensors(t, path, `{"scales":{"dtype":"F8_E8M0","shape":[2,2],"data_offsets":[0,4]},`+
		`"e3m2":{"dtype":"F6_E3M2","shape":[4],"data_offsets":[4,7]},"e2m3":{"dtype":"F6_E2M3","shape":[2,4],"data_offsets":[7,13]},`+
		`"f4":{"dtype":"F4","shape":[2,3],"data_offsets":[13,16]}}`, "0123456789abcdef")
}

// requireOnly checks which files a directory has: no .part above all.
func requireOnly(t testing.TB, dir string, names ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if strings.Join(got, " ") != strings.Join(names, " ") {
		t.Errorf("the directory has %q, want %q", got, names)
	}
}

func TestSaveWritesTheSameBytes(t *testing.T) {
	dir := t.TempDir()
	made, err := fakemodel.Generate(t.Context(), filepath.Join(dir, "tiny.safetensors"), fakemodel.Options{Model: "tiny"})
	must(t, err)
	for what, path := range map[string]string{
		"ours":                        writeSafetensors(t, filepath.Join(dir, "m.safetensors"), map[string]string{"format": "pt"}, model(t)...),
		"foreign":                     foreign(t, filepath.Join(dir, "foreign.safetensors")),
		"generated":                   made.Files[0],
		"packed types":                packed(t, filepath.Join(dir, "p.safetensors")),
		"packed types, foreign":       rawSafetensors(t, filepath.Join(dir, "q.safetensors"), `{"x":{"shape":[2,3],"dtype":"F4","data_offsets":[0,3]}}`, "abc"),
		"empty":                       writeSafetensors(t, filepath.Join(dir, "e.safetensors"), nil),
		"array":                       writeNPY(t, filepath.Join(dir, "a.npy"), tensortest.Tensor(t, tensor.Float32, 3, 4)),
		"big-endian and column-major": foreignArray(t, filepath.Join(dir, "be.npy")),
		"an older header":             oldArray(t, filepath.Join(dir, "old.npy")),
		"wide strings":                wideStrings(t, filepath.Join(dir, "w.npy")),
		"strings":                     writeNPY(t, filepath.Join(dir, "s.npy"), tensortest.Strings(t, "a", "", "ccc")),
	} {
		t.Run(what, func(t *testing.T) {
			h := serve(t)
			pub := h.publish("m", path)
			to := t.TempDir()
			out := filepath.Join(to, "copy"+filepath.Ext(path))
			sum, err := h.dial().Save(t.Context(), checkpoint.PullRequest{}, checkpoint.SaveOptions{Out: out})
			must(t, err)
			if sum.Tensors != pub.Tensors || sum.Bytes != pub.Bytes || len(sum.Files) != 1 || sum.Files[0] != out {
				t.Errorf("summary %+v", sum)
			}
			if !bytes.Equal(readFile(t, path), readFile(t, out)) {
				t.Error("the copy differs")
			}
			requireOnly(t, to, filepath.Base(out))
		})
	}
}

// Types that package tensor lacks arrive as their bytes, the manifest has their names, and a file of
// some of them has them again.
func TestPackedTypes(t *testing.T) {
	h := serve(t)
	h.publish("m", packed(t, filepath.Join(t.TempDir(), "p.safetensors")))
	c := h.dial()
	var got []string
	for _, x := range c.pull(t, checkpoint.PullRequest{}) {
		got = append(got, x.Name()+" "+x.String()+" "+string(x.Bytes()))
	}
	if want := "scales uint8[2,2] 0123, e3m2 uint8[3] 456, e2m3 uint8[6] 789abc, f4 uint8[3] def"; strings.Join(got, ", ") != want {
		t.Errorf("got  %s\nwant %s", strings.Join(got, ", "), want)
	}
	dir := t.TempDir()
	out := filepath.Join(dir, "some.safetensors")
	_, err := c.Save(t.Context(), checkpoint.PullRequest{Tensors: []string{"e2m3", "f4"}}, checkpoint.SaveOptions{Out: out})
	must(t, err)
	_, err = c.Save(t.Context(), checkpoint.PullRequest{Tensors: []string{"f4"}}, checkpoint.SaveOptions{Out: filepath.Join(dir, "f4.npy")})
	mustBe(t, err, status.InvalidArgument, "NumPy has no elements of type F4")
	again := serve(t)
	again.publish("some", out)
	m, err := again.dial().Describe(t.Context(), "some", "")
	must(t, err)
	for i, want := range []string{"F6_E2M3 [2,4]", "F4 [2,3]"} {
		if dtype, shape := m.Entries[i].Elements(); dtype+" "+shape.String() != want {
			t.Errorf("%s is %s %v, want %s", m.Entries[i].Name, dtype, shape, want)
		}
	}
}

func TestSaveADirectory(t *testing.T) {
	from := writeSharded(t, t.TempDir(), model(t)...)
	array := writeNPY(t, filepath.Join(from, "vocab.npy"), tensortest.Tensor(t, tensor.Int32, 9))
	h := serve(t)
	h.publish("m", from, array)
	to := filepath.Join(t.TempDir(), "new") + "/"
	sum, err := h.dial().Save(t.Context(), checkpoint.PullRequest{}, checkpoint.SaveOptions{Out: to})
	must(t, err)
	if len(sum.Files) != 4 {
		t.Errorf("files %q", sum.Files)
	}
	names := []string{"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", safetensors.IndexName, "vocab.npy"}
	requireOnly(t, to, names...)
	for _, name := range names {
		if !bytes.Equal(readFile(t, filepath.Join(from, name)), readFile(t, filepath.Join(to, name))) {
			t.Errorf("%s differs", name)
		}
	}
	// What was pulled can be published, and is the same.
	again := serve(t).publish("m", to, filepath.Join(to, "vocab.npy"))
	if again.Version != sum.Publication.Version {
		t.Errorf("pulled and published again it has version %s, not %s", again.Version, sum.Publication.Version)
	}
}

// The index comes out as it was published, with its name and its metadata, also that of a single
// file. What had no index gets none.
func TestSaveTheIndexThatWasPublished(t *testing.T) {
	const name = "diffusion_pytorch_model.safetensors.index.json"
	tensors := model(t)
	weights := func(file string, tensors ...*tensor.Tensor) string {
		var all []string
		for _, x := range tensors {
			all = append(all, fmt.Sprintf("%q:%q", x.Name(), file))
		}
		return strings.Join(all, ",")
	}
	sharded, single, none := t.TempDir(), t.TempDir(), t.TempDir()
	writeSafetensors(t, filepath.Join(sharded, "1.safetensors"), nil, tensors[:3]...)
	writeSafetensors(t, filepath.Join(sharded, "2.safetensors"), nil, tensors[3:]...)
	writeFile(t, filepath.Join(sharded, name), []byte(`{ "metadata":{"total_parameters":7,"total_size":1}, "other":[1],
		"weight_map":{`+weights("1.safetensors", tensors[:3]...)+","+weights("2.safetensors", tensors[3:]...)+"} }"))
	writeSafetensors(t, filepath.Join(single, "1.safetensors"), nil, tensors...)
	writeFile(t, filepath.Join(single, name), []byte(`{"weight_map":{`+weights("1.safetensors", tensors...)+"}}"))
	writeSafetensors(t, filepath.Join(none, "1.safetensors"), nil, tensors[:3]...)
	writeSafetensors(t, filepath.Join(none, "2.safetensors"), nil, tensors[3:]...)
	h := serve(t)
	h.publish("sharded", sharded)
	h.publish("single", single)
	h.publish("none", filepath.Join(none, "1.safetensors"), filepath.Join(none, "2.safetensors"))
	c := h.dial()
	save := func(publication string, patterns ...string) string {
		t.Helper()
		to := t.TempDir()
		_, err := c.Save(t.Context(), checkpoint.PullRequest{Publication: publication, Tensors: patterns}, checkpoint.SaveOptions{Out: to})
		must(t, err)
		return to
	}
	for publication, from := range map[string]string{"sharded": sharded, "single": single, "none": none} {
		to := save(publication)
		entries, err := os.ReadDir(from)
		must(t, err)
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
			if !bytes.Equal(readFile(t, filepath.Join(from, e.Name())), readFile(t, filepath.Join(to, e.Name()))) {
				t.Errorf("%s: %s differs", publication, e.Name())
			}
		}
		requireOnly(t, to, names...)
	}
	// Of some tensors it is the index of these.
	to := save("sharded", "h.0/*")
	requireOnly(t, to, "1.safetensors", name)
	x, err := safetensors.ParseIndex(readFile(t, filepath.Join(to, name)))
	must(t, err)
	if size := tensors[1].Size() + tensors[2].Size(); len(x.WeightMap) != 2 || x.WeightMap["h.0/attn.bias"] != "1.safetensors" ||
		x.TotalSize != size || string(x.Metadata["total_parameters"]) != "7" {
		t.Errorf("the index is %+v", x)
	}
	serve(t).publish("again", to)
}

// Tensors of several files, or of none, go into one.
func TestSaveOneFileFromMany(t *testing.T) {
	tensors := model(t)
	sharded := serve(t)
	sharded.publish("m", writeSharded(t, t.TempDir(), tensors...))
	memory := serve(t)
	_, err := memory.catalog.PublishTensors(t.Context(), "m", tensors...)
	must(t, err)
	for what, h := range map[string]*host{"shards": sharded, "memory": memory} {
		dir := t.TempDir()
		for _, out := range []string{filepath.Join(dir, "one.safetensors"), dir} {
			if out == dir && what == "shards" {
				continue
			}
			_, err := h.dial().Save(t.Context(), checkpoint.PullRequest{}, checkpoint.SaveOptions{Out: out})
			must(t, err)
		}
		again := serve(t)
		pub := again.publish("m", filepath.Join(dir, "one.safetensors"))
		m, err := again.catalog.Describe("m", "")
		must(t, err)
		want := map[string]string(nil)
		if what == "shards" {
			want = map[string]string{"format": "pt", "part": "model-00001-of-00002.safetensors"}
		} else if !bytes.Equal(readFile(t, filepath.Join(dir, "m.safetensors")), readFile(t, filepath.Join(dir, "one.safetensors"))) {
			t.Error("the file in a directory differs")
		}
		if pub.Tensors != len(tensors) || fmt.Sprint(m.Files[0].Metadata) != fmt.Sprint(want) {
			t.Errorf("%s: %+v with metadata %v", what, pub, m.Files[0].Metadata)
		}
		for _, x := range tensors {
			got := again.dial().pull(t, checkpoint.PullRequest{Tensors: []string{x.Name()}})
			requireSame(t, []*tensor.Tensor{x}, got)
		}
	}
}

func TestSaveSomeTensors(t *testing.T) {
	tensors := model(t)
	h := serve(t)
	h.publish("m", writeSafetensors(t, filepath.Join(t.TempDir(), "m.safetensors"), map[string]string{"a": "b"}, tensors...))
	c, dir := h.dial(), t.TempDir()
	out := filepath.Join(dir, "some.safetensors")
	_, err := c.Save(t.Context(), checkpoint.PullRequest{Tensors: []string{"h.0/*"}}, checkpoint.SaveOptions{Out: out})
	must(t, err)
	want := writeSafetensors(t, filepath.Join(t.TempDir(), "w"), map[string]string{"a": "b"}, tensors[1], tensors[2])
	if !bytes.Equal(readFile(t, out), readFile(t, want)) {
		t.Error("the file is not what two tensors make")
	}
	out = filepath.Join(dir, "one.npy")
	_, err = c.Save(t.Context(), checkpoint.PullRequest{Tensors: []string{"scalar"}}, checkpoint.SaveOptions{Out: out})
	must(t, err)
	b := readFile(t, out)
	f, err := npy.Open(bytes.NewReader(b), int64(len(b)))
	must(t, err)
	x, err := f.Read(tensor.Heap{})
	must(t, err)
	tensortest.RequireEqual(t, tensors[5], x)
	for _, tt := range []struct {
		pattern, out string
		code         status.Code
		want         string
	}{
		{"h.0/*", "two.npy", status.InvalidArgument, "2 are chosen"},
		{"h.0/attn.weight", "bf16.npy", status.InvalidArgument, "bfloat16"},
		{"no", "x", status.NotFound, `"no"`},
		{"*", "missing/x", status.NotFound, "missing/x.part"},
		{"*", "", status.InvalidArgument, "no path"},
	} {
		at := tt.out
		if at != "" {
			at = filepath.Join(dir, tt.out)
		}
		_, err = c.Save(t.Context(), checkpoint.PullRequest{Tensors: []string{tt.pattern}}, checkpoint.SaveOptions{Out: at})
		mustBe(t, err, tt.code, tt.want)
	}
	requireOnly(t, dir, "one.npy", "some.safetensors")
}

func TestSaveReplacesOnlyByForce(t *testing.T) {
	h := serve(t)
	from := writeSafetensors(t, filepath.Join(t.TempDir(), "m.safetensors"), nil, model(t)...)
	h.publish("m", from)
	c, dir := h.dial(), t.TempDir()
	out := filepath.Join(dir, "m.safetensors")
	writeFile(t, out, []byte("precious"))
	save := func(out string, force bool) error {
		_, err := c.Save(t.Context(), checkpoint.PullRequest{}, checkpoint.SaveOptions{Out: out, Force: force})
		return err
	}
	mustBe(t, save(out, false), status.AlreadyExists, out, "force")
	mustBe(t, save(dir, false), status.AlreadyExists, out, "force")
	if h.catalog.Pulls() != 0 || h.ended.Load() != 0 {
		t.Error("a pull began although the target exists")
	}
	if string(readFile(t, out)) != "precious" {
		t.Error("the file was touched")
	}
	must(t, save(out, true))
	if !bytes.Equal(readFile(t, from), readFile(t, out)) {
		t.Error("the file was not replaced")
	}
	// Force replaces no device, pipe or directory.
	pipe := filepath.Join(dir, "pipe")
	must(t, syscall.Mkfifo(pipe, 0o666))
	mustBe(t, save(pipe, true), status.InvalidArgument, "not a regular file")
	must(t, os.Mkdir(filepath.Join(dir, "d"), 0o777))
	must(t, os.Mkdir(filepath.Join(dir, "d", "m.safetensors"), 0o777))
	mustBe(t, save(filepath.Join(dir, "d"), true), status.AlreadyExists, "is a directory")
}

func TestSaveTakesOverAStalePart(t *testing.T) {
	h := serve(t)
	from := writeSafetensors(t, filepath.Join(t.TempDir(), "m.safetensors"), nil, model(t)...)
	h.publish("m", from)
	c, dir := h.dial(), t.TempDir()
	out := filepath.Join(dir, "m.safetensors")
	save := func() error {
		_, err := c.Save(t.Context(), checkpoint.PullRequest{}, checkpoint.SaveOptions{Out: out})
		return err
	}
	writeFile(t, out+".part", bytes.Repeat([]byte("stale"), 1_000_000))
	must(t, save())
	if !bytes.Equal(readFile(t, from), readFile(t, out)) {
		t.Error("the copy differs")
	}
	requireOnly(t, dir, "m.safetensors")

	must(t, os.Remove(out))
	victim := filepath.Join(t.TempDir(), "victim")
	writeFile(t, victim, []byte("precious"))
	must(t, os.Symlink(victim, out+".part"))
	if err := save(); err == nil || string(readFile(t, victim)) != "precious" {
		t.Errorf("a symbolic link as .part: %v, it leads to %q", err, readFile(t, victim))
	}
	must(t, os.Remove(out+".part"))
	must(t, os.Link(victim, out+".part"))
	err := save()
	mustBe(t, err, status.InvalidArgument, "m.safetensors.part", "hard link")
	if string(readFile(t, victim)) != "precious" {
		t.Errorf("the file of which .part is a hard link is now %q", readFile(t, victim))
	}
}

// A pull to a file that another one is writing is refused, and the other one
// goes on.
func TestTwoPullsToOneTarget(t *testing.T) {
	h := serve(t)
	from := writeSafetensors(t, filepath.Join(t.TempDir(), "m.safetensors"), nil, model(t)...)
	h.publish("m", from)
	c, dir := h.dial(), t.TempDir()
	out := checkpoint.SaveOptions{Out: filepath.Join(dir, "m.safetensors")}
	var second error
	_, err := c.Save(t.Context(), checkpoint.PullRequest{Inflight: 1, InflightBytes: 1, Progress: func(p checkpoint.Progress) {
		if p.Tensors == 2 {
			_, second = c.Save(t.Context(), checkpoint.PullRequest{}, out)
		}
	}}, out)
	must(t, err)
	mustBe(t, second, status.FailedPrecondition, "another", "m.safetensors.part")
	if !bytes.Equal(readFile(t, from), readFile(t, out.Out)) {
		t.Error("the copy differs")
	}
	requireOnly(t, dir, "m.safetensors")
}

// A pull that ends early keeps what has come, and says where. One that has written nothing
// leaves nothing.
func TestInterruptedPullKeepsWhatHasCome(t *testing.T) {
	h := serve(t)
	h.publish("m", writeSharded(t, t.TempDir(), model(t)...))
	c, dir := h.dial(), t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	_, err := c.Save(ctx, checkpoint.PullRequest{Inflight: 1, InflightBytes: 1, Progress: func(p checkpoint.Progress) {
		if p.Tensors == 2 {
			cancel()
		}
	}}, checkpoint.SaveOptions{Out: dir})
	mustBe(t, err, status.Cancelled, "was cancelled", "what has come is in "+filepath.Join(dir, "model-00001-of-00002.safetensors.part"), "--no-resume")
	requireOnly(t, dir, "model-00001-of-00002.safetensors.part", "model-00001-of-00002.safetensors.part.journal")
	h.idle(t, 1)

	dir = t.TempDir()
	h.damage = damager(0)
	_, err = c.Save(t.Context(), checkpoint.PullRequest{}, checkpoint.SaveOptions{Out: filepath.Join(dir, "x")})
	mustBe(t, err, status.DataLoss)
	if strings.Contains(err.Error(), ".part") {
		t.Errorf("error %q names what is not there", err)
	}
	requireOnly(t, dir)
	h.damage = nil
}

// TestNoPromiseOfAPartThatIsGone: a directory that was removed took the .part with it.
func TestNoPromiseOfAPartThatIsGone(t *testing.T) {
	h := serve(t)
	h.publish("m", writeSafetensors(t, filepath.Join(t.TempDir(), "m.safetensors"), nil, model(t)...))
	dir := filepath.Join(t.TempDir(), "out")
	must(t, os.Mkdir(dir, 0o755))
	ctx, cancel := context.WithCancel(t.Context())
	_, err := h.dial().Save(ctx, checkpoint.PullRequest{Inflight: 1, InflightBytes: 1, Progress: func(p checkpoint.Progress) {
		if p.Tensors == 2 {
			must(t, os.RemoveAll(dir))
			cancel()
		}
	}}, checkpoint.SaveOptions{Out: dir})
	mustBe(t, err, status.Cancelled)
	if strings.Contains(err.Error(), ".part") {
		t.Errorf("the error promises what is gone: %v", err)
	}
}

// A full disk, as far as a test can make one: this test runs itself again with
// a limit on the size of files.
func TestFullDisk(t *testing.T) {
	const variable = "TRYST_TEST_FULL_DISK"
	if dir := os.Getenv(variable); dir != "" {
		limit := syscall.Rlimit{Cur: 1000, Max: 1000}
		must(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit))
		h := serve(t)
		_, err := h.catalog.PublishTensors(t.Context(), "m", model(t)...)
		must(t, err)
		_, err = h.dial().Save(t.Context(), checkpoint.PullRequest{}, checkpoint.SaveOptions{Out: filepath.Join(dir, "m.safetensors")})
		mustBe(t, err, status.ResourceExhausted, "m.safetensors.part", "bytes")
		_, err = fakemodel.Generate(t.Context(), filepath.Join(dir, "tiny.safetensors"), fakemodel.Options{Model: "tiny"})
		mustBe(t, err, status.ResourceExhausted, "tiny.safetensors.part", "bytes")
		requireOnly(t, dir)
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestFullDisk$", "-test.v")
	cmd.Env = append(os.Environ(), variable+"="+t.TempDir())
	if out, err := cmd.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("PASS: TestFullDisk")) {
		t.Errorf("%v: %s", err, out)
	}
}

// A file that appears at the target's place while the pull is under way is not
// replaced, unless by force.
func TestSaveLooksAgainBeforeItReplaces(t *testing.T) {
	for _, force := range []bool{false, true} {
		h := serve(t)
		from := writeSafetensors(t, filepath.Join(t.TempDir(), "m.safetensors"), nil, model(t)...)
		h.publish("m", from)
		dir := t.TempDir()
		out := filepath.Join(dir, "m.safetensors")
		_, err := h.dial().Save(t.Context(), checkpoint.PullRequest{Inflight: 1, InflightBytes: 1, Progress: func(p checkpoint.Progress) {
			if p.Tensors == 2 {
				writeFile(t, out, []byte("precious"))
			}
		}}, checkpoint.SaveOptions{Out: out, Force: force})
		want, left := []byte("precious"), []string{"m.safetensors"}
		if force {
			must(t, err)
			want = readFile(t, from)
		} else {
			mustBe(t, err, status.AlreadyExists, out, "force")
			left = append(left, "m.safetensors.part", "m.safetensors.part.journal")
		}
		if !bytes.Equal(readFile(t, out), want) {
			t.Errorf("force %v: the file is not what it should be", force)
		}
		requireOnly(t, dir, left...)
	}
}

// A part of a file whose header is not ours gets a header of its own, and a directory with one
// file no index.
func TestSaveAPartOfAForeignFile(t *testing.T) {
	h := serve(t)
	h.publish("m", foreign(t, filepath.Join(t.TempDir(), "m.safetensors")))
	dir := t.TempDir()
	_, err := h.dial().Save(t.Context(), checkpoint.PullRequest{Tensors: []string{"x"}}, checkpoint.SaveOptions{Out: dir})
	must(t, err)
	requireOnly(t, dir, "m.safetensors")
	f, err := os.Open(filepath.Join(dir, "m.safetensors"))
	must(t, err)
	defer f.Close()
	stat, err := f.Stat()
	must(t, err)
	header, err := safetensors.ReadHeader(f, stat.Size())
	must(t, err)
	if all := header.Tensors(); len(all) != 1 || all[0].Name != "x" {
		t.Errorf("the file has %v", all)
	}
}
