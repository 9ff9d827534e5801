package checkpoint

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/npy"
	"github.com/tryst-rdma/tryst/tensor/safetensors"
)

// file is a published file. It stays open until its publication ends: another file that is
// renamed onto its name, or its removal, does not change what pullers get. A thousand shards
// need a thousand descriptors.
//
// The file may still be written in place. A modification time that has changed is therefore
// followed by a comparison of the content (compare.go).
type file struct {
	path string
	info FileInfo
	dir  fs.FileInfo // the directory that had the file when it was opened
	// header is the header of a safetensors file; nil for others.
	header *safetensors.Header
	// direct is set for an array whose elements lie in the file as they are sent.
	direct bool
	// mapped is the mapping of the file; nil when it is read.
	mapped io.Closer
	// head is the digest of the bytes before the first tensor, which are headSize.
	head     [sha256.Size]byte
	headSize int64

	comparisons *comparisons // of the catalog

	// tensors are those of the file, with their digests by newHash; nil while the digests are
	// being computed. Both are set once, before the publication is in the catalog.
	tensors []*TensorInfo
	newHash func() hash.Hash

	open sync.RWMutex // held for reading while r is read
	r    *os.File     // nil after close; guarded by open

	mu sync.Mutex // after open; not held while content is read
	// All below are guarded by mu. stat is the state of the file in which its content was read
	// and found to be what is published, damaged the last one in which it was not.
	stat, damaged fs.FileInfo
	comparing     *comparison // nil if none is in progress
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

// sameState reports whether nothing shows that a file was written between a and b.
func sameState(a, b fs.FileInfo) bool {
	return a.Size() == b.Size() && a.ModTime().Equal(b.ModTime()) && os.SameFile(a, b)
}

// sameChange reports whether nothing shows that a file was changed between a and b although its
// modification time is the same: a writer can set that back, but not when the inode changed. That
// changes with a mode, a link or a new name, too, so it says less.
func sameChange(a, b fs.FileInfo) bool {
	x, known := changeTime(a)
	y, _ := changeTime(b)
	return !known || x.Equal(y)
}

// isDamagedLocked reports whether the content of the file in a state was read, and is not the published one.
func (f *file) isDamagedLocked(now fs.FileInfo) bool {
	return f.damaged != nil && sameState(now, f.damaged) && sameChange(now, f.damaged)
}

// isPublishedLocked reports whether nothing shows that the content of the file in a state is not the
// published one.
func (f *file) isPublishedLocked(now fs.FileInfo) bool {
	return sameState(now, f.stat) && sameChange(now, f.stat) && !f.isDamagedLocked(now)
}

// isPublished is isPublishedLocked for callers without the lock.
func (f *file) isPublished(now fs.FileInfo) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.isPublishedLocked(now)
}

// changedLocked returns the error for a file whose content is not the published one any more. The
// message is sent to pullers, so it has no directories.
func (f *file) changedLocked(now fs.FileInfo) error {
	how := "modified " + now.ModTime().Format(time.RFC3339Nano)
	switch at, ok := changeTime(now); {
	case now.Size() != f.stat.Size():
		how = fmt.Sprintf("size %d → %d", f.stat.Size(), now.Size())
	case sameState(now, f.stat) && sameChange(now, f.stat):
		how = "written in place, with all its old times"
	case ok && now.ModTime().Equal(f.stat.ModTime()):
		how = "written in place " + at.Format(time.RFC3339Nano) + ", with its old modification time"
	}
	return status.Errorf(status.FailedPrecondition, "file %s changed since it was published (%s); publish it again, with SIGHUP to tryst serve", f.info.Name, how)
}

// published returns the state of the file in which its content is the published one.
func (f *file) published() fs.FileInfo {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stat
}

func (f *file) failed(err error) error { return wrap("file "+f.info.Name, bare(err)) }

// beingWritten is the error for a file that changes while it is published.
func beingWritten(name string) error {
	return status.Errorf(status.FailedPrecondition, "%s is being written; publish it when it is complete", name)
}

func (f *file) withdrawn() error {
	return status.Errorf(status.NotFound, "file %s is not published any more", f.info.Name)
}

func headDigest(r io.ReaderAt, size int64) (sum [sha256.Size]byte, err error) {
	h := sha256.New()
	if _, err = io.Copy(h, io.NewSectionReader(r, 0, size)); err == nil {
		h.Sum(sum[:0])
	}
	return sum, err
}

// digest returns the digest of a tensor's content. It reads pieces of the length of buf and calls
// each after every one. An array, whose elements may have to be converted, is read whole into memory
// from a.
func (f *file) digest(r io.ReaderAt, e *TensorInfo, h hash.Hash, buf []byte, a tensor.Allocator, each func(n int64) error) ([]byte, error) {
	if f.info.Format == FormatNPY {
		t, err := f.readArray(r, a)
		if err != nil {
			return nil, err
		}
		defer t.Release()
		size := e.Bytes
		if f.tensors == nil { // now the size in memory is known
			e.Bytes = t.Size()
		}
		return digestOf(h, t), each(size)
	}
	if err := hashRange(h, r, piece{e.Offset, e.Bytes}, buf, each); err != nil {
		return nil, err
	}
	return h.Sum(nil), nil
}

// read calls do with the open file. It checks before and after the call that the content is the
// published one. If that is being compared, the error is the comparison.
func (f *file) read(do func(*os.File) error) error {
	f.open.RLock()
	defer f.open.RUnlock()
	if err := f.examine(false); err != nil {
		return err
	}
	err := do(f.r)
	// If the file has changed, that is the cause of any error.
	changed := f.examine(false)
	switch {
	case changed != nil:
		return changed
	case err != nil:
		return f.failed(err)
	}
	return nil
}

// readTensor reads one tensor into memory from a. The caller releases it. An error may be a
// comparison.
func (f *file) readTensor(e *TensorInfo, a tensor.Allocator) (t *tensor.Tensor, err error) {
	err = f.read(func(r *os.File) (err error) {
		if f.info.Format == FormatNPY {
			t, err = f.readArray(r, a)
		} else {
			t, err = readPlain(r, e, a)
		}
		return err
	})
	if err != nil {
		if t != nil {
			t.Release()
		}
		return nil, ofTensor(e.Name, err)
	}
	return t.Named(e.Name), nil
}

// ofTensor adds the name of a tensor to the error of a read, unless that is a comparison.
func ofTensor(name string, err error) error {
	if c := pending(err); c != nil {
		return c
	}
	return wrap("tensor "+quote(name), err)
}

func (f *file) readArray(r io.ReaderAt, a tensor.Allocator) (*tensor.Tensor, error) {
	n, err := npy.Open(r, f.info.Bytes)
	if err != nil {
		return nil, err
	}
	return n.Read(a)
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

// inspect opens a file, reads its header and returns its part of the manifest. The entries have
// no digests and no file number yet. The caller closes the file.
func inspect(path string, mmap bool, all *comparisons) (*file, []TensorInfo, error) {
	// The directory comes first: if it is replaced meanwhile, the watch sees it.
	dir, err := os.Stat(filepath.Dir(path))
	if err != nil {
		return nil, nil, wrap(path, bare(err))
	}
	r, stat, err := openFile(path)
	if err != nil {
		return nil, nil, wrap(path, err)
	}
	f := &file{path: path, dir: dir, info: FileInfo{Name: filepath.Base(path), Bytes: stat.Size()}, r: r, stat: stat, comparisons: all}
	entries, err := f.inspect(r)
	if err == nil && mmap {
		err = f.mmap()
	}
	if err == nil {
		f.head, err = headDigest(r, f.headSize)
	}
	if err != nil {
		f.close()
		return nil, nil, wrap(path, err)
	}
	return f, entries, nil
}

func (f *file) inspect(r io.ReaderAt) ([]TensorInfo, error) {
	switch {
	case strings.HasSuffix(f.path, npyExt):
		return f.inspectArray(r)
	case strings.HasSuffix(f.path, indexExt):
		return nil, f.inspectIndex(r)
	}
	h, err := safetensors.ReadHeader(r, f.info.Bytes)
	if err != nil {
		return nil, err
	}
	f.info.Format, f.info.Metadata, f.header, f.headSize = FormatSafetensors, h.Metadata(), h, h.Size()
	var entries []TensorInfo
	for _, t := range h.Tensors() {
		entries = append(entries, TensorInfo{
			Name: t.Name, DType: t.DType, Shape: t.Shape, Packed: t.Packed, Bytes: t.Bytes, Offset: t.Offset,
		})
		f.headSize = min(f.headSize, t.Offset)
	}
	f.info.Header, err = foreignHeader(r, h, f.headSize)
	return entries, err
}

func (f *file) inspectArray(r io.ReaderAt) ([]TensorInfo, error) {
	n, err := npy.Open(r, f.info.Bytes)
	if err != nil {
		return nil, err
	}
	info := n.Info()
	f.info.Format, f.headSize, f.direct = FormatNPY, info.Offset, n.Direct()
	f.info.Header = make([]byte, info.Offset)
	if _, err := io.ReadFull(io.NewSectionReader(r, 0, info.Offset), f.info.Header); err != nil {
		return nil, err
	}
	if ours, err := npy.Header(info.DType, info.Shape); err == nil && bytes.Equal(ours, f.info.Header) {
		f.info.Header = nil
	}
	// Bytes is the size in the file; the tensor's size is known when it is read.
	return []TensorInfo{{
		Name: defaultName(f.path), DType: info.DType, Shape: info.Shape, Bytes: info.Bytes, Offset: info.Offset,
	}}, nil
}

// inspectIndex takes the whole index into the manifest: it has no tensors, and is small beside
// the headers of its files.
func (f *file) inspectIndex(r io.ReaderAt) error {
	f.info.Format, f.headSize = FormatIndex, f.info.Bytes
	if f.info.Bytes > safetensors.MaxIndex {
		return status.Errorf(status.InvalidArgument, "an index of %d bytes; at most %d are read", f.info.Bytes, safetensors.MaxIndex)
	}
	f.info.Header = make([]byte, f.info.Bytes)
	_, err := io.ReadFull(io.NewSectionReader(r, 0, f.info.Bytes), f.info.Header)
	return err
}

// foreignHeader returns the bytes before the first tensor; nil if package safetensors would
// write the same.
func foreignHeader(r io.ReaderAt, h *safetensors.Header, size int64) ([]byte, error) {
	text := make([]byte, size)
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
	switch f.info.Format {
	case FormatSafetensors:
		m, err := safetensors.OpenMapped(f.path)
		if err == nil {
			f.mapped = m
		}
		return err
	case FormatNPY:
		m, err := npy.OpenMapped(f.path)
		switch status.CodeOf(err) {
		case status.OK:
			f.mapped = m
		case status.Unimplemented: // elements must be converted: the file is read instead
			err = nil
		}
		return err
	}
	return nil
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

// close closes the file and its mapping, after the reads in progress. The memory is unmapped when
// the last tensor over it is released.
func (f *file) close() {
	if f.mapped != nil {
		_ = f.mapped.Close() // unmapping fails only for what was never mapped
	}
	f.open.Lock()
	defer f.open.Unlock()
	if f.r != nil {
		_ = f.r.Close() // only read from
		f.r = nil
	}
}
