package tensor

import (
	"fmt"

	"github.com/tryst-rdma/tryst/status"
)

// Heap allocates from the Go heap; the garbage collector frees. It keeps
// nothing. Its zero value is ready.
//
// Go's runtime ends the process when it is refused memory. So a size above
// MaxHeap, and on Linux and Darwin one that the operating system does not give
// a single mapping of, is ResourceExhausted. What the system promises and does
// not have still ends the process: where a peer or a file says the size, use a
// Pool with a limit.
type Heap struct{}

// MaxHeap is the largest size that is asked of Go's runtime, in bytes: 1 TiB,
// or 64 GiB in builds with the race detector, which has addresses for a heap of
// 128 GiB. On 32-bit machines it is all that an int can say.
const MaxHeap = min(maxHeap, maxBlock)

// probeSize is the size from which the operating system is asked first: the
// unit in which the runtime's heap grows on 64-bit machines. Beside the
// clearing of so much the two system calls are nothing.
const probeSize = 64 << 20

// Allocate implements Allocator. Memory from it is zero.
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

// heapBytes is alignedBytes with an error where the runtime would end the
// process.
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
