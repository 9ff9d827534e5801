package tensor

// Heap allocates from the Go heap; the garbage collector frees. It has no
// limit and keeps nothing. Its zero value is ready.
//
// A size that the machine's memory cannot hold ends the process, as it does
// with make. Where a peer or a file says the size, use a Pool with a limit.
type Heap struct{}

// Allocate implements Allocator. Memory from it is zero.
func (Heap) Allocate(n int) (*Buffer, error) {
	if err := checkSize(n); err != nil {
		return nil, err
	}
	return NewBuffer(alignedBytes(n), nil), nil
}
