package collective

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/status"
)

// The search explores all interleavings of the members of one operation: their waits (the real machine),
// and a model of the buffers, the ledger and the processes. At any moment one thing happens to one
// member. Time is counted in looks: it passes when nothing else can happen, except that a member may
// begin the operation late.

// searchPatience is Options.PeerTimeout in the search, and searchLate the last time at which a member
// begins the operation: it has computed longer than others may be silent.
const (
	searchPatience = looks
	searchLate     = looks + 2
)

func searchTime(n int) time.Time { return time.Unix(int64(n), 0) }

// instruction is what a goroutine of an operation does: it gives the buffer key to peer, or receives
// it from there.
type instruction struct {
	give bool
	key  int
	peer int
}

// program is the goroutines of each member, and the number of keys.
type program struct {
	members [][][]instruction
	keys    int
}

// ringProgram is allReduce (passes 2) or gather (passes 1) of n members, for these chunks.
func ringProgram(n, passes int, chunks ...int) program {
	p := program{members: make([][][]instruction, n)}
	for _, chunk := range chunks {
		hops := passes*n - passes // each pass reaches all others
		threads := make([][]instruction, n)
		for hop := range hops {
			from, to := (chunk+hop)%n, (chunk+hop+1)%n
			threads[from] = append(threads[from], instruction{give: true, key: p.keys, peer: to})
			threads[to] = append(threads[to], instruction{key: p.keys, peer: from})
			p.keys++
		}
		for i, t := range threads {
			if len(t) > 0 {
				p.members[i] = append(p.members[i], t)
			}
		}
	}
	return p
}

// treeProgram is a broadcast, by the trees of a group of one device each.
func treeProgram(t *testing.T, n, source int) program {
	t.Helper()
	m := newNetwork(t, slices.Repeat([]int{1}, n)...).members(t, 1)[0].m
	p := program{members: make([][][]instruction, n)}
	keys := map[[2]int]int{}
	key := func(from, to int) int {
		if _, ok := keys[[2]int{from, to}]; !ok {
			keys[[2]int{from, to}] = len(keys)
		}
		return keys[[2]int{from, to}]
	}
	for rank := range n {
		var thread []instruction
		for _, tr := range newTrees(m, rank, source)[:1] {
			if from := tr.parent(); from >= 0 {
				thread = append(thread, instruction{key: key(from, rank), peer: from})
			}
			for _, to := range tr.children(rank == source) {
				thread = append(thread, instruction{give: true, key: key(rank, to), peer: to})
			}
		}
		p.members[rank] = [][]instruction{thread}
	}
	p.keys = len(keys)
	return p
}

// phase is how far a member is.
type phase byte

const (
	computes phase = iota // has not begun
	runs
	succeeded
	failed
)

// fault is what happens to a member.
type fault byte

const (
	noFault    fault = iota
	closes           // its group
	cancels          // the context of its operation
	dies             // its process; what it has sent arrives
	diesWithIt       // its process; what it has sent is lost
	restarts         // its process
	stops            // its process, for ever
	pauses           // its process, for less than the peer timeout
	faults
)

func (f fault) String() string {
	return []string{"nothing", "close", "cancel", "death", "death with what it sent", "restart", "stop", "pause"}[f]
}

// searchMember is one member of the world.
type searchMember struct {
	phase    phase
	closed   bool
	at       []int  // of each goroutine
	asked    []bool // it waits in a receive
	waits    waits
	tickAt   int // −1: no timer
	watching []int
	checking map[int]int // by rank: when the call ends
}

// world is the state of the search. key is: 0 not there, 1 provided, 2 taken, 3 arrived; likewise
// done: 1 when the giver knows that it is taken.
type world struct {
	p       program
	plain   int   // a member of TensorFlow, which cannot be watched; the faults are those of its process. −1: none
	only    fault // noFault: all
	begins  int   // until when members begin; later only at searchLate
	late    bool  // the giver may learn after the receiver that a buffer is taken
	now     int
	members []searchMember
	keys    []byte
	known   []bool
	fault   fault
	who     int
	when    int  // of the fault
	last    int  // when the last member began
	before  bool // the member had succeeded before its fault
}

func newWorld(p program, plain int, off waitRules) *world {
	w := &world{p: p, plain: plain, keys: make([]byte, p.keys), known: make([]bool, p.keys)}
	for _, threads := range p.members {
		m := searchMember{at: make([]int, len(threads)), asked: make([]bool, len(threads)), tickAt: -1, checking: map[int]int{}}
		m.waits = newWaits(searchPatience * time.Second)
		m.waits.off = off
		w.members = append(w.members, m)
	}
	return w
}

func (w *world) clone() *world {
	c := *w
	c.keys, c.known = slices.Clone(w.keys), slices.Clone(w.known)
	c.members = slices.Clone(w.members)
	for i := range c.members {
		m := &c.members[i]
		m.at, m.asked, m.watching, m.checking = slices.Clone(m.at), slices.Clone(m.asked), slices.Clone(m.watching), maps.Clone(m.checking)
		m.waits.peers = maps.Clone(m.waits.peers)
		for rank, p := range m.waits.peers {
			q := *p
			m.waits.peers[rank] = &q
		}
	}
	return &c
}

// hash encodes the state. Times are relative, as far as they matter.
func (w *world) hash() string {
	b := []byte{byte(w.now), byte(w.fault), byte(w.who), byte(w.when), byte(w.last)}
	b = append(b, w.keys...)
	flag := func(f bool) {
		if f {
			b = append(b, 1)
		} else {
			b = append(b, 0)
		}
	}
	for _, k := range w.known {
		flag(k)
	}
	flag(w.before)
	for i := range w.members {
		m := &w.members[i]
		b = append(b, byte(m.phase), byte(m.tickAt))
		flag(m.closed)
		for t := range m.at {
			b = append(b, byte(m.at[t]))
			flag(m.asked[t])
		}
		for rank := range w.members {
			flag(slices.Contains(m.watching, rank))
			b = append(b, byte(m.checking[rank]))
			if p := m.waits.peers[rank]; p != nil {
				b = append(b, byte(p.gives), byte(p.receives), byte(p.since.Unix()), byte(p.heard.Unix()))
				flag(p.watched)
				flag(p.checking)
				flag(p.silence != nil)
				flag(p.gone != nil)
			} else {
				b = append(b, 255)
			}
		}
	}
	return string(b)
}

// lives reports whether a member's process does anything; answers whether it is the one of the group.
func (w *world) lives(i int) bool {
	if i != w.who {
		return true
	}
	switch w.fault {
	case dies, diesWithIt, restarts, stops:
		return false
	case pauses:
		return w.now >= w.when+searchPatience-2
	}
	return true
}

// over reports whether what waits for a member gets an error from it.
func (w *world) over(i int) bool {
	return w.members[i].phase == failed && w.lives(i) || w.members[i].closed && w.lives(i) || i == w.who && w.fault == restarts
}

// move is one thing that can happen.
type move struct {
	name string
	do   func(*world)
}

// moves returns what can happen now, and apart from it what may happen later instead.
func (w *world) moves() (urgent, optional []move) {
	now := searchTime(w.now)
	for i := range w.members {
		m := &w.members[i]
		name := func(format string, args ...any) string {
			return fmt.Sprintf("%d: member %d %s", w.now, i, fmt.Sprintf(format, args...))
		}
		if w.fault == noFault && w.now <= 1 {
			for f := closes; f < faults; f++ {
				if w.only != noFault && f != w.only || f == cancels && m.phase != runs || w.plain >= 0 && (w.plain != i || f < dies) {
					continue
				}
				optional = append(optional, move{name("has a %v", f), func(w *world) { w.suffer(i, f) }})
			}
		}
		if !w.lives(i) {
			continue
		}
		if m.phase == computes && !m.closed {
			start := move{name("begins"), func(w *world) { w.begin(i) }}
			if w.now >= searchLate {
				urgent = append(urgent, start)
			} else if w.now <= w.begins {
				optional = append(optional, start)
			}
		}
		if m.phase == succeeded && !m.closed {
			optional = append(optional, move{name("leaves after its success"), func(w *world) { w.members[i].closed = true }})
		}
		if m.phase != runs {
			continue
		}
		if m.tickAt >= 0 && m.tickAt <= w.now {
			urgent = append(urgent, move{name("looks"), func(w *world) { w.tick(i) }})
		}
		for t, at := range m.at {
			if at < len(w.p.members[i][t]) && !m.asked[t] {
				urgent = append(urgent, move{name("goes on"), func(w *world) { w.step(i, t) }})
			}
		}
		for _, rank := range m.watching {
			if w.over(rank) {
				urgent = append(urgent, move{name("sees that %d has failed", rank), func(w *world) { w.watchEnds(i, rank) }})
			}
		}
		for rank := range m.checking {
			var err error
			switch {
			case w.lives(rank):
			case w.fault == restarts:
				err = status.New(status.FailedPrecondition, "another process")
			case w.fault == stops || w.fault == pauses:
				if m.checking[rank] > w.now {
					continue
				}
				err = status.New(status.DeadlineExceeded, "no answer")
			default:
				err = status.New(status.Unavailable, "no process")
			}
			urgent = append(urgent, move{name("has called %d: %v", rank, err), func(w *world) {
				m := &w.members[i]
				delete(m.checking, rank)
				w.fails(i, m.waits.checked(now, rank, err))
			}})
		}
	}
	for i := range w.p.members {
		for t, thread := range w.p.members[i] {
			for at, in := range thread {
				switch m := &w.members[i]; {
				case in.give && w.keys[in.key] >= 2 && !w.known[in.key] && w.lives(i) && m.phase == runs:
					urgent = append(urgent, move{fmt.Sprintf("%d: member %d learns that %d has taken %d", w.now, i, in.peer, in.key), func(w *world) { w.learns(i, in) }})
				case in.give || m.phase != runs || m.at[t] != at || !m.asked[t] || !w.lives(i):
				case w.keys[in.key] == 1 && w.lives(in.peer) && !w.over(in.peer):
					urgent = append(urgent, move{fmt.Sprintf("%d: member %d takes %d of %d", w.now, i, in.key, in.peer), func(w *world) {
						if w.keys[in.key] = 2; !w.late {
							w.learns(in.peer, instruction{give: true, key: in.key, peer: i})
						}
					}})
				case w.keys[in.key] == 2 && (in.peer != w.who || w.fault != diesWithIt):
					urgent = append(urgent, move{fmt.Sprintf("%d: member %d has %d of %d", w.now, i, in.key, in.peer), func(w *world) {
						m := &w.members[i]
						w.keys[in.key] = 3
						m.waits.done(in.peer, toProvide)
						m.at[t]++
						m.asked[t] = false
						w.finish(i)
					}})
				case w.keys[in.key] < 2 && w.over(in.peer):
					urgent = append(urgent, move{fmt.Sprintf("%d: member %d gets an error of %d", w.now, i, in.peer), func(w *world) { w.fail(i) }})
				}
			}
		}
	}
	return urgent, optional
}

func (w *world) suffer(i int, f fault) {
	m := &w.members[i]
	w.fault, w.who, w.when = f, i, w.now
	w.before = m.phase == succeeded
	switch f {
	case closes:
		m.closed = true
		if m.phase == runs {
			w.fail(i)
		}
	case cancels:
		w.fail(i)
	}
}

func (w *world) begin(i int) {
	w.members[i].phase, w.last = runs, w.now
	w.finish(i)
}

func (w *world) fail(i int) {
	m := &w.members[i]
	m.phase, m.tickAt, m.watching, m.checking = failed, -1, nil, map[int]int{}
}

func (w *world) fails(i int, err error) {
	if err != nil {
		w.fail(i)
	}
}

// awaits enters a wait and its timer.
func (w *world) awaits(i, rank int, what need) bool {
	m := &w.members[i]
	if err := m.waits.await(searchTime(w.now), rank, what); err != nil {
		w.fail(i)
		return false
	}
	if m.tickAt < 0 {
		m.tickAt = w.now + 1
	}
	return true
}

func (w *world) step(i, t int) {
	m := &w.members[i]
	in := w.p.members[i][t][m.at[t]]
	what := toProvide
	if in.give {
		what = toTake
	}
	if !w.awaits(i, in.peer, what) {
		return
	}
	if in.give {
		w.keys[in.key] = 1
		m.at[t]++
		return
	}
	m.asked[t] = true
}

func (w *world) learns(i int, in instruction) {
	w.known[in.key] = true
	if w.members[i].phase == runs {
		w.members[i].waits.done(in.peer, toTake)
		w.finish(i)
	}
}

// finish ends the operation of a member whose goroutines have ended and whose buffers are taken.
func (w *world) finish(i int) {
	m := &w.members[i]
	for t, thread := range w.p.members[i] {
		if m.at[t] < len(thread) {
			return
		}
		for _, in := range thread {
			if in.give && !w.known[in.key] {
				return
			}
		}
	}
	m.phase, m.tickAt, m.watching, m.checking = succeeded, -1, nil, map[int]int{}
}

func (w *world) tick(i int) {
	m := &w.members[i]
	now := searchTime(w.now)
	for _, a := range m.waits.tick(now) {
		switch a.kind {
		case actWatch:
			if a.rank != w.plain {
				m.watching = append(m.watching, a.rank)
			}
		case actCheck:
			m.checking[a.rank] = int(a.by.Unix())
		case actFail:
			w.fail(i)
			return
		}
	}
	m.tickAt = -1
	if at, ok := m.waits.next(now); ok {
		m.tickAt = int(at.Unix())
	}
}

func (w *world) watchEnds(i, rank int) {
	m := &w.members[i]
	m.watching = slices.DeleteFunc(m.watching, func(r int) bool { return r == rank })
	w.fails(i, m.waits.ended(rank, status.New(status.Aborted, "it has failed")))
}

// wrong returns what is wrong with a state; "" when nothing is.
func (w *world) wrong() string {
	// A member that was done is not missed, unless what it sent was lost with it. No call is answered
	// with an error of a member of TensorFlow.
	harmless := w.fault == noFault || w.fault == pauses || w.before && w.fault != diesWithIt
	for i := range w.members {
		switch m := &w.members[i]; {
		case m.phase == failed && harmless:
			return fmt.Sprintf("member %d fails after a %v", i, w.fault)
		case m.phase == runs && w.lives(i) && w.begun() && w.now > max(w.when, w.last)+searchPatience:
			return fmt.Sprintf("member %d still waits after the %v of %d", i, w.fault, w.who)
		}
	}
	return ""
}

// begun reports whether no living member computes.
func (w *world) begun() bool {
	for i := range w.members {
		if m := &w.members[i]; m.phase == computes && !m.closed && w.lives(i) {
			return false
		}
	}
	return true
}

// search explores all states and returns the first thing that is wrong, with its path.
func (w *world) search() (wrong string, states int) {
	type node struct {
		w    *world
		from int
		name string
	}
	seen := map[string]bool{w.hash(): true}
	nodes := []node{{w: w}}
	path := func(i int) string {
		var names []string
		for ; i > 0; i = nodes[i].from {
			names = append(names, nodes[i].name)
		}
		slices.Reverse(names)
		return strings.Join(names, "\n")
	}
	for i := 0; i < len(nodes); i++ {
		at := nodes[i].w
		nodes[i].w = nil
		if text := at.wrong(); text != "" {
			return text + ":\n" + path(i), len(nodes)
		}
		urgent, optional := at.moves()
		all := slices.Concat(urgent, optional)
		if len(urgent) == 0 && at.now < searchLate+2*searchPatience {
			all = append(all, move{fmt.Sprintf("%d: time passes", at.now), func(w *world) { w.now++ }})
		}
		for _, m := range all {
			next := at.clone()
			m.do(next)
			if h := next.hash(); !seen[h] {
				seen[h] = true
				nodes = append(nodes, node{next, i, m.name})
			}
		}
	}
	return "", len(nodes)
}

// TestSearchOfWaits: whatever happens to one member, at any moment, the operation ends at all others
// within the peer timeout; and no member is given up that computes, pauses, or has left when it was done.
func TestSearchOfWaits(t *testing.T) {
	for name, p := range searchPrograms(t) {
		for plain := -1; plain < len(p.members); plain++ {
			t.Run(fmt.Sprintf("%s, TensorFlow %d", name, plain), func(t *testing.T) {
				t.Parallel()
				w := newWorld(p, plain, waitRules{})
				if !testing.Short() && plain < 0 && p.keys < 4 {
					w.begins = 1
				}
				wrong, states := w.search()
				t.Logf("%d states", states)
				if wrong != "" {
					t.Error(wrong)
				}
			})
		}
	}
}

// TestSearchFindsEachRuleOfWaits switches each rule off.
func TestSearchFindsEachRuleOfWaits(t *testing.T) {
	p := ringProgram(3, 2, 0)
	twice := program{keys: 3, members: [][][]instruction{ // member 0 gives to 1, and later again
		{{{give: true, key: 0, peer: 1}}, {{key: 1, peer: 2}, {give: true, key: 2, peer: 1}}},
		{{{key: 0, peer: 0}, {key: 2, peer: 0}}},
		{{{give: true, key: 1, peer: 0}}},
	}}
	again := newWorld(twice, -1, waitRules{memory: true})
	again.begins, again.only = 1, closes
	for name, w := range map[string]*world{
		"watch":   newWorld(p, -1, waitRules{watch: true}),
		"check":   newWorld(p, -1, waitRules{check: true}),
		"sign":    newWorld(p, -1, waitRules{sign: true}),
		"restart": newWorld(p, 1, waitRules{restart: true}),
		"open":    newWorld(p, -1, waitRules{open: true}),
		"memory":  again,
		"late":    newWorld(p, -1, waitRules{}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w.late = name == "late"
			wrong, states := w.search()
			if wrong == "" {
				t.Fatalf("%d states, and nothing is wrong without the rule", states)
			}
			t.Logf("%d states: %s", states, wrong)
		})
	}
}

func searchPrograms(t *testing.T) map[string]program {
	return map[string]program{
		"barrier":   ringProgram(3, 2, 0),
		"gather":    ringProgram(3, 1, 0),
		"broadcast": treeProgram(t, 3, 0),
	}
}
