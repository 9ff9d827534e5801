package delivery

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/internal/channel"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/transport"
)

// duo is two processes, A and B, with both conns between them: the real machines
// (requests, responses, channel.Channel) of each, a channel of one queue pair and gRPC,
// the memory that A's peer writes into, and what may go wrong. Everything that can
// happen next is a move. What the shells do under one lock is one move; what they
// do on another goroutine, or when another lock was taken meanwhile, is a move of
// its own:
//
//   - an attempt, an ACK, a CANCEL gets a connection (peer.begin and
//     peer.flush of the Requester), is dropped, returns;
//   - a receive of the rendezvous reports to the table (ResponseCache.fetched), a CANCEL off
//     the channel reaches it (link.carry), an answer is copied (link.answerCopy);
//   - a packet lands; a completion is polled; queue pairs are destroyed
//     (link.tearDown); a side finds out that the other one has gone.
//
// A packet that never lands stands for one that is lost: all behind it are, too. What
// has landed stays in the completion queue of a side that does not know of a break.
//
// Left out, since other searches have them: the bootstrap (package handshake; here a
// new channel is there at once), timeouts of seconds, limits (simulation_test.go)
// except for what a full cache drops, several rails, narrow windows (package channel).
type duo struct {
	cfg     *duoConfig
	now     time.Time
	left    duoBudget
	sides   [2]duoSide
	calls   []duoCall
	batches []duoBatch // over gRPC
	values  []duoValue // those sent, by name-1
	clock   int        // orders begins and ends
	gens    int        // channels that there have been
	dead    bool       // A has died, and no other process has come
	closed  bool       // a process has closed: nothing more is looked at
	broken  string     // the first violation
}

// duoBudget is how much of what comes from outside is left.
type duoBudget struct {
	sends, recvs int
	cancels      int // by the receiver
	breaks       int // of a queue pair, on either side; so also of a port that goes down, or of the device
	cuts         int // of the gRPC connection
	channels     int // that are made after the first
	changes      int // that are made while one is up, and replace it
	aborts       int // of the step, at the sender
	restarts     int // of B, the sender
	reborn       int // restarts of A, the receiver, which sends nothing then
	unsent       int // requests over gRPC that do not leave A, since no connection is made
	full         int // times that there is no registered memory
	forged       int // requests to B in the name of A, of a process that is not at its address
	drops        int // times that B's cache is full and drops what it keeps for A, which has no connection
	closes       int // of A, the receiver, in good order
	drains       int // of B, the sender, likewise
	dies         int // of A, without another process in its place
}

type duoConfig struct {
	duoBudget
	sizes  []int64 // of values, in turn, in bytes
	keys   int     // 0 is 1
	both   bool    // B receives from A, too
	hasty  bool    // a queue pair may be destroyed before all is polled, as after a second
	copies bool    // content is copied on its way from the table to a channel, which takes time
	riding bool    // acks wait for a request; else they are sent at once
	slow   bool    // what is there is found later, too, as what is read from a file; else at once
	serial bool    // a receive begins when those before it have ended
	sent   bool    // and when everything has been sent
	grpc   bool    // there is no channel
	backs  bool    // values go back, and receives that are taken back end, on goroutines of their own
	kept   int64   // the most that a table keeps for a requester, in bytes; 0 is any
	rules  duoRules
	tensor []*tensor.Tensor
	parsed [2][]rendezvous.Key // by the side that sends
}

// duoRules are the rules of ARCHITECTURE.md section 6 that a test switches off.
type duoRules struct {
	newID      bool // a. each attempt is another receive
	ownTable   bool // a. gRPC has a table of its own
	anyProcess bool // a. any process answers
	anyAttempt bool // a. an earlier attempt is answered, too: the last to come counts
	giveBack   bool // b. at once, memory is given back and receives are asked again
	stayOpen   bool // c. the generation that is named stays open
	callsOnly  bool // c. unless a gRPC call names it
	unverified bool // another process that asks is believed
	dropValue  bool // c. a request of a closed channel loses its value
	finishOnce bool // d. ACK is sent once
	cancelOnce bool // d. CANCEL is
	matchEarly bool // d. a request is matched while values of its requester are on their way back
	cancelLate bool // d. CANCEL is dealt with at any time, not before a later request
	forgetIDs  bool // d. what has ended is not remembered
	sentReply  bool // a value is confirmed when it is given to a connection
	keepNone   bool // e. a response is released when it is given to a connection
	keepAll    bool // e. one for a process that is gone is not
	unsentLost bool // a request that has not left counts as lost
	lostUnsent bool // a request that was lost counts as one that has not left
	tellNobody bool // e. a value that was dropped and whose receive is cancelled is not reported
	tellLater  bool // e. only a receive that comes later reports it
	leftAll    bool // c. a request names the highest generation that was left, although an earlier one is in use
	moveCancel bool // a request that moves to a better channel is cancelled on the old one
	moveEnds   bool // and ends with what the responder says
	quietAcks  bool // d. acknowledgements for a peer that was lost do not hold up a close
	drainDead  bool // e. a close waits for a requester although it is not reached
	drainOld   bool // e. and although another process is in its place
}

type duoSide struct {
	process uint64 // its incarnation
	closing bool   // it is being closed: Requester.Close, ResponseCache.Drain

	// What it has as a sender.
	table     *responses
	keys      []simKey
	reports   []report
	backs     []byte    // values on their way back, of the one requester
	waiting   []waiting // receives that wait until all that is on the way back has come
	callers   []duoCaller
	lastCall  callID
	copied    []duoAnswered // answers that are copied
	over      bool          // the step is cleaned up
	ending    bool          // and the table does not know yet
	cancelled []duoIDs      // CANCELs on their way to the table, where they may take their time

	// What it has as a receiver.
	requests *requests
	hellos   int
	recvs    []duoRecv
	attempts []duoAttempt
	flushes  []simAct // that have not got a connection yet

	// Its ends of the channels, by generation-1.
	ends []duoEnd
	up   int // the generation that carries receives; 0 for none
	gone int // the highest that it has left; see leftOf
	mem  []duoDest
}

type duoValue struct {
	key      int
	size     int64
	refs     int
	got      int    // how often it was delivered
	told     int    // outcomes that its sender has learnt
	lost     bool   // its step or process has ended: it need not be
	dropped  bool   // by a full cache
	reported bool   // a receive ended with DataLoss in its place
	home     uint64 // the process that it was sent in
}

// duoIDs are the ids of a batch of a process.
type duoIDs struct {
	requester uint64
	ids       []uint64
}

// duoAnswered is an answer on its way to a channel.
type duoAnswered struct {
	to    duoCaller
	value byte
}

// duoCaller waits for an answer of the table.
type duoCaller struct {
	call       callID
	generation int // of the channel it came over; 0 for gRPC
	id         uint64
	attempt    uint32
}

type duoRecv struct {
	key          int
	begun, ended int
	cancelled    bool
	dead         bool // its process has gone before it ended
	value        byte
	first        uint64 // the process that first took the request
	left         bool   // an attempt may have reached a process
}

// duoAttempt is a goroutine of the Requester that makes an attempt.
type duoAttempt struct {
	act        simAct
	state      attemptState
	dropped    bool // its context has ended
	generation int  // onChannel
	dest       int  // 1 + its place in mem; 0 for none
	value      byte
	err        error
}

type attemptState uint8

const (
	attemptBegins attemptState = iota
	attemptOnChannel
	attemptOnGRPC
	attemptReturns
)

// duoCall is an attempt over gRPC.
type duoCall struct {
	from      int
	request   transport.Request
	peer      uint64
	left      int
	finished  []uint64
	cancelled []uint64
	state     callState
	call      callID
	value     byte
	err       error
	listening bool // the receiver waits for it
	cut       bool // its connection is
	verifying duoVerifying
	is        uint64 // the process that its requester's address answered
}

// duoVerifying is how far the call of an requester's address is.
type duoVerifying uint8

const (
	verifyNone    duoVerifying = iota
	verifyCalls                // the address is called
	verifyAnswers              // its answer is on its way
)

func (c *duoCall) over() bool { return c.state == callGone && (!c.cut || !c.listening) }

// duoBatch is an ACK or CANCEL over gRPC.
type duoBatch struct {
	from      int
	act       simAct
	requester uint64 // the process that sends it
	peer      uint64 // and the one that it goes to
	taken     bool
	gone      bool // lost on its way
	undecided bool // refused without a decision (UndecidedError)
	returned  bool // the requester has its outcome
	cut       bool
}

func (s *duoBatch) over() bool { return s.returned && (s.taken || s.gone) }

// duoDest is memory that a peer may write into.
type duoDest struct {
	pages []byte // names of the values whose content is there
	free  bool   // given back: it is somebody else's
}

const duoPage = channel.MinChunk

// duoNames are the sides, as stories call them.
var duoNames = [...]string{"A", "B"}

func newDuo(t testing.TB, cfg *duoConfig) *duo {
	cfg.keys = cmp.Or(cfg.keys, 1)
	if cfg.tensor == nil {
		for i := range 2*cfg.sends + 1 {
			size := cfg.sizes[(i+len(cfg.sizes)-1)%len(cfg.sizes)]
			v, err := tensor.FromBytes(tensor.Uint8, tensor.Vector(int(size)), make([]byte, size))
			if err != nil {
				t.Fatal(err)
			}
			cfg.tensor = append(cfg.tensor, v)
		}
		for i, tasks := range [2][2]string{{consumer, producer}, {producer, consumer}} {
			for k := range cfg.keys {
				key, err := rendezvous.ParseKey(rendezvous.CreateKey(tasks[0]+"/device:CPU:0", uint64(i)+1, tasks[1]+"/device:CPU:0", fmt.Sprint("k", k), rendezvous.FrameIter{}))
				if err != nil {
					t.Fatal(err)
				}
				cfg.parsed[i] = append(cfg.parsed[i], key)
			}
		}
	}
	w := &duo{cfg: cfg, now: t0, left: cfg.duoBudget}
	for i := range w.sides {
		s := &w.sides[i]
		s.process = uint64(i) + 1
		w.begin(i)
	}
	if cfg.grpc {
		return w
	}
	w.connect(0)
	for w.greet() {
	}
	return w
}

// begin gives a side the machines of a new process.
func (w *duo) begin(i int) {
	s := &w.sides[i]
	s.table = newResponses(cacheLimits{
		maxWaiting: math.MaxInt32, maxWaitingBytes: math.MaxInt64, keptPerRequester: math.MaxInt64, keptPerAddress: math.MaxInt64, keptTotal: math.MaxInt64,
		addressed: everyName,
	})
	if w.cfg.kept > 0 {
		s.table.limits.keptPerRequester = w.cfg.kept
	}
	s.keys = make([]simKey, w.cfg.keys)
	s.requests = newRequests([...]string{producer, consumer}[i], transport.DefaultPeerTimeout, DefaultAckBytes)
	s.requests.closing = !w.cfg.riding
}

// greet lets the first messages of the first channel land: the search begins
// behind them.
func (w *duo) greet() (more bool) {
	for i := range w.sides {
		e := &w.sides[i].ends[0]
		switch {
		case len(e.wire) > 0:
			w.land(i, 1)
		case len(e.cq) > 0:
			w.poll(i, 1)
		default:
			continue
		}
		return true
	}
	return false
}

func (w *duo) fail(format string, args ...any) {
	if w.broken == "" {
		w.broken = fmt.Sprintf(format, args...)
	}
}

// nameOf is the name of a value that came back from a machine.
func (w *duo) nameOf(v rendezvous.Value) byte {
	return byte(slices.Index(w.cfg.tensor, v.Tensor)) //nolint:gosec // there are few
}

func (w *duo) value(name byte) *duoValue { return &w.values[name-1] }

// requester is a side as it names itself.
func (w *duo) requester(i int) transport.Process {
	return transport.Process{Name: [...]string{consumer, producer}[i], Incarnation: w.sides[i].process}
}

// The requester's shell: Requester and Conn.

func (w *duo) ask(i int, acts []requestAction) {
	s := &w.sides[i]
	for _, a := range simActs(acts) {
		switch a.kind {
		case doHello:
			s.hellos++
		case doSend:
			s.attempts = append(s.attempts, duoAttempt{act: a})
			if w.left.cancels == 0 { // nothing is faster than it then
				w.attempt(i, len(s.attempts)-1)
			}
		case doDrop:
			if n := w.attemptOf(i, a.id, a.attempt); n >= 0 {
				s.attempts[n].dropped = true
			}
		case doEnd:
			w.end(i, a.id, 0, a.err)
		case doAck, doCancel:
			s.flushes = append(s.flushes, a)
		}
	}
}

func (w *duo) attemptOf(i int, id uint64, attempt uint32) int {
	return slices.IndexFunc(w.sides[i].attempts, func(a duoAttempt) bool { return a.act.id == id && a.act.attempt == attempt })
}

// attempt is Conn.Begin.
func (w *duo) attempt(i, n int) {
	s := &w.sides[i]
	t := &s.attempts[n]
	a := t.act
	if s.up != 0 && !a.fallback && s.ends[s.up-1].peer == a.peer {
		if w.waits(i) { // conn.Begin
			w.returned(i, n, 0, &transport.LostError{Err: errLost, Unsent: true})
			return
		}
		t.state, t.generation = attemptOnChannel, s.up
		w.receive(i, n)
		return
	}
	t.state = attemptOnGRPC
	if t.dropped {
		t.state, t.err = attemptReturns, status.New(status.Cancelled, "")
		return
	}
	r := &s.recvs[a.id-1]
	w.calls = append(w.calls, duoCall{
		from: i, peer: a.peer, left: w.leftOf(i), finished: a.ids, cancelled: a.cancels, listening: true,
		request: transport.Request{Requester: w.requester(i), ID: a.id, Attempt: a.attempt, Step: 1, Key: w.cfg.parsed[1-i][r.key]},
	})
}

// drop is attempt.Drop of a channel, and the end of a call's context.
func (w *duo) drop(i, n int) {
	s := &w.sides[i]
	switch t := &s.attempts[n]; t.state {
	case attemptOnChannel:
		e := &s.ends[t.generation-1]
		if e.state != endGone {
			e.ch.Cancel(w.now, t.act.id, t.act.attempt)
		}
		generation := t.generation
		s.attempts = slices.Delete(s.attempts, n, n+1)
		w.run(i, generation)
	case attemptOnGRPC:
		for k := range w.calls {
			c := &w.calls[k]
			if c.from == i && c.request.ID == t.act.id && c.request.Attempt == t.act.attempt && c.listening {
				c.listening = false
				if c.state == callBack {
					w.goneCall(c)
				}
			}
		}
		s.attempts = slices.Delete(s.attempts, n, n+1)
	}
}

// returns is Transfer.work after the attempt has its outcome.
func (w *duo) returns(i, n int) {
	s := &w.sides[i]
	t := s.attempts[n]
	s.attempts = slices.Delete(s.attempts, n, n+1)
	id := t.act.id
	if x := s.requests.transfers[id]; x == nil || x.Attempt != t.act.attempt { // cancelled meanwhile
		w.release(t.value)
		return
	}
	var lost *transport.LostError
	var restarted *transport.RestartedError
	var fallback *transport.FallbackError
	var moved *transport.MovedError
	switch {
	case errors.As(t.err, &moved) && !w.cfg.rules.moveEnds:
		s.recvs[id-1].left = true
		w.ask(i, s.requests.moveID(w.now, id, t.act.attempt))
	case errors.As(t.err, &fallback):
		s.recvs[id-1].left = true
		w.ask(i, s.requests.fallbackID(w.now, id, t.act.attempt))
	case errors.As(t.err, &lost) && w.unsent(lost):
		w.ask(i, s.requests.unsentID(w.now, id, t.act.attempt, lost.Err))
	case errors.As(t.err, &lost):
		s.recvs[id-1].left = s.recvs[id-1].left || !lost.Unsent
		w.ask(i, s.requests.lostID(w.now, id, t.act.attempt, false, lost.Err))
	case errors.As(t.err, &restarted):
		w.ask(i, s.requests.restartedID(w.now, id, t.act.attempt, restarted.Reached, restarted.Err))
	default:
		acts := s.requests.answeredID(w.now, id, 1, t.err)
		w.end(i, id, t.value, t.err)
		w.release(t.value)
		w.ask(i, acts)
	}
}

// unsent reports whether the Requester takes an attempt for one that has not left.
func (w *duo) unsent(lost *transport.LostError) bool {
	return lost.Unsent && !w.cfg.rules.unsentLost || w.cfg.rules.lostUnsent
}

// release gives up a reference to a value; 0 is none.
func (w *duo) release(name byte) {
	if name != 0 {
		w.value(name).refs--
	}
}

// returned makes an attempt return. When it does matters only while it can be cancelled.
func (w *duo) returned(i, n int, value byte, err error) {
	t := &w.sides[i].attempts[n]
	t.state, t.value, t.err = attemptReturns, value, err
	if w.left.cancels == 0 && !t.dropped {
		w.returns(i, n)
	}
}

// end is the callback of a receive.
func (w *duo) end(i int, id uint64, name byte, err error) {
	s := &w.sides[i]
	r := &s.recvs[id-1]
	if r.ended != 0 {
		w.fail("receive %d of %s ends twice", id, duoNames[i])
		return
	}
	w.clock++
	r.ended, r.value = w.clock, name
	if err != nil {
		code, text := status.CodeOf(err), err.Error()
		switch {
		case code == status.Cancelled && r.cancelled:
		case code == status.DataLoss && w.left.drops < w.cfg.drops:
			if n := slices.IndexFunc(w.values, func(v duoValue) bool { return v.key == r.key && v.unreported() }); n >= 0 {
				w.values[n].reported = true
			} else {
				w.fail("receive %d of %s ends with %v, and no value of its key was dropped, or another one reported it", id, duoNames[i], err)
			}
		case code == status.Aborted && w.left.aborts < w.cfg.aborts && strings.Contains(text, "Cleanup"):
		case code == status.Aborted && w.left.restarts < w.cfg.restarts && (strings.Contains(text, "process") || strings.Contains(text, "restarted")):
			if !errors.Is(err, transport.ErrProcessGone) || !r.left && r.first == 0 {
				w.fail("receive %d of %s, which may have reached a process: %v, ends with %v", id, duoNames[i], r.left || r.first != 0, err)
			}
		default:
			w.fail("receive %d of %s ends with %v", id, duoNames[i], err)
		}
		return
	}
	v := w.value(name)
	if v.got++; v.got > 1 {
		w.fail("value %d is delivered twice", name)
	}
	if v.key != r.key || v.home != r.first {
		w.fail("receive %d of key %d, which process %d took, ends with value %d of key %d of process %d", id, r.key, r.first, name, v.key, v.home)
	}
	if w.cfg.restarts+w.cfg.reborn+w.cfg.dies > 0 {
		return
	}
	for k, other := range s.recvs {
		if w.cfg.cancels == 0 && other.key == r.key && other.value > name && other.ended < r.begun {
			w.fail("receive %d gets value %d after receive %d got %d", id, name, k+1, other.value)
		}
	}
	if slices.ContainsFunc(s.recvs, func(o duoRecv) bool {
		return o.key == r.key && o.begun != r.begun && (o.ended == 0 || o.ended > r.begun)
	}) {
		return // it was not alone: another may have held an earlier value meanwhile
	}
	for k, other := range w.values[:name-1] {
		if other.key == v.key && other.home == v.home && other.got == 0 && !other.lost && !other.reported {
			w.fail("receive %d gets value %d before value %d", id, name, k+1)
		}
	}
}

// flush is Conn.Ack and Conn.Cancel.
func (w *duo) flush(i int) {
	s := &w.sides[i]
	a := s.flushes[0]
	s.flushes = s.flushes[1:]
	if s.up == 0 {
		w.batches = append(w.batches, duoBatch{from: i, act: a, requester: s.process, peer: w.sides[1-i].process})
		return
	}
	e := &s.ends[s.up-1]
	y := duoChannelBatch{act: a}
	if a.kind == doCancel {
		y.mark = e.ch.SendCancels(w.now, a.ids)
	} else {
		y.mark = e.ch.Ack(w.now, a.ids)
	}
	if y.reached(e.taken) {
		w.flushed(i, a, nil)
	} else {
		e.batches = append(e.batches, y)
	}
	w.run(i, s.up)
}

func (w *duo) flushed(i int, a simAct, err error) {
	if a.kind == doAck && w.cfg.rules.finishOnce || a.kind == doCancel && w.cfg.rules.cancelOnce {
		err = nil
	}
	w.ask(i, w.sides[i].requests.flushed(w.now, a.batch(), err))
}

// hello is Conn.Hello.
func (w *duo) hello(i int) {
	s := &w.sides[i]
	s.hellos--
	is := w.sides[1-i].process
	if s.up != 0 {
		is = s.ends[s.up-1].peer
	}
	if w.cfg.rules.anyProcess {
		is = uint64(2 - i)
	}
	w.ask(i, s.requests.hello(w.now, transport.Peer{Tryst: true, Incarnation: is}, nil))
}

// gRPC.

// take is the service of RecvTensor.
func (w *duo) take(n int) {
	c := &w.calls[n]
	i := 1 - c.from
	c.state = callHeld
	if is := w.sides[i].process; c.peer != is && !w.cfg.rules.anyProcess {
		c.state, c.err = callBack, transport.OtherProcess(c.peer, is)
		if c.cut || !c.listening {
			c.state = callGone
		}
		return
	}
	k, acts, err := w.sides[i].table.introduce(w.now, c.request.Requester, "")
	w.keep(i, acts)
	w.introduced(n, k, err)
}

// introduced is what ResponseCache.Introduce returns to the service of RecvTensor, or its wish to
// call the address of the requester.
func (w *duo) introduced(n int, k *requester, err error) {
	c := &w.calls[n]
	i := 1 - c.from
	switch {
	case err != nil:
		if c.state, c.err = callBack, err; c.cut || !c.listening {
			c.state = callGone
		}
		return
	case k == nil:
		if c.verifying = verifyCalls; w.cfg.rules.unverified {
			c.is = c.request.Requester.Incarnation
			w.verified(n)
		}
		return
	}
	if !w.cfg.rules.stayOpen {
		w.leftBy(i, c.request.Requester.Incarnation, c.left)
	}
	w.finish(i, c.request.Requester, c.finished, true)
	c = &w.calls[n]
	if !w.cfg.rules.cancelLate {
		w.cancel(i, c.request.Requester.Incarnation, c.cancelled)
		c = &w.calls[n]
	}
	c.call = w.sides[i].lastCall + 1
	w.asks(i, c.request, 0)
}

// verified brings the answer of the address of a call's requester.
func (w *duo) verified(n int) {
	c := &w.calls[n]
	c.verifying = verifyNone
	k, acts, err := w.sides[1-c.from].table.verified(w.now, c.request.Requester, "", c.is, nil)
	w.keep(1-c.from, acts)
	w.introduced(n, k, err)
}

func (w *duo) answerCall(i int, call callID, name byte, err error) {
	for k := range w.calls {
		if c := &w.calls[k]; c.from == 1-i && c.call == call && c.state == callHeld {
			c.state, c.value, c.err = callBack, name, err
			if c.cut || !c.listening {
				w.goneCall(c)
			}
			return
		}
	}
	w.release(name)
}

// goneCall is the end of a call whose answer nobody gets.
func (w *duo) goneCall(c *duoCall) {
	w.release(c.value)
	c.value, c.state = 0, callGone
}

// answer brings the answer of a call.
func (w *duo) answer(n int) {
	c := &w.calls[n]
	c.state, c.listening = callGone, false
	k := w.attemptOf(c.from, c.request.ID, c.request.Attempt)
	err := c.err
	var open *transport.UndecidedError
	switch {
	case transport.IsOtherProcess(err):
		err = &transport.RestartedError{Err: err}
	case errors.As(err, &open):
		err = &transport.LostError{Err: errLost}
	}
	w.returned(c.from, k, c.value, err)
}

// notSent reports to the requester that a call has not left, since there is no connection.
func (w *duo) notSent(n int) {
	c := &w.calls[n]
	c.state, c.listening = callGone, false
	w.returned(c.from, w.attemptOf(c.from, c.request.ID, c.request.Attempt), 0, &transport.LostError{Err: errLost, Unsent: true})
}

// lose reports to the requester that a call was lost.
func (w *duo) lose(n int) {
	c := &w.calls[n]
	c.listening = false
	w.returned(c.from, w.attemptOf(c.from, c.request.ID, c.request.Attempt), 0, &transport.LostError{Err: errLost})
}

// cut breaks the connection under all calls and messages.
func (w *duo) cut() {
	for n := range w.calls {
		c := &w.calls[n]
		c.cut = true
		if c.state == callBack {
			w.goneCall(c)
		}
	}
	for n := range w.batches {
		w.batches[n].cut = true
	}
}

// takeBatch is the service of MarkRecvFinished and Cancel.
func (w *duo) takeBatch(n int) {
	m := &w.batches[n]
	m.taken = true
	i := 1 - m.from
	if m.peer != w.sides[i].process {
		return // it went to the earlier process
	}
	if m.act.kind == doAck {
		w.finish(i, transport.Process{Name: w.requester(m.from).Name, Incarnation: m.requester}, m.act.ids, true)
		return
	}
	_, acts, err := w.sides[i].table.introduceNow(w.now, transport.Process{Name: w.requester(m.from).Name, Incarnation: m.requester}, "")
	w.keep(i, acts)
	if err != nil {
		w.batches[n].undecided = true
		return
	}
	w.cancel(i, m.requester, m.act.ids)
}

// restart puts another process into a side's place. What the old one had is lost.
func (w *duo) restart(i int) {
	s := &w.sides[i]
	w.cut()
	for n := range w.calls {
		switch c := &w.calls[n]; {
		case c.from == i:
			c.listening = false
		case c.state == callHeld:
			c.state = callGone
		}
	}
	for n := range w.batches {
		if m := &w.batches[n]; m.from == i {
			m.returned = true // the process is gone
		}
	}
	for _, t := range s.attempts {
		w.release(t.value) // the receiver's copy
	}
	for k := range w.values {
		if v := &w.values[k]; v.home == s.process && v.refs > 0 {
			v.refs, v.lost = 0, true
		}
	}
	for g := range s.ends {
		s.ends[g] = duoEnd{state: endGone}
	}
	for k := range s.recvs {
		s.recvs[k].dead = s.recvs[k].ended == 0
	}
	for k := range s.mem {
		s.mem[k].free = true
	}
	s.process += 10
	w.begin(i)
	s.reports, s.callers, s.copied, s.cancelled, s.up, s.gone = nil, nil, nil, nil, 0, 0
	s.backs, s.waiting = nil, nil
	s.hellos, s.attempts, s.flushes = 0, nil, nil
}

// forgotten reports whether a side keeps something for a process that is no more, and
// that it cannot reach any more.
func (w *duo) forgotten(i int) bool {
	if w.cfg.rules.keepAll || w.sides[i].closing {
		return false
	}
	for _, k := range w.sides[i].table.requesters {
		if k.incarnation == w.sides[1-i].process || k.conns+k.calls > 0 {
			continue
		}
		for _, e := range k.entries {
			if e.state == entryKept {
				return true
			}
		}
	}
	return false
}

// abort cleans up the step at a side.
func (w *duo) abort(i int) {
	s := &w.sides[i]
	s.over, s.ending = true, true
	for k := range s.keys {
		q := &s.keys[k]
		for _, f := range q.waiting {
			s.reports = append(s.reports, report{waiting: f})
		}
		for _, name := range q.values {
			w.outcome(name, errLost)
			w.release(name)
		}
		*q = simKey{}
	}
	for k := range w.values {
		if v := &w.values[k]; v.home == s.process {
			v.lost = true
		}
	}
}

// close is Requester.Close of A.
func (w *duo) close() {
	s := &w.sides[0]
	s.closing = true
	for n := range s.recvs {
		if r := &s.recvs[n]; r.ended == 0 && !r.dead {
			r.cancelled = true
			w.ask(0, s.requests.cancelID(w.now, uint64(n)+1, status.New(status.Cancelled, ""))) //nolint:gosec // few
		}
	}
	w.ask(0, s.requests.close(w.now))
}

// quiet reports whether the close of A is over.
func (w *duo) quiet() bool {
	m := w.sides[0].requests
	if w.cfg.rules.quietAcks && m.conn != connUp {
		return len(m.transfers) == 0 && !m.flushing && len(m.cancelled) == 0
	}
	return m.quiet(w.now)
}

// drained reports whether the close of B is over; look says whether the address of A is to be called,
// and later when time has to pass first.
func (w *duo) drained() (over, look bool, later time.Time) {
	t := w.sides[1].table
	left, _ := cloneResponses(t).drain(w.now)
	k := t.known(w.requester(0))
	for _, other := range t.requesters {
		k = other // there is one
	}
	if left == (undrained{}) || k == nil || k.connected() || k.drain.gone {
		return left == (undrained{}), false, later
	}
	if k.drain.callAt.After(w.now) {
		return false, false, k.drain.callAt
	}
	return false, true, later
}

// look has B call the address of A.
func (w *duo) look() {
	t := w.sides[1].table
	_, call := t.drain(w.now)
	for _, k := range call {
		is, err := w.sides[0].process, error(nil)
		if w.dead {
			err = errLost
		}
		if w.cfg.rules.drainOld && err == nil {
			is = k.incarnation
		}
		if t.drainCalled(w.now, k, is, err); err != nil && w.cfg.rules.drainDead {
			k.drain.gone = false
		}
	}
}

// isClosed is the end of a close. Nothing that the peer has or wants may be lost with it.
func (w *duo) isClosed(i int) {
	w.closed = true
	k := w.sides[1].table.known(w.requester(0))
	if k == nil || w.dead {
		return
	}
	for id, e := range k.entries {
		if e.state == entryKept && e.response.Err == nil {
			w.fail("%s has closed, and B keeps an answer to receive %d of A", duoNames[i], id)
		}
	}
}

// sweep forgets what is over.
func (w *duo) sweep() {
	w.calls = slices.DeleteFunc(w.calls, func(c duoCall) bool { return c.over() })
	w.batches = slices.DeleteFunc(w.batches, func(m duoBatch) bool { return m.over() })
}

// checkQuiet looks at a world in which nothing happens any more.
func (w *duo) checkQuiet() {
	for i := range w.sides {
		s, peer := &w.sides[i], &w.sides[1-i]
		for k, r := range s.recvs {
			if r.ended == 0 && !r.dead && (len(peer.keys[r.key].values) > 0 || peer.over) {
				w.fail("receive %d of %s waits although there is an answer", k+1, duoNames[i])
			}
		}
		for k := range s.mem {
			used := slices.ContainsFunc(s.attempts, func(a duoAttempt) bool { return a.dest == k+1 })
			if !s.mem[k].free && !used {
				w.fail("destination %d of %s is never given back", k+1, duoNames[i])
			}
		}
		if a := s.requests; a.flushing || !a.flushedAll() {
			w.fail("%s has something to send for ever", duoNames[i])
		}
		if s.closing {
			w.fail("the close of %s waits for ever", duoNames[i])
		}
	}
	taken := 0 // receives of a process that is no more took one each
	for _, s := range w.sides {
		for _, r := range s.recvs {
			if r.dead && r.first != 0 {
				taken++
			}
		}
	}
	for k := range w.values {
		v, name, inTable := &w.values[k], byte(k+1), w.inTable(k)
		switch {
		case v.got+inTable == 1 || v.lost:
		case v.dropped && v.got+inTable == 0:
			w.checkReported(k)
		case v.got+inTable == 0 && taken > 0:
			taken--
		default:
			w.fail("value %d: %d times delivered, %d times in the table", name, v.got, inTable)
		}
	}
	for i := range w.sides {
		for _, k := range w.sides[i].table.requesters {
			for id, e := range k.entries {
				if k.incarnation != w.sides[1-i].process {
					w.fail("%s has something of receive %x for ever, whose process is no more", duoNames[i], id)
					return
				}
				switch ended := w.sides[1-i].recvs[uint32(id)-1].ended != 0; { //nolint:gosec // the low half is the index
				case e.state == entryKept:
					w.fail("%s keeps an answer to receive %x for ever", duoNames[i], id)
				case e.state != entryFetching || ended:
					w.fail("%s has a receive for receive %x for ever, which ended: %v", duoNames[i], id, ended)
				}
			}
		}
	}
	for k := range w.values {
		if v, want := &w.values[k], w.inTable(k); v.refs != want {
			w.fail("value %d has %d references for ever, want %d", k+1, v.refs, want)
		}
	}
	for k, v := range w.values {
		lives := v.home == w.sides[0].process || v.home == w.sides[1].process
		if inTable := w.inTable(k); lives && v.told != 1-inTable {
			w.fail("value %d is %d times in the table, and its sender has learnt %d outcomes", k+1, inTable, v.told)
		}
	}
}

// unreported reports whether v was dropped, did not arrive, and no receive has reported it.
func (v *duoValue) unreported() bool { return v.dropped && v.got == 0 && !v.reported }

// checkReported looks at whether a receive waits that should have reported that the k-th value was
// dropped.
func (w *duo) checkReported(k int) {
	for i := range w.sides {
		for n, r := range w.sides[i].recvs {
			if v := &w.values[k]; r.key == v.key && v.unreported() && r.ended == 0 && !r.dead {
				w.fail("receive %d of %s waits, and value %d before it was dropped without a report", n+1, duoNames[i], k+1)
			}
		}
	}
}

// inTable counts how often the k-th value is in a rendezvous.
func (w *duo) inTable(k int) (n int) {
	for i := range w.sides {
		for _, q := range w.sides[i].keys {
			for _, x := range q.values {
				if int(x) == k+1 {
					n++
				}
			}
		}
	}
	return n
}
