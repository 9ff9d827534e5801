package graph

import (
	"sync"

	"github.com/tryst-rdma/tryst/tensor"
)

// Variable is a tensor that steps read and change: a reference variable (VariableV2) or a resource
// variable (VarHandleOp). Readers get the tensor of the moment, which never changes afterwards: a
// change in place happens only while the variable has the only reference, and is made in a copy
// otherwise. So a value that is being sent is never torn, which TensorFlow does not promise.
type Variable struct {
	// DType never changes.
	DType tensor.DType

	mu sync.Mutex     // guards the field below, and the content of its tensor
	t  *tensor.Tensor // nil before the first assignment
}

// Snapshot returns the present tensor with a reference for the caller; nil before the first
// assignment.
func (v *Variable) Snapshot() *tensor.Tensor {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.t == nil {
		return nil
	}
	return v.t.Retain()
}

// Update calls change with the present tensor, nil before the first assignment, and makes the result
// the tensor of the variable. change may change old in place and return it if old is the only
// reference (Buffer.Unique). It takes over the reference of old when it returns another tensor.
// After an error the variable keeps old, which change has not changed. Updates run one after another.
func (v *Variable) Update(change func(old *tensor.Tensor) (*tensor.Tensor, error)) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	t, err := change(v.t)
	if err == nil {
		v.t = t
	}
	return err
}
