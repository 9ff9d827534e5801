package rendezvous

import (
	"context"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// CopyFunc copies v.Tensor from the sender's memory to the receiver's, where at
// least one of the two is not host memory: key names the devices, v.SendArgs
// and recvArgs their contexts. It must not block, and calls done once, from any
// goroutine, with the copy, whose one reference it gives away, or an error. The
// reference of v stays its caller's, who keeps it until done is called.
type CopyFunc func(ctx context.Context, key Key, v Value, recvArgs Args, done func(*tensor.Tensor, error))

// IntraProcess is the rendezvous of a step that never leaves the process: a
// Local that copies between the memories of different devices. Host memory is
// handed over by reference.
type IntraProcess struct {
	local Local
	copy  CopyFunc
}

// NewIntraProcess returns an empty rendezvous. copy may be nil when all devices
// are hosts.
func NewIntraProcess(copy CopyFunc) *IntraProcess {
	p := &IntraProcess{copy: copy}
	p.local.init()
	return p
}

// Send implements Rendezvous.
func (p *IntraProcess) Send(key Key, args Args, t *tensor.Tensor, dead bool) error {
	return p.local.Send(key, args, t, dead)
}

// RecvAsync implements Rendezvous.
func (p *IntraProcess) RecvAsync(ctx context.Context, key Key, args Args, done DoneFunc) {
	p.local.recvCopied(ctx, p.copy, key, args, done)
}

// Recv implements Rendezvous.
func (p *IntraProcess) Recv(ctx context.Context, key Key, args Args) (Value, error) {
	return p.local.recvCopiedWait(ctx, p.copy, key, args)
}

// Abort implements Rendezvous.
func (p *IntraProcess) Abort(err error) { p.local.Abort(err) }

// Restore is Local.Restore.
func (p *IntraProcess) Restore(key Key, v Value) bool { return p.local.Restore(key, v) }

// Close is Local.Close.
func (p *IntraProcess) Close() { p.local.Close() }

// betweenHosts reports whether both sides are in host memory. Without the
// sender's args, which come with the value, it may say false for a key whose
// sender turns out to be on a host.
func betweenHosts(key Key, sendArgs, recvArgs Args) bool {
	return (sendArgs.OnHost || key.src.Type == "CPU" || key.SrcEmpty()) &&
		(recvArgs.OnHost || key.dst.Type == "CPU")
}

// recvCopied is RecvAsync into the memory of the receiver's device.
func (l *Local) recvCopied(ctx context.Context, copy CopyFunc, key Key, args Args, done DoneFunc) {
	if !betweenHosts(key, Args{}, args) {
		done = copied(ctx, copy, key, done)
	}
	l.RecvAsync(ctx, key, args, done)
}

// recvCopiedWait is Recv into the memory of the receiver's device.
func (l *Local) recvCopiedWait(ctx context.Context, copy CopyFunc, key Key, args Args) (Value, error) {
	v, err := l.Recv(ctx, key, args)
	if err != nil || betweenHosts(key, v.SendArgs, args) {
		return v, err
	}
	return await(func(done DoneFunc) { copied(ctx, copy, key, done)(v, args, nil) })
}

// copied returns a DoneFunc that copies the value where needed and then calls
// done.
func copied(ctx context.Context, copy CopyFunc, key Key, done DoneFunc) DoneFunc {
	return func(v Value, args Args, err error) {
		switch {
		case err != nil || betweenHosts(key, v.SendArgs, args):
			done(v, args, err)
		case copy == nil:
			v.release()
			done(Value{}, args, status.Errorf(status.Unimplemented,
				"Recv of %s: no way to copy from %v to %v in this process", key, key.src, key.dst))
		default:
			copy(ctx, key, v, args, func(t *tensor.Tensor, err error) {
				v.release()
				if err != nil {
					done(Value{}, args, err)
					return
				}
				v.Tensor = t
				done(v, args, nil)
			})
		}
	}
}
