package delta

import (
	"encoding/binary"
	"math/bits"
)

// A sparse block has the elements that changed: their number, how the rest is coded, their XORed
// values, and the gaps before them (PROTOCOL.md section 13.2).

// coding is how the gaps and values of a sparse block are coded.
type coding struct {
	k      uint // low bits of a gap
	shift  uint // low bits of a value that are 0 in all
	width  uint // bits of a value above these, as far as they are 1 in any
	zipped bool // the values are byte planes, compressed with zstd
}

// zippedFlag marks zipped values in the byte that has k.
const zippedFlag = 0x80

// codingOf returns the coding of c with the fewest bits, without zstd.
func codingOf(c *changes) coding {
	shift := uint(bits.TrailingZeros64(c.all))
	return coding{k: gapParameter(c.gaps), shift: shift, width: uint(bits.Len64(c.all)) - shift}
}

// valueBytes is the length of a value in a plane of bytes.
func (g coding) valueBytes() int { return int(g.width+7) / 8 }

// packedBytes is the length of n packed values.
func (g coding) packedBytes(n int) int { return (n*int(g.width) + 7) / 8 }

// appendSparse appends the sparse block of the changes, of which there is at least one.
func (e *Encoder) appendSparse(out []byte, c *changes) []byte {
	g := codingOf(c)
	zipped := e.zipValues(c, g)
	g.zipped = zipped != nil
	out = binary.AppendUvarint(out, uint64(len(c.gaps)))
	first := byte(g.k)
	if g.zipped {
		first |= zippedFlag
	}
	out = append(out, first, byte(g.shift), byte(g.width))
	if g.zipped {
		out = append(binary.AppendUvarint(out, uint64(len(zipped))), zipped...)
	} else {
		out = appendPacked(out, c.values, g)
	}
	w := bitWriter{out: out}
	for _, gap := range c.gaps {
		w.writeGap(gap, g.k)
	}
	return w.close()
}

// appendPacked appends the values, each with its bits that differ from 0 in any.
func appendPacked(out []byte, values []uint64, g coding) []byte {
	w := bitWriter{out: out}
	if g.width > 56 {
		for _, v := range values {
			w.writeLong(v>>g.shift, g.width)
		}
		return w.close()
	}
	for _, v := range values {
		w.write(v>>g.shift, g.width)
	}
	return w.close()
}

// zipValues returns the planes of the values compressed with zstd, until the next call, or nil if
// that gains too little.
func (e *Encoder) zipValues(c *changes, g coding) []byte {
	packed := g.packedBytes(len(c.values))
	if packed < minValues {
		return nil
	}
	e.planes = valuePlanes(e.planes[:0], c.values, g.shift, g.valueBytes())
	e.zipped = e.zstd.EncodeAll(e.planes, e.zipped[:0])
	if len(e.zipped) > packed-packed/worthwhile {
		return nil
	}
	return e.zipped
}

// sparse is a sparse block that is applied.
type sparse struct {
	coding
	count  int
	values []byte    // planes, or
	packed bitReader // packed bits
	gaps   bitReader
}

// parseSparse reads a sparse block for elements elements of unit bytes.
func (a *Applier) parseSparse(b []byte, elements int) (*sparse, error) {
	count, at, err := parseUvarint(b, 0)
	if err != nil || len(b) < at+3 {
		return nil, damaged("a sparse block is cut")
	}
	s := &a.sparse
	*s = sparse{coding: coding{k: uint(b[at] &^ zippedFlag), shift: uint(b[at+1]), width: uint(b[at+2]), zipped: b[at]&zippedFlag != 0}}
	if s.k >= gapBits || s.width == 0 || s.shift+s.width > uint(8*a.unit) {
		return nil, damaged("a sparse block has gaps of %d bits, and values of %d bits above %d", s.k, s.width, s.shift)
	}
	if count == 0 || count > uint64(elements) {
		return nil, damaged("a sparse block changes %d of %d elements", count, elements)
	}
	s.count = int(count)
	b = b[at+3:]
	if s.zipped {
		b, err = a.unzipValues(b, s)
	} else {
		b, err = s.unpackValues(b)
	}
	s.gaps = bitReader{in: b}
	return s, err
}

// unpackValues finds the packed values at the beginning of b, and returns what follows them.
func (s *sparse) unpackValues(b []byte) ([]byte, error) {
	n := s.packedBytes(s.count)
	if n > len(b) {
		return nil, damaged("a sparse block is cut in its values")
	}
	s.packed = bitReader{in: b[:n]}
	return b[n:], nil
}

// unzipValues expands the values at the beginning of b, and returns what follows them.
func (a *Applier) unzipValues(b []byte, s *sparse) ([]byte, error) {
	n, at, err := parseUvarint(b, 0)
	if err != nil || n > uint64(len(b)-at) {
		return nil, damaged("a sparse block is cut in its values")
	}
	s.values, err = a.expand(b[at:at+int(n)], s.count*s.valueBytes())
	return b[at+int(n):], err
}

// value is a batch of positions and values, between reading and applying them.
type batch struct {
	positions [256]uint32
	values    [256]uint64
}

// apply changes the elements of dst, which is the base so far.
func (s *sparse) apply(dst []byte, unit int, buf *batch) error {
	elements, next := len(dst)/unit, 0
	for done := 0; done < s.count; {
		n := min(s.count-done, len(buf.positions))
		for i := range n {
			at := next + int(s.gaps.readGap(s.k))
			if at >= elements {
				return damaged("a sparse block changes element %d of %d", at, elements)
			}
			buf.positions[i], next = uint32(at), at+1
		}
		s.read(buf.values[:n], done)
		xorAt(dst, unit, buf.positions[:n], buf.values[:n])
		done += n
	}
	if !s.gaps.ended() || !s.zipped && !s.packed.ended() {
		return damaged("a sparse block of %d changes has other bytes than they take", s.count)
	}
	return nil
}

// read reads the values from the given one.
func (s *sparse) read(values []uint64, from int) {
	switch {
	case s.zipped:
		clear(values)
		for j := range s.valueBytes() {
			plane := s.values[j*s.count+from:]
			for i := range values {
				values[i] |= uint64(plane[i]) << (8 * j) << s.shift
			}
		}
	case s.width > 56:
		for i := range values {
			values[i] = s.packed.readLong(s.width) << s.shift
		}
	default:
		mask := uint64(1)<<s.width - 1
		for i := range values {
			values[i] = s.packed.peek() & mask << s.shift
			s.packed.at += s.width
		}
	}
}
