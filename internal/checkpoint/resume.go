package checkpoint

import (
	"bytes"
	"cmp"
	"context"
	"runtime"
	"slices"

	"github.com/cespare/xxhash/v2"
	"golang.org/x/sync/errgroup"
)

// What an earlier pull has written is read before it is used. A tensor that is whole and has its
// digest is not requested again. Of any other tensor the parts stay whose content is that of the
// journal; the digest is checked when the rest has come.

// resume verifies what the journal of an output claims, ascending, and reports what was found.
func (fs *files) resume(ctx context.Context, out *output, claims []claim, anew error, count *counter, found func(Found)) error {
	f := Found{Path: out.path + partExt, Err: anew}
	if len(claims) > 0 {
		g, failed := errgroup.WithContext(ctx)
		g.SetLimit(runtime.GOMAXPROCS(0))
		for _, i := range out.entries {
			s := fs.spots[i]
			mine := s.claimed(claims)
			if len(mine) == 0 {
				continue
			}
			g.Go(func() error {
				if failed.Err() != nil {
					return context.Cause(failed)
				}
				return fs.verify(failed, s, mine, count)
			})
		}
		if err := g.Wait(); err != nil {
			return fs.pl.explain(ctx, err)
		}
		for _, i := range out.entries {
			f.Bytes += fs.found(fs.spots[i])
		}
	}
	if found != nil && (f.Bytes > 0 || f.Err != nil) {
		found(f)
	}
	if fs.pl.req.Progress != nil && f.Bytes > 0 {
		fs.pl.req.Progress(fs.pl.progress) // nothing is under way yet
	}
	return nil
}

// claimed returns the claims that lie in the tensor, relative to its content.
func (s *spot) claimed(claims []claim) (mine []claim) {
	first, _ := slices.BinarySearchFunc(claims, s.off, func(c claim, off int64) int { return cmp.Compare(c.off, off) })
	for _, c := range claims[first:] {
		if c.off >= s.off+s.Bytes {
			break
		}
		if c.off -= s.off; c.end() <= s.Bytes {
			mine = append(mine, c)
		}
	}
	return mine
}

// verify reads what was written of a tensor and marks what is right. It ends with ctx, also in the
// middle.
func (fs *files) verify(ctx context.Context, s *spot, claims []claim, count *counter) error {
	counted := func(n int64) error {
		count.add(n)
		return context.Cause(ctx)
	}
	all := rangesOf(claims)
	whole := all.covers(piece{0, s.Bytes})
	if whole && fs.pl.newHash != nil {
		h := fs.pl.newHash()
		if err := s.readEach(h, piece{0, s.Bytes}, counted); err != nil {
			return err
		}
		if bytes.Equal(h.Sum(nil), s.Digest) {
			s.have, s.done = all, true
			return nil
		}
		counted = func(int64) error { return context.Cause(ctx) } // each byte counts once
	}
	var good ranges
	for _, c := range claims {
		h := xxhash.New()
		if err := s.readEach(h, c.piece, counted); err != nil {
			return err
		}
		if h.Sum64() == c.sum {
			good = good.add(c.piece)
		}
	}
	if good.covers(piece{0, s.Bytes}) {
		if fs.pl.newHash != nil {
			return nil // each part is what was written, and yet the digest is wrong: nothing can be used
		}
		s.done = true
	}
	s.have = good
	return nil
}

// rangesOf returns what is claimed.
func rangesOf(claims []claim) (all ranges) {
	for _, c := range claims {
		all = all.add(c.piece)
	}
	return all
}

// found counts what was found of a tensor. It returns its bytes.
func (fs *files) found(s *spot) int64 {
	n := s.have.size()
	if n == 0 && !s.done {
		return 0
	}
	s.earlier = n // nothing is under way yet
	pl := fs.pl
	pl.mu.Lock()
	defer pl.mu.Unlock()
	pl.resumed += n
	pl.progress.Tensor, pl.progress.Bytes = s.Name, pl.progress.Bytes+n
	if s.done {
		pl.progress.Tensors++
		pl.whole += s.Bytes
	}
	return n
}
