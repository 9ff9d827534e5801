package transporttest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"

	"github.com/tryst-rdma/tryst/tensor"
)

// number returns a tensor that holds the number i. The caller must release it.
func (w *world) number(i int) *tensor.Tensor {
	w.Helper()
	x, err := tensor.Allocate(w.source, tensor.Int64, tensor.Shape{})
	if err != nil {
		w.Fatal(err)
	}
	binary.LittleEndian.PutUint64(x.Bytes(), uint64(i))
	return x
}

// numberOf returns the number that a tensor holds, or the reason why it holds none.
func numberOf(x *tensor.Tensor) (n int, why string) {
	if x.DType() != tensor.Int64 || x.Shape().Rank() != 0 {
		return 0, fmt.Sprintf("it brought %v, no number", x)
	}
	return int(binary.LittleEndian.Uint64(x.Bytes())), ""
}

// A blob is content that can be checked without a copy of it. Each page is the same page of
// noise, with a stamp of the blob's seed and the page number at its start. So a page that is
// missing, repeated, misplaced or of another blob is detected. Blobs are fast to make and
// check, also under the race detector.
const pageSize = 4096

var noise = func() (page [pageSize]byte) {
	rng := rand.New(rand.NewPCG(1, 2))
	for i := 0; i < pageSize; i += 8 {
		binary.LittleEndian.PutUint64(page[i:], rng.Uint64())
	}
	return page
}()

// stamp returns the first bytes of the page with the given number.
func stamp(seed uint64, page int) (s [8]byte) {
	binary.LittleEndian.PutUint64(s[:], mix(seed)+uint64(page))
	return s
}

// mix spreads the seeds, so that blobs of neighbouring seeds share no page.
func mix(seed uint64) uint64 { return (seed + 1) * 0x9e3779b97f4a7c15 }

// blob returns the blob of a seed, a vector of size bytes. The caller must release it.
func (w *world) blob(seed uint64, size int) *tensor.Tensor {
	w.Helper()
	x, err := tensor.Allocate(w.source, tensor.Uint8, tensor.Vector(size))
	if err != nil {
		w.Fatal(err)
	}
	data := x.Bytes()
	for i := 0; len(data) > 0; i++ {
		n := copy(data, noise[:])
		s := stamp(seed, i)
		copy(data[:n], s[:])
		data = data[n:]
	}
	return x
}

// checkBlob returns how a tensor differs from the blob; "" if it is equal.
func checkBlob(x *tensor.Tensor, seed uint64, size int) string {
	if x.DType() != tensor.Uint8 || x.Shape().Rank() != 1 || x.Size() != int64(size) {
		return fmt.Sprintf("it brought %v, want %d bytes", x, size)
	}
	data := x.Bytes()
	for i := 0; len(data) > 0; i++ {
		n := min(len(data), pageSize)
		s := stamp(seed, i)
		k := min(n, len(s))
		if !bytes.Equal(data[:k], s[:k]) || !bytes.Equal(data[k:n], noise[k:n]) {
			return fmt.Sprintf("the page at byte %d of %d is wrong: it begins with %x, want %x",
				i*pageSize, size, data[:k], s[:k])
		}
		data = data[n:]
	}
	return ""
}
