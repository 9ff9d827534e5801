//go:build linux

package storm_test

import (
	"slices"
	"time"

	"github.com/tryst-rdma/tryst/status"
)

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
	k.checkLeft(began, r)
	switch {
	case r.Code == status.DataLoss.String() && len(k.sent) > 0 && k.small(lifeID{k.from, k.sent[0].Life}):
		k.losses++
		k.unclaimed++
	case r.Code == status.InvalidArgument.String() && k.misfits(began):
	case r.Code != "":
		k.checkError(began, r)
	case k.slots == 1:
		k.checkOrder(r)
	default:
		k.checkSet(r)
	}
}

// misfits reports whether the memory of a receive is too large or too small for the next value. Values that were reported as lost
// go before that one.
func (k *edgeCheck) misfits(r record) bool {
	next := min(k.next[lifeID{r.Task, r.Life}], len(k.sent))
	end := min(next+k.unclaimed+1, len(k.sent))
	return r.Into != 0 && slices.ContainsFunc(k.sent[next:end], func(s *sentValue) bool {
		return !s.Content.Dead && s.Content.Size != r.Into-1
	})
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
	if r.late(k.plan(r.Step)) && !k.stops(r) && !k.endedBy(r.Step, r.At, k.from, k.to) && !k.hindered(r.At-int64(churnTime), r.At, k.from, k.to) {
		k.breach("error", r, "SendWait had no space for %v, and nothing kept the receiver from taking the values before", churnTime)
	}
}

// late reports whether r is a SendWait that has waited for space for churnTime: its value never comes.
func (r record) late(p plan) bool { return r.Code == status.DeadlineExceeded.String() && p.ender < 0 }

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
	for _, halt := range k.halts[s.Task] {
		if halt.from < late && halt.to > closed {
			late = halt.to + int64(tells) // a process that is stopped says nothing
		}
	}
	switch {
	case r.Kind == "":
		if k.told && s.sure && isClosed && late < k.over && k.livedThrough(lifeID{s.Task, s.Life}, late) {
			k.breach("told", s.record, "the value has no outcome %v after its step", tells)
		}
	case r.Code == "":
		if !s.taken && !k.left(k.to, s.At, 1<<61) {
			k.breach("told", r, "the receiver has not got the value")
		}
	case r.Code == status.DataLoss.String() && k.small(lifeID{s.Task, s.Life}): // it was dropped before the acknowledgement came
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
