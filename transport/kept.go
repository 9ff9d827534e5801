package transport

import (
	"context"
	"sync"
	"time"

	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
)

// KeptOptions configures a table of answers. Zero fields take the defaults of
// limits.go, KeptTotal none: it must be given.
type KeptOptions struct {
	MaxWaiting      int   // receives of one asker without an answer
	MaxWaitingBytes int64 // bytes of their keys
	KeptPerAsker    int64 // bytes of answers kept for one asker
	KeptTotal       int64 // bytes of answers kept for all; 0 for no limit
}

// Kept is the sender's table of answers, one for all wires (ARCHITECTURE.md
// section 6). It is safe for concurrent use. It owns no goroutine but a timer
// while something is to be given up or forgotten.
type Kept struct {
	source Source
	base   context.Context // of all receives; its end is Close
	stop   context.CancelFunc

	mu      sync.Mutex // guards what follows; never held while source or a reply is called
	table   *answers
	replies map[callID]func(Answer)
	fetches map[uint64]*fetch
	lastID  callID
	timer   *time.Timer // nil when not armed
	closed  bool

	work sync.WaitGroup // receives of the source under way
}

type fetch struct {
	ctx    context.Context
	cancel context.CancelFunc
}

// NewKept returns a table whose values come from source.
func NewKept(source Source, o KeptOptions) *Kept {
	limits := keptLimits{
		maxWaiting: o.MaxWaiting, maxWaitingBytes: o.MaxWaitingBytes,
		keptPerAsker: o.KeptPerAsker, keptTotal: o.KeptTotal,
	}
	if limits.maxWaiting == 0 {
		limits.maxWaiting = DefaultMaxWaiting
	}
	if limits.maxWaitingBytes == 0 {
		limits.maxWaitingBytes = DefaultMaxWaitingBytes
	}
	if limits.keptPerAsker == 0 {
		limits.keptPerAsker = DefaultKeptPerAsker
	}
	if limits.keptTotal == 0 {
		limits.keptTotal = 1<<63 - 1
	}
	k := &Kept{
		source: source, table: newAnswers(limits),
		replies: make(map[callID]func(Answer)), fetches: make(map[uint64]*fetch),
	}
	k.base, k.stop = context.WithCancel(context.Background())
	return k
}

// Call is one call that waits for its answer.
type Call struct {
	kept *Kept
	id   callID
}

// Ask asks for a value. reply runs once, with the answer, unless the call is
// detached before; on this goroutine or another one, outside every lock, and
// must not block. It gets a reference to the value's tensor.
func (k *Kept) Ask(a Ask, reply func(Answer)) Call {
	k.mu.Lock()
	if k.closed {
		k.mu.Unlock()
		reply(Answer{Err: errClosed()})
		return Call{}
	}
	k.lastID++
	id := k.lastID
	k.replies[id] = reply
	k.do(k.table.ask(time.Now(), a, id))
	return Call{kept: k, id: id}
}

func errClosed() *status.Error { return status.New(status.Aborted, "Call was aborted") }

// Detach says that the call has ended without its answer: its connection was
// lost. reply does not run any more, unless it is running already. This is no
// cancel: a value that was matched to the receive stays with it for the next
// attempt.
func (c Call) Detach() {
	if c.kept == nil {
		return
	}
	c.kept.mu.Lock()
	delete(c.kept.replies, c.id)
	c.kept.do(c.kept.table.detach(time.Now(), c.id))
}

// Finish lets the answers to ids go: the asker has them.
func (k *Kept) Finish(incarnation uint64, ids []uint64) {
	if len(ids) == 0 {
		return
	}
	k.mu.Lock()
	k.do(k.table.finish(time.Now(), incarnation, ids))
}

// Cancel ends the receives ids as if they had never been asked: what was
// matched to them goes back to the head of its key.
func (k *Kept) Cancel(incarnation uint64, ids []uint64) {
	k.mu.Lock()
	k.do(k.table.cancel(time.Now(), incarnation, ids))
}

// EndStep lets go what is kept of a step. Call it after the rendezvous of the
// step was cleaned up, which ends the receives that wait in it.
func (k *Kept) EndStep(step int64) {
	k.mu.Lock()
	k.do(k.table.endStep(time.Now(), step))
}

// WireUp says that a connection to the asker lives, until the returned
// function is called, once. While one lives its answers are not given up.
func (k *Kept) WireUp(a Asker) (down func()) {
	k.mu.Lock()
	k.do(k.table.wireUp(time.Now(), a))
	return func() {
		k.mu.Lock()
		k.table.wireDown(time.Now(), a.Incarnation)
		k.do(nil)
	}
}

// Value returns the answer that is kept for a receive, for content that is
// fetched piece by piece; the caller releases its tensor. NotFound when nothing
// is kept for it, DataLoss when it was given up.
func (k *Kept) Value(incarnation, id uint64) (rendezvous.Value, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	v, ok, err := k.table.value(incarnation, id)
	if err != nil {
		return rendezvous.Value{}, err
	}
	if !ok {
		return rendezvous.Value{}, status.Errorf(status.NotFound, "no answer is kept for receive %016x", id)
	}
	return v, nil
}

// Holds reports whether anything is kept for an asker, or waited for by it: a
// reason to find out whether it is still there.
func (k *Kept) Holds(incarnation uint64) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	a := k.table.askers[incarnation]
	return a != nil && len(a.entries) > 0
}

// KeptStats is a snapshot of a table.
type KeptStats struct {
	Askers    int   // processes that ask or asked lately
	Connected int   // those of them with a connection
	Waiting   int   // receives without an answer
	Kept      int   // answers kept
	Bytes     int64 // size of their tensors
}

// Stats counts what the table holds.
func (k *Kept) Stats() KeptStats {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := KeptStats{Askers: len(k.table.askers), Waiting: k.table.waiting}
	for _, a := range k.table.askers {
		s.Kept += len(a.entries) - a.waiting
		if a.wires > 0 {
			s.Connected++
		}
	}
	s.Bytes = k.table.bytes - int64(s.Kept)*keptOverhead
	return s
}

// Close ends every waiting call with Aborted, lets everything go, and returns
// when the source has ended every receive. Values that were matched to a call
// are lost with the process. It must not be called from a reply. Closing twice
// is harmless.
func (k *Kept) Close() {
	defer k.work.Wait()
	k.mu.Lock()
	if k.closed {
		k.mu.Unlock()
		return
	}
	k.closed = true
	if k.timer != nil {
		k.timer.Stop()
	}
	var acts []keptAction
	for _, a := range k.table.askers {
		acts = append(acts, k.table.drop(a, errClosed())...)
	}
	k.stop()
	k.do(acts)
}

// do carries out actions. It is called with the lock held and gives it up:
// what belongs to the shell's own state happens before, calls to the outside
// happen after.
func (k *Kept) do(acts []keptAction) {
	type outside struct {
		*keptAction
		ctx   context.Context
		reply func(Answer)
	}
	var calls [4]outside // most events have one action
	out := calls[:0]
	for i := range acts {
		o := outside{keptAction: &acts[i]}
		switch o.kind {
		case keptFetch:
			f := new(fetch)
			f.ctx, f.cancel = context.WithCancel(k.base)
			k.fetches[o.fetch] = f
			k.work.Add(1)
			o.ctx = f.ctx
		case keptStopFetch:
			if f := k.fetches[o.fetch]; f != nil {
				f.cancel()
			}
			continue
		case keptReply:
			o.reply = k.replies[o.call]
			delete(k.replies, o.call)
		}
		out = append(out, o)
	}
	k.arm()
	k.mu.Unlock()
	for _, o := range out {
		switch o.kind {
		case keptFetch:
			a, id := o.ask, o.fetch // all that the callback keeps
			k.source.RecvLocalAsync(o.ctx, a.Step, a.Key,
				func(v rendezvous.Value, _ rendezvous.Args, err error) {
					k.fetched(a, id, Answer{Value: v, Err: err})
				})
			if o.held {
				k.mu.Lock()
				k.do(k.table.waits(time.Now(), o.ask, o.fetch)) // does nothing when it has ended
			}
		case keptReply:
			o.reply(o.answer) // a detached call has no action any more
		case keptRestore:
			if !k.source.Restore(o.ask.Step, o.ask.Key, o.answer.Value) {
				o.answer.Value.Tensor.Release()
			}
		case keptRelease:
			o.answer.Value.Tensor.Release()
		}
	}
}

func (k *Kept) fetched(a Ask, id uint64, ans Answer) {
	defer k.work.Done()
	k.mu.Lock()
	if f := k.fetches[id]; f != nil {
		f.cancel()
		delete(k.fetches, id)
	}
	k.do(k.table.fetched(time.Now(), a, id, ans))
}

// arm starts the timer when something may have to be given up or forgotten.
// Nothing is due earlier than giveUpAfter from the event that made it due, so a
// timer that runs at most that long is never late.
func (k *Kept) arm() {
	if k.timer == nil && !k.closed && k.table.due() {
		k.timer = time.AfterFunc(giveUpAfter, k.tick)
	}
}

func (k *Kept) tick() {
	k.mu.Lock()
	k.timer = nil
	now := time.Now()
	acts, next := k.table.tick(now)
	if !next.IsZero() && !k.closed {
		k.timer = time.AfterFunc(min(max(next.Sub(now), minTick), giveUpAfter), k.tick)
	}
	k.do(acts)
}
