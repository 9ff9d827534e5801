package transport

import (
	"container/list"
	"time"

	"github.com/tryst-rdma/tryst/status"
)

// ending is how a receive of the past ended.
type ending uint8

const (
	pastOver    ending = iota // finished or cancelled
	pastGivenUp               // its answer was given up
	pastCleaned               // its step was cleaned up
)

// refusal is the answer to a request for something past.
func (end ending) refusal(a Ask) *status.Error {
	switch end {
	case pastGivenUp:
		return status.Errorf(status.DataLoss,
			"the answer to receive %016x of %s, for %s, was given up: there was no connection for %v, or the limit of kept bytes was reached",
			a.ID, a.Asker.Name, a.Key, giveUpAfter)
	case pastCleaned:
		return status.Errorf(status.Aborted, "Cleanup %d", a.Step)
	}
	return status.Errorf(status.Aborted,
		"receive %016x of %s has ended; this is a late copy of its request", a.ID, a.Asker.Name)
}

// past remembers, for one asker, ids of receives that have ended but may have copies of
// their requests under way.
type past struct {
	ends   map[uint64]ending
	order  []pastRecord  // by time
	listed *list.Element // its asker's place in answers.remembering, while there are ids
}

type pastRecord struct {
	id uint64
	at time.Time
}

func newPast() past { return past{ends: make(map[uint64]ending)} }

// remember notes that a receive of k has ended. There is room for it (hasIDs).
func (t *answers) remember(now time.Time, k *asker, id uint64, end ending) {
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
func (t *answers) forgetOld(now time.Time, k *asker) (next time.Time) {
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

// giveUp lets go the answers of an asker that cannot be reached. Its receives
// that are being taken back have no answer and stay.
func (t *answers) giveUp(now time.Time, k *asker) []keptAction {
	var acts []keptAction
	for id, e := range k.entries {
		if e.state == entryKept {
			acts = t.let(acts, e)
			t.remember(now, k, id, pastGivenUp)
		}
	}
	t.place(now, k)
	return acts
}

// due reports whether anything will have to be given up or forgotten.
func (t *answers) due() bool { return t.bytes > 0 || t.remembering.Len()+t.idle.Len() > 0 }

// tick is the event that time has passed. It gives up what is kept for askers
// without a connection, forgets old ids and askers that had nothing here for long,
// and returns when it wants to be called next; zero for not before another event.
func (t *answers) tick(now time.Time) (acts []keptAction, next time.Time) {
	soonest := func(at time.Time) {
		if !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	for at := t.remembering.Front(); at != nil; {
		k := item[*asker](at)
		at = at.Next()
		soonest(t.forgetOld(now, k))
	}
	for at := t.lost.Front(); at != nil; {
		k := item[*asker](at)
		if due := k.since.Add(giveUpAfter); now.Before(due) {
			soonest(due)
			break
		}
		at = at.Next()
		acts = append(acts, t.giveUp(now, k)...)
	}
	for t.idle.Len() > 0 {
		k := item[*asker](t.idle.Front())
		if due := k.since.Add(rememberFor); now.Before(due) {
			soonest(due)
			break
		}
		t.remove(k)
	}
	return append(acts, t.admit(now)...), next
}
