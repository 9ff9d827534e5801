package checkpoint

import (
	"crypto/sha256"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
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
	err = to.resume(t.Context(), &output{path: path, entries: []int{0}}, []claim{{piece{0, 5}, 1}}, nil, new(counter), nil)
	if err == nil || status.CodeOf(err) == status.Cancelled || !strings.Contains(err.Error(), "reading "+path) || strings.Contains(err.Error(), "cancelled") {
		t.Errorf("got %v", err)
	}
}

// The records before a damaged line of a journal count, and new ones follow them.
func TestDamagedRecordCostsOnlyWhatFollows(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.part.journal")
	p := plan{journalFormat, "m", "53f0", 1000, "9b1c"}
	j, err := createJournal(path, p)
	if err != nil {
		t.Fatal(err)
	}
	for off := range int64(3) {
		j.record(claimOf(10*off, "hello"))
	}
	j.close()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(b), "\n10 5 ", "\n\x00\x005 ", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	for want := 1; want < 3; want++ {
		j, claims, err := readJournal(path, p)
		if err != nil || len(claims) != want || claims[0].piece != (piece{0, 5}) {
			t.Fatalf("claims %+v, %v", claims, err)
		}
		j.record(claimOf(30, "again"))
		j.close()
	}
}

// When a .part has its name, another pull may begin the next one. Its journal stays.
func TestCommitLeavesAnotherJournal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	journal := path + partExt + journalExt
	for _, broken := range []bool{false, true} {
		x, err := createTarget(path, 3, true)
		if err != nil {
			t.Fatal(err)
		}
		if x.journal, err = createJournal(journal, plan{}); err != nil {
			t.Fatal(err)
		}
		if broken { // its disk was full
			_ = x.journal.file.Close()
			x.journal.record(claimOf(0, "abc"))
		}
		d := realDisk()
		d.rename = func(from, to string) error {
			if err := os.Rename(from, to); err != nil {
				return err
			}
			if err := os.Remove(journal); err != nil {
				return err
			}
			return os.WriteFile(journal, []byte("another"), 0o600)
		}
		if _, err := commitTo(d, []*target{x}); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(journal); err != nil || string(got) != "another" {
			t.Errorf("broken %v: the other journal is %q, %v", broken, got, err)
		}
		_ = os.Remove(journal)
	}
}

// TestErrorSaysWhatTheSamePullWillDo with what is left on the disk, and keeps its cause.
func TestErrorSaysWhatTheSamePullWillDo(t *testing.T) {
	for _, c := range []struct {
		name    string
		renamed bool
		err     error
		says    string
	}{
		{"a full disk", false, wrap("writing", syscall.ENOSPC), "the same pull goes on with it, --no-resume begins anew"},
		{"a failed commit", true, wrap("renaming", syscall.ENOSPC), "1 of 2 files have their names; the same pull goes on with the rest"},
		{"a changed version", false, changed(wrap("m changed", syscall.ENOSPC)), "which is of the version before: --no-resume begins anew"},
	} {
		dir := t.TempDir()
		to := &files{pl: &pull{newHash: sha256.New}}
		for _, name := range []string{"a", "b"} {
			x, err := createTarget(filepath.Join(dir, name), 3, false)
			if err != nil {
				t.Fatal(err)
			}
			if x.journal, err = createJournal(x.path+partExt+journalExt, plan{}); err != nil {
				t.Fatal(err)
			}
			x.journal.record(claimOf(0, "abc"))
			to.targets = append(to.targets, x)
		}
		if c.renamed {
			if _, err := commitTo(realDisk(), to.targets[:1]); err != nil {
				t.Fatal(err)
			}
		}
		err := to.kept(c.err)
		if !strings.Contains(err.Error(), c.says) || !strings.HasPrefix(err.Error(), c.err.Error()+"; ") || !strings.Contains(err.Error(), dir) {
			t.Errorf("%s: got %v", c.name, err)
		}
		if !errors.Is(err, syscall.ENOSPC) || status.CodeOf(err) != status.CodeOf(c.err) || len(status.From(err).Payloads()) != len(status.From(c.err).Payloads()) {
			t.Errorf("%s: %v has lost its cause", c.name, err)
		}
	}
}
