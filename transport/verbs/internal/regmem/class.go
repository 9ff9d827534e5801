package regmem

import "math/bits"

// Size classes: multiples of a granule up to 31 granules, then sixteen steps in each
// doubling, so that a block is less than 1/16 larger than requested. A free block is
// listed under the largest class that it can serve. So any block of the requested class
// or a higher one fits, and no list is searched.
const (
	exactClasses = 31
	classSteps   = 16
)

// floorClass is the largest class whose size is at most size bytes (≥ granule).
func floorClass(size int) int {
	u := uint(size) / granule
	if u <= exactClasses {
		return int(u) - 1
	}
	doubling := bits.Len(u) - 5 // 2⁵ granules: the first size with steps
	return doubling*classSteps + int(u>>doubling) - 1
}

// ceilClass is the smallest class whose size is at least n bytes (≥ 1).
func ceilClass(n int) int {
	size := (n + granule - 1) / granule * granule
	c := floorClass(size)
	if classSize(c) < size {
		c++
	}
	return c
}

// classSize is the size of class c in bytes.
func classSize(c int) int {
	if c < exactClasses {
		return (c + 1) * granule
	}
	doubling := (c + 1 - classSteps) / classSteps
	return (c + 1 - doubling*classSteps) << doubling * granule
}

// classes holds the free blocks of a pool, by size class.
type classes struct {
	free []*block // the head of each class's list, linked by prev and next
	some []uint64 // a bit for each class that is not empty
}

func newClasses(largest int) classes {
	n := floorClass(largest) + 1
	return classes{free: make([]*block, n), some: make([]uint64, (n+63)/64)}
}

// put adds a free block. The block that was freed last is used first: it is likely in the
// cache.
func (c *classes) put(b *block) {
	i := floorClass(b.size)
	b.prev, b.next = nil, c.free[i]
	if b.next != nil {
		b.next.prev = b
	}
	c.free[i] = b
	c.some[i/64] |= 1 << (i % 64)
}

// drop removes a block from its list.
func (c *classes) drop(b *block) {
	i := floorClass(b.size)
	if b.next != nil {
		b.next.prev = b.prev
	}
	if b.prev != nil {
		b.prev.next = b.next
	} else if c.free[i] = b.next; b.next == nil {
		c.some[i/64] &^= 1 << (i % 64)
	}
	b.prev, b.next = nil, nil
}

// find returns a block of the smallest class from class i on that has one, or nil. The
// block stays in its list.
func (c *classes) find(i int) *block {
	if i >= len(c.free) {
		return nil
	}
	word := c.some[i/64] &^ (1<<(i%64) - 1)
	for w := i / 64; ; {
		if word != 0 {
			return c.free[w*64+bits.TrailingZeros64(word)]
		}
		if w++; w == len(c.some) {
			return nil
		}
		word = c.some[w]
	}
}

// search is find for a block that fits.
func (c *classes) search(i int, fits func(*block) bool) *block {
	for ; i < len(c.free); i++ {
		for b := c.free[i]; b != nil; b = b.next {
			if fits(b) {
				return b
			}
		}
	}
	return nil
}
