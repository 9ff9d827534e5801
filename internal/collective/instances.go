package collective

import (
	"slices"
	"sync"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// kind is TensorFlow's CollectiveType.
type kind int32

const (
	reduction kind = 0
	broadcast kind = 1
	gather    kind = 2
)

// instanceKey names one operation of a group.
type instanceKey struct {
	group, instance int32
	step            int64 // 0 but for the operations of DTensor
}

// instances are the operations that this process knows: as the leader, which compares what the
// members have, or as a member, which has got the result. The zero value is ready for use.
type instances struct {
	mu    sync.Mutex // guards what follows
	table map[instanceKey]*instanceRecord
	held  held[instanceKey] // the keys, for the limit
}

// instanceRecord is an operation that members enter.
type instanceRecord struct {
	from     string // the caller that has made it
	what     operation
	group    *members
	known    []uint64 // which ranks have entered: one bit for each
	count    int      // how many
	source   int      // rank of the source of a broadcast; −1 while it is not known
	waiting  []*instanceWaiter
	complete bool
}

// instanceWaiter waits until all have entered a broadcast.
type instanceWaiter struct{ done func(source int, err error) }

// operation is what all members of an instance must have in common.
type operation struct {
	kind  kind
	dtype tensor.DType
	shape tensor.Shape // of the output
}

// entry is one member's part in an operation.
type entry struct {
	from     string // the caller (held)
	key      instanceKey
	what     operation
	rank     int
	isSource bool
}

// enter adds a member's part to an operation. done runs once, outside every lock and perhaps
// before enter returns: for a broadcast when all have entered, otherwise at once. A caller that
// gives up calls leave.
//
// An operation that all members have entered may begin again with another type or shape: the next
// step of a graph may have tensors of another size. Members that wait in an operation of a group
// that was made again get FailedPrecondition.
func (t *instances) enter(group *members, e entry, done func(source int, err error)) (leave func()) {
	leave = func() {}
	var over []*instanceWaiter // of a group that was made again
	defer func() { endInstances(over, errMadeAgain(e.key.group)) }()
	t.mu.Lock()
	if group.over {
		t.mu.Unlock()
		done(-1, errMadeAgain(e.key.group))
		return leave
	}
	rec := t.table[e.key]
	if rec != nil && (rec.group != group || rec.complete && !rec.what.equal(e.what)) {
		over = t.forgetLocked(e.key)
		rec = nil
	}
	if rec == nil {
		rec = &instanceRecord{from: e.from, what: e.what, group: group, known: make([]uint64, (group.size()+63)/64), source: -1}
		if err := t.addLocked(e.key, rec); err != nil {
			t.mu.Unlock()
			done(-1, err)
			return leave
		}
	}
	err := rec.enter(group, e)
	var ended []*instanceWaiter
	switch {
	case err == nil && e.what.kind == broadcast && !rec.complete:
		w := &instanceWaiter{done}
		rec.waiting = append(rec.waiting, w)
		t.mu.Unlock()
		return func() { t.leave(rec, w) }
	case err != nil || rec.complete:
		// A mistake of one member is that of all: the others would wait for ever.
		ended, rec.waiting = rec.waiting, nil
		if err != nil {
			t.forgetLocked(e.key)
		}
	}
	source := rec.source
	t.mu.Unlock()
	done(source, err)
	for _, w := range ended {
		w.done(source, err)
	}
	return leave
}

// enter adds a member's part to the record.
func (rec *instanceRecord) enter(group *members, e entry) error {
	device := group.list[e.rank].device
	switch w := rec.what; {
	case w.kind != e.what.kind:
		return status.Errorf(status.Internal, "Collective instance %d has type %d, but the op at device %s has type %d; use an instance_key for one operation only",
			e.key.instance, w.kind, device, e.what.kind)
	case w.dtype != e.what.dtype:
		return status.Errorf(status.Internal, "Collective instance %d expected data_type %v, but the op at device %s has %v", e.key.instance, w.dtype, device, e.what.dtype)
	case !w.shape.Equal(e.what.shape):
		return status.Errorf(status.InvalidArgument, "Shape mismatch in the collective instance %d. Op at device %s expected shape %v but another member in the group expected shape %v. "+
			"This is likely due to different input shapes at different members of the collective op.", e.key.instance, device, e.what.shape, w.shape)
	}
	if e.isSource && rec.source >= 0 && rec.source != e.rank {
		return status.Errorf(status.Internal, "Instance %d already has source %d, received second claim from %d", e.key.instance, rec.source, e.rank)
	}
	if e.isSource {
		rec.source = e.rank
	}
	if bit := uint64(1) << (e.rank % 64); rec.known[e.rank/64]&bit == 0 {
		rec.known[e.rank/64] |= bit
		rec.count++
	}
	if rec.count < group.size() {
		return nil
	}
	if e.what.kind == broadcast && rec.source < 0 {
		return status.Errorf(status.Internal, "Instance %d found no source for broadcast.  This could mean that there were group_size=%d BcastRecvs but no BcastSend.", e.key.instance, rec.count)
	}
	rec.complete = true
	return nil
}

func (o operation) equal(p operation) bool {
	return o.kind == p.kind && o.dtype == p.dtype && o.shape.Equal(p.shape)
}

func (t *instances) addLocked(key instanceKey, rec *instanceRecord) error {
	if len(t.table) >= maxInstances {
		old, ok := t.held.oldest(rec.from, t.held.count, func(keys []instanceKey) int {
			return slices.IndexFunc(keys, func(k instanceKey) bool { return len(t.table[k].waiting) == 0 })
		})
		if !ok {
			return status.Errorf(status.ResourceExhausted, "%d broadcasts wait for their members here, which is the limit", maxInstances)
		}
		t.forgetLocked(old)
	}
	if t.table == nil {
		t.table = make(map[instanceKey]*instanceRecord)
	}
	t.table[key] = rec
	t.held.add(rec.from, key)
	return nil
}

// forgetLocked removes an operation. The caller ends those that wait for it, outside the lock.
func (t *instances) forgetLocked(key instanceKey) []*instanceWaiter {
	rec := t.table[key]
	if rec == nil {
		return nil
	}
	delete(t.table, key)
	t.held.remove(rec.from, key)
	waiting := rec.waiting
	rec.waiting = nil
	return waiting
}

// endInstances ends waits with an error, outside the lock.
func endInstances(waiting []*instanceWaiter, err error) {
	for _, w := range waiting {
		w.done(-1, err)
	}
}

// errMadeAgain is the error of members that wait for a group, or in one, that was replaced or
// forgotten.
func errMadeAgain(group int32) error {
	return status.Errorf(status.FailedPrecondition, "group %d ended while this member waited: another member has restarted, or there are too many groups, so the group is made again. Run the operation again", group)
}

func (t *instances) leave(rec *instanceRecord, w *instanceWaiter) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := slices.Index(rec.waiting, w); i >= 0 {
		rec.waiting = slices.Delete(rec.waiting, i, i+1)
	}
}

// find returns the source of an operation that the leader has confirmed; false for one that is not
// known, or that the leader has confirmed for another group or another tensor.
func (t *instances) find(group *members, key instanceKey, what operation) (source int, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	rec := t.table[key]
	if rec == nil || rec.group != group || !rec.complete || !rec.what.equal(what) {
		return -1, false
	}
	return rec.source, true
}

// add enters an operation that the leader has confirmed.
func (t *instances) add(group *members, key instanceKey, what operation, source int) error {
	var over []*instanceWaiter
	defer func() { endInstances(over, errMadeAgain(key.group)) }()
	t.mu.Lock()
	defer t.mu.Unlock()
	over = t.forgetLocked(key)
	return t.addLocked(key, &instanceRecord{what: what, group: group, source: source, complete: true})
}

// endGroup forgets the operations of a group that is over, and ends what waits in them.
func (t *instances) endGroup(m *members) {
	var over []*instanceWaiter
	t.mu.Lock()
	m.over = true
	t.held.removeFunc(func(key instanceKey) bool {
		rec := t.table[key]
		if rec.group != m {
			return false
		}
		over = append(over, rec.waiting...)
		rec.waiting = nil
		delete(t.table, key)
		return true
	})
	t.mu.Unlock()
	endInstances(over, errMadeAgain(m.key))
}

// end ends all waits with err.
func (t *instances) end(err error) {
	t.mu.Lock()
	var ended []*instanceWaiter
	for _, rec := range t.table {
		ended = append(ended, rec.waiting...)
		rec.waiting = nil
	}
	t.table, t.held = nil, held[instanceKey]{}
	t.mu.Unlock()
	endInstances(ended, err)
}
