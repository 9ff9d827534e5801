package checkpoint

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// watched is a disk that writes down what is done to it.
func watched(log *[]string, failing string) disk {
	real := realDisk()
	did := func(what string) error {
		*log = append(*log, what)
		if what == failing {
			return errors.New("I/O error")
		}
		return nil
	}
	return disk{
		sync: func(f *os.File) error {
			return errors.Join(did("sync "+filepath.Base(f.Name())), real.sync(f))
		},
		rename: func(from, to string) error {
			if err := did("rename " + filepath.Base(from) + " to " + filepath.Base(to)); err != nil {
				return err
			}
			return real.rename(from, to)
		},
		syncDir: func(dir string) error {
			return errors.Join(did("sync directory "+filepath.Base(dir)), real.syncDir(dir))
		},
	}
}

func makeTargets(t *testing.T, force bool, paths ...string) []*target {
	t.Helper()
	var all []*target
	for _, path := range paths {
		x, err := createTarget(path, 3, force)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(x.discard)
		if err := x.writeAt([]byte(filepath.Base(path)+"..."), 0); err != nil {
			t.Fatal(err)
		}
		all = append(all, x)
	}
	return all
}

// TestCommitSyncsFilesAndDirectories: all files are on the disk before one gets its name, and the
// names are on the disk before the commit ends. So a crash leaves no name of a file that is not
// whole.
func TestCommitSyncsFilesAndDirectories(t *testing.T) {
	top := t.TempDir()
	d, e := filepath.Join(top, "d"), filepath.Join(top, "e")
	for _, dir := range []string{d, e} {
		if err := os.Mkdir(dir, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	targets := makeTargets(t, false, filepath.Join(d, "a"), filepath.Join(d, "b"), filepath.Join(e, "c"))
	var log []string
	if unsynced, err := commitTo(watched(&log, ""), targets); err != nil || unsynced != nil {
		t.Log(unsynced)
		t.Fatal(err)
	}
	slices.Sort(log[6:]) // directories, in any order
	want := []string{
		"sync a.part", "sync b.part", "sync c.part", "rename a.part to a", "rename b.part to b", "rename c.part to c",
		"sync directory d", "sync directory e",
	}
	if !slices.Equal(log, want) {
		t.Errorf("got %q, want %q", log, want)
	}
}

// TestCommitFails when the disk does, and names no file that may not be on it.
func TestCommitFails(t *testing.T) {
	for _, failing := range []string{"sync a.part", "sync b.part", "rename b.part to b"} {
		d := filepath.Join(t.TempDir(), "d")
		if err := os.Mkdir(d, 0o777); err != nil {
			t.Fatal(err)
		}
		var log []string
		_, err := commitTo(watched(&log, failing), makeTargets(t, false, filepath.Join(d, "a"), filepath.Join(d, "b")))
		if err == nil {
			t.Errorf("%s: no error", failing)
		}
		if named := slices.Contains(log, "rename a.part to a"); named && (failing == "sync a.part" || failing == "sync b.part") {
			t.Errorf("%s: a file got its name all the same", failing)
		}
	}
}

// TestFilesWithNamesAreTheResult: a directory that cannot be synced is reported, and is no error: the files
// are complete and have their names.
func TestFilesWithNamesAreTheResult(t *testing.T) {
	d := filepath.Join(t.TempDir(), "d")
	if err := os.Mkdir(d, 0o777); err != nil {
		t.Fatal(err)
	}
	var log []string
	unsynced, err := commitTo(watched(&log, "sync directory d"), makeTargets(t, false, filepath.Join(d, "a"), filepath.Join(d, "b")))
	if err != nil || unsynced == nil {
		t.Errorf("got %v, unsynced %v", err, unsynced)
	}
}

// TestParentsOfNewDirectoriesAreSynced: each directory that got a new one, and no other.
func TestParentsOfNewDirectoriesAreSynced(t *testing.T) {
	top := t.TempDir()
	for _, c := range []struct {
		path string
		want []string
	}{
		{top, nil},
		{top + "/a/b/c/", []string{top + "/a/b", top + "/a", top}},
		{top + "/a/b/d", []string{top + "/a/b"}},
	} {
		var synced []string
		unsynced, err := makeDir(c.path, func(dir string) error {
			synced = append(synced, dir)
			return errors.New("cannot")
		})
		if err != nil || (unsynced != nil) != (c.want != nil) || !slices.Equal(synced, c.want) {
			t.Errorf("%s: %v, %v, synced %q, want %q", c.path, err, unsynced, synced, c.want)
		}
	}
}

// TestCommitLooksAgain: whatever came to a target's place while its content was written stays.
func TestCommitLooksAgain(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	targets := makeTargets(t, false, a, b)
	if err := os.WriteFile(b, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	var log []string
	if _, err := commitTo(watched(&log, ""), targets); err == nil {
		t.Error("no error")
	}
	if got, err := os.ReadFile(b); err != nil || string(got) != "precious" {
		t.Errorf("the file that came is %q, %v", got, err)
	}
	if slices.Contains(log, "rename a.part to a") {
		t.Error("a part of the files appeared")
	}
}
