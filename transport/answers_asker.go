package transport

import (
	"container/list"
	"slices"
	"time"

	"github.com/tryst-rdma/tryst/status"
)

// asker is the process that is accepted under a name.
type asker struct {
	name        string
	incarnation uint64
	source      *source
	addressed   bool              // the cluster has an address for the name
	entries     map[uint64]*entry // by receive id
	past        past
	displaced   []uint64 // incarnations whose place this one has taken, the last one at the end

	wires    int           // connections that live
	calls    int           // that wait for an answer: a sign of a connection
	connects uint64        // how often it came to have a connection
	in       *list.List    // answers.lost, idle or resting; nil while it has a connection
	at       *list.Element // its place there
	atSource *list.Element // and in source.idle, while it is in answers.idle
	since    time.Time     // and since when

	newcomer   uint64 // the incarnation that the address of the name is called for; 0 for none
	connectsAt uint64 // connects, when that call began

	waiting   int           // entries without an answer
	waitBytes int64         // length of their keys
	bytes     int64         // charged for answers
	limited   list.List     // of *entry that wait for room, in order
	turn      *list.Element // in answers.turns; nil when none waits for room
}

// entry finds a receive by its id; nil when there is none.
func (k *asker) entry(id uint64) *entry {
	e := k.entries[id]
	return e
}

func (k *asker) describe() string {
	if k.incarnation == 0 {
		return "peers that are not Tryst"
	}
	return k.name
}

func (k *asker) connected() bool { return k.wires+k.calls > 0 }

// known finds the record of a process that is accepted under its name; nil when
// there is none.
func (t *answers) known(a Asker) *asker {
	if k := t.askers[a.Name]; k != nil && k.incarnation == a.Incarnation {
		return k
	}
	return nil
}

// introduce is the event that a process makes itself known, from a source address.
// One process at a time is accepted under a name:
//
//	the name is new                       ──► accepted, if there is room for one more
//	it is the accepted process            ──► accepted
//	the accepted one displaced it         ──► refused: it is a late copy
//	the accepted one has no connection    ──► accepted, displaces it
//	the name has an address               ──► verify: which process is at the address?
//	the name has none                     ──► refused with AlreadyExists
//
// A name without an address stays with its process also while answers are kept for
// it. The record of the process is returned when it is accepted; neither record
// nor error means that the shell is to call the address of the name, and to report
// the answer by verified.
func (t *answers) introduce(now time.Time, a Asker, from string) (*asker, []keptAction, error) {
	k := t.askers[a.Name]
	switch {
	case (a.Name == "") != (a.Incarnation == 0):
		return nil, nil, status.Errorf(status.InvalidArgument, "an asker has both a name and an incarnation, and not %q with %016x", a.Name, a.Incarnation)
	case k == nil:
		if err := t.hasRoomFor(a, from); err != nil {
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

// verified is the event that the call of a name's address has ended, which
// introduce wanted for a: with the incarnation of the process there, or with an
// error. It decides as introduce does, but never wants a call.
func (t *answers) verified(now time.Time, a Asker, from string, is uint64, err error) (*asker, []keptAction, error) {
	k := t.askers[a.Name]
	if k == nil || k.newcomer != a.Incarnation { // the one that was connected is gone
		return t.introduceNow(now, a, from)
	}
	k.newcomer = 0
	switch {
	case err != nil:
		return nil, nil, undecided("another process is connected as %s, and the address of that task does not tell which one is there: %v", a.Name, err)
	case is != a.Incarnation:
		return nil, nil, status.Errorf(status.PermissionDenied,
			"another process is connected as %s, and the address of that task is that of the process with incarnation %016x, not %016x: give each process a name of its own",
			a.Name, is, a.Incarnation)
	case k.connected() && k.connects != k.connectsAt: // the answer may be older than its connection
		return nil, nil, undecided("another process has connected as %s while its address was called; try again", a.Name)
	}
	return t.displace(now, k, a, from)
}

// introduceNow is introduce for a shell that cannot call an address.
func (t *answers) introduceNow(now time.Time, a Asker, from string) (*asker, []keptAction, error) {
	k, acts, err := t.introduce(now, a, from)
	if k == nil && err == nil {
		t.askers[a.Name].newcomer = 0
		err = undecided("another process is connected as %s; say Hello over gRPC", a.Name)
	}
	return k, acts, err
}

// displace gives the name of k to another process, for good: a request of the
// earlier one that comes later is a late copy.
func (t *answers) displace(now time.Time, k *asker, a Asker, from string) (*asker, []keptAction, error) {
	if t.sources[from] != k.source { // else there is room when k is gone
		if err := t.hasRoomFor(a, from); err != nil {
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
func (t *answers) add(now time.Time, a Asker, from string) *asker {
	k := &asker{
		name: a.Name, incarnation: a.Incarnation, source: t.sourceAt(from),
		addressed: t.addressed(a.Name), entries: make(map[uint64]*entry), past: newPast(),
	}
	t.askers[a.Name] = k
	if !k.addressed {
		t.unaddressed++
		k.source.unaddressed++
	}
	k.source.askers++
	t.place(now, k)
	return k
}

// remove forgets the record of a process. Its entries are gone.
func (t *answers) remove(k *asker) {
	t.take(k)
	delete(t.askers, k.name)
	t.countIDs(k, -len(k.past.ends))
	if k.past.listed != nil {
		t.remembering.Remove(k.past.listed)
	}
	if !k.addressed {
		t.unaddressed--
		k.source.unaddressed--
	}
	if k.source.askers--; k.source.askers == 0 {
		delete(t.sources, k.source.address)
	}
}

// addressed reports whether there is an address for a name. Those that are not Tryst
// have no name, and always a place.
func (t *answers) addressed(name string) bool {
	return name == "" || t.limits.addressed != nil && t.limits.addressed(name)
}

// heard notes that the asker made itself heard.
func (t *answers) heard(now time.Time, k *asker) {
	if k.in != nil {
		t.take(k)
		t.enter(now, k)
		return
	}
	t.place(now, k)
}

// listOf is the list that k belongs to.
func (t *answers) listOf(k *asker) *list.List {
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

// place puts k into the list that it belongs to: it is called when what k has
// may have changed.
func (t *answers) place(now time.Time, k *asker) {
	if t.askers[k.name] != k || k.in == t.listOf(k) {
		return // dropped, or there already
	}
	if k.in != nil {
		t.take(k)
		if t.listOf(k) == nil {
			k.connects++
		}
	}
	t.enter(now, k)
}

// take takes k from the list that it is in.
func (t *answers) take(k *asker) {
	if k.in != nil {
		k.in.Remove(k.at)
		k.in, k.at = nil, nil
	}
	if k.atSource != nil {
		k.source.idle.Remove(k.atSource)
		k.atSource = nil
	}
}

// enter puts k at the end of the list that it belongs to.
func (t *answers) enter(now time.Time, k *asker) {
	in := t.listOf(k)
	if in == nil {
		return
	}
	k.in, k.at, k.since = in, in.PushBack(k), now
	if in == &t.idle {
		k.atSource = k.source.idle.PushBack(k)
	}
}

// wireUp is the event that a connection to the asker lives. It returns the record
// that it counts for; nil when it was refused.
func (t *answers) wireUp(now time.Time, a Asker) (*asker, []keptAction) {
	k, acts, err := t.introduceNow(now, a, "")
	if err != nil {
		return nil, acts
	}
	k.wires++
	t.place(now, k)
	return k, acts
}

// wireDown is the event that a connection has ended which wireUp counted for k.
func (t *answers) wireDown(now time.Time, k *asker) {
	if k == nil || t.askers[k.name] != k {
		return // it was refused, or another process has taken its place
	}
	k.wires--
	t.place(now, k)
}
