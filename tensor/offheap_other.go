//go:build !(linux || darwin) || race

package tensor

// offHeap is false where the garbage collector frees large blocks too.
const offHeap = false

func mapMemory(size int) ([]byte, error) { return heapBytes(size) }

func unmapMemory([]byte) {}
