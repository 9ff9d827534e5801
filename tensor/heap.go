package tensor

import (
	"fmt"

	"github.com/tryst-rdma/tryst/status"
)

// Heap is an Allocator on the Go heap. The garbage collector frees the memory.
// The zero value is ready for use.
//
// The Go runtime ends the process when the operating system refuses memory.
// Therefore Allocate returns ResourceExhausted for a size above MaxHeap and, on
// Linux and Darwin, for a size that the system refuses to map. A system that
// overcommits memory may still end the process later. Where a peer or a file
// chooses the size, use a Pool with a limit.
type Heap struct{}

// probeSize is the size in bytes from which Heap probes the operating system
// before it calls the runtime. It is the unit by which the runtime's heap grows
// on 64-bit machines. The two system calls cost little compared to clearing so
// much memory.
const probeSize = 64 << 20

// Allocate implements Allocator. The memory is zeroed.
func (Heap) Allocate(n int) (*Buffer, error) {
	if err := checkSize(n); err != nil {
		return nil, err
	}
	b, err := heapBytes(n)
	if err != nil {
		return nil, status.Errorf(status.ResourceExhausted, "cannot allocate %d bytes: %w", n, err)
	}
	return NewBuffer(b, nil), nil
}

// heapBytes is alignedBytes, but returns an error for sizes for which the runtime
// would end the process.
func heapBytes(n int) ([]byte, error) {
	if n > MaxHeap {
		return nil, fmt.Errorf("the limit of the Go heap is %d", MaxHeap)
	}
	if n >= probeSize {
		if err := probe(n); err != nil {
			return nil, err
		}
	}
	return alignedBytes(n), nil
}
