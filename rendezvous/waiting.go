package rendezvous

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"
)

// WaitKind is what a wait in a step is for.
type WaitKind uint8

// The kinds of waits.
const (
	// WaitLocal is a receive of this process for a value that it sends itself.
	WaitLocal WaitKind = iota
	// WaitPeer is a receive of a peer for a value that this process has not sent yet.
	WaitPeer
	// WaitBegin is a receive of a peer in a step that this process has not begun.
	WaitBegin
	// WaitSpace is a SendWait that waits until its receiver has taken earlier values.
	WaitSpace
)

// Waiting is one wait in a step.
type Waiting struct {
	Kind  WaitKind
	Step  int64
	Key   Key
	Since time.Time
}

// StepState is what waits in a step.
type StepState struct {
	Step  int64
	Since time.Time // when it was first used here
	Begun bool      // by this process; otherwise only peers have asked for values of it
	Waits int       // in the step, of all kinds
	// Values were sent and have no receiver yet. Unreceived has some of their keys.
	Values     int
	Unreceived []Key
}

// Waits are the waits of a process: a snapshot for people.
type Waits struct {
	// Oldest are the longest waits, the longest first. Total counts all that were looked at.
	Oldest []Waiting
	Total  int
	// Steps are the steps that have lived longest, the oldest first. Living counts all steps.
	Steps  []StepState
	Living int
	// Complete is false if there was more than the call was to look at.
	Complete bool
}

// Waiting returns the longest waits and the oldest steps, up to most of each. It looks at visits queued receives,
// values and steps in all, and holds the lock of one part of one table at a time, for a small part of them, so that
// senders and receivers do not notice it. Receives from peers are the transport's.
func (m *Manager) Waiting(most, visits int) *Waits {
	c := &waitCollector{most: most, left: visits, out: &Waits{Complete: true}}
	m.mu.Lock()
	c.out.Living = len(m.steps)
	if len(m.steps) > visits {
		c.out.Complete = false
	}
	steps := make(map[int64]stepEntry, min(len(m.steps), visits))
	for id, e := range m.steps {
		if len(steps) == visits {
			break
		}
		steps[id] = *e
	}
	m.mu.Unlock()
	oldest := slices.SortedFunc(maps.Keys(steps), func(a, b int64) int {
		return cmp.Or(steps[a].r.local.born.Compare(steps[b].r.local.born), cmp.Compare(a, b))
	})
	for _, id := range oldest {
		e := steps[id]
		s := StepState{Step: id, Since: e.r.local.born, Begun: e.used}
		e.r.waiting(c, &s)
		if len(c.out.Steps) < most {
			c.out.Steps = append(c.out.Steps, s)
		}
	}
	c.out.Oldest = make([]Waiting, 0, len(c.oldest))
	for _, w := range c.oldest {
		key, err := ParseKey(w.key)
		if err == nil { // it was a Key before
			c.out.Oldest = append(c.out.Oldest, Waiting{w.kindOf(&key), w.step, key, w.since})
		}
	}
	return c.out
}

// waitCollector collects the longest waits.
type waitCollector struct {
	most, left int       // of oldest; entries that it may still look at
	oldest     []rawWait // the longest first
	out        *Waits
}

// rawWait is a Waiting whose key is not parsed.
type rawWait struct {
	queued bool // in a Local: the key tells the kind
	begun  bool // this process has begun the step
	kind   WaitKind
	step   int64
	key    string
	since  time.Time
}

func (w *rawWait) kindOf(key *Key) WaitKind {
	switch {
	case !w.queued:
		return w.kind
	case key.src.Task == key.dst.Task:
		return WaitLocal
	case !w.begun:
		return WaitBegin
	}
	return WaitPeer
}

// add notes a wait, and reports whether the collector takes more.
func (c *waitCollector) add(w rawWait) bool {
	c.out.Total++
	if n := len(c.oldest); n < c.most || w.since.Before(c.oldest[n-1].since) {
		at, _ := slices.BinarySearchFunc(c.oldest, w.since, func(o rawWait, t time.Time) int { return o.since.Compare(t) })
		if n == c.most {
			c.oldest = c.oldest[:n-1]
		}
		c.oldest = slices.Insert(c.oldest, at, w)
	}
	return c.more()
}

// more counts an entry, and reports whether the collector takes another.
func (c *waitCollector) more() bool {
	c.left--
	if c.left <= 0 {
		c.out.Complete = false
	}
	return c.left > 0
}

// waiting collects what waits in the step.
func (b *BaseRemote) waiting(c *waitCollector, s *StepState) {
	before := c.out.Total
	b.local.each(func(sh *shard) {
		if c.left > 0 {
			sh.waiting(b.step, b.local.born, c, s)
		}
	})
	b.mu.Lock()
	for at := b.deferred.Front(); at != nil && c.left > 0; at = at.Next() {
		if d, ok := at.Value.(*deferredRecv); ok {
			c.add(rawWait{kind: WaitBegin, step: b.step, key: d.key.text, since: d.since})
		}
	}
	b.mu.Unlock()
	if bounds := b.bounds.Load(); bounds != nil {
		bounds.waitingSends(b.step, c)
	}
	s.Waits = c.out.Total - before
}

// waiting collects what waits in the shard: up to shardVisits entries, since its lock is held meanwhile.
func (s *shard) waiting(step int64, born time.Time, c *waitCollector, state *StepState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	visits := 0
	for i := -1; i < len(s.buckets); i++ {
		head := s.first
		if i >= 0 {
			head = s.buckets[i]
		}
		for ; head != nil; head = head.chain {
			for e, next := head, (*entry)(nil); next != head; e = next {
				next = e.next
				visits++
				if visits > shardVisits {
					c.out.Complete = false
					return
				}
				if !c.visit(e, step, born, state) {
					return
				}
			}
		}
	}
}

// visit notes an entry, and reports whether the collector takes more.
func (c *waitCollector) visit(e *entry, step int64, born time.Time, state *StepState) bool {
	if e.done != nil {
		return c.add(rawWait{queued: true, begun: state.Begun, step: step, key: e.key, since: born.Add(time.Duration(e.since) * sinceUnit)})
	}
	state.Values++
	if len(state.Unreceived) < shownValues {
		if key, err := ParseKey(e.key); err == nil {
			state.Unreceived = append(state.Unreceived, key)
		}
	}
	return c.more()
}

// waitingSends collects the calls of SendWait that wait for space.
func (b *bounds) waitingSends(step int64, c *waitCollector) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, a := range b.accounts {
		for at := a.waiting.Front(); at != nil && c.left > 0; at = at.Next() {
			if w, _ := at.Value.(*waiter); w != nil && w.admitted == nil {
				c.add(rawWait{kind: WaitSpace, step: step, key: w.key, since: w.since})
			}
		}
	}
}

// age returns the time since the table was made, for entry.since.
func (l *Local) age() uint32 {
	return uint32(min(max(time.Since(l.born)/sinceUnit, 0), math.MaxUint32)) //nolint:gosec // within its range
}
