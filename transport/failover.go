package transport

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
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
// goroutine for each attempt that is under way and for each callback, and
// timers while there is something to say; Close waits for them.
type Failover struct {
	opts FailoverOptions
	base context.Context // of everything under way; its end is the end of Close
	stop context.CancelFunc

	mu     sync.Mutex
	peers  map[cluster.Task]*peer
	closed bool
	work   sync.WaitGroup // goroutines and callbacks, but for those of attempts

	crew *crew
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
	f := &Failover{opts: o, peers: make(map[cluster.Task]*peer), crew: newCrew()}
	f.base, f.stop = context.WithCancel(context.Background())
	return f
}

// peer is one task that is asked.
type peer struct {
	f    *Failover
	task cluster.Task
	wire Wire

	mu       sync.Mutex // guards what follows; never held while the wire or a callback is called
	machine  *asking
	receives map[uint64]*remoteReceive
	wake     *time.Timer
	logged   linkState // the state of the link that the log was told
	closed   bool
}

// remoteReceive is what the shell knows of a receive.
type remoteReceive struct {
	ask     Ask
	args    rendezvous.Args
	done    rendezvous.DoneFunc
	unwatch func() bool        // stops watching the receiver's context
	cancel  context.CancelFunc // ends the attempt that is under way; nil when none is
	partial Partial
}

// RecvFromRemoteAsync asks the task that the key's source is on; done runs once,
// on a goroutine of its own, and may block. The end of ctx cancels the receive:
// it ends at once with ctx's cause where that is a *status.Error, else with
// Cancelled or DeadlineExceeded, and consumes nothing.
func (f *Failover) RecvFromRemoteAsync(ctx context.Context, step int64, key rendezvous.Key, args rendezvous.Args, done rendezvous.DoneFunc) {
	p, err := f.peer(key.Src().Task)
	if err == nil && ctx.Err() != nil {
		err = cancelled(ctx)
	}
	if err != nil {
		f.refuse(done, args, err)
		return
	}
	r := &remoteReceive{args: args, done: done, ask: Ask{Asker: f.opts.Self, Step: step, Key: key}}
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		f.refuse(done, args, errReceiverClosed())
		return
	}
	for r.ask.ID == 0 || p.receives[r.ask.ID] != nil {
		r.ask.ID = rand.Uint64()
	}
	p.receives[r.ask.ID] = r
	if ctx.Done() != nil {
		r.unwatch = context.AfterFunc(ctx, func() { p.cancel(r.ask.ID, cancelled(ctx)) })
	}
	p.do(p.machine.recv(time.Now(), r.ask.ID, key.SrcIncarnation()))
}

func errReceiverClosed() error {
	return status.New(status.Cancelled, "the transport is closed").Derived()
}

// cancelled is the error of a receive whose context has ended.
func cancelled(ctx context.Context) error {
	var s *status.Error
	if cause := context.Cause(ctx); errors.As(cause, &s) {
		return s
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return status.New(status.DeadlineExceeded, "RecvFromRemoteAsync: the deadline passed before the value came").Derived()
	}
	return status.New(status.Cancelled, "RecvFromRemoteAsync is cancelled.").Derived()
}

// peer finds or makes the record of a task.
func (f *Failover) peer(task cluster.Task) (*peer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, errReceiverClosed()
	}
	if p := f.peers[task]; p != nil {
		return p, nil
	}
	wire, err := f.opts.Wire(task)
	if err != nil {
		return nil, err
	}
	p := &peer{
		f: f, task: task, wire: wire,
		machine:  newAsking(task.String(), f.opts.PeerTimeout),
		receives: make(map[uint64]*remoteReceive),
	}
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

func (p *peer) cancel(id uint64, why error) {
	p.mu.Lock()
	p.do(p.machine.cancel(time.Now(), id, why))
}

// do carries out actions. It is called with the lock held and gives it up.
// Everything that takes time is on a goroutine of its own.
func (p *peer) do(acts []askAction) { p.doBecause(acts, nil) }

// doBecause is do with the error that the event was, for the log.
func (p *peer) doBecause(acts []askAction, why error) {
	for _, a := range acts {
		switch a.kind {
		case askHello:
			p.f.work.Go(func() { p.hello(a.after) })
		case askSend:
			r := p.receives[a.id]
			ctx, cancel := context.WithCancel(p.f.base)
			r.cancel = cancel
			p.f.crew.Go(func() { p.attempt(ctx, cancel, r, a) })
		case askDrop:
			if r := p.receives[a.id]; r.cancel != nil {
				r.cancel()
			}
		case askEnd:
			r := p.receives[a.id]
			delete(p.receives, a.id)
			p.unwatch(r)
			if r.cancel == nil {
				r.partial.Drop() // else the attempt does when it has returned
			}
			p.f.work.Go(func() { r.done(rendezvous.Value{}, r.args, a.err) })
		case askFinish, askCancel:
			p.f.work.Go(func() { p.tell(a) })
		case askWake:
			p.wakeAfter(a.after)
		}
	}
	is, was, generation := p.machine.link, p.logged, p.machine.generation
	p.logged = is
	p.mu.Unlock()
	if is != was {
		p.log(is, was, generation, why)
	}
}

func (p *peer) unwatch(r *remoteReceive) {
	if r.unwatch != nil {
		r.unwatch()
	}
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

// attempt asks once and reports what came of it. When the receive ends with
// the answer, its callback runs here, on a goroutine that is the receive's own.
func (p *peer) attempt(ctx context.Context, cancel context.CancelFunc, r *remoteReceive, a askAction) {
	ask := r.ask
	ask.Attempt = a.attempt
	v, err := p.wire.Recv(ctx, &Attempt{
		Ask: ask, Plain: a.plain, Elsewhere: a.elsewhere, Peer: a.peer, Finished: a.finished,
		Args: r.args, Partial: &r.partial,
	})
	cancel()
	now := time.Now()
	p.mu.Lock()
	r.cancel = nil
	if p.receives[a.id] != r {
		p.mu.Unlock() // cancelled meanwhile
		r.partial.Drop()
		if err == nil {
			v.Tensor.Release()
		}
		return
	}
	var lost *LostError
	var restarted *RestartedError
	var elsewhere *ElsewhereError
	switch {
	case errors.As(err, &elsewhere):
		p.do(p.machine.elsewhere(now, a.id, a.attempt))
		return
	case errors.As(err, &lost):
		p.doBecause(p.machine.lost(now, a.id, a.attempt, lost.Err), lost.Err)
		return
	case errors.As(err, &restarted):
		r.partial.Drop()
		p.doBecause(p.machine.restarted(now, a.id, a.attempt, restarted.Err), restarted.Err)
		return
	}
	var size int64
	if err == nil {
		size = v.Tensor.Size()
	}
	acts := p.machine.answered(now, a.id, size, err)
	delete(p.receives, a.id)
	p.unwatch(r)
	p.do(acts)
	r.partial.Drop()
	r.done(v, r.args, err)
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
	for _, p := range peers {
		if err := p.untilQuiet(ctx); err != nil {
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
	f.crew.end()
	f.work.Wait()
	return ctx.Err()
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
		p.cancel(id, errReceiverClosed())
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
		quiet := p.machine.quiet()
		p.mu.Unlock()
		if quiet {
			return nil
		}
		if err := sleep(ctx, quietPoll); err != nil {
			return err
		}
	}
}
