// Here unsafe passes the addresses of Go memory to C functions, for the time of the call.

package capi

import (
	"unsafe"

	"github.com/ebitengine/purego"
)

// Context is a TFE_Context: variables, queues, generators and functions of its own.
type Context struct {
	l       *Library
	address uintptr
}

// Handle is a TFE_TensorHandle*: a value that the library holds.
type Handle uintptr

// Cancel is a TFE_CancellationManager*.
type Cancel uintptr

// device is where all runs: contexts have no job and one CPU.
const device = "/job:localhost/replica:0/task:0/device:CPU:0"

// NewContext returns an empty context with the options of a ConfigProto message.
func (l *Library) NewContext(config []byte) (*Context, error) {
	s := l.newStatus()
	defer l.deleteStatus(s)
	o, _, _ := purego.SyscallN(l.f.TFE_NewContextOptions)
	defer purego.SyscallN(l.f.TFE_DeleteContextOptions, o)
	if len(config) > 0 {
		purego.SyscallN(l.f.TFE_ContextOptionsSetConfig, o, uintptr(unsafe.Pointer(&config[0])), uintptr(len(config)), s)
		if err := l.errorOf(s); err != nil {
			return nil, err
		}
	}
	address, _, _ := purego.SyscallN(l.f.TFE_NewContext, o, s)
	if err := l.errorOf(s); err != nil {
		return nil, err
	}
	return &Context{l, address}, nil
}

// Delete deletes the context with its variables. No Handle of it exists any more, and no run.
func (c *Context) Delete() { purego.SyscallN(c.l.f.TFE_DeleteContext, c.address) }

// AddFunction adds a FunctionDef message.
func (c *Context) AddFunction(def []byte) error {
	s := c.l.newStatus()
	defer c.l.deleteStatus(s)
	purego.SyscallN(c.l.f.TFE_ContextAddFunctionDef, c.address, uintptr(unsafe.Pointer(unsafe.SliceData(def))), uintptr(len(def)), s)
	return c.l.errorOf(s)
}

// RemoveFunction removes a function that nothing runs any more.
func (c *Context) RemoveFunction(name string) error {
	s := c.l.newStatus()
	defer c.l.deleteStatus(s)
	n := cString(name)
	purego.SyscallN(c.l.f.TFE_ContextRemoveFunction, c.address, uintptr(unsafe.Pointer(&n[0])), s)
	return c.l.errorOf(s)
}

// StartStep begins a step: what lives only for a step, such as a TensorArray, is kept until as many
// EndSteps have followed.
func (c *Context) StartStep() { purego.SyscallN(c.l.f.TFE_ContextStartStep, c.address) }

// EndStep ends a step.
func (c *Context) EndStep() { purego.SyscallN(c.l.f.TFE_ContextEndStep, c.address) }

// Call is a function as Execute needs it.
type Call struct {
	name, device, configName, config []byte
}

// NewCall returns the call of a function by its name, with the options of a ConfigProto message.
func NewCall(name string, config []byte) *Call {
	return &Call{cString(name), cString(device), cString("config_proto"), config}
}

// Execute runs a function and waits for its end. It sets outputs to Handles that belong to the
// caller, one for each output of the function; to zeros after an error. cancel may be zero.
func (c *Context) Execute(f *Call, inputs []Handle, cancel Cancel, outputs []Handle) error {
	l := c.l
	s := l.newStatus()
	defer l.deleteStatus(s)
	op, _, _ := purego.SyscallN(l.f.TFE_NewOp, c.address, uintptr(unsafe.Pointer(&f.name[0])), s)
	if err := l.errorOf(s); err != nil {
		return err
	}
	defer purego.SyscallN(l.f.TFE_DeleteOp, op)
	purego.SyscallN(l.f.TFE_OpSetDevice, op, uintptr(unsafe.Pointer(&f.device[0])), s)
	if err := l.errorOf(s); err != nil {
		return err
	}
	for _, in := range inputs {
		purego.SyscallN(l.f.TFE_OpAddInput, op, uintptr(in), s)
		if err := l.errorOf(s); err != nil {
			return err
		}
	}
	if len(f.config) > 0 {
		purego.SyscallN(l.f.TFE_OpSetAttrString, op, uintptr(unsafe.Pointer(&f.configName[0])), uintptr(unsafe.Pointer(&f.config[0])), uintptr(len(f.config)))
	}
	if cancel != 0 {
		purego.SyscallN(l.f.TFE_OpSetCancellationManager, op, uintptr(cancel), s)
		if err := l.errorOf(s); err != nil {
			return err
		}
	}
	n := int32(len(outputs))
	purego.SyscallN(l.f.TFE_Execute, op, uintptr(unsafe.Pointer(unsafe.SliceData(outputs))), uintptr(unsafe.Pointer(&n)), s)
	if err := l.errorOf(s); err != nil {
		clear(outputs)
		return err
	}
	return nil
}

// NewCancel returns a manager that has not cancelled anything yet.
func (l *Library) NewCancel() Cancel {
	m, _, _ := purego.SyscallN(l.f.TFE_NewCancellationManager)
	return Cancel(m)
}

// StartCancel ends the runs that m was given to, and those that it will be given to.
func (l *Library) StartCancel(m Cancel) {
	purego.SyscallN(l.f.TFE_CancellationManagerStartCancel, uintptr(m))
}

// DeleteCancel deletes m.
func (l *Library) DeleteCancel(m Cancel) {
	purego.SyscallN(l.f.TFE_DeleteCancellationManager, uintptr(m))
}

// DeleteHandle gives up a value. A zero Handle is ignored.
func (l *Library) DeleteHandle(h Handle) {
	if h != 0 {
		purego.SyscallN(l.f.TFE_DeleteTensorHandle, uintptr(h))
	}
}

// ShareHandle returns another Handle of the same value.
func (l *Library) ShareHandle(h Handle) (Handle, error) {
	s := l.newStatus()
	defer l.deleteStatus(s)
	other, _, _ := purego.SyscallN(l.f.TFE_TensorHandleCopySharingTensor, uintptr(h), s)
	return Handle(other), l.errorOf(s)
}

// HandleType returns the DataType of a value.
func (l *Library) HandleType(h Handle) int32 {
	d, _, _ := purego.SyscallN(l.f.TFE_TensorHandleDataType, uintptr(h))
	return int32(d)
}
