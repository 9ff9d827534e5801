//go:build linux

package storm_test

import "testing"

// The logs of these tests are made by hand: task 0 leaves the cluster of task 1, which receives from it, or the reverse.

// sets is a SetCluster that takes a millisecond.
func sets(t int64, task int, now ...int) []record {
	r := record{At: t, Kind: kindCluster, Task: task, Life: 1, Tasks: now}
	done := r
	done.At, done.Kind = t+ms, kindSet
	return []record{r, done}
}

// starts is the cluster that the two processes begin with.
func starts() []record {
	var list []record
	for task := range 2 {
		list = append(list, record{Kind: kindSet, Task: task, Life: 1, Tasks: []int{0, 1, 2, 3}})
	}
	return list
}

// left changes a receive so that it ends with an error of a sort.
func endsWith(list []record, code, sort string) []record {
	return with(list, func(r *record) { r.Content, r.Code, r.Sort = nil, code, sort })
}

func TestClusterChecker(t *testing.T) {
	away, back := sets(2*second, 1, 1, 2, 3), sets(4*second, 1, 0, 1, 2, 3)
	gone := join(away, back)
	receive := func(from, to int64, code, sort string) []record {
		list := endsWith(receives(from, 0, 1, 1), code, sort)
		list[1].At = to
		return list
	}
	value := func(from, to int64) []record {
		return with(receives(from, 0, 1, 1), func(r *record) { r.At = to })
	}
	sent := join(sends(ms, 0, 1), sends(3*ms, 0, 2))
	for _, c := range []struct {
		name string
		log  []record
		want string // the rule that is broken; "" for none
	}{
		{"a receive that waits ends", join(gone, receive(second, 2*second+100*ms, "Aborted", sortLeft)), ""},
		{"it ends late", join(gone, receive(second, 8*second, "Aborted", sortLeft)), "left"},
		{"it ends late, of a process that was stopped", join(gone, receive(second, 8*second, "Aborted", sortLeft),
			one(record{At: 2 * second, Kind: kindFault, Task: 1, Text: "stopped by SIGSTOP", Blocks: true, Recv: 1}, record{At: 7 * second, Kind: kindHeal, Task: 1, Text: "stopped by SIGSTOP", Blocks: true, Recv: 1})), ""},
		{"its error does not say so", join(gone, receive(second, 2*second+100*ms, "Aborted", sortEnded)), "left"},
		{"its error does not say so, since the step was ended", join(gone, one(record{At: second + ms, Kind: kindEnds, Task: 0, Life: 1, Step: 1}), receive(second, 2*second+100*ms, "Aborted", sortEnded)), ""},
		{"it never ends", join(gone, receives(second, 0, 1, 1)[:1]), "ends"},
		{"a value that was under way", join(gone, sent, value(second, 2*second+ms/2)), ""},
		{"a value that comes late", join(gone, sent, value(second, 5500*ms)), "left"},
		{"a later receive", join(gone, receive(3*second, 3*second+ms, "NotFound", sortLeft)), ""},
		{"a later receive with another error", join(gone, receive(3*second, 3*second+ms, "Aborted", sortEnded)), "left"},
		{"a later receive ends with its context", join(gone, with(receive(3*second, 3*second+ms, "Cancelled", ""), func(r *record) { r.Ctx = "context canceled" })), ""},
		{"a later receive gets a value", join(gone, sent, value(3*second, 3*second+ms)), "left"},
		{"a receive gets a value when it is back", join(gone, sent, value(5*second, 6*second)), ""},
		{"a receive fails when it is back", join(gone, receive(5*second, 6*second, "NotFound", sortLeft)), "error"},
		{"a receive ends so, and nobody has left", receive(second, 2*second, "Aborted", sortLeft), "left"},
		{"a receive of the task that left", join(sets(2*second, 0, 0, 2, 3), receive(second, 2*second+100*ms, "Aborted", sortLeft)), ""},
		{"an error from before it left", join(away, receive(second/2, second, "Aborted", "")), "error"},
		{"a value is lost with the task", join(sent, receives(second/2, 0, 1, 1), gone, one(doneBy(5*second), closed(6*second))), ""},
		{"a value is lost without one", join(sent, receives(second/2, 0, 1, 1), one(doneBy(5*second), closed(6*second))), "lost"},
		{"a value is lost in a later step", join(sets(-2*second, 1, 1, 2, 3), sets(-second, 1, 0, 1, 2, 3), sent, receives(second/2, 0, 1, 1), one(doneBy(5*second), closed(6*second))), "lost"},
		{"a send fails", join(sets(second/2, 0, 0, 2, 3), one(record{At: second, Kind: kindSend, Step: 1, Life: 1, Peer: 1, Seq: 1, Content: handValue(0, 1)}, record{At: second + ms, Kind: kindSent, Step: 1, Life: 1, Peer: 1, Seq: 1, Code: "NotFound", Sort: sortLeft})), ""},
		{"a send fails for no reason", one(record{At: second, Kind: kindSend, Step: 1, Life: 1, Peer: 1, Seq: 1, Content: handValue(0, 1)}, record{At: second + ms, Kind: kindSent, Step: 1, Life: 1, Peer: 1, Seq: 1, Code: "NotFound", Sort: sortLeft}), "error"},
		{"SetCluster fails", with(away, func(r *record) { r.Code = "Internal" }), "cluster"},
		{"SetCluster fails while the server stops", join(one(at(second, kindLeave, 1, 1)), with(away, func(r *record) { r.Code = "Aborted" })), ""},
		{"SetCluster takes long", with(away, func(r *record) { r.At = 3*second + int64(setTime) }), "cluster"},
		{"SetCluster does not return", away[:1], "cluster"},
		{"SetCluster of a process that is gone", join(away[:1], one(at(3*second, kindDown, 1, 1))), ""},
	} {
		t.Run(c.name, func(t *testing.T) { judges(t, join(ups(), starts(), c.log), c.want) })
	}
}

// TestClusterCheckerOfANewLife: a process that begins without a task says NotFound, and an earlier life's cluster is over.
func TestClusterCheckerOfANewLife(t *testing.T) {
	without := record{At: 4 * second, Kind: kindSet, Task: 1, Life: 2, Tasks: []int{1, 2, 3}}
	restart := []record{at(3*second, kindDown, 1, 1), at(3*second+ms, kindGone, 1, 1), without, at(4*second+ms, kindUp, 1, 2)}
	receive := by(2, endsWith(receives(5*second, 0, 1, 1), "NotFound", ""))
	judges(t, join(ups(), starts(), restart, receive), "")
	without.Tasks = []int{0, 1, 2, 3}
	restart[2] = without
	judges(t, join(ups(), starts(), sets(2*second, 1, 1, 2, 3), restart, receive), "error")
	judges(t, join(ups(), starts(), sets(2*second, 1, 1, 2, 3), restart, sends(ms, 0, 1), by(2, receives(5*second, 0, 1, 1))), "")
}
