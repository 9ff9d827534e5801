//go:build linux

package storm_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tryst-rdma/tryst/status"
)

// The rules. ARCHITECTURE.md section 6 and the README have them as promises.
//
//  1. A value that was received is one that was sent under the key, in that step, to that task,
//     and whole. (wrong)
//  2. No value is received twice, by whatever processes. (twice)
//  3. A process that makes one receive after the other gets the values in the order in which they
//     were sent, without a gap. A process that takes up a step may miss what its earlier life had
//     taken. (order)
//  4. When both processes lived until a step was over, and nobody ended it before its time, all of
//     its values were received. (lost)
//  5. Every receive ends, once, unless its process is gone, and soon after its context has. (ends)
//  6. Cancelled and DeadlineExceeded come only when the context of the receive has ended.
//  7. Aborted comes only when a process of the sender has gone, or one of the two has ended the
//     step. The error of an abort comes only from the step that was aborted, at its two ends.
//  8. Unavailable comes only when the sender could not be reached for the peer timeout.
//  9. DataLoss comes only from a process whose cache of responses is small, and stands for one
//     value that is lost. ResourceExhausted comes only where gRPC may not be used (fallback
//     none), when registered memory does not suffice, and the value stays. No other error comes,
//     and none from Send unless its context or, at this process, the step has ended. A SendWait
//     finds space in time unless the receiver was out of reach meanwhile, or has ended the step.
//     AlreadyExists comes only to a process that has restarted while the sender's cluster was
//     without its task. (6 to 9: error)
// 10. Every pull succeeds, with the right bytes. (pull)
// 11. When SendWait says that the receiver has a value, the receiver has got it, unless its process
//     is gone. When it says that this is not known, a process of the receiver has gone, or the step
//     has ended at one of the two, or a small cache has dropped the value. It says one of the two,
//     once, soon after the step at the latest. (told)
// 12. A receive into memory of another size than the value's ends with InvalidArgument, and the value
//     stays. (error) When a receive into memory has failed, the memory is free after a while, and is
//     not written any more. (memory)
//
// Of versions:
//
//  13. Within an epoch a watch yields ascending numbers, each once, and none of an epoch that it had left. (older,
//     repeated)
//  14. A version that was yielded is whole: each block of it is of one content. (mixed) An Update that has not failed had
//     begun with this content, at this task, for this name, and an epoch is one life of a publication. (invented) It was
//     not replaced for longer than the pulls of an old version may go on. (old)
//  15. The memory of a version stays as it is while the watcher has it, and in place from the return of an Apply to the
//     next one. (written)
//  16. When nobody makes versions any more, each watch has the newest one soon. (newest) A watch and an Apply end with
//     their context. (watch)
//  17. An Update ends in time, and with an error only if its context has ended or its number does not ascend. (update) At
//     most two versions of a name have not given their memory back. (held)
//
// Of clusters:
//
//  18. When a task has left the cluster of a process, a receive there from it ends soon, with the error that says so, and
//     no value comes from it; that error comes only then. In a step with such a task, rules 4, 7 and 11 take the process
//     for one that has ended it. (left) SetCluster returns in time and without an error. (cluster) When the task is back,
//     all rules are in force again.
//
// A process that was asked to stop may end its receives as it likes. What happens after the end of
// the storm (kindOver) is not looked at, except pulls.

// violation is one breach of a rule.
type violation struct {
	rule string
	text string
	at   record // what shows it
}

// Times of the checker.
const (
	// knows is how long after a process is up its peers may take it for the one before: until they
	// notice that a channel is silent, which takes longest.
	knows = 2 * time.Second
	// reconnects is how long after the end of a fault a peer may still be out of reach: the
	// longest pauses of gRPC and of the ledger before the next attempt, on a busy machine.
	reconnects = 2500 * time.Millisecond
	// prompt is how long a receive may take to end after its context, on a busy machine.
	prompt = 5 * time.Second
	// tells is how long after a step SendWait may take to say what became of a value.
	tells = 3 * time.Second
	// tolerance is how much earlier than the peer timeout Unavailable may come by these clocks.
	tolerance = 500 * time.Millisecond
)

// edgeID names a key of a step.
type edgeID struct {
	step int64
	edge int
}

type lifeID struct{ task, life int }

// span is a time. An end of 0 means that it has not ended.
type span struct{ from, to int64 }

// check is the state of a checker.
type check struct {
	seed     uint64
	plan     func(step int64) plan
	all      []record
	blocks   map[int][]span          // when a task could not be reached
	halts    map[int][]span          // when a process of a task was stopped by SIGSTOP, in the order of time
	lives    map[lifeID]span         // from down of the life before, to down
	ups      map[lifeID]int64        // when it was up
	leaves   map[lifeID]int64        // when a life was asked to stop
	ends     map[int64]map[int]int64 // when a task ended a step
	closes   map[int64]int64         // when all had done their part of a step
	done     map[int64]map[int]int   // the process of a task that did all of its part of a step
	edges    map[edgeID][]record     // records of a key
	over     int64                   // when all was repaired and had had time to end
	begins   map[int64]int64         // when a step had its first send or receive
	sets     map[lifeID][]record     // the calls of SetCluster that have not returned
	absences map[pair][]absence      // when a task was not in the cluster of another one
	udp      bool                    // values go by roce alone
	found    []violation
}

// checkLogs returns the breaches of the rules that the records show.
func checkLogs(all []record, o options) []violation {
	return checkWith(all, o.seed, func(step int64) plan { return planOf(o.seed, step) }, o.fallback == "none")
}

// checkWith is checkLogs with the plan of each step. udp means that values go by roce alone, and that
// a task without UDP cannot be reached.
func checkWith(all []record, seed uint64, plan func(step int64) plan, udp bool) []violation {
	c := &check{
		seed: seed, plan: plan, all: all, blocks: make(map[int][]span), halts: make(map[int][]span), lives: make(map[lifeID]span), ups: make(map[lifeID]int64),
		leaves: make(map[lifeID]int64), ends: make(map[int64]map[int]int64), closes: make(map[int64]int64),
		edges: make(map[edgeID][]record), done: make(map[int64]map[int]int), udp: udp,
		begins: make(map[int64]int64), sets: make(map[lifeID][]record), absences: make(map[pair][]absence),
	}
	for _, r := range all {
		if r.Kind == kindOver {
			c.over = r.At
		}
	}
	c.index()
	for _, records := range c.edges {
		c.checkEdge(records)
	}
	c.checkPulls()
	c.checkVersions()
	c.checkSets()
	slices.SortFunc(c.found, func(a, b violation) int { return int(a.at.At - b.at.At) })
	return c.found
}

func (c *check) breach(rule string, at record, format string, args ...any) {
	c.found = append(c.found, violation{rule, fmt.Sprintf(format, args...), at})
}

// index sorts the records by what they are about.
func (c *check) index() {
	faults := make(map[int64]int64)
	for _, r := range c.all {
		id := lifeID{r.Task, r.Life}
		switch r.Kind {
		case kindUp:
			c.ups[id] = r.At
			if before, ok := c.lives[lifeID{r.Task, r.Life - 1}]; ok { // no step begins before the first is up
				c.blocks[r.Task] = append(c.blocks[r.Task], span{before.to, r.At})
			}
			c.lives[id] = span{from: r.At}
		case kindDown:
			if c.ended(r) {
				continue
			}
			l := c.lives[id]
			l.to = r.At
			c.lives[id] = l
		case kindGone:
			if !c.ended(r) {
				c.gone(r)
			}
		case kindLeave:
			c.leaves[id] = r.At
		case kindFault, kindHeal:
			if r.Kind == kindFault {
				faults[r.Recv] = r.At
				continue
			}
			s := span{faults[r.Recv], r.At}
			if strings.HasPrefix(r.Text, "stopped by SIGSTOP") {
				c.halts[r.Task] = append(c.halts[r.Task], s)
			}
			if r.Blocks || c.udp && strings.HasPrefix(r.Text, "UDP") {
				c.blocks[r.Task] = append(c.blocks[r.Task], s)
			}
		case kindEnds:
			if c.ends[r.Step] == nil {
				c.ends[r.Step] = make(map[int]int64)
			}
			if _, ok := c.ends[r.Step][r.Task]; !ok {
				c.ends[r.Step][r.Task] = r.At
			}
		case kindDone:
			if r.Again {
				continue // values may have gone with the life before
			}
			if c.done[r.Step] == nil {
				c.done[r.Step] = make(map[int]int)
			}
			c.done[r.Step][r.Task] = r.Life
		case kindClose:
			if c.ended(r) {
				continue
			}
			c.closes[r.Step] = r.At
		case kindCluster, kindSet:
			c.cluster(r)
		case kindMem:
			c.breach("memory", r, "%s", r.Text)
		case kindSend, kindSent, kindTold, kindRecv, kindGot:
			if c.ended(r) {
				continue
			}
			if _, ok := c.begins[r.Step]; !ok {
				c.begins[r.Step] = r.At
			}
			e := edgeID{r.Step, r.Edge}
			c.edges[e] = append(c.edges[e], r)
		}
	}
}

// ended reports whether the storm was over at a record.
func (c *check) ended(r record) bool { return c.over != 0 && r.At > c.over }

// livedThrough reports whether a process lived at a time.
func (c *check) livedThrough(id lifeID, at int64) bool {
	l, ok := c.lives[id]
	return ok && (l.to == 0 || l.to > at)
}

// livesOn reports whether the process that a task had at a time is still there.
func (c *check) livesOn(task int, at int64) bool {
	for id, l := range c.lives {
		if id.task == task && l.to == 0 && l.from <= at {
			return true
		}
	}
	return false
}

// endedBy reports whether one of the tasks had ended a step by a time, or may have since a task of the step had left its
// cluster.
func (c *check) endedBy(step, at int64, tasks ...int) bool {
	return c.endedBySomebody(step, at, tasks...) || c.endedByLeaving(step, at, tasks...)
}

// endedBySomebody reports whether one of the tasks had ended a step by a time.
func (c *check) endedBySomebody(step, at int64, tasks ...int) bool {
	for _, t := range tasks {
		if end, ok := c.ends[step][t]; ok && end <= at {
			return true
		}
	}
	return false
}

// small reports whether the process of a sender keeps few responses.
func (c *check) small(id lifeID) bool { return smallCache(c.seed, id.task, id.life) }

// stops reports whether the process of a record had been asked to stop.
func (c *check) stops(r record) bool {
	at, ok := c.leaves[lifeID{r.Task, r.Life}]
	return ok && at <= r.At
}

// checkError checks the error that a receive ended with.
func (c *check) checkError(began, r record) {
	if c.stops(r) {
		return
	}
	c.checkSort(r)
	switch r.Code {
	case status.Cancelled.String():
		if r.Ctx != "context canceled" {
			c.breach("error", r, "the receive was cancelled by nobody")
		}
	case status.DeadlineExceeded.String():
		if r.Ctx != "context deadline exceeded" {
			c.breach("error", r, "the deadline of the receive had not passed")
		}
	case status.Aborted.String():
		if !c.endedBy(r.Step, r.At, r.Task, r.Peer) && !c.restarted(began, r) {
			c.breach("error", r, "no process of task %d had gone, and neither end had ended the step", r.Peer)
		}
	case status.NotFound.String():
		if !c.parted(pair{r.Task, r.Peer}, began.At, r.At) {
			c.breach("error", r, "task %d was in the cluster", r.Peer)
		}
	case status.Unavailable.String():
		if !c.unreached(r.At, r.Task, r.Peer) {
			c.breach("error", r, "task %d could be reached within %v before", r.Peer, peerTimeout)
		}
	case status.FailedPrecondition.String():
		if !strings.Contains(r.Text, abortText) || !c.endedBy(r.Step, r.At, r.Task, r.Peer) {
			c.breach("error", r, "neither end had aborted the step")
		}
	case status.AlreadyExists.String(): // the life before counts as connected, and the sender has no address to ask which one it is
		if r.Life == firstLife || !c.parted(pair{r.Peer, r.Task}, began.At, r.At) {
			c.breach("error", r, "the receiver was in the cluster of task %d, or is its first process", r.Peer)
		}
	case status.ResourceExhausted.String():
		if !c.udp {
			c.breach("error", r, "the value could have come over gRPC")
		}
	default:
		c.breach("error", r, "a receive must not end with this")
	}
}

// restarted reports whether a receive may have been for a process of the sender that has gone. Such
// a process may be taken for alive until a call reaches the next one.
func (c *check) restarted(began, ended record) bool {
	for id, l := range c.lives {
		if id.task != ended.Peer || l.to == 0 || l.to > ended.At {
			continue
		}
		up, ok := c.ups[lifeID{id.task, id.life + 1}]
		if !ok || began.At <= c.covered(up, knows, ended.Task, ended.Peer) {
			return true
		}
	}
	return false
}

// unreached reports whether calls between two tasks were impossible for the peer timeout before a
// time.
func (c *check) unreached(at int64, tasks ...int) bool {
	return c.covered(at-int64(peerTimeout)+int64(tolerance), 0, tasks...) >= at
}

// covered returns until when calls between tasks may have been impossible without a break, if they
// were at a time.
func (c *check) covered(at int64, least time.Duration, tasks ...int) int64 {
	var spans []span
	for _, t := range tasks {
		spans = append(spans, c.blocks[t]...)
		for id, l := range c.lives {
			if _, ok := c.lives[lifeID{t, id.life + 1}]; id.task == t && l.to != 0 && !ok {
				spans = append(spans, span{l.to, 1 << 62}) // the last life
			}
		}
	}
	slices.SortFunc(spans, func(a, b span) int { return int(a.from - b.from) })
	at += int64(least)
	for _, s := range spans {
		if s.from <= at {
			at = max(at, s.to+int64(reconnects))
		}
	}
	return at
}

// hindered reports whether calls between two tasks were impossible at any time of a span, or one was not in the cluster
// of the other.
func (c *check) hindered(from, to int64, one, other int) bool {
	for _, t := range []int{one, other} {
		for _, s := range c.blocks[t] {
			if s.from <= to && s.to+int64(reconnects) >= from {
				return true
			}
		}
	}
	return c.left(other, from, to) || c.parted(pair{one, other}, from, to) || c.parted(pair{other, one}, from, to)
}

// checkPulls checks the pulls.
func (c *check) checkPulls() {
	open := make(map[lifeID]record)
	for _, r := range c.all {
		id := lifeID{r.Task, r.Life}
		switch r.Kind {
		case kindPull:
			open[id] = r
		case kindHas:
			delete(open, id)
			if r.Code != "" {
				c.breach("pull", r, "a pull failed")
			}
		}
	}
	for id, r := range open {
		if c.lives[id].to == 0 {
			c.breach("pull", r, "the pull has not ended")
		}
	}
}
