package checkpoint

import (
	"bytes"
	"hash"
	"sync"
)

// assembly is what has come of one tensor, in a file or in memory. The digest is computed as far as
// the tensor has come without gaps, while other pieces are received: by the goroutine of one piece at
// a time, and without the lock.
type assembly struct {
	mu sync.Mutex
	// All below are guarded by mu.
	have    ranges    // of the content
	sum     hash.Hash // of the first summed bytes; nil if there are none. While hashing, that goroutine's.
	summed  int64     // may be more than have begins with: the last piece is about to be in its place
	hashing bool
	done    bool // whole, and checked
	damaged bool // it was whole, and did not match its digest
}

// outcome is what a part has made of its tensor.
type outcome int

const (
	incomplete outcome = iota // other pieces are missing, or not in the digest yet
	complete                  // the tensor is whole, and checked
	anew                      // it was damaged, for the first time: all of it must come again
)

// add adds a piece with content b, which is in its place already, and checks the digest if the
// tensor is whole. read writes what is in the place of a piece to a hash. The second damage of a
// tensor is DataLoss.
func (pl *pull) add(a *assembly, e *TensorInfo, p piece, b []byte, read func(hash.Hash, piece) error) (outcome, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.have = a.have.add(p)
	if pl.newHash != nil {
		if a.hashing {
			return incomplete, nil // that goroutine goes on with it
		}
		if a.sum == nil {
			a.sum = pl.newHash()
		}
		if err := a.hashLocked(p, b, read); err != nil {
			return incomplete, err
		}
	}
	if !a.have.covers(piece{0, e.Bytes}) {
		return incomplete, nil
	}
	if pl.newHash == nil || bytes.Equal(a.sum.Sum(nil), e.Digest) {
		a.done = true
		return complete, nil
	}
	if !a.damaged {
		a.damaged = true
		a.resetLocked()
		return anew, nil
	}
	return incomplete, wrap("tensor "+quote(e.Name)+" from "+pl.p.server(), e.damaged(pl.manifest.Algorithm, a.sum.Sum(nil)))
}

// ahead adds a piece with content b to the digest before it is in its place, if it is the next one and
// no other is being added. So pieces that come in order are hashed while the processor's cache has
// them, and need not be read again. add follows, when the piece is in its place.
func (pl *pull) ahead(a *assembly, p piece, b []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if pl.newHash == nil || a.hashing || p.off != a.summed {
		return
	}
	if a.sum == nil {
		a.sum = pl.newHash()
	}
	a.hashing = true
	a.mu.Unlock()
	_, _ = a.sum.Write(b) // a hash's Write never fails
	a.mu.Lock()
	a.hashing = false
	a.summed = p.end()
}

// hashLocked adds to the digest what can be added, also of pieces that come meanwhile. The piece p
// has content b.
func (a *assembly) hashLocked(p piece, b []byte, read func(hash.Hash, piece) error) (err error) {
	a.hashing = true
	for end := a.have.from(a.summed); end > a.summed && err == nil; end = a.have.from(a.summed) {
		next := piece{a.summed, end - a.summed}
		a.mu.Unlock()
		if p.off == next.off {
			_, _ = a.sum.Write(b) // a hash's Write never fails
			next = p
		} else {
			err = read(a.sum, next)
		}
		a.mu.Lock()
		a.summed = next.end()
	}
	a.hashing = false
	return err
}

// resetLocked forgets what has come.
func (a *assembly) resetLocked() { a.have, a.sum, a.summed = nil, nil, 0 }
