package graph

import (
	"reflect"
	"slices"
	"sync"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// Variable is a tensor that steps read and change: a reference variable (VariableV2) or a resource
// variable (VarHandleOp). Readers get the tensor of the moment, which never changes afterwards: a
// change in place happens only while the variable has the only reference, and is made in a copy
// otherwise. So a value that is being sent is never torn, which TensorFlow does not promise.
type Variable struct {
	// DType and Name never change. Name is for error texts.
	DType tensor.DType
	Name  string
	// Object, if not nil, is the queue or accumulator that the variable is the handle of: in the first version
	// of these ops a handle is a reference to two strings. It never changes.
	Object Opaque

	mu      sync.Mutex     // guards the fields below, and the content of the tensor
	t       *tensor.Tensor // nil before the first assignment
	dropped bool           // by Drop
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
// A variable that was dropped is Aborted.
func (v *Variable) Update(change func(old *tensor.Tensor) (*tensor.Tensor, error)) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.dropped {
		return errDropped()
	}
	t, err := change(v.t)
	if err == nil {
		v.t = t
	}
	return err
}

// UpdateAll is Update of several variables, such as a variable and its slots, with one call of
// change for all. It locks the variables in an order of their own, so that updates with the same
// variables in another order do not wait for each other. The same variable twice is
// InvalidArgument.
func UpdateAll(vars []*Variable, change func(old []*tensor.Tensor) ([]*tensor.Tensor, error)) error {
	order := slices.Clone(vars)
	slices.SortFunc(order, func(a, b *Variable) int {
		x, y := reflect.ValueOf(a).Pointer(), reflect.ValueOf(b).Pointer()
		switch {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	})
	for i := range order[1:] {
		if order[i] == order[i+1] {
			return status.New(status.InvalidArgument, "two inputs are the same variable")
		}
	}
	for _, v := range order {
		v.mu.Lock()
		defer v.mu.Unlock()
	}
	old := make([]*tensor.Tensor, len(vars))
	for i, v := range vars {
		if v.dropped {
			return errDropped()
		}
		old[i] = v.t
	}
	t, err := change(old)
	if err != nil {
		return err
	}
	for i, v := range vars {
		v.t = t[i]
	}
	return nil
}

// Drop releases the tensor of the variable, which is not used any more. A step that still has the
// variable finds it without a value, and cannot assign one.
func (v *Variable) Drop() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.dropped = true
	if v.t != nil {
		v.t.Release()
		v.t = nil
	}
}

func errDropped() error {
	return status.New(status.Aborted, "the variable was removed by a reset of its container or the end of its session")
}
