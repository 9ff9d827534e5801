package progress

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// The search runs the token through every order of steps that goroutines, the queue and
// its events can take. The steps are those of queue.go: what happens there under the
// lock, or in one call of the queue, is one step here. What depends on time (how long a
// goroutine spins, when a context ends) may happen at any time.

const (
	maxWaiters = 3
	maxQueued  = 4
	noWaiter   = int8(-1) // the completion belongs to no waiter
)

// world is one state. It is comparable.
type world struct {
	holder     holder
	waiter     int8
	spinning   [maxWaiters]int8 // the first contenders of them
	contenders int8
	waking     bool
	missed     bool
	stop       bool

	queue  [maxQueued]int8 // the waiter of each completion; the first queued elements count
	queued int8
	armed  bool
	event  bool // an event came and was not taken
	call   bool // likewise, and the device will call for it
	wake   bool // the poller's context has ended

	waiters   [maxWaiters]player
	home      player // the poller
	caller    player // the device's goroutine that calls
	stopper   player
	foreign   int8 // completions without a waiter that are still to come
	pollOnces int8 // calls of PollOnce still to come
	handled   int8
}

// player is a goroutine in the world.
type player struct {
	at      place
	t       turn
	found   bool // the last poll returned completions
	done    bool
	ended   bool // its context
	posted  bool // its completion is still to come
	wakeups bool // Done has woken it
	rounds  int8 // still to play
}

type place uint8

const (
	outside  place = iota
	awaiting       // spins for the token
	parking        // does not spin any more, and sleeps after a check whether it is done
	parked
	polling
	deciding
	arming
	asleep // the poller
	woken
	gone
)

// rules switches off rules of the state machine and of the code around it. The search
// must find a violation then.
type rules struct {
	forgetMissed   bool // an event during a turn is not noted
	armOnce        bool // completions found after arming do not lead to arming again
	neverArm       bool
	parkWithToken  bool // a waiter that stops spinning does not check whether it has the token
	leaveCompleted bool // the queue is not polled after arming
}

type game struct {
	waiters   int
	rounds    int8
	foreign   int8
	pollOnces int8
	cancel    bool // contexts may end
	stop      bool // the queue is stopped at some time
	busy      bool // ModeBusy
	event     bool // ModeEvent
	calls     bool // the device calls for some events
	patient   bool // a waiter spins until it has the token or is done
	batch     int8
	rules     rules
}

func (g *game) first() world {
	w := world{holder: poller, foreign: g.foreign, pollOnces: g.pollOnces}
	w.caller.at = asleep
	w.home = player{at: polling, t: turn{poller: true, busy: g.busy}}
	for i := range g.waiters {
		w.waiters[i].rounds = g.rounds
	}
	if g.stop {
		w.stopper.rounds = 1
	}
	return w
}

// with applies f to the token.
func (w *world) with(f func(*token[int8])) {
	b := token[int8]{
		holder: w.holder, waiter: w.waiter, spinning: slices.Clone(w.spinning[:w.contenders]),
		waking: w.waking, missed: w.missed, stop: w.stop,
	}
	f(&b)
	w.holder, w.waiter, w.waking, w.missed, w.stop = b.holder, b.waiter, b.waking, b.missed, b.stop
	w.contenders = int8(len(b.spinning))
	w.spinning = [maxWaiters]int8{}
	copy(w.spinning[:], b.spinning)
}

type next struct {
	by string
	w  world
}

// moves returns all possible steps.
func (g *game) moves(w world) (all []next) {
	add := func(by string, f func(*world)) {
		n := w
		f(&n)
		all = append(all, next{by, n})
	}
	complete := func(n *world, whose int8) {
		n.queue[n.queued] = whose
		n.queued++
		if g.batch >= maxQueued { // they are polled together, so their order does not matter
			slices.Sort(n.queue[:n.queued])
		}
		if n.armed {
			n.armed, n.event = false, true
		}
	}
	comes := func(by string, whose int8, f func(*world)) {
		if w.queued == maxQueued {
			return
		}
		add(by, func(n *world) { f(n); complete(n, whose) })
		if g.calls && w.armed {
			add(by+" by a packet", func(n *world) { f(n); complete(n, whose); n.event, n.call = w.event, true })
		}
	}
	for i := range g.waiters {
		me, name := int8(i), fmt.Sprintf("waiter %d", i)
		p := w.waiters[i]
		if p.posted {
			comes(name+"'s completion comes", me, func(n *world) { n.waiters[i].posted = false })
		}
		if g.cancel && !p.ended && p.at != outside && p.at != gone {
			add(name+"'s context ends", func(n *world) { n.waiters[i].ended = true })
		}
		switch p.at {
		case outside:
			if p.rounds == 0 || i > 0 && w.waiters[i-1].rounds == g.rounds {
				break // waiters are alike, so they begin in their order
			}
			begin := func(n *world) *player {
				q := &n.waiters[i]
				*q = player{posted: true, rounds: p.rounds - 1}
				return q
			}
			if !g.patient || w.stop {
				add(name+" parks at once", func(n *world) { begin(n).at = parking })
			}
			if g.event || w.stop {
				break
			}
			add(name+" enters", func(n *world) {
				q := begin(n)
				q.at = awaiting
				n.with(func(b *token[int8]) {
					if b.enter(me) {
						q.at, q.t = polling, turn{busy: g.busy}
					}
				})
			})
		case awaiting:
			if w.holder == waiter && w.waiter == me {
				add(name+" sees that it has the token", func(n *world) {
					n.waiters[i].at, n.waiters[i].t = polling, turn{busy: g.busy}
				})
			}
			if g.patient && !p.done && !w.stop {
				break
			}
			add(name+" stops spinning", func(n *world) {
				q := &n.waiters[i]
				q.at = parking
				n.with(func(b *token[int8]) {
					if b.quit(me) && !g.rules.parkWithToken {
						q.at, q.t = polling, turn{busy: g.busy}
					}
				})
			})
		case parking:
			add(name+" checks before it sleeps", func(n *world) {
				if q := &n.waiters[i]; q.done || q.ended {
					g.end(q)
				} else {
					q.at = parked
				}
			})
		case parked:
			if p.wakeups || p.ended {
				add(name+" wakes up", func(n *world) { g.end(&n.waiters[i]) })
			}
		default:
			g.hold(w, name, func(n *world) *player { return &n.waiters[i] }, p, add)
		}
	}
	if w.foreign > 0 {
		comes("a completion without a waiter comes", noWaiter, func(n *world) { n.foreign-- })
	}
	if w.pollOnces > 0 && w.caller.at == asleep {
		add("a goroutine calls PollOnce", func(n *world) {
			n.pollOnces--
			n.with(func(b *token[int8]) {
				if b.tryTake() {
					n.caller = player{at: polling, t: turn{poller: true}}
				}
			})
		})
	}
	switch p := w.caller; {
	case p.at != asleep:
		g.hold(w, "the device", func(n *world) *player { return &n.caller }, p, add)
	case w.call:
		add("the device calls", func(n *world) {
			n.call = false
			missed := n.missed
			n.with(func(b *token[int8]) {
				if b.event() {
					n.caller = player{at: polling, t: turn{poller: true}}
				}
			})
			if g.rules.forgetMissed {
				n.missed = missed
			}
		})
	}
	switch p := w.home; p.at {
	case asleep:
		if w.event && !g.busy || w.wake {
			add("the poller wakes up", func(n *world) {
				if n.home.at = woken; !g.busy {
					n.event = false
				}
			})
		}
	case woken:
		add("the poller asks for the token", func(n *world) {
			n.home.at = asleep
			missed := n.missed
			n.with(func(b *token[int8]) {
				if b.event() {
					n.home = player{at: polling, t: turn{poller: true, busy: g.busy}}
				}
			})
			if g.rules.forgetMissed {
				n.missed = missed
			}
			if n.home.at == asleep && n.stop {
				n.home.at = gone
			}
			n.wake = false
		})
	case gone:
	default:
		g.hold(w, "the poller", func(n *world) *player { return &n.home }, p, add)
	}
	switch p := w.stopper; p.at {
	case outside:
		if p.rounds > 0 {
			add("a goroutine stops the queue", func(n *world) {
				n.stopper = player{at: parked}
				n.with(func(b *token[int8]) {
					if b.end() {
						n.stopper.at = polling
					}
				})
				n.wake = true
			})
		}
	case parked:
		if w.holder == stopper {
			add("the stopper gets the token", func(n *world) { n.stopper.at = polling })
		}
	case polling:
		if w.home.at == gone {
			add("the stopper polls", func(n *world) {
				if g.take(n) == 0 {
					n.stopper.at = gone
				}
			})
		}
	}
	return all
}

func (g *game) end(p *player) {
	*p = player{rounds: p.rounds, posted: p.posted} // what did not complete may still do so
	if p.posted {
		p.rounds = 0
	}
}

// take polls and handles.
func (g *game) take(w *world) int {
	n := min(w.queued, g.batch)
	for _, whose := range w.queue[:n] {
		w.handled++
		if whose != noWaiter {
			p := &w.waiters[whose]
			p.done = true
			if p.at == parked {
				p.wakeups = true
			}
		}
	}
	rest := w.queue
	w.queue = [maxQueued]int8{}
	copy(w.queue[:], rest[n:w.queued])
	w.queued -= n
	return int(n)
}

// hold adds the steps of the holder of the token.
func (g *game) hold(w world, name string, of func(*world) *player, p player, add func(string, func(*world))) {
	switch p.at {
	case arming:
		add(name+" arms", func(n *world) {
			n.armed = !g.rules.neverArm
			of(n).at = polling
			if g.rules.leaveCompleted {
				of(n).found = false
				of(n).at = deciding
			}
		})
	case polling:
		add(name+" polls", func(n *world) {
			found := g.take(n) > 0
			of(n).found, of(n).at = found, deciding
		})
	case deciding:
		mustGo := p.done || w.stop || p.t.leaving
		if !mustGo {
			add(name+" polls on", func(n *world) { of(n).at = polling })
		}
		add(name+" releases the token", func(n *world) {
			q := of(n)
			found := q.found && (!g.rules.armOnce || !q.t.leaving || q.t.poller)
			var s step
			n.with(func(b *token[int8]) { s = b.release(&q.t, found) })
			switch s {
			case stepPoll:
				q.at = polling
			case stepArm:
				q.at = arming
			case stepWakePoller:
				n.wake = true
				q.at = parking
			default:
				q.at = parking
			}
			if (q.t.poller || q == &n.caller) && q.at == parking {
				q.at = asleep
			}
		})
	}
}

// check returns what is wrong with a state, or nothing.
func (g *game) check(w *world) string {
	polls := 0
	holds := func(at place) bool { return at == polling || at == deciding || at == arming }
	for i := range g.waiters {
		if holds(w.waiters[i].at) {
			if polls++; w.holder != waiter || w.waiter != int8(i) {
				return fmt.Sprintf("waiter %d polls without the token", i)
			}
		}
	}
	if holds(w.home.at) {
		if polls++; w.holder != poller || w.waking {
			return "the poller polls without the token"
		}
	}
	if holds(w.caller.at) {
		if polls++; w.holder != poller || w.waking {
			return "the device polls without the token"
		}
	}
	if w.stopper.at == polling {
		if polls++; w.holder != stopper {
			return "the stopper polls without the token"
		}
	}
	if polls > 1 {
		return "two poll"
	}
	if wakes := w.armed && w.queued == 0 || w.event || w.call || w.home.at == woken; w.holder == noHolder && !wakes {
		return "the token is free, and the poller will not wake up"
	}
	if w.holder == waiter {
		if p := w.waiters[w.waiter].at; p == parking || p == parked || p == outside {
			return fmt.Sprintf("waiter %d sleeps with the token", w.waiter)
		}
	}
	return ""
}

// over returns what is wrong with a state without moves, or nothing.
func (g *game) over(w *world) string {
	switch {
	case w.queued > 0 && w.stopper.at != gone:
		return "a completion is never handled"
	case g.stop && w.stopper.at != gone && w.stopper.rounds == 0:
		return "Stop never returns"
	}
	for i := range g.waiters {
		if p := w.waiters[i]; p.at != outside && !w.stop {
			return fmt.Sprintf("waiter %d waits for ever", i)
		} else if p.at == parked && p.done {
			return fmt.Sprintf("waiter %d is done and waits for ever", i)
		}
	}
	return ""
}

type searched struct {
	states    int
	violation string
}

// search checks every reachable state, and that the game can end from each of them.
func (g *game) search() searched {
	type edge struct {
		from int
		by   string
	}
	var states []world
	var came []edge
	var back [][]int32 // from where each state can be reached
	known := map[world]int{}
	story := func(i int) string {
		var lines []string
		for ; i > 0; i = came[i].from {
			lines = append(lines, "  "+came[i].by)
		}
		slices.Reverse(lines)
		return strings.Join(lines, "\n")
	}
	visit := func(w world, e edge) int {
		i, ok := known[w]
		if !ok {
			i = len(states)
			known[w] = i
			states, came, back = append(states, w), append(came, e), append(back, nil)
		}
		return i
	}
	visit(g.first(), edge{})
	var ends []int
	for i := 0; i < len(states); i++ {
		if len(states) > searchLimit {
			return searched{states: len(states)}
		}
		w := states[i]
		if v := g.check(&w); v != "" {
			return searched{len(states), v + "\n" + story(i)}
		}
		moves := g.moves(w)
		if len(moves) == 0 || g.busy && g.quiet(&w) {
			if v := g.over(&w); v != "" {
				return searched{len(states), v + "\n" + story(i)}
			}
			ends = append(ends, i)
		}
		for _, m := range moves {
			j := visit(m.w, edge{i, m.by})
			back[j] = append(back[j], int32(i))
		}
	}
	can := make([]bool, len(states))
	for _, i := range ends {
		can[i] = true
	}
	for len(ends) > 0 {
		i := ends[len(ends)-1]
		ends = ends[:len(ends)-1]
		for _, j := range back[i] {
			if !can[j] {
				can[j] = true
				ends = append(ends, int(j))
			}
		}
	}
	if i := slices.Index(can, false); i >= 0 {
		return searched{len(states), "goes on for ever\n" + story(i)}
	}
	return searched{states: len(states)}
}

// quiet: in ModeBusy the poller may poll for ever; nothing else is left to do.
func (g *game) quiet(w *world) bool {
	if w.holder != poller || w.waking || w.stop || w.queued > 0 || w.foreign > 0 || w.stopper.rounds > 0 {
		return false
	}
	for i := range g.waiters {
		if p := w.waiters[i]; p.at != outside || p.rounds > 0 || p.posted {
			return false
		}
	}
	return true
}

type named struct {
	name string
	game game
}

var games = []named{
	{"one waiter in turn, others' completions", game{waiters: 1, rounds: 2, foreign: 2, batch: 2}},
	{"two waiters, others' completions", game{waiters: 2, rounds: 1, foreign: 1, batch: 2}},
	{"two waiters, twice", game{waiters: 2, rounds: 2, batch: 2, patient: true}},
	{"contexts end", game{waiters: 2, rounds: 1, batch: 2, cancel: true}},
	{"stopped", game{waiters: 2, rounds: 1, batch: 1, stop: true}},
	{"more than a waiter should handle", game{waiters: 1, rounds: 1, foreign: 6, batch: 1}},
	{"events only", game{waiters: 2, rounds: 1, foreign: 2, batch: 1, event: true}},
	{"events only, some of them calls", game{waiters: 2, rounds: 1, foreign: 2, batch: 1, event: true, calls: true}},
	{"calls, stopped", game{waiters: 1, rounds: 1, foreign: 2, batch: 1, event: true, calls: true, stop: true, cancel: true}},
	{"calls, and waiters that spin", game{waiters: 2, rounds: 1, foreign: 1, batch: 2, calls: true}},
	{"PollOnce", game{waiters: 2, rounds: 1, batch: 2, pollOnces: 1}},
	{"PollOnce twice", game{waiters: 1, rounds: 2, foreign: 1, batch: 2, pollOnces: 2}},
	{"PollOnce, stopped", game{waiters: 1, rounds: 1, foreign: 1, batch: 1, pollOnces: 1, stop: true, cancel: true}},
	{"PollOnce, calls", game{waiters: 1, rounds: 1, foreign: 2, batch: 1, pollOnces: 1, event: true, calls: true}},
	{"PollOnce, busy", game{waiters: 1, rounds: 1, foreign: 1, batch: 1, pollOnces: 1, busy: true}},
	{"busy", game{waiters: 2, rounds: 2, foreign: 1, batch: 1, busy: true}},
	{"busy, stopped, contexts end", game{waiters: 2, rounds: 1, batch: 2, busy: true, stop: true, cancel: true}},
}

// Not with -short.
var larger = []named{
	{"three waiters", game{waiters: 3, rounds: 1, batch: maxQueued, patient: true}},
}

// Millions of states.
var largest = []named{
	{"two waiters, PollOnce twice", game{waiters: 2, rounds: 1, foreign: 1, batch: 2, pollOnces: 2}},
	{"two waiters, twice, that park", game{waiters: 2, rounds: 2, batch: 2}},
	{"three waiters that park", game{waiters: 3, rounds: 1, batch: 2}},
}

// TRYST_SIMULATION, set to anything, adds the largest games.
func TestTokenInEveryOrder(t *testing.T) {
	games := games
	if !testing.Short() {
		games = slices.Concat(games, larger)
	}
	if os.Getenv("TRYST_SIMULATION") != "" {
		games = slices.Concat(games, largest)
	}
	for _, g := range games {
		t.Run(g.name, func(t *testing.T) {
			began := time.Now()
			s := g.game.search()
			if s.violation != "" {
				t.Error(s.violation)
			}
			t.Logf("%d states, %v", s.states, time.Since(began).Round(time.Millisecond))
		})
	}
}

// Each rule is needed: without it the search finds a violation.
func TestTokenEachRuleMatters(t *testing.T) {
	for _, c := range []struct {
		name string
		game game
	}{
		{"an event during a turn is noted", game{waiters: 1, rounds: 1, foreign: 1, batch: 1, rules: rules{forgetMissed: true}}},
		{"a call during a turn is noted", game{waiters: 1, rounds: 1, foreign: 1, batch: 1, event: true, calls: true, rules: rules{forgetMissed: true}}},
		{"completions after arming lead to arming again", game{waiters: 1, rounds: 1, foreign: 2, batch: 1, rules: rules{armOnce: true}}},
		{"the last holder arms", game{waiters: 1, rounds: 1, batch: 1, rules: rules{neverArm: true}}},
		{"the last holder polls after arming", game{waiters: 1, rounds: 1, batch: 1, rules: rules{leaveCompleted: true}}},
		{"no waiter sleeps with the token", game{waiters: 2, rounds: 1, batch: 1, rules: rules{parkWithToken: true}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := c.game.search()
			if s.violation == "" {
				t.Errorf("nothing went wrong in %d states", s.states)
			}
			t.Log(s.violation)
		})
	}
}
