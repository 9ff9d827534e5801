package delivery

import (
	"time"

	"github.com/tryst-rdma/tryst/rendezvous"
)

// endStep is the event that a step has been cleaned up: its responses are released.
// Receives that still wait are ended by the rendezvous itself.
func (t *responses) endStep(now time.Time, step int64) []responseAction {
	var acts []responseAction
	of := t.steps[step]
	for e, after := of.first, (*entry)(nil); e != nil; e = after {
		after = e.after
		acts = t.endEntry(now, acts, e)
	}
	return append(acts, t.admit(now)...)
}

// endKeys is the event that published values are withdrawn: the responses that are kept of them are released in
// whatever step they were requested, as at its end. A puller has its step ended; others need not end theirs.
func (t *responses) endKeys(now time.Time, withdrawn func(rendezvous.Key) bool) []responseAction {
	var all []*entry
	for _, k := range t.requesters {
		for _, e := range k.entries {
			if withdrawn(e.request.Key) {
				all = append(all, e)
			}
		}
	}
	var acts []responseAction
	for _, e := range all {
		acts = t.endEntry(now, acts, e)
	}
	return append(acts, t.admit(now)...)
}

// endEntry releases the response of what can be requested no more.
func (t *responses) endEntry(now time.Time, acts []responseAction, e *entry) []responseAction {
	why := cleanedUp(e.request.Step)
	switch e.state {
	case entryKept:
		e.requester.past.sent(e)
		t.ended(now, e, pastCleaned)
		acts = t.release(acts, e, why)
	case entryFetching, entryStopping:
		e.ended = true
	case entryLimited:
		t.ended(now, e, pastCleaned)
		for _, c := range t.takeCalls(e) {
			acts = append(acts, refuse(c, why))
		}
		t.forget(e)
	}
	t.place(now, e.requester)
	return acts
}
