package library

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// process is the engine of a child process that has opened the library. A failed CHECK, with which
// TensorFlow ends its process, ends the child: what runs fails with Unavailable, and the contexts of
// the child are gone.
type process struct {
	cmd  *exec.Cmd
	conn net.Conn
	last *lastLines
	done chan struct{} // closed when the child has ended and has been waited for

	writing sync.Mutex // one message at a time

	mu      sync.Mutex // guards the fields below; never held while writing
	id      uint64
	pending map[uint64]*pendingCall
	err     error // why the child runs nothing any more
	closing bool

	hello *message
}

// pendingCall waits for its answer.
type pendingCall struct {
	allocator tensor.Allocator
	answer    chan *message // of one; closed without an answer when the child has ended
}

// startProcess starts the child and waits until it has opened the library. With directories the child
// confines itself to files below them.
func startProcess(command []string, dir string, below []string) (*process, error) {
	conn, theirs, err := socketPair()
	if err != nil {
		return nil, status.Errorf(status.Internal, "the socket of the kernel process: %v", err)
	}
	defer theirs.Close()
	p := &process{conn: conn, last: &lastLines{to: os.Stderr}, done: make(chan struct{}), pending: map[uint64]*pendingCall{}}
	p.cmd = exec.Command(command[0], slices.Concat(command[1:], []string{dir}, below)...)
	p.cmd.ExtraFiles = []*os.File{theirs}
	p.cmd.Stdout, p.cmd.Stderr = os.Stdout, p.last
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a signal from the terminal is for this process only
	if err := p.cmd.Start(); err != nil {
		conn.Close()
		return nil, status.Errorf(status.FailedPrecondition, "start the kernel process: %v", err)
	}
	go p.read()
	p.hello, err = p.call(&message{op: opHello}, nil)
	if err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// socketPair returns two connected sockets: one to use, and one for a child.
func socketPair() (ours net.Conn, theirs *os.File, err error) {
	syscall.ForkLock.RLock() // no other child gets the sockets
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fds[0])
		syscall.CloseOnExec(fds[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	f := os.NewFile(uintptr(fds[0]), "kernel process")
	defer f.Close()
	theirs = os.NewFile(uintptr(fds[1]), "kernel process")
	if ours, err = net.FileConn(f); err != nil {
		_ = theirs.Close()
		return nil, nil, err
	}
	return ours, theirs, nil
}

// read reads answers until the child ends.
func (p *process) read() {
	for {
		m, err := readMessage(p.conn, p.allocator)
		if err != nil {
			break
		}
		p.mu.Lock()
		c := p.pending[m.id]
		delete(p.pending, m.id)
		p.mu.Unlock()
		if c == nil {
			release(m.values)
			continue
		}
		c.answer <- m
	}
	p.conn.Close()
	err := p.cmd.Wait()
	p.mu.Lock()
	p.err = p.obituary(err)
	for id, c := range p.pending {
		delete(p.pending, id)
		close(c.answer)
	}
	p.mu.Unlock()
	close(p.done)
}

// allocator is that of the call that an answer is for.
func (p *process) allocator(id uint64) tensor.Allocator {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.pending[id]; c != nil && c.allocator != nil {
		return c.allocator
	}
	return tensor.Heap{}
}

// obituary says how the child has ended.
func (p *process) obituary(err error) error {
	if p.closing {
		return status.New(status.Cancelled, "the kernel process has been closed")
	}
	lines, signal := p.last.text()
	how := "has ended"
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		how = "has ended: " + exit.String()
		if signal != "" {
			how = "was killed by " + signal
		}
		if w, ok := exit.Sys().(syscall.WaitStatus); ok && w.Signaled() {
			how = fmt.Sprintf("was killed by the signal %q", w.Signal().String())
		}
	}
	return status.Errorf(status.Unavailable, "TensorFlow's kernel process %s, and the variables of its sessions are lost; the next session gets a new one. Its last lines: %s",
		how, lines)
}

// send writes a message.
func (p *process) send(m *message) error {
	p.writing.Lock()
	defer p.writing.Unlock()
	return m.write(p.conn)
}

// tell sends a message that has no answer. When it cannot be sent the child has ended.
func (p *process) tell(m *message) { _ = p.send(m) }

// begin registers a call.
func (p *process) begin(m *message, a tensor.Allocator) (*pendingCall, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return nil, p.err
	}
	p.id++
	m.id = p.id
	c := &pendingCall{allocator: a, answer: make(chan *message, 1)}
	p.pending[m.id] = c
	return c, nil
}

// wait returns the answer of a call that has been sent.
func (p *process) wait(c *pendingCall) (*message, error) {
	m, ok := <-c.answer
	if !ok {
		return nil, p.ended()
	}
	if m.code != 0 {
		release(m.values)
		return nil, status.New(status.Code(m.code), m.text)
	}
	return m, nil
}

// call sends a message and waits for its answer.
func (p *process) call(m *message, a tensor.Allocator) (*message, error) {
	c, err := p.begin(m, a)
	if err != nil {
		return nil, err
	}
	if err := p.send(m); err != nil && status.CodeOf(err) == status.ResourceExhausted {
		p.mu.Lock()
		delete(p.pending, m.id)
		p.mu.Unlock()
		return nil, err
	} // after any other error the child has ended, and the call with it
	return p.wait(c)
}

func (p *process) version() string         { return p.hello.name }
func (p *process) opList() ([]byte, error) { return p.hello.data, nil }

func (p *process) kernels(op string) ([]byte, error) {
	m, err := p.call(&message{op: opKernels, name: op}, nil)
	if err != nil {
		return nil, err
	}
	return m.data, nil
}

func (p *process) ended() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// close ends the child and waits for its end.
func (p *process) close() {
	p.mu.Lock()
	p.closing = true
	p.mu.Unlock()
	_ = p.cmd.Process.Kill() // an error says that it has ended
	<-p.done
}

func (p *process) newContext() (engineContext, error) {
	m, err := p.call(&message{op: opNewContext}, nil)
	if err != nil {
		return nil, err
	}
	return &processContext{p, m.context}, nil
}

// processContext is a context in the child.
type processContext struct {
	p  *process
	id uint64
}

func (c *processContext) addFunction(name string, def []byte) error {
	_, err := c.p.call(&message{op: opAddFunction, context: c.id, name: name, data: def}, nil)
	return err
}

func (c *processContext) removeFunction(name string) error {
	_, err := c.p.call(&message{op: opRemoveFunction, context: c.id, name: name}, nil)
	if c.p.ended() != nil {
		return nil
	}
	return err
}

func (c *processContext) startStep() { c.p.tell(&message{op: opStartStep, context: c.id}) }
func (c *processContext) endStep()   { c.p.tell(&message{op: opEndStep, context: c.id}) }
func (c *processContext) delete()    { c.p.tell(&message{op: opDeleteContext, context: c.id}) }

func (c *processContext) run(ctx context.Context, r *run) error {
	m := &message{op: opRun, context: c.id, name: r.function, outputs: uint64(len(r.outputs))}
	for i, v := range r.inputs {
		o, ok := v.Opaque.(*object)
		switch {
		case v.Opaque == nil && v.Tensor == nil:
			return status.Errorf(status.Internal, "input %d has no value", i)
		case v.Opaque == nil:
		case !ok:
			return status.Errorf(status.InvalidArgument, "input %d is a resource of another kernel set", i)
		case o.owner != r.owner:
			return status.Errorf(status.NotFound, "input %d is a resource from before a reset of the session", i)
		default:
			v = graph.Value{Opaque: remote(o.id)}
		}
		m.values = append(m.values, v)
	}
	call, err := c.p.begin(m, r.allocator)
	if err != nil {
		return err
	}
	if err := c.p.send(m); err != nil && status.CodeOf(err) == status.ResourceExhausted {
		c.p.mu.Lock()
		delete(c.p.pending, m.id)
		c.p.mu.Unlock()
		return err
	}
	stop := context.AfterFunc(ctx, func() { c.p.tell(&message{op: opCancel, context: m.id}) })
	defer stop()
	answer, err := c.p.wait(call)
	if err != nil {
		return err
	}
	if len(answer.values) != len(r.outputs) {
		release(answer.values)
		return status.Errorf(status.Internal, "the kernel process has answered %d values of %d", len(answer.values), len(r.outputs))
	}
	for i, v := range answer.values {
		if id, ok := v.Opaque.(remote); ok {
			v.Opaque = newObject(r.owner, func() { c.p.tell(&message{op: opDrop, context: uint64(id)}) }, uint64(id))
		}
		r.outputs[i] = v
	}
	return nil
}

// lastLines passes on what the child writes to stderr, and keeps its end. Where the Go runtime of the
// child reports a signal, the end is what stands before the report, and the signal. Where TensorFlow
// reports a failed check, the end is what stands before the stack trace.
type lastLines struct {
	to io.Writer

	mu     sync.Mutex // guards the fields below
	end    []byte
	check  []byte // what stands before the stack trace of a failed check; nil without one
	signal string // "SIGABRT: abort"
}

// signalLine matches how the Go runtime begins its report of a signal.
var signalLine = regexp.MustCompile(`(?m)^(SIG[A-Z0-9]+: .*)\nPC=`)

// stackTrace begins the stack trace that TensorFlow 2.21 writes after the line of a failed check.
const stackTrace = "*** Check failure stack trace: ***"

// Write implements io.Writer. The report itself, with all goroutines and registers, is dropped: a
// failed CHECK is no fault of the Go code.
func (l *lastLines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.signal != "" {
		return len(b), nil
	}
	l.end = append(l.end, b...)
	if before, _, ok := bytes.Cut(l.end, []byte(stackTrace)); ok && l.check == nil {
		l.check = bytes.Clone(before)
	}
	if m := signalLine.FindSubmatchIndex(l.end); m != nil {
		l.signal, l.end = string(l.end[m[2]:m[3]]), l.end[:m[0]]
		return len(b), nil
	}
	if n := len(l.end) - keptBytes; n > 0 {
		l.end = append(l.end[:0], l.end[n:]...)
	}
	return l.to.Write(b)
}

// text returns the last lines in one, and the signal that the child has reported.
func (l *lastLines) text() (lines, signal string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	end := l.end
	if l.check != nil {
		end = l.check
	}
	all := bytes.Split(bytes.TrimSpace(end), []byte("\n"))
	all = all[max(0, len(all)-keptLines):]
	return strings.ToValidUTF8(string(bytes.Join(all, []byte(" / "))), "?"), l.signal
}
