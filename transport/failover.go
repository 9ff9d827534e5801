package transport

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
)

// FailoverOptions configures a Failover.
type FailoverOptions struct {
	// Self is this process, as it names itself to its peers.
	Self Asker
	// Wire returns the wire to a task; its error ends the receive.
	Wire func(cluster.Task) (Wire, error)
	// PeerTimeout is how long no wire may reach a peer before its receives
	// end with Unavailable; DefaultPeerTimeout when 0.
	PeerTimeout time.Duration
	// Logger is told when a peer is lost and found; none when nil.
	Logger *slog.Logger
}

// Failover is the receiver's side of section 6 of ARCHITECTURE.md: it asks for
// values and asks again until each receive has ended exactly once. It owns a
// goroutine for each attempt that is under way, unless a caller works for it, and for each
// callback, and timers while there is something to say; Close waits for them.
type Failover struct {
	opts FailoverOptions
	base context.Context // of everything under way; its end is the end of Close
	stop context.CancelFunc

	last atomic.Pointer[peer] // the one that was asked last: the next receive is from there, too, as a rule

	mu     sync.Mutex
	peers  map[cluster.Task]*peer
	closed bool
	work   sync.WaitGroup // goroutines and callbacks, but for those of attempts

	open sync.WaitGroup        // attempts under way: on the crew, with a caller, or with the wire
	crew *crew[*remoteReceive] // makes attempts
}

// NewFailover returns a Failover without peers; they are reached when first
// asked.
func NewFailover(o FailoverOptions) *Failover {
	if o.PeerTimeout == 0 {
		o.PeerTimeout = DefaultPeerTimeout
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	f := &Failover{opts: o, peers: make(map[cluster.Task]*peer), crew: newCrew((*remoteReceive).attempted)}
	f.base, f.stop = context.WithCancel(context.Background())
	return f
}

// peer is one task that is asked.
type peer struct {
	f       *Failover
	task    cluster.Task
	wire    Wire
	starter Starter // wire, when it is one; else nil

	mu       sync.Mutex // guards what follows; never held while the wire or a callback is called
	machine  *asking
	receives map[uint64]*remoteReceive
	free     []*remoteReceive // for use again
	wake     *time.Timer
	logged   linkState // the state of the link that the log was told
	closed   bool
}

// remoteReceive is what the shell knows of a receive. It is used again when the
// receive has ended and no attempt of it is under way.
type remoteReceive struct {
	peer    *peer
	attempt Attempt // the one that is under way, or the last one
	done    rendezvous.DoneFunc
	partial Partial
	had     int64  // bytes of partial when the attempt began
	ready   func() // has the outcome of pending taken; made once

	// Of the attempt that is under way, guarded by peer.mu.
	underWay bool
	dropped  bool
	pending  Pending            // the wire has begun it
	ctx      context.Context    // else: of the wire's Recv
	cancel   context.CancelFunc // of ctx
}

// RecvFromRemoteAsync asks the task that the key's source is on; done runs once,
// on a goroutine of its own, and may block. What it returns cancels the receive:
// it ends at once with the error that is given there, and consumes nothing.
func (f *Failover) RecvFromRemoteAsync(step int64, key rendezvous.Key, args rendezvous.Args, done rendezvous.DoneFunc) rendezvous.RemoteRecv {
	r, _ := f.recv(step, key, args, done, false)
	return r
}

// RecvFromRemote is RecvFromRemoteAsync for a caller that waits: what a Starter has begun
// it waits for itself, and is handed nothing (rendezvous.BlockingRemoter).
func (f *Failover) RecvFromRemote(step int64, key rendezvous.Key, args rendezvous.Args, done rendezvous.DoneFunc) (rendezvous.RemoteRecv, rendezvous.RemoteWork) {
	return f.recv(step, key, args, done, true)
}

// recv begins a receive. With waits the work is the caller's, if there is some already.
func (f *Failover) recv(step int64, key rendezvous.Key, args rendezvous.Args, done rendezvous.DoneFunc, waits bool) (rendezvous.RemoteRecv, rendezvous.RemoteWork) {
	p, err := f.peer(key.Src().Task)
	if err != nil {
		f.refuse(done, args, err)
		return rendezvous.RemoteRecv{}, nil
	}
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		f.refuse(done, args, errReceiverClosed())
		return rendezvous.RemoteRecv{}, nil
	}
	id := rand.Uint64()
	for id == 0 || p.receive(id) != nil {
		id = rand.Uint64()
	}
	r := p.newReceive()
	r.done, r.attempt.Args = done, args
	r.attempt.Ask = Ask{Asker: f.opts.Self, ID: id, Step: step, Key: key}
	p.receives[id] = r
	now := time.Now()
	acts := p.machine.recv(now, id, key.SrcIncarnation())
	call := rendezvous.RemoteRecv{By: p, ID: id}
	if len(acts) == 1 && acts[0].kind == askSend { // as a rule: the link is up, and stays so
		p.sendLocked(r, &acts[0], now)
		p.mu.Unlock()
		if p.begin(r, waits) {
			return call, r
		}
		return call, nil
	}
	p.do(acts) // it looks for the peer, if anything: what is begun then is the crew's
	return call, nil
}

// receive finds a receive that has not ended; nil when there is none. Called with the lock
// held.
func (p *peer) receive(id uint64) *remoteReceive {
	r := p.receives[id]
	return r
}

// newReceive takes a record that is free, or makes one. Called with the lock held.
func (p *peer) newReceive() *remoteReceive {
	if n := len(p.free); n > 0 {
		r := p.free[n-1]
		p.free = p.free[:n-1]
		return r
	}
	r := &remoteReceive{peer: p}
	r.ready = func() { p.f.crew.Go(r) }
	r.attempt.Partial = &r.partial
	return r
}

// recycle keeps a record that nobody has. Called with the lock held.
func (p *peer) recycle(r *remoteReceive) {
	if len(p.free) < maxFree {
		*r = remoteReceive{peer: p, attempt: Attempt{Partial: &r.partial}, ready: r.ready}
		p.free = append(p.free, r)
	}
}

// CancelRecv implements rendezvous.Canceler.
func (p *peer) CancelRecv(id uint64, why error) {
	p.mu.Lock()
	p.do(p.machine.cancel(time.Now(), id, why))
}

func errReceiverClosed() error {
	return status.New(status.Cancelled, "the transport is closed").Derived()
}

// peer finds or makes the record of a task.
func (f *Failover) peer(task cluster.Task) (*peer, error) {
	if p := f.last.Load(); p != nil && p.task == task {
		return p, nil // if it is closed, it says so
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, errReceiverClosed()
	}
	if p := f.peers[task]; p != nil {
		f.last.Store(p)
		return p, nil
	}
	wire, err := f.opts.Wire(task)
	if err != nil {
		return nil, err
	}
	p := &peer{f: f, task: task, wire: wire, receives: make(map[uint64]*remoteReceive)}
	muchKept := int64(DefaultMuchKept)
	if p.starter, _ = wire.(Starter); p.starter != nil {
		muchKept = p.starter.MuchKept()
	}
	p.machine = newAsking(task.String(), f.opts.PeerTimeout, muchKept)
	f.peers[task] = p
	return p, nil
}

// refuse ends a receive that did not begin. Once closed nothing may be added to
// what Close waits for, and the callback is its caller's affair.
func (f *Failover) refuse(done rendezvous.DoneFunc, args rendezvous.Args, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if end := func() { done(rendezvous.Value{}, args, err) }; f.closed {
		go end()
	} else {
		f.work.Go(end)
	}
}

// do carries out actions. It is called with the lock held and gives it up.
// Everything that takes time is on a goroutine of its own.
func (p *peer) do(acts []askAction) { p.doBecause(acts, nil) }

// wireCall is what the wire is to be told when the lock has been given up: to begin
// an attempt, or that one is dropped.
type wireCall struct {
	r       *remoteReceive // begin; nil: drop
	pending Pending
	id      uint64
}

// doBecause is do with the error that the event was, for the log.
func (p *peer) doBecause(acts []askAction, why error) {
	var few [4]wireCall // most events have one
	calls := few[:0]
	for i := range acts {
		a := &acts[i]
		switch a.kind {
		case askHello:
			after := a.after
			p.f.work.Go(func() { p.hello(after) })
		case askSend:
			r := p.receive(a.id)
			p.sendLocked(r, a, time.Now())
			calls = append(calls, wireCall{r: r})
		case askDrop:
			r := p.receive(a.id)
			r.dropped = true
			switch {
			case r.pending != nil:
				calls = append(calls, wireCall{pending: r.pending, id: a.id})
			case r.cancel != nil:
				r.cancel()
			}
		case askEnd:
			r := p.receive(a.id)
			delete(p.receives, a.id)
			done, args, err := r.done, r.attempt.Args, a.err
			p.f.work.Go(func() { done(rendezvous.Value{}, args, err) })
			if !r.underWay { // else the attempt does it when it has returned
				r.partial.Drop()
				p.recycle(r)
			}
		case askFinish, askCancel:
			say := *a
			p.f.work.Go(func() { p.tell(say) })
		case askWake:
			p.wakeAfter(a.after)
		}
	}
	is, was, generation, closed := p.machine.link, p.logged, p.machine.generation, p.closed
	p.logged = is
	p.mu.Unlock()
	if is != was && !closed { // who closes does not wait for the peer
		p.log(is, was, generation, why)
	}
	for i := range calls {
		c := &calls[i]
		if c.r == nil {
			c.pending.Drop(c.id)
			continue
		}
		p.begin(c.r, false)
	}
}

// sendLocked notes the attempt that an askSend wants now. Its begin follows.
func (p *peer) sendLocked(r *remoteReceive, a *askAction, now time.Time) {
	r.underWay = true
	r.attempt.Began, r.attempt.Ended = now, time.Time{}
	r.attempt.Attempt, r.attempt.Plain, r.attempt.Elsewhere = a.attempt, a.plain, a.elsewhere
	r.attempt.Peer, r.attempt.Finished, r.attempt.Cancelled = a.peer, a.finished, a.cancelled
	r.had = r.partial.Bytes
	p.f.open.Add(1)
}

// begin begins an attempt, when the lock has been given up. It reports whether the caller,
// if it waits, has to do what there is to do for it (Work).
func (p *peer) begin(r *remoteReceive, waits bool) bool {
	switch pending := p.start(r); {
	case pending != nil && waits:
		return true
	case pending == nil, !pending.Watch(r.ready): // else ready is called when there is an outcome
		p.f.crew.Go(r)
	}
	return false
}

// start begins an attempt.
func (p *peer) start(r *remoteReceive) Pending {
	var pending Pending
	if p.starter != nil {
		pending = p.starter.Start(&r.attempt)
	}
	p.mu.Lock()
	r.pending = pending
	if pending == nil {
		r.ctx, r.cancel = context.WithCancel(p.f.base)
	}
	dropped, cancel, id := r.dropped, r.cancel, r.attempt.ID
	p.mu.Unlock()
	switch { // while it was begun
	case !dropped:
	case pending == nil:
		cancel()
	default:
		pending.Drop(id)
	}
	return pending
}

// Work implements rendezvous.RemoteWork.
func (r *remoteReceive) Work(ctx context.Context, gaveUp func()) {
	if !r.pending.Await(ctx) {
		gaveUp() // and Wait returns soon
	}
	r.attempted()
}

// wakeAfter asks for a tick. Called with the lock held.
func (p *peer) wakeAfter(d time.Duration) {
	if p.wake == nil {
		p.wake = time.AfterFunc(d, func() {
			p.mu.Lock()
			if p.closed { // everything has been said, or cannot be
				p.mu.Unlock()
				return
			}
			p.do(p.machine.tick(time.Now()))
		})
		return
	}
	p.wake.Reset(d)
}

// helloWait bounds one Hello, so that an address that swallows packets is tried
// again in time.
const helloWait = 2 * time.Second

func (p *peer) hello(after time.Duration) {
	var who Peer
	err := sleep(p.f.base, after)
	if err == nil {
		ctx, cancel := context.WithTimeout(p.f.base, min(helloWait, p.f.opts.PeerTimeout))
		who, err = p.wire.Hello(ctx)
		cancel()
	}
	if p.f.base.Err() != nil {
		return // closed
	}
	p.mu.Lock()
	p.doBecause(p.machine.hello(time.Now(), who, err), err)
}

// log tells of a change of the link.
func (p *peer) log(is, was linkState, generation uint64, why error) {
	l := p.f.opts.Logger.With("peer", p.task.String())
	switch {
	case is == linkUp && generation > 1:
		l.Info("peer reached again")
	case is == linkUp:
		l.Debug("peer reached")
	case was == linkUp:
		l.Info("connection to peer lost", "error", why)
	case is == linkNone:
		l.Warn("peer given up", "error", why)
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// attempted waits for an attempt and reports what came of it. When the receive ends
// with the answer, its callback runs here, on a goroutine that is the receive's own, or
// its caller's (Work).
func (r *remoteReceive) attempted() {
	p := r.peer
	defer p.f.open.Done()
	var v rendezvous.Value
	var err error
	if r.pending != nil {
		v, err = r.pending.Wait()
	} else {
		v, err = p.wire.Recv(r.ctx, &r.attempt)
		r.cancel()
	}
	now := r.attempt.Ended
	if now.IsZero() {
		now = time.Now()
	}
	id := r.attempt.ID
	p.mu.Lock()
	r.pending, r.ctx, r.cancel, r.underWay = nil, nil, nil, false
	if p.receive(id) != r { // cancelled meanwhile
		partial := r.partial
		p.recycle(r)
		p.mu.Unlock()
		partial.Drop()
		if err == nil {
			v.Tensor.Release()
		}
		return
	}
	var size int64
	if err == nil {
		size = v.Tensor.Size()
	} else if p.askedAgain(now, r, err) {
		return
	}
	acts := p.machine.answered(now, id, size, err)
	if own, ok := errors.AsType[*ReceiverError](err); ok {
		err = own.Err
	}
	delete(p.receives, id)
	done, args, partial := r.done, r.attempt.Args, r.partial
	p.recycle(r)
	if len(acts) > 0 {
		p.do(acts)
	} else { // as a rule: the link is as it was
		p.mu.Unlock()
	}
	partial.Drop()
	done(v, args, err)
}

// askedAgain reports an attempt that has ended without an answer: the receive has
// not. Called with the lock held; then it has been given up.
func (p *peer) askedAgain(now time.Time, r *remoteReceive, err error) bool {
	var lost *LostError
	var restarted *RestartedError
	var elsewhere *ElsewhereError
	id, attempt := r.attempt.ID, r.attempt.Attempt
	switch {
	case errors.As(err, &elsewhere):
		p.do(p.machine.elsewhere(now, id, attempt))
	case errors.As(err, &lost):
		p.doBecause(p.machine.lost(now, id, attempt, r.partial.Bytes > r.had, lost.Err), lost.Err)
	case errors.As(err, &restarted):
		r.partial.Drop()
		p.doBecause(p.machine.restarted(now, id, attempt, restarted.Err), restarted.Err)
	default:
		return false
	}
	return true
}

// tell says finished or cancelled.
func (p *peer) tell(a askAction) {
	ctx, cancel := context.WithTimeout(p.f.base, p.f.opts.PeerTimeout)
	defer cancel()
	var err error
	if a.kind == askFinish {
		err = p.wire.Finish(ctx, a.finished)
	} else {
		err = p.wire.Cancel(ctx, a.finished)
	}
	p.mu.Lock()
	p.doBecause(p.machine.told(time.Now(), a, err), err)
}

// Close ends every receive with Cancelled, says to the peers what they have to
// know, and waits for all callbacks; what is not done when ctx ends is cut off,
// and Close returns when the last callback has.
func (f *Failover) Close(ctx context.Context) error {
	f.mu.Lock()
	f.closed = true
	peers := f.peers
	f.peers = nil
	f.mu.Unlock()
	for _, p := range peers {
		p.close()
	}
	var cut error
	for _, p := range peers {
		if err := p.untilQuiet(ctx); err != nil {
			cut = status.Errorf(status.CodeOf(err), "telling %v which receives are finished or cancelled was cut off: %w", p.task, err)
			break
		}
	}
	f.stop()
	for _, p := range peers {
		p.mu.Lock()
		if p.wake != nil {
			p.wake.Stop()
		}
		p.mu.Unlock()
	}
	f.open.Wait()
	f.crew.end()
	f.work.Wait()
	return cut
}

func (p *peer) close() {
	p.mu.Lock()
	p.closed = true
	var ids []uint64
	for id := range p.receives {
		ids = append(ids, id)
	}
	p.mu.Unlock()
	for _, id := range ids {
		p.CancelRecv(id, errReceiverClosed())
	}
	p.mu.Lock()
	p.do(p.machine.close(time.Now()))
}

// quietPoll is how often Close looks whether everything has been said. It is
// the only place that waits by looking: closing is rare, and nothing else has
// to carry a condition for it.
const quietPoll = time.Millisecond

func (p *peer) untilQuiet(ctx context.Context) error {
	for {
		p.mu.Lock()
		quiet := p.machine.quiet(time.Now())
		p.mu.Unlock()
		if quiet {
			return nil
		}
		if err := sleep(ctx, quietPoll); err != nil {
			return err
		}
	}
}
