package transport

import (
	"container/list"
	"slices"
	"time"

	"github.com/tryst-rdma/tryst/status"
)

// ending is how a receive of the past ended.
type ending uint8

const (
	pastOver     ending = iota // finished or cancelled
	pastGivenUp                // its answer was given up
	pastCleaned                // its step was cleaned up
	pastReplaced               // id 0: the asker's process, by another one under its name
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
	case pastReplaced:
		return replaced(a.Asker.Name)
	}
	return status.Errorf(status.Aborted,
		"receive %016x of %s has ended; this is a late copy of its request", a.ID, a.Asker.Name)
}

func replaced(name string) *status.Error {
	return status.Errorf(status.Aborted, "another process has taken the place of %s", name)
}

// past remembers what has ended but may have copies of its requests under way.
// It is one for all askers, so that a peer that invents processes cannot make it
// larger than maxRemembered.
type past struct {
	ends  map[pastKey]ending
	order []pastRecord // by time
}

type pastKey struct{ incarnation, id uint64 }

type pastRecord struct {
	pastKey
	at time.Time
}

func newPast() past { return past{ends: make(map[pastKey]ending)} }

func (p *past) find(incarnation, id uint64) (ending, bool) {
	end, ok := p.ends[pastKey{incarnation, id}]
	return end, ok
}

func (p *past) add(now time.Time, incarnation, id uint64, end ending) {
	key := pastKey{incarnation, id}
	if _, ok := p.ends[key]; !ok {
		if len(p.order) >= maxRemembered {
			p.forgetFirst()
		}
		p.order = append(p.order, pastRecord{key, now})
	}
	p.ends[key] = end
}

func (p *past) forgetFirst() {
	delete(p.ends, p.order[0].pastKey)
	p.order = p.order[1:]
}

// tick forgets what is old, and returns when it wants to be called next.
func (p *past) tick(now time.Time) (next time.Time) {
	for len(p.order) > 0 {
		if at := p.order[0].at.Add(rememberFor); now.Before(at) {
			return at
		}
		p.forgetFirst()
	}
	if p.order != nil {
		*p = newPast() // gives the memory back
	}
	return time.Time{}
}

// known returns the record of an asker that makes itself heard, made when it is
// new. A new process under the name of an earlier one takes its place, for good:
// a request of the earlier one that comes later is a late copy.
func (t *answers) known(now time.Time, a Asker) (*asker, []keptAction, *status.Error) {
	if len(a.Name) > MaxAskerName {
		return nil, nil, status.Errorf(status.InvalidArgument, "the name of an asker has %d bytes; at most %d are possible", len(a.Name), MaxAskerName)
	}
	if _, gone := t.past.find(a.Incarnation, 0); gone {
		return nil, nil, replaced(a.Name)
	}
	k := t.askers[a.Incarnation]
	if k == nil {
		if is := t.names[a.Name]; is != nil && slices.Contains(is.replaced, a.Incarnation) {
			return nil, nil, replaced(a.Name) // it was stopped for longer than past remembers
		}
		if len(t.askers)-t.idle.Len() >= maxAskers {
			return nil, nil, status.Errorf(status.ResourceExhausted, "%d processes ask here already", maxAskers)
		}
		k = &asker{incarnation: a.Incarnation, entries: make(map[uint64]*entry)}
		t.askers[a.Incarnation] = k
	}
	t.heard(now, k)
	if a.Incarnation == 0 || a.Name == "" || k.name == a.Name {
		return k, nil, nil
	}
	if k.name != "" {
		return nil, nil, status.Errorf(status.InvalidArgument,
			"the process with incarnation %016x called itself %s before, and calls itself %s now", a.Incarnation, k.name, a.Name)
	}
	k.name = a.Name
	old := t.names[a.Name]
	t.names[a.Name] = k
	if old == nil {
		return k, nil, nil
	}
	t.past.add(now, old.incarnation, 0, pastReplaced)
	k.replaced = append(slices.Clone(old.replaced[max(0, len(old.replaced)+1-maxReplaced):]), old.incarnation)
	acts := t.drop(old, replaced(a.Name))
	return k, append(acts, t.admit(now)...), nil
}

func (t *answers) remove(k *asker) {
	t.take(k)
	delete(t.askers, k.incarnation)
	if t.names[k.name] == k {
		delete(t.names, k.name)
	}
}

// heard notes that the asker made itself heard.
func (t *answers) heard(now time.Time, k *asker) {
	t.take(k)
	t.place(now, k)
}

// take takes k from the list that it is in.
func (t *answers) take(k *asker) {
	if k.in != nil {
		k.in.Remove(k.at)
		k.in, k.at = nil, nil
	}
}

// place puts k into the list that it belongs to: it is called when what k has
// may have changed. An asker that has nothing is remembered by its name, so that
// a late copy of its requests does not pass for a new process; the longest idle
// are forgotten beyond maxIdle.
func (t *answers) place(now time.Time, k *asker) {
	if t.askers[k.incarnation] != k {
		return // dropped
	}
	var in *list.List
	switch {
	case k.incarnation == 0, k.wires > 0, k.calls > 0:
	case len(k.entries) > 0:
		in = &t.lost
	default:
		in = &t.idle
	}
	if in == k.in {
		return
	}
	t.take(k)
	if in == nil {
		return
	}
	k.in, k.at, k.since = in, in.PushBack(k), now
	if t.idle.Len() > maxIdle {
		t.remove(item[*asker](t.idle.Front()))
	}
}

// wireUp is the event that a connection to the asker lives. It returns whose it counts
// for; nil when it was refused.
func (t *answers) wireUp(now time.Time, a Asker) (*asker, []keptAction) {
	k, acts, err := t.known(now, a)
	if err != nil {
		return nil, acts
	}
	k.wires++
	t.place(now, k)
	return k, acts
}

// wireDown is the event that a connection has ended which wireUp counted for k.
func (t *answers) wireDown(now time.Time, k *asker) {
	if k == nil || t.askers[k.incarnation] != k {
		return // it was refused, or another process has taken its place
	}
	k.wires--
	t.place(now, k)
}

// giveUp lets go the answers of an asker that cannot be reached. Its receives
// that are being taken back have no answer and stay.
func (t *answers) giveUp(now time.Time, k *asker) []keptAction {
	var acts []keptAction
	for id, e := range k.entries {
		if e.state == entryKept {
			acts = t.let(acts, e)
			t.past.add(now, k.incarnation, id, pastGivenUp)
		}
	}
	t.place(now, k)
	return acts
}

// due reports whether anything will have to be given up or forgotten.
func (t *answers) due() bool { return t.bytes > 0 || len(t.past.order) > 0 }

// tick is the event that time has passed. It gives up what is kept for askers
// without a connection, forgets old ids, and returns when it wants to be called
// next; zero for not before another event.
func (t *answers) tick(now time.Time) (acts []keptAction, next time.Time) {
	next = t.past.tick(now)
	for at := t.lost.Front(); at != nil; {
		k := item[*asker](at)
		if due := k.since.Add(giveUpAfter); now.Before(due) {
			if next.IsZero() || due.Before(next) {
				next = due
			}
			break
		}
		at = at.Next()
		acts = append(acts, t.giveUp(now, k)...)
	}
	return append(acts, t.admit(now)...), next
}
