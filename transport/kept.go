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
	// Addressed reports whether the cluster has an address for the name of an asker,
	// and Verify calls that address and returns the incarnation of the process
	// there. Nil where no name has one.
	Addressed func(name string) bool
	Verify    func(ctx context.Context, name string) (incarnation uint64, err error)
}

// Kept is the sender's table of answers, one for all wires (ARCHITECTURE.md
// section 6). It is safe for concurrent use. It owns no goroutine but a timer
// while something is to be given up or forgotten.
type Kept struct {
	source Source
	verify func(ctx context.Context, name string) (uint64, error)

	mu      sync.Mutex // guards what follows; never held while source or a reply is called
	table   *answers
	calls   map[callID]waitingCall
	fetches map[uint64]*fetch
	lastID  callID
	timer   *time.Timer // nil when not armed
	closed  bool
	backs   []keptBack // values on their way back to the source, in order
	giving  bool       // a goroutine gives them back
	queued  uint64     // counts those that were put there
	given   uint64     // and those that have arrived
	changed *sync.Cond // a receive of the source has ended, a value has arrived there, or a cancel is over

	cancelling map[Asker]int // cancels that are not over

	work sync.WaitGroup // receives of the source under way, and memory on its way back
}

// keptBack is a value on its way back to the source.
type keptBack struct {
	ask    Ask
	answer Answer
}

// Replier brings answers to those who asked.
type Replier interface {
	// Reply has the answer to an attempt of a receive, with a reference of its
	// own to the value's tensor. It is called outside every lock, perhaps before
	// AskFor has returned, and must not block.
	Reply(id uint64, attempt uint32, ans Answer)
}

// replyFunc is the Replier of one call.
type replyFunc func(Answer)

// Reply implements Replier.
func (f replyFunc) Reply(_ uint64, _ uint32, ans Answer) { f(ans) }

// waitingCall is a call without its answer.
type waitingCall struct {
	to      Replier
	id      uint64
	attempt uint32
}

// NewKept returns a table whose values come from source.
func NewKept(source Source, o KeptOptions) *Kept {
	limits := keptLimits{
		maxWaiting: o.MaxWaiting, maxWaitingBytes: o.MaxWaitingBytes,
		keptPerAsker: o.KeptPerAsker, keptTotal: o.KeptTotal, addressed: o.Addressed,
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
	if o.Verify == nil {
		limits.addressed = nil
	}
	k := &Kept{
		source: source, verify: o.Verify, table: newAnswers(limits),
		calls: make(map[callID]waitingCall), fetches: make(map[uint64]*fetch),
		cancelling: make(map[Asker]int),
	}
	k.changed = sync.NewCond(&k.mu)
	return k
}

// Introduce makes a process known that will ask here, from a source address: the
// process is accepted under its name, or refused. When another one is connected under
// the name, it calls the address of the name, until ctx ends at most. Its error has no effect;
// it is an *UndecidedError when it leaves open which process has the name.
func (k *Kept) Introduce(ctx context.Context, a Asker, from string) error {
	k.mu.Lock()
	if k.closed {
		k.mu.Unlock()
		return errClosed()
	}
	of, acts, err := k.table.introduce(time.Now(), a, from)
	k.do(acts)
	if of != nil || err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, verifyWait)
	is, err := k.verify(ctx, a.Name)
	cancel()
	k.mu.Lock()
	if k.closed {
		k.mu.Unlock()
		return errClosed()
	}
	_, acts, err = k.table.verified(time.Now(), a, from, is, err)
	k.do(acts)
	return err
}

// Call is one call that waits for its answer.
type Call struct {
	kept *Kept
	id   callID
}

// Ask asks for a value. reply runs once, with the answer, unless the call is
// detached before; on this goroutine or another one, outside every lock, and
// must not block. It gets a reference to the value's tensor. Ask waits for the cancels
// of that asker that have begun.
func (k *Kept) Ask(a Ask, reply func(Answer)) Call {
	k.mu.Lock()
	for k.cancelling[a.Asker] > 0 {
		k.changed.Wait()
	}
	k.mu.Unlock()
	return k.AskFor(replyFunc(reply), a)
}

// AskFor is Ask for one who asks often, and waits for nothing. Its type must be comparable,
// for DetachFor.
func (k *Kept) AskFor(to Replier, a Ask) Call {
	k.mu.Lock()
	if k.closed {
		k.mu.Unlock()
		to.Reply(a.ID, a.Attempt, Answer{Err: errClosed()})
		return Call{}
	}
	k.lastID++
	id := k.lastID
	k.calls[id] = waitingCall{to, a.ID, a.Attempt}
	k.do(k.table.ask(time.Now(), a, id))
	return Call{kept: k, id: id}
}

// DetachFor is Detach for a call of AskFor, when it has not been replied to.
func (k *Kept) DetachFor(to Replier, a Asker, id uint64, attempt uint32) {
	k.mu.Lock()
	for _, call := range k.table.callsOf(a, id) {
		if w := k.calls[call]; w.to == to && w.attempt == attempt {
			delete(k.calls, call)
			k.do(k.table.detach(time.Now(), call))
			return
		}
	}
	k.mu.Unlock()
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
	delete(c.kept.calls, c.id)
	c.kept.do(c.kept.table.detach(time.Now(), c.id))
}

// Finish lets the answers to ids go: the asker has them. It does nothing for an asker
// that is not known.
func (k *Kept) Finish(a Asker, ids []uint64) {
	if len(ids) == 0 {
		return
	}
	k.mu.Lock()
	k.do(k.table.finish(time.Now(), a, ids))
}

// Cancel ends the receives ids as if they had never been asked: what was
// matched to them goes back to its place under its key. It returns when that has
// happened, so that what is asked for afterwards comes in order. It must not be
// called from a reply. An error has no effect: FailedPrecondition for an asker that is
// not known, ResourceExhausted when there is no room to remember so many ids.
func (k *Kept) Cancel(a Asker, ids []uint64) error {
	end, err := k.BeginCancel(a, ids)
	if err == nil {
		end()
	}
	return err
}

// BeginCancel begins what Cancel does, for one who must not be held up: it calls nobody.
// The function that it returns does the rest, and is to be called in any case, before
// AskFor for what came after the cancel. Calls of Ask by that asker wait for it.
func (k *Kept) BeginCancel(of Asker, ids []uint64) (end func(), err error) {
	if len(ids) == 0 {
		return func() {}, nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	var stopped []uint64
	var calls []keptCall
	acts, err := k.table.cancel(time.Now(), of, ids)
	if err != nil {
		return nil, err
	}
	for i := range acts {
		if acts[i].kind == keptStopFetch {
			stopped = append(stopped, acts[i].fetch)
		}
		calls = append(calls, k.prepare(&acts[i]))
	}
	k.table.keep(acts)
	k.arm()
	k.cancelling[of]++
	return func() {
		for _, c := range calls {
			k.call(c)
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		k.awaitBack(stopped)
		if k.cancelling[of]--; k.cancelling[of] == 0 {
			delete(k.cancelling, of)
			k.changed.Broadcast()
		}
	}, nil
}

// awaitBack waits until the receives of the source have ended, and all values on their way
// there have arrived. Called with the lock held.
func (k *Kept) awaitBack(stopped []uint64) {
	for _, id := range stopped {
		for k.fetches[id] != nil {
			k.changed.Wait()
		}
	}
	for until := k.queued; k.given < until; {
		if k.giving {
			k.changed.Wait()
		} else { // the cancel that began it may come to that only after this one
			k.giveBackLocked()
		}
	}
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
	of, acts := k.table.wireUp(time.Now(), a)
	k.do(acts)
	return func() {
		k.mu.Lock()
		k.table.wireDown(time.Now(), of)
		k.do(nil)
	}
}

// Value returns the answer that is kept for an attempt of a receive, for content that is
// fetched piece by piece; the caller releases its tensor. Aborted when nothing
// is kept for it or a newer attempt has come, DataLoss when it was given up.
func (k *Kept) Value(a Asker, id uint64, attempt uint32) (rendezvous.Value, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	v, ok, err := k.table.value(a, id, attempt)
	if err != nil {
		return rendezvous.Value{}, err
	}
	if !ok {
		return rendezvous.Value{}, status.Errorf(status.Aborted, "no answer is kept for receive %016x: its step has ended", id)
	}
	return v, nil
}

// Holds reports whether anything is kept for an asker, or waited for by it: a
// reason to find out whether it is still there.
func (k *Kept) Holds(a Asker) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	of := k.table.known(a)
	return of != nil && len(of.entries) > 0
}

// KeptStats is a snapshot of a table.
type KeptStats struct {
	Askers    int   // processes that ask or asked lately
	Connected int   // those of them with a connection
	Waiting   int   // receives without an answer
	Kept      int   // answers kept, and values that are just being given back
	Bytes     int64 // size of the tensors of what is kept
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
	s.Kept += int(k.queued - k.given) //nolint:gosec // few
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
	k.do(acts)
}

// keptCall is what is to be called when the lock has been given up.
type keptCall struct {
	kind   keptActionKind
	fetch  *fetch      // keptFetch
	held   *heldFetch  // likewise; nil for none
	call   waitingCall // keptReply
	answer Answer
}

// heldFetch is a fetch that room is held free for.
type heldFetch struct {
	ask   Ask
	fetch uint64
}

// do carries out actions. It is called with the lock held and gives it up:
// what belongs to the shell's own state happens before, calls to the outside
// happen after.
func (k *Kept) do(acts []keptAction) {
	var few [4]keptCall // most events have one
	calls := few[:0]
	for i := range acts {
		calls = append(calls, k.prepare(&acts[i]))
	}
	k.table.keep(acts)
	k.arm()
	k.mu.Unlock()
	for _, c := range calls {
		k.call(c)
	}
}

// prepare does the first part of an action, and returns what is to be called. Called with the
// lock held.
func (k *Kept) prepare(a *keptAction) keptCall {
	c := keptCall{kind: a.kind, answer: a.answer}
	switch a.kind {
	case keptFetch:
		c.fetch = k.newFetch(a)
		if a.held {
			c.held = &heldFetch{a.ask, a.fetch}
		}
	case keptStopFetch:
		if f := k.fetches[a.fetch]; f != nil {
			f.cancel()
		}
	case keptReply:
		c.call = k.calls[a.call]
		delete(k.calls, a.call)
	case keptRestore:
		k.backs = append(k.backs, keptBack{a.ask, a.answer})
		k.queued++
		k.work.Add(1)
	case keptRelease:
		k.work.Add(1)
	}
	return c
}

// call does the second part.
func (k *Kept) call(c keptCall) {
	switch c.kind {
	case keptFetch:
		c.fetch.begin()
		if c.held != nil {
			k.mu.Lock()
			k.do(k.table.waits(time.Now(), c.held.ask, c.held.fetch)) // does nothing when it has ended
		}
	case keptReply:
		c.call.to.Reply(c.call.id, c.call.attempt, c.answer) // a detached call has no action any more
	case keptRestore:
		k.giveBack()
	case keptRelease:
		k.release(&c.answer)
		k.work.Done()
	}
}

// giveBack gives values back to the source. Whoever gets one there may refuse it, too, and
// so may as many as wait for its key: each comes here again, so that who gives back does so
// for all, and not one within the other.
func (k *Kept) giveBack() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.giveBackLocked()
}

// giveBackLocked is giveBack with the lock held; the lock is given up meanwhile.
func (k *Kept) giveBackLocked() {
	if k.giving {
		return
	}
	k.giving = true
	for len(k.backs) > 0 {
		b := k.backs[0]
		k.backs = k.backs[1:]
		k.mu.Unlock()
		if !k.source.Restore(b.ask.Step, b.ask.Key, b.answer.Value) {
			k.release(&b.answer)
		}
		k.work.Done()
		k.mu.Lock()
		k.given++
		k.changed.Broadcast()
	}
	k.backs, k.giving = nil, false
}

// release gives up the table's reference to a value. The events of the table come from
// who polls completions, too, and an owner of memory may take its time. Called while
// work is counted.
func (k *Kept) release(ans *Answer) { ans.Value.Tensor.ReleaseBy(k.work.Go) }

// newFetch makes the record of a receive of the source. Called with the lock held.
func (k *Kept) newFetch(a *keptAction) *fetch {
	f := &fetch{kept: k, id: a.fetch, ask: a.ask}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	k.fetches[f.id] = f
	k.work.Add(1)
	return f
}

func (k *Kept) fetched(f *fetch, ans Answer) {
	k.mu.Lock()
	delete(k.fetches, f.id)
	k.changed.Broadcast()
	k.do(k.table.fetched(time.Now(), f.ask, f.id, ans))
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
