package delivery

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The rules of ARCHITECTURE.md section 6 are explored here over the machines
// themselves: every order of events in small worlds, and long random walks in
// large ones. TRYST_SIMULATION=n makes both n times as large.

func effort(t *testing.T) int {
	s := os.Getenv("TRYST_SIMULATION")
	if s == "" {
		return 1
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		t.Fatalf("TRYST_SIMULATION=%q: want a number of at least 1", s)
	}
	return n
}

// scaled is how many worlds or walks there are of n: a quarter with -short.
func scaled(t *testing.T, n int) int {
	if n *= effort(t); testing.Short() {
		n = max(n/4, 1)
	}
	return n
}

// search looks at every world that cfg allows, those with few moves first, until
// it has seen limit of them. It returns the first violation with the moves that
// lead to it.
func search(t *testing.T, cfg simConfig, limit int) (seen int, whole bool, violation string) {
	type node struct {
		w    *world
		from *node
		by   move
	}
	story := func(n *node) string {
		var lines []string
		for ; n.from != nil; n = n.from {
			lines = append(lines, "  "+n.by.String())
		}
		for i, j := 0, len(lines)-1; i < j; i, j = i+1, j-1 {
			lines[i], lines[j] = lines[j], lines[i]
		}
		return strings.Join(lines, "\n")
	}
	first := &node{w: newWorld(t, &cfg)}
	known := map[string]struct{}{first.w.state(): {}}
	for queue := []*node{first}; len(queue) > 0; queue = queue[1:] {
		n := queue[0]
		queue[0] = nil
		seen++
		moves, inner := n.w.moves()
		if inner == 0 {
			if n.w.checkQuiet(); n.w.broken != "" {
				return seen, false, n.w.broken + "\n" + story(n)
			}
		}
		for i, m := range moves {
			w := n.w
			if i < len(moves)-1 {
				w = n.w.copy()
			} else {
				n.w = nil // its last use
			}
			w.play(m)
			next := &node{w: w, from: n, by: m}
			if w.broken != "" {
				return seen, false, w.broken + "\n" + story(next)
			}
			if s := w.state(); len(known) < limit {
				if _, ok := known[s]; !ok {
					known[s] = struct{}{}
					queue = append(queue, next)
				}
			}
		}
	}
	return seen, len(known) < limit, ""
}

var searches = []struct {
	name string
	cfg  simConfig
}{
	{"a break", simConfig{keys: 1, budget: budget{sends: 2, recvs: 2, breaks: 1}}},
	{"two breaks", simConfig{keys: 1, budget: budget{sends: 1, recvs: 1, breaks: 2}}},
	{"a cancel", simConfig{keys: 1, budget: budget{sends: 1, recvs: 2, cancels: 1}}},
	{"a break and a cancel", simConfig{keys: 1, budget: budget{sends: 1, recvs: 2, breaks: 1, cancels: 1}}},
	{"two breaks and a cancel", simConfig{keys: 1, budget: budget{sends: 1, recvs: 1, breaks: 2, cancels: 1}}},
	{"a restart", simConfig{keys: 1, budget: budget{sends: 2, recvs: 2, restarts: 1}}},
	{"a break and a restart", simConfig{keys: 1, budget: budget{sends: 1, recvs: 1, breaks: 1, restarts: 1}}},
	{"a blackout", simConfig{keys: 1, budget: budget{sends: 1, recvs: 2, blackouts: 1}}},
	{"limits", simConfig{keys: 1, budget: budget{sends: 2, recvs: 2, breaks: 1}, limits: cacheLimits{keptPerRequester: keptOverhead}}},
}

func TestSimulationSearch(t *testing.T) {
	for _, s := range searches {
		t.Run(s.name, func(t *testing.T) {
			began := time.Now()
			seen, whole, violation := search(t, s.cfg, min(scaled(t, 12_000), searchLimit))
			if violation != "" {
				t.Error(violation)
			}
			t.Logf("%d worlds, all of them: %v, %v", seen, whole, time.Since(began).Round(time.Millisecond))
		})
	}
}

// Each rule matters: without it the search, or the walk, finds what is lost.
func TestSimulationEachRuleMatters(t *testing.T) {
	for _, c := range []struct {
		name string
		cfg  simConfig
	}{
		{"a: an id names a receive in all its attempts", simConfig{keys: 1, budget: budget{sends: 1, recvs: 1, breaks: 1}, rules: rules{newID: true}}},
		{"a: another process does not answer", simConfig{keys: 1, budget: budget{sends: 2, recvs: 1, restarts: 1}, rules: rules{anyProcess: true}}},
		{"c: what was matched when the call broke is kept", simConfig{keys: 1, budget: budget{sends: 1, recvs: 1, breaks: 1}, rules: rules{dropBreak: true}}},
		{"d: acks and cancels are sent again", simConfig{keys: 1, budget: budget{sends: 1, recvs: 1, breaks: 1}, rules: rules{sendOnce: true}}},
		{"d: ended ids are remembered", simConfig{keys: 1, budget: budget{sends: 1, recvs: 1, breaks: 1, cancels: 1}, rules: rules{noPast: true}}},
		{"e: answers are kept", simConfig{keys: 1, budget: budget{sends: 1, recvs: 1, breaks: 1}, rules: rules{keepNone: true}}},
		{"a cancelled receive consumes nothing", simConfig{keys: 1, budget: budget{sends: 1, recvs: 1, cancels: 1}, rules: rules{noRestore: true}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			seen, _, violation := search(t, c.cfg, 100_000)
			if violation == "" {
				t.Fatalf("nothing was found in %d worlds", seen)
			}
			t.Logf("after %d worlds: %s", seen, violation)
		})
	}
	t.Run("those asked again do not hold up the rest", func(t *testing.T) {
		for off, want := range map[bool]bool{false: false, true: true} {
			if got := heldUp(t, off) != ""; got != want {
				t.Errorf("rule off: %v; held up: %v", off, got)
			}
		}
	})
}

// heldUp breaks a connection under more receives than are asked again at once.
// The values that come then are for the last of them.
func heldUp(t *testing.T, off bool) string {
	const n = maxResent + 10
	w := newWorld(t, &simConfig{keys: n, budget: budget{sends: 1, recvs: n, breaks: 1}, rules: rules{noWidening: off}})
	settle := func() {
		for range 10_000 {
			moves, inner := w.moves()
			if inner == 0 {
				return
			}
			w.play(moves[0])
			if off && moves[0].kind == moveTick {
				return
			}
		}
	}
	for k := range n {
		w.play(move{moveRecv, k})
		settle()
	}
	w.play(move{moveBreak, 0})
	settle()
	w.play(move{moveSend, n - 1})
	settle()
	if w.broken == "" && w.recvs[n-1].ended == 0 {
		return "the last receive waits"
	}
	return w.broken
}

func TestSimulationWalk(t *testing.T) {
	configs := map[string]simConfig{
		"breaks":   {keys: 5, timed: true, budget: budget{sends: 200, recvs: 200, breaks: 30}},
		"cancels":  {keys: 5, timed: true, budget: budget{sends: 150, recvs: 220, breaks: 20, cancels: 70}},
		"restarts": {keys: 3, timed: true, budget: budget{sends: 150, recvs: 150, breaks: 10, cancels: 20, restarts: 3}},
		"blackout": {keys: 3, timed: true, budget: budget{sends: 150, recvs: 150, breaks: 10, cancels: 20, restarts: 1, blackouts: 3}},
		"limits": {keys: 4, timed: true, budget: budget{sends: 200, recvs: 220, breaks: 20, cancels: 20},
			limits: cacheLimits{keptPerRequester: 3 * keptOverhead, keptTotal: 3 * keptOverhead}, sizes: []int{1, 700, 30, 2000}},
		"share of an origin": {keys: 4, timed: true, budget: budget{sends: 200, recvs: 220, breaks: 20, cancels: 20},
			limits: cacheLimits{keptPerRequester: 3 * keptOverhead, keptPerAddress: 3 * keptOverhead, keptTotal: 9 * keptOverhead}, sizes: []int{1, 700, 30, 2000}},
		"many":       {keys: 200, timed: true, budget: budget{sends: 240, recvs: 250, breaks: 8}},
		"one by one": {keys: 1, timed: true, budget: budget{sends: 50, recvs: 50, breaks: 20, cancels: 10}},
	}
	for name, cfg := range configs {
		t.Run(name, func(t *testing.T) {
			runs := 25
			if cfg.keys > 50 { // each is long
				runs = 3
			}
			for range scaled(t, runs) {
				seed := rand.Uint64()
				if violation := walk(t, cfg, seed); violation != "" {
					t.Fatalf("seed %#x: %s", seed, violation)
				}
			}
		})
	}
}

// walk plays moves at random until nothing is left to do.
func walk(t *testing.T, cfg simConfig, seed uint64) string {
	rng := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // a test that can be repeated
	w := newWorld(t, &cfg)
	calm := rng.IntN(30) // how rarely something new happens
	for steps := 0; ; steps++ {
		moves, inner := w.moves()
		if inner == 0 {
			if w.checkQuiet(); w.broken != "" || len(moves) == 0 {
				return w.broken
			}
		}
		if steps > 1_000_000 {
			return fmt.Sprintf("it never ends: %v", moves)
		}
		choice := moves
		if inner > 0 && rng.IntN(calm+1) > 0 {
			choice = moves[:inner]
		}
		m := choice[rng.IntN(len(choice))]
		if m.kind == moveTick && rng.IntN(3) > 0 && inner > 1 {
			continue
		}
		w.now = w.now.Add(time.Duration(rng.IntN(int(2 * time.Millisecond))))
		if w.play(m); w.broken != "" {
			return fmt.Sprintf("%s, after %v", w.broken, m)
		}
	}
}
