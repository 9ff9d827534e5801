package delivery

import (
	"container/list"
	"encoding/binary"
	"hash/fnv"
	"slices"
	"time"

	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
)

// ending is how a receive of the past ended.
type ending uint8

const (
	pastOver    ending = iota // acknowledged or cancelled
	pastExpired               // its response was dropped
	pastCleaned               // its step was cleaned up
	pastLost                  // its response was dropped, and then it was cancelled
)

// refusal is the response to a request for something past.
func (end ending) refusal(a transport.Request) *status.Error {
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
func cleanedUp(step int64) *status.Error {
	return status.Errorf(status.Aborted, "Cleanup %d", step).WithKind(status.ErrStepEnded)
}

// past remembers, for one requester, ids of receives that have ended but may have copies of
// their requests under way.
//
// A receive whose value was dropped ends with DataLoss. If that receive was cancelled, nobody saw
// its error, so the next receive under its key ends with DataLoss instead: a waiting one, or else
// the next to arrive. Keys may be long, so only their hashes are kept. A requester that makes two
// keys with one hash harms only its own receives.
type past struct {
	ends   map[uint64]ending
	lost   map[uint64]lostValue // ids whose value was dropped and whose loss is not reported
	owed   map[uint64][]uint64  // those of them that were cancelled, by hash
	unread map[uint64]time.Time // ids whose value was sent before its step ended, and not acknowledged, and when they were requested; for Drain
	order  []pastRecord         // by time
	listed *list.Element        // its requester's place in responses.remembering, while there are ids
}

type pastRecord struct {
	id uint64
	at time.Time
}

// lostValue is a value that was dropped.
type lostValue struct {
	hash uint64 // of its step and key
	step int64
}

func newPast() past {
	return past{ends: make(map[uint64]ending), lost: make(map[uint64]lostValue), owed: make(map[uint64][]uint64)}
}

// hashOf returns the hash of a request's step and key.
func hashOf(r transport.Request) uint64 {
	h := fnv.New64a()
	_ = binary.Write(h, binary.LittleEndian, r.Step) // neither fails
	_, _ = h.Write([]byte(r.Key.String()))
	return h.Sum64()
}

// cancelled returns how a receive of id ends that is cancelled now, and whether another one has to
// report its loss from now on.
func (p *past) cancelled(id uint64) (end ending, owes bool) {
	delete(p.unread, id)
	v, lost := p.lost[id]
	if !lost {
		return pastOver, false
	}
	if owes = p.ends[id] != pastLost; owes {
		p.owed[v.hash] = append(p.owed[v.hash], id)
	}
	return pastLost, owes
}

// reported is the event that the loss of the value of id, if it was lost, has been reported or
// is too old; or that the requester acknowledged id.
func (p *past) reported(id uint64) {
	delete(p.unread, id)
	v, lost := p.lost[id]
	if !lost {
		return
	}
	delete(p.lost, id)
	left := slices.DeleteFunc(p.owed[v.hash], func(other uint64) bool { return other == id })
	if p.owed[v.hash] = left; len(left) == 0 {
		delete(p.owed, v.hash)
	}
}

// reportsLoss reports whether a new receive ends with DataLoss, for a value under its key that
// was dropped and whose receive was then cancelled.
func (t *responses) reportsLoss(now time.Time, k *requester, r transport.Request) bool {
	return len(k.past.owed) > 0 && t.hasIDs(k, 1) == nil && t.reportLoss(now, k, r)
}

// reportLoss assigns the earliest unreported loss under r's key to r, and reports whether there was
// one. If r is cancelled before the requester has the response, the next receive reports the loss.
// The caller has checked that there is space for the id of r.
func (t *responses) reportLoss(now time.Time, k *requester, r transport.Request) bool {
	hash := hashOf(r)
	owed := k.past.owed[hash]
	if len(owed) == 0 {
		return false
	}
	first := owed[0]
	k.past.reported(first)
	k.past.ends[first] = pastOver
	t.remember(now, k, r.ID, pastExpired)
	k.past.lost[r.ID] = lostValue{hash, r.Step}
	return true
}

// reportLosses ends waiting receives with DataLoss, one for each unreported loss under their key, the
// earliest receives first. Call it after a new loss.
func (t *responses) reportLosses(now time.Time, k *requester) (acts []responseAction) {
	for _, of := range t.steps {
		for e, after := of.first, (*entry)(nil); e != nil; e = after {
			after = e.after
			if e.requester != k || e.state == entryKept || e.cancelled || !t.reportLoss(now, k, e.request) {
				continue
			}
			for _, c := range t.takeCalls(e) {
				acts = append(acts, refuse(c, pastExpired.refusal(e.request)))
			}
			acts = append(acts, t.giveUp(e)...)
		}
	}
	return acts
}

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
		p.reported(p.order[0].id)
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
// being taken back have no response and stay. A published value is not lost: the next attempt of its
// receive is served as a new one.
func (t *responses) expire(now time.Time, k *requester) []responseAction {
	var acts []responseAction
	for id, e := range k.entries {
		if e.state != entryKept {
			continue
		}
		acts = t.release(acts, e, pastExpired.refusal(e.request))
		if t.published(e.request.Key) {
			continue
		}
		t.remember(now, k, id, pastExpired)
		if e.response.Err == nil {
			k.past.lost[id] = lostValue{hashOf(e.request), e.request.Step}
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

// value finds the response that is kept for a receive: for content that is fetched in
// chunks. The caller releases it. ok is false when nothing is kept.
func (t *responses) value(p transport.Process, id uint64, attempt uint32) (v rendezvous.Value, ok bool, err error) {
	k := t.known(p)
	if k == nil {
		return v, false, nil
	}
	if k.past.ends[id] == pastExpired {
		return v, false, status.Errorf(status.DataLoss, "the response to receive %016x was dropped", id)
	}
	if e := k.entries[id]; e != nil && e.state == entryKept {
		if attempt < e.request.Attempt {
			return v, false, superseded(transport.Request{ID: id, Attempt: attempt}, e.request.Attempt)
		}
		if e.response.Err == nil {
			e.response.Value.Tensor.Retain()
		}
		return e.response.Value, e.response.Err == nil, e.response.Err
	}
	return v, false, nil
}
