package checkpoint

import (
	"bytes"
	"context"
	"io"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/npy"
	"github.com/tryst-rdma/tryst/tensor/safetensors"
)

// A file that exists may be right already: the same pull was run before, or was killed while its files got
// their names, one after the other. A pull recognises them by their digests. It replaces nothing, so it
// needs no Force.

// mayBeRight returns the error of checkTarget for an existing file that cannot be the result of a pull
// without Force, for instance since it is no model.
func mayBeRight(path string, force, skipDigests bool) error {
	taken := checkTarget(path, force)
	if taken == nil || force || skipDigests {
		return taken
	}
	stat, err := os.Lstat(path)
	if err != nil || !stat.Mode().IsRegular() {
		return taken
	}
	f, stat, err := openFile(path)
	if err != nil {
		return taken
	}
	defer f.Close()
	if strings.HasSuffix(path, npyExt) {
		_, err = npy.Open(f, stat.Size())
	} else {
		_, err = safetensors.ReadHeader(f, stat.Size())
	}
	if err != nil {
		return taken
	}
	return nil
}

// split returns the outputs to write, and those whose files exist and may be finished already. If
// a file that exists cannot be one of them, the error is that of checkTarget.
func (fs *files) split(outputs []*output, o SaveOptions) (write, exist []*output, err error) {
	for _, out := range outputs {
		taken := checkTarget(out.path, o.Force)
		if taken == nil {
			write = append(write, out)
			continue
		}
		stat, failed := os.Lstat(out.path)
		if o.Force || fs.pl.newHash == nil || failed != nil || !stat.Mode().IsRegular() || out.head != nil && stat.Size() != out.size {
			return nil, nil, taken
		}
		exist = append(exist, out)
	}
	return write, exist, nil
}

// finished checks that a file that exists has the content of an output. Otherwise it returns the error
// of checkTarget.
func (fs *files) finished(ctx context.Context, out *output, count *counter, found func(Found)) error {
	f, stat, err := openFile(out.path)
	if err != nil {
		return wrap(out.path, err)
	}
	defer f.Close()
	if len(out.entries) > 0 && !out.resumable() {
		return fs.finishedArray(out, f, stat.Size(), found)
	}
	head := make([]byte, len(out.head))
	if _, err := io.ReadFull(io.NewSectionReader(f, 0, int64(len(head))), head); err != nil {
		return wrap("reading "+out.path, bare(err))
	}
	if !bytes.Equal(head, out.head) {
		return checkTarget(out.path, false)
	}
	g, failed := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for _, i := range out.entries {
		s := fs.spots[i]
		g.Go(func() error {
			h := fs.pl.newHash()
			err := hashRange(h, f, piece{s.off, s.Bytes}, make([]byte, min(s.Bytes, digestChunk)), func(n int64) error {
				count.add(n)
				return context.Cause(failed)
			})
			if err != nil {
				return wrap("reading "+out.path, bare(err))
			}
			if !bytes.Equal(h.Sum(nil), s.Digest) {
				return checkTarget(out.path, false)
			}
			s.have, s.done = ranges{{0, s.Bytes}}, true
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return fs.pl.explain(ctx, err)
	}
	r := Found{Path: out.path}
	for _, i := range out.entries {
		r.Bytes += fs.found(fs.spots[i])
	}
	if found != nil && r.Bytes > 0 {
		found(r)
	}
	return nil
}

// finishedArray is finished for an array whose elements are not in the file as a tensor has them.
func (fs *files) finishedArray(out *output, f *os.File, size int64, found func(Found)) error {
	s := fs.spots[out.entries[0]]
	a, err := npy.Open(f, size)
	if err != nil {
		return checkTarget(out.path, false)
	}
	if info := a.Info(); info.DType != s.DType || !info.Shape.Equal(s.Shape) {
		return checkTarget(out.path, false)
	}
	t, err := a.Read(tensor.Heap{})
	if err != nil {
		return checkTarget(out.path, false)
	}
	defer t.Release()
	if !bytes.Equal(digestOf(fs.pl.newHash(), t), s.Digest) {
		return checkTarget(out.path, false)
	}
	s.have, s.done = ranges{{0, s.Bytes}}, true
	if n := fs.found(s); found != nil && n > 0 {
		found(Found{Path: out.path, Bytes: n})
	}
	return nil
}
