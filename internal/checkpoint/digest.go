package checkpoint

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash"
	"io"

	"github.com/cespare/xxhash/v2"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// The digests of tensors. XXH64 detects damage in transfer at the speed of memory, but it is
// easy to forge content with the same digest. SHA-256 prevents that, but is slower than the
// transfer.
const (
	XXH64  = "xxh64"
	SHA256 = "sha256"
)

// newHash returns the hash of the named algorithm.
func newHash(algorithm string) (func() hash.Hash, error) {
	switch algorithm {
	case XXH64:
		return func() hash.Hash { return xxhash.New() }, nil
	case SHA256:
		return sha256.New, nil
	}
	return nil, status.Errorf(status.InvalidArgument, "unknown digest %s; known are %q and %q", quote(algorithm), XXH64, SHA256)
}

// hashRange writes a range of a file to h, in pieces of the length of buf. It calls each, if not nil,
// after every piece, and ends with its error.
func hashRange(h hash.Hash, r io.ReaderAt, p piece, buf []byte, each func(n int64) error) error {
	for off := p.off; off < p.end(); {
		chunk := buf[:min(p.end()-off, int64(len(buf)))]
		if n, err := r.ReadAt(chunk, off); n < len(chunk) {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
		_, _ = h.Write(chunk) // a hash's Write never fails
		off += int64(len(chunk))
		if each != nil {
			if err := each(int64(len(chunk))); err != nil {
				return err
			}
		}
	}
	return nil
}

// digestOf returns the digest of a tensor's content: its elements in row-major order,
// little-endian. Elements that are not plain memory are preceded by their length as 8 bytes,
// little-endian.
func digestOf(h hash.Hash, t *tensor.Tensor) []byte {
	if t.DType().Plain() {
		_, _ = h.Write(t.Bytes()) // a hash's Write never fails
	}
	for _, e := range t.Elements() {
		_, _ = h.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(e))))
		_, _ = h.Write([]byte(e))
	}
	return h.Sum(nil)
}

// formatDigest formats a digest for people: "xxh64:53f0…".
func formatDigest(algorithm string, sum []byte) string {
	return algorithm + ":" + hex.EncodeToString(sum)
}
