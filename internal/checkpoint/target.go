package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/tryst-rdma/tryst/status"
)

// partExt is the suffix of a file's name while it is written.
const partExt = ".part"

// target is a file that is written as PATH.part and renamed to PATH when it is complete and on
// the disk. The lock on the .part excludes a second writer. The .part of a killed process has no
// lock. It is used again if it has a journal (openTarget).
type target struct {
	path    string
	force   bool // replaces an existing file
	file    *os.File
	journal *journal // nil for a file that is always begun anew, and before begin
	named   bool     // it has its name
	ours    bool     // the .part has nothing but what this pull, or an earlier one of the same plan, wrote

	flush func(*os.File, piece) // beginWriteback, except in tests

	size    int64    // that it will have; set by begin and openTarget
	reserve *reserve // of all files of the pull

	writing sync.Mutex // held while the file is written
	// All below are guarded by writing.
	written  writeback
	reserved int64 // of size, from the beginning
	ahead    int64 // of reserved, beyond the bytes that were written
}

// checkTarget returns an error if no file may be written at path.
func checkTarget(path string, force bool) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return wrap(path, bare(err))
	case info.IsDir():
		return status.Errorf(status.AlreadyExists, "%s is a directory", path)
	case !force:
		return status.Errorf(status.AlreadyExists, "%s exists; it is replaced only by force (--force)", path)
	case !info.Mode().IsRegular() && info.Mode().Type() != fs.ModeSymlink:
		return status.Errorf(status.InvalidArgument, "%s is not a regular file, and is not replaced", path)
	}
	return nil
}

// createTarget opens PATH.part, without content. It returns
// AlreadyExists for an existing PATH unless force is set, FailedPrecondition for a .part that
// another process writes, and ResourceExhausted for a full disk.
func createTarget(path string, size int64, force bool) (*target, error) {
	t, err := lockTarget(path, force)
	if err != nil {
		return nil, err
	}
	if err := checkSpace([]*target{t}, []int64{size}); err != nil {
		t.abandon()
		return nil, err
	}
	if err := t.begin(size, nil); err != nil {
		return nil, err
	}
	return t, nil
}

// lockTarget opens PATH.part and locks it.
func lockTarget(path string, force bool) (*target, error) {
	if err := checkTarget(path, force); err != nil {
		return nil, err
	}
	f, err := openPart(path + partExt)
	if err != nil {
		return nil, wrap("creating "+path+partExt, bare(err))
	}
	return &target{path: path, force: force, file: f, flush: beginWriteback, reserve: new(reserve)}, nil
}

// begin empties the .part, gives it its size, without disk, and creates a journal of p if that is not
// nil. If that fails, the target is discarded. The old journal goes first: it must not name bytes
// that are not there.
func (t *target) begin(size int64, p *plan) error {
	t.ours, t.size = true, size
	journal := t.path + partExt + journalExt
	err := os.Remove(journal)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err == nil {
		err = t.file.Truncate(0)
	}
	if err == nil {
		err = t.file.Truncate(size)
	}
	if err != nil {
		t.discard()
		return wrap(fmt.Sprintf("creating %s%s with %d bytes", t.path, partExt, size), bare(err))
	}
	if p == nil {
		return nil
	}
	if t.journal, err = createJournal(journal, *p); err != nil {
		t.discard()
		return err
	}
	return nil
}

// openTarget opens and locks PATH.part, and changes nothing in it. If an earlier pull of the same
// plan left it, the target has its journal, and openTarget returns what that claims. Otherwise the
// caller calls begin; anew says why nothing of a .part can be used. The .part of another plan is
// FailedPrecondition, unless older is set: otherwise only a user knows whether it may be overwritten.
func openTarget(path string, force, older bool, p plan) (t *target, claims []claim, anew, err error) {
	if t, err = lockTarget(path, force); err != nil {
		return nil, nil, nil, err
	}
	stat, err := t.file.Stat()
	if err != nil {
		t.abandon()
		return nil, nil, nil, wrap(path+partExt, bare(err))
	}
	if stat.Size() == 0 {
		return t, nil, nil, nil
	}
	j, claims, anew := readJournal(path+partExt+journalExt, p)
	switch {
	case status.CodeOf(anew) == status.FailedPrecondition && !older:
		t.abandon()
		return nil, nil, nil, status.Errorf(status.FailedPrecondition, "%s%s was left by an earlier pull: %s; --no-resume begins anew", path, partExt, status.From(anew).Message())
	case anew != nil:
		return t, nil, anew, nil
	case stat.Size() != p.Size:
		j.close()
		return t, nil, status.Errorf(status.DataLoss, "it has %d bytes instead of %d", stat.Size(), p.Size), nil
	}
	t.journal, t.ours, t.size = j, true, p.Size
	return t, claims, nil, nil
}

// openPart opens a .part and locks it.
func openPart(path string) (*os.File, error) {
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|noFollow, 0o666)
		if err != nil {
			return nil, err
		}
		current, err := lockPart(f, path)
		if current && err == nil {
			return f, nil
		}
		_ = f.Close() // nothing was written
		if err != nil {
			return nil, err
		}
	}
}

// lockPart locks an open .part. It returns false if the file does not have its name any more,
// because its last writer has renamed or removed it.
func lockPart(f *os.File, path string) (current bool, err error) {
	opened, err := f.Stat()
	if err != nil {
		return false, err
	}
	if !opened.Mode().IsRegular() {
		return false, status.New(status.InvalidArgument, "it is there, and not a regular file")
	}
	if err := lock(f); err != nil {
		return false, err
	}
	now, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	case now.Mode().Type() == fs.ModeSymlink: // where noFollow does nothing
		return false, status.New(status.InvalidArgument, "it is there, and a symbolic link")
	case manyNames(now): // what is written would change a file of another name, and its owner could change the result
		return false, status.New(status.InvalidArgument, "it is there, and has another name, too (a hard link); remove it")
	}
	return os.SameFile(opened, now), nil
}

// writeAt writes b at an offset. The writes of several goroutines follow each other: the kernel does
// one at a time as well, but lets the others spin.
func (t *target) writeAt(b []byte, off int64) error {
	t.writing.Lock()
	err := t.reserveLocked(int64(len(b)))
	if err == nil {
		_, err = t.file.WriteAt(b, off)
	}
	begin := t.written.wrote(piece{off, int64(len(b))})
	t.writing.Unlock()
	if err == nil && begin.n > 0 {
		t.flush(t.file, begin)
	}
	return t.wrap("writing", err)
}

func (t *target) wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return wrap(what+" "+t.path+partExt, bare(err))
}

// disk has the file system operations of a commit. Tests replace it to check their order, on
// which the state after a crash depends.
type disk struct {
	sync    func(*os.File) error
	rename  func(from, to string) error
	syncDir func(string) error
}

func realDisk() disk { return disk{(*os.File).Sync, os.Rename, syncDir} }

// commitAll renames the files to their names, in order. Before the first rename all files are
// complete and on the disk.
//
// Then they are the result, whatever follows. unsynced says why their names may not be on the disk: some
// file systems cannot sync a directory, and one that cannot be read cannot be opened for it.
func commitAll(targets []*target) (unsynced, err error) { return commitTo(realDisk(), targets) }

func commitTo(d disk, targets []*target) (unsynced, err error) {
	for _, t := range targets {
		if err := d.sync(t.file); err != nil {
			return nil, t.wrap("syncing", err)
		}
		if err := checkTarget(t.path, t.force); err != nil { // the file may be new
			return nil, err
		}
	}
	dirs := make(map[string]bool)
	for _, t := range targets {
		if err := t.rename(d); err != nil {
			return nil, err
		}
		dirs[filepath.Dir(t.path)] = true
	}
	for dir := range dirs {
		if err := d.syncDir(dir); err != nil && unsynced == nil {
			unsynced = err
		}
	}
	return unsynced, nil
}

// rename renames the file to its name. discard does nothing afterwards.
func (t *target) rename(d disk) error {
	if err := d.rename(t.path+partExt, t.path); err != nil {
		return wrap("renaming "+t.path+partExt, err)
	}
	// From now on another pull may lock a new .part with a new journal.
	if t.journal != nil {
		t.journal.remove(t.path + partExt + journalExt)
	}
	f := t.file
	t.file, t.named = nil, true
	if err := f.Close(); err != nil {
		return wrap("closing "+t.path, bare(err))
	}
	return nil
}

// discard removes the .part of a target that was not committed. It holds the lock until then.
func (t *target) discard() {
	if t.file == nil {
		return
	}
	if t.journal != nil {
		t.journal.close()
		_ = os.Remove(t.path + partExt + journalExt)
	}
	_ = os.Remove(t.path + partExt) // a .part that is left is overwritten next time
	_ = t.file.Close()              // its content is not needed
	t.file = nil
}

// abandon closes a target before begin. It removes the .part only if it is empty, as a new one.
func (t *target) abandon() {
	if stat, err := t.file.Stat(); err == nil && stat.Size() == 0 {
		_ = os.Remove(t.path + partExt) // one that is left is used by the next pull
	}
	_ = t.file.Close() // nothing was written
	t.file = nil
}

// leave closes a target that was not committed. It keeps the .part for the next pull if the
// journal has a record, and reports whether it did. Otherwise it discards the target.
func (t *target) leave() bool {
	if t.file == nil {
		return false
	}
	if !t.ours {
		t.abandon()
		return false
	}
	if t.journal == nil || t.journal.close() == 0 {
		t.discard()
		return false
	}
	_ = t.file.Close() // what is lost is sent again
	t.file = nil
	return true
}

// syncDir makes renames in a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return wrap("syncing "+dir, bare(err))
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return wrap("syncing "+dir, bare(err))
	}
	return nil
}
