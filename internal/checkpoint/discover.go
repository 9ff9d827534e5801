package checkpoint

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor/safetensors"
)

const (
	safetensorsExt = ".safetensors"
	indexExt       = ".safetensors.index.json"
	jsonExt        = ".index.json" // ends indexExt
	npyExt         = ".npy"

	// companionPrefix begins the names of the files in which macOS keeps attributes of another
	// file, where the file system has no place for them.
	companionPrefix = "._"
)

// IsCompanion reports whether path is one of the files ._NAME in which macOS keeps attributes of
// the file NAME. They have the extensions of NAME, and no tensors.
func IsCompanion(path string) bool { return strings.HasPrefix(filepath.Base(path), companionPrefix) }

// SplitName parses a publication of a command line, [NAME=]PATH. An arg that exists as it is
// written is a path. Otherwise the text before the first = is a name, unless it has a path
// separator. Without a name SplitName returns the base name of the path without its extension.
func SplitName(arg string) (name, path string) {
	if _, err := os.Lstat(arg); err == nil {
		return defaultName(arg), arg
	}
	if before, after, ok := strings.Cut(arg, "="); ok && !strings.ContainsRune(before, filepath.Separator) && before != "" {
		return before, after
	}
	return defaultName(arg), arg
}

// defaultName returns the name of a publication without a given name.
func defaultName(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs // so that "." has a name, too
	}
	base := filepath.Base(path)
	for _, ext := range []string{indexExt, safetensorsExt, npyExt} {
		if name, ok := strings.CutSuffix(base, ext); ok && name != "" {
			return name
		}
	}
	return base
}

// found has the files of a publication's paths.
type found struct {
	files []string // paths, in the order of publication; an index follows its files
	// indexes are the indexes of sharded checkpoints, by path. check compares them with the
	// headers of the files.
	indexes map[string]*safetensors.Index
}

// discover finds the files of a path: the path itself, the files of an index, or those of a
// directory.
func (f *found) discover(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return wrap(path, bare(err))
	}
	switch {
	case info.IsDir():
		return f.directory(path)
	case !info.Mode().IsRegular():
		return status.Errorf(status.InvalidArgument, "%s is neither a file nor a directory", path)
	case IsCompanion(path):
		return status.Errorf(status.InvalidArgument, "%s has attributes of another file, which macOS keeps there, and no tensors: leave it out", path)
	case strings.HasSuffix(path, indexExt):
		return f.index(path)
	case strings.HasSuffix(path, safetensorsExt), strings.HasSuffix(path, npyExt):
		f.files = append(f.files, path)
		return nil
	}
	return status.Errorf(status.InvalidArgument, "%s: a file ends in %s, %s or %s; rename it if it is one of them",
		path, safetensorsExt, indexExt, npyExt)
}

// directory adds the index in a directory, or otherwise its only file.
func (f *found) directory(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return wrap(dir, bare(err))
	}
	var indexes, files []string
	for _, e := range entries {
		switch name := e.Name(); {
		case IsCompanion(name), isDirectory(filepath.Join(dir, name)):
		case strings.HasSuffix(name, indexExt):
			indexes = append(indexes, filepath.Join(dir, name))
		case strings.HasSuffix(name, safetensorsExt):
			files = append(files, filepath.Join(dir, name))
		}
	}
	switch {
	case len(indexes) == 1:
		return f.index(indexes[0])
	case len(indexes) > 1:
		return status.Errorf(status.InvalidArgument, "%s has %d index files (%s, ...): name one of them", dir, len(indexes), indexes[0])
	case len(files) == 1:
		return f.discover(files[0])
	case len(files) > 1:
		return status.Errorf(status.InvalidArgument, "%s has %d %s files and no index (*%s): name the files", dir, len(files), safetensorsExt, indexExt)
	}
	return status.Errorf(status.NotFound, "%s has no %s file", dir, safetensorsExt)
}

// isDirectory reports whether a path is a directory, or a link to one.
func isDirectory(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// index adds the files that an index names, which are in its directory.
func (f *found) index(path string) error {
	r, err := os.Open(path)
	if err != nil {
		return wrap(path, bare(err))
	}
	defer r.Close()
	x, err := safetensors.ReadIndex(r)
	if err != nil {
		return wrap(path, err)
	}
	dir := filepath.Dir(path)
	names := x.Files()
	if len(names) == 0 {
		return status.Errorf(status.InvalidArgument, "%s names no file", path)
	}
	for _, name := range names {
		f.files = append(f.files, filepath.Join(dir, name))
	}
	f.files = append(f.files, path)
	if f.indexes == nil {
		f.indexes = make(map[string]*safetensors.Index)
	}
	f.indexes[path] = x
	return nil
}

// check compares the indexes with the headers of their files, by path.
func (f *found) check(headers map[string]*safetensors.Header) error {
	for index, x := range f.indexes {
		mine := make(map[string]*safetensors.Header)
		for path, h := range headers {
			if filepath.Dir(path) == filepath.Dir(index) {
				mine[filepath.Base(path)] = h
			}
		}
		if err := x.Check(mine); err != nil {
			return wrap(index, err)
		}
	}
	return nil
}

// elsewhere reports whether the index in the directory of a file names another file for a tensor. Then the
// copy of the tensor in this file does not count: as for transformers, the index decides.
func (f *found) elsewhere(path, tensor string) bool {
	for index, x := range f.indexes {
		if filepath.Dir(index) == filepath.Dir(path) {
			if file, ok := x.WeightMap[tensor]; ok && file != filepath.Base(path) {
				return true
			}
		}
	}
	return false
}

// distinct refuses a repeated file, and two files with the same base name, since a puller writes
// files under their base names.
func (f *found) distinct() error {
	names := make(map[string]string)
	for _, path := range f.files {
		base := filepath.Base(path)
		if err := checkFileName(base, filepath.Ext(base)); err != nil {
			return wrap(path, err)
		}
		if other, ok := names[base]; ok {
			return status.Errorf(status.AlreadyExists, "%s and %s have the same name; publish them apart", other, path)
		}
		names[base] = path
	}
	if len(f.files) == 0 {
		return status.New(status.InvalidArgument, "no file to publish")
	}
	f.files = slices.Clip(f.files)
	return nil
}
