package rendezvous

import (
	"container/list"
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// Remoter is what a transport implements: a receive from another task.
type Remoter interface {
	// RecvFromRemoteAsync requests the next value under key in the given step from the
	// task of the key's source. It does not block.
	//
	// done is called exactly once, perhaps before RecvFromRemoteAsync returns, with one
	// reference to the tensor. It runs on a goroutine that the transport owns: it may
	// block, send, receive and abort, so it never runs inside the polling of completions.
	// With a nil done the caller calls Wait of the transfer instead, exactly once. The Into of
	// args, if there is one, is where the value has to go.
	RecvFromRemoteAsync(step int64, key Key, args Args, done DoneFunc) Transfer
}

// Transfer is a receive that a transport has under way.
type Transfer interface {
	// Wait returns what the receive ends with. The caller may drive its progress
	// meanwhile (poll, or make a call): handing a small tensor from one goroutine to
	// another takes longer than its way over the network. When ctx ends first, the
	// receive is cancelled, and Wait returns soon.
	Wait(ctx context.Context) (Value, error)

	// Cancel ends the receive before its value has come: the transport makes sure that
	// the value is not consumed, and the receive ends soon, with err unless something else
	// has ended it. It may be called at any time, also after the end, from any goroutine,
	// and does not block.
	Cancel(err error)
}

// Call is something under way that ends when the step is aborted, beside remote
// receives. Its dynamic type must be comparable.
type Call interface {
	// Abort ends the call with err. It must not block.
	Abort(err error)
}

// BaseRemote is the rendezvous of one step in a process with peers. Values that
// this task sends wait in a Local; a receive whose source is another task goes
// to the Remoter.
//
// It is made in two phases, since a peer may ask for values before this process
// has heard of the step: until Initialize has told it the session, Send and
// Recv fail, and the receives of peers (RecvLocalAsync) are deferred.
type BaseRemote struct {
	step     int64
	remoter  Remoter
	bound    int64 // of SendWait; 0 for the default
	local    Local
	bounds   atomic.Pointer[bounds]  // set once, by the first SendWait
	counting sync.Once               // sets bounds
	session  atomic.Pointer[Session] // set once, when nothing is deferred any more

	// mu protects what follows. Sends and local receives do not take it; a
	// remote receive takes it a few times, for a place in a list.
	mu       sync.Mutex
	starting *Session          // given to Initialize
	begun    bool              // Initialize was called, or this process has begun the step
	deferred list.List         // of *deferredRecv, in the order of the calls
	calls    map[Call]struct{} // nil when there are none
	remote   list.List         // of *remoteRecv: those under way
	run      gate              // remote receives and callbacks under way
	closed   bool              // nothing may start a goroutine any more
}

// deferredRecv is a receive of a peer that came before Initialize, or one of another
// task's value that came before the step began.
type deferredRecv struct {
	ctx   context.Context
	key   Key
	done  DoneFunc
	stop  func() bool // ends the watch of ctx
	waits bool        // it is in the list
	since time.Time
}

// NewBaseRemote returns the rendezvous of a step, not yet initialised. A nil
// remoter is for a process without peers: its remote receives end with
// FailedPrecondition.
func NewBaseRemote(step int64, remoter Remoter) *BaseRemote {
	b := &BaseRemote{step: step, remoter: remoter}
	b.local.init()
	return b
}

// Step returns the id of the step.
func (b *BaseRemote) Step() int64 { return b.step }

// Initialize tells the step its session and runs the receives that were
// deferred, in their order, on this goroutine. A second call for the same task
// does nothing; one for another task is Internal.
func (b *BaseRemote) Initialize(s *Session) error {
	b.mu.Lock()
	if was := b.starting; was != nil {
		b.mu.Unlock()
		if was.Task != s.Task {
			return status.Errorf(status.Internal, "Double init! Worker names would have changed from %v -> %v", was.Task, s.Task)
		}
		b.beginStep()
		return nil
	}
	b.starting, b.begun = s, true
	for b.deferred.Len() > 0 {
		d := b.undeferLocked(b.deferred.Front())
		b.mu.Unlock()
		d.unwatch()
		b.recvForPeer(d.ctx, s, d.key, d.done)
		b.mu.Lock()
	}
	b.session.Store(s) // inside mu: nothing can be deferred after this
	b.mu.Unlock()
	return nil
}

// setSession tells a step its session before this process has begun the step. remoter, if not
// nil, is that of the session. Nobody sends or receives in b yet, but peers may.
func (b *BaseRemote) setSession(s *Session, remoter Remoter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.starting = s
	if remoter != nil {
		b.remoter = remoter
	}
	b.session.Store(s)
}

// beginStep notes that this process has begun a step that knows its session. The receives of
// peers that waited for the session run now, on this goroutine and in their order; those of
// other tasks' values end.
func (b *BaseRemote) beginStep() {
	b.mu.Lock()
	s := b.session.Load()
	if b.begun || s == nil {
		b.mu.Unlock()
		return
	}
	b.begun = true
	deferred := b.undeferAllLocked()
	b.mu.Unlock()
	for _, d := range deferred {
		if !s.isSource(&d.key) {
			b.end(d, s.notSource(d.key.text))
			continue
		}
		d.unwatch()
		b.recvForPeer(d.ctx, s, d.key, d.done)
		b.leave()
	}
}

// ready returns the session, or why there is none yet.
func (b *BaseRemote) ready() (*Session, error) {
	if s := b.session.Load(); s != nil {
		return s, nil
	}
	if err := b.local.Err(); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.starting != nil { // the first Initialize still has what was deferred
		return b.starting, nil
	}
	return nil, status.New(status.Internal, "ValidateDevices called before initialization.")
}

// Send implements Rendezvous. A source that is not of this task is
// InvalidArgument, and so is an edge name that begins with PublicationPrefix or
// BufferPrefix: its receivers would be answered by the publications, or by the
// collective operations.
func (b *BaseRemote) Send(key Key, args Args, t *tensor.Tensor, dead bool) error {
	v, err := b.value("Send", &key, args, t, dead)
	if err != nil {
		return err
	}
	if c := b.bounds.Load(); c != nil {
		v.SendArgs.Device = c.charge(v, key.dst.Task)
	}
	return b.local.sendValue(key.text, v)
}

// value returns the value of a Send or SendWait, with a reference to t, or why it must not be
// sent.
func (b *BaseRemote) value(method string, key *Key, args Args, t *tensor.Tensor, dead bool) (Value, error) {
	s, err := b.ready()
	switch {
	case err != nil:
		return Value{}, err
	case strings.HasPrefix(key.edge, PublicationPrefix):
		return Value{}, status.Errorf(status.InvalidArgument,
			"%s of %s: names that begin with %q are those of published tensors, so nobody would receive it; send it under another name", method, key.Describe(), PublicationPrefix)
	case strings.HasPrefix(key.edge, BufferPrefix):
		return Value{}, status.Errorf(status.InvalidArgument,
			"%s of %s: names that begin with %q are those of buffers of collective operations, so nobody would receive it; send it under another name", method, key.Describe(), BufferPrefix)
	case !s.isSource(key):
		return Value{}, s.notSource(key.Describe())
	}
	return newValue(method, key.text, args, t, dead)
}

// RecvAsync implements Rendezvous. A destination that is not of this task is
// InvalidArgument.
func (b *BaseRemote) RecvAsync(ctx context.Context, key Key, args Args, done DoneFunc) {
	s, err := b.ready()
	switch {
	case err != nil:
		done(Value{}, args, err)
	case !s.isDestination(&key):
		done(Value{}, args, s.notDestination(key.text))
	case s.isSource(&key):
		if into := IntoOf(args); into != nil {
			b.local.recvIntoAsync(ctx, key, into, b.goRun, done)
			return
		}
		if !fromCPU(&key) || !betweenHosts(&key, Args{}, args) {
			done = copied(ctx, s.Copy, key, done)
		}
		b.local.recvAsync(ctx, key.text, args, done, false)
	default:
		b.recvRemote(ctx, key, args, done)
	}
}

// Recv implements Rendezvous.
func (b *BaseRemote) Recv(ctx context.Context, key Key, args Args) (Value, error) {
	s, err := b.ready()
	switch {
	case err != nil:
		return Value{}, err
	case !s.isDestination(&key):
		return Value{}, s.notDestination(key.text)
	case !s.isSource(&key):
		return b.recvRemoteNow(ctx, key, args)
	}
	if into := IntoOf(args); into != nil {
		return b.local.recvInto(ctx, key, into)
	}
	v, err := b.local.recv(ctx, key.text, args, false)
	if err != nil || betweenHosts(&key, v.SendArgs, args) {
		return v, err
	}
	return copyNow(ctx, s.Copy, key, v, args)
}

// RecvLocalAsync asks, for a peer, for a value that this task sends. There is
// no device copy. The caller ends the value by Value.Deliver, Value.Sent or Restore. Until
// then the SendArgs may have a record of the sender in place of its Device. A source that is
// not of this task is InvalidArgument once this process has begun the step. Before
// that, and before Initialize, the receive waits, as in TensorFlow.
func (b *BaseRemote) RecvLocalAsync(ctx context.Context, key Key, done DoneFunc) {
	if s := b.session.Load(); s != nil {
		b.recvForPeer(ctx, s, key, done)
		return
	}
	if err := ended(ctx, methodAsync, key.text); err != nil {
		done(Value{}, Args{}, err)
		return
	}
	b.mu.Lock()
	if s := b.session.Load(); s != nil {
		b.mu.Unlock()
		b.recvForPeer(ctx, s, key, done)
		return
	}
	b.deferLocked(ctx, key, done)
}

// deferLocked makes a peer's receive wait. It gives up b.mu.
func (b *BaseRemote) deferLocked(ctx context.Context, key Key, done DoneFunc) {
	if err := b.local.Err(); err != nil {
		b.mu.Unlock()
		done(Value{}, Args{}, err)
		return
	}
	d := &deferredRecv{ctx: ctx, key: key, done: done, waits: true, since: time.Now()}
	at := b.deferred.PushBack(d)
	b.mu.Unlock()
	if ctx.Done() != nil {
		b.watch(d, at)
	}
}

// watch cancels a deferred receive when its context ends.
func (b *BaseRemote) watch(d *deferredRecv, at *list.Element) {
	stop := context.AfterFunc(d.ctx, func() {
		b.mu.Lock()
		if !d.waits {
			b.mu.Unlock()
			return
		}
		b.undeferLocked(at)
		b.run.enterLocked(1)
		b.mu.Unlock()
		defer b.leave()
		d.done(Value{}, Args{}, ended(d.ctx, methodAsync, d.key.text))
	})
	b.mu.Lock()
	waits := d.waits
	if waits {
		d.stop = stop
	}
	b.mu.Unlock()
	if !waits {
		stop()
	}
}

func (b *BaseRemote) recvForPeer(ctx context.Context, s *Session, key Key, done DoneFunc) {
	if !s.isSource(&key) {
		b.recvForeign(ctx, s, key, done)
		return
	}
	if allows := guardOf(ctx); allows != nil && !b.guarded(ctx, s, key, allows, done) {
		return
	}
	b.local.recvAsync(ctx, key.text, Args{}, done, true)
}

// guarded reports whether a peer's receive, which has a Guard, may go on. Otherwise it refuses the
// receive, or makes it wait until the step begins and its session is certain.
func (b *BaseRemote) guarded(ctx context.Context, s *Session, key Key, allows Guard, done DoneFunc) bool {
	err := ended(ctx, methodAsync, key.text)
	b.mu.Lock()
	if err == nil && !b.begun {
		b.deferLocked(ctx, key, done)
		return false
	}
	b.mu.Unlock()
	if err == nil {
		err = allows(s)
	}
	if err != nil {
		done(Value{}, Args{}, err)
	}
	return err == nil
}

// recvForeign is recvForPeer for a value of another task.
func (b *BaseRemote) recvForeign(ctx context.Context, s *Session, key Key, done DoneFunc) {
	err := ended(ctx, methodAsync, key.text)
	b.mu.Lock()
	if err == nil && !b.begun {
		b.deferLocked(ctx, key, done)
		return
	}
	b.mu.Unlock()
	if err == nil {
		err = s.notSource(key.text)
	}
	done(Value{}, Args{}, err)
}

// takeLocal is RecvLocalAsync for a value that is there; else it returns false.
func (b *BaseRemote) takeLocal(key Key) (v Value, ok bool) {
	s := b.session.Load()
	if s == nil || !s.isSource(&key) {
		return Value{}, false
	}
	return b.local.take(key.text)
}

// undeferLocked takes a deferred receive out of the list. Its fields are then
// the caller's alone.
func (b *BaseRemote) undeferLocked(at *list.Element) *deferredRecv {
	d, _ := b.deferred.Remove(at).(*deferredRecv)
	d.waits = false
	return d
}

// undeferAllLocked takes all deferred receives out of the list. The caller ends each.
func (b *BaseRemote) undeferAllLocked() []*deferredRecv {
	var all []*deferredRecv
	for b.deferred.Len() > 0 {
		all = append(all, b.undeferLocked(b.deferred.Front()))
	}
	b.run.enterLocked(len(all))
	return all
}

// end ends a receive that undeferAllLocked returned.
func (b *BaseRemote) end(d *deferredRecv, err error) {
	defer b.leave()
	d.unwatch()
	d.done(Value{}, Args{}, err)
}

func (d *deferredRecv) unwatch() {
	if d.stop != nil {
		d.stop()
	}
}

// RegisterCall makes Abort end the call too. After an abort the call is aborted
// at once and not registered, and the step's error is returned.
func (b *BaseRemote) RegisterCall(call Call) error {
	b.mu.Lock()
	err := b.registerLocked(call)
	b.mu.Unlock()
	if err != nil {
		call.Abort(err)
	}
	return err
}

func (b *BaseRemote) registerLocked(call Call) error {
	if err := b.local.Err(); err != nil { // Abort sets it before it takes mu
		return err
	}
	if b.calls == nil {
		b.calls = make(map[Call]struct{})
	}
	b.calls[call] = struct{}{}
	return nil
}

// DeregisterCall says that a call has ended. A call that is not registered is
// no mistake.
func (b *BaseRemote) DeregisterCall(call Call) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.calls, call)
}

// Abort implements Rendezvous: besides what waits in the table it ends deferred
// receives and registered calls. Cancelled and Aborted say that something else
// failed first, so they are marked as derived.
func (b *BaseRemote) Abort(err error) {
	e := abortStatus(err)
	if c := e.Code(); c == status.Cancelled || c == status.Aborted {
		e = e.Derived()
	}
	b.local.Abort(e)
	err = b.local.Err() // the first one
	if c := b.bounds.Load(); c != nil {
		c.abort()
	}

	b.mu.Lock()
	calls := b.calls
	b.calls = nil
	deferred := b.undeferAllLocked()
	remote := b.abandonLocked(err)
	b.mu.Unlock()

	for call := range calls {
		call.Abort(err)
	}
	for _, t := range remote {
		t.Cancel(err)
	}
	for _, d := range deferred {
		b.end(d, err)
	}
}

// Err returns the error that the step was aborted with; nil while it lives.
func (b *BaseRemote) Err() error { return b.local.Err() }

// Restore is Local.Restore.
func (b *BaseRemote) Restore(key Key, v Value) bool { return b.local.Restore(key, v) }

// Close aborts what is left with Cancelled, waits for remote receives that the
// transport still works on, and returns when no callback runs any more. It must
// not be called from one. Closing twice is harmless.
func (b *BaseRemote) Close() {
	b.local.Close()
	b.Abort(b.local.Err()) // the deferred receives and the calls
	b.mu.Lock()
	b.closed = true
	idle := b.run.idleLocked()
	b.mu.Unlock()
	<-idle
	b.local.Close() // callbacks of remote receives that were here meanwhile
}

// busy reports whether remote receives or callbacks are under way.
func (b *BaseRemote) busy() bool {
	b.mu.Lock()
	n := b.run.n
	b.mu.Unlock()
	return n > 0 || b.local.busy()
}
