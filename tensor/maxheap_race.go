//go:build race

package tensor

const maxHeap = 64 << 30
