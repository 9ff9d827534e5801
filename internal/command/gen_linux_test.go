package command

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tryst-rdma/tryst/internal/dirtest"
)

// TestGenIntoADropBox: gen makes a directory in one that it may write to and not read, which so cannot be synced.
// The files are the result, and one line names the directory. Root may read every directory, so gen runs as
// another user then.
func TestGenIntoADropBox(t *testing.T) {
	box := filepath.Join(dirtest.Passable(t), "box")
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
