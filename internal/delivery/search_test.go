package delivery

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// The rules of ARCHITECTURE.md section 6 are explored here over all machines of two
// processes at once: those of both sides, a channel and gRPC between them, the
// memory that is written into, and faults. Every order of events in small worlds:
// each receive ends exactly once and with the right value, nothing is written into
// memory that was given back, nothing waits or goes on for ever, nothing is kept for
// ever. TRYST_SIMULATION=n, from 2 on, adds larger ones, and looks at up to n million
// worlds of each.

// searchDuo looks at every world that cfg allows, until it has seen limit of them.
// It goes deep first, which needs little memory. violation describes what was found.
func searchDuo(t *testing.T, cfg duoConfig, limit int) (seen int, whole bool, violation string) {
	type node struct {
		w     *duo
		state [2]uint64
		moves []duoMove
	}
	known := make(map[[2]uint64]bool) // true: on the path
	var path []duoMove
	enter := func(w *duo) (n node, fresh bool) {
		s := w.state()
		if onPath, old := known[s]; old {
			if onPath { // what comes from outside is used up, so this goes on by itself
				w.fail("it never ends")
			}
			return node{w: w}, false
		}
		known[s] = true
		moves, inner := w.moves()
		if inner == 0 {
			w.checkQuiet()
		}
		return node{w, s, moves}, true
	}
	first, _ := enter(newDuo(t, &cfg))
	for stack := []node{first}; len(stack) > 0; {
		n := &stack[len(stack)-1]
		if len(n.moves) == 0 {
			known[n.state] = false
			stack = stack[:len(stack)-1]
			if len(path) > 0 {
				path = path[:len(path)-1]
			}
			continue
		}
		if len(known) >= limit {
			return len(known), false, ""
		}
		m := n.moves[0]
		n.moves = n.moves[1:]
		w := n.w.after(m)
		next, fresh := enter(w)
		if w.broken != "" {
			return len(known), false, w.broken + "\n" + duoStory(t, cfg, append(path, m))
		}
		if fresh {
			stack = append(stack, next)
			path = append(path, m)
		}
	}
	return len(known), true, ""
}

// shortest looks for a violation in few moves: at all worlds with few moves before
// any with more, until it has seen limit of them.
func shortest(t *testing.T, cfg duoConfig, limit int) (seen int, violation string) {
	type node struct {
		w    *duo
		path []duoMove
	}
	queue := []node{{w: newDuo(t, &cfg)}}
	known := map[[2]uint64]struct{}{queue[0].w.state(): {}}
	for ; len(queue) > 0 && len(known) < limit; queue = queue[1:] {
		n := queue[0]
		queue[0] = node{}
		moves, inner := n.w.moves()
		if inner == 0 {
			if n.w.checkQuiet(); n.w.broken != "" {
				return len(known), n.w.broken + "\n" + duoStory(t, cfg, n.path)
			}
		}
		for _, m := range moves {
			w := n.w.after(m)
			path := append(slices.Clip(n.path), m)
			if w.broken != "" {
				return len(known), w.broken + "\n" + duoStory(t, cfg, path)
			}
			s := w.state()
			if _, old := known[s]; !old {
				known[s] = struct{}{}
				queue = append(queue, node{w, path})
			}
		}
	}
	return len(known), ""
}

// duoStory is a path in words.
func duoStory(t *testing.T, cfg duoConfig, path []duoMove) string {
	w := newDuo(t, &cfg)
	var b strings.Builder
	for i, m := range path {
		fmt.Fprintf(&b, "  %2d. %s\n", i+1, w.story(m))
		w.play(m)
	}
	return b.String()
}

// exhaustive is more worlds than any configuration of duoSearches has.
const exhaustive = 1_000_000

const (
	duoSmall = 100
	duoLarge = 2 * duoPage
	duoSpace = 2*keptOverhead + 3*duoSmall/2 // admits a second receive, whose value then finds no space
)

var duoSearches = []struct {
	name string
	cfg  duoConfig
}{
	{"nothing goes wrong", duoConfig{sizes: []int64{duoSmall}, duoBudget: duoBudget{sends: 1, recvs: 1}}},
	{"a break, small", duoConfig{sizes: []int64{duoSmall}, duoBudget: duoBudget{sends: 1, recvs: 1, breaks: 1}}},
	{"a break, large", duoConfig{sizes: []int64{duoLarge}, duoBudget: duoBudget{sends: 1, recvs: 1, breaks: 1}}},
	{"a cancel, small", duoConfig{sizes: []int64{duoSmall}, duoBudget: duoBudget{sends: 1, recvs: 1, cancels: 1}}},
	{"a cancel, large", duoConfig{sizes: []int64{duoLarge}, duoBudget: duoBudget{sends: 1, recvs: 1, cancels: 1}}},
	{"a break and a cancel, small", duoConfig{sizes: []int64{duoSmall}, duoBudget: duoBudget{sends: 1, recvs: 1, breaks: 1, cancels: 1}}},
	{"a break and a cancel, large", duoConfig{sizes: []int64{duoLarge}, duoBudget: duoBudget{sends: 1, recvs: 1, breaks: 1, cancels: 1}}},
	{"found later, a break, large", duoConfig{slow: true, sizes: []int64{duoLarge}, duoBudget: duoBudget{sends: 1, recvs: 1, breaks: 1}}},
	{"found later, a break and a cancel", duoConfig{slow: true, sizes: []int64{duoSmall}, duoBudget: duoBudget{sends: 1, recvs: 1, breaks: 1, cancels: 1}}},
	{"found later, a break and a cut", duoConfig{slow: true, sizes: []int64{duoLarge}, duoBudget: duoBudget{sends: 1, recvs: 1, breaks: 1, cuts: 1}}},
	{"found later, a break and an abort", duoConfig{slow: true, sizes: []int64{duoLarge}, duoBudget: duoBudget{sends: 1, recvs: 1, breaks: 1, aborts: 1}}},
	{"two receives, a break", duoConfig{sizes: []int64{duoSmall}, duoBudget: duoBudget{sends: 2, recvs: 2, breaks: 1}}},
	{"two receives, large, a break", duoConfig{sizes: []int64{duoLarge}, duoBudget: duoBudget{sends: 2, recvs: 2, breaks: 1}}},
	{"another shape", duoConfig{sizes: []int64{duoLarge, duoLarge - 1}, duoBudget: duoBudget{sends: 2, recvs: 2}}},
	{"ACK rides, a break", duoConfig{riding: true, sizes: []int64{duoSmall}, duoBudget: duoBudget{sends: 2, recvs: 2, breaks: 1}}},
	{"two receives, a cancel", duoConfig{sizes: []int64{duoSmall}, duoBudget: duoBudget{sends: 1, recvs: 2, cancels: 1}}},
	{"hasty", duoConfig{hasty: true, sizes: []int64{duoLarge}, duoBudget: duoBudget{sends: 1, recvs: 1, breaks: 1, cancels: 1}}},
	{"copied, a break", duoConfig{copies: true, sizes: []int64{duoLarge}, duoBudget: duoBudget{sends: 1, recvs: 1, breaks: 1, channels: 1}}},
	{"copied, a cancel", duoConfig{copies: true, sizes: []int64{duoLarge}, duoBudget: duoBudget{sends: 1, recvs: 1, cancels: 1}}},
	{"copied, an abort", duoConfig{copies: true, sizes: []int64{duoLarge}, duoBudget: duoBudget{sends: 1, recvs: 1, aborts: 1, breaks: 1}}},
	{"copied, a break and a cancel", duoConfig{copies: true, sizes: []int64{duoLarge}, duoBudget: duoBudget{sends: 1, recvs: 1, breaks: 1, cancels: 1}}},
	{"a break and a cut", duoConfig{sizes: []int64{duoLarge}, duoBudget: duoBudget{sends: 1, recvs: 1, breaks: 1, cuts: 1}}},
	{"a break and an abort", duoConfig{sizes: []int64{duoLarge}, duoBudget: duoBudget{sends: 1, recvs: 1, breaks: 1, aborts: 1}}},
	{"a break, no memory", duoConfig{sizes: []int64{duoLarge}, duoBudget: duoBudget{sends: 1, recvs: 1, breaks: 1, full: 1}}},
	{"a restart", duoConfig{sizes: []int64{duoSmall}, duoBudget: duoBudget{sends: 1, recvs: 1, restarts: 1}}},
	{"a new channel", duoConfig{sizes: []int64{duoSmall}, duoBudget: duoBudget{sends: 1, recvs: 1, breaks: 1, channels: 1}}},
	{"a new channel, large", duoConfig{sizes: []int64{duoLarge}, duoBudget: duoBudget{sends: 1, recvs: 1, breaks: 1, channels: 1}}},
	{"a change", duoConfig{sizes: []int64{duoSmall}, duoBudget: duoBudget{sends: 1, recvs: 1, changes: 1}}},
	{"a break, a cut and an abort", duoConfig{sizes: []int64{duoSmall}, duoBudget: duoBudget{sends: 1, recvs: 1, breaks: 1, cuts: 1, aborts: 1}}},
	{"a new channel, an abort", duoConfig{sizes: []int64{duoSmall}, duoBudget: duoBudget{sends: 1, recvs: 1, breaks: 1, channels: 1, aborts: 1}}},
	{"a new channel, a cancel", duoConfig{sizes: []int64{duoSmall}, duoBudget: duoBudget{sends: 1, recvs: 1, breaks: 1, channels: 1, cancels: 1}}},
	{"a break, a cut, a cancel", duoConfig{sizes: []int64{duoSmall}, duoBudget: duoBudget{sends: 1, recvs: 1, breaks: 1, cuts: 1, cancels: 1}}},
	{"two breaks", duoConfig{sizes: []int64{duoLarge}, duoBudget: duoBudget{sends: 1, recvs: 1, breaks: 2, channels: 1}}},
	{"two cuts", duoConfig{sizes: []int64{duoSmall}, duoBudget: duoBudget{sends: 1, recvs: 1, breaks: 1, cuts: 2}}},
	{"two values, a break, a cut", duoConfig{sizes: []int64{duoSmall}, duoBudget: duoBudget{sends: 2, recvs: 1, breaks: 1, cuts: 1}}},
	{"a break and a restart", duoConfig{sizes: []int64{duoSmall}, duoBudget: duoBudget{sends: 2, recvs: 1, breaks: 1, restarts: 1}}},
	{"a request that is not sent, a cancel", duoConfig{sizes: []int64{duoSmall}, duoBudget: duoBudget{sends: 1, recvs: 1, breaks: 1, unsent: 2, cancels: 1}}},
	{"a request that is not sent, a restart", duoConfig{sizes: []int64{duoSmall}, duoBudget: duoBudget{sends: 2, recvs: 1, breaks: 1, unsent: 2, restarts: 1}}},
	{"two receives, a request that is not sent", duoConfig{sizes: []int64{duoSmall}, duoBudget: duoBudget{sends: 1, recvs: 2, breaks: 1, unsent: 1}}},
	{"a restart, a channel", duoConfig{sizes: []int64{duoSmall}, duoBudget: duoBudget{sends: 2, recvs: 1, channels: 1, restarts: 1}}},
	{"the receiver restarts", duoConfig{sizes: []int64{duoSmall}, duoBudget: duoBudget{sends: 1, recvs: 2, reborn: 1}}},
	{"the receiver restarts, large", duoConfig{sizes: []int64{duoLarge}, duoBudget: duoBudget{sends: 2, recvs: 2, reborn: 1}}},
	{"the receiver restarts, a channel", duoConfig{sizes: []int64{duoSmall}, duoBudget: duoBudget{sends: 2, recvs: 2, reborn: 1, channels: 1}}},
	{"the receiver restarts after a break", duoConfig{sizes: []int64{duoSmall}, duoBudget: duoBudget{sends: 1, recvs: 2, reborn: 1, breaks: 1}}},
	{"a forged request", duoConfig{sizes: []int64{duoSmall}, duoBudget: duoBudget{sends: 1, recvs: 1, forged: 1}}},
	{"a forged request, a cancel", duoConfig{sizes: []int64{duoSmall}, duoBudget: duoBudget{sends: 1, recvs: 1, cancels: 1, forged: 1}}},
	{"no memory, a cancel", duoConfig{sizes: []int64{duoLarge}, duoBudget: duoBudget{sends: 1, recvs: 1, breaks: 1, full: 1, cancels: 1}}},
	{"one after the other, a cancel", duoConfig{serial: true, sizes: []int64{duoSmall}, duoBudget: duoBudget{sends: 2, recvs: 2, cancels: 1}}},
	{"one after the other, a cancel, large", duoConfig{serial: true, sizes: []int64{duoLarge}, duoBudget: duoBudget{sends: 2, recvs: 2, cancels: 1}}},
	{"one after the other, found later, a cancel", duoConfig{serial: true, slow: true, sizes: []int64{duoSmall}, duoBudget: duoBudget{sends: 2, recvs: 2, cancels: 1}}},
	{"one after the other, a break and a cancel", duoConfig{serial: true, sent: true, sizes: []int64{duoSmall}, duoBudget: duoBudget{sends: 2, recvs: 2, breaks: 1, cancels: 1}}},
	{"values that take time to go back, a cancel", duoConfig{serial: true, backs: true, sizes: []int64{duoSmall}, duoBudget: duoBudget{sends: 2, recvs: 2, cancels: 1}}},
	{"values that take time to go back, a break and a cancel", duoConfig{serial: true, sent: true, backs: true, sizes: []int64{duoSmall}, duoBudget: duoBudget{sends: 2, recvs: 2, breaks: 1, cancels: 1}}},
	{"values that find no space", duoConfig{serial: true, backs: true, kept: duoSpace, sizes: []int64{duoSmall}, duoBudget: duoBudget{sends: 3, recvs: 2}}},
	{"values that find no space, a break", duoConfig{serial: true, sent: true, backs: true, kept: duoSpace, sizes: []int64{duoSmall}, duoBudget: duoBudget{sends: 3, recvs: 2, breaks: 1, channels: 1}}},
	{"a full cache", duoConfig{grpc: true, sent: true, sizes: []int64{duoSmall}, duoBudget: duoBudget{sends: 1, recvs: 1, cuts: 1, drops: 1}}},
	{"a full cache, a cancel", duoConfig{grpc: true, sent: true, sizes: []int64{duoSmall}, duoBudget: duoBudget{sends: 1, recvs: 2, cuts: 1, cancels: 1, drops: 1}}},
	{"a full cache, one after the other, a cancel", duoConfig{serial: true, grpc: true, sent: true, sizes: []int64{duoSmall}, duoBudget: duoBudget{sends: 2, recvs: 2, cuts: 1, cancels: 1, drops: 1}}},
	{"a full cache, a break", duoConfig{sent: true, sizes: []int64{duoSmall}, duoBudget: duoBudget{sends: 1, recvs: 1, breaks: 1, drops: 1}}},
	{"a full cache, a break and a cancel", duoConfig{sent: true, sizes: []int64{duoSmall}, duoBudget: duoBudget{sends: 1, recvs: 1, breaks: 1, cancels: 1, drops: 1}}},
	{"a close", duoConfig{sizes: []int64{duoSmall}, duoBudget: duoBudget{sends: 1, recvs: 1, closes: 1}}},
	{"a close, ACK rides", duoConfig{riding: true, sizes: []int64{duoSmall}, duoBudget: duoBudget{sends: 1, recvs: 1, closes: 1}}},
	{"a close and a break", duoConfig{sizes: []int64{duoSmall}, duoBudget: duoBudget{sends: 1, recvs: 1, breaks: 1, closes: 1}}},
	{"a close and a break, ACK rides", duoConfig{riding: true, sizes: []int64{duoSmall}, duoBudget: duoBudget{sends: 1, recvs: 1, breaks: 1, closes: 1}}},
	{"a close and a break, large", duoConfig{sizes: []int64{duoLarge}, duoBudget: duoBudget{sends: 1, recvs: 1, breaks: 1, closes: 1}}},
	{"a close, a break and a cut", duoConfig{sizes: []int64{duoSmall}, duoBudget: duoBudget{sends: 1, recvs: 1, breaks: 1, cuts: 1, closes: 1}}},
	{"the sender closes", duoConfig{sizes: []int64{duoSmall}, duoBudget: duoBudget{sends: 1, recvs: 1, drains: 1}}},
	{"the sender closes, a break", duoConfig{sizes: []int64{duoSmall}, duoBudget: duoBudget{sends: 1, recvs: 1, breaks: 1, drains: 1}}},
	{"the sender closes, the receiver restarts", duoConfig{sizes: []int64{duoSmall}, duoBudget: duoBudget{sends: 1, recvs: 2, reborn: 1, drains: 1}}},
	{"the sender closes, the receiver dies", duoConfig{sizes: []int64{duoSmall}, duoBudget: duoBudget{sends: 1, recvs: 1, dies: 1, drains: 1}}},
	{"the sender closes, a break, the receiver dies", duoConfig{sizes: []int64{duoSmall}, duoBudget: duoBudget{sends: 1, recvs: 1, breaks: 1, dies: 1, drains: 1}}},
	{"both ways", duoConfig{both: true, sizes: []int64{duoSmall}, duoBudget: duoBudget{sends: 2, recvs: 2}}},
	{"both ways, a break", duoConfig{both: true, sizes: []int64{duoSmall}, duoBudget: duoBudget{sends: 2, recvs: 2, breaks: 1}}},
}

// duoLarger are for those who have minutes.
var duoLarger = []struct {
	name string
	cfg  duoConfig
}{
	{"a change, large", duoConfig{sizes: []int64{duoLarge}, duoBudget: duoBudget{sends: 1, recvs: 1, changes: 1}}},
	{"a change, a cancel", duoConfig{sizes: []int64{duoSmall}, duoBudget: duoBudget{sends: 1, recvs: 1, changes: 1, cancels: 1}}},
	{"a change, a break", duoConfig{sizes: []int64{duoSmall}, duoBudget: duoBudget{sends: 1, recvs: 1, changes: 1, breaks: 1}}},
	{"small and large, a break", duoConfig{sizes: []int64{duoSmall, duoLarge}, keys: 2, duoBudget: duoBudget{sends: 2, recvs: 2, breaks: 1}}},
	{"both ways, large, a break", duoConfig{both: true, sizes: []int64{duoLarge}, duoBudget: duoBudget{sends: 2, recvs: 2, breaks: 1}}},
	{"two receives, a break and a cancel", duoConfig{sizes: []int64{duoSmall}, duoBudget: duoBudget{sends: 1, recvs: 2, breaks: 1, cancels: 1}}},
	{"another shape, a break", duoConfig{sizes: []int64{duoLarge, duoLarge - 1}, duoBudget: duoBudget{sends: 2, recvs: 2, breaks: 1}}},
	{"another shape, a cancel", duoConfig{sizes: []int64{duoLarge, duoLarge - 1}, duoBudget: duoBudget{sends: 2, recvs: 2, cancels: 1}}},
	{"two receives, large, a break and a cancel", duoConfig{sizes: []int64{duoLarge}, duoBudget: duoBudget{sends: 2, recvs: 2, breaks: 1, cancels: 1}}},
	{"a new channel, large, a cancel and a cut", duoConfig{sizes: []int64{duoLarge}, duoBudget: duoBudget{sends: 1, recvs: 1, breaks: 1, channels: 1, cancels: 1, cuts: 1}}},
	{"one after the other, a break, a cancel and a send", duoConfig{serial: true, sizes: []int64{duoSmall}, duoBudget: duoBudget{sends: 2, recvs: 2, breaks: 1, cancels: 1}}},
	{"a full cache, one after the other, a break and a cancel", duoConfig{serial: true, sent: true, sizes: []int64{duoSmall}, duoBudget: duoBudget{sends: 1, recvs: 2, breaks: 1, cancels: 1, drops: 1}}},
	{"two receives, two breaks", duoConfig{sizes: []int64{duoSmall}, duoBudget: duoBudget{sends: 2, recvs: 2, breaks: 2, channels: 1}}},
}

func TestSearch(t *testing.T) {
	limit, larger := searchLimit, duoLarger[:0]
	if n := effort(t); n > 1 {
		limit, larger = n*exhaustive, duoLarger
	}
	if testing.Short() {
		limit = min(limit, exhaustive/200)
	}
	for _, s := range slices.Concat(duoSearches, larger) {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			seen, whole, violation := searchDuo(t, s.cfg, limit)
			if violation != "" {
				t.Error(violation)
			}
			if !whole && limit == exhaustive {
				t.Errorf("there are more than %d worlds", seen)
			}
			t.Logf("%d worlds, all of them: %v, %v", seen, whole, time.Since(began).Round(time.Millisecond))
		})
	}
}

// searchWithout switches rules off: the search finds want, and nothing with cfg as
// it is, in some worlds. TestSearch looks at all.
func searchWithout(t *testing.T, name, want string, cfg duoConfig, off duoRules) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		if seen, _, violation := searchDuo(t, cfg, min(searchLimit, exhaustive/200)); violation != "" {
			t.Fatalf("with the rule, in %d worlds: %s", seen, violation)
		}
		began := time.Now()
		cfg.rules = off
		seen, violation := shortest(t, cfg, 100_000)
		if !strings.Contains(violation, want) || violation == "" {
			t.Fatalf("in %d worlds found %q, want %q", seen, violation, want)
		}
		t.Logf("after %d worlds, %v: %s", seen, time.Since(began).Round(time.Millisecond), violation)
	})
}

// An id names a receive in all its attempts and over all transports, of one process to one
// process; only the newest attempt is answered.
func TestSearchWithoutRuleA(t *testing.T) {
	broken := duoConfig{sizes: []int64{duoSmall}, duoBudget: duoBudget{sends: 1, recvs: 1, breaks: 1}}
	searchWithout(t, "an id names a receive in all its attempts", "value 1: 0 times delivered, 0 times in the table", broken, duoRules{newID: true})
	searchWithout(t, "one table for all transports", "value 1: 0 times delivered, 0 times in the table", broken, duoRules{ownTable: true})
	restarted := duoConfig{sizes: []int64{duoSmall}, duoBudget: duoBudget{sends: 1, recvs: 1, restarts: 1}}
	searchWithout(t, "another process does not answer", "which process 2 took, ends with value 1 of key 0 of process 12", restarted, duoRules{anyProcess: true})
	reborn := duoConfig{sizes: []int64{duoSmall}, duoBudget: duoBudget{sends: 1, recvs: 2, breaks: 1, reborn: 1}}
	// A call to the requester's address has the same effect while it is connected.
	searchWithout(t, "requests of a requester's earlier process are refused", "receive 2 of A ends with Aborted: another process has taken the place of", reborn, duoRules{forgetIDs: true, unverified: true})
	forged := duoConfig{sizes: []int64{duoSmall}, duoBudget: duoBudget{sends: 1, recvs: 1, forged: 1}}
	searchWithout(t, "a connected requester is displaced only by the process at its address", "another process has taken the place of", forged, duoRules{unverified: true})
	cut := duoConfig{sizes: []int64{duoSmall}, duoBudget: duoBudget{sends: 1, recvs: 1, breaks: 1, cuts: 1}}
	searchWithout(t, "only the newest attempt is answered", "gets no response any more", cut, duoRules{anyAttempt: true})
}

// A receive ends with a process exactly if one of its requests may have reached that one.
func TestSearchWithoutReached(t *testing.T) {
	restarted := duoConfig{sizes: []int64{duoSmall}, duoBudget: duoBudget{sends: 2, recvs: 1, breaks: 1, unsent: 1, restarts: 1}}
	searchWithout(t, "a request that was not sent has reached no process", "may have reached a process: false, ends with Aborted", restarted, duoRules{unsentLost: true})
	searchWithout(t, "a request that was lost may have reached a process", "which process 2 took, ends with value", restarted, duoRules{lostUnsent: true})
}

// The sender of a value learns exactly one outcome, and that it was received only after the
// receive has ended with it.
func TestSearchWithoutConfirmation(t *testing.T) {
	cancelled := duoConfig{sizes: []int64{duoSmall}, duoBudget: duoBudget{sends: 1, recvs: 1, cancels: 1}}
	searchWithout(t, "a value is confirmed by its acknowledgement", "the sender of value 1 learns that it was received, and it was not", cancelled, duoRules{sentReply: true})
}

// Memory is given back, and receives asked again, when the queue pairs have been
// destroyed.
func TestSearchWithoutRuleB(t *testing.T) {
	broken := duoConfig{sizes: []int64{duoLarge}, duoBudget: duoBudget{sends: 1, recvs: 1, breaks: 1}}
	searchWithout(t, "at once", "value 1 is written into destination 1 of A, which was given back", broken, duoRules{giveBack: true})
}

// A request of a closed channel keeps its value. The channel that is named is closed
// before the request is looked at: this is what holds when the memory of rules a and
// d is not enough, which lasts for ten minutes and a million ids.
func TestSearchWithoutRuleC(t *testing.T) {
	broken := duoConfig{sizes: []int64{duoSmall}, duoBudget: duoBudget{sends: 1, recvs: 1, breaks: 1}}
	searchWithout(t, "what has a value keeps it", "value 1: 0 times delivered, 0 times in the table", broken, duoRules{dropValue: true})
	two := duoConfig{sizes: []int64{duoSmall}, duoBudget: duoBudget{sends: 2, recvs: 1, breaks: 1}, rules: duoRules{forgetIDs: true}}
	searchWithout(t, "the channel that is named is closed", "value 2: 0 times delivered, 0 times in the table", two, duoRules{forgetIDs: true, stayOpen: true})
	again := two
	again.channels = 1
	searchWithout(t, "also when a channel names it", "value 2: 0 times delivered, 0 times in the table", again, duoRules{forgetIDs: true, callsOnly: true})
}

// A better channel replaces the present one: requests that wait move there with the next attempt.
func TestSearchWithoutChange(t *testing.T) {
	change := duoConfig{sizes: []int64{duoSmall}, duoBudget: duoBudget{sends: 1, recvs: 1, changes: 1}}
	searchWithout(t, "a request that moves is not cancelled", "receive 1 of A", change, duoRules{moveCancel: true})
	searchWithout(t, "it is sent again", "receive 1 of A ends with Unavailable", change, duoRules{moveEnds: true})
	broken := change
	broken.breaks = 1
	searchWithout(t, "a channel in use is not named as left", "it has left this channel", broken, duoRules{leftAll: true})
}

// ACK and CANCEL are sent until the peer has confirmed them, and ids of receives that have ended
// are remembered.
func TestSearchWithoutRuleD(t *testing.T) {
	broken := duoConfig{sizes: []int64{duoSmall}, duoBudget: duoBudget{sends: 1, recvs: 1, breaks: 1}}
	searchWithout(t, "ACK is sent again", "B keeps an answer to receive 1 for ever", broken, duoRules{finishOnce: true})
	cancelled := duoConfig{sizes: []int64{duoSmall}, duoBudget: duoBudget{sends: 1, recvs: 1, breaks: 1, cancels: 1}}
	searchWithout(t, "CANCEL is sent again", "value 1: 0 times delivered, 0 times in the table", cancelled, duoRules{cancelOnce: true})
	inOrder := duoConfig{serial: true, sizes: []int64{duoSmall}, duoBudget: duoBudget{sends: 2, recvs: 2, cancels: 1}}
	searchWithout(t, "CANCEL takes effect before a later request", "receive 2 gets value 2 before value 1", inOrder, duoRules{cancelLate: true})
	early := "receive 2 gets value 2 before value 1"
	inOrder.backs = true
	searchWithout(t, "a request waits for values that go back", early, inOrder, duoRules{matchEarly: true})
	noSpace := duoConfig{serial: true, backs: true, kept: duoSpace, sizes: []int64{duoSmall}, duoBudget: duoBudget{sends: 3, recvs: 2}}
	searchWithout(t, "also for one that found no space", "receive 2 gets value 3 before value 2", noSpace, duoRules{matchEarly: true})
	searchWithout(t, "ids that have ended are remembered", "value 1: 0 times delivered, 0 times in the table", cancelled, duoRules{forgetIDs: true})
}

// A response is kept until ACK.
func TestSearchWithoutRuleE(t *testing.T) {
	broken := duoConfig{sizes: []int64{duoSmall}, duoBudget: duoBudget{sends: 1, recvs: 1, breaks: 1}}
	reborn := duoConfig{sizes: []int64{duoSmall}, duoBudget: duoBudget{sends: 1, recvs: 1, reborn: 1}}
	searchWithout(t, "but not for a process that is gone", "B has something of receive 1 for ever, whose process is no more", reborn, duoRules{keepAll: true})
	full := duoConfig{grpc: true, sent: true, sizes: []int64{duoSmall}, duoBudget: duoBudget{sends: 1, recvs: 2, cancels: 1, drops: 1}}
	untold := "waits, and value 1 before it was dropped without a report"
	searchWithout(t, "what is dropped is reported to a receive that waits", untold, full, duoRules{tellLater: true})
	serial := full
	serial.serial = true
	searchWithout(t, "what is dropped is reported to a receive that comes", untold, serial, duoRules{tellNobody: true})
	serial.sends = 2
	searchWithout(t, "and before it has a later value", "receive 2 gets value 2 before value 1", serial, duoRules{tellNobody: true})
	searchWithout(t, "released when it is given to a connection", "value 1: 0 times delivered, 0 times in the table", broken, duoRules{keepNone: true})
}

// A close loses nothing, and ends.
func TestSearchWithoutClose(t *testing.T) {
	broken := duoConfig{sizes: []int64{duoSmall}, duoBudget: duoBudget{sends: 1, recvs: 1, breaks: 1, closes: 1}}
	searchWithout(t, "it waits until an acknowledgement was sent again", "A has closed, and B keeps an answer to receive 1", broken, duoRules{quietAcks: true})
	dead := duoConfig{sizes: []int64{duoSmall}, duoBudget: duoBudget{sends: 1, recvs: 1, dies: 1, drains: 1}}
	searchWithout(t, "it does not wait for a requester that is not reached", "the close of B waits for ever", dead, duoRules{drainDead: true})
	reborn := duoConfig{sizes: []int64{duoSmall}, duoBudget: duoBudget{sends: 1, recvs: 1, reborn: 1, drains: 1}}
	searchWithout(t, "nor for one whose place another process has", "the close of B waits for ever", reborn, duoRules{drainOld: true})
}
