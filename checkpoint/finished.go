package checkpoint

import (
	"bytes"
	"context"
	"io"
	"os"
	"runtime"

	"golang.org/x/sync/errgroup"
)

// A pull that was killed while its files got their names, one after the other, leaves some that are
// finished. The same pull recognises them by their digests. It replaces nothing, so it needs no Force.

// split returns the outputs to write, and those whose files exist and may be finished already. If
// all exist, or a file that exists cannot be one of them, the error is that of checkTarget.
func (to *files) split(outputs []*output, o SaveOptions) (write, exist []*output, err error) {
	for _, out := range outputs {
		taken := checkTarget(out.path, o.Force)
		switch {
		case taken == nil:
			write = append(write, out)
			continue
		case err == nil:
			err = taken
		}
		stat, failed := os.Lstat(out.path)
		if o.Force || to.pl.newHash == nil || failed != nil || !stat.Mode().IsRegular() || stat.Size() != out.size || !out.resumable() && len(out.entries) > 0 {
			return nil, nil, taken
		}
		exist = append(exist, out)
	}
	if len(write) == 0 && len(exist) > 0 {
		return nil, nil, err
	}
	return write, exist, nil
}

// finished checks that a file that exists has the content of an output. Otherwise it returns the error
// of checkTarget.
func (to *files) finished(ctx context.Context, out *output, count *counter, found func(Found)) error {
	f, _, err := openFile(out.path)
	if err != nil {
		return wrap(out.path, err)
	}
	defer f.Close()
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
		s := to.spots[i]
		g.Go(func() error {
			h := to.pl.newHash()
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
		return to.pl.explain(ctx, err)
	}
	r := Found{Path: out.path}
	for _, i := range out.entries {
		r.Bytes += to.found(to.spots[i])
	}
	if found != nil && r.Bytes > 0 {
		found(r)
	}
	return nil
}
