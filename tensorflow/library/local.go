package library

import (
	"context"
	"sync"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensorflow/library/internal/capi"
)

// local is the engine of a library in this process.
type local struct{ l *capi.Library }

func (e local) version() string                   { return e.l.Version() }
func (e local) opList() ([]byte, error)           { return e.l.OpList(), nil }
func (e local) kernels(op string) ([]byte, error) { return e.l.Kernels(op) }
func (e local) ended() error                      { return nil }
func (e local) close()                            {}

func (e local) newContext() (engineContext, error) {
	c, err := e.l.NewContext(contextConfig)
	if err != nil {
		return nil, err
	}
	return &localContext{l: e.l, c: c}, nil
}

// localContext is a context of the library in this process.
type localContext struct {
	l     *capi.Library
	c     *capi.Context
	calls sync.Map // *capi.Call by the name of the function
}

func (c *localContext) addFunction(name string, def []byte) error {
	if err := c.c.AddFunction(def); err != nil {
		return err
	}
	c.calls.Store(name, capi.NewCall(name, callConfig))
	return nil
}

func (c *localContext) removeFunction(name string) error {
	c.calls.Delete(name)
	return c.c.RemoveFunction(name)
}

func (c *localContext) startStep() { c.c.StartStep() }
func (c *localContext) endStep()   { c.c.EndStep() }
func (c *localContext) delete()    { c.c.Delete() }

// run runs a function, on the thread of the caller. The end of ctx cancels it.
func (c *localContext) run(ctx context.Context, r *run) error {
	f, _ := c.calls.Load(r.function)
	call, ok := f.(*capi.Call)
	if !ok {
		return status.Errorf(status.Internal, "function %s is not there", r.function)
	}
	inputs, drop, err := c.inputs(r)
	defer drop()
	if err != nil {
		return err
	}
	cancel := c.l.NewCancel()
	cancelled := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		c.l.StartCancel(cancel)
		close(cancelled)
	})
	handles := make([]capi.Handle, len(r.outputs))
	err = c.c.Execute(call, inputs, cancel, handles)
	if !stop() {
		<-cancelled
	}
	c.l.DeleteCancel(cancel)
	if err != nil {
		return err
	}
	return c.outputs(r, handles)
}
