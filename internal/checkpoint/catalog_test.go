package checkpoint_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/checkpoint"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/safetensors"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
)

// writeSharded writes tensors in two files with an index, and returns the
// directory.
func writeSharded(t testing.TB, dir string, tensors ...*tensor.Tensor) string {
	t.Helper()
	names := []string{"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"}
	half := len(tensors) / 2
	index := &safetensors.Index{WeightMap: make(map[string]string)}
	for n, part := range [][]*tensor.Tensor{tensors[:half], tensors[half:]} {
		writeSafetensors(t, filepath.Join(dir, names[n]), map[string]string{"format": "pt", "part": names[n]}, part...)
		for _, x := range part {
			index.WeightMap[x.Name()] = names[n]
			index.TotalSize += x.Size()
		}
	}
	var b bytes.Buffer
	if _, err := index.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, safetensors.IndexName), b.Bytes())
	return dir
}

func TestPublishWhatAPathMeans(t *testing.T) {
	dir := t.TempDir()
	tensors := model(t)
	one := writeSafetensors(t, filepath.Join(dir, "one", "weights.v2.safetensors"), nil, tensors...)
	sharded := writeSharded(t, filepath.Join(dir, "sharded"), tensors...)
	array := tensortest.Tensor(t, tensor.Int16, 3, 5)
	npy := writeNPY(t, filepath.Join(dir, "ids.npy"), array)
	for _, c := range []struct {
		what, path, name string
		want             []*tensor.Tensor
	}{
		{"file", one, "weights.v2", tensors},
		{"directory with a file", filepath.Dir(one), "one", tensors},
		{"directory with an index", sharded, "sharded", tensors},
		{"index", filepath.Join(sharded, safetensors.IndexName), "model", tensors},
		{"array", npy, "ids", []*tensor.Tensor{array.Named("ids")}},
	} {
		t.Run(c.what, func(t *testing.T) {
			h := serve(t)
			pub := h.publish("", c.path)
			if pub.Name != c.name {
				t.Errorf("the name is %q, want %q", pub.Name, c.name)
			}
			requireSame(t, c.want, h.dial().pull(t, checkpoint.PullRequest{Publication: c.name}))
		})
	}
}

func TestPublishArraysThatAreConverted(t *testing.T) {
	dir := t.TempDir()
	header := func(descr, order string) []byte {
		text := "{'descr': '" + descr + "', 'fortran_order': " + order + ", 'shape': (2, 3), }"
		text += strings.Repeat(" ", 117-len(text)) + "\n"
		return append([]byte("\x93NUMPY\x01\x00"), append(binary.LittleEndian.AppendUint16(nil, uint16(len(text))), text...)...)
	}
	// 1 2 3 / 4 5 6, column-major and big-endian.
	content := header(">i2", "True")
	for _, v := range []uint16{1, 4, 2, 5, 3, 6} {
		content = binary.BigEndian.AppendUint16(content, v)
	}
	writeFile(t, filepath.Join(dir, "be.npy"), content)
	writeFile(t, filepath.Join(dir, "words.npy"), append(header("|S3", "False"), "a\x00\x00bcdef\x00ghi\x00\x00\x00j\x00\x00"...))
	be, err := tensor.FromSlice(tensortest.Shape(t, 2, 3), []int16{1, 2, 3, 4, 5, 6})
	if err != nil {
		t.Fatal(err)
	}
	words, err := tensor.FromStrings(tensortest.Shape(t, 2, 3), []string{"a", "bcd", "ef", "ghi", "", "j"})
	if err != nil {
		t.Fatal(err)
	}
	want := []*tensor.Tensor{be.Named("be"), words.Named("words")}
	for _, mmap := range []bool{false, true} {
		h := serve(t, func(o *checkpoint.CatalogOptions) { o.MMap = mmap })
		h.publish("arrays", filepath.Join(dir, "be.npy"), filepath.Join(dir, "words.npy"))
		requireSame(t, want, h.dial().pull(t, checkpoint.PullRequest{}))
	}
}

func TestPublishErrors(t *testing.T) {
	dir := t.TempDir()
	at := func(elem ...string) string { return filepath.Join(append([]string{dir}, elem...)...) }
	x := named(t, "x", tensor.Float32, 4)
	writeSafetensors(t, at("a.safetensors"), nil, x)
	writeSafetensors(t, at("b.safetensors"), nil, x)
	writeSafetensors(t, at("other", "a.safetensors"), nil, named(t, "y", tensor.Float32, 4))
	writeSafetensors(t, at("two", "a.safetensors"), nil, x)
	writeSafetensors(t, at("two", "b.safetensors"), nil, x)
	writeFile(t, at("lost", "model.safetensors.index.json"), []byte(`{"weight_map":{"x":"gone.safetensors"}}`))
	writeFile(t, at("evil", "model.safetensors.index.json"), []byte(`{"weight_map":{"x":"../a.safetensors"}}`))
	writeSafetensors(t, at("less", "a.safetensors"), nil, x)
	writeFile(t, at("less", "model.safetensors.index.json"), []byte(`{"weight_map":{"x":"a.safetensors","z":"a.safetensors"}}`))
	writeFile(t, at("empty", "readme"), nil)
	writeFile(t, at("model.bin"), nil)
	writeFile(t, at("broken.safetensors"), []byte("\x10\x00\x00\x00\x00\x00\x00\x00{"))
	writeFile(t, at("broken.npy"), []byte("PK\x03\x04 and more"))
	if err := syscall.Mkfifo(at("pipe.safetensors"), 0o666); err != nil {
		t.Fatal(err)
	}
	h := serve(t)
	for _, c := range []struct {
		name  string
		paths []string
		code  status.Code
		words []string
	}{
		{"m", []string{at("missing.safetensors")}, status.NotFound, []string{"missing.safetensors", "no such file"}},
		{"m", []string{at("model.bin")}, status.InvalidArgument, []string{"model.bin", ".npy"}},
		{"m", []string{at("pipe.safetensors")}, status.InvalidArgument, []string{"pipe.safetensors"}},
		{"m", []string{at("broken.safetensors")}, status.DataLoss, []string{"broken.safetensors"}},
		{"m", []string{at("broken.npy")}, status.Unimplemented, []string{"broken.npy", "zip"}},
		{"m", []string{at("empty")}, status.NotFound, []string{"empty", ".safetensors"}},
		{"m", []string{at("two")}, status.InvalidArgument, []string{"two", "2 .safetensors files", "index"}},
		{"m", []string{at("lost")}, status.NotFound, []string{"gone.safetensors"}},
		{"m", []string{at("evil")}, status.InvalidArgument, []string{"../a.safetensors"}},
		{"m", []string{at("less")}, status.NotFound, []string{`"z"`, "a.safetensors"}},
		{"m", []string{at("a.safetensors"), at("b.safetensors")}, status.AlreadyExists, []string{`"x"`, "a.safetensors", "b.safetensors"}},
		{"m", []string{at("a.safetensors"), at("other", "a.safetensors")}, status.AlreadyExists, []string{"same name"}},
		{"m", nil, status.InvalidArgument, []string{"no file"}},
		{"", nil, status.InvalidArgument, []string{"empty"}},
		{"\xff", []string{at("a.safetensors")}, status.InvalidArgument, []string{"UTF-8"}},
	} {
		_, err := h.catalog.Publish(t.Context(), c.name, c.paths...)
		mustBe(t, err, c.code, c.words...)
	}
	if all := h.catalog.List(); len(all) != 0 {
		t.Errorf("what failed is published: %v", all)
	}
	h.publish("m", at("a.safetensors")) // no failure kept the name
	_, err := h.catalog.Publish(t.Context(), "m", at("b.safetensors"))
	mustBe(t, err, status.AlreadyExists, `"m"`)
	for _, x := range []*tensor.Tensor{nil, tensortest.Tensor(t, tensor.Float32, 1)} {
		_, err := h.catalog.PublishTensors(t.Context(), "t", x)
		mustBe(t, err, status.InvalidArgument)
	}
	_, err = h.catalog.PublishTensors(t.Context(), "t", x, x)
	mustBe(t, err, status.AlreadyExists, `"x"`)
	_, err = checkpoint.NewCatalog(checkpoint.CatalogOptions{Digest: "md5"})
	mustBe(t, err, status.InvalidArgument, "md5", checkpoint.XXH64, checkpoint.SHA256)
}

func TestPublishStopsWithItsContext(t *testing.T) {
	h := serve(t)
	path := writeSafetensors(t, filepath.Join(t.TempDir(), "m.safetensors"), nil, model(t)...)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := h.catalog.Publish(ctx, "m", path)
	mustBe(t, err, status.Cancelled, `"m"`)
	h.publish("m", path)
}

// TestClosedCatalogReadsNoFile: a publication that would be dropped at its end is refused before it begins.
func TestClosedCatalogReadsNoFile(t *testing.T) {
	h := serve(t)
	h.catalog.Close()
	_, err := h.catalog.Publish(t.Context(), "m", filepath.Join(t.TempDir(), "missing.safetensors"))
	mustBe(t, err, status.Unavailable, "stopping")
}

// The same content has the same version, other content another one.
func TestVersionFollowsTheContent(t *testing.T) {
	dir := t.TempDir()
	tensors := model(t)
	first := serve(t).publish("a", writeSafetensors(t, filepath.Join(dir, "1", "m.safetensors"), nil, tensors...))
	again := serve(t).publish("b", writeSafetensors(t, filepath.Join(dir, "2", "m.safetensors"), nil, tensors...))
	if first.Version != again.Version {
		t.Errorf("the same content has versions %s and %s", first.Version, again.Version)
	}
	for what, path := range map[string]string{
		"content":  writeSafetensors(t, filepath.Join(dir, "3", "m.safetensors"), nil, append(tensors[1:], named(t, tensors[0].Name(), tensor.Float32, 100, 65))...),
		"metadata": writeSafetensors(t, filepath.Join(dir, "4", "m.safetensors"), map[string]string{"a": "b"}, tensors...),
		"order":    writeSafetensors(t, filepath.Join(dir, "5", "m.safetensors"), nil, append(tensors[1:], tensors[0])...),
	} {
		if other := serve(t).publish("a", path); other.Version == first.Version {
			t.Errorf("another %s has the same version", what)
		}
	}
}

func TestProgressOfPublishing(t *testing.T) {
	var last, total int64
	h := serve(t, func(o *checkpoint.CatalogOptions) {
		o.Progress = func(name string, done, all int64) {
			if name != "m" || done < last {
				t.Errorf("progress of %q: %d after %d", name, done, last)
			}
			last, total = done, all
		}
	})
	pub := h.publish("m", writeSafetensors(t, filepath.Join(t.TempDir(), "x.safetensors"), nil, model(t)...))
	if last != pub.Bytes || total != pub.Bytes {
		t.Errorf("the last report says %d of %d bytes, want %d", last, total, pub.Bytes)
	}
}

func TestDigestsAreWhatTheirNamesSay(t *testing.T) {
	x, err := tensor.FromBytes(tensor.Uint8, tensor.Vector(3), []byte("abc"))
	if err != nil {
		t.Fatal(err)
	}
	for algorithm, want := range map[string]string{ // of "abc", from the algorithms' own test vectors
		checkpoint.XXH64:  "44bc2cf5ad770999",
		checkpoint.SHA256: "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
	} {
		h := serve(t, func(o *checkpoint.CatalogOptions) { o.Digest = algorithm })
		h.publish("m", writeSafetensors(t, filepath.Join(t.TempDir(), "m.safetensors"), nil, x.Named("x")))
		m, err := h.dial().Describe(t.Context(), "m", "")
		if err != nil {
			t.Fatal(err)
		}
		if got := hexOf(m.Entries[0].Digest); m.Algorithm != algorithm || got != want {
			t.Errorf("%s is %s, want %s", m.Algorithm, got, want)
		}
	}
}

func TestMappedFiles(t *testing.T) {
	dir := t.TempDir()
	tensors := model(t)
	h := serve(t, func(o *checkpoint.CatalogOptions) { o.MMap = true })
	h.publish("m", writeSafetensors(t, filepath.Join(dir, "m.safetensors"), nil, tensors...))
	array := tensortest.Tensor(t, tensor.Float64, 7)
	h.publish("a", writeNPY(t, filepath.Join(dir, "a.npy"), array))
	c := h.dial()
	got := c.pull(t, checkpoint.PullRequest{Publication: "m"})
	if err := h.withdraw("m"); err != nil {
		t.Fatal(err)
	}
	requireSame(t, tensors, got) // what was taken outlives the publication
	requireSame(t, []*tensor.Tensor{array.Named("a")}, c.pull(t, checkpoint.PullRequest{Publication: "a"}))
	if n := h.alloc.InUse(); n != 0 {
		t.Errorf("%d bytes of mapped files were read", n)
	}
}

func TestWithdraw(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := serve(t)
		path := writeSafetensors(t, filepath.Join(t.TempDir(), "m.safetensors"), nil, model(t)...)
		h.publish("m", path)
		c := h.dial()
		m, err := c.Describe(t.Context(), "m", "")
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for x, err := range c.Pull(t.Context(), checkpoint.PullRequest{Publication: "m", Inflight: 1, InflightBytes: 1}) {
			if n++; n == 1 {
				x.Release()
				if err := h.withdraw("m"); err != nil {
					t.Fatal(err)
				}
				continue
			}
			if err == nil { // the one that was under way
				x.Release()
				continue
			}
			mustBe(t, err, status.NotFound, "withdrawn", `"m"`)
		}
		if n < 2 {
			t.Error("the pull ended without an error")
		}
		_, err = c.Describe(t.Context(), "m", "")
		mustBe(t, err, status.NotFound, `"m"`, "there are none")
		mustBe(t, h.withdraw("m"), status.NotFound)
		if again := h.publish("m", path); again.Version != m.Version {
			t.Errorf("published again it has version %s, not %s", again.Version, m.Version)
		}
		_, err = c.Describe(t.Context(), "m", "0123")
		mustBe(t, err, status.NotFound, `"0123"`, m.Version)
	})
}

func TestUnknownNamesComeWithTheNearest(t *testing.T) {
	h := serve(t)
	for _, name := range []string{"gpt2", "gpt2-medium", "llama-8b", "llama-70b", "bert"} {
		if _, err := h.catalog.PublishTensors(t.Context(), name, model(t)...); err != nil {
			t.Fatal(err)
		}
	}
	c := h.dial()
	_, err := c.Describe(t.Context(), "gpt3", "")
	mustBe(t, err, status.NotFound, `"gpt3"`, `"gpt2", "gpt2-medium"`)
	_, err = c.tryPull(t, checkpoint.PullRequest{})
	mustBe(t, err, status.InvalidArgument, "5 publications", `"bert", "gpt2", "gpt2-medium", ...`)
	_, err = c.tryPull(t, checkpoint.PullRequest{Publication: "bert", Tensors: []string{"h.0/*", "h.7/*"}})
	mustBe(t, err, status.NotFound, `"h.7/*"`, `"h.0/attn.bias"`)
	_, err = c.tryPull(t, checkpoint.PullRequest{Publication: "bert", Tensors: []string{"[z-a]"}})
	mustBe(t, err, status.InvalidArgument, "[z-a]", "backwards")
	all, err := c.List(t.Context())
	if err != nil || len(all) != 5 || all[0].Name != "bert" || all[4].Name != "llama-8b" {
		t.Errorf("List gave %v, %v", all, err)
	}
}

// changes are what may happen to a published file. A puller reads it at the same time, so
// each is one step: no other state of the file is ever seen.
var changes = []struct {
	name string
	do   func(t *testing.T, path string)
	want []string // of the error; none when pulls go on
}{
	{"truncated", func(t *testing.T, path string) { must(t, os.Truncate(path, 100)) }, []string{"changed since it was published (size ", "→ 100)", "publish it again"}},
	{"written", func(t *testing.T, path string) {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		must(t, err)
		_, err = f.WriteAt([]byte{0xff}, int64(len(readFile(t, path))-1))
		must(t, err)
		must(t, f.Close())
	}, []string{"changed since it was published (modified ", "publish it again"}},
	{"written in its header", func(t *testing.T, path string) {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		must(t, err)
		_, err = f.WriteAt([]byte("x"), 10)
		must(t, err)
		must(t, f.Close())
	}, []string{"changed since it was published (modified ", "publish it again"}},
	{"touched", func(t *testing.T, path string) {
		now := time.Now()
		must(t, os.Chtimes(path, now, now))
	}, nil},
	{"written beside and renamed", func(t *testing.T, path string) {
		b := readFile(t, path)
		b[len(b)-1] ^= 1
		writeFile(t, path+"2", b)
		must(t, os.Rename(path+"2", path))
	}, nil},
	{"replaced by a copy", func(t *testing.T, path string) {
		writeFile(t, path+"2", readFile(t, path))
		must(t, os.Rename(path+"2", path))
	}, nil},
	{"removed", func(t *testing.T, path string) { must(t, os.Remove(path)) }, nil},
	{"replaced by a pipe", func(t *testing.T, path string) {
		must(t, syscall.Mkfifo(path+"2", 0o666))
		must(t, os.Rename(path+"2", path))
	}, nil},
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A published file that is written in place is an error, to later pulls and to those in progress. A
// file that was only touched, or whose name was removed, is still the same.
func TestFileChangedUnderTheServer(t *testing.T) {
	for _, c := range changes {
		t.Run(c.name, func(t *testing.T) {
			tensors := model(t)
			path := writeSafetensors(t, filepath.Join(t.TempDir(), "m.safetensors"), nil, tensors...)
			longAgo := time.Now().Add(-time.Hour) // the clock of files may tick every 4 ms only
			must(t, os.Chtimes(path, longAgo, longAgo))
			h := serve(t, func(o *checkpoint.CatalogOptions) { o.CacheBytes, o.Settle = -1, -1 })
			h.publish("m", path)
			puller := h.dial()
			var failure error
			var got []*tensor.Tensor
			for x, err := range puller.Pull(t.Context(), checkpoint.PullRequest{Inflight: 1, InflightBytes: 1}) {
				if failure = err; err != nil {
					break
				}
				t.Cleanup(x.Release)
				got = append(got, x)
				if x.Name() == "wte.weight" {
					c.do(t, path)
				}
			}
			if c.want == nil {
				must(t, failure)
				requireSame(t, tensors, got)
				requireSame(t, tensors, puller.pull(t, checkpoint.PullRequest{}))
				return
			}
			for range 2 { // what was found is remembered
				mustBe(t, failure, status.FailedPrecondition, append(c.want, "m.safetensors")...)
				if strings.Contains(failure.Error(), filepath.Dir(path)) {
					t.Errorf("a puller is told where the file is: %v", failure)
				}
				_, failure = puller.tryPull(t, checkpoint.PullRequest{})
			}
		})
	}
}

// A touch is no change for arrays, whose elements are converted, and for mapped files.
func TestTouchedFilesOfEveryKind(t *testing.T) {
	dir := t.TempDir()
	paths := []string{
		writeSharded(t, dir, model(t)...), foreignArray(t, filepath.Join(dir, "be.npy")), wideStrings(t, filepath.Join(dir, "w.npy")),
	}
	for _, mmap := range []bool{false, true} {
		h := serve(t, func(o *checkpoint.CatalogOptions) { o.CacheBytes, o.Settle, o.MMap = -1, -1, mmap })
		h.publish("m", paths...)
		c := h.dial()
		before := c.pull(t, checkpoint.PullRequest{})
		entries, err := os.ReadDir(dir)
		must(t, err)
		for _, e := range entries {
			later := time.Now().Add(time.Hour)
			must(t, os.Chtimes(filepath.Join(dir, e.Name()), later, later))
		}
		requireSame(t, before, c.pull(t, checkpoint.PullRequest{}))
	}
}

// Even when all of it is in the cache: a pull gets the whole of one version.
func TestFileChangedAfterItWasCached(t *testing.T) {
	path := writeSafetensors(t, filepath.Join(t.TempDir(), "m.safetensors"), nil, model(t)...)
	h := serve(t)
	h.publish("m", path)
	c := h.dial()
	c.pull(t, checkpoint.PullRequest{})
	must(t, os.Truncate(path, 100))
	_, err := c.tryPull(t, checkpoint.PullRequest{})
	mustBe(t, err, status.FailedPrecondition, "m.safetensors", "→ 100", "publish it again")
}

// TestFileWrittenInPlaceWithItsOldTimes: size and modification time do not show it. The pull under way finds
// it by the digest. The next ones are refused with the name of the file, which is one warning, and Reload
// takes what is there.
func TestFileWrittenInPlaceWithItsOldTimes(t *testing.T) {
	tensors := model(t)
	path := writeSafetensors(t, filepath.Join(t.TempDir(), "m.safetensors"), nil, tensors...)
	said := newEvents()
	h := serve(t, func(o *checkpoint.CatalogOptions) { o.CacheBytes, o.Logger = -1, slog.New(said) })
	before := h.publish("m", path)
	info, err := os.Stat(path)
	must(t, err)
	change := func() {
		for changed := false; !changed; { // the clock of inodes has ticks
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			must(t, err)
			_, err = f.WriteAt([]byte("abcd"), info.Size()-4)
			must(t, err)
			must(t, f.Close())
			must(t, os.Chtimes(path, info.ModTime(), info.ModTime()))
			now, err := os.Stat(path)
			must(t, err)
			changed = checkpoint.ChangeTime(now) != checkpoint.ChangeTime(info)
		}
	}
	p, puller := at(t, h)
	receives, changed := 0, make(chan struct{})
	wait := func(string) error {
		if receives++; receives > 1 { // nothing is read while the file is changed
			<-changed
		}
		return nil
	}
	p.fail.Store(&wait)
	failure, count := error(nil), 0
	for x, err := range puller.Pull(t.Context(), checkpoint.PullRequest{Inflight: 1, InflightBytes: 1}) {
		if failure = err; err != nil {
			break
		}
		x.Release()
		if count++; count == 1 {
			change()
			close(changed)
		}
	}
	mustBe(t, failure, status.DataLoss, "damaged", "m.safetensors changed", "with its old modification time")
	for range 2 {
		_, err = h.dial().tryPull(t, checkpoint.PullRequest{})
		mustBe(t, err, status.FailedPrecondition, "m.safetensors", "with its old modification time", "publish it again")
	}
	if n := said.count("WARN"); n != 1 || said.count("m.safetensors") == 0 {
		t.Errorf("%d warnings: %q", n, said.all)
	}
	must(t, h.catalog.Reload(t.Context()))
	h.dial().pull(t, checkpoint.PullRequest{})
	after, err := h.dial().Describe(t.Context(), "m", "")
	must(t, err)
	if after.Version == before.Version {
		t.Error("Reload found nothing")
	}
}

// TestFileWithAnotherModeIsTheSame: the inode changed, and not the content.
func TestFileWithAnotherModeIsTheSame(t *testing.T) {
	path := writeSafetensors(t, filepath.Join(t.TempDir(), "m.safetensors"), nil, model(t)...)
	h := serve(t)
	before := h.publish("m", path)
	for _, mode := range []os.FileMode{0o600, 0o640} {
		must(t, os.Chmod(path, mode))
		h.dial().pull(t, checkpoint.PullRequest{})
	}
	must(t, h.catalog.Reload(t.Context()))
	after, err := h.dial().Describe(t.Context(), "m", "")
	must(t, err)
	if after.Version != before.Version {
		t.Errorf("version %s after %s", after.Version, before.Version)
	}
}

// TestTheIndexDecidesWhichCopyCounts: a tensor is in two shards, with different content, and the index
// names the second. The pulled files have that one alone, and can be published again.
func TestTheIndexDecidesWhichCopyCounts(t *testing.T) {
	dir := t.TempDir()
	a, b := named(t, "a", tensor.Float32, 10), named(t, "b", tensor.Float32, 20)
	wrong, right := patterned(t, "x", 30), named(t, "x", tensor.Float32, 40)
	writeSafetensors(t, filepath.Join(dir, "model-00001-of-00002.safetensors"), nil, a, wrong)
	writeSafetensors(t, filepath.Join(dir, "model-00002-of-00002.safetensors"), nil, b, right)
	writeFile(t, filepath.Join(dir, safetensors.IndexName), []byte(`{"weight_map":{"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors","x":"model-00002-of-00002.safetensors"}}`))
	for range 2 {
		h := serve(t)
		h.publish("m", dir)
		c := h.dial()
		requireSame(t, []*tensor.Tensor{a, b, right}, c.pull(t, checkpoint.PullRequest{}))
		dir = t.TempDir()
		_, err := c.Save(t.Context(), checkpoint.PullRequest{}, checkpoint.SaveOptions{Out: dir})
		must(t, err)
		requireOnly(t, dir, "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", safetensors.IndexName)
	}
}

// TestDirectoryWithTheNameOfAModel beside a model, and beside an index, is passed over.
func TestDirectoryWithTheNameOfAModel(t *testing.T) {
	tensors := model(t)
	one := filepath.Dir(writeSafetensors(t, filepath.Join(t.TempDir(), "one", "m.safetensors"), nil, tensors...))
	sharded := writeSharded(t, filepath.Join(t.TempDir(), "sharded"), tensors...)
	for _, dir := range []string{one, sharded} {
		must(t, os.Mkdir(filepath.Join(dir, "x.safetensors"), 0o755))
		must(t, os.Mkdir(filepath.Join(dir, "y.safetensors.index.json"), 0o755))
		h := serve(t)
		h.publish("m", dir)
		requireSame(t, tensors, h.dial().pull(t, checkpoint.PullRequest{}))
	}
}

// TestMetadataThatIsNull is none. The file comes with the same bytes.
func TestMetadataThatIsNull(t *testing.T) {
	header := `{"__metadata__" : null,"x":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}}`
	path := filepath.Join(t.TempDir(), "m.safetensors")
	writeFile(t, path, append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header+"abc"...))
	h := serve(t)
	h.publish("m", path)
	out := filepath.Join(t.TempDir(), "m.safetensors")
	_, err := h.dial().Save(t.Context(), checkpoint.PullRequest{}, checkpoint.SaveOptions{Out: out})
	must(t, err)
	if !bytes.Equal(readFile(t, out), readFile(t, path)) {
		t.Error("the bytes differ")
	}
}

// macOS puts a file ._NAME beside each NAME on file systems without attributes.
func TestCompanionsOfMacOSArePassedOver(t *testing.T) {
	dir := t.TempDir()
	tensors := model(t)
	sharded := writeSharded(t, filepath.Join(dir, "sharded"), tensors...)
	one := filepath.Dir(writeSafetensors(t, filepath.Join(dir, "one", "m.safetensors"), nil, tensors...))
	for _, at := range []string{sharded, one} {
		entries, err := os.ReadDir(at)
		must(t, err)
		for _, e := range entries {
			writeFile(t, filepath.Join(at, "._"+e.Name()), []byte("\x00\x05\x16\x07"))
		}
		h := serve(t)
		h.publish("m", at)
		requireSame(t, tensors, h.dial().pull(t, checkpoint.PullRequest{}))
	}
	_, err := serve(t).catalog.Publish(t.Context(), "m", filepath.Join(one, "._m.safetensors"))
	mustBe(t, err, status.InvalidArgument, "._m.safetensors", "macOS", "leave it out")
}

// A path that exists is a path, whatever it is called.
func TestAPathThatExistsIsAPath(t *testing.T) {
	t.Chdir(t.TempDir())
	x := named(t, "x", tensor.Float32, 1)
	writeSafetensors(t, "epoch=3-loss=0.1.safetensors", nil, x)
	must(t, os.Mkdir("a=b", 0o777))
	for arg, want := range map[string][2]string{
		"epoch=3-loss=0.1.safetensors":   {"epoch=3-loss=0.1", "epoch=3-loss=0.1.safetensors"},
		"m=epoch=3-loss=0.1.safetensors": {"m", "epoch=3-loss=0.1.safetensors"},
		"epoch=4-loss=0.1.safetensors":   {"epoch", "4-loss=0.1.safetensors"},
		"a=b":                            {"a=b", "a=b"},
		"a=c":                            {"a", "c"},
	} {
		if name, path := checkpoint.SplitName(arg); name != want[0] || path != want[1] {
			t.Errorf("SplitName(%q) = %q, %q; want %q", arg, name, path, want)
		}
	}
}

func TestSplitName(t *testing.T) {
	for _, c := range []struct{ arg, name, path string }{
		{"a/b.safetensors", "b", "a/b.safetensors"},
		{"m=a/b.safetensors", "m", "a/b.safetensors"},
		{"a/m=1.npy", "m=1", "a/m=1.npy"},
		{"x=y=z.npy", "x", "y=z.npy"},
		{"=z.npy", "=z", "=z.npy"},
		{"dir/", "dir", "dir/"},
		{"d/model.safetensors.index.json", "model", "d/model.safetensors.index.json"},
		{".npy", ".npy", ".npy"},
	} {
		if name, path := checkpoint.SplitName(c.arg); name != c.name || path != c.path {
			t.Errorf("SplitName(%q) = %q, %q; want %q, %q", c.arg, name, path, c.name, c.path)
		}
	}
}

// TestEndedContextChangesNothing: what is published stays, and what is not is not.
func TestEndedContextChangesNothing(t *testing.T) {
	h := serve(t)
	ended, end := context.WithCancel(t.Context())
	end()
	_, err := h.catalog.PublishTensors(ended, "new", model(t)...)
	mustBe(t, err, status.Cancelled)
	_, err = h.catalog.PublishTensors(t.Context(), "m", model(t)...)
	must(t, err)
	_, err = h.catalog.Withdraw(ended, "m")
	mustBe(t, err, status.Cancelled)
	if l := h.catalog.List(); len(l) != 1 || l[0].Name != "m" {
		t.Errorf("published: %v", l)
	}
}

// TestCatalogThatClosesMeanwhileTakesNoPublication: it closes while the digests are computed, and keeps no tensor.
func TestCatalogThatClosesMeanwhileTakesNoPublication(t *testing.T) {
	var c *checkpoint.Catalog
	c, err := checkpoint.NewCatalog(checkpoint.CatalogOptions{
		Device: cluster.Device{Task: cluster.Task{Job: "worker"}, Type: "CPU"}, Incarnation: 1, Progress: func(string, int64, int64) { c.Close() },
	})
	must(t, err)
	tensors := model(t)
	_, err = c.PublishTensors(t.Context(), "m", tensors...)
	mustBe(t, err, status.Unavailable, "the server is stopping")
	if all := c.List(); len(all) != 0 {
		t.Errorf("it offers %v", all)
	}
	for _, x := range tensors {
		if !x.Buffer().Unique() {
			t.Errorf("it keeps %v", x)
		}
	}
}
