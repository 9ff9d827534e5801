package delivery

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/transport"
)

// world is both pure machines with everything between and around them: a sender
// with a queue per key, a receiver that asks and cancels, and a network of calls
// on connections that break. Everything that can happen next is a move; a search
// or a random walk chooses among them. Nothing in it is concurrent: what the
// shells do outside their locks is a move of its own.
//
// References are counted by the world (refs), not by the tensors, so that a world
// can be copied.
type world struct {
	cfg   *simConfig
	now   time.Time
	left  budget
	sends int // values sent so far

	// The sender.
	s         *responses
	process   uint64 // its incarnation
	keys      []simKey
	reports   []report          // of local receives that have ended
	callsHere map[callID]int    // call → index in calls
	lastCall  callID            //
	downs     []uint64          // connections whose end the sender has not seen
	refs      [simValues]int    // of each value
	home      [simValues]uint64 // the process that it was sent in

	// The network.
	conn    uint64 // number of the present connection
	calls   []simCall
	batches []simBatch
	upAt    map[uint64]bool // connections that the sender knows

	// The receiver.
	r      *requests
	hellos int // under way: 0 or 1
	recvs  []simRecv
	got    [simValues]int // how often each value was delivered
	clock  int            // orders begins and ends
	broken string         // the first violation
}

const (
	simValues = 256
)

var simulated = transport.Process{Name: consumer, Incarnation: 77}

// budget is how much of what may go wrong or be done is left.
type budget struct {
	sends, recvs, breaks, cancels, restarts, blackouts int
}

type simConfig struct {
	budget
	keys   int
	limits cacheLimits
	sizes  []int // of values, in turn
	values []*tensor.Tensor
	parsed []rendezvous.Key
	rules  rules
	timed  bool // time passes by itself; else acks are sent at once
}

// rules are the rules of ARCHITECTURE.md section 6 that a test switches off.
type rules struct {
	newID      bool // a. an id names a receive: off, each attempt is another receive
	anyProcess bool // a. the incarnation of the sender: off, any process answers
	dropBreak  bool // c. a value that was matched when its call broke stays: off, it is dropped
	sendOnce   bool // d. ACK and CANCEL are sent again
	noPast     bool // d. ended ids are remembered
	keepNone   bool // e. answers are kept until ACK
	noRestore  bool // a cancelled receive consumes nothing
	noWidening bool // those asked again do not hold up the rest
}

type simKey struct {
	values  []byte
	waiting []waiting
}

type waiting struct {
	fetch   uint64
	request transport.Request
}

type report struct {
	waiting
	value   byte // 0: Cancelled
	stopped bool // of a duo: it was taken back
}

type callState uint8

const (
	callOut  callState = iota // the request is under way
	callHeld                  // the sender has it
	callBack                  // the answer is under way
	callGone
)

// simCall is one attempt that was sent.
type simCall struct {
	attempt  transport.Receive
	conn     uint64
	state    callState
	call     callID
	response transport.Response
	value    byte
	lost     bool // the requester does not know of the break yet
	dropped  bool // the receiver does not listen any more
	detached bool // the sender does not
}

type simBatch struct {
	act   simAct
	conn  uint64
	taken bool // by the sender
	done  bool // the receiver knows
	lost  bool
}

type simRecv struct {
	key       int
	begun     int
	ended     int // 0: waits
	cancelled bool
	value     byte
	first     uint64 // the process that first took the request
}

func newWorld(t testing.TB, cfg *simConfig) *world {
	l := cfg.limits
	l.maxWaiting, l.maxWaitingBytes = cmp.Or(l.maxWaiting, math.MaxInt32), cmp.Or(l.maxWaitingBytes, math.MaxInt64)
	l.keptPerRequester, l.keptTotal = cmp.Or(l.keptPerRequester, math.MaxInt64), cmp.Or(l.keptTotal, math.MaxInt64)
	l.keptPerAddress = cmp.Or(l.keptPerAddress, l.keptTotal)
	cfg.limits = l
	if cfg.values == nil {
		for i := range simValues {
			n := 1
			if len(cfg.sizes) > 0 {
				n = cfg.sizes[i%len(cfg.sizes)]
			}
			v, err := tensor.FromBytes(tensor.Uint8, tensor.Vector(n), make([]byte, n))
			if err != nil {
				t.Fatal(err)
			}
			cfg.values = append(cfg.values, v)
		}
		for i := range cfg.keys {
			cfg.parsed = append(cfg.parsed, key(t, fmt.Sprint("k", i)))
		}
	}
	w := &world{
		cfg: cfg, now: t0, left: cfg.budget, process: 1, s: newResponses(l), conn: 1,
		r: newRequests(producer, transport.DefaultPeerTimeout, DefaultAckBytes), keys: make([]simKey, cfg.keys),
		callsHere: make(map[callID]int), upAt: make(map[uint64]bool),
	}
	w.r.closing = !cfg.timed
	return w
}

func (w *world) fail(format string, args ...any) {
	if w.broken == "" {
		w.broken = fmt.Sprintf(format, args...)
	}
}

func (w *world) valueOf(v byte) rendezvous.Value { return rendezvous.Value{Tensor: w.cfg.values[v]} }

// nameOf is the number of a value that came back from a machine.
func (w *world) nameOf(v rendezvous.Value) byte {
	return byte(slices.Index(w.cfg.values, v.Tensor)) //nolint:gosec // there are 256
}

// Moves.

type move struct {
	kind moveKind
	n    int
}

type moveKind uint8

const (
	moveSend moveKind = iota
	moveRecv
	moveCancel
	moveBreak
	moveRestart
	moveBlackout
	moveHello
	moveDeliver     // call n reaches the sender
	moveVanish      // its request is lost in a broken connection
	moveAnswer      // its answer reaches the receiver
	moveLost        // the receiver learns that it was lost
	moveDetach      // the sender learns that its connection was lost
	moveReport      // the source ends a receive
	moveTakeBatch   // a message reaches the sender
	moveLoseBatch   // it does not
	moveReturnBatch // the requester learns its outcome
	moveDown        // the sender learns of the end of a connection
	moveTick
)

var moveNames = [...]string{
	"the producer sends a value to key", "the consumer begins a receive of key", "the consumer cancels receive",
	"the connection breaks", "the sender restarts", "no connection for 60 s", "hello", "the sender takes call",
	"the network loses the request of call", "the receiver gets the answer to call", "the receiver loses call",
	"the sender detaches call", "the source ends receive", "the sender takes message", "the network loses message",
	"the receiver knows what came of message", "the sender sees the end of a connection", "time passes",
}

func (m move) String() string { return fmt.Sprintf("%s %d", moveNames[m.kind], m.n) }

// moves lists what can happen next. inner moves are those that happen without
// anything new from outside: a world without them is quiet.
func (w *world) moves() (all []move, inner int) {
	add := func(kind moveKind, n int) { all = append(all, move{kind, n}) }
	if w.hellos > 0 {
		add(moveHello, 0)
	}
	for i := range w.calls {
		c := &w.calls[i]
		live := c.conn == w.conn
		switch {
		case c.state == callOut:
			add(moveDeliver, i)
			if !live {
				add(moveVanish, i)
			}
		case c.state == callHeld && !c.detached && (!live || c.dropped):
			add(moveDetach, i)
		case c.state == callBack && live && !c.dropped:
			add(moveAnswer, i)
		}
		if c.lost && !c.dropped {
			add(moveLost, i)
		}
	}
	for i := range w.reports {
		add(moveReport, i)
	}
	for i := range w.batches {
		m := &w.batches[i]
		if !m.taken && !m.lost {
			add(moveTakeBatch, i)
			if m.conn != w.conn {
				add(moveLoseBatch, i)
			}
		}
		if !m.done && (m.taken || m.conn != w.conn) {
			add(moveReturnBatch, i)
		}
	}
	for i := range w.downs {
		add(moveDown, i)
	}
	if !w.r.wakeAt.IsZero() {
		add(moveTick, 0)
	}
	inner = len(all)
	if w.left.sends > 0 {
		for k := range w.keys {
			add(moveSend, k)
		}
	}
	if w.left.recvs > 0 {
		for k := range w.keys {
			add(moveRecv, k)
		}
	}
	if w.left.cancels > 0 {
		for i := range w.recvs {
			if w.recvs[i].ended == 0 {
				add(moveCancel, i)
			}
		}
	}
	busy := len(w.calls)+len(w.batches) > 0
	if w.left.breaks > 0 && busy {
		add(moveBreak, 0)
	}
	if w.left.restarts > 0 && busy {
		add(moveRestart, 0)
	}
	if w.left.blackouts > 0 && busy {
		add(moveBlackout, 0)
	}
	return all, inner
}

func (w *world) play(m move) {
	switch m.kind {
	case moveSend:
		w.left.sends--
		w.sends++
		v := byte(w.sends) //nolint:gosec // bounded by the budget
		w.refs[v], w.home[v] = 1, w.process
		w.put(m.n, v, false)
	case moveRecv:
		w.left.recvs--
		w.clock++
		w.recvs = append(w.recvs, simRecv{key: m.n, begun: w.clock})
		w.ask(w.r.recvID(w.now, uint64(len(w.recvs)), w.process))
	case moveCancel:
		w.left.cancels--
		w.recvs[m.n].cancelled = true
		w.ask(w.r.cancelID(w.now, uint64(m.n)+1, status.New(status.Cancelled, "")))
	case moveBreak:
		w.left.breaks--
		w.breakConn()
	case moveRestart:
		w.left.restarts--
		w.breakConn()
		w.restart()
	case moveBlackout:
		w.left.blackouts--
		w.blackout()
	case moveHello:
		w.hellos--
		w.ask(w.r.hello(w.now, transport.Peer{Tryst: true, Incarnation: w.peerProcess()}, nil))
	case moveDeliver:
		w.deliver(m.n)
	case moveVanish:
		w.calls[m.n].state = callGone
	case moveAnswer:
		w.answer(m.n)
	case moveLost:
		c := &w.calls[m.n]
		c.lost, c.dropped = false, true
		w.ask(w.r.lostID(w.now, c.attempt.ID, c.attempt.Attempt, false, errLost))
	case moveDetach:
		c := &w.calls[m.n]
		c.detached = true
		if c.state = callGone; c.call != 0 {
			w.keep(w.s.detachID(w.now, c.call))
		}
	case moveReport:
		w.report(m.n)
	case moveTakeBatch:
		w.takeBatch(m.n)
	case moveLoseBatch:
		w.batches[m.n].lost = true
	case moveReturnBatch:
		w.flushed(m.n)
	case moveDown:
		w.s.connClosed(w.now, w.s.known(simulated))
		w.downs = slices.Delete(w.downs, m.n, m.n+1)
	case moveTick:
		w.now = later(w.now, w.r.wakeAt)
		w.r.moved = w.r.moved || w.cfg.rules.noWidening
		w.ask(w.r.tick(w.now))
	}
	w.sweep()
	if w.cfg.rules.noPast {
		for _, k := range w.s.requesters {
			w.s.forgetAll(k)
		}
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func (w *world) peerProcess() uint64 {
	if w.cfg.rules.anyProcess {
		return 1
	}
	return w.process
}

// The receiver's shell.

func (w *world) ask(acts []requestAction) {
	for _, a := range simActs(acts) {
		switch a.kind {
		case doHello:
			w.hellos++
		case doSend:
			r := &w.recvs[a.id-1]
			w.calls = append(w.calls, simCall{conn: w.conn, attempt: transport.Receive{
				Request: transport.Request{
					Requester: simulated,
					ID:        a.id, Attempt: a.attempt, Step: 1, Key: w.cfg.parsed[r.key],
				},
				Peer: a.peer, Acks: a.ids, Cancels: a.cancels,
			}})
		case doDrop:
			for i := range w.calls {
				c := &w.calls[i]
				if c.attempt.ID == a.id && c.attempt.Attempt == a.attempt {
					c.dropped = true
					if c.state == callBack {
						w.gone(c)
					}
				}
			}
		case doEnd:
			w.end(a.id, 0, a.err)
		case doAck, doCancel:
			w.batches = append(w.batches, simBatch{act: a, conn: w.conn})
		}
	}
}

// end is the callback of a receive.
func (w *world) end(id uint64, v byte, err error) {
	r := &w.recvs[id-1]
	if r.ended != 0 {
		w.fail("receive %d ends twice", id)
	}
	w.clock++
	r.ended, r.value = w.clock, v
	if err != nil {
		switch code := status.CodeOf(err); {
		case code == status.Cancelled && r.cancelled:
		case code == status.Aborted && w.process > 1 && strings.Contains(err.Error(), "process"), code == status.Aborted && w.process > 1 && strings.Contains(err.Error(), "restarted"):
		case code == status.DataLoss && w.cfg.blackouts > w.left.blackouts:
		case code == status.Unavailable && w.cfg.blackouts > w.left.blackouts && strings.Contains(err.Error(), "before it carried a response"):
			// Each connection before and after the blackout was lost before it carried a response.
		default:
			w.fail("receive %d ends with %v", id, err)
		}
		return
	}
	if w.got[v]++; w.got[v] > 1 {
		w.fail("value %d is delivered twice", v)
	}
	if r.first != w.home[v] {
		w.fail("receive %d was taken by process %d and answered by process %d", id, r.first, w.home[v])
	}
	for i, other := range w.recvs {
		if w.cfg.cancels == 0 && w.cfg.restarts == 0 && w.cfg.blackouts == 0 && other.key == r.key &&
			other.value != 0 && other.ended < r.begun && other.value > v {
			w.fail("receive %d gets value %d after receive %d got %d", id, v, i+1, other.value)
		}
	}
}

func (w *world) answer(n int) {
	c := &w.calls[n]
	c.state, c.dropped = callGone, true
	if transport.IsOtherProcess(c.response.Err) {
		w.ask(w.r.restartedID(w.now, c.attempt.ID, c.attempt.Attempt, false, c.response.Err))
		return
	}
	if r := w.recvs[c.attempt.ID-1]; r.ended == 0 {
		w.end(c.attempt.ID, c.value, c.response.Err)
	}
	if c.value != 0 {
		w.refs[c.value]--
	}
	w.ask(w.r.answeredID(w.now, c.attempt.ID, 1, c.response.Err))
}

func (w *world) flushed(n int) {
	m := &w.batches[n]
	m.done = true
	err := error(errLost)
	if m.conn == w.conn || w.cfg.rules.sendOnce {
		err = nil
	}
	w.ask(w.r.flushed(w.now, m.act.batch(), err))
}

// The sender's shell.

func (w *world) keep(acts []responseAction) {
	for _, a := range acts {
		switch a.kind {
		case doFetch:
			if waits := w.fetch(waiting{a.fetch, a.request}); waits && a.held {
				w.keep(w.s.waits(w.now, a.request, a.fetch))
			}
		case doStopFetch:
			for k := range w.keys {
				q := &w.keys[k].waiting
				if i := slices.IndexFunc(*q, func(x waiting) bool { return x.fetch == a.fetch }); i >= 0 {
					w.reports = append(w.reports, report{waiting: (*q)[i]})
					*q = slices.Delete(slices.Clone(*q), i, i+1)
				}
			}
		case doReply:
			w.reply(a)
		case doRestore:
			v := w.nameOf(a.response.Value)
			if w.cfg.rules.noRestore || w.home[v] != w.process {
				w.refs[v]--
				continue
			}
			w.put(slices.Index(w.cfg.parsed, a.request.Key), v, true)
		case doRelease:
			w.refs[w.nameOf(a.response.Value)]--
		}
	}
}

func (w *world) reply(a responseAction) {
	i, ok := w.callsHere[callOf(&a)]
	if !ok {
		w.fail("call %d is answered twice", callOf(&a))
		return
	}
	delete(w.callsHere, callOf(&a))
	c := &w.calls[i]
	c.response = transport.Response{Err: a.response.Err}
	if a.response.Err == nil {
		c.value = w.nameOf(a.response.Value)
		w.refs[c.value]++
	}
	if c.state != callHeld || c.conn != w.conn || c.dropped {
		w.gone(c)
		return
	}
	c.state = callBack
	if w.cfg.rules.keepNone {
		w.keep(w.s.ack(w.now, simulated, []uint64{c.attempt.ID}))
	}
}

// gone is the end of an answer that nobody gets.
func (w *world) gone(c *simCall) {
	if c.value != 0 {
		w.refs[c.value]--
		c.value = 0
	}
	c.state = callGone
}

func (w *world) fetch(f waiting) (waits bool) {
	q := &w.keys[slices.Index(w.cfg.parsed, f.request.Key)]
	if len(q.values) > 0 {
		w.reports = append(w.reports, report{waiting: f, value: q.values[0]})
		q.values = q.values[1:]
		return false
	}
	q.waiting = append(slices.Clone(q.waiting), f)
	return true
}

// put gives a value to the first receive of its key, or queues it.
func (w *world) put(k int, v byte, front bool) {
	q := &w.keys[k]
	switch {
	case len(q.waiting) > 0:
		w.reports = append(w.reports, report{waiting: q.waiting[0], value: v})
		q.waiting = q.waiting[1:]
	case front:
		q.values = append([]byte{v}, q.values...)
	default:
		q.values = append(slices.Clone(q.values), v)
	}
}

func (w *world) report(n int) {
	rep := w.reports[n]
	w.reports = slices.Delete(w.reports, n, n+1)
	ans := transport.Response{Err: status.New(status.Cancelled, "")}
	if rep.value != 0 {
		ans = transport.Response{Value: w.valueOf(rep.value)}
		if k := w.s.known(simulated); w.cfg.rules.dropBreak && k != nil && k.entries[rep.request.ID] != nil && k.entries[rep.request.ID].state == entryStopping {
			w.refs[rep.value]--
			ans = transport.Response{Err: status.New(status.Cancelled, "")}
		}
	}
	w.keep(w.s.fetched(w.now, rep.request, rep.fetch, ans))
}

// carry reports the requester's connection when its first message arrives.
func (w *world) carry(conn uint64) {
	if !w.upAt[conn] && conn == w.conn {
		w.upAt[conn] = true
		_, acts := w.s.connOpened(w.now, simulated)
		w.keep(acts)
	}
}

func (w *world) deliver(n int) {
	c := &w.calls[n]
	c.state = callHeld
	a := c.attempt
	if a.Peer != w.peerProcess() {
		if c.response = (transport.Response{Err: transport.OtherProcess(a.Peer, w.process)}); c.conn == w.conn && !c.dropped {
			c.state = callBack
		} else {
			c.state = callGone
		}
		return
	}
	w.carry(c.conn)
	w.keep(w.s.ack(w.now, simulated, a.Acks))
	if len(a.Cancels) > 0 {
		w.cancel(a.Cancels)
	}
	if r := &w.recvs[a.ID-1]; r.first == 0 {
		r.first = w.process
	}
	if w.cfg.rules.newID {
		a.ID += uint64(a.Attempt-1) << 32
	}
	w.lastCall++
	w.calls[n].call = w.lastCall
	w.callsHere[w.lastCall] = n
	w.keep(w.s.request(w.now, a.Request, w.lastCall))
}

// cancel is ResponseCache.Cancel, with ResponseCache.Introduce before it.
func (w *world) cancel(ids []uint64) {
	_, acts, err := w.s.introduceNow(w.now, simulated, "")
	if err != nil {
		w.fail("the requester of a cancel is refused: %v", err)
	}
	w.keep(acts)
	acts, err = w.s.cancel(w.now, simulated, ids)
	if err != nil {
		w.fail("a cancel is refused: %v", err)
	}
	w.keep(acts)
}

func (w *world) takeBatch(n int) {
	m := &w.batches[n]
	m.taken = true
	w.carry(m.conn)
	if m.act.kind == doAck {
		w.keep(w.s.ack(w.now, simulated, m.act.ids))
	} else {
		w.cancel(m.act.ids)
	}
}

// breakConn ends the present connection: answers on it are lost, requests and
// messages may still arrive or be lost.
func (w *world) breakConn() {
	if w.upAt[w.conn] {
		w.downs = append(w.downs, w.conn)
	}
	for i := range w.calls {
		c := &w.calls[i]
		if c.conn == w.conn && !c.dropped {
			c.lost = true
		}
		if c.conn == w.conn && c.state == callBack {
			w.gone(c)
		}
	}
	w.conn++
}

// restart puts another process into the sender's place. What the old one had is
// lost with it.
func (w *world) restart() {
	for i := range w.calls {
		if c := &w.calls[i]; c.state == callHeld {
			c.state = callGone
		}
	}
	for v := range w.refs {
		if w.refs[v] > 0 {
			w.refs[v] = 0
			w.got[v] = math.MinInt32 // lost, but not to be delivered
		}
	}
	w.process++
	w.s = newResponses(w.cfg.limits)
	clear(w.keys)
	w.reports, w.downs = nil, nil
	clear(w.callsHere)
}

// blackout is a break that lasts until the sender has given up.
func (w *world) blackout() {
	w.breakConn()
	held := func(c simCall) bool { return c.state == callHeld && !c.detached }
	for i := slices.IndexFunc(w.calls, held); i >= 0; i = slices.IndexFunc(w.calls, held) {
		w.play(move{moveDetach, i})
	}
	for len(w.downs) > 0 {
		w.play(move{moveDown, 0})
	}
	w.now = w.now.Add(expireAfter)
	acts, _ := w.s.tick(w.now)
	for _, a := range acts {
		if a.kind == doRelease {
			w.got[w.nameOf(a.response.Value)] = math.MinInt32
		}
	}
	w.keep(acts)
}

// sweep forgets what is over.
func (w *world) sweep() {
	if slices.ContainsFunc(w.calls, func(c simCall) bool { return c.over() }) {
		calls := w.calls[:0:0]
		for i, c := range w.calls {
			if c.over() {
				delete(w.callsHere, c.call)
				continue
			}
			if _, ok := w.callsHere[c.call]; ok && c.call != 0 {
				w.callsHere[c.call] = len(calls)
			}
			_ = i
			calls = append(calls, c)
		}
		w.calls = calls
	}
	w.batches = slices.DeleteFunc(slices.Clone(w.batches), func(m simBatch) bool { return m.done && (m.taken || m.lost) })
}

func (c *simCall) over() bool { return c.state == callGone && (c.dropped || !c.lost) }

// checkQuiet looks at a world in which nothing happens any more.
func (w *world) checkQuiet() {
	for i, r := range w.recvs {
		if r.ended == 0 && len(w.keys[r.key].values) > 0 {
			w.fail("receive %d waits although a value is there", i+1)
		}
	}
	for _, k := range w.s.requesters {
		for id, e := range k.entries {
			if e.state != entryFetching || w.recvs[uint32(id)-1].ended != 0 { //nolint:gosec // the low half is the index
				w.fail("the sender holds an entry in state %d for receive %d", e.state, id)
			}
		}
	}
	for v := 1; v <= w.sends; v++ {
		inTable := 0
		for _, k := range w.keys {
			for _, x := range k.values {
				if int(x) == v {
					inTable++
				}
			}
		}
		if w.got[v] < 0 && inTable == 0 { // given up, or gone with its process
			continue
		}
		if w.got[v]+inTable != 1 {
			w.fail("value %d: %d times delivered, %d times in the table", v, w.got[v], inTable)
		}
		if w.refs[v] != inTable {
			w.fail("value %d has %d references, want %d", v, w.refs[v], inTable)
		}
	}
}

// copy is for a search. The machines are copied by cloneResponses and cloneRequests.
func (w *world) copy() *world {
	c := *w
	c.s, c.r = cloneResponses(w.s), cloneRequests(w.r)
	c.keys, c.reports, c.downs = slices.Clone(w.keys), slices.Clone(w.reports), slices.Clone(w.downs)
	c.calls, c.batches, c.recvs = slices.Clone(w.calls), slices.Clone(w.batches), slices.Clone(w.recvs)
	c.callsHere, c.upAt = maps.Clone(w.callsHere), maps.Clone(w.upAt)
	return &c
}
