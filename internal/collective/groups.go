package collective

import (
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tryst-rdma/tryst/cluster"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
)

// groups are the groups that this process knows: as their leader, which waits for all members, or
// as a member, which has got them from the leader. The zero value is ready for use.
type groups struct {
	over func(*members) // is called outside the lock for a complete group that is forgotten; may be nil

	mu    sync.Mutex // guards what follows
	table map[int32]*groupRecord
	held  held[int32]    // the keys, for the limits
	count int            // devices that have joined
	joins map[string]int // these devices, by the caller that has made the group
	// evicted are complete groups that have made room; the function that unlocks mu ends them.
	evicted []*members
}

// groupRecord is a group whose devices join.
type groupRecord struct {
	from       string // the caller that has made it
	size       int
	deviceType string
	since      time.Time
	joined     []member
	index      map[cluster.Device]int // in joined
	complete   *members               // when all have joined
	waiting    []*groupWaiter
}

// groupWaiter waits until a group is complete.
type groupWaiter struct {
	device cluster.Device
	done   func(*members, error)
}

// joinRequest is the request of a device to join a group.
type joinRequest struct {
	from       string // the caller (held)
	name       string // of the operation, for errors
	key        int32
	size       int
	deviceType string
	device     *tfpb.DeviceAttributes
	patience   time.Duration // how long a leader is called that is not reached; 0: as long as the context
	member     bool          // of a process that is not the leader
}

func (r *joinRequest) check() (cluster.Device, error) {
	if r.size <= 0 {
		return cluster.Device{}, status.Errorf(status.InvalidArgument, "group_size must be positive integer but got %d", r.size)
	}
	if r.size > maxGroupSize {
		return cluster.Device{}, status.Errorf(status.InvalidArgument, "group %d has group_size %d; at most %d are possible", r.key, r.size, maxGroupSize)
	}
	if n := proto.Size(r.device); n > maxAttributes {
		return cluster.Device{}, status.Errorf(status.InvalidArgument, "the attributes of a device of group %d have %d bytes; at most %d are possible", r.key, n, maxAttributes)
	}
	return cluster.ParseDevice(r.device.GetName())
}

// join enters a device into a group. done runs once, outside every lock and perhaps before join
// returns, when all members are there. The caller may give up by calling leave; the device stays
// a member until there are too many devices.
//
// An error is that of the request alone. A device with another incarnation means that its process
// has restarted: the group that it belonged to is over, so all that wait for it get the error, and
// the next request begins a new group. TensorFlow keeps the error for ever.
func (g *groups) join(r joinRequest, done func(*members, error)) (leave func()) {
	leave = func() {}
	device, err := r.check()
	if err != nil {
		done(nil, err)
		return leave
	}
	g.mu.Lock()
	rec, err := g.recordLocked(r)
	if err == nil {
		err = g.enterLocked(rec, &r, device)
	}
	over := g.takeEvictedLocked()
	defer func() { g.ended(over) }()
	var ended []*groupWaiter
	switch {
	case rec != nil && status.CodeOf(err) == status.FailedPrecondition:
		g.forgetLocked(r.key)
		ended, rec.waiting = rec.waiting, nil
		over = append(over, rec.complete)
	case err == nil && rec.complete != nil:
		ended, rec.waiting = rec.waiting, nil
	case err == nil:
		w := &groupWaiter{device, done}
		rec.waiting = append(rec.waiting, w)
		g.mu.Unlock()
		return func() { g.leave(rec, w) }
	}
	g.mu.Unlock()
	var complete *members
	if err == nil {
		complete = rec.complete
	}
	done(complete, err)
	for _, w := range ended {
		w.done(complete, err)
	}
	return leave
}

// enterLocked adds a device to a record. When there are too many devices it forgets other groups,
// and then the devices that no call waits for.
func (g *groups) enterLocked(rec *groupRecord, r *joinRequest, device cluster.Device) error {
	for g.count >= maxMembers {
		if !g.evictLocked(r.from, g.devicesOf, rec) && !g.dropDevicesLocked() {
			return status.Errorf(status.ResourceExhausted, "%d devices wait in groups of collectives here, which is the limit; end the programs whose members do not come", maxMembers)
		}
	}
	before := len(rec.joined)
	err := rec.enter(r, device)
	g.countLocked(rec, len(rec.joined)-before)
	return err
}

// dropDevicesLocked takes the devices out of the incomplete groups that no call waits for: their
// calls were cancelled. One that comes again enters again. It reports whether there were any.
func (g *groups) dropDevicesLocked() bool {
	before := g.count
	for _, rec := range g.table {
		if rec.complete == nil {
			g.countLocked(rec, -rec.dropDevices())
		}
	}
	return g.count < before
}

// dropDevices returns how many devices it has taken out.
func (rec *groupRecord) dropDevices() int {
	waits := make(map[cluster.Device]bool, len(rec.waiting))
	for _, w := range rec.waiting {
		waits[w.device] = true
	}
	before := len(rec.joined)
	rec.joined = slices.DeleteFunc(rec.joined, func(m member) bool { return !waits[m.device] })
	clear(rec.index)
	for i, m := range rec.joined {
		rec.index[m.device] = i
	}
	return before - len(rec.joined)
}

// recordLocked finds or makes the record of a group. Only the leader makes one: it would wait for
// ever elsewhere, since the other devices enter at the leader.
func (g *groups) recordLocked(r joinRequest) (*groupRecord, error) {
	if rec := g.table[r.key]; rec != nil {
		return rec, nil
	}
	if r.member {
		return nil, status.Errorf(status.FailedPrecondition, "group %d was forgotten while a device entered it: a member has restarted, or there are too many groups. Run the operation again", r.key)
	}
	if err := g.makeRoomLocked(r.from); err != nil {
		return nil, err
	}
	rec := &groupRecord{from: r.from, size: r.size, deviceType: r.deviceType, since: time.Now(), index: make(map[cluster.Device]int)}
	g.addLocked(r.key, rec)
	return rec, nil
}

func (g *groups) addLocked(key int32, rec *groupRecord) {
	if g.table == nil {
		g.table = make(map[int32]*groupRecord)
	}
	g.table[key] = rec
	g.held.add(rec.from, key)
}

// countLocked counts n more devices of a group.
func (g *groups) countLocked(rec *groupRecord, n int) {
	g.count += n
	if g.joins == nil {
		g.joins = make(map[string]int)
	}
	if g.joins[rec.from] += n; g.joins[rec.from] == 0 {
		delete(g.joins, rec.from)
	}
}

// devicesOf returns how many devices the groups of a caller have. Called with mu held.
func (g *groups) devicesOf(caller string) int { return g.joins[caller] }

// makeRoomLocked forgets a group when there are too many for one more of a caller.
func (g *groups) makeRoomLocked(from string) error {
	if len(g.table) < maxGroups || g.evictLocked(from, g.held.count, nil) {
		return nil
	}
	return status.Errorf(status.ResourceExhausted, "%d groups of collectives wait for their members here, which is the limit; end the programs whose members do not come", maxGroups)
}

// evictLocked forgets a group for one of the caller from. Of the caller that holds most it takes the
// oldest complete group. If there is none, it takes the oldest one that nobody waits for any more: the
// calls of its devices were cancelled. It reports whether there was one besides keep.
func (g *groups) evictLocked(from string, holds func(string) int, keep *groupRecord) bool {
	key, ok := g.held.oldest(from, holds, func(keys []int32) int {
		complete := func(key int32) bool { return g.table[key] != keep && g.table[key].complete != nil }
		if i := slices.IndexFunc(keys, complete); i >= 0 {
			return i
		}
		return slices.IndexFunc(keys, func(key int32) bool { return g.table[key] != keep && len(g.table[key].waiting) == 0 })
	})
	if !ok {
		return false
	}
	if m := g.table[key].complete; m != nil {
		g.evicted = append(g.evicted, m)
	}
	g.forgetLocked(key)
	return true
}

// takeEvictedLocked returns the groups to call ended for.
func (g *groups) takeEvictedLocked() []*members {
	list := g.evicted
	g.evicted = nil
	return list
}

func (g *groups) forgetLocked(key int32) {
	rec := g.table[key]
	g.countLocked(rec, -len(rec.joined))
	delete(g.table, key)
	g.held.remove(rec.from, key)
}

// enter adds a device to the record, unless it is there.
func (rec *groupRecord) enter(r *joinRequest, device cluster.Device) error {
	if r.deviceType != rec.deviceType {
		return status.Errorf(status.Internal, "Collective Op %s is assigned to device %s with type %s and group_key %d but that group has type %s",
			r.name, device, r.deviceType, r.key, rec.deviceType)
	}
	if r.size != rec.size {
		return status.Errorf(status.Internal, "Collective Op %s has group_size %d and group_key %d but that group has size %d", r.name, r.size, r.key, rec.size)
	}
	if i, ok := rec.index[device]; ok {
		if rec.joined[i].attributes.GetIncarnation() == r.device.GetIncarnation() {
			return nil
		}
		return status.Errorf(status.FailedPrecondition, "Device %s current incarnation doesn't match with one in the group. "+
			"This usually means this worker has restarted but the collective leader hasn't, or this worker connects to a wrong cluster. Run the operation again", device)
	}
	if len(rec.joined) == rec.size {
		return status.Errorf(status.Internal, "Collective Op %s is assigned to device %s and group_key %d but that group doesn't contain that device.", r.name, device, r.key)
	}
	rec.index[device] = len(rec.joined)
	rec.joined = append(rec.joined, member{device, r.device})
	if len(rec.joined) == rec.size {
		rec.complete = newMembers(r.key, rec.deviceType, rec.joined)
	}
	return nil
}

// leave takes back a wait.
func (g *groups) leave(rec *groupRecord, w *groupWaiter) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if i := slices.Index(rec.waiting, w); i >= 0 {
		rec.waiting = slices.Delete(rec.waiting, i, i+1)
	}
}

// find returns a complete group; nil for one that is not known.
func (g *groups) find(key int32) *members {
	g.mu.Lock()
	defer g.mu.Unlock()
	if rec := g.table[key]; rec != nil {
		return rec.complete
	}
	return nil
}

// joined returns the names of the devices that have joined a group.
func (g *groups) joined(key int32) (list []*tfpb.DeviceAttributes) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if rec := g.table[key]; rec != nil {
		for _, m := range rec.joined {
			list = append(list, &tfpb.DeviceAttributes{Name: m.attributes.GetName()})
		}
	}
	return list
}

// add enters a group that the leader has sent. What waits for a group that it replaces gets
// FailedPrecondition.
func (g *groups) add(m *members) error {
	var over []*groupWaiter
	var evicted []*members
	defer func() {
		for _, w := range over {
			w.done(nil, errMadeAgain(m.key))
		}
		g.ended(evicted)
	}()
	g.mu.Lock()
	defer g.mu.Unlock()
	if rec := g.table[m.key]; rec != nil {
		over, rec.waiting = rec.waiting, nil
		g.forgetLocked(m.key)
	}
	err := g.makeRoomLocked("")
	evicted = g.takeEvictedLocked()
	if err != nil {
		return err
	}
	index := make(map[cluster.Device]int, m.size())
	for i, member := range m.list {
		index[member.device] = i
	}
	rec := &groupRecord{size: m.size(), deviceType: m.deviceType, since: time.Now(), joined: m.list, index: index, complete: m}
	g.addLocked(m.key, rec)
	g.countLocked(rec, m.size())
	return nil
}

// forget removes a group, which is resolved again at its next use. A group that was replaced
// meanwhile stays.
func (g *groups) forget(m *members) {
	g.mu.Lock()
	rec := g.table[m.key]
	known := rec != nil && rec.complete == m
	if known {
		g.forgetLocked(m.key)
	}
	g.mu.Unlock()
	if known {
		g.ended([]*members{m})
	}
}

// ended reports the end of complete groups; one may be nil.
func (g *groups) ended(list []*members) {
	for _, m := range list {
		if m != nil && g.over != nil {
			g.over(m)
		}
	}
}

// attributes returns what the groups know of the devices of a task.
func (g *groups) attributes(task cluster.Task) []*tfpb.DeviceAttributes {
	g.mu.Lock()
	defer g.mu.Unlock()
	var known []*tfpb.DeviceAttributes
	for _, rec := range g.table {
		for _, m := range rec.joined {
			if m.device.Task == task {
				known = append(known, m.attributes)
			}
		}
	}
	return known
}

// end ends all waits with err.
func (g *groups) end(err error) {
	g.mu.Lock()
	var ended []*groupWaiter
	for _, rec := range g.table {
		ended = append(ended, rec.waiting...)
		rec.waiting = nil
	}
	g.table, g.held, g.count, g.joins = nil, held[int32]{}, 0, nil
	g.mu.Unlock()
	for _, w := range ended {
		w.done(nil, err)
	}
}
