package rendezvous

import (
	"context"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// CopyFunc copies v.Tensor from the sender's memory to the receiver's; at least
// one of the two is not host memory. key names the devices, v.SendArgs and
// recvArgs are their contexts. It must not block. It calls done once, from any
// goroutine, with an error or the copy, whose only reference done takes over. The
// caller keeps the reference of v and holds it until done is called.
type CopyFunc func(ctx context.Context, key Key, v Value, recvArgs Args, done func(*tensor.Tensor, error))

// IntraProcess is the rendezvous of a step that runs in one process: a Local that
// copies between the memories of different devices. A tensor in host memory is
// passed by reference.
type IntraProcess struct {
	local Local
	copy  CopyFunc
}

// NewIntraProcess returns an empty rendezvous. copy may be nil when all devices
// are CPUs.
func NewIntraProcess(copy CopyFunc) *IntraProcess {
	p := &IntraProcess{copy: copy}
	p.local.init()
	return p
}

// Send implements Rendezvous.
func (p *IntraProcess) Send(key Key, args Args, t *tensor.Tensor, dead bool) error {
	return p.local.send(key.text, args, t, dead)
}

// RecvAsync implements Rendezvous.
func (p *IntraProcess) RecvAsync(ctx context.Context, key Key, args Args, done DoneFunc) {
	if into := IntoOf(args); into != nil {
		p.local.recvIntoAsync(ctx, key, into, inline, done)
		return
	}
	if !fromCPU(&key) || !betweenHosts(&key, Args{}, args) {
		done = copied(ctx, p.copy, key, done)
	}
	p.local.recvAsync(ctx, key.text, args, done, false)
}

// Recv implements Rendezvous.
func (p *IntraProcess) Recv(ctx context.Context, key Key, args Args) (Value, error) {
	if into := IntoOf(args); into != nil {
		return p.local.recvInto(ctx, key, into)
	}
	v, err := p.local.recv(ctx, key.text, args, false)
	if err != nil || betweenHosts(&key, v.SendArgs, args) {
		return v, err
	}
	return copyNow(ctx, p.copy, key, v, args)
}

// Abort implements Rendezvous.
func (p *IntraProcess) Abort(err error) { p.local.Abort(err) }

// Restore is Local.Restore.
func (p *IntraProcess) Restore(key Key, v Value) bool { return p.local.Restore(key, v) }

// Close is Local.Close.
func (p *IntraProcess) Close() { p.local.Close() }

// betweenHosts reports whether both sides use host memory, so that no copy is
// needed. The memory of a CPU device is host memory.
func betweenHosts(key *Key, sendArgs, recvArgs Args) bool {
	return (sendArgs.Device == nil || key.src.Type == "CPU") &&
		(recvArgs.Device == nil || key.dst.Type == "CPU")
}

// fromCPU reports whether the tensor is in host memory, whatever the sender's
// Args.
func fromCPU(key *Key) bool { return key.src.Type == "CPU" }

// copyNow copies a value and waits for the copy.
func copyNow(ctx context.Context, copy CopyFunc, key Key, v Value, recvArgs Args) (Value, error) {
	return await(func(done DoneFunc) { copied(ctx, copy, key, done)(v, recvArgs, nil) })
}

// copied returns a DoneFunc that copies the value, if needed, and calls done.
func copied(ctx context.Context, copy CopyFunc, key Key, done DoneFunc) DoneFunc {
	d := &deviceCopy{ctx: ctx, copy: copy, key: key, done: done}
	return d.receive
}

// deviceCopy is the state of the DoneFunc of copied. A closure would move the
// Key of copied's caller to the heap even where nothing is copied.
type deviceCopy struct {
	ctx  context.Context
	copy CopyFunc
	key  Key
	done DoneFunc
}

func (d *deviceCopy) receive(v Value, args Args, err error) {
	switch {
	case err != nil || betweenHosts(&d.key, v.SendArgs, args):
		d.done(v, args, err)
	case d.copy == nil:
		v.release()
		d.done(Value{}, args, status.Errorf(status.Unimplemented,
			"Recv of %s: no way to copy from %v to %v in this process: it has no CopyFunc", d.key.Describe(), d.key.src, d.key.dst))
	default:
		d.copy(d.ctx, d.key, v, args, func(t *tensor.Tensor, err error) {
			v.release()
			if err != nil {
				d.done(Value{}, args, err)
				return
			}
			d.done(Value{Tensor: t, SendArgs: v.SendArgs, Dead: v.Dead}, args, nil)
		})
	}
}
