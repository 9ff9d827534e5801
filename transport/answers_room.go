package transport

import (
	"container/list"
	"time"

	"github.com/tryst-rdma/tryst/status"
)

// keptLimits is what the askers of a table may make it hold.
type keptLimits struct {
	maxWaiting      int // of one asker; of all waitingInAll times as many
	maxWaitingBytes int64
	keptPerAsker    int64
	keptTotal       int64

	addressed func(name string) bool // whether the cluster has an address for a name; nil: for none
}

// countWaiting refuses one receive more than may wait.
func (t *answers) countWaiting(k *asker, a Ask) *status.Error {
	size := int64(len(a.Key.String()))
	switch {
	case k.waiting >= t.limits.maxWaiting:
		return status.Errorf(status.ResourceExhausted,
			"%d receives of %s wait here already, the limit of max-waiting", k.waiting, k.describe())
	case k.waitBytes+size > t.limits.maxWaitingBytes:
		return status.Errorf(status.ResourceExhausted,
			"the keys of the receives of %s that wait here have %d bytes, the limit of max-waiting-bytes", k.describe(), k.waitBytes)
	case t.waiting/waitingInAll >= t.limits.maxWaiting || t.waitBytes/waitingInAll >= t.limits.maxWaitingBytes:
		return status.Errorf(status.ResourceExhausted,
			"%d receives of all peers wait here already, with keys of %d bytes: %d times the limits for one peer",
			t.waiting, t.waitBytes, waitingInAll)
	}
	return nil
}

// Room. What is kept is charged to its asker. When a limit is reached receives
// wait for room without having taken a value: those of one asker in order, and
// the askers in turn. One that waits for the limit for all holds up everybody,
// or smaller values would keep a large one waiting for ever; one that waits for
// its own asker's limit holds up nobody else. A value larger than a limit passes
// when nothing else is charged.
//
// How large a value is shows only when it has been taken. One that finds no room
// goes back, and its receive is let through again when there is room for it. The
// room is held free, lest the same room lets through many, until the value has
// come or the receive turns out to wait for another one.

// fits reports whether e may be charged that many bytes.
func (t *answers) fits(e *entry, charge int64) bool {
	return t.fitsAsker(e.asker, e.bytes, charge) && t.fitsAll(e.bytes, charge)
}

// fitsAsker and fitsAll report it for one limit, and an entry that is charged so
// much already.
func (t *answers) fitsAsker(k *asker, already, charge int64) bool {
	others := k.bytes - already
	return others == 0 || others+charge <= t.limits.keptPerAsker
}

func (t *answers) fitsAll(already, charge int64) bool {
	others := t.bytes - already
	return others == 0 || others+charge <= t.limits.keptTotal
}

// admits reports whether a new receive of k may begin at once.
func (t *answers) admits(k *asker) bool {
	return !t.blocked && k.turn == nil && t.fitsAsker(k, 0, keptOverhead) && t.fitsAll(0, keptOverhead)
}

// chargeFor is what an answer is charged: its tensor, and its record, of which the asker chose
// the length of the key, and with it that of most errors.
func chargeFor(a Ask, ans Answer) int64 {
	record := recordSize + int64(len(a.Key.String()))
	if ans.Err != nil {
		return max(keptOverhead, record+int64(len(status.From(ans.Err).Message())))
	}
	return max(keptOverhead, record) + ans.Value.Tensor.MemorySize()
}

// charge sets what e is charged.
func (t *answers) charge(e *entry, bytes int64) {
	e.asker.bytes += bytes - e.bytes
	t.bytes += bytes - e.bytes
	e.bytes = bytes
}

// limit lets e wait for room.
func (t *answers) limit(e *entry) {
	k := e.asker
	e.state, e.place = entryLimited, k.limited.PushBack(e)
	if k.turn == nil {
		k.turn = t.turns.PushBack(k)
	}
}

// unlimit takes e from those who wait for room.
func (t *answers) unlimit(e *entry) {
	k := e.asker
	k.limited.Remove(e.place)
	e.place = nil
	if k.limited.Len() == 0 {
		t.turns.Remove(k.turn)
		k.turn = nil
	}
}

// admit starts the entries that waited for room, as far as there is room now,
// and makes room in the limit for all with what unreachable askers hold.
func (t *answers) admit(now time.Time) []keptAction {
	acts := t.admitFitting()
	for at := t.lost.Front(); at != nil && t.blocked; {
		k := item[*asker](at)
		at = at.Next()
		if k.bytes > 0 {
			acts = append(acts, t.giveUp(now, k)...)
			acts = append(acts, t.admitFitting()...)
		}
	}
	return acts
}

func (t *answers) admitFitting() []keptAction {
	var acts []keptAction
	t.blocked = false
	for turn := t.turns.Front(); turn != nil && !t.blocked; {
		k := item[*asker](turn)
		e := item[*entry](k.limited.Front())
		next := turn.Next()
		switch need := max(e.size, keptOverhead); {
		case !t.fitsAsker(k, e.bytes, need):
		case !t.fitsAll(e.bytes, need):
			t.blocked = true
		default:
			t.unlimit(e)
			t.charge(e, e.size)
			act := t.start(e)
			act.held = e.size > 0
			acts = append(acts, act)
			if k.turn == nil {
				break
			}
			t.turns.MoveToBack(k.turn)
			if next == nil {
				next = k.turn
			}
		}
		turn = next
	}
	return acts
}

// waits is the event that the receive of a fetch which room is held free for has
// begun and waits for a value: the one that was seen went elsewhere.
func (t *answers) waits(now time.Time, a Ask, fetch uint64) []keptAction {
	e := t.fetching(a, fetch)
	if e == nil || e.bytes == 0 {
		return nil
	}
	e.size = 0
	t.charge(e, 0)
	return t.admit(now)
}

// item returns what a list holds at a place.
func item[T any](at *list.Element) T { return at.Value.(T) } //nolint:errcheck // each list holds one type
