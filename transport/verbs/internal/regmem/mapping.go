package regmem

import "github.com/tryst-rdma/tryst/tensor"

// mapping says where memory comes from.
type mapping uint8

const (
	pages     mapping = iota // of the system, locked by the device when it is registered
	lazyPages                // of the system, which a device uses without locking it: there when touched
	hugePages                // of the system's huge pages
	goHeap                   // of Go
)

func (m mapping) String() string {
	return [...]string{"pages", "lazy pages", "huge pages", "Go heap"}[m]
}

// mappingFor says where the memory for a device comes from. A device must never
// get Go's heap: the runtime does not move what lies there, but frees it and
// gives its pages back, and the device goes on with pages that are nobody's. Only
// for one that is Go code itself it does no harm, and the race detector, which
// sees no other memory, then sees what the device does.
func mappingFor(goMemory bool) mapping {
	switch {
	case goMemory && raceBuild:
		return goHeap
	case goMemory:
		return lazyPages
	}
	return pages
}

// of is where an arena of that size comes from.
func (m mapping) of(size int) mapping {
	if m == goHeap && size > maxWatched {
		return lazyPages
	}
	return m
}

// maxWatched is the largest arena that the race detector watches: with what it notes of
// each, bytes take 5 to 10 times their room (go.dev/doc/articles/race_detector), and a
// tensor of 4 GiB more than most machines have.
const maxWatched = 1 << 30

// heapMemory is memory of Go; it is collected, not unmapped.
func heapMemory(size int) ([]byte, error) {
	b, err := tensor.Heap{}.Allocate(size)
	if err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
