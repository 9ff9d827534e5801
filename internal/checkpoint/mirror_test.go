package checkpoint_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/internal/checkpoint"
	"github.com/tryst-rdma/tryst/status"
)

// dirs returns the names of the directories of versions in dir.
func dirs(t *testing.T, dir string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".out.") {
			all = append(all, e.Name())
		}
	}
	return all
}

func TestMirrorSwitchesTheFilesOfADirectoryTogether(t *testing.T) {
	h := publisher(t)
	dir := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(dir, ".out.00000000000000ff", "left"), 0o777)) // of a process that was killed
	out := filepath.Join(dir, "out")
	done := errors.New("enough")
	n := 0
	update := func() {
		n++
		h.update(weights(t, float32(n), 10, 3<<20), checkpoint.UpdateOptions{})
	}
	update()
	var before string
	err := h.dial().Mirror(t.Context(), checkpoint.PullRequest{Publication: "w"}, checkpoint.SaveOptions{Out: out + "/"},
		func(_ context.Context, m checkpoint.Mirrored) error {
			if m.Publication.Number != uint64(n) {
				t.Errorf("number %d, want %d", m.Publication.Number, n)
			}
			if at, err := filepath.EvalSymlinks(out); err != nil || at != m.Path {
				t.Errorf("%s leads to %s, %v; want %s", out, at, err, m.Path)
			}
			whole := readFile(t, filepath.Join(m.Path, "w.safetensors"))
			if before != "" && string(readFile(t, filepath.Join(before, "w.safetensors"))) == string(whole) {
				t.Error("the files are those of the version before")
			}
			if all := dirs(t, dir); len(all) != min(n, 2) {
				t.Errorf("directories %v after %d versions", all, n)
			}
			if before = m.Path; n == 4 {
				return done
			}
			update()
			return nil
		})
	if !errors.Is(err, done) {
		t.Error(err)
	}
}

func TestMirrorReplacesAFile(t *testing.T) {
	h := publisher(t)
	out := filepath.Join(t.TempDir(), "m.safetensors")
	done := errors.New("enough")
	h.update(weights(t, 1, 10), checkpoint.UpdateOptions{})
	var first []byte
	err := h.dial().Mirror(t.Context(), checkpoint.PullRequest{Publication: "w"}, checkpoint.SaveOptions{Out: out},
		func(_ context.Context, m checkpoint.Mirrored) error {
			if m.Path != out {
				t.Errorf("path %s", m.Path)
			}
			if first != nil {
				if string(readFile(t, out)) == string(first) {
					t.Error("it has the content of the version before")
				}
				return done
			}
			first = readFile(t, out)
			h.update(weights(t, 2, 10), checkpoint.UpdateOptions{})
			return nil
		})
	if !errors.Is(err, done) {
		t.Error(err)
	}
}

func TestMirrorDoesNotReplaceADirectory(t *testing.T) {
	h := publisher(t)
	err := h.dial().Mirror(t.Context(), checkpoint.PullRequest{Publication: "w"}, checkpoint.SaveOptions{Out: t.TempDir()}, nil)
	mustBe(t, err, status.AlreadyExists, "symbolic link")
}

// A directory whose pull was killed is gone on with; a file that someone has changed comes again.
func TestMirrorRepairsTheDirectoryOfAVersion(t *testing.T) {
	h := publisher(t)
	out := filepath.Join(t.TempDir(), "out")
	done := errors.New("enough")
	p := h.update(weights(t, 1, 10, 10), checkpoint.UpdateOptions{}).Publication
	dir := filepath.Join(filepath.Dir(out), ".out."+p.Version)
	must(t, os.Mkdir(dir, 0o777))
	must(t, os.WriteFile(filepath.Join(dir, "w.safetensors"), []byte("changed"), 0o600))
	must(t, os.Symlink("gone", filepath.Join(filepath.Dir(out), ".out.link"))) // of a process that was killed
	err := h.dial().Mirror(t.Context(), checkpoint.PullRequest{Publication: "w"}, checkpoint.SaveOptions{Out: out + "/"},
		func(_ context.Context, m checkpoint.Mirrored) error {
			if m.Untidy != nil || m.Path != dir || len(readFile(t, filepath.Join(out, "w.safetensors"))) < 80 {
				t.Errorf("%+v", m)
			}
			return done
		})
	if !errors.Is(err, done) {
		t.Error(err)
	}
}

// What was left of an older version is begun anew: nobody waits for it.
func TestMirrorReplacesAPartOfAnOlderVersion(t *testing.T) {
	h := publisher(t)
	out := filepath.Join(t.TempDir(), "m.safetensors")
	c := h.dial()
	h.update(weights(t, 1, 10, 10, 10), checkpoint.UpdateOptions{})
	ctx, cancel := context.WithCancel(t.Context())
	_, err := c.Save(ctx, checkpoint.PullRequest{Publication: "w", Inflight: 1, InflightBytes: 1, Received: func(checkpoint.PulledTensor) { cancel() }}, checkpoint.SaveOptions{Out: out})
	mustBe(t, err, status.Cancelled)
	readFile(t, out+".part")
	h.update(weights(t, 2, 10, 10, 10), checkpoint.UpdateOptions{})
	_, err = c.Save(t.Context(), checkpoint.PullRequest{Publication: "w"}, checkpoint.SaveOptions{Out: out})
	mustBe(t, err, status.FailedPrecondition, "was left by an earlier pull")
	done := errors.New("enough")
	err = c.Mirror(t.Context(), checkpoint.PullRequest{Publication: "w"}, checkpoint.SaveOptions{Out: out},
		func(context.Context, checkpoint.Mirrored) error { return done })
	if !errors.Is(err, done) {
		t.Error(err)
	}
}

func TestMirrorDoesNotReplaceAnothersFile(t *testing.T) {
	h := publisher(t)
	out := filepath.Join(t.TempDir(), "m.safetensors")
	must(t, os.WriteFile(out, []byte("another's"), 0o600))
	h.update(weights(t, 1, 10), checkpoint.UpdateOptions{})
	err := h.dial().Mirror(t.Context(), checkpoint.PullRequest{Publication: "w"}, checkpoint.SaveOptions{Out: out}, nil)
	mustBe(t, err, status.AlreadyExists)
}
