package bundle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"strconv"
	"strings"
	"syscall"

	"github.com/tryst-rdma/tryst/status"
)

// Prefix is where the files of a bundle are: what their names have in common.
type Prefix struct {
	Root *os.Root
	Path string // below Root
	Name string // as the caller has it; for errors
}

// file is a file below a root.
type file struct {
	root       *os.Root
	path, name string
}

// place is what two names of one file have in common.
type place struct {
	root *os.Root
	path string
}

func (f file) place() place { return place{f.root, path.Clean(f.path)} }

func (p Prefix) file(end string) file { return file{p.Root, p.Path + end, p.Name + end} }

func (p Prefix) index() file { return p.file(".index") }

// data is one of n data files.
func (p Prefix) data(i, n int32) file { return p.file(fmt.Sprintf(".data-%05d-of-%05d", i, n)) }

// directory is where the files are.
func (p Prefix) directory() file {
	name, _ := path.Split(p.Name)
	at, _ := path.Split(p.Path)
	return file{p.Root, cmp.Or(strings.TrimRight(at, "/"), "."), strings.TrimRight(name, "/")}
}

// Exists reports whether there is an index.
func (p Prefix) Exists() (bool, error) {
	f := p.index()
	switch _, err := p.Root.Stat(f.path); {
	case err == nil:
		return true, nil
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	default:
		return false, f.failed(err)
	}
}

// open opens a regular file, and returns its size. Opening a named pipe does not wait for its writer.
func (f file) open() (*os.File, int64, error) {
	o, err := f.root.OpenFile(f.path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, f.failed(err)
	}
	info, err := o.Stat()
	switch {
	case err != nil:
		err = f.failed(err)
	case !info.Mode().IsRegular():
		err = status.Errorf(status.FailedPrecondition, "%s; Is no regular file", f.name)
	default:
		return o, info.Size(), nil
	}
	o.Close() //nolint:errcheck,gosec // nothing was written
	return nil, 0, err
}

// create makes the file under a temporary name, as TensorFlow does.
func (f file) create() (*temporary, error) {
	temp := f
	temp.path += ".tempstate" + strconv.FormatUint(rand.Uint64(), 10) //nolint:gosec // O_EXCL makes a name that exists an error
	o, err := f.root.OpenFile(temp.path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return nil, f.failed(err)
	}
	return &temporary{File: o, at: temp, final: f}, nil
}

// makeDirectory makes a directory, if its parent exists.
func (f file) makeDirectory() error {
	if f.path == "." {
		return nil
	}
	if err := f.root.Mkdir(f.path, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
		return f.failed(err)
	}
	return nil
}

// sync writes a directory to the disk: the names in it. A system that cannot do that to directories has no
// need to.
func (f file) sync() error {
	d, err := f.root.Open(f.path)
	if err != nil {
		return f.failed(err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, errors.ErrUnsupported) {
		return f.failed(err)
	}
	return nil
}

// temporary is a file that has its name when commit has returned.
type temporary struct {
	*os.File // nil after commit and discard
	at       file
	final    file
}

// commit writes the file to the disk and gives it its name.
func (t *temporary) commit() error {
	err := t.Sync()
	if closed := t.Close(); err == nil {
		err = closed
	}
	t.File = nil
	if err == nil {
		err = t.at.root.Rename(t.at.path, t.final.path)
	}
	if err != nil {
		_ = t.at.root.Remove(t.at.path) // it may have no name any more
		return t.final.failed(err)
	}
	return nil
}

// discard removes the file, unless commit has been called.
func (t *temporary) discard() {
	if t == nil || t.File == nil {
		return
	}
	_ = t.Close() // what was written is not needed
	_ = t.at.root.Remove(t.at.path)
	t.File = nil
}

// errEscapes is the text of os.Root for a path or a link that leads out of it; it has no error value.
const errEscapes = "path escapes from parent"

// failed returns an error of the system with TensorFlow's code and text: "NAME; No such file or directory". It returns
// other errors as they are.
func (f file) failed(err error) *status.Error {
	if e, ok := errors.AsType[*status.Error](err); ok {
		return e
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return status.From(err)
	}
	text := err.Error()
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		text = e.Err.Error()
	}
	if e, ok := errors.AsType[*os.LinkError](err); ok {
		text = e.Err.Error()
	}
	code := status.Unknown
	switch {
	case text == errEscapes:
		return status.Errorf(status.PermissionDenied, "%s; Permission denied: it is outside the directory for files", f.name)
	case errors.Is(err, fs.ErrNotExist):
		code = status.NotFound
	case errors.Is(err, fs.ErrPermission):
		code = status.PermissionDenied
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EISDIR), errors.Is(err, syscall.ENOTEMPTY), errors.Is(err, syscall.EROFS):
		code = status.FailedPrecondition
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.EFBIG), errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		code = status.ResourceExhausted
	case errors.Is(err, syscall.EINVAL), errors.Is(err, syscall.ENAMETOOLONG), errors.Is(err, syscall.ELOOP):
		code = status.InvalidArgument
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		code = status.DataLoss
	}
	return status.Errorf(code, "%s; %s", f.name, strings.ToUpper(text[:min(1, len(text))])+text[min(1, len(text)):])
}
