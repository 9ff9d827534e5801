//go:build interop

package library

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// TestEveryOpIsClassified: ops.txt has each op of this TensorFlow. An op of a later release that is not
// in it is refused.
func TestEveryOpIsClassified(t *testing.T) {
	s := tensorFlow(t)
	for _, op := range s.Ops() {
		if s.reach[op] == reachUnknown {
			t.Errorf("TensorFlow %s has the op %s, which ops.txt lacks: find out what its kernel reaches, and add it", s.Version(), op)
		}
	}
}

// fileOps are graphs that read and write a file, whose name they receive.
type fileOps struct {
	t           *testing.T
	write, read *program
}

func newFileOps(t *testing.T, s *Set, st graph.State) *fileOps {
	t.Helper()
	f := &fileOps{t: t,
		write: newBuilder(t, s).recv("name", tensor.String).recv("text", tensor.String).add("write", "WriteFile", "name text").must(st),
		read:  newBuilder(t, s).recv("name", tensor.String).add("read", "ReadFile", "name").send("out", "read").must(st)}
	t.Cleanup(func() { f.write.close(); f.read.close() })
	return f
}

func (f *fileOps) text(v string) *tensor.Tensor {
	f.t.Helper()
	x, err := tensor.FromStrings(tensor.Shape{}, []string{v})
	if err != nil {
		f.t.Fatal(err)
	}
	return x
}

func (f *fileOps) put(name, text string) error {
	_, err := f.write.run(context.Background(), map[string]*tensor.Tensor{"name": f.text(name), "text": f.text(text)})
	return err
}

func (f *fileOps) get(name string) (string, error) {
	out, err := f.read.run(context.Background(), map[string]*tensor.Tensor{"name": f.text(name)})
	if err != nil {
		return "", err
	}
	return out["out"].Elements()[0], nil
}

// checkConfined checks that files below inside can be used, and no others, whatever name leads to them.
func checkConfined(t *testing.T, s *Set, inside string) {
	t.Helper()
	outside := t.TempDir()
	secret := filepath.Join(outside, "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	link, gone := filepath.Join(inside, "link"), filepath.Join(inside, "gone")
	_ = os.Remove(link)
	_ = os.Remove(gone)
	if err := os.Symlink(secret, link); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(outside, "new"), gone); err != nil {
		t.Fatal(err)
	}
	f := newFileOps(t, s, stateOf(t, s))
	kept := filepath.Join(inside, "deep", "kept")
	if err := os.MkdirAll(filepath.Dir(kept), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := f.put(kept, "mine"); err != nil {
		t.Errorf("write below the directory: %v", err)
	}
	if text, err := f.get(kept); err != nil || text != "mine" {
		t.Errorf("read below the directory: %q, %v", text, err)
	}
	up, err := filepath.Rel(inside, secret)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{secret, inside + "/" + up, link, "/etc/passwd", "/proc/self/environ", "/proc/1/cmdline"} {
		if text, err := f.get(name); status.CodeOf(err) != status.PermissionDenied {
			t.Errorf("read %s: %q, %v; want PermissionDenied", name, text, err)
		}
	}
	for _, name := range []string{secret, inside + "/" + up, link, gone, filepath.Join(outside, "new"), filepath.Join(s.Directory(), "new")} {
		if err := f.put(name, "changed"); status.CodeOf(err) != status.PermissionDenied {
			t.Errorf("write %s: %v; want PermissionDenied", name, err)
		}
	}
	if text, err := os.ReadFile(secret); err != nil || string(text) != "secret" {
		t.Errorf("the file outside has %q, %v", text, err)
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) != 1 {
		t.Errorf("the directory outside has %v, %v", entries, err)
	}
}

// TestFilesBelowADirectory: with FilesBelow graphs use files below the directories, and the kernel of the
// system keeps them from all others. A child that takes the place of a killed one is confined too.
func TestFilesBelowADirectory(t *testing.T) {
	inside := t.TempDir()
	s := inProcess(t, inside)
	checkConfined(t, s, inside)
	child := as[*process](t, s.engine)
	if slices.Contains(child.cmd.Args, asKernelProcess) && !slices.Contains(child.cmd.Args, inside) {
		t.Errorf("the child has the arguments %q", child.cmd.Args)
	}
	if err := child.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-child.done
	checkConfined(t, s, inside)
	if s.engine == engine(child) {
		t.Error("no new child has started")
	}
}

// TestConfinedChildComputes: nothing that graphs without files do needs more than the child may read.
func TestConfinedChildComputes(t *testing.T) {
	s := inProcess(t, t.TempDir())
	p := newBuilder(t, s).recv("x", tensor.String).add("up", "StringUpper", "x").send("out", "up").must(stateOf(t, s))
	defer p.close()
	text, err := tensor.FromStrings(tensor.Vector(1), []string{strings.Repeat("a", 1000)})
	if err != nil {
		t.Fatal(err)
	}
	out, err := p.run(t.Context(), map[string]*tensor.Tensor{"x": text})
	if err != nil || out["out"].Elements()[0] != strings.Repeat("A", 1000) {
		t.Errorf("%v, %v", out["out"], err)
	}
}
