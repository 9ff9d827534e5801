package tensor

import "math"

// MaxDims is the largest number of dimensions, as in TensorFlow.
const MaxDims = 254

// maxBlock is the largest size of a block: 2⁴⁷ bytes is the largest address space
// of a process under Go. The Go runtime panics for larger slices. On 32-bit
// machines the bound allows to round a size up.
const maxBlock = min(1<<47, math.MaxInt-pageMultiple)

// MaxHeap is the largest size that Heap allocates, in bytes: 1 TiB, or 64 GiB in
// builds with the race detector, whose heap is limited to 128 GiB. On 32-bit
// machines it is the largest slice.
const MaxHeap = min(maxHeap, maxBlock)
