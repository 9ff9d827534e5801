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
//  9. DataLoss comes only from a process whose cache of responses is small, and stands for one value
//     that is lost. No other error comes, and none from Send unless this process has ended the step. (6 to 9: error)
// 10. Every pull succeeds, with the right bytes. (pull)
//
// 11. When SendWait says that the receiver has a value, the receiver has got it, unless its process
// is gone. When it says that this is not known, a process of the receiver has gone, or the step has
// ended at one of the two. It says one of the two, once, and before the step is long over. (told)
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
	seed   uint64
	plan   func(step int64) plan
	all    []record
	blocks map[int][]span          // when a task could not be reached
	lives  map[lifeID]span         // from down of the life before, to down
	ups    map[lifeID]int64        // when it was up
	leaves map[lifeID]int64        // when a life was asked to stop
	ends   map[int64]map[int]int64 // when a task ended a step
	closes map[int64]int64         // when all had done their part of a step
	done   map[int64]map[int]int   // the process of a task that did all of its part of a step
	edges  map[edgeID][]record     // records of a key
	over   int64                   // when all was repaired and had had time to end
	udp    bool                    // without UDP a task cannot be reached
	found  []violation
}

// checkLogs returns the breaches of the rules that the records show.
func checkLogs(all []record, o options) []violation {
	return checkWith(all, o.seed, func(step int64) plan { return planOf(o.seed, step) }, o.fallback == "none")
}

// checkWith is checkLogs with the plan of each step. udp means that a task without UDP cannot be
// reached.
func checkWith(all []record, seed uint64, plan func(step int64) plan, udp bool) []violation {
	c := &check{
		seed: seed, plan: plan, all: all, blocks: make(map[int][]span), lives: make(map[lifeID]span), ups: make(map[lifeID]int64),
		leaves: make(map[lifeID]int64), ends: make(map[int64]map[int]int64), closes: make(map[int64]int64), edges: make(map[edgeID][]record), done: make(map[int64]map[int]int),
		udp: udp,
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
		case kindLeave:
			c.leaves[id] = r.At
		case kindFault, kindHeal:
			if r.Kind == kindFault {
				faults[r.Recv] = r.At
			} else if r.Blocks || c.udp && strings.HasPrefix(r.Text, "UDP") {
				c.blocks[r.Task] = append(c.blocks[r.Task], span{faults[r.Recv], r.At})
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
		case kindSend, kindSent, kindTold, kindRecv, kindGot:
			if c.ended(r) {
				continue
			}
			e := edgeID{r.Step, r.Edge}
			c.edges[e] = append(c.edges[e], r)
		}
	}
}

// ended reports whether the storm was over at a record.
func (c *check) ended(r record) bool { return c.over != 0 && r.At > c.over }

// sentValue is a value with what became of it.
type sentValue struct {
	record
	sure     bool   // Send has returned without an error
	taken    bool   // it was received
	reported bool   // its loss was reported by DataLoss
	told     record // the outcome; none if it has no kind
}

// edgeCheck is the state of a key.
type edgeCheck struct {
	*check
	edge
	sent  []*sentValue
	open  map[lifeID]map[int64]record // receives that have not ended, by process
	next  map[lifeID]int              // of a process that receives one after the other: the next value
	loose map[lifeID]bool             // it took up the step, and had a value that is like others
	// losses is how many receives ended with DataLoss. Each stands for a value; unclaimed have not
	// been matched to one.
	losses, unclaimed int
}

// checkEdge checks the records of one key.
func (c *check) checkEdge(records []record) {
	k := &edgeCheck{
		check: c, edge: c.plan(records[0].Step).edges[records[0].Edge],
		open: make(map[lifeID]map[int64]record), next: make(map[lifeID]int), loose: make(map[lifeID]bool),
	}
	for _, r := range records {
		switch r.Kind {
		case kindSend:
			k.sent = append(k.sent, &sentValue{record: r})
		case kindSent:
			k.checkSent(r)
		case kindTold:
			k.checkTold(r)
		case kindRecv:
			id := lifeID{r.Task, r.Life}
			if k.open[id] == nil {
				k.open[id] = make(map[int64]record)
			}
			k.open[id][r.Recv] = r
		case kindGot:
			k.checkGot(r)
		}
	}
	k.checkOpen(records[0].Step)
	for _, s := range k.sent {
		k.checkOutcome(s)
		k.checkLost(s)
	}
}

func (k *edgeCheck) checkGot(r record) {
	id := lifeID{r.Task, r.Life}
	began, ok := k.open[id][r.Recv]
	if !ok {
		k.breach("ends", r, "the receive has ended twice")
		return
	}
	delete(k.open[id], r.Recv)
	k.checkPrompt(r)
	switch {
	case r.Code == status.DataLoss.String() && len(k.sent) > 0 && k.small(lifeID{k.from, k.sent[0].Life}):
		k.losses++
		k.unclaimed++
	case r.Code != "":
		k.checkError(began, r)
	case k.slots == 1:
		k.checkOrder(r)
	default:
		k.checkSet(r)
	}
}

// checkOpen checks the receives that have not ended.
func (k *edgeCheck) checkOpen(step int64) {
	for id, receives := range k.open {
		l := k.lives[id]
		closed, ok := k.closes[step]
		for _, r := range receives {
			switch {
			case l.to == 0:
				k.breach("ends", r, "the receive has not ended")
			case ok && closed < l.to:
				k.breach("ends", r, "the receive had not ended when the process said that it was done")
			}
		}
	}
}

// checkPrompt checks that a receive ended soon after its context, unless its process stood still.
func (c *check) checkPrompt(r record) {
	if late := r.Over + int64(prompt); r.Over != 0 && r.At > c.covered(late, 0, r.Task) {
		c.breach("ends", r, "the receive ended %v after its context", time.Duration(r.At-r.Over).Round(time.Millisecond))
	}
}

func (k *edgeCheck) checkSent(r record) {
	if r.Code == "" {
		for _, s := range k.sent {
			if s.Seq == r.Seq && s.Life == r.Life {
				s.sure = true
			}
		}
		return
	}
	own := r.Code == status.Cancelled.String() && r.Ctx == "context canceled" ||
		r.Code == status.DeadlineExceeded.String() && r.Ctx == "context deadline exceeded"
	if !k.stops(r) && !own && !k.endedBy(r.Step, r.At, r.Task) {
		k.breach("error", r, "Send failed although the step had not ended here")
	}
}

// checkTold notes the outcome of a value that SendWait has sent.
func (k *edgeCheck) checkTold(r record) {
	for _, s := range k.sent {
		if s.Seq != r.Seq || s.Life != r.Life {
			continue
		}
		if s.told.Kind != "" {
			k.breach("told", r, "the value has two outcomes")
		}
		s.told = r
	}
}

// checkOutcome checks the outcome of a value, when all that happened is known.
func (k *edgeCheck) checkOutcome(s *sentValue) {
	r := s.told
	closed, isClosed := k.closes[s.Step]
	late := closed + int64(tells)
	switch {
	case r.Kind == "":
		if k.told && s.sure && isClosed && late < k.over && k.livedThrough(lifeID{s.Task, s.Life}, late) {
			k.breach("told", s.record, "the value has no outcome %v after its step", tells)
		}
	case r.Code == "":
		if !s.taken && !k.left(k.to, s.At, 1<<61) {
			k.breach("told", r, "the receiver has not got the value")
		}
	case k.stops(r), k.losses > 0, k.endedBy(r.Step, r.At, k.from, k.to), k.left(k.to, s.At, r.At):
	default:
		k.breach("told", r, "no process of task %d had gone, and neither end had ended the step", k.to)
	}
}

// left reports whether a process of a task was gone at a time, and the next not long up at another
// one before.
func (c *check) left(task int, from, to int64) bool {
	return c.restarted(record{At: from}, record{At: to, Task: task, Peer: task})
}

// checkOrder checks a value that came to a process which receives one after the other.
func (k *edgeCheck) checkOrder(r record) {
	id := lifeID{r.Task, r.Life}
	expected, began := k.next[id]
	at := expected
	for at < len(k.sent) && (k.sent[at].taken || !k.sent[at].Content.same(*r.Content)) {
		at++
	}
	if at == len(k.sent) {
		k.strange(r)
		return
	}
	if gap := at - expected; gap > 0 && gap <= k.unclaimed {
		k.unclaimed -= gap
		for _, s := range k.sent[expected:at] {
			s.reported = true
		}
	} else if gap > 0 && (began || !r.Again) && !k.loose[id] {
		k.breach("order", r, "value %d was received, want value %d", k.sent[at].Seq, k.sent[expected].Seq)
	}
	k.sent[at].taken = true
	k.next[id] = at + 1
	k.loose[id] = k.loose[id] || r.Again && !r.Content.unique()
}

// checkSet checks a value that came to a process which has several receives under way.
func (k *edgeCheck) checkSet(r record) {
	for _, s := range k.sent {
		if s.Content.same(*r.Content) && !s.taken {
			s.taken = true
			return
		}
	}
	k.strange(r)
}

// strange reports a value that should not have come.
func (k *edgeCheck) strange(r record) {
	for _, s := range k.sent {
		if s.Content.same(*r.Content) {
			k.breach("twice", r, "value %d was received before", s.Seq)
			return
		}
	}
	k.breach("wrong", r, "no such value was sent before: %v", r.Content)
}

// checkLost checks that a value was received if its step went well.
func (k *edgeCheck) checkLost(s *sentValue) {
	if s.taken || !s.sure || s.reported {
		return
	}
	if k.unclaimed > 0 {
		k.unclaimed--
		return
	}
	sender := lifeID{s.Task, s.Life}
	closed, ok := k.closes[s.Step]
	switch {
	case ok && k.livedThrough(sender, closed) && k.livedThrough(lifeID{k.to, k.done[s.Step][k.to]}, closed) && !k.endedBy(s.Step, closed-1, k.from, k.to):
		k.breach("lost", s.record, "the value was not received in a step that went well")
	case !ok && k.lives[sender].to == 0 && k.livesOn(k.to, s.At) && !k.endedBy(s.Step, 1<<61, k.from, k.to):
		k.breach("lost", s.record, "the value was not received, and both processes are alive")
	}
}

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

// endedBy reports whether one of the tasks had ended a step by a time.
func (c *check) endedBy(step, at int64, tasks ...int) bool {
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
	case status.Unavailable.String():
		if !c.unreached(r.At, r.Task, r.Peer) {
			c.breach("error", r, "task %d could be reached within %v before", r.Peer, peerTimeout)
		}
	case status.FailedPrecondition.String():
		if !strings.Contains(r.Text, abortText) || !c.endedBy(r.Step, r.At, r.Task, r.Peer) {
			c.breach("error", r, "neither end had aborted the step")
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
