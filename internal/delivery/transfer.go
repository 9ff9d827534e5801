package delivery

import (
	"context"
	"errors"
	"time"

	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
)

// Transfer is one receive from its first request to its acknowledgement. It implements
// rendezvous.Transfer. The requester owns it.
type Transfer struct {
	transport.Receive // what a connection gets

	peer *peer // nil for a transfer that was refused

	// All below are guarded by peer.mu.

	// The state of the machine (requests.go).
	meant      uint64 // incarnation of the process that the key names
	sent       bool   // an attempt is under way, and its outcome counts
	reached    bool   // an attempt may have reached the process Peer
	generation uint64 // of the connection when it was sent
	losses     losses // of its attempts
	over       bool   // it has ended

	// The state of the shell (requester.go).
	done    rendezvous.DoneFunc // nil: somebody is in Wait, or will be
	attempt transport.Attempt   // under way; nil while Begin runs, too
	begun   bool                // an attempt is under way, or Begin runs
	claimed bool                // a goroutine waits for attempt, or will
	asked   time.Time           // when the receive began
	tries   int                 // attempts that have begun
	dropped bool                // the attempt is not wanted any more
	had     int64               // Partial.Bytes when the attempt began
	wake    chan struct{}       // wakes the goroutine in Wait; nil when it does not sleep
	value   rendezvous.Value    // the outcome for Wait
	err     error
}

// Wait returns what the transfer ends with. Only a receive that began without a
// callback has a Wait, which is called exactly once. The caller does the work of the
// attempts itself (it polls, or makes the call), so that nothing is handed from one
// goroutine to another. When ctx ends first, the transfer is cancelled.
func (t *Transfer) Wait(ctx context.Context) (rendezvous.Value, error) {
	p := t.peer
	if p == nil {
		return t.value, t.err
	}
	for ended := ctx.Done(); ; {
		p.mu.Lock()
		switch {
		case t.attempt != nil && !t.claimed:
			t.claimed = true
			p.mu.Unlock()
			t.work(ctx)
			continue
		case t.over:
			v, err := t.value, t.err
			p.mu.Unlock()
			return v, err
		case t.wake == nil:
			t.wake = make(chan struct{}, 1)
		}
		p.mu.Unlock()
		select {
		case <-t.wake:
		case <-ended:
			ended = nil
			t.Cancel(status.From(context.Cause(ctx)))
		}
	}
}

// Cancel ends the transfer with err, unless it has ended: it consumes nothing. It does
// not block.
func (t *Transfer) Cancel(err error) {
	p := t.peer
	if p == nil {
		return
	}
	p.mu.Lock()
	p.do(p.machine.cancel(time.Now(), t, err), nil)
}

// arrived completes the record of a value that has come. The value refers to it, and with it
// to the whole transfer: a record of its own would be one more allocation for each receive.
func (t *Transfer) arrived(now time.Time, size int64) rendezvous.Args {
	a := &t.Arrival
	a.Bytes, a.Duration, a.Attempts = size, max(0, now.Sub(t.asked)), t.tries
	return a.NewArgs()
}

// signalLocked wakes the goroutine in Wait.
func (t *Transfer) signalLocked() {
	select {
	case t.wake <- struct{}{}:
	default: // it does not sleep, or is woken already
	}
}

// endLocked sets the outcome and returns what has to be called without the lock, if
// anything.
func (t *Transfer) endLocked(v rendezvous.Value, err error) (callback func()) {
	if t.done == nil {
		t.value, t.err = v, err
		t.signalLocked()
		return nil
	}
	return func() { t.done(v, t.Args, err) }
}

// drop releases the memory that the transfer holds: it has ended, and no attempt of it is
// under way. It is called once, before the callback, perhaps with the lock held, so the owner
// of the memory is called on another goroutine.
func (t *Transfer) drop() {
	run := t.peer.requester.pool.Go
	t.Partial.DropBy(run)
	if t.Into != nil {
		t.Into.End(run)
	}
}

// work waits for the attempt that is under way and reports its outcome. The goroutine
// has claimed it.
func (t *Transfer) work(ctx context.Context) {
	p := t.peer
	defer p.requester.open.Done()
	v, err := t.attempt.Wait(ctx)
	now := t.Ended
	if now.IsZero() {
		now = time.Now()
	}
	p.mu.Lock()
	t.attempt, t.begun, t.claimed = nil, false, false
	switch {
	case t.over: // cancelled meanwhile
		p.mu.Unlock()
		t.drop()
		if err == nil {
			v.Tensor.Release()
		}
		return
	case p.retries(now, t, err):
		return
	}
	var size int64
	if err == nil {
		size = v.Tensor.Size()
		v.SendArgs = t.arrived(now, size)
	}
	acts := p.machine.answered(now, t, size, err)
	if own, ok := errors.AsType[*transport.ReceiverError](err); ok {
		err = own.Err
	} else if err != nil {
		err = status.From(err).FromPeer()
	}
	callback := t.endLocked(v, err)
	p.do(acts, nil)
	t.drop()
	if callback != nil {
		callback()
	}
}
