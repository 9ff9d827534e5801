package delivery

import (
	"container/list"
	"slices"
	"time"

	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
)

// responses is the responder's half of ARCHITECTURE.md section 6 as a pure state
// machine: the response cache, one for all connections. An entry is found by the
// requester (name and incarnation) and the receive's id. The methods are the events. Each
// returns the actions to carry out, in order.
//
//	                    space            fetched
//	request ─► limited ─────► fetching ───────────► kept ── ack ──► gone
//	              │  ▲            │  │                │
//	              │  └────────────┼──┘ too large now: ├─ cancel ──► gone, value restored
//	              │               │    value restored └─ lost 60 s ► gone, then DataLoss
//	              │ detach,cancel │ detach, cancel
//	              ▼               ▼
//	            gone          stopping ── fetched ──► kept (a value came first)
//	                              │              └──► gone, value restored (cancelled)
//	                              └─ stopped ───────► fetching (requested again), or gone
//
// An entry that fetches owns one receive of the rendezvous. That receive ends exactly
// once, by a fetched event, and until then the entry stays. So a value that is matched in
// the moment of a break or a cancel is never lost: it answers the next attempt or goes
// back to the head of its key. Values of receives that were under way together go back in
// any order, as they would have arrived.
//
// requesters.go decides which process is accepted under a name. What a peer can make the
// cache hold is bounded: receives, calls and values in space.go, processes and ids in
// shares.go.
type responses struct {
	limits     cacheLimits
	requesters map[string]*requester // by name: the process that is accepted; "" has all that are not Tryst
	steps      map[int64]stepEntries
	next       uint64 // the last fetch id given out

	origins     map[string]*origin // by address
	unaddressed int                // requesters without an address in the cluster
	ids         int                // of receives, as requester.ids counts them

	// Lists of *requester. Those without a connection are in one of the first three, the
	// one that lost it first in front.
	lost        list.List // have entries
	resting     list.List // have no entries, and are remembered
	idle        list.List // have nothing here, and are forgotten in time
	remembering list.List // have ids in past

	waiting   int       // entries without a response
	waitBytes int64     // length of their keys
	bytes     int64     // charged to all requesters
	turns     list.List // of *requester with entries that wait for space; the next in front
	blocked   bool      // the next one waits for the limit for all
	full      int       // addresses whose requesters wait for their share, found in
	round     uint64    // of admitFitting
}

// stepEntries are the entries of a step, in order, linked by their places in it.
type stepEntries struct{ first, last *entry }

type entryState uint8

const (
	entryLimited  entryState = iota // waits for space, has no receive
	entryFetching                   // its receive waits in the rendezvous
	entryStopping                   // its receive was taken back and has not ended yet
	entryKept                       // has its response
)

// entry is one receive of one requester.
type entry struct {
	requester *requester
	request   transport.Request
	state     entryState
	fetch     uint64    // id of its receive
	calls     []call    // that wait for the response
	cancelled bool      // stopping: no value is wanted any more
	ended     bool      // its step was cleaned up: what it ends with is not kept
	asked     time.Time // when its newest attempt came
	response  transport.Response
	bytes     int64         // charged to its requester: for the response, or to reserve space for it
	size      int64         // what the value that found no space will be charged; 0 when not known
	place     *list.Element // limited: in requester.limited

	before, after *entry // of its step
}

func newResponses(limits cacheLimits) *responses {
	return &responses{
		limits: limits, requesters: make(map[string]*requester),
		origins: make(map[string]*origin), steps: make(map[int64]stepEntries),
	}
}

// request is the event that a call waits for the response to r.
func (t *responses) request(now time.Time, r transport.Request, replier transport.Replier) []responseAction {
	to := call{replier, r.ID, r.Attempt}
	k, acts, err := t.introduceNow(now, r.Requester, "")
	if err != nil {
		return append(acts, refuse(to, err))
	}
	defer t.place(now, k)
	if end, ok := k.past.ends[r.ID]; ok {
		return append(acts, refuse(to, end.refusal(r)))
	}
	e := k.entries[r.ID]
	if e == nil && t.reportsLoss(now, k, r) {
		return append(acts, refuse(to, pastExpired.refusal(r)))
	}
	if e == nil {
		return append(acts, t.enterRequest(now, k, r, to)...)
	}
	switch {
	case e.request.Step != r.Step || e.request.Key != r.Key:
		return append(acts, refuse(to, status.Errorf(status.InvalidArgument,
			"receive %016x of %s asked for %s in step %d before, and asks for %s in step %d now",
			r.ID, k.describe(), e.request.Key, e.request.Step, r.Key, r.Step)))
	case r.Attempt < e.request.Attempt:
		return append(acts, refuse(to, superseded(r, e.request.Attempt)))
	case r.Attempt > e.request.Attempt:
		for _, old := range t.takeCalls(e) {
			acts = append(acts, refuse(old, superseded(e.request, r.Attempt)))
		}
		e.request.Attempt, e.asked = r.Attempt, now
	}
	switch {
	case e.state == entryKept:
		return append(acts, reply(to, e.response))
	case len(e.calls) >= maxCalls:
		return append(acts, refuse(to, status.Errorf(status.ResourceExhausted,
			"%d calls wait here already for receive %016x of %s", len(e.calls), r.ID, k.describe())))
	}
	t.wait(e, to)
	return acts
}

// enterRequest makes the entry of a receive that is not known yet.
func (t *responses) enterRequest(now time.Time, k *requester, r transport.Request, to call) []responseAction {
	err := t.countWaiting(k, r)
	if err == nil {
		err = t.hasIDs(k, 1)
	}
	if err != nil {
		return []responseAction{refuse(to, err)}
	}
	e := &entry{requester: k, request: r, asked: now}
	t.insert(e)
	t.countIn(e)
	t.wait(e, to)
	if t.admits(k) {
		return []responseAction{t.start(e)}
	}
	t.limit(e)
	return t.admit(now)
}

// insert adds an entry to the cache.
func (t *responses) insert(e *entry) {
	e.requester.entries[e.request.ID] = e
	t.countIDs(e.requester, 1)
	step := t.steps[e.request.Step]
	if e.before = step.last; e.before != nil {
		e.before.after = e
	} else {
		step.first = e
	}
	step.last = e
	t.steps[e.request.Step] = step
}

// countIn counts e as one that waits.
func (t *responses) countIn(e *entry) {
	keyBytes := int64(len(e.request.Key.String()))
	e.requester.waiting++
	t.waiting++
	e.requester.waitBytes += keyBytes
	t.waitBytes += keyBytes
}

// waited counts e, which has its response or goes, as one that waits no more.
func (t *responses) waited(e *entry) {
	keyBytes := int64(len(e.request.Key.String()))
	e.requester.waiting--
	t.waiting--
	e.requester.waitBytes -= keyBytes
	t.waitBytes -= keyBytes
}

// forget removes e from the cache. Its receive, if any, has ended or reports to nobody.
// Calls that wait for it get no response.
func (t *responses) forget(e *entry) {
	t.takeCalls(e)
	delete(e.requester.entries, e.request.ID)
	t.countIDs(e.requester, -1)
	t.leaveStep(e)
	t.charge(e, 0)
	if e.state == entryLimited {
		t.unlimit(e)
	}
	if e.state != entryKept {
		t.waited(e)
	}
}

func (t *responses) leaveStep(e *entry) {
	step := t.steps[e.request.Step]
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
		delete(t.steps, e.request.Step)
	} else {
		t.steps[e.request.Step] = step
	}
}

// wait lets a call wait for the response of e.
func (t *responses) wait(e *entry, c call) {
	e.calls = append(e.calls, c)
	e.requester.calls++
}

// takeCalls returns the calls that wait for e, which do so no more.
func (t *responses) takeCalls(e *entry) []call {
	calls := e.calls
	e.requester.calls -= len(calls)
	e.calls = nil
	return calls
}

// start gives e a receive of the rendezvous.
func (t *responses) start(e *entry) responseAction {
	t.next++
	e.state, e.fetch = entryFetching, t.next
	return responseAction{kind: doFetch, fetch: e.fetch, request: e.request}
}

// stop takes the receive of e back.
func (t *responses) stop(e *entry) responseAction {
	t.charge(e, 0)
	e.state = entryStopping
	return responseAction{kind: doStopFetch, fetch: e.fetch}
}

// entry finds a receive; nil when there is none.
func (t *responses) entry(p transport.Process, id uint64) *entry {
	if k := t.known(p); k != nil {
		return k.entries[id]
	}
	return nil
}

// fetching returns the entry that a fetch belongs to; nil when it is gone with its
// requester.
func (t *responses) fetching(r transport.Request, fetch uint64) *entry {
	e := t.entry(r.Requester, r.ID)
	if e == nil || e.fetch != fetch || e.state != entryFetching && e.state != entryStopping {
		return nil
	}
	return e
}

// fetched is the event that the receive of the given fetch has ended. The reference in
// the response goes to the cache.
func (t *responses) fetched(now time.Time, r transport.Request, fetch uint64, resp transport.Response) []responseAction {
	e := t.fetching(r, fetch)
	if e == nil {
		return giveBack(r, resp)
	}
	defer t.place(now, e.requester)
	// Without a call a Tryst requester is about to send its next attempt. Others have no
	// attempts.
	wanted := len(e.calls) > 0 || e.requester.incarnation == 0
	if e.state == entryStopping {
		switch {
		case e.cancelled, !wanted && resp.Err != nil:
			t.forget(e)
			return append(giveBack(r, resp), t.admit(now)...)
		case status.CodeOf(resp.Err) == status.Cancelled: // taken back, and requested again meanwhile
			return []responseAction{t.start(e)}
		}
	}
	charge := chargeFor(r, resp)
	if !e.ended && !t.fits(e, charge) {
		// Many receives began while little was kept. One without a call must not keep the
		// space from those that have one.
		t.charge(e, 0)
		if e.size = charge; wanted {
			t.limit(e)
		} else {
			t.forget(e)
		}
		return append(giveBack(r, resp), t.admit(now)...)
	}
	t.waited(e)
	t.charge(e, charge)
	e.state, e.response = entryKept, resp
	var acts []responseAction
	for _, c := range t.takeCalls(e) {
		acts = append(acts, reply(c, resp))
	}
	if e.ended {
		e.requester.past.sent(e)
		t.ended(now, e, pastCleaned)
		acts = t.release(acts, e, cleanedUp(r.Step))
	} else if resp.Err != nil && t.asksAgain(r) {
		t.forget(e) // nobody acknowledges an error that comes too late
	}
	return append(acts, t.admit(now)...)
}

// asksAgain reports whether an error need not be kept, since the next attempt can ask the values again. For a step that is over
// they give the same error. A publication gives the value to each receive, or says that it is gone.
func (t *responses) asksAgain(r transport.Request) bool {
	return t.limits.over != nil && t.limits.over(r.Step, r.Key) || t.published(r.Key)
}

// published reports whether each receive of key gets the value.
func (t *responses) published(key rendezvous.Key) bool {
	return t.limits.republishes != nil && t.limits.republishes(key)
}

// ended notes how e, which goes, has ended, if requests of earlier attempts may still be
// under way.
func (t *responses) ended(now time.Time, e *entry, end ending) {
	if e.request.Attempt > 1 {
		t.remember(now, e.requester, e.request.ID, end)
	}
}

// release forgets an entry and releases the response that is kept for it. why is what the
// sender of its value learns: nil when the requester has it.
func (t *responses) release(acts []responseAction, e *entry, why error) []responseAction {
	t.forget(e)
	if e.response.Err == nil {
		acts = append(acts, responseAction{kind: doRelease, response: transport.Response{Value: e.response.Value, Err: why}})
	}
	return acts
}

// detach is the event that a call has ended before its response: its connection was lost,
// or its requester ended it. That is no cancel. A receive without value is forgotten,
// since the next attempt stands in for it; one with a value keeps it. Callers that are not
// Tryst have no attempts: the receive of an id of theirs goes on.
func (t *responses) detach(now time.Time, p transport.Process, c call) []responseAction {
	e := t.entry(p, c.id)
	if e == nil {
		return nil
	}
	i := slices.Index(e.calls, c)
	if i < 0 {
		return nil
	}
	defer t.place(now, e.requester)
	e.calls = slices.Delete(e.calls, i, i+1)
	e.requester.calls--
	if len(e.calls) > 0 || e.requester.incarnation == 0 {
		return nil
	}
	switch e.state {
	case entryLimited:
		t.forget(e)
		return t.admit(now)
	case entryFetching:
		return append([]responseAction{t.stop(e)}, t.admit(now)...)
	}
	return nil
}

// ack is the event that the requester has the responses to ids.
func (t *responses) ack(now time.Time, p transport.Process, ids []uint64) []responseAction {
	k := t.known(p)
	if k == nil {
		return nil
	}
	defer t.heard(now, k)
	var acts []responseAction
	for _, id := range ids {
		e := k.entries[id]
		if e == nil || e.state != entryKept {
			k.past.reported(id) // acknowledged before, dropped, or unknown
			continue
		}
		t.ended(now, e, pastOver)
		acts = t.release(acts, e, nil)
	}
	return append(acts, t.admit(now)...)
}

// cancel is the event that the requester cancelled ids: they consume nothing. An unknown
// id is remembered all the same, as its request may still be under way. Nothing is cancelled
// after an error: the requester is refused, as its requests would be, or there is no space for so many ids.
func (t *responses) cancel(now time.Time, p transport.Process, ids []uint64) ([]responseAction, error) {
	if p.Incarnation == 0 {
		return nil, status.Errorf(status.FailedPrecondition, "cancel of %d receives: %q without an incarnation has no ids of its own", len(ids), p.Name)
	}
	k, acts, err := t.introduceNow(now, p, "")
	if err != nil {
		return acts, err
	}
	unknown := 0
	for _, id := range ids {
		if _, ended := k.past.ends[id]; !ended && k.entries[id] == nil {
			unknown++
		}
	}
	if unknown > 0 {
		if err := t.hasIDs(k, unknown); err != nil {
			return acts, err
		}
	}
	var back []responseAction
	unreported := false
	for _, id := range ids {
		if id == 0 {
			continue // names no receive
		}
		end, owes := k.past.cancelled(id)
		t.remember(now, k, id, end)
		unreported = unreported || owes
		e := k.entries[id]
		if e == nil {
			continue
		}
		for _, c := range t.takeCalls(e) {
			acts = append(acts, refuse(c, status.New(status.Cancelled, "the receive was cancelled by its requester")))
		}
		if e.state == entryKept {
			t.forget(e)
			back = append(back, giveBack(e.request, e.response)...)
			continue
		}
		acts = append(acts, t.giveUp(e)...)
	}
	if unreported {
		acts = append(acts, t.reportLosses(now, k)...)
	}
	acts = append(acts, back...) // behind what stops: a receive that stops must not take it again
	t.heard(now, k)
	return append(acts, t.admit(now)...), nil
}

// giveUp ends e, which has no response and needs none any more. A value that comes all the same
// goes back.
func (t *responses) giveUp(e *entry) []responseAction {
	if e.state == entryLimited {
		t.forget(e)
		return nil
	}
	e.cancelled = true
	if e.state == entryStopping {
		return []responseAction{{kind: doStopFetch, fetch: e.fetch}} // the shell waits for its end
	}
	return []responseAction{t.stop(e)}
}

// drop forgets a requester and all it has.
func (t *responses) drop(k *requester, why *status.Error) []responseAction {
	var acts []responseAction
	for _, e := range k.entries {
		for _, c := range t.takeCalls(e) {
			acts = append(acts, refuse(c, why))
		}
		switch e.state {
		case entryFetching:
			acts = append(acts, t.stop(e))
			t.forget(e)
		case entryKept:
			acts = t.release(acts, e, notAcknowledged(e.request, why))
		default:
			t.forget(e)
		}
	}
	t.remove(k)
	return acts
}
