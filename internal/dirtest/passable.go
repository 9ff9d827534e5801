// Package dirtest makes directories for tests.
package dirtest

import (
	"os"
	"path/filepath"
	"testing"
)

// Passable makes a directory that another user can pass to: not below t.TempDir, and not below a TMPDIR that only root
// may pass.
func Passable(t *testing.T) string {
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
