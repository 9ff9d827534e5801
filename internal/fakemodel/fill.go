package fakemodel

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"

	"github.com/tryst-rdma/tryst/tensor"
)

// The content of a generated tensor depends only on the seed, the tensor's name and the offset,
// so it can be made in any order and by any number of goroutines. Word n of a tensor (8 bytes,
// little-endian) is element n of the sequence SplitMix64 (Steele, Lea, Flood: "Fast splittable
// pseudorandom number generators", 2014).

// splitMixGamma is the step of SplitMix64's counter.
const splitMixGamma = 0x9E3779B97F4A7C15

func splitMix64(state uint64) uint64 {
	z := (state ^ state>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}

// filler generates the content of one tensor.
type filler struct {
	state     uint64 // before the first word
	keep, set uint64 // masks of the random bits, and of the bits that are always 1
}

func newFiller(seed uint64, name string, dtype tensor.DType) filler {
	h := xxhash.NewWithSeed(seed)
	_, _ = h.WriteString(name) // a hash's Write never fails
	keep, set := elementBits(dtype)
	return filler{state: h.Sum64(), keep: keep, set: set}
}

// elementBits returns the masks keep and set of a filler. Each element is valid: floats are
// finite and, like weights, have either sign and an absolute value between 2⁻⁷ and 2⁻³ (8-bit
// floats: below 2).
func elementBits(dtype tensor.DType) (keep, set uint64) {
	const each16, each8 = 0x0001000100010001, 0x0101010101010101
	switch dtype {
	case tensor.Float64, tensor.Complex128:
		return 0x803FFFFFFFFFFFFF, 0x3F80000000000000
	case tensor.Float32, tensor.Complex64:
		return 0x81FFFFFF81FFFFFF, 0x3C0000003C000000
	case tensor.BFloat16:
		return 0x81FF * each16, 0x3C00 * each16
	case tensor.Float16:
		return 0x8FFF * each16, 0x2000 * each16
	case tensor.Float8E5M2, tensor.Float8E4M3FN, tensor.Float8E4M3FNUZ, tensor.Float8E5M2FNUZ, tensor.Float8E4M3B11:
		// With the exponent's highest bit 0 no element is infinite or NaN. With the next
		// bit 1 no element is minus zero, which is NaN in some types.
		return 0xBF * each8, 0x20 * each8
	case tensor.Bool:
		return 0x01 * each8, 0
	}
	return ^uint64(0), 0
}

// fill writes the content at offset, a multiple of 8, into b.
func (f filler) fill(b []byte, offset int64) {
	state := f.state + uint64(offset/8)*splitMixGamma
	for ; len(b) >= 8; b = b[8:] {
		state += splitMixGamma
		binary.LittleEndian.PutUint64(b, splitMix64(state)&f.keep|f.set)
	}
	if len(b) > 0 {
		var last [8]byte
		binary.LittleEndian.PutUint64(last[:], splitMix64(state+splitMixGamma)&f.keep|f.set)
		copy(b, last[:])
	}
}
