package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/tryst-rdma/tryst/internal/transporttest"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/safetensors"
)

// The files of a directory are switched together, and the command runs for each version.
func TestPullWatch(t *testing.T) {
	first, second := generate(t, "--seed", "1"), generate(t, "--seed", "2")
	served := filepath.Join(t.TempDir(), "m.safetensors")
	copyTo := func(from string) {
		t.Helper()
		content, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(served+".new", content, 0o600)
		}
		if err == nil {
			err = os.Rename(served+".new", served)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	copyTo(first)
	address := serve(t, "--publish", "m="+served)
	dir := t.TempDir()
	ctx, cancel := context.WithCancelCause(t.Context())
	out, done := newLog(), make(chan int, 1)
	go func() {
		done <- run(ctx, streams{out: out, err: out, env: []string{}}, []string{
			"pull", "--from", address, "--out", dir + "/m/", "--watch",
			"--exec", `echo number=$PULLED_NUMBER of=$PULLED_PUBLICATION at=$PULLED_PATH; exit 3`,
		})
		out.end()
	}()
	at := out.until(t, regexp.MustCompile(`number=1 of=m at=(\S+)`))
	same(t, first, filepath.Join(at, "m.safetensors"))
	same(t, first, filepath.Join(dir, "m", "m.safetensors"))
	copyTo(second)
	at = out.until(t, regexp.MustCompile(`number=2 of=m at=(\S+)`))
	same(t, second, filepath.Join(at, "m.safetensors"))
	same(t, second, filepath.Join(dir, "m", "m.safetensors"))
	cancel(errInterrupted)
	<-done
	if !strings.Contains(out.String(), "exit status 3; the watch goes on") {
		t.Error(out.String())
	}
}

// withShell is the environment of a process that finds sh and its commands.
func withShell() []string { return []string{"PATH=" + os.Getenv("PATH")} }

// pair makes a directory with two checkpoints, all of whose bytes are n.
func pair(t *testing.T, n byte) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"a.safetensors", "b.safetensors"} {
		x, err := tensor.Make[uint8](tensor.Heap{}, 8<<20)
		if err != nil {
			t.Fatal(err)
		}
		defer x.Release()
		for i := range x.Bytes() {
			x.Bytes()[i] = n
		}
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		w, err := safetensors.NewWriter(f, []safetensors.Spec{{Name: name, DType: x.DType(), Shape: x.Shape()}}, nil)
		if err == nil {
			err = errors.Join(w.Write(name, x), w.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// lastBytes reads the last byte of both files that a link leads to, as a reader that resolves the link once; zeros without a link.
func lastBytes(link string) (all [2]byte, err error) {
	dir, err := filepath.EvalSymlinks(link)
	if err != nil {
		return all, nil //nolint:nilerr // nothing has come
	}
	for i, name := range []string{"a.safetensors", "b.safetensors"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || len(b) == 0 {
			return all, fmt.Errorf("%s, which has its name, cannot be read: %w", name, err)
		}
		all[i] = b[len(b)-1]
	}
	return all, nil
}

// A watch in a process of its own outlives the kill of its server; what it leaves when it is killed itself is a whole version, and the
// next one goes on. Its reader never sees files of two versions.
func TestPullWatchOutlivesKills(t *testing.T) {
	middle := transporttest.NewProxy(t)
	serve := func(n byte) *process {
		dir := pair(t, n)
		srv := start(t, nil, "serve", "--listen", "127.0.0.1:0", "--transport", "grpc", "m="+dir+"/a.safetensors", "m="+dir+"/b.safetensors")
		middle.SetTarget(srv.err.until(t, serving))
		return srv
	}
	replace := func(srv *process, n byte) *process {
		middle.SetTarget("")
		if err := srv.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		srv.end(t)
		return serve(n)
	}
	link := filepath.Join(t.TempDir(), "m")
	watch := func() *process {
		return start(t, withShell(), "pull", "--transport", "grpc", "--from", middle.Addr(), "--out", link+"/", "--watch",
			"--exec", `echo "number=$PULLED_NUMBER has=$(tail -c 1 "$PULLED_PATH/b.safetensors")" >&2`)
	}
	read := func(want byte) {
		t.Helper()
		if all, err := lastBytes(link); err != nil || all != [2]byte{want, want} {
			t.Errorf("the files end in %q, %v; want %q", all, err, want)
		}
	}
	srv, p := serve('1'), watch()
	p.err.until(t, regexp.MustCompile(`(has=1)`))
	read('1')
	srv = replace(srv, '2')
	p.err.until(t, regexp.MustCompile(`(has=2)`)) // number 1 again, of another process
	read('2')
	reached := middle.HoldAfter(12 << 20)
	replace(srv, '3')
	<-reached
	read('2') // the next version is half there
	if err := p.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	p.end(t)
	middle.Release()
	read('2')
	p = watch()
	p.err.until(t, regexp.MustCompile(`(has=3)`))
	read('3')
	if err := p.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if r := p.end(t); r.code != exitInterrupted {
		t.Errorf("exit status %d\n%s", r.code, r.err)
	}
}

// The variables of --exec are no settings: a tryst that the command runs would refuse them.
func TestPullWatchRunsATryst(t *testing.T) {
	served := generate(t)
	address := serve(t, "--publish", "m="+served)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "m.safetensors")
	p := start(t, withShell(), "pull", "--from", address, "--out", out, "--watch", "--json",
		"--exec", fmt.Sprintf(`%q pull --from %s --out "$PULLED_PATH.copy" && echo copied`, self, address))
	p.err.until(t, regexp.MustCompile(`(?m)^(copied)$`)) // stdout has the results alone
	same(t, served, out+".copy")
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	r := p.end(t)
	var rec pullRecord
	if err := json.Unmarshal([]byte(r.out), &rec); err != nil || rec.Publication != "m" || r.code != exitInterrupted {
		t.Errorf("exit status %d, %v:\n%s", r.code, err, r.out)
	}
}

// A command that does not end is ended with the watch.
func TestPullWatchEndsItsCommand(t *testing.T) {
	address := serve(t, "--publish", "m="+generate(t))
	p := start(t, withShell(), "pull", "--from", address, "--out", filepath.Join(t.TempDir(), "m.safetensors"), "--watch",
		"--exec", `trap 'echo ended >&2; exit' TERM; echo begun >&2; while :; do sleep 0.1; done`)
	p.err.until(t, regexp.MustCompile(`(?m)^(begun)$`))
	if err := p.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if r := p.end(t); r.code != exitInterrupted || !strings.Contains(r.err, "ended\n") {
		t.Errorf("exit status %d\n%s", r.code, r.err)
	}
}

func TestWrongFlagsOfPullWatch(t *testing.T) {
	failed(t, tryst(t, "pull", "--from", "127.0.0.1:1", "--out", "-", "--watch"), exitUsage, "--watch is about files")
	failed(t, tryst(t, "pull", "--from", "127.0.0.1:1", "--out", "x", "--exec", "true"), exitUsage, "--exec wants --watch")
}
