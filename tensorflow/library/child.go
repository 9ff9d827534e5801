package library

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
	"github.com/tryst-rdma/tryst/tensorflow/library/internal/capi"
)

// socketOfParent is the descriptor that a kernel process talks to its parent over.
const socketOfParent = 3

// ServeProcess is what a kernel process does (Options.Process): it opens the library of dir and runs
// functions for the process that has started it, until that one closes the socket or ends. dir and below
// are the last arguments of the process. With directories below it first confines itself to files below
// them, and executes itself again without them.
func ServeProcess(dir string, below ...string) error {
	if len(below) > 0 {
		return confine(dir, below)
	}
	f := os.NewFile(socketOfParent, "parent")
	if f == nil {
		return status.New(status.InvalidArgument, "no parent: a kernel process is started by serve --kernel-process")
	}
	conn, err := net.FileConn(f)
	_ = f.Close() // conn has a descriptor of its own
	if err != nil {
		return status.Errorf(status.InvalidArgument, "no parent: a kernel process is started by serve --kernel-process: %v", err)
	}
	c := &child{conn: conn, pool: tensor.NewPool(tensor.PoolOptions{}),
		contexts: map[uint64]*countedContext{}, objects: map[uint64]graph.Value{}, runs: map[uint64]context.CancelFunc{}}
	return c.serve(dir)
}

// child is the server of a kernel process. Nothing of it is freed when it ends: the process does.
type child struct {
	conn net.Conn
	e    engine
	pool *tensor.Pool

	writing sync.Mutex // one answer at a time

	mu       sync.Mutex // guards the fields below
	last     uint64
	contexts map[uint64]*countedContext
	objects  map[uint64]graph.Value
	runs     map[uint64]context.CancelFunc
}

func (c *child) serve(dir string) error {
	for {
		m, err := readMessage(c.conn, func(uint64) tensor.Allocator { return c.pool })
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if m.op == opHello {
			l, err := capi.Open(dir)
			if err != nil {
				c.answer(m, nil, err)
				continue
			}
			c.e = local{l}
		}
		if c.e == nil {
			release(m.values)
			c.answer(m, nil, status.New(status.FailedPrecondition, "the kernel process has not opened the library"))
			continue
		}
		c.handle(m)
	}
}

// answer writes the answer of a message.
func (c *child) answer(to, m *message, err error) {
	if m == nil {
		m = new(message)
	}
	if err != nil {
		m = &message{code: uint64(status.CodeOf(err)), text: status.From(err).Message()}
	}
	m.id, m.op = to.id, opAnswer
	c.writing.Lock()
	defer c.writing.Unlock()
	if err := m.write(c.conn); err != nil && status.CodeOf(err) == status.ResourceExhausted {
		m = &message{id: to.id, op: opAnswer, code: uint64(status.ResourceExhausted), text: status.From(err).Message()}
		_ = m.write(c.conn) // an error means that the parent has ended, which the reader sees
	}
}

// handle does what a message asks for. Only runs go on while the next message is read.
func (c *child) handle(m *message) {
	c.mu.Lock()
	x := c.contexts[m.context]
	c.mu.Unlock()
	if x == nil && (m.op == opAddFunction || m.op == opRemoveFunction || m.op == opRun) {
		release(m.values)
		c.answer(m, nil, status.Errorf(status.Internal, "the kernel process has no context %d", m.context))
		return
	}
	switch m.op {
	case opHello:
		list, err := c.e.opList()
		c.answer(m, &message{name: c.e.version(), data: list}, err)
	case opKernels:
		list, err := c.e.kernels(m.name)
		c.answer(m, &message{data: list}, err)
	case opNewContext:
		c.newContext(m)
	case opAddFunction:
		c.answer(m, nil, x.c.addFunction(m.name, m.data))
	case opRemoveFunction:
		c.answer(m, nil, x.c.removeFunction(m.name))
	case opRun:
		ctx, cancel := context.WithCancel(context.Background())
		c.mu.Lock()
		c.runs[m.id] = cancel
		c.mu.Unlock()
		x.retain()
		go c.run(ctx, x, m)
	case opDrop:
		c.mu.Lock()
		v := c.objects[m.context]
		delete(c.objects, m.context)
		c.mu.Unlock()
		v.Release()
	case opCancel:
		c.mu.Lock()
		cancel := c.runs[m.context]
		c.mu.Unlock()
		if cancel != nil {
			cancel()
		}
	default:
		if x != nil {
			c.tell(m, x)
		}
	}
}

// tell handles the messages to a context that have no answer.
func (c *child) tell(m *message, x *countedContext) {
	switch m.op {
	case opStartStep:
		x.c.startStep()
	case opEndStep:
		x.c.endStep()
	case opDeleteContext:
		c.mu.Lock()
		delete(c.contexts, m.context)
		c.mu.Unlock()
		x.release()
	}
}

func (c *child) newContext(m *message) {
	x, err := newContext(c.e)
	if err != nil {
		c.answer(m, nil, err)
		return
	}
	c.mu.Lock()
	c.last++
	id := c.last
	c.contexts[id] = x
	c.mu.Unlock()
	c.answer(m, &message{context: id}, nil)
}

// run runs a function and answers its outputs.
func (c *child) run(ctx context.Context, x *countedContext, m *message) {
	defer x.release()
	r := &run{function: m.name, owner: x, allocator: c.pool, outputs: make([]graph.Value, min(m.outputs, 1<<20))}
	var err error
	for _, v := range m.values {
		if id, ok := v.Opaque.(remote); ok {
			c.mu.Lock()
			v = c.objects[uint64(id)]
			c.mu.Unlock()
			if v.Opaque == nil {
				err = status.Errorf(status.Internal, "the kernel process has no object %d", id)
				break
			}
			v.Retain()
		}
		r.inputs = append(r.inputs, v)
	}
	if err == nil {
		err = x.c.run(ctx, r)
	}
	release(r.inputs)
	release(m.values[len(r.inputs):])
	c.mu.Lock()
	c.runs[m.id]()
	delete(c.runs, m.id)
	answer := &message{}
	for _, v := range r.outputs {
		if v.Opaque != nil && err == nil {
			c.last++
			c.objects[c.last] = v
			v = graph.Value{Opaque: remote(c.last)}
		}
		answer.values = append(answer.values, v)
	}
	c.mu.Unlock()
	c.answer(m, answer, err)
	release(answer.values)
}
