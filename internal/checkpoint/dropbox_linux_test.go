package checkpoint_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/tryst-rdma/tryst/internal/checkpoint"
	"github.com/tryst-rdma/tryst/internal/dirtest"
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
	box := filepath.Join(dirtest.Passable(t), "box")
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
