package rendezvous

import (
	"container/list"
	"context"

	"github.com/tryst-rdma/tryst/status"
)

// remoteRecv is a receive that the transport works on. It has a place in the list of its
// step, through which Abort ends it. Its own context ends it as well, and the first of
// both is why.
type remoteRecv struct {
	b    *BaseRemote
	ctx  context.Context
	key  string
	done DoneFunc    // nil: the caller waits for the transfer, and the transfer watches ctx
	stop func() bool // ends the watch of ctx; nil when there is none

	// All below are guarded by b.mu.
	at       *list.Element // in b.remote
	transfer Transfer      // nil until began
	why      error         // it was ended early
}

// recvRemote hands a receive to the transport.
func (b *BaseRemote) recvRemote(ctx context.Context, key Key, args Args, done DoneFunc) {
	err := b.reaches(ctx, methodAsync, &key)
	if err == nil {
		var r *remoteRecv
		if r, err = b.begin(ctx, key.text, done); err == nil {
			r.began(b.remoter.RecvFromRemoteAsync(b.step, key, args, r.end))
			return
		}
	}
	b.fail(args, err, done)
}

// recvRemoteNow is recvRemote for a caller that waits.
func (b *BaseRemote) recvRemoteNow(ctx context.Context, key Key, args Args) (Value, error) {
	if err := b.reaches(ctx, methodRecv, &key); err != nil {
		return Value{}, err
	}
	r, err := b.begin(ctx, key.text, nil)
	if err != nil {
		return Value{}, err
	}
	t := b.remoter.RecvFromRemoteAsync(b.step, key, args, nil)
	r.began(t)
	v, err := t.Wait(ctx)
	err = r.over(err)
	b.leave()
	return v, err
}

// reaches returns why a receive cannot be handed to the transport.
func (b *BaseRemote) reaches(ctx context.Context, method string, key *Key) error {
	if err := ended(ctx, method, key.text); err != nil {
		return err
	}
	if b.remoter == nil {
		return status.Errorf(status.FailedPrecondition, "%s of %s: this process has no transport to reach %v", method, key.Describe(), key.src.Task)
	}
	return nil
}

// fail ends a remote receive that did not reach the transport, on a goroutine
// of its own as its caller may rely on; after Close on the caller's.
func (b *BaseRemote) fail(args Args, err error, done DoneFunc) {
	b.goRun(func() { done(Value{}, args, err) })
}

// goRun runs f on a goroutine of its own, and after Close on the caller's.
func (b *BaseRemote) goRun(f func()) {
	b.mu.Lock()
	closed := b.closed
	if !closed {
		b.run.enterLocked(1)
	}
	b.mu.Unlock()
	if closed {
		f()
		return
	}
	go func() {
		defer b.leave()
		f()
	}()
}

func (b *BaseRemote) leave() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.run.leaveLocked(1)
}

// begin enters a receive into the step's list and counts it, or returns why it must not
// start.
func (b *BaseRemote) begin(ctx context.Context, key string, done DoneFunc) (*remoteRecv, error) {
	r := &remoteRecv{b: b, ctx: ctx, key: key, done: done}
	b.mu.Lock()
	if err := b.local.Err(); err != nil { // Abort sets it before it takes mu
		b.mu.Unlock()
		return nil, err
	}
	r.at = b.remote.PushBack(r)
	b.run.enterLocked(1)
	b.mu.Unlock()
	if done != nil && ctx.Done() != nil {
		r.stop = context.AfterFunc(ctx, r.cancel)
	}
	return r, nil
}

// began takes the transfer, which may have ended meanwhile, or has to.
func (r *remoteRecv) began(t Transfer) {
	r.b.mu.Lock()
	r.transfer = t
	why := r.why
	r.b.mu.Unlock()
	if why != nil {
		t.Cancel(why)
	}
}

// end is the callback of the transfer.
func (r *remoteRecv) end(v Value, args Args, err error) {
	defer r.b.leave()
	if r.stop != nil {
		r.stop()
	}
	r.done(v, args, r.over(err))
}

// over removes a receive that has ended from the list, and returns its error. The cause of an early
// end comes first, then the end of the context, then the error of the transport, which only follows
// from these or from the network.
func (r *remoteRecv) over(err error) error {
	var late error // asked without the lock: a foreign context may run code of its own
	if err != nil {
		late = ended(r.ctx, r.method(), r.key)
	}
	r.b.mu.Lock()
	r.b.remote.Remove(r.at)
	why := r.why
	r.b.mu.Unlock()
	switch status.CodeOf(err) {
	case status.Cancelled, status.DeadlineExceeded, status.Unavailable, status.Unknown:
		if why != nil {
			return why
		}
		if late != nil {
			return late
		}
	}
	return err
}

// method returns what the caller called.
func (r *remoteRecv) method() string {
	if r.done == nil {
		return methodRecv
	}
	return methodAsync
}

// cancel ends the receive at the end of its context.
func (r *remoteRecv) cancel() {
	err := ended(r.ctx, r.method(), r.key)
	r.b.mu.Lock()
	first := r.why == nil
	if first {
		r.why = err
	}
	t := r.transfer
	r.b.mu.Unlock()
	if first && t != nil { // without a transfer, began cancels the one that it gets
		t.Cancel(err)
	}
}

// abandonLocked ends all remote receives early, and returns the transfers to cancel.
func (b *BaseRemote) abandonLocked(err error) (transfers []Transfer) {
	for at := b.remote.Front(); at != nil; at = at.Next() {
		r, _ := at.Value.(*remoteRecv)
		if r.why != nil {
			continue
		}
		r.why = err
		if r.transfer != nil { // without one, began cancels the one that it gets
			transfers = append(transfers, r.transfer)
		}
	}
	return transfers
}
