package delivery

import (
	"container/list"
	"time"

	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
)

// cacheLimits is what requesters may make a cache hold.
type cacheLimits struct {
	maxWaiting       int // of one requester; of all waitingInAll times as many
	maxWaitingBytes  int64
	maxRemembered    int // 0: that of limits.go
	keptPerRequester int64
	keptPerAddress   int64
	keptTotal        int64

	addressed   func(name string) bool                    // whether the cluster has an address for a name; nil: for none
	left        func(name string) bool                    // whether the task of a name has left the cluster; nil: none has
	over        func(step int64, key rendezvous.Key) bool // whether a step is over for good; nil: none is
	republishes func(key rendezvous.Key) bool             // whether values gives the value of a key any number of times; nil: of none
}

// countWaiting refuses one receive more than may wait. That passes when others end.
func (t *responses) countWaiting(k *requester, a transport.Request) *status.Error {
	size := int64(len(a.Key.String()))
	switch {
	case k.waiting >= t.limits.maxWaiting:
		return status.Passing(
			"%d receives of %s wait here already, the limit of max-waiting", k.waiting, k.describe())
	case k.waitBytes+size > t.limits.maxWaitingBytes:
		return status.PassingIf(size <= t.limits.maxWaitingBytes,
			"the keys of the receives of %s that wait here have %d bytes, the limit of max-waiting-bytes", k.describe(), k.waitBytes)
	case t.waiting/waitingInAll >= t.limits.maxWaiting || t.waitBytes/waitingInAll >= t.limits.maxWaitingBytes:
		return status.Passing(
			"%d receives of all peers wait here already, with keys of %d bytes: %d times the limits for one peer",
			t.waiting, t.waitBytes, waitingInAll)
	}
	return nil
}

// Space. What is kept is charged to its requester. At a limit receives wait for space
// without having taken a value: those of one requester in order, and the requesters in
// turn. A receive that waits for the limit for all holds up every other one; otherwise
// smaller values would keep a large one waiting for ever. In the same way one that waits for
// the share of its address holds up the requesters of that address. A receive that
// waits for its own requester's limit holds up no other requester. A value larger than a
// limit passes when nothing else is charged.
//
// The size of a value is known only when it has been taken. A value without space goes
// back, and its receive begins again when there is space for it. The space is reserved until
// the value has come or the receive waits for another one, so that it admits one receive
// only.

// fits reports whether e may be charged that many bytes.
func (t *responses) fits(e *entry, charge int64) bool {
	k := e.requester
	return t.fitsRequester(k, e.bytes, charge) && t.fitsOrigin(k.origin, e.bytes, charge) && t.fitsAll(e.bytes, charge)
}

// fitsRequester, fitsOrigin and fitsAll report it for one limit, and an entry that is charged
// so much already.
func (t *responses) fitsRequester(k *requester, already, charge int64) bool {
	others := k.bytes - already
	return others == 0 || others+charge <= t.limits.keptPerRequester
}

func (t *responses) fitsOrigin(s *origin, already, charge int64) bool {
	others := s.bytes - already
	return others == 0 || others+charge <= t.limits.keptPerAddress
}

func (t *responses) fitsAll(already, charge int64) bool {
	others := t.bytes - already
	return others == 0 || others+charge <= t.limits.keptTotal
}

// admits reports whether a new receive of k may begin at once.
func (t *responses) admits(k *requester) bool {
	return !t.blocked && !t.isFull(k.origin) && k.turn == nil &&
		t.fitsRequester(k, 0, keptOverhead) && t.fitsOrigin(k.origin, 0, keptOverhead) && t.fitsAll(0, keptOverhead)
}

// chargeFor is what a response is charged: its tensor and its record. The requester chose the
// length of the key, and with it that of most errors.
func chargeFor(a transport.Request, ans transport.Response) int64 {
	record := recordSize + int64(len(a.Key.String()))
	if ans.Err != nil {
		return max(keptOverhead, record+int64(len(status.From(ans.Err).Message())))
	}
	return max(keptOverhead, record) + ans.Value.Tensor.MemorySize()
}

// charge sets what e is charged.
func (t *responses) charge(e *entry, bytes int64) {
	e.requester.bytes += bytes - e.bytes
	e.requester.origin.bytes += bytes - e.bytes
	t.bytes += bytes - e.bytes
	e.bytes = bytes
}

// limit lets e wait for space.
func (t *responses) limit(e *entry) {
	k := e.requester
	e.state, e.place = entryLimited, k.limited.PushBack(e)
	if k.turn == nil {
		k.turn = t.turns.PushBack(k)
	}
}

// unlimit takes e from those that wait for space.
func (t *responses) unlimit(e *entry) {
	k := e.requester
	k.limited.Remove(e.place)
	e.place = nil
	if k.limited.Len() == 0 {
		t.turns.Remove(k.turn)
		k.turn = nil
	}
}

// isFull reports whether a receive waits for the share of an origin.
func (t *responses) isFull(s *origin) bool { return s.full != 0 && s.full == t.round }

// admit starts the entries that waited for space, as far as there is space now. Where the
// limit for all, or for an origin, is reached, it drops what unreachable requesters hold.
func (t *responses) admit(now time.Time) []responseAction {
	acts := t.admitFitting()
	for at := t.lost.Front(); at != nil && (t.blocked || t.full > 0); {
		k := item[*requester](at)
		at = at.Next()
		if k.bytes > 0 && (t.blocked || t.isFull(k.origin)) {
			acts = append(acts, t.expire(now, k)...)
			acts = append(acts, t.admitFitting()...)
		}
	}
	return acts
}

func (t *responses) admitFitting() []responseAction {
	var acts []responseAction
	t.blocked, t.full = false, 0
	t.round++
	for turn := t.turns.Front(); turn != nil && !t.blocked; {
		k := item[*requester](turn)
		e := item[*entry](k.limited.Front())
		next := turn.Next()
		switch need := max(e.size, keptOverhead); {
		case t.isFull(k.origin), !t.fitsRequester(k, e.bytes, need):
		case !t.fitsOrigin(k.origin, e.bytes, need):
			k.origin.full = t.round
			t.full++
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

// waits is the event that the receive of a fetch for which space is reserved waits for a
// value: the value that was seen before went elsewhere.
func (t *responses) waits(now time.Time, a transport.Request, fetch uint64) []responseAction {
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
