package checkpoint

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"

	"github.com/cespare/xxhash/v2"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// The digests of tensors. XXH64 finds damage on the way at the speed of memory,
// but whoever wants to can make another content with the same digest. SHA-256
// withstands that, and is slower than the transfer.
const (
	XXH64  = "xxh64"
	SHA256 = "sha256"
)

// newHash returns what computes digests of the named kind.
func newHash(algorithm string) (func() hash.Hash, error) {
	switch algorithm {
	case XXH64:
		return func() hash.Hash { return xxhash.New() }, nil
	case SHA256:
		return sha256.New, nil
	}
	return nil, status.Errorf(status.InvalidArgument, "unknown digest %s; known are %q and %q", quote(algorithm), XXH64, SHA256)
}

// digestOf returns the digest of a tensor's content: its elements in row-major
// order, little-endian. Elements that are not plain memory count with their
// length before them, as 8 bytes, little-endian.
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

// formatDigest writes a digest as people compare it: "xxh64:53f0…".
func formatDigest(algorithm string, sum []byte) string {
	return algorithm + ":" + hex.EncodeToString(sum)
}
