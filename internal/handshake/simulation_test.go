package handshake

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

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/verbs"
)

// The simulation runs two machines against each other, through all orders of the events
// between them: calls that are lost, late or duplicated, processes that restart, channels
// that break, queue pairs that cannot be made or connected, devices that go and come back, records of the peer that are
// made anew. TRYST_SIMULATION=n makes search and walk n times as large.

// world is both machines, their callers and the network between them. Nothing in it is
// concurrent: an action that takes time is a move of its own.
type world struct {
	left  budget
	off   string // the rule that is switched off
	now   time.Time
	sides [2]side
	net   []message
	calls int    // made so far
	psn   uint32 // distinguishes offers
	procs uint64 // incarnations so far
	wrong string // the first violation

	routes  bool // there are other routes
	forgets bool // a record was made anew: a late response with an offer of before ends the channel
}

// budget is how many faults and early events may still happen.
type budget struct {
	restarts, breaks, losses, lates, doubles, ticks int
	fails                                           int  // of Make and Connect
	goes                                            int  // devices that go; each comes back
	anew                                            int  // records of the peer that are made anew
	reaches                                         int  // generations that another route takes
	pushes                                          int  // forged offers in a peer's name with the highest generation
	client                                          bool // side 0 has no address
}

type side struct {
	m        *Machine
	wanted   bool
	without  bool            // its device is gone
	queue    []Action        // not carried out yet; the first one takes time
	ends     map[uint64]*end // those that exist, by id
	requests map[uint64]message
	lastReq  uint64
	used     []channelID // that it has connected
	floor    uint64      // the highest generation of another route to the present process of the peer
	floorOf  uint64
	unheard  uint64 // one that the other side has taken, and this one gets to know
}

// channelID identifies a channel of a process.
type channelID struct{ peer, generation uint64 }

// end is a queue pair.
type end struct {
	own, peer              Offer
	connected, open, heard bool
	doomed                 bool // its other end is gone: it breaks once this side notices
	broken                 bool // it was reported
	gone                   bool // it was made on a device that has gone since
}

type message struct {
	kind     byte // 'q' request, 'r' response, 'h' HELLO
	to       int  // side
	from     uint64
	call     uint64
	offer    Offer // of a HELLO: that of the end that it goes to
	own      Offer // of a HELLO: that of the end that it comes from
	err      bool
	refusal  error // why the peer has refused the request; nil for a call that failed otherwise
	orphaned bool  // the caller does not wait any more
}

type move struct {
	kind string
	i    int
}

func (m move) String() string { return fmt.Sprintf("%s %d", m.kind, m.i) }

var names = [2]cluster.Task{{Job: "a"}, {Job: "b"}}

func testOffer(side int, incarnation uint64) Offer {
	return Offer{
		Task: names[side], Incarnation: incarnation, Version: Version, Link: verbs.LinkEthernet, GIDType: verbs.GIDTypeRoCEv2,
		Rails:  []Rail{{MTU: verbs.MTU1024, Endpoint: verbs.Endpoint{QPN: 17, GID: verbs.GID{10: 0xff, 11: 0xff, 12: 10, 15: byte(side + 1)}}}},
		Window: 64, ReceiveSize: 8192, EagerLimit: 4096, MaxMessage: 1 << 20,
	}
}

func newWorld(b budget, off string) *world {
	w := &world{left: b, off: off, now: time.Unix(1e6, 0), routes: b.reaches > 0}
	for i := range w.sides {
		w.start(i)
	}
	return w
}

func (w *world) start(i int) {
	w.procs++
	w.sides[i] = side{
		m:    New(Config{Self: testOffer(i, w.procs), Peer: names[1-i], Callable: i == 0 || !w.left.client, Lane: 1, Lanes: w.lanes()}),
		ends: map[uint64]*end{}, requests: map[uint64]message{}, wanted: false,
	}
	if w.off == "steps are bounded" {
		w.sides[i].m.maxStep = MaxGeneration
	}
}

// lanes is 3 in worlds with other routes, and else 0, as in a process with one device.
func (w *world) lanes() uint64 {
	if w.routes {
		return 3
	}
	return 0
}

// reach lets another route of a side take a generation above all that it knows.
func (w *world) reach(i int, generation uint64) {
	s := &w.sides[i]
	s.floor, s.floorOf = max(s.floor, generation), s.m.accepted
	if w.off != "offers are above those of other routes" {
		s.m.Reached(s.m.accepted, generation)
	}
}

func (w *world) copy() *world {
	n := *w
	n.net = slices.Clone(w.net)
	for i := range n.sides {
		s := &n.sides[i]
		m := *s.m
		m.pending = slices.Clone(m.pending)
		s.m, s.queue, s.requests = &m, slices.Clone(s.queue), maps.Clone(s.requests)
		s.ends = make(map[uint64]*end, len(s.ends))
		for g, e := range w.sides[i].ends {
			x := *e
			s.ends[g] = &x
		}
	}
	return &n
}

func short(o Offer) string {
	if o.IsIntroduction() {
		return fmt.Sprintf("%d", o.Incarnation)
	}
	return fmt.Sprintf("%d.%d.%d", o.Incarnation, o.Generation, o.Rails[0].PSN)
}

// state describes everything that the future of the world depends on.
func (w *world) state() string {
	var b strings.Builder
	rel := func(t time.Time) int64 {
		if t.IsZero() {
			return -1
		}
		return max(int64(t.Sub(w.now)), 0) + 1
	}
	fmt.Fprint(&b, w.left)
	for i := range w.sides {
		s := &w.sides[i]
		m := s.m
		_, reason := m.State()
		fmt.Fprint(&b, "|", s.wanted, s.without, m.phase, m.gen, short(m.own), short(m.peer), m.answered, m.helloReceived, rel(m.deadline), m.last, m.floors, s.floor, s.floorOf, s.unheard, m.stale, m.lastToAny, m.earlier, m.peerAhead, m.accepted,
			m.maintain, m.verify, rel(m.lastVerify.Add(CheckEvery)), m.call != 0, m.callAfterConnect, rel(m.callEnds), rel(m.nextCall), m.failures, reason != nil, rel(m.upSince.Add(Steady)), len(m.pending))
		fmt.Fprint(&b, s.used)
		for _, p := range m.pending {
			fmt.Fprint(&b, "p", short(p.offer))
		}
		for _, a := range s.queue {
			fmt.Fprint(&b, a.Kind, a.Generation, a.ID == m.id, short(a.Offer), a.Request, a.Call == m.call)
		}
		for _, g := range slices.Sorted(maps.Keys(s.ends)) {
			e := s.ends[g]
			fmt.Fprint(&b, "e", short(e.own), short(e.peer), e.connected, e.open, e.heard, e.doomed, e.broken)
		}
	}
	for _, x := range w.net {
		fmt.Fprint(&b, "n", string(x.kind), x.to, x.from, short(x.offer), x.offer.For, short(x.own), x.err, status.CodeOf(x.refusal), x.orphaned || x.kind == 'r' && x.call != w.sides[x.to].m.call)
	}
	return b.String()
}

// moves lists the possible next moves. The first inner ones are not faults.
func (w *world) moves() (all []move, inner int) {
	for i := range w.sides {
		if len(w.sides[i].queue) > 0 {
			all = append(all, move{"work", i})
		}
		for _, g := range slices.Sorted(maps.Keys(w.sides[i].ends)) {
			if e := w.sides[i].ends[g]; e.open && e.doomed && !e.broken {
				all = append(all, move{"notice", i})
				break
			}
		}
		if !w.sides[i].wanted {
			all = append(all, move{"want", i})
		}
		if w.sides[i].without {
			all = append(all, move{"resume", i})
		}
		if w.sides[i].unheard > 0 {
			all = append(all, move{"hear", i})
		}
	}
	for i := range w.net {
		all = append(all, move{"deliver", i})
	}
	inner = len(all)
	if w.left.ticks > 0 || inner == 0 {
		all = append(all, move{"tick", 0})
	}
	for i, x := range w.net {
		if x.kind != 'h' && w.left.losses > 0 {
			all = append(all, move{"lose", i})
		}
		if x.kind == 'q' && !x.orphaned && w.left.lates > 0 {
			all = append(all, move{"give up", i})
		}
		if x.kind == 'q' && w.left.doubles > 0 {
			all = append(all, move{"double", i})
		}
	}
	for i := range w.sides {
		if w.left.pushes > 0 && w.sides[i].m.accepted != 0 {
			all = append(all, move{"push", i})
		}
		if w.left.reaches > 0 && w.sides[i].m.accepted == w.sides[1-i].m.cfg.Self.Incarnation {
			all = append(all, move{"reach", i})
		}
		if w.left.restarts > 0 && w.sides[i].wanted {
			all = append(all, move{"restart", i})
		}
		if w.left.goes > 0 && !w.sides[i].without {
			all = append(all, move{"suspend", i})
		}
		if w.left.anew > 0 && w.sides[i].wanted {
			all = append(all, move{"anew", i})
		}
		if w.left.breaks > 0 && w.sides[i].m.phase == open {
			all = append(all, move{"break", i})
		}
		if w.left.fails > 0 && len(w.sides[i].queue) > 0 {
			all = append(all, move{cannot[w.sides[i].queue[0].Kind], i})
		}
	}
	return all, inner
}

// cannot is the move by which an action that takes time fails.
var cannot = map[Kind]string{Make: "cannot make", Connect: "cannot connect"}

func (w *world) violation(format string, args ...any) {
	if w.wrong == "" {
		w.wrong = fmt.Sprintf(format, args...)
	}
}

func (w *world) play(m move) {
	s := &w.sides[m.i%2]
	switch m.kind {
	case "want":
		w.sides[m.i].wanted = true
		w.take(m.i, w.sides[m.i].m.Maintain(w.now))
	case "work":
		w.work(m.i)
	case "cannot make", "cannot connect":
		w.left.fails--
		w.fail(m.i)
	case "notice", "break":
		for _, g := range slices.Sorted(maps.Keys(s.ends)) {
			if e := s.ends[g]; e.open && !e.broken && (e.doomed || m.kind == "break") {
				e.broken = true
				if m.kind == "break" {
					w.left.breaks--
				}
				w.take(m.i, s.m.Broken(w.now, g, status.New(status.Unavailable, "broken")))
				break
			}
		}
	case "tick":
		if w.left.ticks > 0 {
			w.left.ticks--
		}
		var next time.Time
		for i := range w.sides {
			if t := w.sides[i].m.Wake(); !t.IsZero() && (next.IsZero() || t.Before(next)) {
				next = t
			}
		}
		if !next.IsZero() && next.After(w.now) {
			w.now = next
		}
		for i := range w.sides {
			if t := w.sides[i].m.Wake(); !t.IsZero() && !t.After(w.now) {
				w.tick(i)
			}
		}
	case "reach":
		w.left.reaches--
		g := max(s.m.highest(), s.floor) + 1
		g += (2 + 3 - g%3) % 3
		w.reach(m.i, g)
		w.sides[1-m.i].unheard = g
	case "hear":
		g := s.unheard
		s.unheard = 0
		if s.m.accepted == w.sides[1-m.i].m.cfg.Self.Incarnation && g > max(s.m.highest(), s.floor) {
			w.reach(m.i, g) // else the other route makes another offer, or finds another process
		}
	case "push":
		w.left.pushes--
		o := testOffer(1-m.i, w.sides[m.i].m.accepted)
		o.Generation = MaxGeneration
		w.deliver(message{kind: 'q', to: m.i, offer: o, orphaned: true})
	case "restart":
		w.left.restarts--
		w.start(m.i)
		for _, e := range w.sides[1-m.i].ends {
			e.doomed = true
		}
	case "anew":
		w.left.anew--
		w.forgets = true
		w.anew(m.i)
	case "suspend":
		w.left.goes--
		w.suspend(m.i)
	case "resume":
		s.without = false
		if w.off != "a machine whose device is back makes channels" {
			w.take(m.i, s.m.Resume(w.now, s.m.cfg.Self))
		}
	case "deliver", "double":
		x := w.net[m.i]
		if m.kind == "double" {
			w.left.doubles--
			w.net[m.i].orphaned = true // nothing waits for the second response
		} else {
			w.net = slices.Delete(w.net, m.i, m.i+1)
		}
		w.deliver(x)
	case "give up":
		w.left.lates--
		x := w.net[m.i]
		w.net[m.i].orphaned = true
		w.failCall(x)
	case "lose":
		w.left.losses--
		x := w.net[m.i]
		w.net = slices.Delete(w.net, m.i, m.i+1)
		if x.kind == 'r' {
			w.deliver(message{kind: 'r', to: x.to, from: x.from, call: x.call, err: true})
		} else if !x.orphaned {
			w.failCall(x)
		}
	}
}

// anew ends a side's record of the peer, and makes another one: the peer has left the cluster and come back.
func (w *world) anew(i int) {
	s := &w.sides[i]
	for _, e := range s.ends {
		e.broken = true
	}
	acts := append(s.queue, s.m.End(w.now, status.New(status.Aborted, "it has left the cluster"))...)
	for _, a := range acts {
		if a.Kind != Make && a.Kind != Connect { // what an old record makes ends with it
			w.act(i, a)
		}
	}
	calls := s.m.calls
	s.m, s.queue, s.used, s.wanted = New(s.m.cfg), nil, nil, false // it does not know which generations there were
	s.m.calls = calls                                              // the outcome of a call of the old record is none of the new one's
	s.floor, s.floorOf, s.unheard = 0, 0, 0
}

// suspend takes a side's device away, with the queue pairs on it.
func (w *world) suspend(i int) {
	s := &w.sides[i]
	s.without = true
	for _, e := range s.ends {
		e.broken = true
		for _, o := range w.sides[1-i].ends {
			if o.peer.Equal(e.own) {
				o.doomed = true
			}
		}
	}
	call := s.m.call
	acts := s.m.Suspend(w.now, verbs.ErrDeviceGone)
	switch w.off {
	case "offers go with their device":
		acts = slices.DeleteFunc(acts, func(a Action) bool { return a.Kind == Destroy })
	case "requests are answered when the device goes":
		acts = slices.DeleteFunc(acts, func(a Action) bool { return a.Kind == Refuse })
	case "calls end with the device":
		s.m.call = call
	case "generations grow when the device goes":
		s.m.last = 0
	}
	w.take(i, acts)
}

func (w *world) failCall(x message) {
	w.deliver(message{kind: 'r', to: 1 - x.to, from: x.offer.Incarnation, call: x.call, err: true})
}

func (w *world) tick(i int) {
	m := w.sides[i].m
	if w.off == "HELLO in 10 s" && m.phase > offered {
		m.deadline = time.Time{}
	}
	w.take(i, m.Tick(w.now))
}

func (w *world) deliver(x message) {
	s := &w.sides[x.to]
	switch x.kind {
	case 'q':
		if w.off == "another incarnation is verified" {
			if s.m.accepted != x.offer.Incarnation && s.m.phase >= connecting && s.m.phase <= open {
				s.m.drop(status.New(status.Aborted, "the request has another incarnation"))
			}
			s.m.accepted = x.offer.Incarnation
		}
		s.lastReq++
		s.requests[s.lastReq] = x
		floors := s.m.floors
		if w.off == "a generation that another route has passed is a lower one" && x.offer.Generation > s.m.last {
			s.m.floors = [maxFloors]floor{}
		}
		acts := s.m.Request(w.now, s.lastReq, x.offer)
		s.m.floors = floors
		w.take(x.to, acts)
	case 'r':
		if x.from != s.m.cfg.Self.Incarnation {
			return // the process that called is gone
		}
		if w.off == "a response that ends a channel is younger than it" {
			s.m.callAfterConnect = true
		}
		if x.err {
			err := error(status.New(status.Unavailable, "lost"))
			if x.refusal != nil {
				err = status.Errorf(status.CodeOf(x.refusal), "%w", &status.Said{Peer: names[1-x.to].String(), Text: status.From(x.refusal).Message()})
			}
			w.take(x.to, s.m.CallDone(w.now, x.call, Offer{}, err))
			return
		}
		w.take(x.to, s.m.CallDone(w.now, x.call, x.offer, nil))
	case 'h':
		id, e := s.end(x.offer)
		switch {
		case e == nil || e.broken:
			w.doom(1-x.to, x.own)
		case !e.connected:
			w.violation("a HELLO came to %v, which is not connected", e.own)
		case !e.peer.Equal(x.own):
			w.violation("a HELLO of %v came to an end that is connected to %v", x.own, e.peer)
		default:
			e.heard = true
			w.take(x.to, s.m.Hello(w.now, id))
		}
	}
}

// end finds the end that an offer shows.
func (s *side) end(own Offer) (id uint64, e *end) {
	for id, e := range s.ends {
		if e.own.Equal(own) {
			return id, e
		}
	}
	return 0, nil
}

// doom records that the other end of a side's end is gone.
func (w *world) doom(i int, own Offer) {
	if _, e := w.sides[i].end(own); e != nil {
		e.doomed = true
	}
}

// take queues the actions of a machine, and carries out those that take no time.
func (w *world) take(i int, as []Action) {
	s := &w.sides[i]
	for _, a := range as {
		if a.Kind == Make && s.floorOf == s.m.accepted && a.Generation <= s.floor {
			w.violation("side %d makes generation %d, and another route has reached %d", i, a.Generation, s.floor)
		}
	}
	s.queue = append(s.queue, as...)
	for len(s.queue) > 0 && s.queue[0].Kind != Make && s.queue[0].Kind != Connect {
		a := s.queue[0]
		s.queue = s.queue[1:]
		w.act(i, a)
	}
	offers := 0
	for _, e := range s.ends {
		if !e.gone {
			offers++
		}
	}
	if offers > 1 {
		w.violation("side %d has %d offers at once", i, offers)
	}
}

func (w *world) act(i int, a Action) {
	s := &w.sides[i]
	switch a.Kind {
	case Destroy:
		e := s.ends[a.ID]
		if e == nil {
			w.violation("side %d destroys generation %d, which is not there", i, a.Generation)
			return
		}
		_, o := w.sides[1-i].end(e.peer)
		both := o != nil && e.connected && o.connected && o.own.Equal(e.peer) && o.peer.Equal(e.own)
		if both && e.heard && o.heard && !e.broken && !o.broken && !w.forgets {
			w.violation("side %d destroys a channel that works: %v", i, a)
		}
		if both {
			o.doomed = true
		}
		delete(s.ends, a.ID)
		if w.off == "generations grow" {
			s.m.last = 0
		}
	case Call:
		w.calls++
		w.net = append(w.net, message{kind: 'q', to: 1 - i, call: a.Call, offer: a.Offer})
	case Respond, Refuse:
		x, ok := s.requests[a.Request]
		if !ok {
			w.violation("side %d answers request %d twice", i, a.Request)
		}
		delete(s.requests, a.Request)
		bad := a.Kind == Refuse
		if w.off == "a lower generation gets the current offer" && a.Offer.Generation > x.offer.Generation {
			bad = true
		}
		if !x.orphaned {
			w.net = append(w.net, message{kind: 'r', to: 1 - i, from: x.offer.Incarnation, call: x.call, offer: a.Offer, err: bad, refusal: a.Err})
		}
	case Open:
		e := s.ends[a.ID]
		if e == nil || !e.connected || e.open {
			w.violation("side %d opens generation %d at the wrong time", i, a.Generation)
			return
		}
		e.open = true
		w.net = append(w.net, message{kind: 'h', to: 1 - i, from: e.own.Incarnation, offer: e.peer, own: e.own})
	}
}

// work carries out the first action of a queue, which takes time.
func (w *world) work(i int) {
	s := &w.sides[i]
	a := s.queue[0]
	s.queue = s.queue[1:]
	switch a.Kind {
	case Make:
		w.psn++
		o := testOffer(i, s.m.cfg.Self.Incarnation)
		o.Generation, o.Rails[0].PSN = a.Generation, verbs.PSN(w.psn)
		s.ends[a.ID] = &end{own: o, gone: a.ID != s.m.id}
		id := a.ID
		if w.off == "what was made on the device that went is destroyed" {
			id = s.m.id
		}
		w.take(i, s.m.Made(w.now, id, o))
	case Connect:
		e := s.ends[a.ID]
		if e == nil || e.connected {
			w.violation("side %d connects generation %d at the wrong time", i, a.Generation)
			return
		}
		e.connected, e.peer = true, a.Offer
		is := channelID{a.Offer.Incarnation, e.own.Generation}
		if slices.Contains(s.used, is) {
			w.violation("side %d connects generation %d with process %d twice", i, is.generation, is.peer)
		}
		s.used = append(slices.Clip(s.used), is)
		if _, o := w.sides[1-i].end(a.Offer); o == nil {
			e.doomed = true
		}
		if w.off == "send after the response" {
			s.m.answered = true
		}
		w.take(i, s.m.Connected(w.now, a.ID))
	}
}

// fail lets the first action of a queue, which takes time, fail.
func (w *world) fail(i int) {
	s := &w.sides[i]
	a := s.queue[0]
	s.queue = s.queue[1:]
	switch {
	case w.off == "a failure is reported":
		w.take(i, nil)
	case a.Kind == Make:
		w.take(i, s.m.MakeFailed(w.now, a.ID, status.New(status.ResourceExhausted, "no queue pair is left")))
	case a.Kind == Connect:
		w.take(i, s.m.ConnectFailed(w.now, a.ID, status.New(status.Unavailable, "no route to host")))
		if s.ends[a.ID] != nil {
			w.violation("side %d keeps generation %d, which it could not connect", i, a.Generation)
		}
	}
}

// connected reports whether there is one channel with both ends open.
func (w *world) connected() bool {
	for i := range w.sides {
		m, o := w.sides[i].m, w.sides[1-i].m
		if m.phase != open || !m.helloReceived || !m.peer.Equal(o.own) || w.sides[i].ends[m.id].doomed {
			return false
		}
	}
	return true
}

// settle runs a copy of the world on without faults. It must reach a channel with few
// calls.
func (w *world) settle() string {
	n := w.copy()
	n.left = budget{client: w.left.client}
	began, calls := n.now, n.calls
	for range 1000 {
		moves, inner := n.moves()
		if inner == 0 && n.connected() {
			if waits := len(n.sides[0].requests) + len(n.sides[1].requests); waits > 0 {
				return fmt.Sprintf("%d requests without an answer: %s", waits, n.state())
			}
			return ""
		}
		n.play(moves[0])
		if n.wrong != "" {
			return "without faults: " + n.wrong
		}
		if took := n.now.Sub(began); n.calls-calls > 12 || took > 2*time.Minute {
			return fmt.Sprintf("no channel without faults after %d calls in %v: %s", n.calls-calls, took, n.state())
		}
	}
	return "no channel without faults after 1000 moves: " + n.state()
}

func search(b budget, off string, limit int) (seen int, whole bool, violation string) {
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
		slices.Reverse(lines)
		return "\n" + strings.Join(lines, "\n")
	}
	first := &node{w: newWorld(b, off)}
	known := map[string]struct{}{first.w.state(): {}}
	for queue := []*node{first}; len(queue) > 0; queue = queue[1:] {
		n := queue[0]
		queue[0] = nil
		seen++
		if stuck := n.w.settle(); stuck != "" {
			return seen, false, stuck + story(n)
		}
		moves, inner := n.w.moves()
		if inner == 0 && n.w.connected() {
			moves = slices.DeleteFunc(moves, func(m move) bool { return m.kind == "tick" })
		}
		for _, m := range moves {
			w := n.w.copy()
			w.play(m)
			next := &node{w: w, from: n, by: m}
			if w.wrong != "" {
				return seen, false, w.wrong + story(next)
			}
			if s := w.state(); len(known) < limit {
				if _, ok := known[s]; !ok {
					known[s] = struct{}{}
					queue = append(queue, next)
				}
			}
		}
		n.w = nil
	}
	return seen, len(known) < limit, ""
}

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

func TestSimulationSearch(t *testing.T) {
	for name, b := range map[string]budget{
		"nothing goes wrong":       {},
		"a lost call":              {losses: 1, ticks: 1},
		"two lost calls":           {losses: 2},
		"a break":                  {breaks: 1},
		"two breaks":               {breaks: 2},
		"a restart":                {restarts: 1},
		"a restart and a late one": {restarts: 1, lates: 1},
		"both restart":             {restarts: 2},
		"a call that comes twice":  {doubles: 1, breaks: 1},
		"late, and a break":        {lates: 1, breaks: 1},
		"time passes":              {ticks: 2, lates: 1},
		"a failure, and a break":   {fails: 1, breaks: 1},
		"two failures":             {fails: 2, ticks: 1},
		"a failure and a restart":  {fails: 1, restarts: 1},
		"a client, and a failure":  {fails: 1, breaks: 1, client: true},
		"a client":                 {restarts: 1, breaks: 1, client: true},
		"a client, late":           {lates: 1, breaks: 1, ticks: 1, client: true},
		"a high generation":        {pushes: 1, breaks: 1},
		"and a restart":            {pushes: 1, restarts: 1, lates: 1},
		"late, and both restart":   {restarts: 2, lates: 1},
		"broken, and restarted":    {breaks: 2, restarts: 1},
		"a device goes":            {goes: 1, ticks: 1},
		"two devices go":           {goes: 2},
		"late, and a device goes":  {goes: 1, lates: 1},
		"it goes, after a break":   {goes: 1, breaks: 1},
		"it goes, and a restart":   {goes: 1, restarts: 1},
		"it goes, and a failure":   {goes: 1, fails: 1},
		"it goes, of a client":     {goes: 1, breaks: 1, client: true},
		"a record anew":            {anew: 1},
		"both records anew":        {anew: 2},
		"anew, and late":           {anew: 1, lates: 1, ticks: 1},
		"anew, and a break":        {anew: 1, breaks: 1},
		"anew, and a restart":      {anew: 1, restarts: 1},
		"anew, and a failure":      {anew: 1, fails: 1},
		"another route":            {reaches: 2},
		"another route, a break":   {reaches: 1, breaks: 1},
		"another, and a restart":   {reaches: 1, restarts: 1, lates: 1},
		"another, of a client":     {reaches: 1, restarts: 1, breaks: 1, client: true},
	} {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			seen, whole, violation := search(b, "", min(scaled(t, 8_000), searchLimit))
			if violation != "" {
				t.Error(violation)
			}
			t.Logf("%d worlds, all of them: %v, %v", seen, whole, time.Since(began).Round(time.Millisecond))
		})
	}
}

// TestRecordMadeAnewGetsAChannelAtOnce: a process whose offer the peer has connected to ends its record of the peer and
// makes another one, whose first offer is of the same generation. The peer, which waits for the HELLO of the first
// offer, refuses the other. The channel comes up long before that wait is over.
func TestRecordMadeAnewGetsAChannelAtOnce(t *testing.T) {
	for first := range 2 {
		w := newWorld(budget{anew: 1}, "")
		for _, m := range []move{
			{"want", first}, {"work", first}, {"deliver", 0}, // its offer is shown
			{"work", 1 - first}, {"work", 1 - first}, // the peer makes its own, and connects
		} {
			w.play(m)
		}
		if waits := w.sides[1-first].m; waits.phase != connected || w.sides[first].m.phase != offered {
			t.Fatalf("the peer is not connected: %s", w.state())
		}
		before := w.now
		w.play(move{"anew", first})
		for !w.connected() {
			moves, _ := w.moves()
			if w.play(moves[0]); w.wrong != "" {
				t.Fatal(w.wrong)
			}
			if took := w.now.Sub(before); took > HelloWait/2 {
				t.Fatalf("there is no channel after %v: %s", took, w.state())
			}
		}
	}
}

// Each rule is needed: without it the search finds a violation.
func TestSimulationEachRuleMatters(t *testing.T) {
	for rule, b := range map[string]budget{
		"send after the response":                                   {},
		"another incarnation is verified":                           {restarts: 1, lates: 1},
		"generations grow":                                          {breaks: 1, lates: 1, ticks: 1},
		"a response that ends a channel is younger than it":         {restarts: 1},
		"HELLO in 10 s":                                             {losses: 1, restarts: 1},
		"steps are bounded":                                         {pushes: 1},
		"a failure is reported":                                     {fails: 1},
		"a lower generation gets the current offer":                 {breaks: 1, restarts: 1, lates: 1, client: true},
		"offers go with their device":                               {goes: 1},
		"requests are answered when the device goes":                {goes: 1},
		"calls end with the device":                                 {goes: 1, lates: 1},
		"generations grow when the device goes":                     {goes: 1, lates: 1},
		"what was made on the device that went is destroyed":        {goes: 1},
		"a machine whose device is back makes channels":             {goes: 1},
		"offers are above those of other routes":                    {reaches: 1, breaks: 1},
		"a generation that another route has passed is a lower one": {reaches: 2, breaks: 1},
	} {
		t.Run(rule, func(t *testing.T) {
			seen, _, violation := search(b, rule, 60_000)
			if violation == "" {
				t.Fatalf("nothing was found in %d worlds", seen)
			}
			t.Logf("after %d worlds: %s", seen, violation)
		})
	}
}

func TestSimulationWalk(t *testing.T) {
	for range scaled(t, 200) {
		seed := rand.Uint64()
		rng := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // a test that can be repeated
		w := newWorld(budget{restarts: 20, breaks: 40, losses: 30, lates: 20, doubles: 20, fails: 30, goes: 20, anew: int(seed / 3 % 2 * 20), reaches: int(seed % 3 * 40), ticks: 1000, client: seed%4 == 0}, "")
		quiet := rng.IntN(5)
		for steps := 0; steps < 3000 && w.wrong == ""; steps++ {
			moves, inner := w.moves()
			if inner > 0 && rng.IntN(quiet+1) > 0 {
				moves = moves[:inner]
			}
			m := moves[rng.IntN(len(moves))]
			if busy := inner > 0 || len(w.net) > 0; !busy && m.kind != "tick" && rng.IntN(3) > 0 {
				continue // so that breaks and restarts happen while something is under way
			}
			w.play(m)
			w.now = w.now.Add(time.Duration(rng.IntN(int(20 * time.Millisecond))))
			if steps%50 == 0 && w.wrong == "" {
				w.wrong = w.settle()
			}
		}
		t.Logf("%d calls, %d offers, %d processes; left %+v", w.calls, w.psn, w.procs, w.left)
		if w.wrong != "" {
			t.Fatalf("seed %#x: %s", seed, w.wrong)
		}
	}
}
