package regmem

import "github.com/tryst-rdma/tryst/tensor"

// mapping is the source of memory.
type mapping uint8

const (
	pages     mapping = iota // ordinary pages, which registering locks
	lazyPages                // ordinary pages for a device that locks nothing; present when touched
	hugePages                // huge pages of the system's pool
	filePages                // pages of a memfd, all present
	goHeap                   // the Go heap
)

func (m mapping) String() string {
	return [...]string{"pages", "lazy pages", "huge pages", "pages of a memfd", "Go heap"}[m]
}

// mappingFor returns the source of memory for a device. A hardware device must never get
// the Go heap: the runtime may free the memory and return its pages to the system while
// the device still uses them. For a device that is Go code the heap is safe, and the race
// detector, which watches no other memory, then sees the accesses of the device.
func mappingFor(goMemory bool) mapping {
	switch {
	case goMemory && raceBuild:
		return goHeap
	case goMemory:
		return lazyPages
	}
	return pages
}

// of returns the source of memory for an arena of that size.
func (m mapping) of(size int) mapping {
	if m == goHeap && size > maxWatched {
		return lazyPages
	}
	return m
}

// maxWatched is the largest arena in bytes that the race detector watches. It multiplies
// memory by 5 to 10 (go.dev/doc/articles/race_detector): a tensor of 4 GiB would take more
// than most machines have.
const maxWatched = 1 << 30

// heapMemory returns memory of the Go heap. It is garbage-collected, not unmapped.
func heapMemory(size int) ([]byte, error) {
	b, err := tensor.Heap{}.Allocate(size)
	if err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
