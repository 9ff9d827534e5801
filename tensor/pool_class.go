package tensor

import (
	"math/bits"
	"slices"
	"sync"
)

// The sizes of a Pool's blocks: multiples of 64 bytes up to 1 KiB, then
// sixteen steps in each doubling. So a block is less than 1/16 larger than
// what was asked for (up to 1 KiB, less than 64 bytes), and those of 1 MiB
// and more are multiples of 64 KiB.
const (
	classStep  = Alignment // smallest block and distance of the small ones
	classSteps = 16        // steps in a doubling, and number of small classes

	smallBits = 10            // log₂ of classStep · classSteps
	stepBits  = smallBits - 5 // a step in doubling d is 1 << (d + stepBits); so 64 bytes in the first
)

// classOf returns the class of the smallest blocks that hold n bytes, n ≥ 1.
func classOf(n int) int {
	if n <= classStep*classSteps {
		return (n - 1) / classStep
	}
	doubling := bits.Len(uint(n-1)) - smallBits // 1 for 1025 to 2048 bytes
	step := (n - 1) >> (doubling + stepBits)
	return doubling*classSteps + step - classSteps
}

// classSize returns the size of the blocks of class i.
func classSize(i int) int {
	if i < classSteps {
		return (i + 1) * classStep
	}
	doubling, step := i/classSteps, i%classSteps
	return (classSteps + step + 1) << (doubling + stepBits)
}

// class keeps the free blocks of one size.
type class struct {
	mu sync.Mutex
	// All below are guarded by mu.
	free         [][]byte // the last one was released last: its pages are warm
	hits, misses int64

	_ [16]byte // to 64 bytes, so that neighbours' locks share no cache line
}

// pop returns the block released last, or nil. It counts the last answer to an
// Allocate, which may ask again.
func (c *class) pop(again bool) []byte {
	var block []byte
	c.mu.Lock()
	if again {
		c.misses--
	}
	if n := len(c.free); n == 0 {
		c.misses++
	} else {
		c.hits++
		block, c.free[n-1] = c.free[n-1], nil
		c.free = c.free[:n-1]
	}
	c.mu.Unlock()
	return block
}

// popBytes returns the blocks released first, as many as take need bytes.
func (c *class) popBytes(need int64) [][]byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	var n int
	for n < len(c.free) && need > 0 {
		need -= int64(len(c.free[n]))
		n++
	}
	if n == 0 {
		return nil
	}
	blocks := slices.Clone(c.free[:n])
	c.free = slices.Delete(c.free, 0, n)
	return blocks
}

func (c *class) push(block []byte) {
	c.mu.Lock()
	c.free = append(c.free, block)
	c.mu.Unlock()
}

func (c *class) stats() ClassStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return ClassStats{Kept: len(c.free), Hits: c.hits, Misses: c.misses}
}

// newBlock returns size bytes of new memory at a multiple of Alignment, which
// freeBlock takes back. Its length is its capacity.
func newBlock(size int) ([]byte, error) {
	if offHeap && size >= offHeapSize {
		return mapMemory(size)
	}
	return heapBytes(size)
}

func freeBlock(block []byte) {
	if offHeap && len(block) >= offHeapSize {
		unmapMemory(block)
	}
}
