package delivery

import (
	"container/list"
	"time"

	"github.com/tryst-rdma/tryst/status"
)

// ending is how a receive of the past ended.
type ending uint8

const (
	pastOver    ending = iota // acknowledged or cancelled
	pastExpired               // its response was dropped
	pastCleaned               // its step was cleaned up
)

// refusal is the response to a request for something past.
func (end ending) refusal(a Request) *status.Error {
	switch end {
	case pastExpired:
		return status.Errorf(status.DataLoss,
			"the response to receive %016x of %s, for %s, was dropped: there was no connection for %v, or the limit of kept bytes was reached",
			a.ID, a.Requester.Name, a.Key, expireAfter)
	case pastCleaned:
		return cleanedUp(a.Step)
	}
	return status.Errorf(status.Aborted,
		"receive %016x of %s has ended; this is a late copy of its request", a.ID, a.Requester.Name)
}

// cleanedUp is the error of everything in a step that was cleaned up.
func cleanedUp(step int64) *status.Error { return status.Errorf(status.Aborted, "Cleanup %d", step) }

// past remembers, for one requester, ids of receives that have ended but may have copies of
// their requests under way.
type past struct {
	ends   map[uint64]ending
	order  []pastRecord  // by time
	listed *list.Element // its requester's place in responses.remembering, while there are ids
}

type pastRecord struct {
	id uint64
	at time.Time
}

func newPast() past { return past{ends: make(map[uint64]ending)} }

// remember notes that a receive of k has ended. There is space for it (hasIDs).
func (t *responses) remember(now time.Time, k *requester, id uint64, end ending) {
	if _, ok := k.past.ends[id]; !ok {
		k.past.order = append(k.past.order, pastRecord{id, now})
		t.countIDs(k, 1)
		if k.past.listed == nil {
			k.past.listed = t.remembering.PushBack(k)
		}
	}
	k.past.ends[id] = end
}

// forgetOld forgets the ids of k that are old, and returns when the next one will be;
// zero for none.
func (t *responses) forgetOld(now time.Time, k *requester) (next time.Time) {
	p := &k.past
	for len(p.order) > 0 {
		if at := p.order[0].at.Add(rememberFor); now.Before(at) {
			return at
		}
		delete(p.ends, p.order[0].id)
		p.order = p.order[1:]
		t.countIDs(k, -1)
	}
	t.remembering.Remove(p.listed)
	*p = newPast() // gives the memory back
	t.place(now, k)
	return time.Time{}
}

// expire drops the responses of a requester that cannot be reached. Receives that are
// being taken back have no response and stay.
func (t *responses) expire(now time.Time, k *requester) []responseAction {
	var acts []responseAction
	for id, e := range k.entries {
		if e.state == entryKept {
			acts = t.release(acts, e, pastExpired.refusal(e.request))
			t.remember(now, k, id, pastExpired)
		}
	}
	t.place(now, k)
	return acts
}

// due reports whether anything will have to be dropped or forgotten.
func (t *responses) due() bool { return t.bytes > 0 || t.remembering.Len()+t.idle.Len() > 0 }

// tick is the event that time has passed. It drops what is kept for requesters without a
// connection, and forgets old ids and requesters that had nothing here for long. It returns
// when it has to be called next; zero for not before another event.
func (t *responses) tick(now time.Time) (acts []responseAction, next time.Time) {
	soonest := func(at time.Time) {
		if !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	for at := t.remembering.Front(); at != nil; {
		k := item[*requester](at)
		at = at.Next()
		soonest(t.forgetOld(now, k))
	}
	for at := t.lost.Front(); at != nil; {
		k := item[*requester](at)
		if due := k.since.Add(expireAfter); now.Before(due) {
			soonest(due)
			break
		}
		at = at.Next()
		acts = append(acts, t.expire(now, k)...)
	}
	for t.idle.Len() > 0 {
		k := item[*requester](t.idle.Front())
		if due := k.since.Add(rememberFor); now.Before(due) {
			soonest(due)
			break
		}
		t.remove(k)
	}
	return append(acts, t.admit(now)...), next
}
