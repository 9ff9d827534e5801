package handshake

import (
	"fmt"
	"slices"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/status"
)

// Config configures a Machine.
type Config struct {
	// Self is what all offers of this side have in common: Task, Incarnation,
	// Version, Link, GIDType, and of each rail GID, LID, MTU and UDP. With it the
	// machine checks whether the two sides are compatible before it makes any queue
	// pair.
	Self Offer
	// Peer is the task at the other end.
	Peer cluster.Task
	// Callable says that the peer has an address. A peer without one is never called,
	// and its identity claim is accepted while no channel is open.
	Callable bool
	// Backoff is the wait after the first failure; it doubles, up to MaxBackoff
	// and to 2^(maxDoublings-1) times as much. MinBackoff when 0.
	Backoff time.Duration
	// Lane and Lanes divide the generations of a peer among the machines of its routes, so that
	// two of them never choose the same one: this machine chooses those that have the remainder
	// Lane modulo Lanes. 0 Lanes: any. A generation that the peer shows may have any remainder.
	Lane, Lanes uint64
	// Jitter returns numbers from 0 to 1, which spread the calls to many peers;
	// nil for none.
	Jitter func() float64
}

// State summarises how far the handshake with the peer has come.
type State uint8

// The states, in their order.
const (
	Down       State = iota // no offer exists
	InProgress              // an offer exists, the channel is not open yet
	Up                      // the channel is open
)

func (s State) String() string {
	return [...]string{"down", "handshake", "up"}[min(s, Up)]
}

// phase is the internal state. The package comment draws the transitions.
type phase uint8

const (
	idle phase = iota
	making
	offered
	connecting
	connected
	open
	stopped
)

// Machine is the handshake with one peer. Its methods take events, with the
// present time, and return actions. They are not safe for concurrent use. The
// caller owns the returned slice.
type Machine struct {
	cfg Config
	out []Action // of the event in progress

	// The present offer, and the channel made of it.
	phase         phase
	id            uint64    // of the present offer, or of the one being made
	gen           uint64    // its generation
	stale         bool      // the offer being made is to be destroyed at once
	own           Offer     // set from offered on
	peer          Offer     // set from connecting on
	answered      bool      // the peer has seen own: it responded to a call with it, or sent HELLO
	helloReceived bool      // the first message of the channel has arrived
	deadline      time.Time // for an offer to be connected, or for the peer's HELLO; zero for none
	upSince       time.Time // when the HELLO arrived
	reason        error     // why there is no channel
	ended         bool      // Stop was called: stopped is final

	// Generations. They start again with each process of the peer.
	base      uint64           // the id of an offer is base + its generation
	last      uint64           // highest generation so far with the accepted process
	lastToAny uint64           // highest generation shown while no process was accepted
	maxStep   uint64           // MaxStep
	floors    [maxFloors]floor // what the other routes have reached; the latest is the last element
	peerAhead bool             // the peer has responded with a higher generation since the last HELLO
	earlier   []earlierProcess // accepted before; the latest is the last element

	// The process that is accepted as the peer.
	accepted     uint64    // its incarnation; 0 for none
	verify       bool      // another incarnation sent a request: call the peer's address to find out
	met          bool      // verify, since another route has met another process
	checking     bool      // the present call verifies the peer
	failedChecks int       // calls in a row that did not verify it, while a channel was open
	lastVerify   time.Time // when such a call began

	// Calls to the peer.
	maintain         bool      // keep a channel up
	rested           bool      // Rest was called after the last Maintain
	call             uint64    // the call under way; 0 for none
	calls            uint64    // number of calls so far
	callAfterConnect bool      // the call under way began after the offers were connected
	callEnds         time.Time // when the call counts as failed
	nextCall         time.Time // no call to make a channel before
	failures         int       // in a row
	failed           uint64    // how often there was a failure

	pending []request // requests of the peer that wait until an offer is made or connected
}

// earlierProcess is a process that was accepted as the peer, and the highest generation
// with it. It is kept since the process may return: a client may have been replaced by
// another one with the same name.
type earlierProcess struct{ incarnation, last uint64 }

// floor is the highest generation of the other routes to a process of the peer; to any process if
// of is 0.
type floor struct{ of, generation uint64 }

// request is a call of the peer that has no response yet.
type request struct {
	id    uint64
	offer Offer
}

// New returns a machine that responds to requests and calls nobody until Maintain.
func New(c Config) *Machine {
	if c.Jitter == nil {
		c.Jitter = func() float64 { return 0 }
	}
	if c.Backoff == 0 {
		c.Backoff = MinBackoff
	}
	return &Machine{cfg: c, maxStep: MaxStep}
}

// State returns the state and, unless it is Up, the last error; nil if there was none.
func (m *Machine) State() (State, error) {
	switch m.phase {
	case idle, stopped:
		return Down, m.reason
	case open:
		return Up, nil
	}
	return InProgress, m.reason
}

// Generation is the generation of the present offer or channel, 0 when there is none.
func (m *Machine) Generation() uint64 {
	if m.phase == idle || m.phase == stopped {
		return 0
	}
	return m.gen
}

// Has reports whether an offer is the present one: no event has ended it.
func (m *Machine) Has(id uint64) bool { return m.id == id && m.phase >= offered && m.phase <= open }

// Last is the highest generation between this process and the given process of the
// peer, over all routes. ok is false when that process is not the accepted one.
func (m *Machine) Last(incarnation uint64) (generation uint64, ok bool) {
	return m.highest(), incarnation != 0 && incarnation == m.accepted
}

// Accepted is the incarnation of the process that is accepted as the peer; 0 for none.
func (m *Machine) Accepted() uint64 { return m.accepted }

// Failures is how often a channel could not be made, and why the last time. It does not count the
// breaks of channels on which HELLO had arrived.
func (m *Machine) Failures() (count uint64, last error) { return m.failed, m.reason }

// Peer is the offer of the peer that this side's offer is connected to. Its Generation
// is 0 when there is none.
func (m *Machine) Peer() Offer { return m.peer }

// Wake is the latest time for the next Tick; zero for never. It may change with
// each event.
func (m *Machine) Wake() time.Time {
	var wake time.Time
	at := func(t time.Time) {
		if !t.IsZero() && (wake.IsZero() || t.Before(wake)) {
			wake = t
		}
	}
	at(m.deadline)
	if m.call != 0 {
		at(m.callEnds)
	} else if m.cfg.Callable {
		if m.maintain && (m.phase == idle || m.phase == offered) {
			at(m.nextCall)
		}
		if m.verify && m.phase != making && m.phase != connecting && m.phase != stopped {
			at(m.verifyAt())
		}
	}
	return wake
}

// Maintain is the event that a channel is wanted, from now on and again after each break.
func (m *Machine) Maintain(now time.Time) []Action {
	if !m.ended && !m.maintain {
		m.maintain = true
		if !m.rested || m.nextCall.Before(now) { // a route that comes and goes keeps its back-off
			m.nextCall = now
		}
		m.rested = false
	}
	return m.done(now)
}

// Rest is the event that no channel is wanted any more, until Maintain. A channel stays until it
// ends; an offer that is not connected ends because of why. Requests are answered as ever.
func (m *Machine) Rest(now time.Time, why error) []Action {
	if m.ended {
		return nil
	}
	m.maintain, m.rested = false, true
	switch m.phase {
	case making:
		m.stale = m.stale || len(m.pending) == 0 // a request takes the offer
	case offered:
		m.drop(why)
	}
	return m.done(now)
}

// Leave is Rest, and ends a channel as well because of why, with a BYE.
func (m *Machine) Leave(now time.Time, why error) []Action {
	if m.phase > offered && m.phase <= open {
		m.drop(why)
	}
	return m.Rest(now, why)
}

// Reached is the event that another route to a process of the peer has reached a generation. New
// offers of this machine are above it, and one at or below it that the peer shows first counts as
// a lower one than the present. The caller reports each generation that another machine makes to
// this one before any other event, and what Last of another machine is when this one is new.
func (m *Machine) Reached(incarnation, generation uint64) {
	all := m.floors[:]
	at := slices.IndexFunc(all, func(f floor) bool { return f.of == incarnation && f.generation > 0 })
	if at < 0 {
		at = 0
		if all[0].of == m.accepted {
			at = 1
		}
		all[at] = floor{of: incarnation}
	}
	f := all[at]
	f.generation = max(f.generation, generation)
	copy(all[at:], all[at+1:])
	all[len(all)-1] = f
}

// highest is the highest generation with the accepted process, over all routes.
func (m *Machine) highest() uint64 {
	g := m.last
	for _, f := range m.floors {
		if m.accepted == 0 || f.of == m.accepted || f.of == 0 { // any process of the peer may have seen those of 0
			g = max(g, f.generation)
		}
	}
	return g
}

// next is the generation of a new offer.
func (m *Machine) next() uint64 {
	g := m.highest() + 1
	if n := m.cfg.Lanes; n > 1 {
		g += (m.cfg.Lane + n - g%n) % n
	}
	return g
}

// above is the generation of a new offer after the peer has shown one: the same, if it is above
// all earlier ones.
func (m *Machine) above(shown uint64) uint64 {
	if shown > m.highest() {
		return shown
	}
	return m.next()
}

// Expedite is the event that a receive waits and has no other connection. It limits the
// wait before the next call to the shortest backoff.
func (m *Machine) Expedite(now time.Time) []Action {
	if soon := now.Add(m.cfg.Backoff); m.maintain && m.nextCall.After(soon) {
		m.nextCall = soon
	}
	return m.done(now)
}

// Tick is the event that time has passed.
func (m *Machine) Tick(now time.Time) []Action {
	if m.phase == stopped {
		return nil
	}
	if m.call != 0 && !now.Before(m.callEnds) {
		m.call = 0
		m.called(now, status.Errorf(status.DeadlineExceeded, "%w", &UnreachedError{fmt.Errorf("%v did not answer the bootstrap call within %v", m.cfg.Peer, CallTimeout)}))
	}
	if !m.deadline.IsZero() && !now.Before(m.deadline) {
		if m.phase == offered {
			m.drop(status.Errorf(status.DeadlineExceeded, "%v did not connect to the offer within %v", m.cfg.Peer, OfferLife))
		} else {
			err := status.Errorf(status.DeadlineExceeded, "no message from %v arrived on the channel within %v: %w", m.peer, HelloWait, silence(m.cfg.Self))
			m.drop(err)
			m.fail(now, err)
		}
	}
	return m.done(now)
}

// Stop is the event that this process ends and makes no channels any more. It destroys what
// exists, and the peer gets the reason.
func (m *Machine) Stop(now time.Time) []Action { return m.End(now, Stopping(m.cfg.Self.Task)) }

// End is Stop for the channels with this peer alone, because of why.
func (m *Machine) End(now time.Time, why error) []Action {
	m.halt(why)
	m.ended = true
	return m.done(now)
}

// Suspend is the event that this process has no device for now. It destroys what exists,
// and requests are refused with the reason until Resume.
func (m *Machine) Suspend(now time.Time, why error) []Action {
	if !m.ended {
		m.halt(status.Errorf(status.Unavailable, "%s: %w", withoutDevice(m.cfg.Self.Task), why))
	}
	return m.done(now)
}

// Resume is the event that this process has a device again; offers have what self has
// (Config.Self) from now on. If the machine was to maintain a channel, it calls at once.
func (m *Machine) Resume(now time.Time, self Offer) []Action {
	if m.ended {
		return nil
	}
	m.cfg.Self = self
	if m.phase == stopped {
		m.phase, m.reason, m.failures, m.nextCall = idle, nil, 0, now
	}
	return m.done(now)
}

// halt destroys what exists because of err, and makes nothing any more.
func (m *Machine) halt(err error) {
	if m.phase != stopped && m.phase >= offered {
		m.drop(err)
	}
	m.refuseAll(err)
	m.phase, m.call, m.reason = stopped, 0, err
}

// done ends an event: it takes the steps that have become possible, and returns the
// actions of the event.
func (m *Machine) done(now time.Time) []Action {
	m.answerPending()
	m.callIfDue(now)
	out := m.out
	m.out = nil
	return out
}

func (m *Machine) emit(a Action) { m.out = append(m.out, a) }
