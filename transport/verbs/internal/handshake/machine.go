package handshake

import (
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/status"
)

// Config is what a machine is made with.
type Config struct {
	// Self is what all offers of this side have in common: Task, Incarnation,
	// Version, Link, GIDType, and of each rail GID, LID, MTU and UDP. It tells
	// before any queue pair is made whether the two sides can talk.
	Self Offer
	// Peer is who is at the other end.
	Peer cluster.Task
	// Callable says that the peer has an address. Without one it is only
	// answered, and it is believed who it says it is when no channel is up.
	Callable bool
	// Backoff is the wait after the first failure; it doubles, up to MaxBackoff
	// and to 2^(maxDoublings-1) times as much. MinBackoff when 0.
	Backoff time.Duration
	// Jitter gives numbers from 0 up to 1, which spread the calls of many peers;
	// nil for none.
	Jitter func() float64
}

// State is how far a machine has come with its peer.
type State uint8

// The states, in their order.
const (
	Down    State = iota // no offer is there
	Pairing              // there is one, and no channel yet
	Up                   // the channel is open
)

func (s State) String() string {
	return [...]string{"down", "pairing", "up"}[min(s, Up)]
}

// phase is the state within: the drawing is in the package comment.
type phase uint8

const (
	idle phase = iota
	making
	offered
	connecting
	paired
	open
	stopped
)

// Machine is the bootstrap with one peer. Its methods take events, with the
// present time, and return actions; they are not safe for concurrent use. The
// slice that they return is the caller's.
type Machine struct {
	cfg Config
	out []Action

	phase    phase
	id       uint64    // of the present offer, or of the one that is being made
	gen      uint64    // its generation
	stale    bool      // it is being made, and no use any more
	base     uint64    // ids of offers are generations from here on
	own      Offer     // from offered on
	peer     Offer     // from connecting on
	answered bool      // the peer has answered a call that showed own
	helloed  bool      // a message has come on the channel
	deadline time.Time // of an offer that is not paired, of a channel without HELLO
	upSince  time.Time // when the HELLO came
	last     uint64    // the highest generation with the process that is believed, so far
	anybody  uint64    // the highest that was shown to whatever process is there
	earlier  []earlier // processes that were believed before, the last one at the end
	step     uint64    // MaxStep
	raised   bool      // the peer has shown a higher generation since the last HELLO

	believed uint64 // incarnation of the peer; 0 none
	want     bool   // a channel is wanted
	check    bool   // another incarnation has asked: its address is to be called
	checked  time.Time

	call     uint64    // the one under way; 0 none
	calls    uint64    // how many there have been
	after    bool      // it was begun after ours was paired
	callEnds time.Time // when it counts as failed
	nextCall time.Time // not before that
	failures int       // in a row
	reason   error     // why there is no channel

	pending []request // while an offer is made or connected
}

// earlier is a process of the peer that was believed, and the highest generation with it:
// a client that was taken for another one comes back.
type earlier struct{ incarnation, last uint64 }

// request is a call of the peer that is not answered yet.
type request struct {
	id    uint64
	offer Offer
}

// New returns a machine that wants nothing yet, and answers.
func New(c Config) *Machine {
	if c.Jitter == nil {
		c.Jitter = func() float64 { return 0 }
	}
	if c.Backoff == 0 {
		c.Backoff = MinBackoff
	}
	return &Machine{cfg: c, step: MaxStep}
}

// State tells how far the machine has come, and why not further: the last thing
// that went wrong, nil when nothing has.
func (m *Machine) State() (State, error) {
	switch m.phase {
	case idle, stopped:
		return Down, m.reason
	case open:
		return Up, nil
	}
	return Pairing, m.reason
}

// Generation is that of the present offer or channel, 0 when there is none.
func (m *Machine) Generation() uint64 {
	if m.phase == idle || m.phase == stopped {
		return 0
	}
	return m.gen
}

// Last is the highest generation that this side and a process of the peer have shown each
// other; ok is false for a process that is not believed.
func (m *Machine) Last(incarnation uint64) (generation uint64, ok bool) {
	return m.last, incarnation != 0 && incarnation == m.believed
}

// Peer is the offer that ours is paired with; its Generation is 0 when ours is
// not paired.
func (m *Machine) Peer() Offer { return m.peer }

// Wake is when Tick is to be called at the latest; zero for never. It may be
// different after each event.
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
		if m.want && (m.phase == idle || m.phase == offered) {
			at(m.nextCall)
		}
		if m.check && m.phase != making && m.phase != connecting && m.phase != stopped {
			at(m.checkAt())
		}
	}
	return wake
}

// Want says that a channel is wanted, from now on and again after each break.
func (m *Machine) Want(now time.Time) []Action {
	if m.phase != stopped && !m.want {
		m.want = true
		m.nextCall = now
	}
	return m.done(now)
}

// Hurry says that somebody waits and has no other wire: the next call is no later
// than after the shortest back-off.
func (m *Machine) Hurry(now time.Time) []Action {
	if soon := now.Add(m.cfg.Backoff); m.want && m.nextCall.After(soon) {
		m.nextCall = soon
	}
	return m.done(now)
}

// Request says that a call of the peer has come, which shows offer. The caller
// has checked that the peer may have this name (Identity.Check) and meant this
// task. Answer or Refuse with the same id follows, in this or a later event.
func (m *Machine) Request(now time.Time, id uint64, offer Offer) []Action {
	switch err := m.admit(offer); {
	case m.phase == stopped:
		m.refuse(id, m.reason)
	case err != nil:
		if m.phase == idle || m.phase == offered {
			m.reason = err
		}
		m.refuse(id, err)
	case offer.Bare():
		m.refuse(id, status.Errorf(status.FailedPrecondition, "the request of %v shows no queue pairs", offer.Task))
	case offer.For != 0 && offer.For != m.cfg.Self.Incarnation:
		m.introduce(id) // it was shown to an earlier process here
	case !m.believes(offer.Incarnation):
		m.check = true
		m.introduce(id)
	case m.last == 0 && offer.Generation > m.step:
		m.introduce(id) // it counts on from what it had with an earlier process here
	case offer.Generation > m.last+m.step:
		m.refuse(id, m.farther(offer))
	case len(m.pending) == maxPending:
		m.refuse(id, status.Errorf(status.ResourceExhausted, "%d requests of %v wait for a queue pair already", maxPending, offer.Task))
	default:
		m.pending = append(m.pending, request{id, offer})
	}
	return m.done(now)
}

// believes says whether a request of that process counts.
func (m *Machine) believes(incarnation uint64) bool {
	switch {
	case m.believed == incarnation:
		return true
	case m.believed == 0:
		m.believed = incarnation
		return true
	case m.cfg.Callable || m.phase == open:
		return false
	}
	// Nobody can be called, and nothing that works would be lost.
	m.renew(incarnation, status.Errorf(status.Aborted, "%v is another process now", m.cfg.Peer))
	return true
}

// renew believes another process of the peer, from which on generations begin anew. What
// was shown to the earlier one is of no use any more.
func (m *Machine) renew(incarnation uint64, why error) {
	m.earlier = append(m.earlier[max(0, len(m.earlier)+1-maxEarlier):len(m.earlier):len(m.earlier)], earlier{m.believed, m.last})
	m.anew(why)
	m.believed = incarnation
	for _, e := range m.earlier {
		if e.incarnation == incarnation {
			m.last = max(m.last, e.last)
		}
	}
}

// anew has generations begin anew, above those that the peer may have seen whatever
// process it is.
func (m *Machine) anew(why error) {
	switch {
	case m.phase == making:
		m.stale = true
	case m.phase >= offered && m.phase <= open:
		m.dropLeft(why)
	}
	m.base += m.last
	m.last, m.raised = m.anybody, false
}

// farther is the error of an offer whose generation is too far above the last one.
func (m *Machine) farther(o Offer) error {
	return status.Errorf(status.FailedPrecondition, "%v shows generation %d; it may be at most %d above the last one, %d", o.Task, o.Generation, m.step, m.last)
}

// admit checks what any offer of the peer must be.
func (m *Machine) admit(o Offer) error {
	self := m.cfg.Self
	switch err := Vet(o); {
	case o.Task == self.Task:
		return status.Errorf(status.InvalidArgument, "%v is the name of this process: it cannot be its own peer", o.Task)
	case err != nil:
		return err
	case o.Task != m.cfg.Peer:
		return status.Errorf(status.FailedPrecondition, "%v is there, and %v was meant", o.Task, m.cfg.Peer)
	case o.Incarnation == self.Incarnation:
		return status.Errorf(status.FailedPrecondition, "%v shows the incarnation of this process, %016x", o.Task, o.Incarnation)
	case o.Bare():
		return nil
	}
	return Talk(self, o)
}

// Answered says how a call ended: with the peer's offer, or with an error.
func (m *Machine) Answered(now time.Time, call uint64, offer Offer, err error) []Action {
	if m.phase == stopped || m.call == 0 || call != m.call {
		return nil // what it showed is gone
	}
	m.call = 0
	if err == nil {
		err = m.admit(offer)
	}
	if err == nil {
		err = m.respond(now, offer)
	}
	if err != nil && m.phase != open {
		m.fail(now, err)
	}
	return m.done(now)
}

// respond takes the answer to a call that showed our present offer.
func (m *Machine) respond(now time.Time, offer Offer) error {
	if offer.Incarnation != m.believed {
		if m.phase >= connecting && !m.after {
			m.check = true // it may have been answered before the process that we are paired with began
			return nil
		}
		// It answered at its own address: that is who the peer is.
		if m.believed != 0 {
			m.renew(offer.Incarnation, status.Errorf(status.Aborted, "%v has restarted: its incarnation is %016x now", m.cfg.Peer, offer.Incarnation))
			m.nextCall = now
			return nil
		}
		m.believed = offer.Incarnation
	}
	switch {
	case offer.Generation > m.last+m.step:
		return m.farther(offer)
	case offer.Bare():
		if m.phase != open {
			if m.gen > m.step { // the peer has none with us to count on from
				m.anybody = 0
				m.anew(status.Errorf(status.Aborted, "%v has no generation near %d", m.cfg.Peer, m.gen))
			}
			return status.Errorf(status.Unavailable, "%v does not know this process yet, and will call it", m.cfg.Peer)
		}
	case offer.Generation < m.gen:
		return status.Errorf(status.FailedPrecondition, "%v answers generation %d with the lower generation %d", m.cfg.Peer, m.gen, offer.Generation)
	case offer.Generation > m.gen:
		m.dropLeft(status.Errorf(status.Aborted, "%v is at generation %d already", m.cfg.Peer, offer.Generation))
		m.make(offer.Generation)
		m.nextCall = now
		if m.raised {
			m.backOff(now)
		}
		m.raised = true
	case m.phase == offered:
		m.answered = true
		m.connect(offer)
	case !m.peer.Equal(offer):
		err := status.Errorf(status.FailedPrecondition, "%v shows two different offers of generation %d", m.cfg.Peer, m.gen)
		m.drop(err)
		return err
	default:
		m.answered = true
		if m.phase == paired {
			m.open()
		}
	}
	return nil
}

// Made says that the offer which Make asked for is there.
func (m *Machine) Made(now time.Time, id uint64, offer Offer) []Action {
	if m.phase != making || id != m.id || m.stale {
		if m.phase == making && id == m.id {
			m.phase = idle
		}
		m.do(Action{Kind: Destroy, ID: id, Generation: offer.Generation, Err: status.Errorf(status.Cancelled, "it is not wanted any more")})
		return m.done(now)
	}
	m.phase, m.own, m.deadline = offered, offer, now.Add(OfferLife)
	return m.done(now)
}

// MakeFailed says that it cannot be made.
func (m *Machine) MakeFailed(now time.Time, id uint64, err error) []Action {
	if m.phase != making || id != m.id {
		return nil
	}
	m.phase = idle
	m.refuseAll(status.Errorf(status.Unavailable, "%v has no queue pair for %v: %w", m.cfg.Self.Task, m.cfg.Peer, err))
	m.fail(now, err)
	return m.done(now)
}

// Connected says that the queue pairs of an offer are in RTS.
func (m *Machine) Connected(now time.Time, id uint64) []Action {
	if m.phase != connecting || id != m.id {
		return nil
	}
	m.phase = paired
	if !m.helloed {
		m.deadline = now.Add(HelloWait)
	}
	if m.answered {
		m.open()
	}
	return m.done(now)
}

// ConnectFailed says that they cannot be brought there: no route, for example, which is
// FailedPrecondition to the peer. What may pass, or is the peer's own affair, keeps its
// code.
func (m *Machine) ConnectFailed(now time.Time, id uint64, err error) []Action {
	if m.phase != connecting || id != m.id {
		return nil
	}
	code := status.CodeOf(err)
	switch code {
	case status.Unavailable, status.AlreadyExists, status.PermissionDenied, status.ResourceExhausted, status.Aborted:
	default:
		code = status.FailedPrecondition
	}
	err = status.Errorf(code, "%v cannot connect to %v: %w", m.own, m.peer, err)
	m.drop(err)
	m.refuseAll(err)
	m.fail(now, err)
	return m.done(now)
}

// Hello says that the peer's first message on the channel has come.
func (m *Machine) Hello(now time.Time, id uint64) []Action {
	if m.phase < connecting || m.phase > open || id != m.id || m.helloed {
		return nil
	}
	m.helloed, m.upSince, m.deadline = true, now, time.Time{}
	m.raised, m.reason = false, nil
	m.want = true
	m.answered = true // it has our offer
	if m.phase == paired {
		m.open()
	}
	return m.done(now)
}

// Broken says that a channel, or an offer, is of no use any more. The peer is
// told by an offer of the next generation.
func (m *Machine) Broken(now time.Time, id uint64, err error) []Action {
	if m.phase < offered || m.phase > open || id != m.id {
		return nil
	}
	if !m.upSince.IsZero() && now.Sub(m.upSince) >= Steady {
		m.failures = 0
	}
	m.drop(err)
	m.reason = err
	m.backOff(now)
	return m.done(now)
}

// Tick says that time has passed.
func (m *Machine) Tick(now time.Time) []Action {
	if m.phase == stopped {
		return nil
	}
	if m.call != 0 && !now.Before(m.callEnds) {
		m.call = 0
		if m.phase != open {
			m.fail(now, status.Errorf(status.DeadlineExceeded, "%v did not answer in %v", m.cfg.Peer, CallTimeout))
		}
	}
	if !m.deadline.IsZero() && !now.Before(m.deadline) {
		if m.phase == offered {
			m.drop(status.Errorf(status.DeadlineExceeded, "nobody took the offer in %v", OfferLife))
		} else {
			err := status.Errorf(status.DeadlineExceeded, "no message came from %v on the channel in %v; packets of RDMA do not arrive", m.peer, HelloWait)
			m.drop(err)
			m.fail(now, err)
		}
	}
	return m.done(now)
}

// Stop ends it: what is there is destroyed, and nothing is made or called. The
// peer is told why; nil is that this process ends.
func (m *Machine) Stop(now time.Time, why error) []Action {
	if m.phase != stopped {
		err := status.Errorf(status.Unavailable, "%v is stopping", m.cfg.Self.Task)
		if why != nil {
			err = status.Errorf(status.Unavailable, "%v does without verbs from now on: %w", m.cfg.Self.Task, why)
		}
		if m.phase >= offered {
			m.drop(err)
		}
		m.refuseAll(err)
		m.phase, m.call, m.reason = stopped, 0, err
	}
	return m.done(now)
}

// done does what has become possible, and returns the actions.
func (m *Machine) done(now time.Time) []Action {
	m.serve()
	m.plan(now)
	out := m.out
	m.out = nil
	return out
}

// serve answers requests in their order, until one needs something to be made or
// connected first.
func (m *Machine) serve() {
	for len(m.pending) > 0 && m.phase != making && m.phase != connecting {
		r := m.pending[0]
		switch shown := r.offer.Generation; {
		case r.offer.Incarnation != m.believed:
			m.check = true
			m.introduce(r.id)
		case m.phase == idle:
			if !m.make(max(shown, m.last+1)) {
				m.refuse(r.id, m.reason)
				break
			}
			continue
		case shown > m.gen:
			m.dropLeft(status.Errorf(status.Aborted, "%v has left it for generation %d", m.cfg.Peer, shown))
			continue
		case shown < m.gen:
			m.answer(r.id, m.own)
		case m.phase == offered:
			m.connect(r.offer)
			continue
		case m.peer.Equal(r.offer):
			m.answer(r.id, m.own)
		default:
			m.refuse(r.id, status.Errorf(status.Aborted, "%v has shown another offer of generation %d before", r.offer.Task, shown))
		}
		m.pending = m.pending[1:]
	}
	if len(m.pending) == 0 {
		m.pending = nil
	}
}

// plan calls the peer when it is time, and makes an offer to be shown.
func (m *Machine) plan(now time.Time) {
	wanted := m.want && !now.Before(m.nextCall) && (m.phase == idle || m.phase == offered)
	unsure := m.check && !now.Before(m.checkAt())
	if !m.cfg.Callable || m.call != 0 || !wanted && !unsure {
		return
	}
	switch m.phase {
	case idle:
		m.make(m.last + 1)
	case offered, paired, open:
		m.calls++
		m.call, m.after, m.callEnds = m.calls, m.phase != offered, now.Add(CallTimeout)
		if m.check {
			m.check, m.checked = false, now
		}
		shown := m.own
		if shown.For = m.believed; m.believed == 0 {
			m.anybody = m.gen
		}
		m.do(Action{Kind: Call, Call: m.call, Offer: shown})
	case making, connecting, stopped:
	}
}

// checkAt is when a peer may be asked which process it is. Without an offer to show that
// waits for the time at which one may be made again, like everything.
func (m *Machine) checkAt() time.Time {
	at := m.checked.Add(CheckEvery)
	if m.phase == idle && at.Before(m.nextCall) {
		return m.nextCall
	}
	return at
}

// fail takes a failure of the bootstrap: it is tried again later.
func (m *Machine) fail(now time.Time, err error) {
	m.reason = err
	if m.failures == 0 {
		m.failures = 1 // what failed for a reason is not tried again at once
	}
	switch status.CodeOf(err) {
	case status.FailedPrecondition, status.InvalidArgument, status.PermissionDenied, status.Unauthenticated, status.Unimplemented:
		m.failures = max(m.failures, maxDoublings) // the same will be said again
	}
	m.backOff(now)
}

// backOff sets the time of the next call: at once the first time, then later and
// later.
func (m *Machine) backOff(now time.Time) {
	var wait time.Duration
	if m.failures > 0 {
		wait = min(m.cfg.Backoff<<(m.failures-1), MaxBackoff)
		wait += time.Duration(m.cfg.Jitter() * float64(wait) / 4)
	}
	m.failures = min(m.failures+1, maxDoublings)
	m.nextCall = now.Add(wait)
}

// maxDoublings of MinBackoff are past MaxBackoff.
const maxDoublings = 8

func (m *Machine) do(a Action)                 { m.out = append(m.out, a) }
func (m *Machine) refuse(id uint64, err error) { m.do(Action{Kind: Refuse, Request: id, Err: err}) }
func (m *Machine) answer(id uint64, offer Offer) {
	m.do(Action{Kind: Answer, Request: id, Offer: offer})
}

// introduce answers that this process is there and does not believe the caller.
func (m *Machine) introduce(id uint64) {
	s := m.cfg.Self
	m.answer(id, Offer{Task: s.Task, Incarnation: s.Incarnation, Version: s.Version})
}

func (m *Machine) refuseAll(err error) {
	for _, r := range m.pending {
		m.refuse(r.id, err)
	}
	m.pending = nil
}

// make asks for an offer; false when the numbers are used up.
func (m *Machine) make(generation uint64) bool {
	if generation > MaxGeneration {
		m.reason = status.Errorf(status.FailedPrecondition, "all generations up to %d have been used with %v", uint64(MaxGeneration), m.cfg.Peer)
		m.want, m.check = false, false
		return false
	}
	m.phase, m.gen, m.last, m.id, m.stale = making, generation, generation, m.base+generation, false
	m.do(Action{Kind: Make, ID: m.id, Generation: generation})
	return true
}

func (m *Machine) connect(peer Offer) {
	m.phase, m.peer, m.deadline = connecting, peer, time.Time{}
	m.do(Action{Kind: Connect, ID: m.id, Generation: m.gen, Offer: peer})
}

func (m *Machine) open() {
	m.phase = open
	m.do(Action{Kind: Open, ID: m.id, Generation: m.gen})
}

// drop ends the present offer or channel. The call that shows it counts no more.
func (m *Machine) drop(err error) {
	m.dropAs(Action{Kind: Destroy, ID: m.id, Generation: m.gen, Err: err})
}

// dropLeft is drop of what the peer has left.
func (m *Machine) dropLeft(err error) {
	m.dropAs(Action{Kind: Destroy, ID: m.id, Generation: m.gen, Err: err, Left: true})
}

func (m *Machine) dropAs(a Action) {
	m.do(a)
	m.phase, m.own, m.peer = idle, Offer{}, Offer{}
	m.answered, m.helloed, m.call = false, false, 0
	m.deadline, m.upSince = time.Time{}, time.Time{}
}
