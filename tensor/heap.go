package tensor

// Heap allocates from the Go heap; the garbage collector frees. It has no
// limit and keeps nothing. Its zero value is ready.
type Heap struct{}

// Allocate implements Allocator. Memory from it is zero.
func (Heap) Allocate(n int) (*Buffer, error) {
	if err := checkSize(n); err != nil {
		return nil, err
	}
	return NewBuffer(alignedBytes(n), nil), nil
}
