package delivery

import (
	"container/list"
	"fmt"
	"slices"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
)

// requester is the process that is accepted under a name.
type requester struct {
	name        string
	incarnation uint64
	origin      *origin
	addressed   bool              // the cluster has an address for the name
	outside     bool              // its task has left the cluster, and was not refused then
	entries     map[uint64]*entry // by receive id
	past        past
	displaced   []uint64 // incarnations whose place this one has taken, the last one at the end

	conns    int           // connections that live
	calls    int           // that wait for a response: a sign of a connection
	connects uint64        // how often it came to have a connection
	in       *list.List    // responses.lost, idle or resting; nil while it has a connection
	at       *list.Element // its place there
	atOrigin *list.Element // and in origin.idle, while it is in responses.idle
	since    time.Time     // and since when
	up       time.Time     // since when it has a connection

	newcomer   uint64 // the incarnation that the address of the name is called for; 0 for none
	connectsAt uint64 // connects, when that call began

	drain drainState

	waiting   int           // entries without a response
	waitBytes int64         // length of their keys
	bytes     int64         // charged for responses
	limited   list.List     // of *entry that wait for space, in order
	turn      *list.Element // in responses.turns; nil when none waits for space
}

func (k *requester) describe() string {
	if k.incarnation == 0 {
		return "peers that are not Tryst"
	}
	return k.name
}

func (k *requester) connected() bool { return k.conns+k.calls > 0 }

// known finds the record of a process that is accepted under its name; nil when
// there is none.
func (t *responses) known(a transport.Process) *requester {
	if k := t.requesters[a.Name]; k != nil && k.incarnation == a.Incarnation {
		return k
	}
	return nil
}

// introduce is the event that a process makes itself known, from a address.
// One process at a time is accepted under a name:
//
//	the task of the name has left         ──► refused
//	the name is new                       ──► accepted, if there is space for one more
//	it is the accepted process            ──► accepted
//	the accepted one displaced it         ──► refused: it is a late copy
//	the accepted one has no connection    ──► accepted, displaces it
//	the name has an address               ──► verify: which process is at the address?
//	the name has none                     ──► refused with AlreadyExists
//
// A name without an address stays with its process also while responses are kept for
// it. introduce returns the record of the process when it is accepted. Neither record
// nor error means that the shell has to call the address of the name, and to report the
// result by verified.
func (t *responses) introduce(now time.Time, a transport.Process, from string) (*requester, []responseAction, error) {
	k := t.requesters[a.Name]
	switch {
	case (a.Name == "") != (a.Incarnation == 0):
		return nil, nil, status.Errorf(status.InvalidArgument, "a requester has both a name and an incarnation, and not %q with %016x", a.Name, a.Incarnation)
	case (k == nil || k.outside) && t.left(a.Name):
		return t.refuseLeft(k, a.Name)
	case k == nil:
		if err := t.hasSpaceFor(a, from); err != nil {
			return nil, nil, err
		}
		return t.add(now, a, from), nil, nil
	case k.incarnation == a.Incarnation:
		t.heard(now, k)
		return k, nil, nil
	case slices.Contains(k.displaced, a.Incarnation):
		return nil, nil, displaced(a.Name)
	case k.addressed && k.connected():
		if k.newcomer != 0 {
			return nil, nil, undecided("another process calls itself %s, too, and the address of that task is being called to find out which one is there; try again", a.Name)
		}
		k.newcomer, k.connectsAt = a.Incarnation, k.connects
		return nil, nil, nil
	case !k.addressed && (k.connected() || len(k.entries) > 0):
		return nil, nil, status.Errorf(status.AlreadyExists, "another process is connected as %s; a process that is in no cluster has to draw a new name", a.Name)
	}
	return t.displace(now, k, a, from)
}

// verified is the event that the call of a name's address has ended, which introduce
// requested: with the incarnation of the process there, or with an error. It decides as
// introduce does, but never requests a call.
func (t *responses) verified(now time.Time, a transport.Process, from string, is uint64, err error) (*requester, []responseAction, error) {
	k := t.requesters[a.Name]
	if k == nil || k.newcomer != a.Incarnation { // the one that was connected is gone
		return t.introduceNow(now, a, from)
	}
	k.newcomer = 0
	switch {
	case err != nil:
		return nil, nil, undecided("another process is connected as %s, and the address of that task does not tell which one is there: %v", a.Name, err)
	case is != a.Incarnation:
		return nil, nil, status.Errorf(status.PermissionDenied, "%w", cluster.NotProven(fmt.Sprintf(
			"another process is connected as %s, and the address of that task is that of the process with incarnation %016x, not %016x: give each process a name of its own",
			a.Name, is, a.Incarnation)))
	case k.connected() && k.connects != k.connectsAt: // the answer may be older than its connection
		return nil, nil, undecided("another process has connected as %s while its address was called; try again", a.Name)
	}
	return t.displace(now, k, a, from)
}

// introduceNow is introduce for a shell that cannot call an address.
func (t *responses) introduceNow(now time.Time, a transport.Process, from string) (*requester, []responseAction, error) {
	k, acts, err := t.introduce(now, a, from)
	if k == nil && err == nil {
		t.requesters[a.Name].newcomer = 0
		err = undecided("another process is connected as %s; say Hello over gRPC", a.Name)
	}
	return k, acts, err
}

// displace gives the name of k to another process for good: a later request of the earlier
// process is a late copy.
func (t *responses) displace(now time.Time, k *requester, a transport.Process, from string) (*requester, []responseAction, error) {
	if t.origins[from] != k.origin { // of the same origin: k leaves its space
		if err := t.hasSpaceFor(a, from); err != nil {
			return nil, nil, err
		}
	}
	acts := t.drop(k, displaced(a.Name))
	n := t.add(now, a, from)
	n.displaced = append(slices.Clone(k.displaced[max(0, len(k.displaced)+1-maxDisplaced):]), k.incarnation)
	return n, append(acts, t.admit(now)...), nil
}

func displaced(name string) *status.Error {
	return status.Errorf(status.Aborted, "another process has taken the place of %s", name)
}

// add makes the record of a process.
func (t *responses) add(now time.Time, a transport.Process, from string) *requester {
	k := &requester{
		name: a.Name, incarnation: a.Incarnation, origin: t.originAt(from),
		addressed: t.addressed(a.Name), entries: make(map[uint64]*entry), past: newPast(),
	}
	t.requesters[a.Name] = k
	if !k.addressed {
		t.unaddressed++
		k.origin.unaddressed++
	}
	k.origin.requesters++
	t.place(now, k)
	return k
}

// remove forgets the record of a process. Its entries are gone.
func (t *responses) remove(k *requester) {
	t.take(k)
	delete(t.requesters, k.name)
	t.countIDs(k, -len(k.past.ends))
	if k.past.listed != nil {
		t.remembering.Remove(k.past.listed)
	}
	if !k.addressed {
		t.unaddressed--
		k.origin.unaddressed--
	}
	if k.origin.requesters--; k.origin.requesters == 0 {
		delete(t.origins, k.origin.address)
	}
}

// addressed reports whether there is an address for a name. Peers that are not Tryst have
// no name, and always a place.
func (t *responses) addressed(name string) bool {
	return name == "" || t.limits.addressed != nil && t.limits.addressed(name)
}

// heard notes that the requester has sent something.
func (t *responses) heard(now time.Time, k *requester) {
	if k.in != nil {
		t.take(k)
		t.enter(now, k)
		return
	}
	t.place(now, k)
}

// listOf is the list that k belongs to.
func (t *responses) listOf(k *requester) *list.List {
	switch {
	case k.incarnation == 0, k.connected():
		return nil
	case len(k.entries) > 0:
		return &t.lost
	case k.addressed, len(k.past.ends) > 0:
		return &t.resting
	}
	return &t.idle
}

// place puts k into the list that it belongs to. It is called when what k has may have
// changed.
func (t *responses) place(now time.Time, k *requester) {
	if t.requesters[k.name] != k || k.in == t.listOf(k) {
		return // dropped, or there already
	}
	if k.in != nil {
		t.take(k)
		if t.listOf(k) == nil {
			k.connects++
			k.up = now
		}
	}
	t.enter(now, k)
}

// take takes k from the list that it is in.
func (t *responses) take(k *requester) {
	if k.in != nil {
		k.in.Remove(k.at)
		k.in, k.at = nil, nil
	}
	if k.atOrigin != nil {
		k.origin.idle.Remove(k.atOrigin)
		k.atOrigin = nil
	}
}

// enter puts k at the end of the list that it belongs to.
func (t *responses) enter(now time.Time, k *requester) {
	in := t.listOf(k)
	if in == nil {
		return
	}
	k.in, k.at, k.since = in, in.PushBack(k), now
	if in == &t.idle {
		k.atOrigin = k.origin.idle.PushBack(k)
	}
}

// connOpened is the event that a connection to the requester lives. It returns the record
// that it counts for; nil when it was refused.
func (t *responses) connOpened(now time.Time, a transport.Process) (*requester, []responseAction) {
	k, acts, err := t.introduceNow(now, a, "")
	if err != nil {
		return nil, acts
	}
	k.conns++
	t.place(now, k)
	return k, acts
}

// connClosed is the event that a connection has ended which connOpened counted for k.
func (t *responses) connClosed(now time.Time, k *requester) {
	if k == nil || t.requesters[k.name] != k {
		return // it was refused, or another process has taken its place
	}
	k.conns--
	t.place(now, k)
}

func undecided(format string, args ...any) error {
	return &transport.UndecidedError{Err: status.Errorf(status.Unavailable, format, args...)}
}
