package bench

import (
	"encoding/binary"
	"math"
	"math/rand/v2"

	"github.com/tryst-rdma/tryst/status"
)

// The ways in which elements change.
const (
	changeLow      = "low"      // one or both of the lowest two bits
	changeMantissa = "mantissa" // one of the seven bits of the mantissa
	changeRandom   = "random"   // any of the 16 bits
)

// changeBits are the bits of bfloat16 that change, by the way.
var changeBits = map[string]func(*rand.Rand) uint16{
	changeLow:      func(r *rand.Rand) uint16 { return uint16(1 + r.UintN(3)) },     //nolint:gosec // below 4
	changeMantissa: func(r *rand.Rand) uint16 { return 1 << r.UintN(7) },            //
	changeRandom:   func(r *rand.Rand) uint16 { return uint16(1 + r.UintN(65535)) }, //nolint:gosec // below 65536
}

// change is how the elements of a version differ from those of the version before.
type change struct {
	Share float64 `json:"share"` // of the elements, spread evenly
	How   string  `json:"how"`
}

// apply changes a tensor of bfloat16. The seed is another one for each tensor.
func (c change) apply(b []byte, seed uint64) error {
	bits := changeBits[c.How]
	if bits == nil || !(c.Share >= 0 && c.Share <= 1) {
		return status.Errorf(status.InvalidArgument, "a share of %v that changes by %q", c.Share, c.How)
	}
	if c.Share == 0 {
		return nil
	}
	r := rand.New(rand.NewPCG(seed, math.Float64bits(c.Share))) //nolint:gosec // reproducible
	if c.Share == 1 && c.How == changeRandom {                  // quickly; one of 65536 stays
		for ; len(b) >= 8; b = b[8:] {
			binary.LittleEndian.PutUint64(b, binary.LittleEndian.Uint64(b)^r.Uint64())
		}
	}
	for at := c.gap(r); at < len(b)/2; at += 1 + c.gap(r) {
		element := b[2*at:]
		binary.LittleEndian.PutUint16(element, binary.LittleEndian.Uint16(element)^bits(r))
	}
	return nil
}

// gap is how many elements stay before the next one that changes: geometric, as if each element changed with
// the probability Share.
func (c change) gap(r *rand.Rand) int {
	if c.Share == 1 {
		return 0
	}
	return int(math.Log(1-r.Float64()) / math.Log1p(-c.Share))
}

// fillWeights fills a tensor of bfloat16 with what weights look like: normal, with a deviation of 0.02.
func fillWeights(b []byte, seed uint64) {
	r := rand.New(rand.NewPCG(seed, weightsSeed)) //nolint:gosec // reproducible
	var values [1 << 12]uint16
	for i := range values {
		values[i] = uint16(math.Float32bits(float32(0.02*r.NormFloat64())) >> 16)
	}
	for i := 0; i+2 <= len(b); i += 2 {
		binary.LittleEndian.PutUint16(b[i:], values[r.Uint64()%uint64(len(values))])
	}
}
