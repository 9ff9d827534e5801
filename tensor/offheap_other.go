//go:build !(linux || darwin) || race

package tensor

// offHeap is false: large blocks are on the Go heap too.
const offHeap = false

func mapMemory(size int) ([]byte, error) { return heapBytes(size) }

func unmapMemory([]byte) {}
