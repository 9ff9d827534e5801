package discovery

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"syscall"
)

// sysfs reads a tree of the kernel's attributes.
type sysfs struct{ fs.FS }

// text is what a file says, without the white space around it.
func (s sysfs) text(elem ...string) (string, error) {
	name := path.Join(elem...)
	f, err := s.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return "", err
	}
	if len(b) > maxFile {
		return "", fmt.Errorf("read %s: it has more than %d bytes, and is no attribute of sysfs", name, maxFile)
	}
	return string(bytes.TrimSpace(bytes.TrimRight(b, "\x00"))), nil
}

// has reports whether there is such a file or directory.
func (s sysfs) has(elem ...string) bool {
	_, err := fs.Stat(s.FS, path.Join(elem...))
	return err == nil
}

// names lists a directory in natural order.
func (s sysfs) names(elem ...string) ([]string, error) {
	entries, err := fs.ReadDir(s.FS, path.Join(elem...))
	if err != nil {
		return nil, err
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	slices.SortFunc(names, natural)
	return names, nil
}

// link is the last element of what a symbolic link points to: in sysfs the name
// of the object.
func (s sysfs) link(elem ...string) (string, error) {
	to, err := fs.ReadLink(s.FS, path.Join(elem...))
	if err != nil {
		return "", err
	}
	return path.Base(to), nil
}

// read parses one attribute.
func read[T any](s sysfs, parse func(string) (T, error), elem ...string) (T, error) {
	var zero T
	text, err := s.text(elem...)
	if err != nil {
		return zero, err
	}
	v, err := parse(text)
	if err != nil {
		return zero, fmt.Errorf("%s: %w", path.Join(elem...), err)
	}
	return v, nil
}

// emptyEntry reports whether an error is the kernel's way to say that an entry of
// a table is empty: for gid_attrs, reading gives EINVAL.
func emptyEntry(err error) bool { return errors.Is(err, syscall.EINVAL) }

// absent reports whether the attribute is not there, which is no problem for
// those that only some devices or kernels have. (A file of sysfs may be there
// and have no answer: ENOTSUP and ENODATA.)
func absent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, errors.ErrUnsupported)
}
