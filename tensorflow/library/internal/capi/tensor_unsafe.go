// Here unsafe reads and writes the memory of TensorFlow's tensors.

package capi

import (
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/tryst-rdma/tryst/status"
)

// Tensor is a TF_Tensor* with a reference to its memory.
type Tensor struct {
	l       *Library
	address uintptr
}

// stringSize is the size of a TF_TString; zeros are an empty one.
const stringSize = 24

// typeString is the DataType of strings.
const typeString = 7

// CopyIn makes a value of a copy of data, which has plain elements.
func (l *Library) CopyIn(dtype int32, dims []int64, data []byte) (Handle, error) {
	t, _, _ := purego.SyscallN(l.f.TF_AllocateTensor, uintptr(dtype), uintptr(unsafe.Pointer(unsafe.SliceData(dims))), uintptr(len(dims)), uintptr(len(data)))
	if t == 0 {
		return 0, status.Errorf(status.ResourceExhausted, "TensorFlow cannot allocate %d bytes", len(data))
	}
	at, _, _ := purego.SyscallN(l.f.TF_TensorData, t)
	copy(memory(at, len(data)), data)
	return l.hold(t)
}

// Lend makes a value over data without a copy. data is not on the Go heap and begins at a multiple
// of 64 bytes. The library calls release once, from any thread, when it needs data no more; after an
// error too. release must not block.
func (l *Library) Lend(dtype int32, dims []int64, data []byte, release func()) (Handle, error) {
	return l.lend(dtype, dims, uintptr(unsafe.Pointer(unsafe.SliceData(data))), len(data), release)
}

func (l *Library) lend(dtype int32, dims []int64, at uintptr, size int, release func()) (Handle, error) {
	l.mu.Lock()
	l.last++
	id := l.last
	l.lent[id] = release
	l.mu.Unlock()
	t, _, _ := purego.SyscallN(l.f.TF_NewTensor, uintptr(dtype), uintptr(unsafe.Pointer(unsafe.SliceData(dims))), uintptr(len(dims)), at, uintptr(size), l.give, id)
	if t == 0 {
		l.takeBack(id)
		return 0, status.New(status.Internal, "TensorFlow cannot make a tensor of the memory that was lent to it")
	}
	return l.hold(t)
}

// takeBack is the deallocator of lent memory. TensorFlow calls it.
func (l *Library) takeBack(id uintptr) {
	l.mu.Lock()
	release := l.lent[id]
	delete(l.lent, id)
	l.mu.Unlock()
	if release != nil {
		release()
	}
}

// Lent is the number of blocks of memory that the library still has.
func (l *Library) Lent() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.lent)
}

// hold makes a value of a TF_Tensor, which it takes over.
func (l *Library) hold(t uintptr) (Handle, error) {
	s := l.newStatus()
	defer l.deleteStatus(s)
	h, _, _ := purego.SyscallN(l.f.TFE_NewTensorHandle, t, s)
	purego.SyscallN(l.f.TF_DeleteTensor, t)
	return Handle(h), l.errorOf(s)
}

// Strings makes a value of a copy of elems. The array of TF_TStrings is C memory; the deallocator
// frees each string and then the array. TF_AllocateTensor's own deallocator would leak the strings.
func (l *Library) Strings(dims []int64, elems []string) (Handle, error) {
	n := len(elems)
	array, _, _ := purego.SyscallN(l.calloc, uintptr(max(n, 1)), stringSize)
	if array == 0 {
		return 0, status.Errorf(status.ResourceExhausted, "the C library cannot allocate %d strings", n)
	}
	for i, e := range elems {
		purego.SyscallN(l.f.TF_StringCopy, array+uintptr(i)*stringSize, uintptr(unsafe.Pointer(unsafe.StringData(e))), uintptr(len(e)))
	}
	return l.lend(typeString, dims, array, n*stringSize, func() {
		for i := range n {
			purego.SyscallN(l.f.TF_StringDealloc, array+uintptr(i)*stringSize)
		}
		purego.SyscallN(l.free, array)
	})
}

// Resolve returns the tensor of a value, which shares its memory.
func (l *Library) Resolve(h Handle) (Tensor, error) {
	s := l.newStatus()
	defer l.deleteStatus(s)
	t, _, _ := purego.SyscallN(l.f.TFE_TensorHandleResolve, uintptr(h), s)
	return Tensor{l, t}, l.errorOf(s)
}

// Share makes a value of a tensor, which the caller keeps.
func (t Tensor) Share() (Handle, error) {
	s := t.l.newStatus()
	defer t.l.deleteStatus(s)
	h, _, _ := purego.SyscallN(t.l.f.TFE_NewTensorHandle, t.address, s)
	return Handle(h), t.l.errorOf(s)
}

// Free gives up the tensor's memory.
func (t Tensor) Free() { purego.SyscallN(t.l.f.TF_DeleteTensor, t.address) }

// DType is the DataType of the elements.
func (t Tensor) DType() int32 {
	d, _, _ := purego.SyscallN(t.l.f.TF_TensorType, t.address)
	return int32(d)
}

// Dims are the extents.
func (t Tensor) Dims() []int64 {
	n, _, _ := purego.SyscallN(t.l.f.TF_NumDims, t.address)
	dims := make([]int64, int32(n))
	for i := range dims {
		d, _, _ := purego.SyscallN(t.l.f.TF_Dim, t.address, uintptr(i))
		dims[i] = int64(d)
	}
	return dims
}

// Bytes are the elements' memory, valid until Free.
func (t Tensor) Bytes() []byte {
	at, _, _ := purego.SyscallN(t.l.f.TF_TensorData, t.address)
	n, _, _ := purego.SyscallN(t.l.f.TF_TensorByteSize, t.address)
	return memory(at, int(n))
}

// Elements are copies of the elements of a tensor of n strings.
func (t Tensor) Elements(n int) []string {
	array, _, _ := purego.SyscallN(t.l.f.TF_TensorData, t.address)
	elems := make([]string, n)
	for i := range elems {
		s := array + uintptr(i)*stringSize
		at, _, _ := purego.SyscallN(t.l.f.TF_StringGetDataPointer, s)
		size, _, _ := purego.SyscallN(t.l.f.TF_StringGetSize, s)
		elems[i] = string(memory(at, int(size)))
	}
	return elems
}

// ElementsSize is the sum of the lengths of the elements of a tensor of n strings.
func (t Tensor) ElementsSize(n int) (sum int64) {
	array, _, _ := purego.SyscallN(t.l.f.TF_TensorData, t.address)
	for i := range n {
		size, _, _ := purego.SyscallN(t.l.f.TF_StringGetSize, array+uintptr(i)*stringSize)
		sum += int64(size)
	}
	return sum
}

// alignment is that of the memory that TensorFlow takes without a copy, in bytes.
const alignment = 64

// Aligned reports whether data begins where memory that is lent may begin.
func Aligned(data []byte) bool {
	return uintptr(unsafe.Pointer(unsafe.SliceData(data)))%alignment == 0
}
