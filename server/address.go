package server

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/tryst-rdma/tryst/status"
)

// addressFile is a file that tells others where this server listens. An empty path is none.
type addressFile struct {
	path    string
	written os.FileInfo // what is ours there; nil before write
}

// clear removes what an earlier server has left there, so that who waits for the file does
// not read where nobody listens any more.
func (f *addressFile) clear() {
	if was, err := os.Lstat(f.path); f.path != "" && err == nil && was.Mode().IsRegular() {
		_ = os.Remove(f.path) // write says if it cannot be written either
	}
}

// write writes all of the address or nothing, so that nobody reads half of it. Everybody
// may read it.
func (f *addressFile) write(address string) error {
	if f.path == "" {
		return nil
	}
	failed := func(err error) error {
		return status.Errorf(status.InvalidArgument, "address-file: cannot write %s: %w", f.path, err)
	}
	if is, err := os.Stat(f.path); err == nil && is.IsDir() {
		return failed(errors.New("it is a directory"))
	}
	t, err := os.CreateTemp(filepath.Dir(f.path), filepath.Base(f.path)+".*")
	if err != nil {
		return failed(err)
	}
	_, err = t.WriteString(address + "\n")
	err = errors.Join(err, t.Chmod(0o644))
	written, e := t.Stat()
	if err = errors.Join(err, e, t.Close()); err == nil {
		err = os.Rename(t.Name(), f.path)
	}
	if err != nil {
		_ = os.Remove(t.Name())
		return failed(err)
	}
	f.written = written
	return nil
}

// remove removes the file, unless another server's has taken its place: perhaps with the
// same number, which is free again when ours has been removed.
func (f *addressFile) remove() {
	if f.written == nil {
		return
	}
	if is, err := os.Lstat(f.path); err == nil && os.SameFile(is, f.written) && is.ModTime().Equal(f.written.ModTime()) {
		_ = os.Remove(f.path)
	}
}
