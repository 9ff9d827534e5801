package transport

import (
	"container/list"
	"slices"
	"time"

	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
)

// answers is the sender's half of ARCHITECTURE.md section 6 as a pure state
// machine: the table of answers, one for all wires, found by the asker (its name
// and incarnation) and the receive's id. Its methods are the events; each returns
// the actions to carry out, in order, outside every lock. They are good until the
// next event.
//
//	                room             fetched
//	ask ─► limited ─────► fetching ───────────► kept ── finish ──► gone
//	          │  ▲            │  │                │
//	          │  └────────────┼──┘ too large now: ├─ cancel ──► gone, value restored
//	          │               │    value restored └─ lost 60 s ► gone, re-ask: DataLoss
//	          │ detach,cancel │ detach, cancel
//	          ▼               ▼
//	        gone          stopping ── fetched ──► kept (a value came first)
//	                          │              └──► gone, value restored (cancelled)
//	                          └─ stopped ───────► fetching (asked again), or gone
//
// An entry that fetches owns one receive of the rendezvous. That receive ends
// exactly once, by a fetched event; until then the entry stays, so that a value
// matched in the very moment of a break or a cancel is never lost: it is
// answered to the next attempt or goes back to the head of its key. Values of
// one key that go back from receives which were under way together do so in any
// order, as they would have arrived.
//
// Which process is accepted under a name is decided in answers_asker.go. What a peer
// can make the table hold is bounded: receives, calls and values in answers_room.go,
// processes and ids in answers_share.go.
type answers struct {
	limits keptLimits
	askers map[string]*asker // by name: the process that is accepted; "" has all that are not Tryst
	steps  map[int64]stepEntries
	calls  map[callID]*entry // calls that wait for their answer
	next   uint64            // the last fetch id given out

	sources     map[string]*source // by address
	unaddressed int                // askers without an address in the cluster
	ids         int                // of receives, as asker.ids counts them

	// Lists of *asker. Those without a connection are in one of the first three, the
	// one that lost it first in front.
	lost        list.List // have entries
	resting     list.List // have no entries, and are remembered
	idle        list.List // have nothing here, and are forgotten in time
	remembering list.List // have ids in past

	waiting   int       // entries without an answer
	waitBytes int64     // length of their keys
	bytes     int64     // charged to all askers
	turns     list.List // of *asker with entries that wait for room; whose turn is next is in front
	blocked   bool      // the one whose turn is next waits for the limit for all

	// For use again: actions that were carried out, and entries that are gone.
	acts []keptAction
	free []*entry
}

// stepEntries are the entries of a step, in order, linked by their places in it.
type stepEntries struct{ first, last *entry }

// callID is the shell's handle for one call that waits for an answer.
type callID uint64

type entryState uint8

const (
	entryLimited  entryState = iota // waits for room, has no receive
	entryFetching                   // its receive waits in the rendezvous
	entryStopping                   // its receive was taken back and has not ended yet
	entryKept                       // has its answer
)

// entry is one receive of one asker.
type entry struct {
	asker     *asker
	ask       Ask
	state     entryState
	fetch     uint64 // id of its receive
	calls     []callID
	cancelled bool // stopping: nobody wants the value any more
	ended     bool // its step was cleaned up: what it ends with is not kept
	answer    Answer
	bytes     int64         // charged to its asker: for the answer, or to hold room free for it
	size      int64         // what the value that found no room will be charged; 0 when not known
	place     *list.Element // limited: in asker.limited

	before, after *entry // of its step
}

func newAnswers(limits keptLimits) *answers {
	return &answers{
		limits: limits,
		askers: make(map[string]*asker), sources: make(map[string]*source),
		steps: make(map[int64]stepEntries), calls: make(map[callID]*entry),
	}
}

// ask is the event that call waits for the answer to a.
func (t *answers) ask(now time.Time, a Ask, call callID) []keptAction {
	k, acts, err := t.introduceNow(now, a.Asker, "")
	if err != nil {
		return append(acts, refuse(call, err))
	}
	defer t.place(now, k)
	if end, ok := k.past.ends[a.ID]; ok {
		return append(acts, refuse(call, end.refusal(a)))
	}
	e := k.entry(a.ID)
	if e == nil {
		if err := t.countWaiting(k, a); err != nil {
			return append(acts, refuse(call, err))
		}
		if err := t.hasIDs(k, 1); err != nil {
			return append(acts, refuse(call, err))
		}
		e = t.newEntry(k, a)
		t.insert(e)
		t.countIn(e)
		t.wait(e, call)
		if t.admits(k) {
			return append(append(t.acts, acts...), t.start(e))
		}
		t.limit(e)
		return append(acts, t.admit(now)...)
	}
	switch {
	case e.ask.Step != a.Step || e.ask.Key != a.Key:
		return append(acts, refuse(call, status.Errorf(status.InvalidArgument,
			"receive %016x of %s asked for %s in step %d before, and asks for %s in step %d now",
			a.ID, k.describe(), e.ask.Key, e.ask.Step, a.Key, a.Step)))
	case a.Attempt < e.ask.Attempt:
		return append(acts, refuse(call, superseded(a, e.ask.Attempt)))
	case a.Attempt > e.ask.Attempt:
		for _, old := range t.unwait(e) {
			acts = append(acts, refuse(old, superseded(e.ask, a.Attempt)))
		}
		e.ask.Attempt = a.Attempt
	}
	switch {
	case e.state == entryKept:
		return append(acts, reply(call, e.answer))
	case len(e.calls) >= maxCalls:
		return append(acts, refuse(call, status.Errorf(status.ResourceExhausted,
			"%d calls wait here already for receive %016x of %s", len(e.calls), a.ID, k.describe())))
	}
	t.wait(e, call)
	return acts
}

// insert adds an entry to the table.
func (t *answers) insert(e *entry) {
	e.asker.entries[e.ask.ID] = e
	t.countIDs(e.asker, 1)
	step := t.steps[e.ask.Step]
	if e.before = step.last; e.before != nil {
		e.before.after = e
	} else {
		step.first = e
	}
	step.last = e
	t.steps[e.ask.Step] = step
}

// newEntry takes an entry that is free, or makes one.
func (t *answers) newEntry(k *asker, a Ask) *entry {
	var e *entry
	if n := len(t.free); n > 0 {
		e, t.free = t.free[n-1], t.free[:n-1]
	} else {
		e = new(entry)
	}
	*e = entry{asker: k, ask: a, calls: e.calls[:0]}
	return e
}

// recycle keeps an entry to which nothing points any more.
func (t *answers) recycle(e *entry) {
	if len(t.free) < maxFree {
		*e = entry{calls: e.calls[:0]} // and no tensor with it
		t.free = append(t.free, e)
	}
}

// keep keeps the memory of actions that have been carried out for the next event.
func (t *answers) keep(acts []keptAction) {
	clear(acts) // nobody keeps their tensors
	if n := cap(acts); n >= cap(t.acts) && n <= maxFree {
		t.acts = acts[:0]
	}
}

// countIn counts e as one that waits.
func (t *answers) countIn(e *entry) {
	keyBytes := int64(len(e.ask.Key.String()))
	e.asker.waiting++
	t.waiting++
	e.asker.waitBytes += keyBytes
	t.waitBytes += keyBytes
}

// waited counts e, which has its answer or goes, as one that waits no more.
func (t *answers) waited(e *entry) {
	keyBytes := int64(len(e.ask.Key.String()))
	e.asker.waiting--
	t.waiting--
	e.asker.waitBytes -= keyBytes
	t.waitBytes -= keyBytes
}

// forget removes e from the table; its receive, if any, has ended or reports
// to nobody. Calls that wait for it are not told.
func (t *answers) forget(e *entry) {
	t.unwait(e)
	delete(e.asker.entries, e.ask.ID)
	t.countIDs(e.asker, -1)
	t.leaveStep(e)
	t.charge(e, 0)
	if e.state == entryLimited {
		t.unlimit(e)
	}
	if e.state != entryKept {
		t.waited(e)
	}
}

func (t *answers) leaveStep(e *entry) {
	step := t.steps[e.ask.Step]
	if e.before != nil {
		e.before.after = e.after
	} else {
		step.first = e.after
	}
	if e.after != nil {
		e.after.before = e.before
	} else {
		step.last = e.before
	}
	e.before, e.after = nil, nil
	if step.first == nil {
		delete(t.steps, e.ask.Step)
	} else {
		t.steps[e.ask.Step] = step
	}
}

// wait lets call wait for the answer of e.
func (t *answers) wait(e *entry, call callID) {
	e.calls = append(e.calls, call)
	e.asker.calls++
	t.calls[call] = e
}

// unwait returns the calls that wait for e, which do so no more. The list is good
// until another call waits for e.
func (t *answers) unwait(e *entry) []callID {
	calls := e.calls
	for _, c := range calls {
		delete(t.calls, c)
	}
	e.asker.calls -= len(calls)
	e.calls = calls[:0]
	return calls
}

// callsOf returns the calls that wait for a receive.
func (t *answers) callsOf(a Asker, id uint64) []callID {
	if k := t.known(a); k != nil {
		if e := k.entry(id); e != nil {
			return e.calls
		}
	}
	return nil
}

// start gives e a receive of the rendezvous.
func (t *answers) start(e *entry) keptAction {
	t.next++
	e.state, e.fetch = entryFetching, t.next
	return keptAction{kind: keptFetch, fetch: e.fetch, ask: e.ask}
}

// stop takes the receive of e back.
func (t *answers) stop(e *entry) keptAction {
	t.charge(e, 0)
	e.state = entryStopping
	return keptAction{kind: keptStopFetch, fetch: e.fetch}
}

// fetching returns the entry whose receive a fetch is; nil when it is gone with
// its asker.
func (t *answers) fetching(a Ask, fetch uint64) *entry {
	k := t.known(a.Asker)
	if k == nil {
		return nil
	}
	e := k.entry(a.ID)
	if e == nil || e.fetch != fetch || e.state != entryFetching && e.state != entryStopping {
		return nil
	}
	return e
}

// fetched is the event that the receive of the given fetch has ended. The
// answer's reference goes to the table.
func (t *answers) fetched(now time.Time, a Ask, fetch uint64, ans Answer) []keptAction {
	e := t.fetching(a, fetch)
	if e == nil {
		return giveBack(a, ans)
	}
	defer t.place(now, e.asker)
	// Somebody asks, or asked with a value already there: without a call a
	// Tryst asker is about to ask again, and others have no attempts.
	wanted := len(e.calls) > 0 || e.asker.incarnation == 0
	if e.state == entryStopping {
		switch {
		case e.cancelled, !wanted && ans.Err != nil:
			t.forget(e)
			return append(giveBack(a, ans), t.admit(now)...)
		case status.CodeOf(ans.Err) == status.Cancelled: // taken back, and asked again meanwhile
			return []keptAction{t.start(e)}
		}
	}
	charge := chargeFor(a, ans)
	if !e.ended && !t.fits(e, charge) {
		// Many receives were let through while little was kept. Who has no
		// call would keep the room that it waits for from those who have.
		t.charge(e, 0)
		if e.size = charge; wanted {
			t.limit(e)
		} else {
			t.forget(e)
		}
		return append(giveBack(a, ans), t.admit(now)...)
	}
	t.waited(e)
	t.charge(e, charge)
	e.state, e.answer = entryKept, ans
	acts := t.acts
	for _, c := range t.unwait(e) {
		acts = append(acts, reply(c, ans))
	}
	if e.ended {
		t.ended(now, e, pastCleaned)
		acts = t.let(acts, e)
	}
	return append(acts, t.admit(now)...)
}

// ended notes how e, which goes, has ended, when requests of earlier attempts may
// still be under way.
func (t *answers) ended(now time.Time, e *entry, end ending) {
	if e.ask.Attempt > 1 {
		t.remember(now, e.asker, e.ask.ID, end)
	}
}

// let lets a kept answer go.
func (t *answers) let(acts []keptAction, e *entry) []keptAction {
	t.forget(e)
	if e.answer.Err == nil {
		acts = append(acts, keptAction{kind: keptRelease, answer: e.answer})
	}
	return acts
}

// detach is the event that a call has ended before its answer: its connection
// was lost, or its asker ended it. That is no cancel. A receive without value
// is forgotten, since the next attempt stands in for it; one with a value
// keeps it. Callers that are not Tryst have no attempts: the receive of an id
// of theirs goes on.
func (t *answers) detach(now time.Time, call callID) []keptAction {
	e := t.calls[call]
	if e == nil {
		return nil
	}
	defer t.place(now, e.asker)
	delete(t.calls, call)
	e.asker.calls--
	e.calls = slices.DeleteFunc(e.calls, func(c callID) bool { return c == call })
	if len(e.calls) > 0 || e.asker.incarnation == 0 {
		return nil
	}
	switch e.state {
	case entryLimited:
		t.forget(e)
		return t.admit(now)
	case entryFetching:
		return append([]keptAction{t.stop(e)}, t.admit(now)...)
	}
	return nil
}

// finish is the event that the asker has the answers to ids.
func (t *answers) finish(now time.Time, a Asker, ids []uint64) []keptAction {
	k := t.known(a)
	if k == nil {
		return nil
	}
	defer t.heard(now, k)
	acts := t.acts
	for _, id := range ids {
		e := k.entry(id)
		if e == nil || e.state != entryKept {
			continue // said twice, or of an id that never was
		}
		t.ended(now, e, pastOver)
		acts = t.let(acts, e)
		t.recycle(e)
	}
	return append(acts, t.admit(now)...)
}

// cancel is the event that the asker cancelled ids: they consume nothing. An
// id that is not known is remembered all the same, as its request may still be
// under way. An error has no effect: the asker is not known, or there is no room for
// so many ids.
func (t *answers) cancel(now time.Time, a Asker, ids []uint64) ([]keptAction, error) {
	k := t.known(a)
	if k == nil || k.incarnation == 0 { // a peer without ids of its own cannot cancel
		return nil, status.Errorf(status.FailedPrecondition, "cancel of %d receives: %s with incarnation %016x is not known here; it has to say Hello first", len(ids), a.Name, a.Incarnation)
	}
	unknown := 0
	for _, id := range ids {
		if _, ended := k.past.ends[id]; !ended && k.entry(id) == nil {
			unknown++
		}
	}
	if unknown > 0 {
		if err := t.hasIDs(k, unknown); err != nil {
			return nil, err
		}
	}
	var acts, back []keptAction
	for _, id := range ids {
		if id == 0 {
			continue // names no receive
		}
		t.remember(now, k, id, pastOver)
		if k.entry(id) == nil {
			continue
		}
		e := k.entry(id)
		for _, c := range t.unwait(e) {
			acts = append(acts, refuse(c, status.New(status.Cancelled, "the receive was cancelled by its asker")))
		}
		switch e.state {
		case entryLimited:
			t.forget(e)
		case entryFetching:
			e.cancelled = true
			acts = append(acts, t.stop(e))
		case entryStopping:
			e.cancelled = true
			acts = append(acts, keptAction{kind: keptStopFetch, fetch: e.fetch}) // the shell waits for its end
		case entryKept:
			t.forget(e)
			back = append(back, giveBack(e.ask, e.answer)...)
		}
	}
	acts = append(acts, back...) // behind what stops: it would only come back once more
	t.heard(now, k)
	return append(acts, t.admit(now)...), nil
}

// endStep is the event that a step has been cleaned up: its answers are let
// go. Receives that still wait are ended by the rendezvous itself.
func (t *answers) endStep(now time.Time, step int64) []keptAction {
	var acts []keptAction
	of := t.steps[step]
	for e, after := of.first, (*entry)(nil); e != nil; e = after {
		after = e.after
		switch e.state {
		case entryKept:
			t.ended(now, e, pastCleaned)
			acts = t.let(acts, e)
		case entryFetching, entryStopping:
			e.ended = true
		case entryLimited:
			t.ended(now, e, pastCleaned)
			for _, c := range t.unwait(e) {
				acts = append(acts, refuse(c, status.Errorf(status.Aborted, "Cleanup %d", step)))
			}
			t.forget(e)
		}
		t.place(now, e.asker)
	}
	return append(acts, t.admit(now)...)
}

// drop forgets an asker and all it has.
func (t *answers) drop(k *asker, why *status.Error) []keptAction {
	var acts []keptAction
	for _, e := range k.entries {
		for _, c := range t.unwait(e) {
			acts = append(acts, refuse(c, why))
		}
		switch e.state {
		case entryFetching:
			acts = append(acts, t.stop(e))
			t.forget(e)
		case entryKept:
			acts = t.let(acts, e)
		default:
			t.forget(e)
		}
	}
	t.remove(k)
	return acts
}

// value finds the answer that is kept for a receive: for content that is
// fetched piece by piece. The caller releases it. ok is false when nothing is kept.
func (t *answers) value(a Asker, id uint64, attempt uint32) (v rendezvous.Value, ok bool, err error) {
	k := t.known(a)
	if k == nil {
		return v, false, nil
	}
	if k.past.ends[id] == pastGivenUp {
		return v, false, status.Errorf(status.DataLoss, "the answer to receive %016x was given up", id)
	}
	if e := k.entry(id); e != nil && e.state == entryKept {
		if attempt < e.ask.Attempt {
			return v, false, superseded(Ask{ID: id, Attempt: attempt}, e.ask.Attempt)
		}
		if e.answer.Err == nil {
			e.answer.Value.Tensor.Retain()
		}
		return e.answer.Value, e.answer.Err == nil, e.answer.Err
	}
	return v, false, nil
}
