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
// until it has the outcome. One whose context has ended is not used again.
type remoteRecv struct {
	b    *BaseRemote
	ctx  context.Context
	key  string
	args Args
	done DoneFunc // nil: somebody waits for the outcome

	ended DoneFunc      // its method of that name: what the transport calls
	given func()        // gaveUp, for the end of ctx, and for who works for the receive
	stop  func() bool   // ends the watch of ctx; nil when there is none
	wake  chan struct{} // tells who sleeps that it has ended; made with the first wait

	// All below are guarded by b.mu.
	prev, next *remoteRecv
	call       RemoteRecv // set by began
	started    bool       // began has set it
	over       bool       // it has ended
	watched    bool       // with that, when given may still be called
	got        outcome    // with that, when somebody waits
	asleep     bool       // who waits is to be woken
	why        error      // it was ended early
}

// remoteRecvs keeps records that nobody has, linked by next.
type remoteRecvs struct {
	mu   sync.Mutex
	free *remoteRecv
	n    int
}

func (p *remoteRecvs) get() *remoteRecv {
	p.mu.Lock()
	r := p.free
	if r != nil {
		p.free, r.next = r.next, nil
		p.n--
	}
	p.mu.Unlock()
	if r == nil {
		r = new(remoteRecv)
		r.ended, r.given = r.end, r.gaveUp
	}
	return r
}

func (p *remoteRecvs) put(r *remoteRecv) {
	*r = remoteRecv{ended: r.ended, given: r.given, wake: r.wake}
	p.mu.Lock()
	if p.n < maxFreeRemote {
		p.free, r.next = r, p.free
		p.n++
	}
	p.mu.Unlock()
}

// begin enters a receive into the step's list and counts it, or says why it must
// not start. Without done its caller waits, and watches ctx itself.
func (b *BaseRemote) begin(ctx context.Context, key string, args Args, done DoneFunc) (*remoteRecv, error) {
	r := b.records.get()
	r.b, r.ctx, r.key, r.args, r.done = b, ctx, key, args, done
	if done == nil && r.wake == nil {
		r.wake = make(chan struct{}, 1)
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
	if done != nil && ctx.Done() != nil {
		r.stop = context.AfterFunc(ctx, r.given)
	}
	return r, nil
}

// began takes the name that the transport gave to the receive, which may have
// ended meanwhile.
func (r *remoteRecv) began(call RemoteRecv) {
	b := r.b
	b.mu.Lock()
	r.call, r.started = call, true
	over, waits, why, watched := r.over, r.done == nil, r.why, r.watched
	b.mu.Unlock()
	switch {
	case over && !waits:
		if !watched {
			b.records.put(r)
		}
	case why != nil:
		call.Cancel(why)
	}
}

// end is the transport's callback.
func (r *remoteRecv) end(v Value, _ Args, err error) {
	b := r.b
	watched := r.stop != nil && !r.stop()
	var late error // before the lock is taken: a foreign context may run code of its own
	if err != nil {
		late = ended(r.ctx, methodRemote, r.key)
	}
	b.mu.Lock()
	if r.prev != nil {
		r.prev.next = r.next
	} else {
		b.remote = r.next
	}
	if r.next != nil {
		r.next.prev = r.prev
	}
	r.over, r.watched = true, watched
	if err != nil {
		err = r.reasonLocked(err, late)
	}
	if r.done == nil { // who waits, and looks after its context itself, has the record from here on
		r.got = outcome{v, err}
		asleep, wake := r.asleep, r.wake
		b.run.leaveLocked(1)
		b.mu.Unlock()
		if asleep {
			wake <- struct{}{} // never blocks: it is sent once
		}
		return
	}
	done, args, started := r.done, r.args, r.started
	b.mu.Unlock()
	defer b.leave()
	if started && !watched {
		b.records.put(r)
	}
	done(v, args, err)
}

// reasonLocked returns why a receive has failed. What ended it early, or else late, the end of
// its context, comes before what a transport reports of that and of the network.
func (r *remoteRecv) reasonLocked(err, late error) error {
	switch status.CodeOf(err) {
	case status.Cancelled, status.DeadlineExceeded, status.Unavailable, status.Unknown:
		if r.why != nil {
			return r.why
		}
		if late != nil {
			return late
		}
	}
	return err
}

// wait returns what the receive ends with, and gives the record back. Most have ended by
// the time that it is called, by the work of their caller.
func (r *remoteRecv) wait(ctx context.Context) (Value, error) {
	b := r.b
	b.mu.Lock()
	over := r.over
	r.asleep = !over
	b.mu.Unlock()
	if !over {
		select {
		case <-r.wake:
		case <-ctx.Done():
			r.cancel(ended(ctx, methodRemote, r.key))
			<-r.wake
		}
	}
	got := r.got
	b.records.put(r)
	return got.v, got.err
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
