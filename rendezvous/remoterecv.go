package rendezvous

import (
	"context"
	"sync"

	"github.com/tryst-rdma/tryst/status"
)

// methodRemote is what TensorFlow calls a remote receive in its errors.
const methodRemote = "RecvFromRemoteAsync"

// remoteRecv is a receive that the transport works on. It has a place in the list
// of its step, through which Abort ends it; its own context ends it as well, and
// the first of both is why.
//
// Records are used again, together with what they hand out: the transport has a
// record from begin to the end, its starter until began has returned, and who waits
// until it has the outcome. The watch of a context holds it as well: where that
// cannot be called off any more the record is left to the garbage collector.
type remoteRecv struct {
	b    *BaseRemote
	ctx  context.Context
	key  string
	args Args
	done DoneFunc // nil: somebody waits for the outcome

	ended   DoneFunc // its method of that name: what the transport calls
	given   func()   // cancel, for the watch of ctx
	outcome outcomes // takes what it ends with when somebody waits; made with the first wait

	// All below are guarded by b.mu.
	prev, next *remoteRecv
	call       RemoteRecv  // set by began
	unwatch    func() bool // set by began; nil when ctx never ends
	started    bool        // began has set both
	over       bool        // it has ended
	why        error       // it was ended early
}

// remoteRecvs keeps records that nobody has, linked by next.
type remoteRecvs struct {
	mu   sync.Mutex
	free *remoteRecv
	n    int
}

func (p *remoteRecvs) get() *remoteRecv {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.free
	if r == nil {
		r = new(remoteRecv)
		r.ended, r.given = r.end, r.gaveUp
		return r
	}
	p.free, r.next = r.next, nil
	p.n--
	return r
}

func (p *remoteRecvs) put(r *remoteRecv) {
	*r = remoteRecv{ended: r.ended, given: r.given, outcome: r.outcome}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.n < maxFreeRemote {
		p.free, r.next = r, p.free
		p.n++
	}
}

// begin enters a receive into the step's list and counts it, or says why it must
// not start.
func (b *BaseRemote) begin(ctx context.Context, key string, args Args, done DoneFunc) (*remoteRecv, error) {
	r := b.records.get()
	r.b, r.ctx, r.key, r.args, r.done = b, ctx, key, args, done
	if done == nil && r.outcome == nil {
		r.outcome = make(outcomes, 1)
	}
	b.mu.Lock()
	if err := b.local.Err(); err != nil { // Abort sets it before it takes mu
		b.mu.Unlock()
		b.records.put(r)
		return nil, err
	}
	if r.next = b.remote; r.next != nil {
		r.next.prev = r
	}
	b.remote = r
	b.run.enterLocked(1)
	b.mu.Unlock()
	return r, nil
}

// began takes the name that the transport gave to the receive, which may have
// ended meanwhile.
func (r *remoteRecv) began(call RemoteRecv) {
	var unwatch func() bool
	if r.ctx.Done() != nil {
		unwatch = context.AfterFunc(r.ctx, r.given)
	}
	b := r.b
	b.mu.Lock()
	r.call, r.unwatch, r.started = call, unwatch, true
	over, waits, why := r.over, r.done == nil, r.why
	b.mu.Unlock()
	switch {
	case over && !waits:
		b.settle(r, unwatch)
	case why != nil:
		call.Cancel(why)
	}
}

// end is the transport's callback.
func (r *remoteRecv) end(v Value, _ Args, err error) {
	b := r.b
	defer b.leave()
	b.mu.Lock()
	if r.prev != nil {
		r.prev.next = r.next
	} else {
		b.remote = r.next
	}
	if r.next != nil {
		r.next.prev = r.prev
	}
	r.over = true
	if err != nil {
		err = r.reasonLocked(err)
	}
	done, args, started, unwatch := r.done, r.args, r.started, r.unwatch
	outcome := r.outcome
	b.mu.Unlock()
	if done == nil {
		outcome.done(v, args, err) // who waits has the record from here on
		return
	}
	if started {
		b.settle(r, unwatch)
	}
	done(v, args, err)
}

// settle gives back a record that was started and has ended.
func (b *BaseRemote) settle(r *remoteRecv, unwatch func() bool) {
	if unwatch == nil || unwatch() {
		b.records.put(r)
	}
}

// reasonLocked returns why a receive has failed: a transport may report only that
// it was cancelled, and here it is known why.
func (r *remoteRecv) reasonLocked(err error) error {
	switch status.CodeOf(err) {
	case status.Cancelled, status.DeadlineExceeded:
		if r.why != nil {
			return r.why
		}
	}
	return err
}

// wait returns what the receive ends with, and gives the record back.
func (r *remoteRecv) wait(ctx context.Context) (Value, error) {
	b := r.b
	var o outcome
	select {
	case o = <-r.outcome:
	case <-ctx.Done():
		r.cancel(ended(ctx, methodRemote, r.key))
		o = <-r.outcome
	}
	b.records.put(r)
	return o.v, o.err
}

// gaveUp is the end of the context.
func (r *remoteRecv) gaveUp() { r.cancel(ended(r.ctx, methodRemote, r.key)) }

// cancel ends the receive early, unless it was before.
func (r *remoteRecv) cancel(err error) {
	b := r.b
	b.mu.Lock()
	first := r.why == nil && !r.over
	if first {
		r.why = err
	}
	call := r.call
	b.mu.Unlock()
	if first {
		call.Cancel(err) // by began, where it is not known yet
	}
}

// abandonLocked ends all remote receives early, and returns those that the
// transport has to be told of.
func (b *BaseRemote) abandonLocked(err error) (calls []RemoteRecv) {
	for r := b.remote; r != nil; r = r.next {
		if r.why == nil {
			r.why = err
			calls = append(calls, r.call)
		}
	}
	return calls
}
