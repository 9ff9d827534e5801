package command

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/tryst-rdma/tryst/cluster"
)

// TestClusterFileIsTakenWhenItStays: twice the same, or five times without a task; once; a fault is logged once, and the cluster stays.
func TestClusterFileIsTakenWhenItStays(t *testing.T) {
	var log strings.Builder
	var content string
	var taken []string
	refuse := error(nil)
	w := clusterWatch{
		read: func(string) (*cluster.Spec, error) {
			if content == "" {
				return nil, errors.New("it is empty")
			}
			return cluster.ParseSpec(content)
		},
		set: func(_ context.Context, tasks map[string][]string) error {
			if refuse == nil {
				taken = append(taken, fmt.Sprint(tasks["w"]))
			}
			return refuse
		},
		log: slog.New(slog.NewTextHandler(&log, nil)),
	}
	polls := func(text string, n int) {
		content = text
		for range n {
			w.poll(t.Context())
		}
	}
	polls("w=h:1", 1)
	polls("w=h:1,h:2", 1)
	if len(taken) != 0 {
		t.Errorf("%v was taken while the file changed", taken)
	}
	polls("w=h:1,h:2", 5)
	polls("", 5)
	polls("w=h:1,h:2", 5) // as it was
	polls("w=h:1", 4)     // it may be half written
	polls("w=h:1,h:2", 1)
	refuse = errors.New("it removes itself")
	polls("w=1@h:2", 5)
	refuse = nil
	polls("w=h:1", 5)
	if got := strings.Join(taken, ";"); got != "[h:1 h:2];[h:1]" {
		t.Errorf("taken %s", got)
	}
	if n := strings.Count(log.String(), "level=WARN"); n != 2 || !strings.Contains(log.String(), "it is empty") || !strings.Contains(log.String(), "it removes itself") {
		t.Errorf("%d warnings:\n%s", n, log.String())
	}
}

// TestServeFollowsItsClusterFile: a file that is renamed, a symbolic link that changes as that of a ConfigMap, and files
// that are not taken. Tasks come and go meanwhile.
func TestServeFollowsItsClusterFile(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "cluster")
	at := []string{closedPort(t), closedPort(t)}
	one, both := "worker="+at[0]+"\n", "worker:\n- "+at[0]+"\n- "+at[1]+"\n"
	rename := func(text string) {
		t.Helper()
		if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	rename(one)
	p := start(t, nil, "serve", "--cluster-file", file, "--task", "/job:worker/task:0")
	if got := p.err.until(t, serving); got != at[0] {
		t.Errorf("it listens at %s, want %s", got, at[0])
	}
	changed := func(times int, last string) {
		t.Helper()
		p.err.until(t, regexp.MustCompile(fmt.Sprintf(`(?s)(?:the cluster has changed.*){%d}%s="?\[/job:worker/replica:0/task:1(\])`, times-1, last)))
	}
	refused := func(why string) {
		t.Helper()
		p.err.until(t, regexp.MustCompile(`(level=WARN msg="the cluster file is not taken; the cluster stays as it was" .*`+why+`.*)`))
	}
	rename(both)
	changed(1, "added")
	for text, why := range map[string]string{
		"": "it is empty", strings.TrimSuffix(one, "\n"): "half written", "worker=1@" + at[1] + "\n": "cannot remove itself",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil { // in place
			t.Fatal(err)
		}
		refused(why)
	}
	for _, name := range []string{"..1", "..2"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name, "cluster"), []byte(one), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(
		os.Symlink("..1", filepath.Join(dir, "..data")), os.Remove(file), os.Symlink("..data/cluster", file),
	); err != nil {
		t.Fatal(err)
	}
	changed(2, "removed")
	if err := errors.Join(
		os.WriteFile(filepath.Join(dir, "..2", "cluster"), []byte(both), 0o600),
		os.Symlink("..2", filepath.Join(dir, "..new")), os.Rename(filepath.Join(dir, "..new"), filepath.Join(dir, "..data")),
	); err != nil {
		t.Fatal(err)
	}
	changed(3, "added")
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if r := p.end(t); r.code != exitDone {
		t.Errorf("exit status %d\n%s", r.code, r.err)
	}
}

// TestWrongClusterFileAtTheStart is wrong usage, and names the file.
func TestWrongClusterFileAtTheStart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cluster")
	if err := os.WriteFile(file, []byte("worker=h1:2222"), 0o600); err != nil {
		t.Fatal(err)
	}
	failed(t, tryst(t, "serve", "--cluster-file", file), exitUsage, file, "half written")
	failed(t, tryst(t, "serve", "--cluster-file", file+".no"), exitUsage, file+".no")
	failed(t, tryst(t, "serve", "--cluster-file", file, "--cluster", "worker=h1:2222"), exitUsage, "--cluster-file", "leave one")
}
