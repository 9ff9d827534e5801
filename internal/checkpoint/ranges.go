package checkpoint

import (
	"cmp"
	"slices"
)

// ranges is a set of bytes of a file or a tensor: disjoint pieces that do not touch, ascending.
type ranges []piece

// add returns the set with p.
func (r ranges) add(p piece) ranges {
	// The first piece that ends at p or behind its beginning, and the first one behind p.
	first, _ := slices.BinarySearchFunc(r, p.off, func(x piece, off int64) int { return cmp.Compare(x.end(), off) })
	last := first
	for last < len(r) && r[last].off <= p.end() {
		end := max(p.end(), r[last].end())
		p.off = min(p.off, r[last].off)
		p.n = end - p.off
		last++
	}
	return slices.Replace(r, first, last, p)
}

// covers reports whether all bytes of p are in the set.
func (r ranges) covers(p piece) bool {
	at, _ := slices.BinarySearchFunc(r, p.off, func(x piece, off int64) int { return cmp.Compare(x.end(), off+1) })
	return p.n == 0 || at < len(r) && r[at].off <= p.off && p.end() <= r[at].end()
}

// from returns the end of the piece that has byte off, or off if it is not in the set.
func (r ranges) from(off int64) int64 {
	at, _ := slices.BinarySearchFunc(r, off, func(x piece, off int64) int { return cmp.Compare(x.end(), off+1) })
	if at < len(r) && r[at].off <= off {
		return r[at].end()
	}
	return off
}

// size returns the number of bytes in the set.
func (r ranges) size() (n int64) {
	for _, p := range r {
		n += p.n
	}
	return n
}
