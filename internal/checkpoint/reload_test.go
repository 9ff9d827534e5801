package checkpoint_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/checkpoint"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// events is a log whose messages a test waits for.
type events struct {
	mu   sync.Mutex
	more *sync.Cond
	all  []string // guarded by mu
}

func newEvents() *events {
	e := &events{}
	e.more = sync.NewCond(&e.mu)
	return e
}

func (e *events) Enabled(context.Context, slog.Level) bool { return true }
func (e *events) WithAttrs([]slog.Attr) slog.Handler       { return e }
func (e *events) WithGroup(string) slog.Handler            { return e }
func (e *events) Handle(_ context.Context, r slog.Record) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	text := r.Level.String() + " " + r.Message
	r.Attrs(func(a slog.Attr) bool { text += " " + a.String(); return true })
	e.all = append(e.all, text)
	e.more.Broadcast()
	return nil
}

// wait waits for the nth message that has a text.
func (e *events) wait(text string, n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for e.countLocked(text) < n {
		e.more.Wait()
	}
}

func (e *events) count(text string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.countLocked(text)
}

func (e *events) countLocked(text string) (n int) {
	for _, s := range e.all {
		if strings.Contains(s, text) {
			n++
		}
	}
	return n
}

// renamed writes a file beside path and renames it onto path, as a program does that replaces a
// file as a whole.
func renamed(t testing.TB, path string, tensors ...*tensor.Tensor) {
	t.Helper()
	must(t, os.Rename(writeSafetensors(t, path+".new", nil, tensors...), path))
}

// Another file that is renamed onto a published name is taken. The pull that is under way gets the
// version that it began with, also after its stream has to be opened again.
func TestARenamedFileIsTaken(t *testing.T) {
	t.Run("read", func(t *testing.T) { takesARenamedFile(t, false) })
	t.Run("mapped", func(t *testing.T) { takesARenamedFile(t, true) })
}

func takesARenamedFile(t *testing.T, mmap bool) {
	old, other := model(t), model(t)[:3]
	other[0].Bytes()[0]++
	path := writeSafetensors(t, filepath.Join(t.TempDir(), "m.safetensors"), nil, old...)
	said := newEvents()
	h := serve(t, func(o *checkpoint.CatalogOptions) {
		o.CacheBytes, o.Settle, o.Logger, o.MMap = -1, time.Millisecond, slog.New(said), mmap
	})
	first := h.publish("m", path)
	c := h.dial()
	var got []*tensor.Tensor
	for x, err := range c.Pull(t.Context(), checkpoint.PullRequest{Inflight: 1, InflightBytes: 1}) {
		must(t, err)
		t.Cleanup(x.Release)
		if got = append(got, x); len(got) == 1 {
			renamed(t, path, other...)
			said.wait("replaces="+first.Version, 1)
		}
	}
	requireSame(t, old, got)
	second, err := c.Describe(t.Context(), "m", "")
	must(t, err)
	if second.Version == first.Version || second.Tensors != 3 {
		t.Errorf("version %s with %d tensors follows %s", second.Version, second.Tensors, first.Version)
	}
	requireSame(t, other, c.pull(t, checkpoint.PullRequest{}))
	requireSame(t, old, c.pull(t, checkpoint.PullRequest{Version: first.Version}))
	// A second time, and back to the first content.
	renamed(t, path, old...)
	said.wait("replaces="+second.Version, 1)
	requireSame(t, old, c.pull(t, checkpoint.PullRequest{}))
	must(t, h.withdraw("m"))
	for _, version := range []string{"", first.Version, second.Version} {
		_, err = c.Describe(t.Context(), "m", version)
		mustBe(t, err, status.NotFound)
	}
}

// A directory that is replaced through a symbolic link is one version with all its files.
func TestADirectoryIsReplacedAsAWhole(t *testing.T) {
	dir := t.TempDir()
	old, other := model(t), model(t)
	other[6].Bytes()[0] ^= 1
	writeSharded(t, filepath.Join(dir, "1"), old...)
	writeSharded(t, filepath.Join(dir, "2"), other...)
	link := filepath.Join(dir, "current")
	must(t, os.Symlink("1", link))
	said := newEvents()
	h := serve(t, func(o *checkpoint.CatalogOptions) { o.Settle, o.Logger = time.Millisecond, slog.New(said) })
	h.publish("m", link)
	must(t, os.Symlink("2", link+".new"))
	must(t, os.Rename(link+".new", link))
	said.wait("replaces=", 1)
	requireSame(t, other, h.dial().pull(t, checkpoint.PullRequest{}))
}

// inBubble runs a test on virtual time, with a catalog of its own.
func inBubble(t *testing.T, test func(t *testing.T, c *checkpoint.Catalog, said *events)) {
	synctest.Test(t, func(t *testing.T) {
		said := newEvents()
		c, err := checkpoint.NewCatalog(checkpoint.CatalogOptions{
			Device: cluster.Device{Task: cluster.Task{Job: "worker"}, Type: "CPU"}, Incarnation: 1, Logger: slog.New(said),
		})
		must(t, err)
		defer c.Close()
		test(t, c, said)
	})
}

func version(t testing.TB, c *checkpoint.Catalog) string {
	t.Helper()
	m, err := c.Describe("m", "")
	must(t, err)
	return m.Version
}

// A file that is new under the name, but grows, is not taken before it has stood still.
func TestAFileThatIsBeingWrittenIsNotTaken(t *testing.T) {
	inBubble(t, func(t *testing.T, c *checkpoint.Catalog, said *events) {
		dir := t.TempDir()
		path := writeSafetensors(t, filepath.Join(dir, "m.safetensors"), nil, model(t)...)
		whole := readFile(t, writeSafetensors(t, filepath.Join(dir, "other"), nil, model(t)[:3]...))
		first, err := c.Publish(t.Context(), "m", path)
		must(t, err)
		must(t, os.Remove(path))
		for n := 100; n < len(whole); n += len(whole) / 8 {
			writeFile(t, path, whole[:n])
			time.Sleep(checkpoint.DefaultSettle)
			synctest.Wait()
		}
		if said.count("WARN") != 0 || version(t, c) != first.Version {
			t.Errorf("a part was taken: %q", said.all)
		}
		writeFile(t, path, whole)
		time.Sleep(3 * checkpoint.DefaultSettle)
		synctest.Wait()
		if version(t, c) == first.Version {
			t.Error("the whole file was not taken")
		}
	})
}

// What cannot be taken is told once, and the old version stays.
func TestABrokenFileIsNotTaken(t *testing.T) {
	inBubble(t, func(t *testing.T, c *checkpoint.Catalog, said *events) {
		path := writeSafetensors(t, filepath.Join(t.TempDir(), "m.safetensors"), nil, model(t)...)
		first, err := c.Publish(t.Context(), "m", path)
		must(t, err)
		writeFile(t, path+".new", []byte("no tensors"))
		must(t, os.Rename(path+".new", path))
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if n := said.count("WARN another file has the name of a published one"); n != 1 || version(t, c) != first.Version {
			t.Errorf("told %d times: %q", n, said.all)
		}
		mustBe(t, c.Reload(t.Context()), status.InvalidArgument, `publishing "m" again`, path)
		if version(t, c) != first.Version {
			t.Error("it was taken by force")
		}
		renamed(t, path, model(t)[:2]...) // the next one is looked at
		time.Sleep(3 * checkpoint.DefaultSettle)
		synctest.Wait()
		if version(t, c) == first.Version {
			t.Error("the next file was not taken")
		}
	})
}

// A new index may come before its files.
func TestAnIndexThatComesBeforeItsFiles(t *testing.T) {
	inBubble(t, func(t *testing.T, c *checkpoint.Catalog, said *events) {
		dir := t.TempDir()
		tensors := model(t)
		writeSharded(t, dir, tensors...)
		first, err := c.Publish(t.Context(), "m", dir)
		must(t, err)
		index := filepath.Join(dir, "model.safetensors.index.json")
		writeFile(t, index+".new", []byte(`{"weight_map":{"scalar":"new.safetensors"}}`))
		must(t, os.Rename(index+".new", index))
		time.Sleep(time.Hour)
		if n := said.count("WARN"); n != 1 || version(t, c) != first.Version {
			t.Errorf("%d warnings: %q", n, said.all)
		}
		writeSafetensors(t, filepath.Join(dir, "new.safetensors"), nil, tensors[5])
		time.Sleep(time.Minute)
		synctest.Wait()
		if m, err := c.Describe("m", ""); err != nil || m.Tensors != 1 {
			t.Errorf("%+v, %v", m, err)
		}
	})
}

// A version that was replaced is there for a minute, for pulls whose connection broke.
func TestAnOldVersionLingers(t *testing.T) {
	inBubble(t, func(t *testing.T, c *checkpoint.Catalog, said *events) {
		path := writeSafetensors(t, filepath.Join(t.TempDir(), "m.safetensors"), nil, model(t)...)
		first, err := c.Publish(t.Context(), "m", path)
		must(t, err)
		renamed(t, path, model(t)[:2]...)
		time.Sleep(55 * time.Second)
		if _, err := c.Describe("m", first.Version); err != nil {
			t.Error(err)
		}
		time.Sleep(15 * time.Second)
		synctest.Wait()
		_, err = c.Describe("m", first.Version)
		mustBe(t, err, status.NotFound, first.Version)
	})
}

// Reload takes what was written in place, what is new, and what has another header.
func TestReload(t *testing.T) {
	inBubble(t, func(t *testing.T, c *checkpoint.Catalog, said *events) {
		path := writeSafetensors(t, filepath.Join(t.TempDir(), "m.safetensors"), nil, model(t)...)
		first, err := c.Publish(t.Context(), "m", path)
		must(t, err)
		x := named(t, "y", tensor.Float32, 3)
		_, err = c.PublishTensors(t.Context(), "memory", x)
		must(t, err)
		must(t, c.Reload(t.Context()))
		must(t, os.Chtimes(path, time.Time{}, time.Unix(1, 0)))
		must(t, c.Reload(t.Context()))
		if version(t, c) != first.Version || said.count("replaces") != 0 {
			t.Errorf("what has not changed was published again: %q", said.all)
		}
		if said.count("INFO read all publications again changed=0 unchanged=1 failed=0") != 2 {
			t.Errorf("no counts of what has not changed: %q", said.all)
		}
		writeSafetensors(t, path, nil, model(t)[:4]...)
		must(t, c.Reload(t.Context()))
		if m, err := c.Describe("m", ""); err != nil || m.Version == first.Version || m.Tensors != 4 {
			t.Errorf("%+v, %v", m, err)
		}
		if said.count("changed=1 unchanged=0 failed=0") != 1 {
			t.Errorf("no counts of what has changed: %q", said.all)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		writeSafetensors(t, path, nil, model(t)[:5]...)
		mustBe(t, c.Reload(ctx), status.Cancelled)
		if m, err := c.Describe("m", ""); err != nil || m.Tensors != 4 {
			t.Errorf("%+v, %v", m, err)
		}
	})
}

// A file that changes while Reload waits is still being written.
func TestReloadOfAFileThatIsBeingWritten(t *testing.T) {
	inBubble(t, func(t *testing.T, c *checkpoint.Catalog, said *events) {
		path := writeSafetensors(t, filepath.Join(t.TempDir(), "m.safetensors"), nil, model(t)...)
		first, err := c.Publish(t.Context(), "m", path)
		must(t, err)
		writeSafetensors(t, path, nil, model(t)[:4]...)
		done := make(chan error)
		go func() { done <- c.Reload(t.Context()) }()
		synctest.Wait() // Reload waits
		writeSafetensors(t, path, nil, model(t)[:5]...)
		mustBe(t, <-done, status.FailedPrecondition, path, "is being written")
		if version(t, c) != first.Version {
			t.Error("it was taken")
		}
	})
}

// shard is the path of one of the two tensor files of writeSharded.
func shard(dir string, n int) string {
	return filepath.Join(dir, fmt.Sprintf("model-%05d-of-00002.safetensors", n))
}

// The shards of a publication that are replaced one after another are one version. What is still old
// is logged once.
func TestShardsAreTakenTogether(t *testing.T) {
	inBubble(t, func(t *testing.T, c *checkpoint.Catalog, said *events) {
		dir, tensors := t.TempDir(), model(t)
		writeSharded(t, dir, tensors...)
		first, err := c.Publish(t.Context(), "m", dir)
		must(t, err)
		other := model(t)
		other[0].Bytes()[0] ^= 1
		other[6].Bytes()[0] ^= 1
		renamed(t, shard(dir, 1), other[:3]...)
		time.Sleep(time.Hour)
		synctest.Wait()
		if version(t, c) != first.Version {
			t.Error("one shard of two was taken")
		}
		const waits = "WARN some files of a publication were replaced"
		if n := said.count(waits); n != 1 || said.count(filepath.Base(shard(dir, 2))) != 1 || said.count(filepath.Base(shard(dir, 1))) != 0 {
			t.Errorf("%d warnings: %q", n, said.all)
		}
		renamed(t, shard(dir, 2), other[3:]...)
		time.Sleep(3 * checkpoint.DefaultSettle)
		synctest.Wait()
		if version(t, c) == first.Version {
			t.Error("two shards were not taken")
		}
		// One more waits, and SIGHUP takes it.
		second := version(t, c)
		renamed(t, shard(dir, 1), tensors[:3]...)
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := said.count(waits); n != 2 || version(t, c) != second {
			t.Errorf("%d warnings: %q", n, said.all)
		}
		must(t, c.Reload(t.Context()))
		if version(t, c) == second {
			t.Error("SIGHUP did not take it")
		}
	})
}

// An index that is replaced after the files that have changed says that there are no more. One that
// is replaced before them says nothing.
func TestAnIndexThatIsReplacedLast(t *testing.T) {
	for what, last := range map[string]bool{"last": true, "first": false} {
		t.Run(what, func(t *testing.T) {
			inBubble(t, func(t *testing.T, c *checkpoint.Catalog, said *events) {
				dir, tensors := t.TempDir(), model(t)
				writeSharded(t, dir, tensors...)
				first, err := c.Publish(t.Context(), "m", dir)
				must(t, err)
				index := filepath.Join(dir, "model.safetensors.index.json")
				other := model(t)
				other[0].Bytes()[0] ^= 1
				writeFile(t, index+".new", readFile(t, index))
				if !last {
					must(t, os.Rename(index+".new", index))
					laterThan(t, index)
				}
				renamed(t, shard(dir, 1), other[:3]...)
				if last {
					laterThan(t, shard(dir, 1))
					must(t, os.Rename(index+".new", index))
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				if taken := version(t, c) != first.Version; taken != last {
					t.Errorf("taken: %t; %q", taken, said.all)
				}
			})
		})
	}
}

// laterThan returns when the clock of the file system has gone on since path was renamed.
func laterThan(t *testing.T, path string) {
	t.Helper()
	info, err := os.Stat(path)
	must(t, err)
	for at := checkpoint.ChangeTime(info); ; {
		writeFile(t, path+".clock", nil)
		info, err := os.Stat(path + ".clock")
		must(t, err)
		if checkpoint.ChangeTime(info).After(at) {
			return
		}
	}
}

// A directory that is replaced is taken as a whole, also if some of its files are links to the old
// ones.
func TestADirectoryThatSharesFiles(t *testing.T) {
	inBubble(t, func(t *testing.T, c *checkpoint.Catalog, said *events) {
		dir, other := t.TempDir(), model(t)
		writeSharded(t, filepath.Join(dir, "1"), model(t)...)
		other[0].Bytes()[0] ^= 1
		writeSharded(t, filepath.Join(dir, "2"), other...)
		for _, name := range []string{shard("", 2), "model.safetensors.index.json"} {
			must(t, os.Remove(filepath.Join(dir, "2", name)))
			must(t, os.Link(filepath.Join(dir, "1", name), filepath.Join(dir, "2", name)))
		}
		link := filepath.Join(dir, "current")
		must(t, os.Symlink("1", link))
		first, err := c.Publish(t.Context(), "m", link)
		must(t, err)
		must(t, os.Symlink("2", link+".new"))
		must(t, os.Rename(link+".new", link))
		time.Sleep(3 * checkpoint.DefaultSettle)
		synctest.Wait()
		second := version(t, c)
		if second == first.Version {
			t.Errorf("the directory was not taken: %q", said.all)
		}
		renamed(t, shard(link, 2), model(t)[3:]...)
		time.Sleep(time.Minute)
		synctest.Wait()
		if said.count("WARN some files") != 1 {
			t.Errorf("one of two files in the new directory does not wait: %q", said.all)
		}
	})
}
