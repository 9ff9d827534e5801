package delivery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
)

// RequesterOptions configures a Requester.
type RequesterOptions struct {
	// Self is this process, as it identifies itself to its peers.
	Self transport.Process
	// Conn returns the connection to a task; its error ends the receive.
	Conn func(cluster.Task) (transport.Conn, error)
	// PeerTimeout is how long a peer may be out of reach before its receives end with
	// Unavailable; DefaultPeerTimeout when 0.
	PeerTimeout time.Duration
	// AckBytes is how many bytes a peer may keep for responses that have arrived before
	// they are acknowledged without a request; DefaultAckBytes when 0.
	AckBytes int64
	// Logger logs that a peer is lost and found; nothing is logged when nil.
	Logger *slog.Logger
	// ConnLogs says that the connections log by themselves when they break and come back. The
	// Requester then does so at DEBUG.
	ConnLogs bool
}

// Requester is the receiving side of ARCHITECTURE.md section 6: it requests values, and
// requests them again until each transfer has ended exactly once. It is safe for
// concurrent use. It owns a goroutine for each attempt that is under way, unless a caller
// waits for it, and for each callback, and timers while there is something to send. Close
// waits for them.
type Requester struct {
	opts RequesterOptions
	base context.Context // of everything under way; ends in Close
	stop context.CancelFunc
	pool *pool
	open sync.WaitGroup // attempts under way

	mu     sync.Mutex
	peers  map[cluster.Task]*peer
	debts  map[cluster.Task]pastDebt // to tasks that have left the cluster
	forget *time.Timer               // of the oldest debt; nil without one
	closed bool
}

// NewRequester returns a Requester without peers. A peer is reached with its first
// receive.
func NewRequester(o RequesterOptions) *Requester {
	if o.PeerTimeout == 0 {
		o.PeerTimeout = transport.DefaultPeerTimeout
	}
	if o.AckBytes == 0 {
		o.AckBytes = DefaultAckBytes
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	r := &Requester{opts: o, peers: make(map[cluster.Task]*peer), debts: make(map[cluster.Task]pastDebt), pool: newPool()}
	r.base, r.stop = context.WithCancel(context.Background())
	return r
}

// peer is one task that receives come from.
type peer struct {
	requester *Requester
	task      cluster.Task
	conn      transport.Conn

	mu      sync.Mutex // guards what follows, and transfers; never held while conn or a callback runs
	machine *requests
	timer   *time.Timer
	logged  connState // the state that was logged last
	failed  int       // receives that have ended since the peer was reached, since it was not
	missed  error     // why it is not reached; nil while it is
	closed  bool
	left    error // why the task has left the cluster; nil while it is in it
}

// RecvFromRemoteAsync requests the value from the task that the key's source is on. It
// does not block. done runs once, on a goroutine of its own, and may block. With a nil
// done the caller calls Wait of the transfer, once.
func (r *Requester) RecvFromRemoteAsync(step int64, key rendezvous.Key, args rendezvous.Args, done rendezvous.DoneFunc) rendezvous.Transfer {
	return r.RecvFrom(key.Src().Task, step, key, args, done)
}

// RecvFrom is RecvFromRemoteAsync from a task that the key's source may name otherwise.
func (r *Requester) RecvFrom(task cluster.Task, step int64, key rendezvous.Key, args rendezvous.Args, done rendezvous.DoneFunc) rendezvous.Transfer {
	t := &Transfer{meant: key.SrcIncarnation(), done: done}
	t.Args = args
	t.Request = transport.Request{Requester: r.opts.Self, ID: rand.Uint64N(1<<64-1) + 1, Step: step, Key: key}
	p, err := r.peer(task)
	if err == nil {
		err = p.receive(t)
	}
	if err != nil {
		r.refuse(t, err)
	}
	return t
}

func errRequesterClosed() error {
	return status.New(status.Cancelled, "the transport is closed").Derived()
}

// peer finds or makes the record of a task.
func (r *Requester) peer(task cluster.Task) (*peer, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, errRequesterClosed()
	}
	if p := r.peers[task]; p != nil {
		return p, nil
	}
	conn, err := r.opts.Conn(task)
	if err != nil {
		return nil, err
	}
	p := &peer{requester: r, task: task, conn: conn}
	p.machine = newRequests(task.String(), r.opts.PeerTimeout, r.opts.AckBytes)
	if d, ok := r.debts[task]; ok {
		delete(r.debts, task)
		p.machine.owe(time.Now(), d.debt)
	}
	r.peers[task] = p
	return p, nil
}

// refuse ends a transfer that did not begin. After Close its callback belongs to the
// caller: Close has nothing left to wait for.
func (r *Requester) refuse(t *Transfer, err error) {
	callback := t.endLocked(rendezvous.Value{}, err) // nobody else has it
	if callback == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		go callback()
	} else {
		r.pool.Go(callback)
	}
}

// receive begins a transfer.
func (p *peer) receive(t *Transfer) error {
	into := rendezvous.IntoOf(t.Args)
	p.mu.Lock()
	if err := p.left; err != nil || p.closed {
		p.mu.Unlock()
		return cmp.Or(err, errRequesterClosed())
	}
	if into != nil {
		if err := into.Claim(); err != nil {
			p.mu.Unlock()
			return status.From(err).WithPrefix("receive of " + t.Key.Describe())
		}
		t.Into = into
	}
	t.peer = p
	p.do(p.machine.receive(time.Now(), t), nil)
	return nil
}

// do carries out actions; why is the error that the event was, for the log. It is called
// with the lock held and gives it up. Everything that may block has a goroutine of its own.
func (p *peer) do(acts []requestAction, why error) {
	calls := 0 // of the connection, when the lock has been given up
	for i := range acts {
		a := &acts[i]
		switch a.kind {
		case doSend:
			a.t.Began, a.t.Ended = time.Now(), time.Time{}
			a.t.begun, a.t.had = true, a.t.Partial.Bytes
			a.t.tries++
			p.requester.open.Add(1)
			calls++
		case doDrop:
			a.t.dropped = true
			a.attempt = a.t.attempt
			calls++
		case doEnd:
			callback := a.t.endLocked(rendezvous.Value{}, p.named(a.t, a.err))
			if !a.t.begun { // a transfer that has begun is dropped at its end (work)
				a.t.drop()
			}
			if callback != nil {
				p.requester.pool.Go(callback)
			}
		case doHello:
			after := a.after
			p.requester.pool.Go(func() { p.hello(after) })
		case doAck, doCancel:
			batch := *a
			p.requester.pool.Go(func() { p.flush(batch) })
		case doWake:
			p.wakeAfter(a.after)
		}
	}
	change := connChange{is: p.machine.conn, was: p.logged, generation: p.machine.generation, why: why, before: p.failed}
	gone := change.is == connNone && change.was != connNone
	for i := range acts {
		if acts[i].unreached || gone && acts[i].kind == doEnd {
			p.failed++
			change.is, change.why = connNone, acts[i].err // also while later receives ask again
		}
	}
	change.failed = p.failed
	if why != nil {
		p.missed = why
	}
	if change.is == connUp {
		p.failed, p.missed = 0, nil
	}
	closed := p.closed
	p.logged = change.is
	p.mu.Unlock()
	if change.is != change.was && !closed {
		p.log(change)
	}
	for i := 0; calls > 0; i++ {
		switch a := &acts[i]; a.kind {
		case doSend:
			p.begin(a.t)
			calls--
		case doDrop:
			if a.attempt != nil { // without one, begin drops the attempt that it makes
				a.attempt.Drop()
			}
			calls--
		}
	}
}

// named adds to an error that begins with the name of the peer the name that the key has for it,
// if that is another one: the user knows that.
func (p *peer) named(t *Transfer, err error) error {
	as := t.Key.Src().Task
	if as == p.task || !strings.HasPrefix(status.From(err).Message(), p.task.String()) {
		return err
	}
	return status.From(err).WithPrefix(fmt.Sprintf("%v is %v in the cluster of this process", as, p.task))
}

// begin begins an attempt.
func (p *peer) begin(t *Transfer) {
	attempt := p.conn.Begin(&t.Receive)
	p.mu.Lock()
	t.attempt = attempt
	dropped := t.dropped
	// The goroutine in Wait works for its transfer, unless that has ended: then it may
	// have left.
	waits := t.done == nil && !t.over
	if waits {
		t.signalLocked()
	} else {
		t.claimed = true
	}
	p.mu.Unlock()
	if dropped {
		attempt.Drop()
	}
	if waits {
		return
	}
	work := func() { t.work(context.Background()) }
	if !attempt.Notify(func() { p.requester.pool.Go(work) }) {
		p.requester.pool.Go(work)
	}
}

// retries handles the outcome of an attempt that has not ended its transfer; false for
// every other outcome. It is called with the lock held, and gives it up when it returns
// true.
func (p *peer) retries(now time.Time, t *Transfer, err error) bool {
	if lost, ok := errors.AsType[*transport.LostError](err); ok && lost.Unsent {
		p.do(p.machine.unsent(now, t, lost.Err), lost.Err)
	} else if ok {
		p.do(p.machine.lost(now, t, t.Partial.Bytes > t.had, lost.Err), lost.Err)
	} else if restarted, ok := errors.AsType[*transport.RestartedError](err); ok {
		t.Partial.DropBy(p.requester.pool.Go)
		p.do(p.machine.restarted(now, t, restarted.Reached, restarted.Err), restarted)
	} else if _, ok := errors.AsType[*transport.FallbackError](err); ok {
		p.do(p.machine.fallback(now, t), nil)
	} else if _, ok := errors.AsType[*transport.MovedError](err); ok {
		p.do(p.machine.move(now, t), nil)
	} else {
		return false
	}
	return true
}

// wakeAfter arranges a tick. Called with the lock held.
func (p *peer) wakeAfter(d time.Duration) {
	if p.timer != nil {
		p.timer.Reset(d)
		return
	}
	p.timer = time.AfterFunc(d, func() {
		p.mu.Lock()
		if p.closed { // everything has been sent, or cannot be
			p.mu.Unlock()
			return
		}
		p.do(p.machine.tick(time.Now()), nil)
	})
}

// hello sends one Hello, and reports what came of it.
func (p *peer) hello(after time.Duration) {
	base := p.requester.base
	var peer transport.Peer
	err := sleep(base, after)
	if err == nil {
		ctx, cancel := context.WithTimeout(base, min(helloWait, p.requester.opts.PeerTimeout))
		peer, err = p.conn.Hello(ctx)
		cancel()
	}
	if base.Err() != nil {
		return // closed
	}
	p.mu.Lock()
	p.do(p.machine.hello(time.Now(), peer, err), err)
}

// flush sends a batch of acknowledgements or cancels.
func (p *peer) flush(a requestAction) {
	ctx, cancel := context.WithTimeout(p.requester.base, p.requester.opts.PeerTimeout)
	defer cancel()
	var err error
	if a.kind == doAck {
		err = p.conn.Ack(ctx, a.ids)
	} else {
		err = p.conn.Cancel(ctx, a.ids)
	}
	p.mu.Lock()
	p.do(p.machine.flushed(time.Now(), a, err), err)
}

// sleep waits for d, or until ctx ends, whose error it returns.
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

// Close ends every receive with Cancelled, sends what the peers have to learn, and waits
// for all callbacks. When ctx ends, what is left to send is dropped, and Close returns when
// the last callback has.
func (r *Requester) Close(ctx context.Context) error {
	r.mu.Lock()
	r.closed = true
	peers := r.peers
	r.peers = nil
	if r.forget != nil {
		r.forget.Stop()
	}
	r.mu.Unlock()
	for _, p := range peers {
		p.close()
	}
	var cut error
	for _, p := range peers {
		if err := p.untilQuiet(ctx); err != nil {
			cut = status.Errorf(status.CodeOf(err), "sending acknowledgements and cancels to %v was cut off: %w", p.task, err)
			break
		}
	}
	r.stop()
	for _, p := range peers {
		p.mu.Lock()
		if p.timer != nil {
			p.timer.Stop()
		}
		p.mu.Unlock()
	}
	r.open.Wait()
	r.pool.close()
	return cut
}

func (p *peer) close() {
	p.mu.Lock()
	p.closed = true
	var all []*Transfer
	for _, t := range p.machine.transfers {
		all = append(all, t)
	}
	p.mu.Unlock()
	for _, t := range all {
		t.Cancel(errRequesterClosed())
	}
	p.mu.Lock()
	p.do(p.machine.close(time.Now()), nil)
}

// untilQuiet waits until nothing is left to send. It polls: closing is rare, and so nothing
// else has to carry a condition for it.
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
