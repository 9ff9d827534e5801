package checkpoint

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/status"
)

// An error of the disk while a .part is verified is not the end of the caller's context.
func TestErrorOfVerificationIsNotACancel(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	f, err := os.OpenFile(path+partExt, os.O_WRONLY|os.O_CREATE, 0o600) // cannot be read
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	pl := &pull{p: new(Puller), manifest: &Manifest{Publication: Publication{Name: "m"}}}
	to := &files{pl: pl, spots: map[int]*spot{0: {target: &target{path: path, file: f}, TensorInfo: &TensorInfo{Name: "w", Bytes: 5}}}}
	err = to.resume(t.Context(), &output{path: path, entries: []int{0}}, []claim{{piece{0, 5}, 1}}, nil, nil)
	if err == nil || status.CodeOf(err) == status.Cancelled || !strings.Contains(err.Error(), "reading "+path) || strings.Contains(err.Error(), "cancelled") {
		t.Errorf("got %v", err)
	}
}
