package command

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestGenIntoADropBox: gen makes a directory in one that it may write to and not read, which so cannot be synced.
// The files are the result, and one line names the directory. Root may read every directory, so gen runs as
// another user then.
func TestGenIntoADropBox(t *testing.T) {
	box := filepath.Join(passable(t), "box")
	t.Cleanup(func() { _ = os.Chmod(box, 0o700) }) //nolint:gosec // to remove it
	p := command(t, nil, "gen", "--model", "tiny", "--out", filepath.Join(box, "new")+"/")
	p.Path = "/proc/self/exe" // the other user may not pass to its name
	mode := os.FileMode(0o300)
	if os.Getuid() == 0 {
		p.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		mode = os.ModeSticky | 0o733
	}
	if err := os.Mkdir(box, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(box, mode); err != nil {
		t.Fatal(err)
	}
	p.begin(t)
	r := p.end(t)
	did(t, r)
	const want = "tryst gen: the files are complete and on the disk"
	if strings.Count(r.err, want) != 1 || !strings.Contains(r.err, "syncing "+box+": permission denied") {
		t.Errorf("no line names the directory:\n%s", r.err)
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
