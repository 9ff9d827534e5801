package transport

import (
	"cmp"
	"slices"
	"time"

	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
)

// answers is the sender's half of ARCHITECTURE.md section 6 as a pure state
// machine: the table of answers, one for all wires, found by the asker's
// incarnation and the receive's id. Its methods are the events; each returns
// the actions to carry out, in order, outside every lock.
//
//	                room             fetched
//	ask ─► limited ─────► fetching ───────────► kept ── finish ──► gone
//	          │               │                   │
//	          │        detach │ cancel            ├─ cancel ──► gone, value restored
//	          ▼               ▼                   └─ lost 60 s ► gone, re-ask: DataLoss
//	        gone          stopping ── fetched ──► kept (asked again meanwhile)
//	                          │              └──► gone, value restored
//	                          └─ stopped ───────► fetching again, or gone
//
// An entry that fetches owns one receive of the rendezvous. That receive ends
// exactly once, by a fetched event; until then the entry stays, so that a value
// matched in the very moment of a break or a cancel is never lost: it is
// answered to the next attempt or goes back to the head of its key.
type answers struct {
	limits keptLimits
	askers map[uint64]*asker // by incarnation; 0: askers that are not Tryst
	bytes  int64             // kept for all askers
	names  map[string]uint64 // the incarnation that asked last under a name
	calls  map[callID]*entry // calls that wait for their answer
	next   uint64            // the last fetch id given out
}

type keptLimits struct {
	maxWaiting      int
	maxWaitingBytes int64
	keptPerAsker    int64
	keptTotal       int64
}

// callID is the shell's handle for one call that waits for an answer.
type callID uint64

// asker is one process that asks.
type asker struct {
	name        string
	incarnation uint64
	entries     map[uint64]*entry    // by receive id
	past        map[uint64]pastEntry // ended ids that may have copies under way
	pastOrder   []pastID             // by time, for forgetting
	limited     []*entry             // wait for room, in the order of their asks
	waiting     int                  // entries without an answer
	waitBytes   int64                // length of their keys
	bytes       int64                // size of the answers kept
	wires       int                  // connections that live
	lost        time.Time            // when the last of them ended; zero while one lives or none was
}

type pastEntry struct {
	lostData bool // its value was given up: a re-ask is DataLoss, not a stale copy
}

type pastID struct {
	id uint64
	at time.Time
}

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
	bytes     int64 // of the answer kept
	size      int64 // limited: of the value that found no room; 0 when not known
}

// keptAction is one thing for the shell to do.
type keptAction struct {
	kind   keptActionKind
	call   callID
	fetch  uint64
	ask    Ask
	answer Answer
}

type keptActionKind uint8

const (
	keptFetch     keptActionKind = iota // receive ask.Key in ask.Step; report by fetched
	keptStopFetch                       // take the receive of that fetch back; it still reports
	keptReply                           // give answer to call, with a reference of its own
	keptRestore                         // put answer.Value back to the head of its key
	keptRelease                         // release answer.Value
)

func newAnswers(limits keptLimits) *answers {
	return &answers{limits: limits, askers: make(map[uint64]*asker), names: make(map[string]uint64), calls: make(map[callID]*entry)}
}

func (t *answers) asker(a Asker) *asker {
	k := t.askers[a.Incarnation]
	if k == nil {
		k = &asker{
			name: a.Name, incarnation: a.Incarnation,
			entries: make(map[uint64]*entry), past: make(map[uint64]pastEntry),
		}
		t.askers[a.Incarnation] = k
	}
	return k
}

// ask is the event that call waits for the answer to a.
func (t *answers) ask(now time.Time, a Ask, call callID) []keptAction {
	k, acts := t.known(a.Asker)
	refuse := func(err *status.Error) []keptAction {
		return append(acts, keptAction{kind: keptReply, call: call, answer: Answer{Err: err}})
	}
	if p, ok := k.past[a.ID]; ok {
		if p.lostData {
			return refuse(status.Errorf(status.DataLoss,
				"the value of %s for receive %016x of %s was given up: no connection to it for %v, or the limit of kept bytes was reached",
				a.Key, a.ID, k.name, giveUpAfter))
		}
		return refuse(status.Errorf(status.Aborted,
			"receive %016x of %s has ended; this is a late copy of its request", a.ID, k.name))
	}
	e := k.entries[a.ID]
	if e == nil {
		if k.waiting >= t.limits.maxWaiting {
			return refuse(status.Errorf(status.ResourceExhausted,
				"%d receives of %s wait here already, the limit of max-waiting", k.waiting, k.describe()))
		}
		size := int64(len(a.Key.String()))
		if k.waitBytes+size > t.limits.maxWaitingBytes {
			return refuse(status.Errorf(status.ResourceExhausted,
				"the keys of the receives of %s that wait here have %d bytes, the limit of max-waiting-bytes", k.describe(), k.waitBytes))
		}
		e = &entry{asker: k, ask: a, calls: []callID{call}}
		k.entries[a.ID] = e
		k.waiting++
		k.waitBytes += size
		t.calls[call] = e
		if !t.room(k) {
			e.state = entryLimited
			k.limited = append(k.limited, e)
			return append(acts, t.shed(now)...)
		}
		return append(acts, t.start(e))
	}
	if e.ask.Step != a.Step || e.ask.Key.String() != a.Key.String() {
		return refuse(status.Errorf(status.InvalidArgument,
			"receive %016x of %s asked for %s in step %d before, and asks for %s in step %d now",
			a.ID, k.describe(), e.ask.Key, e.ask.Step, a.Key, a.Step))
	}
	if a.Attempt < e.ask.Attempt {
		return refuse(superseded(a, e.ask.Attempt))
	}
	if a.Attempt > e.ask.Attempt {
		for _, old := range e.calls {
			delete(t.calls, old)
			acts = append(acts, keptAction{kind: keptReply, call: old, answer: Answer{Err: superseded(e.ask, a.Attempt)}})
		}
		e.calls = e.calls[:0]
		e.ask.Attempt = a.Attempt
	}
	if e.state == entryKept {
		return append(acts, reply(call, e.answer))
	}
	e.calls = append(e.calls, call)
	t.calls[call] = e
	return acts
}

// known returns the entry of an asker, made when it is new. A new process under
// the name of an earlier one takes its place.
func (t *answers) known(a Asker) (*asker, []keptAction) {
	k := t.asker(a)
	if k.incarnation == 0 || k.name != "" && t.names[a.Name] == a.Incarnation {
		return k, nil
	}
	k.name = a.Name
	var acts []keptAction
	if old := t.askers[t.names[a.Name]]; old != nil && old != k && old.incarnation != 0 {
		acts = t.drop(old, status.Errorf(status.Aborted, "another process has taken the place of %s", a.Name))
	}
	t.names[a.Name] = a.Incarnation
	return k, append(acts, t.admit()...)
}

// reply gives a call its answer, with a reference of its own: the table's may be
// gone by the time that the action is carried out.
func reply(call callID, ans Answer) keptAction {
	if ans.Err == nil {
		ans.Value.Tensor.Retain()
	}
	return keptAction{kind: keptReply, call: call, answer: ans}
}

func superseded(a Ask, by uint32) *status.Error {
	return status.Errorf(status.Aborted,
		"attempt %d of receive %016x is answered no more: attempt %d has come", a.Attempt, a.ID, by)
}

func (k *asker) describe() string {
	if k.incarnation == 0 {
		return "peers that are not Tryst"
	}
	return k.name
}

// start gives e a receive of the rendezvous.
func (t *answers) start(e *entry) keptAction {
	t.next++
	e.state, e.fetch = entryFetching, t.next
	return keptAction{kind: keptFetch, fetch: e.fetch, ask: e.ask}
}

// room reports whether another answer may be kept for k. An answer larger than
// the limits passes when nothing else is kept.
func (t *answers) room(k *asker) bool {
	return (k.bytes == 0 || k.bytes < t.limits.keptPerAsker) && (t.bytes == 0 || t.bytes < t.limits.keptTotal)
}

// fetched is the event that the receive of the given fetch has ended. The
// answer's reference goes to the table.
func (t *answers) fetched(now time.Time, a Ask, fetch uint64, ans Answer) []keptAction {
	var e *entry
	if k := t.askers[a.Asker.Incarnation]; k != nil {
		e = k.entries[a.ID]
	}
	if e == nil || e.fetch != fetch || e.state != entryFetching && e.state != entryStopping {
		return giveBack(a, ans) // the asker or the step is gone
	}
	if e.state == entryStopping {
		switch {
		case e.cancelled, len(e.calls) == 0 && ans.Err != nil:
			t.forget(e)
			return append(giveBack(a, ans), t.admit()...)
		case ans.Err != nil: // taken back, and asked again meanwhile
			if status.CodeOf(ans.Err) == status.Cancelled {
				return []keptAction{t.start(e)}
			}
		}
	}
	if ans.Err == nil {
		size := ans.Value.Tensor.Size()
		if !e.ended && !t.fits(e.asker, size) {
			// Many receives were let through while little was kept.
			e.state, e.size = entryLimited, size
			e.asker.limited = append(e.asker.limited, e)
			return append(giveBack(a, ans), t.shed(now)...)
		}
		e.bytes = size
	}
	e.state, e.answer = entryKept, ans
	e.asker.waiting--
	e.asker.waitBytes -= int64(len(e.ask.Key.String()))
	e.asker.bytes += e.bytes
	t.bytes += e.bytes
	var acts []keptAction
	for _, c := range e.calls {
		delete(t.calls, c)
		acts = append(acts, reply(c, ans))
	}
	e.calls = nil
	if e.ended {
		acts = append(acts, release(e)...)
		t.forget(e)
	}
	return acts
}

// fits is room for an answer of known size.
func (t *answers) fits(k *asker, size int64) bool {
	return (k.bytes == 0 || k.bytes+size <= t.limits.keptPerAsker) && (t.bytes == 0 || t.bytes+size <= t.limits.keptTotal)
}

// giveBack undoes a receive whose answer nobody takes.
func giveBack(a Ask, ans Answer) []keptAction {
	if ans.Err != nil {
		return nil
	}
	return []keptAction{{kind: keptRestore, ask: a, answer: ans}}
}

// forget removes e from the table; its receive, if any, has ended or reports
// to nobody.
func (t *answers) forget(e *entry) {
	for _, c := range e.calls {
		delete(t.calls, c)
	}
	e.calls = nil
	k := e.asker
	delete(k.entries, e.ask.ID)
	if e.state == entryKept {
		k.bytes -= e.bytes
		t.bytes -= e.bytes
		return
	}
	k.waiting--
	k.waitBytes -= int64(len(e.ask.Key.String()))
	if e.state == entryLimited {
		for i, l := range k.limited {
			if l == e {
				k.limited = append(k.limited[:i], k.limited[i+1:]...)
				break
			}
		}
	}
}

// admit starts the entries that waited for room, as far as there is room now.
func (t *answers) admit() []keptAction {
	var acts []keptAction
	for _, k := range t.askers {
		let := int64(0) // bytes of those let through now, as far as known
		for len(k.limited) > 0 && t.room(k) && (let == 0 || t.fits(k, let)) {
			e := k.limited[0]
			if e.size > 0 && !t.fits(k, let+e.size) {
				break // in order: smaller ones behind it would keep it waiting for ever
			}
			k.limited = k.limited[1:]
			let += e.size
			acts = append(acts, t.start(e))
		}
	}
	return acts
}

// detach is the event that a call has ended before its answer: its connection
// was lost, or its asker ended it. That is no cancel. A receive without value
// is forgotten, since the next attempt stands in for it; one with a value
// keeps it. Callers that are not Tryst have no attempts: the receive of an id
// of theirs goes on.
func (t *answers) detach(call callID) []keptAction {
	e := t.calls[call]
	if e == nil {
		return nil
	}
	delete(t.calls, call)
	for i, c := range e.calls {
		if c == call {
			e.calls = append(e.calls[:i], e.calls[i+1:]...)
			break
		}
	}
	if len(e.calls) > 0 || e.asker.incarnation == 0 {
		return nil
	}
	switch e.state {
	case entryLimited:
		t.forget(e)
	case entryFetching:
		e.state = entryStopping
		return []keptAction{{kind: keptStopFetch, fetch: e.fetch}}
	}
	return nil
}

// finish is the event that the asker has the answers to ids.
func (t *answers) finish(now time.Time, incarnation uint64, ids []uint64) []keptAction {
	k := t.askers[incarnation]
	if k == nil {
		return nil
	}
	var acts []keptAction
	for _, id := range ids {
		e := k.entries[id]
		if e == nil || e.state != entryKept {
			continue // said twice, or of an id that never was
		}
		acts = append(acts, release(e)...)
		t.forget(e)
		if e.ask.Attempt > 1 {
			k.remember(now, id, pastEntry{})
		}
	}
	return append(acts, t.admit()...)
}

func release(e *entry) []keptAction {
	if e.answer.Err != nil {
		return nil
	}
	return []keptAction{{kind: keptRelease, answer: e.answer}}
}

// cancel is the event that the asker cancelled ids: they consume nothing. An
// id that is not known is remembered all the same, as its request may still be
// under way.
func (t *answers) cancel(now time.Time, incarnation uint64, ids []uint64) []keptAction {
	if incarnation == 0 {
		return nil // a peer without ids of its own cannot cancel
	}
	k := t.asker(Asker{Incarnation: incarnation})
	var acts []keptAction
	var back []*entry
	for _, id := range ids {
		k.remember(now, id, pastEntry{})
		e := k.entries[id]
		if e == nil {
			continue
		}
		for _, c := range e.calls {
			delete(t.calls, c)
			acts = append(acts, keptAction{kind: keptReply, call: c,
				answer: Answer{Err: status.New(status.Cancelled, "the receive was cancelled by its asker")}})
		}
		e.calls = nil
		switch e.state {
		case entryLimited:
			t.forget(e)
		case entryFetching:
			e.state, e.cancelled = entryStopping, true
			acts = append(acts, keptAction{kind: keptStopFetch, fetch: e.fetch})
		case entryStopping:
			e.cancelled = true
		case entryKept:
			t.forget(e)
			back = append(back, e)
		}
	}
	// Each goes to the head of its key: the one taken last goes back first.
	slices.SortFunc(back, func(a, b *entry) int { return cmp.Compare(b.fetch, a.fetch) })
	for _, e := range back {
		acts = append(acts, giveBack(e.ask, e.answer)...)
	}
	return append(acts, t.admit()...)
}

// endStep is the event that a step has been cleaned up: its answers are let
// go. Receives that still wait are ended by the rendezvous itself.
func (t *answers) endStep(step int64) []keptAction {
	var acts []keptAction
	for _, k := range t.askers {
		for _, e := range k.entries {
			if e.ask.Step != step {
				continue
			}
			switch e.state {
			case entryKept:
				acts = append(acts, release(e)...)
				t.forget(e)
			case entryFetching, entryStopping:
				e.ended = true
			case entryLimited:
				for _, c := range e.calls {
					acts = append(acts, keptAction{kind: keptReply, call: c,
						answer: Answer{Err: status.Errorf(status.Aborted, "Cleanup %d", step)}})
				}
				t.forget(e)
			}
		}
	}
	return append(acts, t.admit()...)
}

// drop forgets an asker and all it has.
func (t *answers) drop(k *asker, why *status.Error) []keptAction {
	var acts []keptAction
	for _, e := range k.entries {
		for _, c := range e.calls {
			acts = append(acts, keptAction{kind: keptReply, call: c, answer: Answer{Err: why}})
		}
		switch e.state {
		case entryFetching:
			acts = append(acts, keptAction{kind: keptStopFetch, fetch: e.fetch})
		case entryKept:
			acts = append(acts, release(e)...)
		}
		t.forget(e)
	}
	t.remove(k)
	return acts
}

func (t *answers) remove(k *asker) {
	delete(t.askers, k.incarnation)
	if t.names[k.name] == k.incarnation {
		delete(t.names, k.name)
	}
}

// wireUp is the event that a connection to the asker lives.
func (t *answers) wireUp(a Asker) []keptAction {
	k, acts := t.known(a)
	k.wires++
	k.lost = time.Time{}
	return acts
}

// wireDown is the event that one of the asker's connections has ended.
func (t *answers) wireDown(now time.Time, incarnation uint64) {
	k := t.askers[incarnation]
	if k == nil || k.wires == 0 {
		return
	}
	if k.wires--; k.wires == 0 {
		k.lost = now
	}
}

// shed gives up what unreachable askers hold, when the limit for all is
// reached: the answers of an asker that can be reached are never given up.
func (t *answers) shed(now time.Time) []keptAction {
	if t.bytes < t.limits.keptTotal {
		return nil
	}
	var acts []keptAction
	for _, k := range t.askers {
		if !k.lost.IsZero() {
			acts = append(acts, t.giveUp(now, k)...)
		}
	}
	return append(acts, t.admit()...)
}

func (t *answers) giveUp(now time.Time, k *asker) []keptAction {
	var acts []keptAction
	for id, e := range k.entries {
		if e.state == entryKept {
			acts = append(acts, release(e)...)
			t.forget(e)
			k.remember(now, id, pastEntry{lostData: e.answer.Err == nil})
		}
	}
	return acts
}

func (k *asker) remember(now time.Time, id uint64, p pastEntry) {
	if len(k.pastOrder) >= maxRemembered {
		delete(k.past, k.pastOrder[0].id)
		k.pastOrder = k.pastOrder[1:]
	}
	if _, ok := k.past[id]; !ok {
		k.pastOrder = append(k.pastOrder, pastID{id, now})
	}
	k.past[id] = p
}

// tick is the event that time has passed. It gives up what is kept for askers
// without a wire, forgets old ids and askers that have nothing, and returns
// when it wants to be called next; zero for not before another event.
func (t *answers) tick(now time.Time) (acts []keptAction, next time.Time) {
	sooner := func(at time.Time) {
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	for _, k := range t.askers {
		for len(k.pastOrder) > 0 && !now.Before(k.pastOrder[0].at.Add(rememberFor)) {
			delete(k.past, k.pastOrder[0].id)
			k.pastOrder = k.pastOrder[1:]
		}
		if len(k.pastOrder) > 0 {
			sooner(k.pastOrder[0].at.Add(rememberFor))
		}
		if !k.lost.IsZero() {
			if at := k.lost.Add(giveUpAfter); now.Before(at) {
				sooner(at)
			} else {
				acts = append(acts, t.giveUp(now, k)...)
			}
		}
		if k.wires == 0 && len(k.entries) == 0 && len(k.past) == 0 {
			t.remove(k)
		}
	}
	return append(acts, t.admit()...), next
}

// value finds the answer that is kept for a receive: for content that is
// fetched piece by piece. The caller releases it. ok is false when nothing is kept.
func (t *answers) value(incarnation, id uint64) (v rendezvous.Value, ok bool, err error) {
	k := t.askers[incarnation]
	if k == nil {
		return v, false, nil
	}
	if e := k.entries[id]; e != nil && e.state == entryKept {
		if e.answer.Err == nil {
			e.answer.Value.Tensor.Retain()
		}
		return e.answer.Value, e.answer.Err == nil, e.answer.Err
	}
	if k.past[id].lostData {
		err = status.Errorf(status.DataLoss, "the value of receive %016x of %s was given up", id, k.name)
	}
	return v, false, err
}
