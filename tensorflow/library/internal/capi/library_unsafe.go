// Here unsafe passes the addresses of Go memory to C functions, for the time of the call, and reads
// the C memory that they return.

package capi

import (
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/tryst-rdma/tryst/status"
)

// The files that TensorFlow's Python package for CPUs has in one directory.
const (
	FrameworkFile = "libtensorflow_framework.so.2"
	RuntimeFile   = "libtensorflow_cc.so.2"
)

// functions are the addresses of the C functions, by name.
type functions struct {
	TF_Version                         uintptr
	TF_GetAllOpList                    uintptr
	TF_GetRegisteredKernelsForOp       uintptr
	TF_DeleteBuffer                    uintptr
	TF_NewStatus                       uintptr
	TF_DeleteStatus                    uintptr
	TF_GetCode                         uintptr
	TF_Message                         uintptr
	TF_AllocateTensor                  uintptr
	TF_NewTensor                       uintptr
	TF_DeleteTensor                    uintptr
	TF_TensorData                      uintptr
	TF_TensorByteSize                  uintptr
	TF_TensorType                      uintptr
	TF_NumDims                         uintptr
	TF_Dim                             uintptr
	TF_StringCopy                      uintptr
	TF_StringDealloc                   uintptr
	TF_StringGetDataPointer            uintptr
	TF_StringGetSize                   uintptr
	TFE_NewContextOptions              uintptr
	TFE_ContextOptionsSetConfig        uintptr
	TFE_DeleteContextOptions           uintptr
	TFE_NewContext                     uintptr
	TFE_DeleteContext                  uintptr
	TFE_ContextAddFunctionDef          uintptr
	TFE_ContextRemoveFunction          uintptr
	TFE_ContextStartStep               uintptr
	TFE_ContextEndStep                 uintptr
	TFE_NewOp                          uintptr
	TFE_DeleteOp                       uintptr
	TFE_OpSetDevice                    uintptr
	TFE_OpAddInput                     uintptr
	TFE_OpSetAttrString                uintptr
	TFE_OpSetCancellationManager       uintptr
	TFE_Execute                        uintptr
	TFE_NewTensorHandle                uintptr
	TFE_DeleteTensorHandle             uintptr
	TFE_TensorHandleResolve            uintptr
	TFE_TensorHandleDataType           uintptr
	TFE_TensorHandleCopySharingTensor  uintptr
	TFE_NewCancellationManager         uintptr
	TFE_CancellationManagerStartCancel uintptr
	TFE_DeleteCancellationManager      uintptr
}

// Library is an open TensorFlow library. It is safe for concurrent use. It is never closed: the
// library keeps threads.
type Library struct {
	f       functions
	version string
	calloc  uintptr
	free    uintptr
	// give is the address of the only callback: TensorFlow calls it to give lent memory back.
	give uintptr

	mu   sync.Mutex // guards the fields below; nothing else is locked while it is held
	last uintptr
	lent map[uintptr]func() // by the argument of the callback
}

// Open opens the library of a directory.
func Open(dir string) (*Library, error) {
	framework, err := purego.Dlopen(filepath.Join(dir, FrameworkFile), purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		return nil, status.Errorf(status.FailedPrecondition, "open TensorFlow: %v", err)
	}
	runtime, err := purego.Dlopen(filepath.Join(dir, RuntimeFile), purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		return nil, status.Errorf(status.FailedPrecondition, "open TensorFlow: %v", err)
	}
	l := &Library{lent: map[uintptr]func(){}}
	if err := l.f.find(runtime, framework); err != nil {
		return nil, status.Errorf(status.FailedPrecondition, "the TensorFlow library in %s lacks what is needed (2.13 to 2.21 have it): %v", dir, err)
	}
	if l.calloc, err = purego.Dlsym(purego.RTLD_DEFAULT, "calloc"); err != nil {
		return nil, status.Errorf(status.FailedPrecondition, "open the C library: %v", err)
	}
	if l.free, err = purego.Dlsym(purego.RTLD_DEFAULT, "free"); err != nil {
		return nil, status.Errorf(status.FailedPrecondition, "open the C library: %v", err)
	}
	version, _, _ := purego.SyscallN(l.f.TF_Version)
	l.version = goString(version)
	l.give = purego.NewCallback(func(_, _, id uintptr) { l.takeBack(id) })
	return l, nil
}

// find looks every function up in the libraries.
func (f *functions) find(libraries ...uintptr) error {
	var missing []error
	table := reflect.ValueOf(f).Elem()
	for i := range table.NumField() {
		name := table.Type().Field(i).Name
		var err error
		for _, l := range libraries {
			var address uintptr
			if address, err = purego.Dlsym(l, name); err == nil {
				*(*uintptr)(unsafe.Pointer(table.Field(i).UnsafeAddr())) = address
				break
			}
		}
		if err != nil {
			missing = append(missing, fmt.Errorf("no function %s", name))
		}
	}
	return errors.Join(missing...)
}

// Version is TensorFlow's version, such as 2.21.0.
func (l *Library) Version() string { return l.version }

// OpList returns all operations as an OpList message.
func (l *Library) OpList() []byte {
	buffer, _, _ := purego.SyscallN(l.f.TF_GetAllOpList)
	return l.takeBuffer(buffer)
}

// Kernels returns the registered kernels of an operation as a KernelList message.
func (l *Library) Kernels(op string) ([]byte, error) {
	s := l.newStatus()
	defer l.deleteStatus(s)
	name := cString(op)
	buffer, _, _ := purego.SyscallN(l.f.TF_GetRegisteredKernelsForOp, uintptr(unsafe.Pointer(&name[0])), s)
	if err := l.errorOf(s); err != nil {
		return nil, err
	}
	return l.takeBuffer(buffer), nil
}

// tfBuffer is TF_Buffer.
type tfBuffer struct {
	data   uintptr
	length uintptr
	free   uintptr
}

// takeBuffer copies the content of a TF_Buffer and deletes it.
func (l *Library) takeBuffer(buffer uintptr) []byte {
	if buffer == 0 {
		return nil
	}
	b := (*tfBuffer)(pointer(buffer))
	content := append([]byte(nil), memory(b.data, int(b.length))...)
	purego.SyscallN(l.f.TF_DeleteBuffer, buffer)
	return content
}

func (l *Library) newStatus() uintptr {
	s, _, _ := purego.SyscallN(l.f.TF_NewStatus)
	return s
}

func (l *Library) deleteStatus(s uintptr) { purego.SyscallN(l.f.TF_DeleteStatus, s) }

// errorOf returns the error of a TF_Status; nil when it is OK. TensorFlow's codes are ours.
func (l *Library) errorOf(s uintptr) error {
	code, _, _ := purego.SyscallN(l.f.TF_GetCode, s)
	if uint32(code) == 0 {
		return nil
	}
	message, _, _ := purego.SyscallN(l.f.TF_Message, s)
	return status.New(status.Code(uint32(code)), strings.ToValidUTF8(goString(message), "\uFFFD"))
}

// pointer returns an address in C memory as a pointer. Go's memory never is there, so the garbage
// collector ignores the pointer.
func pointer(address uintptr) unsafe.Pointer {
	return *(*unsafe.Pointer)(unsafe.Pointer(&address))
}

// memory returns n bytes of C memory.
func memory(address uintptr, n int) []byte {
	if n == 0 || address == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(pointer(address)), n)
}

// cString returns s with the byte that ends a C string.
func cString(s string) []byte { return append([]byte(s), 0) }

// goString copies a C string.
func goString(address uintptr) string {
	if address == 0 {
		return ""
	}
	p, n := pointer(address), 0
	for *(*byte)(unsafe.Add(p, n)) != 0 {
		n++
	}
	return string(unsafe.Slice((*byte)(p), n))
}
