package listen

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/tryst-rdma/tryst/status"
)

// File is a file that holds the address on which this server listens. With an empty
// path there is none.
type File struct {
	Path    string
	written os.FileInfo // of the file that this server wrote; nil before write
}

// Clear removes the file of an earlier server, so that a process that waits for the file does
// not read an old address.
func (f *File) Clear() {
	if was, err := os.Lstat(f.Path); f.Path != "" && err == nil && was.Mode().IsRegular() {
		_ = os.Remove(f.Path) // write reports an error if the path cannot be written
	}
}

// Write writes the address atomically, by a rename. All users may read the file.
func (f *File) Write(address string) error {
	if f.Path == "" {
		return nil
	}
	failed := func(err error) error {
		return status.Errorf(status.InvalidArgument, "address-file: cannot write %s: %w", f.Path, err)
	}
	if is, err := os.Stat(f.Path); err == nil && is.IsDir() {
		return failed(errors.New("it is a directory"))
	}
	t, err := os.CreateTemp(filepath.Dir(f.Path), filepath.Base(f.Path)+".*")
	if err != nil {
		return failed(err)
	}
	_, err = t.WriteString(address + "\n")
	err = errors.Join(err, t.Chmod(0o644))
	written, e := t.Stat()
	if err = errors.Join(err, e, t.Close()); err == nil {
		err = os.Rename(t.Name(), f.Path)
	}
	if err != nil {
		_ = os.Remove(t.Name())
		return failed(err)
	}
	f.written = written
	return nil
}

// Remove removes the file unless another server has replaced it. The inode number alone does
// not show that: the kernel may use it again after our file was removed.
func (f *File) Remove() {
	if f.written == nil {
		return
	}
	if is, err := os.Lstat(f.Path); err == nil && os.SameFile(is, f.written) && is.ModTime().Equal(f.written.ModTime()) {
		_ = os.Remove(f.Path)
	}
}
