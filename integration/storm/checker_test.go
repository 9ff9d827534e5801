//go:build linux

package storm_test

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// The logs of these tests are made by hand. Task 0 sends to task 1 under edge 0, which receives one
// after the other, and under edge 1, which receives several at once. Times are in seconds.

const (
	second = int64(time.Second)
	ms     = int64(time.Millisecond)
)

// handSeed is a seed with which task 0 has a small cache in its second life only.
const handSeed = 2

func handPlan(int64) plan {
	two := []value{{size: 100}, {size: 100}}
	return plan{ender: -1, edges: []edge{{from: 0, to: 1, slots: 1, values: two}, {from: 0, to: 1, slots: 2, values: two}, {from: 0, to: 1, slots: 1, values: two, told: true}}}
}

// handValue is the content of value seq of an edge.
func handValue(edge, seq int) *content {
	return &content{Size: 100, Head: fmt.Appendf(nil, "%04d%04d", edge, seq)}
}

func at(t int64, k kind, task, life int) record {
	return record{At: t, Kind: k, Task: task, Life: life}
}

func ups() []record {
	return []record{at(0, kindUp, 0, 1), at(0, kindUp, 1, 1), at(0, kindUp, puller, 1)}
}

func sends(t int64, edge, seq int) []record {
	r := record{At: t, Kind: kindSend, Step: 1, Edge: edge, Peer: 1, Seq: seq, Life: 1, Content: handValue(edge, seq)}
	sent := r
	sent.At, sent.Kind, sent.Content = t+ms, kindSent, nil
	return []record{r, sent}
}

// receives is a receive that takes a second and gets a value.
func receives(t int64, edge, id, seq int) []record {
	r := record{At: t, Kind: kindRecv, Step: 1, Edge: edge, Recv: int64(id), Task: 1, Life: 1}
	got := r
	got.At, got.Kind, got.Content = t+second, kindGot, handValue(edge, seq)
	return []record{r, got}
}

// fails is a receive that takes a second and ends with an error.
func fails(t int64, id int, code, ctx string) []record {
	list := receives(t, 0, id, 1)
	list[1].Content, list[1].Code, list[1].Ctx = nil, code, ctx
	return list
}

// waited is a SendWait whose deadline has passed.
func waited() []record {
	list := sends(second, 2, 1)
	list[1].At, list[1].Code, list[1].Ctx = 8*second, "DeadlineExceeded", "context deadline exceeded"
	return list
}

// doneBy is what the receiver writes at the end of its part.
func doneBy(t int64) record { return record{At: t, Kind: kindDone, Task: 1, Life: 1, Step: 1} }

func closed(t int64) record { return record{At: t, Kind: kindClose, Task: 0, Step: 1} }

// by gives records to another life.
func by(life int, list []record) []record {
	for i := range list {
		list[i].Life, list[i].Again = life, true
	}
	return list
}

func join(lists ...[]record) []record {
	all := slices.Concat(lists...)
	slices.SortStableFunc(all, func(a, b record) int { return int(a.At - b.At) })
	return all
}

func one(r ...record) []record { return r }

func TestChecker(t *testing.T) {
	torn := receives(second, 0, 1, 1)
	torn[1].Content.Torn = "bytes 4096 to 8192"
	foreign := receives(second, 0, 1, 1)
	foreign[1].Content = &content{Size: 99, Head: []byte("otherone")}
	early := receives(0, 0, 1, 1)
	early[1].At = ms
	open := receives(second, 0, 1, 1)[:1]
	twice := receives(second, 0, 1, 1)
	twice = append(twice, twice[1])
	aborted := fails(second, 1, "FailedPrecondition", "")
	aborted[1].Text = abortText
	fault := func(from, to int64, what string) []record {
		return []record{
			{At: from, Kind: kindFault, Text: what + ", 1s", Blocks: what != "connections reset"},
			{At: to, Kind: kindHeal, Text: what, Blocks: what != "connections reset"},
		}
	}
	late := fails(second, 1, "Cancelled", "context canceled")
	late[1].At, late[1].Over = 20*second, 2*second
	told := func(t int64, code string) []record {
		return one(record{At: t, Kind: kindTold, Step: 1, Peer: 1, Seq: 1, Life: 1, Code: code})
	}
	loss := fails(second, 1, "DataLoss", "")
	into := func(size int64) []record {
		list := fails(second, 1, "InvalidArgument", "")
		list[0].Into, list[1].Into = size+1, size+1
		return list
	}
	ends := func(t int64, task int) []record {
		return one(record{At: t, Kind: kindEnds, Task: task, Life: 1, Step: 1})
	}
	restart := func(task int, down, up int64) []record {
		return []record{at(down, kindDown, task, 1), at(up, kindUp, task, 2)}
	}
	both := join(sends(ms, 0, 1), sends(3*ms, 0, 2))
	pulls := func(code string) []record {
		r := record{At: second, Kind: kindPull, Task: puller, Life: 1, Recv: 1}
		has := r
		has.At, has.Kind, has.Code = 2*second, kindHas, code
		return []record{r, has}
	}
	for _, c := range []struct {
		name string
		log  []record
		want string // the rule that is broken; "" for none
	}{
		{"all is well", join(both, receives(second, 0, 1, 1), receives(3*second, 0, 2, 2), one(doneBy(4500*ms), closed(5*second))), ""},
		{"several at once in any order", join(sends(ms, 1, 1), sends(3*ms, 1, 2), receives(second, 1, 1, 2), receives(second+ms, 1, 2, 1), one(doneBy(4500*ms), closed(5*second))), ""},
		{"an order that was not sent", join(both, receives(second, 0, 1, 2), receives(3*second, 0, 2, 1)), "order"},
		{"a gap", join(both, receives(second, 0, 1, 2)), "order"},
		{"a gap after a restart of the receiver", join(both, restart(1, second, 2*second), by(2, receives(3*second, 0, 1, 2))), ""},
		{"the same value in two lives", join(both, receives(second, 0, 1, 1), restart(1, 3*second, 4*second), by(2, receives(5*second, 0, 1, 1))), "twice"},
		{"the same value twice", join(both, receives(second, 0, 1, 1), receives(3*second, 0, 2, 1)), "twice"},
		{"the same value twice, several at once", join(sends(ms, 1, 1), receives(second, 1, 1, 1), receives(second, 1, 2, 1)), "twice"},
		{"a torn value", join(both, torn), "wrong"},
		{"a value that nobody sent", join(both, foreign), "wrong"},
		{"a value of another key", join(both, receives(second, 1, 1, 1)), "wrong"},
		{"a value before it was sent", join(early, sends(second, 0, 1)), "wrong"},
		{"a value that was not received", join(both, receives(second, 0, 1, 1), one(doneBy(4500*ms), closed(5*second))), "lost"},
		{"not received, and the receiver was killed", join(both, restart(1, 2*second, 3*second), one(doneBy(4500*ms), closed(5*second))), ""},
		{"not received, and the sender was killed", join(both, restart(0, 2*second, 3*second), one(doneBy(4500*ms), closed(5*second))), ""},
		{"not received, and the step was ended", join(both, ends(2*second, 0), one(doneBy(4500*ms), closed(5*second))), ""},
		{"a receive that does not end", join(open, one(record{At: 9 * second, Kind: kindOver})), "ends"},
		{"a receive that ends twice", join(both, twice), "ends"},
		{"a receive of a process that was killed", join(open, restart(1, 2*second, 3*second)), ""},
		{"cancelled", fails(second, 1, "Cancelled", "context canceled"), ""},
		{"cancelled by nobody", fails(second, 1, "Cancelled", ""), "error"},
		{"cancelled long ago", late, "ends"},
		{"too late", fails(second, 1, "DeadlineExceeded", "context deadline exceeded"), ""},
		{"too late without a deadline", fails(second, 1, "DeadlineExceeded", ""), "error"},
		{"aborted by a restart", join(fails(second, 1, "Aborted", ""), restart(0, 1500*ms, 4*second)), ""},
		{"aborted by the end of the step", join(fails(second, 1, "Aborted", ""), ends(1500*ms, 0)), ""},
		{"aborted before the restart", join(fails(second, 1, "Aborted", ""), restart(0, 3*second, 4*second)), "error"},
		{"aborted long after the restart", join(fails(60*second, 1, "Aborted", ""), restart(0, 3*second, 4*second)), "error"},
		{"aborted by the restart of a third task", join(fails(second, 1, "Aborted", ""), one(at(0, kindUp, 2, 1)), restart(2, second+ms, 4*second)), "error"},
		{"aborted by the end of a third task", join(fails(second, 1, "Aborted", ""), ends(1500*ms, 2)), "error"},
		{"aborted for no reason", fails(second, 1, "Aborted", ""), "error"},
		{"the error of an abort", join(aborted, ends(1500*ms, 0)), ""},
		{"the error of an abort that was not", aborted, "error"},
		{"unavailable while the sender is down", join(fails(9*second, 1, "Unavailable", ""), restart(0, 3*second, 11*second)), ""},
		{"unavailable while the sender is stopped", join(fails(9*second, 1, "Unavailable", ""), fault(4*second, 9*second, "stopped by SIGSTOP")), ""},
		{"unavailable by two faults in a row", join(fails(9*second, 1, "Unavailable", ""), fault(4*second, 5*second, "stopped by SIGSTOP"), fault(7*second, 8*second, "TCP held")), ""},
		{"unavailable after a reset", join(fails(9*second, 1, "Unavailable", ""), fault(4*second, 9*second, "connections reset")), "error"},
		{"unavailable after a short stop", join(fails(9*second, 1, "Unavailable", ""), fault(4*second, 4*second+ms, "stopped by SIGSTOP")), "error"},
		{"unavailable for no reason", fails(9*second, 1, "Unavailable", ""), "error"},
		{"data loss", fails(second, 1, "DataLoss", ""), "error"},
		{"data loss of a small cache stands for one value", join(restart(0, ms, 2*ms), by(2, sends(3*ms, 0, 1)), by(2, sends(5*ms, 0, 2)), loss, receives(3*second, 0, 2, 2), one(doneBy(5*second), closed(6*second))), ""},
		{"data loss stands for no more", join(restart(0, ms, 2*ms), by(2, sends(3*ms, 0, 1)), by(2, sends(5*ms, 0, 2)), loss, one(doneBy(5*second), closed(6*second))), "lost"},
		{"another process of the name, in the cluster", join(restart(1, ms, 2*ms), by(2, fails(second, 1, "AlreadyExists", ""))), "error"},
		{"another process of the name, and the sender has no address", join(one(at(0, kindUp, 0, 1), record{Kind: kindSet, Task: 0, Life: 1, Tasks: []int{0}}), restart(1, ms, 2*ms), by(2, fails(second, 1, "AlreadyExists", ""))), ""},
		{"no memory, with gRPC", fails(second, 1, "ResourceExhausted", ""), "error"},
		{"an error while the receiver stops", join(fails(second, 1, "Aborted", ""), one(at(second, kindLeave, 1, 1))), ""},
		{"a Send that failed", one(record{At: second, Kind: kindSent, Step: 1, Life: 1, Code: "Aborted"}), "error"},
		{"a Send in a step that has ended", join(ends(ms, 0), one(record{At: second, Kind: kindSent, Step: 1, Life: 1, Code: "Aborted"})), ""},
		{"a SendWait without space", waited(), "error"},
		{"a SendWait without space, since the receiver has ended the step", join(waited(), ends(2*second, 1)), ""},
		{"a SendWait without space while the receiver is down", join(waited(), restart(1, second, 9*second)), ""},
		{"a SendWait without space, and the receiver was stopped", join(waited(), []record{
			{At: 2 * second, Kind: kindFault, Task: 1, Text: "stopped by SIGSTOP", Blocks: true},
			{At: 5 * second, Kind: kindHeal, Task: 1, Text: "stopped by SIGSTOP", Blocks: true},
		}), ""},
		{"an outcome", join(sends(ms, 0, 1), receives(second, 0, 1, 1), told(2*second, "")), ""},
		{"an outcome of a value that was not received", join(both, told(2*second, "")), "told"},
		{"an outcome of a value that a process may have had", join(both, told(2*second, ""), restart(1, 3*second, 4*second)), ""},
		{"never an outcome", join(sends(ms, 2, 1), receives(second, 2, 1, 1), one(doneBy(3*second), closed(3*second), record{At: 9 * second, Kind: kindOver})), "told"},
		{"no outcome yet from a process that is stopped", join(sends(ms, 2, 1), receives(second, 2, 1, 1), one(doneBy(3*second), closed(3*second)), fault(2*second, 8*second, "stopped by SIGSTOP"), one(record{At: 9 * second, Kind: kindOver})), ""},
		{"no outcome after a short stop", join(sends(ms, 2, 1), receives(second, 2, 1, 1), one(doneBy(3*second), closed(3*second)), fault(2*second, 4*second, "stopped by SIGSTOP"), one(record{At: 9 * second, Kind: kindOver})), "told"},
		{"dropped by a small cache before the acknowledgement", join(restart(0, ms, 2*ms), by(2, sends(3*ms, 0, 1)), receives(second, 0, 1, 1), by(2, told(2500*ms, "DataLoss"))), ""},
		{"dropped by a large cache", join(sends(3*ms, 0, 1), receives(second, 0, 1, 1), told(2500*ms, "DataLoss")), "told"},
		{"two outcomes", join(both, receives(second, 0, 1, 1), told(2*second, ""), told(3*second, "")), "told"},
		{"no outcome for no reason", join(both, told(2*second, "Aborted")), "told"},
		{"no outcome since the receiver was killed", join(both, restart(1, second, 3*second), told(2*second, "Aborted")), ""},
		{"no outcome since the step was ended", join(both, ends(second, 1), told(2*second, "Aborted")), ""},
		{"memory that does not fit", join(both, into(101), receives(3*second, 0, 2, 1), receives(5*second, 0, 3, 2)), ""},
		{"memory that does not fit, and the value is gone", join(both, into(101), receives(3*second, 0, 2, 2)), "order"},
		{"memory that fits and is refused", join(both, into(100)), "error"},
		{"memory that is written late", join(both, one(record{At: second, Kind: kindMem, Task: 1, Life: 1, Step: 1})), "memory"},
		{"a pull", pulls(""), ""},
		{"a pull that failed", pulls("Unavailable"), "pull"},
		{"a pull that does not end", join(pulls("")[:1], one(record{At: 9 * second, Kind: kindOver})), "pull"},
	} {
		t.Run(c.name, func(t *testing.T) {
			all := join(ups(), c.log)
			found := checkWith(all, handSeed, handPlan, false)
			switch {
			case c.want == "" && len(found) > 0:
				t.Errorf("found %q in a log that is right%s", found[0].rule, report(all, found))
			case c.want != "" && !slices.ContainsFunc(found, func(v violation) bool { return v.rule == c.want }):
				t.Errorf("found %v, want %q", found, c.want)
			}
		})
	}
}

// Where values go by roce alone, memory may not suffice, and a cut of UDP is a cut.
func TestCheckerWithoutFallback(t *testing.T) {
	cut := []record{{At: 4 * second, Kind: kindFault, Text: "UDP cut; 5s"}, {At: 9 * second, Kind: kindHeal, Text: "UDP cut"}}
	all := join(ups(), cut, fails(9*second, 1, "Unavailable", ""), fails(20*second, 2, "ResourceExhausted", ""))
	if found := checkWith(all, handSeed, handPlan, true); len(found) > 0 {
		t.Error(report(all, found))
	}
	if found := checkWith(all, handSeed, handPlan, false); len(found) != 2 {
		t.Errorf("with gRPC the checker found %v, want two errors", found)
	}
}
