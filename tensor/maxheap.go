//go:build !race

package tensor

const maxHeap = 1 << 40
