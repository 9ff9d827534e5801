package delta

import (
	"bytes"
	"errors"
	"hash"
	"slices"

	"github.com/klauspost/compress/zstd"

	"github.com/tryst-rdma/tryst/status"
)

// Target is the tensor that a delta is applied to.
type Target struct {
	// Dst gets the new version, and Base has the old one. They are the same memory, or do not overlap,
	// and have the same length. While a delta is applied, and after an error, Dst is undefined.
	Dst, Base []byte

	// BaseDigest and Digest are those of the old and the new version, as the receiver knows them. A
	// delta from or to other ones is refused before anything is written.
	BaseDigest, Digest []byte

	// Hash computes Digest of Dst's content. With nil it is not checked, as between the deltas of a
	// chain.
	Hash hash.Hash
}

// Applier applies deltas, one after the other, each as its bytes come. Whatever these are, it writes
// to Dst alone, and holds about 1 MiB. It is not safe for concurrent use.
type Applier struct {
	zstd *zstd.Decoder

	target  Target
	inPlace bool
	unit    int    // 0 before the header
	done    int    // bytes of Dst that are right
	pending []byte // of what is not whole yet: the header, or a block
	want    int    // how long pending must be before it is tried again
	err     error  // the first one

	planes []byte // scratch
	sparse sparse
	batch  batch
}

// NewApplier returns an Applier.
func NewApplier() (*Applier, error) {
	z, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecodeAllCapLimit(true),
		zstd.WithDecoderMaxMemory(blockBytes), zstd.WithDecoderMaxWindow(blockBytes))
	if err != nil {
		return nil, status.Errorf(status.Internal, "delta: zstd: %w", err)
	}
	return &Applier{zstd: z, err: status.Errorf(status.FailedPrecondition, "delta: no target")}, nil
}

// Apply applies a delta that is there as a whole.
func (a *Applier) Apply(t Target, delta []byte) error {
	a.Reset(t)
	if _, err := a.Write(delta); err != nil {
		return err
	}
	return a.Close()
}

// Reset begins a delta. The Applier keeps the target until the next one.
func (a *Applier) Reset(t Target) {
	a.target, a.unit, a.done, a.pending, a.want, a.err = t, 0, 0, a.pending[:0], 0, nil
	a.inPlace = len(t.Dst) > 0 && len(t.Base) > 0 && &t.Dst[0] == &t.Base[0]
	if len(t.Dst) != len(t.Base) {
		a.err = status.Errorf(status.FailedPrecondition, "delta: the base has %d bytes, the tensor %d", len(t.Base), len(t.Dst))
	}
	if t.Hash != nil {
		t.Hash.Reset()
	}
}

// Write applies the next bytes of the delta, which it does not keep. After an error it returns the
// same one.
func (a *Applier) Write(p []byte) (int, error) {
	for at := 0; at < len(p); {
		n, err := a.feed(p[at:])
		if err != nil {
			a.err = err
			return at, err
		}
		at += n
	}
	return len(p), a.err
}

// feed takes some of p, at least a byte: a header or a block straight from there if nothing is
// pending.
func (a *Applier) feed(p []byte) (int, error) {
	if a.err != nil {
		return 0, a.err
	}
	if len(a.pending) == 0 {
		if n, want, err := a.next(p); n > 0 || err != nil {
			return n, err
		} else {
			a.want = want
		}
	}
	n := min(len(p), a.want-len(a.pending))
	a.pending = append(a.pending, p[:n]...)
	if len(a.pending) < a.want {
		return n, nil
	}
	used, want, err := a.next(a.pending)
	a.want = want
	if used > 0 {
		a.pending = a.pending[:0]
	}
	return n, err
}

// next handles the header or the block at the beginning of b, and returns its length: or 0, and the
// length that b must have before it is tried again, which is not beyond its end.
func (a *Applier) next(b []byte) (used, want int, err error) {
	if a.unit == 0 {
		used, err = a.begin(b)
	} else {
		used, want, err = a.block(b)
	}
	if errors.Is(err, errShort) {
		return 0, max(want, len(b)+1), nil
	}
	return used, 0, err
}

// begin handles the header.
func (a *Applier) begin(b []byte) (int, error) {
	h, n, err := parseHeader(b)
	if err == nil {
		err = h.check(&a.target)
	}
	if err != nil {
		return 0, err
	}
	a.unit = h.unit
	return n, nil
}

// block handles a block. With errShort, want is how long it is, as far as that is known.
func (a *Applier) block(b []byte) (used, want int, err error) {
	left := len(a.target.Dst) - a.done
	if left == 0 {
		return 0, 0, damaged("bytes follow its last block")
	}
	length := min(left, blockBytes)
	switch kind := b[0]; kind {
	case blockRaw:
		if len(b) < 1+length {
			return 0, 1 + length, errShort
		}
		copy(a.target.Dst[a.done:], b[1:1+length])
		a.finish(length)
		return 1 + length, 0, nil
	case blockEqual:
		n, at, err := parseUvarint(b, 1)
		if err == nil {
			err = a.equal(n)
		}
		return at, 0, err
	case blockSparse, blockXOR:
		n, at, err := parseUvarint(b, 1)
		if err != nil {
			return 0, 0, err
		}
		if n > uint64(length) {
			return 0, 0, damaged("a block has %d bytes for %d of the tensor", n, length)
		}
		if want = at + int(n); len(b) < want {
			return 0, want, errShort
		}
		return want, 0, a.changed(kind, b[at:want], length)
	default:
		return 0, 0, damaged("it has a block of kind %d", kind)
	}
}

// equal handles n blocks that are as in the base.
func (a *Applier) equal(n uint64) error {
	left := len(a.target.Dst) - a.done
	if n == 0 || n > uint64(blocks(left)) {
		return damaged("%d blocks are equal, of %d", n, blocks(left))
	}
	for range n {
		length := min(len(a.target.Dst)-a.done, blockBytes)
		a.keep(length)
		a.finish(length)
	}
	return nil
}

// keep makes the next bytes those of the base.
func (a *Applier) keep(length int) {
	if !a.inPlace {
		copy(a.target.Dst[a.done:a.done+length], a.target.Base[a.done:])
	}
}

// changed handles a block that is sparse or XORed.
func (a *Applier) changed(kind byte, payload []byte, length int) error {
	dst := a.target.Dst[a.done : a.done+length]
	if kind == blockXOR {
		planes, err := a.expand(payload, length)
		if err != nil {
			return err
		}
		applyPlanes(dst, a.target.Base[a.done:a.done+length], planes, a.unit)
		a.finish(length)
		return nil
	}
	s, err := a.parseSparse(payload, length/a.unit)
	if err != nil {
		return err
	}
	a.keep(length)
	if err := s.apply(dst, a.unit, &a.batch); err != nil {
		return err
	}
	a.finish(length)
	return nil
}

// finish adds the next bytes, which are right now.
func (a *Applier) finish(length int) {
	if a.target.Hash != nil {
		_, _ = a.target.Hash.Write(a.target.Dst[a.done : a.done+length]) // a hash's Write never fails
	}
	a.done += length
}

// expand returns what zstd compressed into b, which must be n bytes, until the next call.
func (a *Applier) expand(b []byte, n int) ([]byte, error) {
	a.planes = slices.Grow(a.planes[:0], n)
	out, err := a.zstd.DecodeAll(b, a.planes[:0:n])
	if err != nil {
		return nil, damaged("a block is no zstd frame of %d bytes: %w", n, err)
	}
	if len(out) != n {
		return nil, damaged("a block expands to %d bytes, not %d", len(out), n)
	}
	return out, nil
}

// Close ends the delta. It returns an error if it is cut, or if the digest of Dst is not that of the
// new version.
func (a *Applier) Close() error {
	if a.err != nil {
		return a.err
	}
	if a.unit == 0 || len(a.pending) > 0 || a.done < len(a.target.Dst) {
		a.err = damaged("it is cut: it has %d of %d bytes of the tensor", a.done, len(a.target.Dst))
		return a.err
	}
	if h := a.target.Hash; h != nil {
		if got := h.Sum(nil); !bytes.Equal(got, a.target.Digest) {
			a.err = damaged("the tensor has the digest %x after it, not %x", got, a.target.Digest)
		}
	}
	return a.err
}
