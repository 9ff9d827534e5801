//go:build linux

package shm

import (
	"testing"
)

// The model of sleeping and waking: run.go (sleep) and connection.go (mustWakeLocked, wake) as steps, each
// of which is one access to shared memory or to the socket. Go's atomics are sequentially
// consistent, so every execution is an interleaving of them.
//
//	sleeper                                poster
//	  step: seen = posted                    posted++
//	  asleep = next odd number               n = asleep
//	  look: posted == seen?                  n odd and not rung: rung = n, a byte to the socket
//	  read the socket: waits for a byte
//	  asleep = next even number
//
// A goroutine that polls (bell.go) takes what was posted in place of the sleeper. While it does, asleep is
// even. When it stops, asleep becomes odd if the sleeper sleeps, and it looks once more.
//
// A third goroutine, which polls or closes a region, may read the byte in place of the sleeper (run.go,
// drain). It nudges the sleeper then: the sleeper sees that when it looks, and it ends the read.
//
// wakeState is a state of the model.
type wakeState struct {
	posted, asleep, rung, bytes int
	// sleeper
	at, seen int
	nudged   bool
	sleeps   bool
	// poller
	pollerAt int
	polls    bool
	// poster
	posterAt, loaded, posts int
}

// wakeRules are the rules of the model that a test switches off.
type wakeRules struct {
	noLook     bool // the sleeper does not look again
	readsFirst bool // the poster reads asleep before it publishes
	sleepsLate bool // the sleeper says that it sleeps after it looked
	ringsOnce  bool // the poster rings only for the first sleep
	noNudge    bool // another goroutine that reads the socket keeps that to itself
	noLastPoll bool // the poller does not look again when it has stopped
	staysEven  bool // the poller does not say that it has stopped
}

const (
	sleeperStep = iota
	sleeperSays
	sleeperLooks
	sleeperReads
	sleeperWakes
)

const wakePosts = 3

// next returns the states after one step of either side.
func (r wakeRules) next(s wakeState) (list []wakeState) {
	if x, ok := r.sleeper(s); ok {
		list = append(list, x)
	}
	if x, ok := r.poster(s); ok {
		list = append(list, x)
	}
	if x, ok := r.poller(s); ok {
		list = append(list, x)
	}
	if s.bytes > 0 {
		s.bytes--
		s.nudged = s.nudged || !r.noNudge
		list = append(list, s)
	}
	return list
}

// rings makes asleep say what is true.
func (s *wakeState) rings() {
	if (s.sleeps && !s.polls) != (s.asleep%2 == 1) {
		s.asleep++
	}
}

// poller is a goroutine that polls once, with a look before it stops and one after.
func (r wakeRules) poller(s wakeState) (wakeState, bool) {
	switch s.pollerAt {
	case 0:
		s.polls = true
		s.rings()
	case 2:
		if s.polls = false; !r.staysEven {
			s.rings()
		}
	case 1, 3:
		if s.pollerAt == 1 || !r.noLastPoll {
			s.seen = s.posted
		}
	default:
		return s, false
	}
	s.pollerAt++
	return s, true
}

func (r wakeRules) sleeper(s wakeState) (wakeState, bool) {
	says, looks := sleeperSays, sleeperLooks
	if r.sleepsLate {
		says, looks = looks, says
	}
	switch s.at {
	case sleeperStep:
		if s.seen == wakePosts {
			return s, false // it has seen everything
		}
		s.nudged = false
		if s.seen = s.posted; s.seen < wakePosts {
			s.at = sleeperSays
		}
	case says:
		s.sleeps = true
		s.rings()
		s.at++
	case looks:
		s.at++
		if (s.posted != s.seen || s.nudged) && !r.noLook {
			s.at = sleeperWakes
			if !s.sleeps { // with sleepsLate it has said nothing yet
				s.at = sleeperStep
			}
		}
	case sleeperReads:
		if s.bytes == 0 && !s.nudged {
			return s, false
		}
		s.bytes = max(0, s.bytes-1)
		s.at = sleeperWakes
	case sleeperWakes:
		s.sleeps = false
		s.rings()
		s.at = sleeperStep
	}
	return s, true
}

func (r wakeRules) poster(s wakeState) (wakeState, bool) {
	publish, load := 0, 1
	if r.readsFirst {
		publish, load = load, publish
	}
	switch s.posterAt {
	case publish:
		if s.posts == wakePosts {
			return s, false
		}
		s.posted++
		s.posterAt++
	case load:
		if s.posts == wakePosts {
			return s, false
		}
		s.loaded = s.asleep
		s.posterAt++
	case 2:
		if s.loaded%2 == 1 && s.loaded != s.rung && (!r.ringsOnce || s.rung == 0) {
			s.rung = s.loaded
			s.bytes++
		}
		s.loaded, s.posterAt = 0, 0
		s.posts++
	}
	return s, true
}

// sleepsForever searches all interleavings for one in which the sleeper does not see everything.
func (r wakeRules) sleepsForever() (found bool, states int) {
	seen := map[wakeState]bool{{}: true}
	for list := []wakeState{{}}; len(list) > 0; {
		s := list[len(list)-1]
		list = list[:len(list)-1]
		after := r.next(s)
		if len(after) == 0 && s.seen < wakePosts {
			found = true
		}
		for _, x := range after {
			if !seen[x] {
				seen[x] = true
				list = append(list, x)
			}
		}
	}
	return found, len(seen)
}

// TestNoWakeUpIsLostInAnyInterleaving: each rule is needed.
func TestNoWakeUpIsLostInAnyInterleaving(t *testing.T) {
	if found, states := (wakeRules{}).sleepsForever(); found || states < 100 {
		t.Errorf("a wake-up is lost: %v, in %d states", found, states)
	}
	for name, r := range map[string]wakeRules{
		"no second look":                         {noLook: true},
		"asleep read too early":                  {readsFirst: true},
		"asleep stored too late":                 {sleepsLate: true},
		"rung for the first sleep":               {ringsOnce: true},
		"a byte read in secret":                  {noNudge: true},
		"no poll after the last":                 {noLastPoll: true},
		"a poller that still says that it polls": {staysEven: true},
	} {
		if found, _ := r.sleepsForever(); !found {
			t.Errorf("%s: no wake-up is lost without the rule", name)
		}
	}
}
