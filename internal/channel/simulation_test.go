package channel

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// These tests explore the rules of a channel with the real state machines: every order of
// events in small worlds, and long random walks in larger ones. TRYST_SIMULATION=n makes
// both n times as large.

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

// search explores every world that cfg allows, breadth first, until it has seen limit of
// them. It returns the first violation with the moves that lead to it.
func search(cfg simConfig, limit int) (seen int, whole bool, violation string) {
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
	first := &node{w: newWorld(&cfg)}
	known := map[[2]uint64]struct{}{first.w.state(): {}}
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
	{"small", simConfig{rails: 1, window: 4, values: []int64{100, -1}, budget: budget{receives: 2}}},
	{"errors", simConfig{rails: 1, window: 4, values: []int64{-2, -3}, budget: budget{receives: 2}}},
	{"large", simConfig{rails: 1, window: 4, values: []int64{2 * simPage}, budget: budget{receives: 2}}},
	{"large, two rails", simConfig{rails: 2, window: 4, values: []int64{3 * simPage}, budget: budget{receives: 2}}},
	{"changing", simConfig{rails: 1, window: 4, values: []int64{simPage, 2 * simPage, 100}, budget: budget{receives: 3}}},
	{"both ways", simConfig{rails: 1, window: 4, values: []int64{100}, both: true, budget: budget{receives: 4}}},
	{"both ways, large", simConfig{rails: 1, window: 4, values: []int64{simPage}, both: true, budget: budget{receives: 3}}},
	{"many in a narrow window", simConfig{rails: 1, window: 4, values: []int64{100}, budget: budget{receives: 5}}},
	{"a cancel", simConfig{rails: 1, window: 4, values: []int64{2 * simPage}, budget: budget{receives: 2, cancels: 1}}},
	{"a cancel, two rails", simConfig{rails: 2, window: 4, values: []int64{3 * simPage}, budget: budget{receives: 1, cancels: 1}}},
	{"a cancel, on either of two rails", simConfig{rails: 2, window: 4, values: []int64{simPage}, budget: budget{receives: 2, cancels: 1}}},
	{"a value that is given up", simConfig{rails: 1, window: 4, values: []int64{2 * simPage, 100}, budget: budget{receives: 2, fails: 1}}},
	{"given up and cancelled, two rails", simConfig{rails: 2, window: 4, values: []int64{4 * simPage}, budget: budget{receives: 1, fails: 1, cancels: 1}}},
	{"cancels, small and large", simConfig{rails: 1, window: 6, values: []int64{100, simPage}, budget: budget{receives: 2, cancels: 2}}},
	{"no memory", simConfig{rails: 1, window: 4, values: []int64{simPage}, noMemory: true, budget: budget{receives: 2, cancels: 1}}},
	{"staged contents", simConfig{rails: 1, window: 4, values: []int64{simPage}, unregistered: true, noMemory: true, budget: budget{receives: 2, cancels: 1}}},
	{"staged contents, given up", simConfig{rails: 1, window: 4, values: []int64{simPage, 100}, unregistered: true, budget: budget{receives: 2, fails: 1}}},
	{"staged contents and a break", simConfig{rails: 2, window: 4, values: []int64{2 * simPage}, unregistered: true, budget: budget{receives: 1, cancels: 1, breaks: 1}}},
	{"a break", simConfig{rails: 1, window: 4, values: []int64{2 * simPage, 100}, budget: budget{receives: 2, breaks: 1}}},
	{"a break and a cancel", simConfig{rails: 2, window: 4, values: []int64{2 * simPage}, budget: budget{receives: 1, cancels: 1, breaks: 1}}},
	{"an imm that comes again", simConfig{rails: 1, window: 4, values: []int64{simPage}, budget: budget{receives: 2, replays: 1}}},
	{"keys in turn, and a cancel", simConfig{rails: 1, window: 4, values: []int64{100}, keys: 2, budget: budget{receives: 5, cancels: 1}}},
	{"a bye", simConfig{rails: 1, window: 4, values: []int64{100}, budget: budget{receives: 2, byes: 1}}},
}

func TestSimulationSearch(t *testing.T) {
	for _, s := range searches {
		t.Run(s.name, func(t *testing.T) {
			began := time.Now()
			seen, whole, violation := search(s.cfg, min(scaled(t, 12_000), searchLimit))
			if violation != "" {
				t.Error(violation)
			}
			t.Logf("%d worlds, all of them: %v, %v", seen, whole, time.Since(began).Round(time.Millisecond))
		})
	}
}

// walk plays random moves until none is left.
func walk(cfg simConfig, seed uint64) string {
	rng := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // a test that can be repeated
	w := newWorld(&cfg)
	bias := rng.IntN(30) // towards inner moves
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
		if inner > 0 && rng.IntN(bias+1) > 0 {
			choice = moves[:inner]
		}
		m := choice[rng.IntN(len(choice))]
		if (m.kind == moveBreak || m.kind == moveBye) && rng.IntN(40) > 0 {
			continue // rarely, so that it happens late
		}
		if m.kind == moveTick && rng.IntN(3) > 0 && inner > 1 {
			continue
		}
		w.now = w.now.Add(time.Duration(rng.IntN(int(100 * time.Microsecond))))
		if w.play(m); w.broken != "" {
			return fmt.Sprintf("%s, after %v", w.broken, m)
		}
	}
}

var walks = map[string]simConfig{
	"small":       {rails: 1, window: 4, values: []int64{100, 1, -1, 0, -2}, keys: 3, both: true, budget: budget{receives: 120, cancels: 30}},
	"large":       {rails: 1, window: 5, values: []int64{simPage, 5*simPage + 1, 100, 3 * simPage}, keys: 2, both: true, budget: budget{receives: 80, cancels: 20}},
	"three rails": {rails: 3, window: 4, values: []int64{7 * simPage, simPage, 2 * simPage, 20 * simPage}, keys: 2, both: true, maxOutstanding: 3 * simPage, budget: budget{receives: 80, cancels: 30, fails: 20}},
	"uneven":      {rails: 2, window: 4, window1: 11, values: []int64{3 * simPage, 100, 100, -2}, keys: 3, both: true, budget: budget{receives: 100, cancels: 20}},
	"no memory":   {rails: 2, window: 6, values: []int64{3 * simPage, 100, -3}, keys: 3, both: true, noMemory: true, budget: budget{receives: 80, cancels: 20}},
	"staged":      {rails: 2, window: 6, values: []int64{3 * simPage, 100, -1}, keys: 3, both: true, noMemory: true, unregistered: true, budget: budget{receives: 80, cancels: 20, fails: 10, breaks: 1}},
	"one way":     {rails: 1, window: 16, values: []int64{2 * simPage, 2 * simPage, 2 * simPage, 100}, keys: 1, budget: budget{receives: 120, cancels: 10}},
	"breaks":      {rails: 2, window: 8, values: []int64{6 * simPage, 100, -1}, keys: 4, both: true, budget: budget{receives: 60, cancels: 20, fails: 5, breaks: 1}},
	"byes":        {rails: 1, window: 8, values: []int64{3 * simPage, 100}, keys: 4, both: true, budget: budget{receives: 60, cancels: 10, byes: 1}},
}

func TestSimulationWalk(t *testing.T) {
	for name, cfg := range walks {
		t.Run(name, func(t *testing.T) {
			for range scaled(t, 25) {
				seed := rand.Uint64()
				if violation := walk(cfg, seed); violation != "" {
					t.Fatalf("seed %#x: %s", seed, violation)
				}
			}
		})
	}
}

// TestSimulationEachRuleMatters breaks one rule at a time and checks that the search finds a
// violation.
func TestSimulationEachRuleMatters(t *testing.T) {
	for _, c := range []struct {
		name string
		cfg  simConfig
		want string // part of the violation
	}{
		{"nothing is posted after CANCELLED",
			simConfig{rails: 1, window: 4, values: []int64{3 * simPage}, budget: budget{receives: 1, cancels: 1}, broken: rules{order: true}}, "after the last of it"},
		{"an imm fits the generation of its slot",
			simConfig{rails: 1, window: 4, values: []int64{simPage}, budget: budget{receives: 2, replays: 1}, broken: rules{generation: true}}, "with pages"},
	} {
		t.Run(c.name, func(t *testing.T) {
			seen, _, violation := search(c.cfg, 20_000)
			if violation == "" || !strings.Contains(violation, c.want) {
				t.Fatalf("in %d worlds found: %q", seen, violation)
			}
			t.Logf("after %d worlds: %s", seen, violation)
		})
	}
	for _, c := range []struct {
		name   string
		broken rules
		want   string
	}{
		{"the last credits are reserved for CREDIT", rules{reserve: true}, "for ever"},
		{"CREDIT is not answered by CREDIT", rules{answer: true}, "never ends"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := simConfig{rails: 1, window: 4, values: []int64{100}, both: true, budget: budget{receives: 30}, broken: c.broken}
			for seed := range uint64(10_000) {
				if violation := walk(cfg, seed); strings.Contains(violation, c.want) {
					t.Log(violation)
					return
				} else if violation != "" {
					t.Fatal(violation)
				}
			}
			t.Error("nothing was found")
		})
	}
}

// FuzzSchedule plays the moves that the bytes choose.
func FuzzSchedule(f *testing.F) {
	f.Add(uint8(0), []byte{0, 0, 0, 1, 2, 3, 4, 5, 6})
	f.Add(uint8(2), []byte("every byte picks one of the moves that are possible"))
	f.Add(uint8(5), []byte{9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 255, 254, 253, 252, 251})
	names := slices.Sorted(maps.Keys(walks))
	f.Fuzz(func(t *testing.T, which uint8, schedule []byte) {
		cfg := walks[names[int(which)%len(names)]]
		w := newWorld(&cfg)
		for i := 0; w.broken == ""; i++ {
			moves, inner := w.moves()
			if inner == 0 {
				w.checkQuiet()
			}
			if i >= len(schedule) { // then only inner moves, until the end
				if moves = moves[:inner]; inner == 0 {
					break
				}
				if i > len(schedule)+100_000 {
					t.Fatalf("it never ends: %v", moves)
				}
				w.play(moves[i%len(moves)])
				continue
			}
			if len(moves) == 0 {
				break
			}
			w.play(moves[int(schedule[i])%len(moves)])
		}
		if w.broken != "" {
			t.Error(w.broken)
		}
	})
}
