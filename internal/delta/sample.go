package delta

import (
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
)

// Sample is what some spots of a tensor tell about two versions of it.
type Sample struct {
	unit     int
	length   int64   // of the tensor, in bytes
	elements int     // that were read
	changed  int     // of these
	all      uint64  // their XORed values, ORed
	entropy  float64 // of the byte planes of the XOR, in bits for an element
}

// Look samples two versions of a tensor, which have the same length. It reads 1/1024 of them, at least
// 4 KiB and at most 32 KiB.
func Look(old, new []byte, unit int) Sample {
	s := Sample{unit: unit, length: int64(len(new))}
	spots := min(max(len(new)/sampleShare, minSample), maxSample) / spotBytes
	stride := max(len(new)/spots&^7, spotBytes)
	var counts [8][256]uint32
	for i := 0; i+8 <= len(new); i += stride {
		end := min(i+spotBytes, len(new)&^7)
		s.spot(old[i:end], new[i:end], &counts)
	}
	for _, plane := range counts[:unit] {
		s.entropy += entropy(&plane, s.elements)
	}
	return s
}

// spot adds a spot, whose length is a multiple of 8.
func (s *Sample) spot(old, new []byte, counts *[8][256]uint32) {
	s.elements += len(new) / s.unit
	width := uint(8 * s.unit)
	mask := ^uint64(0) >> (64 - width)
	for i := 0; i < len(new); i += 8 {
		x := binary.LittleEndian.Uint64(old[i:]) ^ binary.LittleEndian.Uint64(new[i:])
		if x == 0 {
			for j := range s.unit {
				counts[j][0] += uint32(8 / s.unit)
			}
			continue
		}
		for j := range 8 {
			counts[j&(s.unit-1)][byte(x>>(8*j))]++
		}
		for ; x != 0; x = x >> (width - 1) >> 1 { // a shift by 64 at once costs a test
			if v := x & mask; v != 0 {
				s.changed++
				s.all |= v
			}
		}
	}
}

// entropy estimates the bits that a byte of a plane takes: Shannon's formula over the counts, with
// the correction of Miller and Madow, since a small sample looks less random than it is.
func entropy(counts *[256]uint32, total int) float64 {
	sum, seen := 0.0, 0
	for _, c := range counts {
		if c > 0 {
			p := float64(c) / float64(total)
			sum -= p * math.Log2(p)
			seen++
		}
	}
	if seen == 0 {
		return 0
	}
	return min(sum+float64(seen-1)/(2*float64(total)*math.Ln2), 8)
}

// Summary estimates the delta that Encode would make.
func (s Sample) Summary() Summary {
	d := Summary{Method: Nothing, Length: s.length}
	if s.changed == 0 {
		return d
	}
	p := float64(s.changed) / float64(s.elements)
	elements := float64(s.length) / float64(s.unit)
	if p > 1.0/maxDense {
		d.Method, d.Dense, d.Bytes = XOR, s.length, int64(s.entropy*elements/8)
		return d
	}
	width := bits.Len64(s.all) - bits.TrailingZeros64(s.all)
	bitsEach := -p*math.Log2(p) - (1-p)*math.Log2(1-p) + p*float64(width)
	d.Method, d.Changes, d.Bytes = Sparse, int64(p*elements), int64(min(bitsEach, s.entropy)*elements/8)
	return d
}

// Choose returns the method by which the next version is there first, over a route of rate bytes a
// second, if the delta is made for one receiver alone.
func (s Sample) Choose(rate float64) Method {
	d := s.Summary()
	if d.Bytes > gains(d.Length) || Choose(rate, d.Whole(), d.Encode().Add(d.Apply(false))) == 0 && d.Length > 0 {
		return Whole
	}
	return d.Method
}

// Pays reports whether a delta of n bytes of a tensor could be there before the whole if it had no
// change. Over the fastest routes it cannot, and nothing need be read to know.
func Pays(n int64, rate float64) bool {
	none := Summary{Length: n}
	return n == 0 || Choose(rate, none.Whole(), none.Encode().Add(none.Apply(false))) == 1
}

// gains is the length up to which a delta, or a part of it, gains enough to be used in place of n
// bytes.
func gains(n int64) int64 { return n - n/worthwhile }

// compresses reports whether zstd may gain enough on byte planes. It looks at a share of them.
func compresses(planes []byte, unit int) bool {
	sum := 0.0
	for plane := range slices.Chunk(planes, len(planes)/unit) {
		var counts [256]uint32
		total := 0
		for i := 0; i < len(plane); i += blockSample {
			spot := plane[i:min(i+blockSpot, len(plane))]
			for _, b := range spot {
				counts[b]++
			}
			total += len(spot)
		}
		sum += entropy(&counts, total)
	}
	return sum < float64(gains(int64(8000*unit)))/1000
}
