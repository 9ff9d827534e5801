package mem

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

// maxWatched is up to which size of an arena the race detector watches it: it takes
// three times as much memory as it watches, and Go's collector leaves none of it to
// others, so that one tensor of 4 GiB would need a machine with 16.
const maxWatched = 1 << 30

// heapMemory is memory of Go; it is collected, not unmapped.
func heapMemory(size int) ([]byte, error) {
	b, err := tensor.Heap{}.Allocate(size)
	if err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
