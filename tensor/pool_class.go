package tensor

import (
	"math/bits"
	"slices"
	"sync"
)

// The sizes of a Pool's blocks are multiples of 64 bytes up to 1 KiB, and sixteen
// sizes in each doubling above. So a block is less than 1/16 larger than the
// requested size (up to 1 KiB, less than 64 bytes larger), and blocks of 1 MiB
// and more are multiples of 64 KiB.
const (
	classStep  = Alignment // smallest size, and distance of the sizes up to 1 KiB
	classSteps = 16        // number of sizes in a doubling, and of sizes up to 1 KiB

	smallBits = 10            // log₂ of classStep · classSteps
	stepBits  = smallBits - 5 // sizes in doubling d (1, 2, ...) are 1 << (d + stepBits) apart
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
	mu sync.Mutex // protects the fields below

	free         [][]byte // in the order of their release; the last is the most likely in cache
	hits, misses int64
	// unused is the smallest length of free since the last popIdle: so many blocks, the
	// first ones, have not been used since then.
	unused int

	_ [8]byte // fills 64 bytes, so that no two locks share a cache line
}

// pop returns the block released last, or nil. again is true when the same
// allocation has called pop before: only its last result is counted.
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
		c.unused = min(c.unused, n-1)
	}
	c.mu.Unlock()
	return block
}

// popBytes removes and returns the blocks released first, until they have need
// bytes.
func (c *class) popBytes(need int64) [][]byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	var n int
	for n < len(c.free) && need > 0 {
		need -= int64(len(c.free[n]))
		n++
	}
	return c.popFirstLocked(n)
}

// popIdle removes and returns the blocks that have been free since the last call.
func (c *class) popIdle() [][]byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	blocks := c.popFirstLocked(c.unused)
	c.unused = len(c.free)
	return blocks
}

// popFirstLocked removes and returns the n blocks released first.
func (c *class) popFirstLocked(n int) [][]byte {
	if n == 0 {
		return nil
	}
	blocks := slices.Clone(c.free[:n])
	c.free = slices.Delete(c.free, 0, n)
	c.unused = max(c.unused-n, 0)
	if len(c.free) == 0 {
		c.free = nil
	}
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

// newBlock returns size bytes of new memory, aligned to Alignment, for freeBlock
// to free. The slice's length is its capacity.
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
