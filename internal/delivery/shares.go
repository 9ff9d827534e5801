package delivery

import (
	"cmp"
	"container/list"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
)

// Shares. Any host that reaches a server can introduce processes and name ids. Each origin
// address has a share of what the cache keeps and remembers for them, and there is a total. A full
// cache refuses the newcomer, by the share of its origin first, and evicts nothing. Tasks
// of the cluster always have a place.

// origin is a network address that requesters were introduced from.
type origin struct {
	address     string
	requesters  int       // introduced from there
	unaddressed int       // those of them without an address in the cluster
	idle        list.List // of *requester from there that are in responses.idle, the longest idle in front
	ids         int       // of receives, as requester.ids counts them
	bytes       int64     // that its requesters are charged
	full        uint64    // the round in which a receive waited for its share
}

func (t *responses) originAt(address string) *origin {
	s := t.origins[address]
	if s == nil {
		s = &origin{address: address}
		t.origins[address] = s
	}
	return s
}

// hasSpaceFor refuses one requester more than its origin may introduce, or than there may
// be. A requester of the same origin that has nothing here makes space for it.
func (t *responses) hasSpaceFor(a transport.Process, from string) *status.Error {
	if t.addressed(a.Name) {
		return nil
	}
	s := t.origins[from]
	mine := 0
	if s != nil {
		mine = s.unaddressed
	}
	if mine < maxProcessesOfAddress && t.unaddressed < maxProcesses {
		return nil
	}
	if s != nil && s.idle.Len() > 0 {
		t.remove(item[*requester](s.idle.Front()))
		return nil
	}
	if mine >= maxProcessesOfAddress {
		return status.Passing("%d processes that are in no cluster ask here from %s already; at most %d may", mine, from, maxProcessesOfAddress)
	}
	return status.Passing("%d processes that are in no cluster ask here already; at most %d may", t.unaddressed, maxProcesses)
}

// ids counts the receives of k, and the ids that are remembered for it. A receive reserves the place
// in which its id is remembered later, so only an unknown id takes a new place.
func (k *requester) ids() int { return len(k.entries) + len(k.past.ends) }

// countIDs counts ids of k that come or go.
func (t *responses) countIDs(k *requester, n int) {
	k.origin.ids += n
	t.ids += n
}

// hasIDs refuses n ids more than a requester, an origin or all may have.
func (t *responses) hasIDs(k *requester, n int) *status.Error {
	share := t.limits.maxWaiting + cmp.Or(t.limits.maxRemembered, maxRemembered)
	var of string
	switch {
	case k.incarnation == 0:
		return nil // they have no ids that are remembered
	case k.ids()+n > share:
		of = k.describe()
	case k.origin.ids+n > sharesOfAddress*share:
		of, share = "the processes at "+k.origin.address, sharesOfAddress*share
	case t.ids+n > waitingInAll*share:
		of, share = "all processes", waitingInAll*share
	default:
		return nil
	}
	return status.Errorf(status.ResourceExhausted,
		"of %s at most %d receives wait or are remembered here; a receive that has ended is forgotten after %v", of, share, rememberFor)
}
