package collective

import (
	"maps"
	"slices"
	"time"

	"github.com/tryst-rdma/tryst/status"
)

// waits decides when a member that waits for others in one operation gives up, as a pure state
// machine. Its methods are the events; time is passed in. A receive from a member ends with that
// member's error. A member that only gives data would learn nothing from those that do not take it, so
// it watches them:
//
//	           await                   a look            ended, while it has to take something
//	not awaited ───► awaited, unwatched ─────► watched ──────────────────────► the operation fails
//	     ▲              │                         │
//	     └───── done ───┴────────── done ─────────┘
//
// A watch is a receive of a buffer that nobody provides: it ends when the watched member's operation
// fails, when its group is closed, or when its process has gone. A process that is stopped says nothing.
// So each member that is waited for is also called (actCheck), and the operation fails when it has given
// no sign for patience. A process that computes answers the call: it is waited for.
//
// The leader of the groups has the rank leaderRank: it is called, and not watched.
type waits struct {
	patience time.Duration // how long a member may give no sign
	peers    map[int]*awaited
	off      waitRules // for the search
}

// leaderRank stands for the leader of the groups.
const leaderRank = -1

// awaited is a member that was waited for.
type awaited struct {
	gives    int       // buffers that it has to take
	receives int       // buffers that it has to provide
	since    time.Time // when one of them became more than 0
	heard    time.Time // its last sign; when the wait began if that is later
	watched  bool
	checking bool  // a call is under way
	silence  error // what the last call ended with
	gone     error // what its watch ended with
}

// waitRules switches rules off.
type waitRules struct {
	watch   bool // a member that has to take something is watched
	check   bool // a member that is waited for is called
	sign    bool // an answer is a sign of the member
	restart bool // the answer of another process is none
	open    bool // a watch that ends counts while the member has to take something
	memory  bool // and for what it has to take later
}

// need is what depends on a member.
type need uint8

const (
	toTake    need = iota // a buffer that it has to take, or anything else that ends without an error of it
	toProvide             // a buffer that it has to provide; the receive ends with an error of it
)

func (p *awaited) open() bool { return p.gives+p.receives > 0 }

func (p *awaited) count(what need, n int) {
	if what == toTake {
		p.gives += n
	} else {
		p.receives += n
	}
}

// waitAction is one thing for the shell to do for a member.
type waitAction struct {
	kind waitActionKind
	rank int
	by   time.Time // actCheck: when the call ends
	err  error     // actFail
}

type waitActionKind uint8

const (
	actWatch waitActionKind = iota // watch the member; report by ended or unwatched
	actCheck                       // call its process; report by checked
	actFail                        // the operation fails with err
)

func newWaits(patience time.Duration) waits {
	return waits{patience: patience, peers: make(map[int]*awaited)}
}

// every is how long a wait lasts before it watches its member, and the time between two calls.
func (w *waits) every() time.Duration { return w.patience / looks }

// await is the event that one more thing depends on a member. The error is that of a member that has
// ended already; the wait then does not begin.
func (w *waits) await(now time.Time, rank int, what need) error {
	p := w.peers[rank]
	if p == nil {
		p = new(awaited)
		w.peers[rank] = p
	}
	if p.gone != nil && what == toTake && !w.off.memory {
		return p.gone
	}
	if !p.open() {
		p.since, p.heard = now, now
	}
	p.count(what, 1)
	return nil
}

// done is the event that one thing does not depend on the member any more.
func (w *waits) done(rank int, what need) { w.peers[rank].count(what, -1) }

// next returns when tick is due; false while no member is waited for.
func (w *waits) next(now time.Time) (at time.Time, ok bool) {
	for _, p := range w.peers {
		if !p.open() {
			continue
		}
		if at, ok = now.Add(w.every()), true; p.heard.Add(w.patience).Before(at) && !w.off.check {
			return p.heard.Add(w.patience), true
		}
	}
	return at, ok
}

// tick is the event that the time of next has come.
func (w *waits) tick(now time.Time) (acts []waitAction) {
	for _, rank := range slices.Sorted(maps.Keys(w.peers)) {
		p := w.peers[rank]
		if !p.open() || now.Sub(p.since) < w.every() {
			continue
		}
		if p.gives > 0 && !p.watched && rank != leaderRank && !w.off.watch {
			p.watched = true
			acts = append(acts, waitAction{kind: actWatch, rank: rank})
		}
		switch silent := now.Sub(p.heard); {
		case w.off.check:
		case silent >= w.patience:
			acts = append(acts, waitAction{kind: actFail, rank: rank, err: p.silentFor(w.patience)})
		case !p.checking && silent >= w.every():
			p.checking = true
			acts = append(acts, waitAction{kind: actCheck, rank: rank, by: p.heard.Add(w.patience)})
		}
	}
	return acts
}

// silentFor is the error of a member that gives no sign.
func (p *awaited) silentFor(d time.Duration) error {
	if p.silence != nil {
		return status.Errorf(status.Unavailable, "not reached for %v: %s", d, status.From(p.silence).Message())
	}
	return status.Errorf(status.Unavailable, "its process did not answer a call for %v, although its host may: it is stopped, or the network is cut", d)
}

// ended is the event that the watch of a member has ended with err. The operation fails with the error
// that it returns. A member that has taken all may leave: what it has provided still arrives.
func (w *waits) ended(rank int, err error) error {
	p := w.peers[rank]
	p.gone = err
	if p.gives == 0 && !w.off.open {
		return nil
	}
	return err
}

// unwatched is the event that a member could not be watched. The next tick tries again.
func (w *waits) unwatched(rank int) { w.peers[rank].watched = false }

// checked is the event that a call has ended. With FailedPrecondition another process has answered:
// the operation fails with the error that checked returns.
func (w *waits) checked(now time.Time, rank int, err error) error {
	p := w.peers[rank]
	if p.checking, p.silence = false, err; status.CodeOf(err) == status.DeadlineExceeded {
		p.silence = nil // no answer, and no reason
	}
	another := status.CodeOf(err) == status.FailedPrecondition
	switch {
	case err == nil && !w.off.sign, another && w.off.restart:
		p.heard = now
	case another:
		if p.gone = err; p.gives > 0 {
			return err
		}
	}
	return nil
}
