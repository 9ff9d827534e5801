package checkpoint_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/tryst-rdma/tryst/internal/checkpoint"
	"github.com/tryst-rdma/tryst/status"
)

// TestPullIntoADropBox: a directory that a user may write to and not read cannot be synced. The pull is a
// success that says so, and the same pull finds its file good. The test runs itself again, since root may
// read every directory.
func TestPullIntoADropBox(t *testing.T) {
	const variable = "TRYST_TEST_DROP_BOX"
	if dir := os.Getenv(variable); dir != "" {
		if os.Getuid() == 0 {
			must(t, syscall.Setgid(65534))
			must(t, syscall.Setuid(65534))
		}
		h := serve(t)
		_, err := h.catalog.PublishTensors(t.Context(), "m", model(t)...)
		must(t, err)
		out := filepath.Join(dir, "m.safetensors")
		c := h.dial()
		sum, err := c.Save(t.Context(), checkpoint.PullRequest{}, checkpoint.SaveOptions{Out: out})
		must(t, err)
		if sum.Unsynced == nil {
			t.Fatal("nothing says that the directory could not be synced")
		}
		mustBe(t, sum.Unsynced, status.PermissionDenied, dir)
		sum, err = c.Save(t.Context(), checkpoint.PullRequest{}, checkpoint.SaveOptions{Out: out})
		must(t, err)
		if sum.Resumed != sum.Bytes || sum.Unsynced != nil {
			t.Errorf("the same pull again: %+v", sum)
		}
		return
	}
	box := filepath.Join(passable(t), "box")
	must(t, os.Mkdir(box, 0o700))
	mode := os.FileMode(0o300)
	if os.Getuid() == 0 {
		mode = os.ModeSticky | 0o733
	}
	must(t, os.Chmod(box, mode))
	t.Cleanup(func() { _ = os.Chmod(box, 0o700) }) //nolint:gosec // to remove it
	cmd := exec.Command(os.Args[0], "-test.run=^TestPullIntoADropBox$", "-test.v")
	cmd.Env = append(os.Environ(), variable+"="+box)
	if out, err := cmd.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("PASS: TestPullIntoADropBox")) {
		t.Errorf("%v: %s", err, out)
	}
}

// passable makes a directory that another user can pass to: not below t.TempDir, and not below a TMPDIR that only root
// may pass.
func passable(t *testing.T) string {
	t.Helper()
	for _, below := range []string{os.TempDir(), "/tmp", "/var/tmp"} {
		if os.Getuid() == 0 && !othersPass(below) {
			continue
		}
		dir, err := os.MkdirTemp(below, "dropbox")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := os.RemoveAll(dir); err != nil {
				t.Error(err)
			}
		})
		if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // another user must pass
			t.Fatal(err)
		}
		return dir
	}
	t.Fatalf("root runs this test as another user, who can pass neither to %s nor to /tmp or /var/tmp: set TMPDIR to a directory that all users may pass", os.TempDir())
	return ""
}

// othersPass reports whether every user may pass to a directory.
func othersPass(dir string) bool {
	dir, err := filepath.Abs(dir)
	for err == nil {
		stat, e := os.Stat(dir)
		if e != nil || stat.Mode().Perm()&0o001 == 0 {
			return false
		}
		if dir == filepath.Dir(dir) {
			return true
		}
		dir = filepath.Dir(dir)
	}
	return false
}
