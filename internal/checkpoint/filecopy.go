package checkpoint

import (
	"bytes"
	"context"

	"github.com/cespare/xxhash/v2"

	"github.com/tryst-rdma/tryst/internal/delta"
)

// copies reports whether a part is a large tensor that did not change, which need not be in memory as a whole.
func (fs *files) copies(p part) bool {
	s := fs.spots[p.i]
	return p.way != nil && p.way.read != nil && len(p.way.steps) == 0 && s.journal != nil && s.Bytes > pieceBytes
}

// copy copies a tensor from the file of the version before. If that has another content meanwhile, copy reports false, and
// all of the tensor must come.
func (fs *files) copy(ctx context.Context, p part) (ok bool, err error) {
	defer fs.pl.window.Release(fs.weight(p))
	s := fs.spots[p.i]
	if ok, err = fs.copyPieces(ctx, s, p.way); err != nil {
		return false, err
	}
	if !ok {
		p.way.from.forget(s.Name)
		fs.pl.came(p.i, -s.anew(), false)
		fs.sentAgain(s)
		return false, nil
	}
	n := s.finish()
	fs.sentAgain(s)
	fs.pl.made(delta.Nothing, s.Bytes, 0)
	fs.pl.came(p.i, n, true)
	return true, nil
}

// copyPieces reports whether what it has copied has the digest of the tensor. An error is one of writing, or that of ctx.
func (fs *files) copyPieces(ctx context.Context, s *spot, w *way) (ok bool, err error) {
	newHash, err := newHash(fs.pl.manifest.Algorithm)
	if err != nil {
		return false, nil //nolint:nilerr // it comes as any other tensor
	}
	h, buf := newHash(), make([]byte, pieceBytes)
	for off := int64(0); off < s.Bytes; off += pieceBytes {
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		b := buf[:min(pieceBytes, s.Bytes-off)]
		if w.read(b, off) != nil {
			return false, nil
		}
		_, _ = h.Write(b) // a hash's Write never fails
		record := claim{piece{s.off + off, int64(len(b))}, xxhash.Sum64(b)}
		if err := s.writeAt(b, record.off); err != nil {
			return false, err
		}
		s.journal.record(record)
	}
	return bytes.Equal(h.Sum(nil), s.Digest), nil
}

// anew forgets what has come of a tensor, whose place has another content now, and returns how many bytes that was.
func (s *spot) anew() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.have.size()
	s.resetLocked()
	return n
}
