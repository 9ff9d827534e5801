//go:build linux

package storm_test

import (
	"time"

	"github.com/tryst-rdma/tryst/status"
)

// Times of the checker of versions.
const (
	// replacedPulls is the setting of all processes, and oldTime how much later than that a version that was
	// replaced may still come: its puller may have to be scheduled.
	replacedPulls = 2 * time.Second
	oldTime       = 4 * time.Second
	// updateTime bounds an Update: the pulls of the version before end, and the memory that a puller which is
	// stopped holds comes back within 15 s, the bound over gRPC.
	updateTime = replacedPulls + 20*time.Second
	// maxVersions is how many versions of a name are in memory.
	maxVersions = 2
)

// line names a publication at a task.
type line struct {
	task int
	name string
}

// madeID names a version at its publisher.
type madeID struct {
	line
	life, gen int
	number    uint64
}

// made is a call of Update.
type made struct {
	record        // its begin
	ended  record // without a kind before it has returned
}

// watchID names a watch of a process.
type watchID struct {
	lifeID
	id int64
}

// watchCheck is the state of a watch.
type watchCheck struct {
	began record
	last  record // the last version; without a kind before the first
	whole record // in place: the last version that is in the memory whole
	left  map[uint64]bool
	ended bool
}

// versionCheck is the state of the checker of versions.
type versionCheck struct {
	*check
	made    map[madeID][]*made
	epochs  map[uint64]madeID // the publication of an epoch; its number is 0
	over    map[madeID]int64  // when a version was replaced or withdrawn
	newest  map[line]record   // what a task has said it has when it makes no more
	current map[line]madeID
	watches map[watchID]*watchCheck
	order   []*watchCheck // in the order of their begins
}

// checkVersions checks rules 13 to 18.
func (c *check) checkVersions() {
	v := &versionCheck{
		check: c, made: make(map[madeID][]*made), epochs: make(map[uint64]madeID), over: make(map[madeID]int64),
		newest: make(map[line]record), current: make(map[line]madeID), watches: make(map[watchID]*watchCheck),
	}
	for _, r := range c.all {
		if c.ended(r) {
			break
		}
		switch r.Kind {
		case kindUpdate, kindUpdated:
			v.update(r)
		case kindWithdrawn:
			v.withdrawn(r)
		case kindStill:
			v.newest[lineOf(r)] = r
		}
	}
	for _, r := range c.all {
		if c.ended(r) {
			break
		}
		v.watch(r)
	}
	v.checkUpdates()
}

func lineOf(r record) line { return line{r.Task, r.Name} }

// watch is an event of a watch.
func (v *versionCheck) watch(r record) {
	id := watchID{lifeID{r.Task, r.Life}, r.Recv}
	w := v.watches[id]
	switch r.Kind {
	case kindWatch:
		w = &watchCheck{began: r, left: make(map[uint64]bool)}
		v.watches[id] = w
		v.order = append(v.order, w)
	case kindYield:
		v.yield(w, r)
	case kindApplied:
		v.applied(w, r)
	case kindKept:
		if r.Torn != "" {
			v.breach("written", r, "the memory was written while the watcher had it: %s", r.Torn)
		}
	case kindUnwatch:
		w.ended = true
		if own := r.Ctx != "" && (r.Code == "" || r.Code == status.Cancelled.String() || r.Code == status.DeadlineExceeded.String()); !own && !v.stops(r) {
			v.breach("watch", r, "the watch has ended, and its context had not")
		}
	case kindQuiet:
		v.checkQuiet(r)
	}
}

// update is an event of a publisher.
func (v *versionCheck) update(r record) {
	id := madeID{lineOf(r), r.Life, r.Gen, r.Number}
	if r.Kind == kindUpdate {
		v.made[id] = append(v.made[id], &made{record: r})
		return
	}
	for _, m := range v.made[id] {
		if m.Seq == r.Seq {
			m.ended = r
		}
	}
	if r.Code != "" {
		v.checkUpdateError(r)
		return
	}
	if r.Held > maxVersions {
		v.breach("held", r, "%d versions are in memory", r.Held)
	}
	if before, ok := v.current[id.line]; ok {
		if before.life == id.life && before.gen == id.gen && before.number >= id.number {
			v.breach("update", r, "number %d follows number %d", id.number, before.number)
		}
		v.over[before] = r.At
	}
	v.current[id.line] = id
	v.epoch(r, id)
}

// epoch checks that an epoch is one life of a publication.
func (v *versionCheck) epoch(r record, id madeID) {
	id.number = 0
	if of, ok := v.epochs[r.Epoch]; ok && of != id {
		v.breach("invented", r, "the epoch is that of %s of task %d life %d, publication %d", of.name, of.task, of.life, of.gen)
	}
	v.epochs[r.Epoch] = id
}

func (v *versionCheck) withdrawn(r record) {
	if before, ok := v.current[lineOf(r)]; ok && r.Code == "" {
		v.over[before] = r.At
		delete(v.current, lineOf(r))
	}
	if r.Code != "" && !v.stops(r) {
		v.breach("update", r, "the publication was there")
	}
}

// checkUpdateError checks the error of an Update. Text has why it must fail, if it must.
func (v *versionCheck) checkUpdateError(r record) {
	own := r.Ctx != "" && (r.Code == status.Cancelled.String() || r.Code == status.DeadlineExceeded.String())
	if !own && !v.stops(r) && (r.Code != status.InvalidArgument.String() || r.Sort != wrongNumber) {
		v.breach("update", r, "an Update must not end with this")
	}
}

// wrongNumber marks an Update with a number that does not ascend.
const wrongNumber = "wrong number"

// checkUpdates checks that each Update has ended in time.
func (v *versionCheck) checkUpdates() {
	for id, calls := range v.made {
		for _, m := range calls {
			end := m.ended.At
			if m.ended.Kind == "" {
				l := v.lives[lifeID{id.task, id.life}]
				if end = l.to; end == 0 {
					v.breach("update", m.record, "the Update has not ended")
					continue
				}
			}
			if !m.intended(wrongNumber) && end > v.slow(m.At+int64(updateTime), id.task) {
				v.breach("update", m.record, "the Update has not ended within %v", updateTime)
			}
			if m.intended(wrongNumber) && m.ended.Kind != "" && m.ended.Code == "" {
				v.breach("update", m.ended, "the number does not ascend")
			}
		}
	}
}

func (m *made) intended(what string) bool { return m.Sort == what }

// slow returns until when what a task or its pullers do by a time may take, while processes are stopped.
func (v *versionCheck) slow(at int64, task int) int64 {
	return v.covered(at, 0, append([]int{task}, watcher, puller)...)
}

// yield checks a version that a watch has yielded.
func (v *versionCheck) yield(w *watchCheck, r record) {
	v.checkFollows(w, r)
	if w.began.Place {
		v.checkInPlace(w, r) // what it announces may be replaced since: Apply takes a newer one
	} else {
		v.checkContent(r)
	}
	w.take(r)
}

// take notes the version that a watch has.
func (w *watchCheck) take(r record) {
	if w.last.Kind != "" && w.last.Epoch != r.Epoch {
		w.left[w.last.Epoch] = true
	}
	w.last = r
}

// checkFollows checks that a version may follow the last one.
func (v *versionCheck) checkFollows(w *watchCheck, r record) {
	switch last := w.last; {
	case last.Kind == "":
	case last.Epoch == r.Epoch && last.Number == r.Number:
		v.breach("repeated", r, "the watch has had this version")
	case last.Epoch == r.Epoch && last.Number > r.Number:
		v.breach("older", r, "the watch has had number %d", last.Number)
	case w.left[r.Epoch]:
		v.breach("older", r, "the watch had left this epoch")
	}
}

// applied checks the end of an Apply.
func (v *versionCheck) applied(w *watchCheck, r record) {
	if r.Code != "" {
		w.whole = record{}
		if r.Ctx == "" && !v.stops(r) {
			v.breach("watch", r, "Apply has failed, and its context had not ended")
		}
		return
	}
	if r.Epoch != w.last.Epoch || r.Number != w.last.Number {
		v.checkFollows(w, r)
		w.take(r)
	}
	v.checkContent(r)
	w.whole = r
}

// checkInPlace checks the memory between two Applies, which has the version of the one before.
func (v *versionCheck) checkInPlace(w *watchCheck, r record) {
	if w.whole.Kind == "" {
		return
	}
	if r.Torn != "" || r.Stamp == nil || *r.Stamp != *w.whole.Stamp {
		v.breach("written", r, "the memory was written after Apply had returned: %s; it had %v", r.Torn, w.whole.Stamp)
	}
}

// checkContent checks that a version is whole, and one that an Update has made.
func (v *versionCheck) checkContent(r record) {
	if r.Torn != "" || r.Stamp == nil {
		v.breach("mixed", r, "%s", r.Torn)
		return
	}
	s := *r.Stamp
	if s.Task != r.Peer || s.Name != r.Name {
		v.breach("invented", r, "it is of another publication")
		return
	}
	id := madeID{line{s.Task, s.Name}, s.Life, s.Gen, r.Number}
	if !v.wasMade(id, r) {
		v.breach("invented", r, "no such version was made")
		return
	}
	v.epoch(r, id)
	v.checkAge(r)
}

// wasMade reports whether an Update that has not failed had begun with the content of a version.
func (v *versionCheck) wasMade(id madeID, r record) bool {
	for _, m := range v.made[id] {
		ok := m.ended.Kind == "" || m.ended.Code == "" && m.ended.Epoch == r.Epoch
		if m.At <= r.At && ok && *m.Stamp == *r.Stamp {
			return true
		}
	}
	return false
}

// checkAge checks that a version had not been replaced for long.
func (v *versionCheck) checkAge(r record) {
	of, ok := v.epochs[r.Epoch]
	if !ok {
		return
	}
	of.number = r.Number
	over, ok := v.over[of]
	if ok && r.At > v.slow(over+int64(replacedPulls+oldTime), of.task) {
		v.breach("old", r, "it was replaced or withdrawn %v before", time.Duration(r.At-over).Round(time.Millisecond))
	}
}

// checkQuiet checks that each watch has the newest version, and each task has said which it is.
func (v *versionCheck) checkQuiet(r record) {
	for task := range tasks {
		for _, name := range []string{weights, shapes} {
			if _, ok := v.newest[line{task, name}]; !ok {
				v.breach("newest", r, "task %d has not said what it has of %s", task, name)
			}
		}
	}
	for _, w := range v.order {
		b := w.began
		if w.ended || v.lives[lifeID{b.Task, b.Life}].to != 0 {
			continue
		}
		want, ok := v.newest[line{b.Peer, b.Name}]
		switch {
		case !ok || want.Code != "":
		case w.last.Kind == "":
			v.breach("newest", b, "the watch has had no version; the newest is number %d", want.Number)
		case w.last.Epoch != want.Epoch || w.last.Number != want.Number:
			v.breach("newest", w.last, "the newest is number %d of epoch %x", want.Number, want.Epoch)
		}
	}
}
