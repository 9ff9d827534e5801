package checkpoint

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/npy"
	"github.com/tryst-rdma/tryst/tensor/safetensors"
)

// file is a published file. It is opened for each read, so that a publication of a thousand
// shards holds no descriptors, and that a replaced file is detected.
type file struct {
	path string
	info FileInfo
	stat fs.FileInfo // when it was published
	// header is the header of a safetensors file; nil for an .npy file.
	header *safetensors.Header
	// mapped is the mapping of the file; nil when it is read.
	mapped io.Closer
}

// openFile opens a regular file. It refuses other files before it opens them, since opening a
// pipe blocks until its other end is open.
func openFile(path string) (*os.File, fs.FileInfo, error) {
	stat, err := os.Stat(path)
	if err != nil {
		return nil, nil, bare(err)
	}
	if !stat.Mode().IsRegular() {
		return nil, nil, status.New(status.InvalidArgument, "not a regular file")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, bare(err)
	}
	stat, err = f.Stat()
	if err != nil {
		_ = f.Close() // only read from
		return nil, nil, bare(err)
	}
	return f, stat, nil
}

// changed returns how a file differs from the published one; nil if it does not. The message is
// sent to pullers, so it has no directories.
func (f *file) changed(now fs.FileInfo) error {
	var how string
	switch {
	case now.Size() != f.stat.Size():
		how = fmt.Sprintf("size %d → %d", f.stat.Size(), now.Size())
	case !now.ModTime().Equal(f.stat.ModTime()):
		how = "modified " + now.ModTime().Format(time.RFC3339Nano)
	case !os.SameFile(now, f.stat):
		how = "replaced by another file"
	default:
		return nil
	}
	return status.Errorf(status.FailedPrecondition, "file %s changed since it was published (%s); publish it again", f.info.Name, how)
}

// check returns an error if the file has changed since it was published.
func (f *file) check() error {
	now, err := os.Stat(f.path)
	if err != nil {
		return f.gone(err)
	}
	return f.changed(now)
}

// gone returns the error of a published file that is not accessible any more.
func (f *file) gone(err error) error {
	e := wrap("file "+f.info.Name+" cannot be read any more", bare(err))
	return status.Errorf(status.FailedPrecondition, "%s; publish it again", e.Message())
}

// read calls do with the open file. It checks before and after the call that the file has not
// changed.
func (f *file) read(do func(*os.File) error) error {
	r, now, err := openFile(f.path)
	if err != nil {
		return f.gone(err)
	}
	defer r.Close()
	if err := f.changed(now); err != nil {
		return err
	}
	err = do(r)
	// If the file has changed, that is the cause of any error.
	now, statErr := r.Stat()
	if statErr != nil {
		return f.gone(statErr)
	}
	if changed := f.changed(now); changed != nil {
		return changed
	}
	if err != nil {
		return wrap("file "+f.info.Name, bare(err))
	}
	return nil
}

// readTensor reads one tensor into memory from a. The caller releases it.
func (f *file) readTensor(e *TensorInfo, a tensor.Allocator) (t *tensor.Tensor, err error) {
	err = f.read(func(r *os.File) (err error) {
		if f.header != nil {
			t, err = readPlain(r, e, a)
			return err
		}
		n, err := npy.Open(r, f.stat.Size())
		if err != nil {
			return err
		}
		t, err = n.Read(a)
		return err
	})
	if err != nil {
		if t != nil {
			t.Release()
		}
		return nil, wrap("tensor "+quote(e.Name), err)
	}
	return t.Named(e.Name), nil
}

func readPlain(r io.ReaderAt, e *TensorInfo, a tensor.Allocator) (*tensor.Tensor, error) {
	t, err := tensor.Allocate(a, e.DType, e.Shape)
	if err != nil {
		return nil, err
	}
	if n, err := r.ReadAt(t.Bytes(), e.Offset); n < len(t.Bytes()) {
		t.Release()
		return nil, err
	}
	return t, nil
}

// inspect reads the header of a file and returns its part of the manifest. The entries have no
// digests and no file number yet.
func inspect(path string, mmap bool) (*file, []TensorInfo, error) {
	f := &file{path: path, info: FileInfo{Name: filepath.Base(path)}}
	r, stat, err := openFile(path)
	if err != nil {
		return nil, nil, wrap(path, err)
	}
	defer r.Close()
	f.stat, f.info.Bytes = stat, stat.Size()
	entries, err := f.inspect(r)
	if err == nil && mmap {
		err = f.mmap()
	}
	if err != nil {
		return nil, nil, wrap(path, err)
	}
	return f, entries, nil
}

func (f *file) inspect(r io.ReaderAt) ([]TensorInfo, error) {
	if strings.HasSuffix(f.path, indexExt) {
		return nil, f.inspectIndex(r)
	}
	if strings.HasSuffix(f.path, npyExt) {
		n, err := npy.Open(r, f.info.Bytes)
		if err != nil {
			return nil, err
		}
		f.info.Format = FormatNPY
		info := n.Info()
		if f.info.Header, err = arrayHeader(r, info); err != nil {
			return nil, err
		}
		// Bytes is the size in the file; the tensor's size is known when it is read.
		return []TensorInfo{{
			Name: defaultName(f.path), DType: info.DType, Shape: info.Shape, Bytes: info.Bytes, Offset: info.Offset,
		}}, nil
	}
	h, err := safetensors.ReadHeader(r, f.info.Bytes)
	if err != nil {
		return nil, err
	}
	f.info.Format, f.info.Metadata, f.header = FormatSafetensors, h.Metadata(), h
	var entries []TensorInfo
	for _, t := range h.Tensors() {
		entries = append(entries, TensorInfo{
			Name: t.Name, DType: t.DType, Shape: t.Shape, Packed: t.Packed, Bytes: t.Bytes, Offset: t.Offset,
		})
	}
	f.info.Header, err = foreignHeader(r, h)
	return entries, err
}

// inspectIndex takes the whole index into the manifest: it has no tensors, and is smaller than the
// headers of its files.
func (f *file) inspectIndex(r io.ReaderAt) error {
	f.info.Format = FormatIndex
	if f.info.Bytes > safetensors.MaxIndex {
		return status.Errorf(status.InvalidArgument, "an index of %d bytes; at most %d are read", f.info.Bytes, safetensors.MaxIndex)
	}
	f.info.Header = make([]byte, f.info.Bytes)
	_, err := io.ReadFull(io.NewSectionReader(r, 0, f.info.Bytes), f.info.Header)
	return err
}

// arrayHeader returns the bytes before the elements of an array; nil if package npy would write the
// same.
func arrayHeader(r io.ReaderAt, info npy.Info) ([]byte, error) {
	text := make([]byte, info.Offset)
	if n, err := r.ReadAt(text, 0); n < len(text) {
		return nil, err
	}
	if ours, err := npy.Header(info.DType, info.Shape); err == nil && bytes.Equal(ours, text) {
		return nil, nil
	}
	return text, nil
}

// foreignHeader returns the bytes before the first tensor; nil if package safetensors would
// write the same.
func foreignHeader(r io.ReaderAt, h *safetensors.Header) ([]byte, error) {
	data := h.Size() // offset of the first tensor
	if infos := h.Tensors(); len(infos) > 0 {
		data = infos[0].Offset
	}
	text := make([]byte, data)
	if n, err := r.ReadAt(text, 0); n < len(text) {
		return nil, err
	}
	var ours bytes.Buffer
	specs := make([]safetensors.Spec, len(h.Tensors()))
	for i, t := range h.Tensors() {
		specs[i] = t.Spec
	}
	// A name that may be in a file but cannot be written makes a foreign header.
	if _, err := safetensors.NewWriter(&ours, specs, h.Metadata()); err == nil && bytes.Equal(ours.Bytes(), text) {
		return nil, nil
	}
	return text, nil
}

// mmap maps the file, unless its elements must be converted.
func (f *file) mmap() error {
	if f.info.Format == FormatIndex {
		return nil
	}
	if f.header != nil {
		m, err := safetensors.OpenMapped(f.path)
		if err == nil {
			f.mapped = m
		}
		return err
	}
	m, err := npy.OpenMapped(f.path)
	switch status.CodeOf(err) {
	case status.OK:
		f.mapped = m
	case status.Unimplemented: // elements must be converted: the file is read instead
		err = nil
	}
	return err
}

// mappedTensor returns a tensor over the mapped file, with a reference.
func (f *file) mappedTensor(name string) (*tensor.Tensor, error) {
	var t *tensor.Tensor
	var err error
	switch m := f.mapped.(type) {
	case *safetensors.Mapped:
		t, err = m.Tensor(name)
	case *npy.Mapped:
		t, err = m.Tensor()
	}
	if err != nil {
		return nil, wrap(f.path, err)
	}
	return t.Named(name), nil
}

// close closes the mapping. The memory is unmapped when the last tensor over it is released.
func (f *file) close() {
	if f.mapped != nil {
		_ = f.mapped.Close() // unmapping fails only for what was never mapped
	}
}
