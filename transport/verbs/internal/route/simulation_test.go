package route

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/handshake"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/verbs"
)

// The simulation runs two routers against each other, through all orders of the events between
// them: devices that come and go, routes that break or carry nothing, calls that are lost,
// processes that restart. The handshake is reduced to one call: whether it converges is the matter
// of its own search. TRYST_SIMULATION=n makes search and walk n times as large.

// world is both sides and the network between them. Nothing in it is concurrent.
type world struct {
	left    budget
	off     string // the rule that is switched off
	now     time.Time
	sides   [2]process
	dead    [TCP + 1]bool // routes that carry nothing
	net     []message
	ids     uint64 // of calls and channels so far
	procs   uint64
	calls   int
	changes int // that the routers may need time for: failures of a route, and silence
	wrong   string
}

// budget is how many faults may still happen.
type budget struct {
	comes, goes, breaks, dead, losses, restarts, ticks int
	forged                                             int  // calls of a stranger in the name of the peer
	client                                             bool // side 0 is a client, with no address
	kinds                                              int  // how many kinds each side has at first
}

type process struct {
	r      *Router
	has    [TCP + 1]bool
	wanted bool
	ch     [TCP + 1]half
	m      [TCP + 1]maker
	failed [TCP + 1]time.Time // when the route failed, to check the back-off; zero when forgiven
	of     uint64             // the process of the peer with which it failed
	times  [TCP + 1]int       // how often in a row

	newest uint64             // the latest inventory of the present process of the peer
	heard  [TCP + 1]time.Time // what the peer has shown of failed
}

// half is one side's end of a channel.
type half struct {
	id       uint64 // 0: none
	up       bool
	peer     uint64    // incarnation
	deadline time.Time // for the HELLO; zero when up
	doomed   error     // the other end is gone, and this is what this side notices
	since    time.Time // when it came up
}

// maker stands for the handshake machine of a kind.
type maker struct {
	maintain bool
	call     uint64 // under way
	next     time.Time
}

type message struct {
	kind  byte // 'q' call for a channel, 'a' call for the inventory, 'r' response to either
	to    int
	from  uint64 // incarnation of the caller
	call  uint64
	route Route
	side  Side
	ch    uint64
	err   error
	ask   bool // of a response: to an 'a'

	seq    uint64             // Serial of side, also when it does not show it
	sent   time.Time          // the call ends CallTimeout later
	failed [TCP + 1]time.Time // process.failed of the sender
}

type move struct {
	kind string
	i    int
	k    Route
}

func (m move) String() string { return fmt.Sprintf("%s %d %v", m.kind, m.i, m.k) }

func newWorld(b budget, off string) *world {
	w := &world{left: b, off: off, now: time.Unix(1e6, 0)}
	for i := range w.sides {
		for _, k := range Routes[len(Routes)-b.kinds:] {
			w.sides[i].has[k] = true
		}
		w.start(i)
	}
	return w
}

func (w *world) task(i int) cluster.Task {
	if i == 0 && w.left.client {
		return cluster.Task{Job: cluster.ClientJob, Index: 7}
	}
	return names[i]
}

func (w *world) own(i int) Side {
	var devices []handshake.Device
	for _, k := range Routes {
		if w.sides[i].has[k] {
			devices = append(devices, [...]handshake.Device{Shared: shared, Fabric: nic, TCP: tcp}[k])
		}
	}
	s := side(i, devices...)
	s.Task, s.Incarnation = w.task(i), w.sides[i].r.cfg.Own.Incarnation
	return s
}

// start starts a process with the devices that the side has.
func (w *world) start(i int) {
	w.procs++
	w.sides[i] = process{has: w.sides[i].has, r: New(Config{Peer: w.task(1 - i), Callable: i == 0 || !w.left.client})}
	r := w.sides[i].r
	r.cfg.Own = Side{Task: w.task(i), Incarnation: w.procs}
	r.cfg.Own = w.own(i)
	r.proposes = proposes(r.cfg.Own.Task, r.cfg.Peer)
}

func (w *world) copy() *world {
	n := *w
	n.net = slices.Clone(w.net)
	for i := range n.sides {
		r := *n.sides[i].r
		n.sides[i].r = &r
	}
	return &n
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
	age := func(t time.Time, limit time.Duration) int64 { return rel(t.Add(limit)) }
	side := func(s Side) {
		fmt.Fprint(&b, "s", s.Incarnation)
		if s.Inventory == nil {
			return
		}
		for _, d := range s.Devices {
			fmt.Fprint(&b, d.Link, d.FailedFor, ",")
		}
	}
	fmt.Fprint(&b, w.left, w.dead)
	for i := range w.sides {
		s := &w.sides[i]
		r := s.r
		fmt.Fprint(&b, "|", s.has, s.wanted, r.wanted, r.known, r.target, r.proposal, rel(r.differsFrom), rel(r.ownAfter), r.asking, r.askAgain, r.asking && r.heard, r.proven,
			age(r.lastAsk, MaxAskBackoff), rel(r.nextAsk), r.askFailures, r.askErr != nil)
		side(r.cfg.Own)
		side(r.peer)
		side(r.other)
		for _, k := range Routes {
			p := &r.paths[k]
			fmt.Fprint(&b, "p", p.up, p.leaving, p.count, rel(p.until), rel(p.peerUntil))
			if p.count > 0 {
				fmt.Fprint(&b, age(p.failedAt, ChangeBack))
			}
			if p.up {
				fmt.Fprint(&b, age(p.upSince, Steady))
			}
			c, m := &s.ch[k], &s.m[k]
			fmt.Fprint(&b, "c", c.id != 0, c.id == w.sides[1-i].ch[k].id, c.up, c.peer, rel(c.deadline), c.doomed != nil, m.maintain, m.call != 0, rel(m.next), s.times[k], age(s.failed[k], MaxBackoff))
		}
	}
	for _, x := range w.net {
		fmt.Fprint(&b, "n", age(x.sent, handshake.CallTimeout), string(x.kind), x.to, x.from, x.route, x.err != nil, x.ask, x.ch == w.sides[x.to].ch[x.route].id, x.call == w.sides[x.to].m[x.route].call)
		side(x.side)
		if v := w.sides[x.to].r.peer.Inventory; v != nil && x.side.Inventory != nil {
			fmt.Fprint(&b, x.side.Serial > v.Serial)
		}
	}
	return b.String()
}

// moves lists the possible next moves. The first inner ones are not faults.
func (w *world) moves() (all []move, inner int) {
	for i := range w.net {
		all = append(all, move{"deliver", i, None})
	}
	for i := range w.sides {
		s := &w.sides[i]
		if !s.wanted && (i == 0 || !w.left.client) {
			all = append(all, move{"want", i, None})
		}
		for _, k := range Routes {
			c, o := &s.ch[k], &w.sides[1-i].ch[k]
			switch {
			case c.doomed != nil:
				all = append(all, move{"notice", i, k})
			case c.id != 0 && !c.up && c.id == o.id && !w.dead[k]:
				all = append(all, move{"hello", i, k})
			}
			if w.mayCall(i, k) && !w.now.Before(s.m[k].next) {
				all = append(all, move{"call", i, k})
			}
		}
	}
	inner = len(all)
	if inner == 0 || w.left.ticks > 0 {
		all = append(all, move{"tick", 0, None})
	}
	for i := range w.net {
		if w.left.losses > 0 {
			all = append(all, move{"lose", i, None})
		}
	}
	for i := range w.sides {
		s := &w.sides[i]
		if w.left.forged > 0 && s.r.cfg.Callable {
			for _, k := range Routes {
				all = append(all, move{"forge", i, k})
			}
		}
		if w.left.restarts > 0 && s.wanted {
			all = append(all, move{"restart", i, None})
		}
		for _, k := range Routes {
			if w.left.comes > 0 && !s.has[k] {
				all = append(all, move{"come", i, k})
			}
			if w.left.goes > 0 && s.has[k] {
				all = append(all, move{"go", i, k})
			}
			if w.left.breaks > 0 && s.ch[k].up && s.ch[k].doomed == nil {
				all = append(all, move{"break", i, k})
			}
			if w.left.dead > 0 && i == 0 && !w.dead[k] {
				all = append(all, move{"die", i, k})
			}
		}
	}
	return all, inner
}

// mayCall reports whether the handshake of a kind would call the peer, if it is time.
func (w *world) mayCall(i int, k Route) bool {
	s := &w.sides[i]
	return s.m[k].maintain && s.ch[k].id == 0 && s.m[k].call == 0 && s.has[k] && (i == 0 || !w.left.client)
}

func (w *world) violation(format string, args ...any) {
	if w.wrong == "" {
		w.wrong = fmt.Sprintf(format, args...)
	}
}

var (
	errLost   = status.Errorf(status.Unavailable, "%w", &handshake.UnreachedError{Err: fmt.Errorf("lost")})
	errSilent = status.Errorf(status.DeadlineExceeded, "no message: %w", handshake.ErrNoPackets)
	errBroke  = status.New(status.Unavailable, "the channel broke")
	errOther  = status.New(status.Aborted, "the peer has left this channel for another one")
)

func said(i int, w *world, err error) error {
	return status.Errorf(status.CodeOf(err), "%w", &status.Said{Peer: w.task(i).String(), Text: status.From(err).Message()})
}

func (w *world) play(m move) {
	s := &w.sides[m.i%2]
	switch m.kind {
	case "want":
		s.wanted = true
		w.take(m.i, s.r.Want(w.now))
	case "deliver":
		x := w.net[m.i]
		w.net = slices.Delete(w.net, m.i, m.i+1)
		w.deliver(x)
	case "lose":
		w.left.losses--
		w.changes++
		x := w.net[m.i]
		w.net = slices.Delete(w.net, m.i, m.i+1)
		w.fail(x)
	case "call":
		w.ids++
		w.calls++
		s.m[m.k].call = w.ids
		w.net = append(w.net, message{kind: 'q', to: 1 - m.i, from: s.r.cfg.Own.Incarnation, call: w.ids, route: m.k, side: w.shown(m.i), failed: s.failed, seq: s.r.shown, sent: w.now})
	case "hello":
		c := &s.ch[m.k]
		c.up, c.deadline, c.since = true, time.Time{}, w.now
		s.failed[m.k], s.heard[m.k] = time.Time{}, time.Time{}
		w.take(m.i, s.r.Up(w.now, m.k, c.peer))
	case "notice":
		w.end(m.i, m.k, s.ch[m.k].doomed, nil)
	case "break":
		w.left.breaks--
		w.end(m.i, m.k, errBroke, errBroke)
	case "die":
		w.left.dead--
		w.dead[m.k] = true
		w.changes++
		for i := range w.sides {
			if w.sides[i].ch[m.k].up {
				w.sides[i].ch[m.k].doomed = errBroke
			}
		}
	case "come", "go":
		s.has[m.k] = m.kind == "come"
		if m.kind == "come" {
			w.left.comes--
		} else {
			w.left.goes--
			w.changes++
			if s.ch[m.k].id != 0 {
				w.end(m.i, m.k, verbs.ErrDeviceGone, errBroke)
			}
		}
		w.forgiven(m.k)
		w.take(m.i, s.r.Own(w.now, w.own(m.i)))
	case "restart":
		w.left.restarts--
		w.changes++
		for _, k := range Routes {
			if id := s.ch[k].id; id != 0 && w.sides[1-m.i].ch[k].id == id {
				w.sides[1-m.i].ch[k].doomed = errBroke
			}
		}
		w.start(m.i)
		for _, k := range Routes {
			w.forgiven(k)
		}
	case "forge":
		w.left.forged--
		w.changes++
		was := s.r.target
		proven := s.r.proven
		w.take(m.i, s.r.Asked(w.now, w.forged(m.i, m.k)))
		switch w.off {
		case "what a stranger takes away is asked for":
			s.r.askAgain = false
		case "what a stranger shows proves nothing":
			s.r.proven = proven || s.r.known
		}
		if s.r.proven && s.r.target == None && w.best() != None && !s.r.anyUp() && (!proven || was != None) {
			w.violation("side %d believes a stranger that no route reaches its peer", m.i)
		}
	case "tick":
		w.tick()
	}
}

// forged is what a stranger shows a side in the name of its peer: that it has no devices, that all have
// failed, or that it is another process. Its count of inventories is above every true one.
func (w *world) forged(i int, variant Route) Side {
	s := w.own(1 - i)
	switch variant {
	case Shared:
		s.Inventory = &handshake.Inventory{}
	case Fabric:
		c := *s.Inventory
		c.Devices = slices.Clone(c.Devices)
		for n := range c.Devices {
			c.Devices[n].FailedFor, c.Devices[n].FailedWhy = handshake.MaxFailedFor, "it is forged"
		}
		s.Inventory = &c
	default:
		s.Inventory, s.Incarnation = &handshake.Inventory{}, 1<<60
	}
	s.Serial = 1<<64 - 1
	return s
}

// forgiven records that a route may be tried at once: a device has changed.
func (w *world) forgiven(k Route) {
	for i := range w.sides {
		w.sides[i].failed[k], w.sides[i].times[k] = time.Time{}, 0
	}
}

// tick lets time pass until something is due.
func (w *world) tick() {
	if w.left.ticks > 0 {
		w.left.ticks--
	}
	var next time.Time
	due := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	for i := range w.sides {
		s := &w.sides[i]
		due(s.r.Wake())
		for _, k := range Routes {
			due(s.ch[k].deadline)
			if w.mayCall(i, k) {
				due(s.m[k].next)
			}
		}
		if w.left.client && i == 0 && s.r.known && s.r.mayImprove() && !s.r.askAgain {
			due(s.r.lastAsk.Add(RefreshEvery))
		}
	}
	for _, x := range w.net {
		due(x.sent.Add(handshake.CallTimeout))
	}
	if next.After(w.now) {
		w.now = next
	}
	for i := 0; i < len(w.net); {
		if x := w.net[i]; !w.now.Before(x.sent.Add(handshake.CallTimeout)) {
			w.net = slices.Delete(w.net, i, i+1)
			w.fail(x)
			i = 0
			continue
		}
		i++
	}
	for i := range w.sides {
		s := &w.sides[i]
		for _, k := range Routes {
			if d := s.ch[k].deadline; !d.IsZero() && !d.After(w.now) {
				w.changes++
				w.end(i, k, errSilent, errSilent)
			}
		}
		w.take(i, s.r.Tick(w.now))
		if w.left.client && i == 0 {
			w.take(i, s.r.Used(w.now))
		}
	}
}

// shown is what a side shows of itself in a call or a response.
func (w *world) shown(i int) Side {
	s := w.sides[i].r.cfg.Own
	s.Inventory = w.sides[i].r.Inventory(w.now)
	switch w.off {
	case "failures travel":
		s.Inventory = w.sides[i].r.cfg.Own.Inventory
	case "an older inventory is ignored":
		s.Serial = 0
	}
	return s
}

// end ends a side's half of a channel because of err. The other side notices theirs.
func (w *world) end(i int, k Route, err, theirs error) {
	s := &w.sides[i]
	c := s.ch[k]
	s.ch[k], s.m[k].call = half{}, 0 // what a call shows is gone with it
	if o := &w.sides[1-i].ch[k]; theirs != nil && o.id == c.id && o.doomed == nil {
		o.doomed = theirs
	}
	if c.up && w.now.Sub(c.since) >= Steady {
		s.times[k] = 0
	}
	s.m[k].next = w.now
	if err != nil && err != errOther { //nolint:errorlint // these very errors
		s.m[k].next = w.now.Add(time.Second)
	}
	w.down(i, k, err)
}

// down reports the end of a channel, or a failure to make one, to the router.
func (w *world) down(i int, k Route, err error) {
	s := &w.sides[i]
	r := s.r
	counts := false
	if err != nil && r.isOfRoute(err) && (k == r.target || r.paths[k].up) && !r.paths[k].leaving {
		counts = true
		s.failed[k] = w.now
		s.times[k]++
	}
	switch w.off {
	case "a peer that cannot be called is no failure of the route":
		if err != nil && !r.isOfRoute(err) && k == r.target {
			err = errBroke
		}
	}
	before := r.paths[k]
	acts := r.Down(w.now, k, err)
	if r.paths[k].count > before.count && !counts {
		w.violation("side %d takes for a failure of %v that the peer could not be called", i, k)
	}
	switch {
	case w.off == "a failed route waits" && r.paths[k].count > before.count:
		r.paths[k].until, r.paths[k].failedAt = w.now.Add(time.Millisecond), time.Time{}
	case w.off == "a change back waits":
		r.paths[k].failedAt = time.Time{}
	}
	w.take(i, acts)
}

// fail lets a call end without a response.
func (w *world) fail(x message) {
	i := x.to
	if x.kind != 'r' {
		i = 1 - x.to
	}
	w.deliver(message{kind: 'r', to: i, from: x.from, call: x.call, route: x.route, err: errLost, ask: x.ask || x.kind == 'a'})
}

func (w *world) deliver(x message) {
	s := &w.sides[x.to]
	r := s.r
	was := r.peer
	older := was.Inventory != nil && x.side.Inventory != nil && x.side.Incarnation == was.Incarnation && x.side.Serial != 0 && x.side.Serial <= was.Serial
	if x.err == nil && !older {
		s.heard = x.failed
	}
	answer := message{kind: 'r', to: 1 - x.to, from: x.from, call: x.call, route: x.route, ask: x.kind == 'a', sent: x.sent}
	if w.off == "another process does not replace the connected one" && x.kind != 'r' {
		r.learn(w.now, x.side, true)
	}
	switch x.kind {
	case 'a':
		w.take(x.to, r.Asked(w.now, x.side))
		answer.side, answer.failed, answer.seq = w.shown(x.to), s.failed, r.shown
		w.net = append(w.net, answer)
	case 'q':
		answer.ch, answer.err = w.request(x)
		answer.side, answer.failed, answer.seq = w.shown(x.to), s.failed, r.shown
		w.net = append(w.net, answer)
	case 'r':
		if x.from != r.cfg.Own.Incarnation {
			return // the process that called is gone
		}
		w.response(x)
	}
	if x.err == nil && r.peer.Inventory == x.side.Inventory {
		if x.seq < s.newest {
			w.violation("side %d takes the inventory %d for the present one after it has got %d", x.to, x.seq, s.newest)
		}
		s.newest, s.heard = x.seq, x.failed
	}
}

// request takes a call for a channel, as router and handshake do.
func (w *world) request(x message) (ch uint64, err error) {
	s := &w.sides[x.to]
	k := x.route
	acts, err := s.r.Request(w.now, x.side, k)
	if w.off == "the proposing side decides" && s.r.proposal != None {
		s.r.proposal = None
		acts = append(acts, s.r.done(w.now)...)
	}
	w.take(x.to, acts)
	if err == nil && s.r.peer.Incarnation == x.from && s.r.target != k {
		w.violation("side %d accepts a call for %v and maintains %v", x.to, k, s.r.target)
	}
	c, o := &s.ch[k], &w.sides[1-x.to].ch[k]
	switch {
	case err != nil:
		return 0, said(x.to, w, err)
	case !s.has[k]:
		return 0, said(x.to, w, status.New(status.FailedPrecondition, "there is no such device"))
	case c.id != 0 && c.peer == x.from && !c.up && c.doomed == nil:
		return c.id, nil // both call at once
	case c.id == 0 && s.m[k].call != 0 && o.id != 0 && !o.up && o.doomed == nil && o.peer == s.r.cfg.Own.Incarnation:
		s.ch[k] = half{id: o.id, peer: x.from, deadline: w.now.Add(handshake.HelloWait)} // likewise
		return o.id, nil
	case c.id != 0 && c.peer != x.from && c.peer == w.sides[1-x.to].r.cfg.Own.Incarnation:
		return 0, said(x.to, w, status.New(status.Aborted, "that process is gone"))
	case c.id != 0 && c.peer != x.from:
		// The handshake calls the peer's address to find out which process is there.
		c.doomed = status.New(status.Aborted, "the peer has restarted")
		return 0, said(x.to, w, status.Errorf(status.Unavailable, "who is it: %w", handshake.ErrNotKnown))
	case c.id != 0:
		w.end(x.to, k, errOther, errOther)
	}
	w.ids++
	s.ch[k] = half{id: w.ids, peer: x.from, deadline: w.now.Add(handshake.HelloWait)}
	return w.ids, nil
}

// response takes the end of a call.
func (w *world) response(x message) {
	s := &w.sides[x.to]
	if x.ask {
		if x.err == nil || w.off != "a call that failed is made again" {
			w.take(x.to, s.r.Answered(w.now, x.side, x.err))
		}
		return
	}
	m, c := &s.m[x.route], &s.ch[x.route]
	if m.call != x.call {
		return
	}
	m.call = 0
	if x.err != nil {
		m.next = w.now.Add(time.Second)
		if handshake.WillStay(w.task(x.to), x.err) {
			m.next = w.now.Add(handshake.MaxBackoff)
		}
		if !c.up { // else the peer has made the channel by a call of its own
			w.down(x.to, x.route, x.err)
		}
		return
	}
	w.take(x.to, s.r.Shown(w.now, x.side))
	switch {
	case c.id == x.ch:
	case c.id != 0: // the peer has called meanwhile, and that channel is the newer one
	case w.sides[1-x.to].ch[x.route].id != x.ch:
		m.next = w.now.Add(time.Second)
	case !s.has[x.route]:
	default:
		*c = half{id: x.ch, peer: x.side.Incarnation, deadline: w.now.Add(handshake.HelloWait)}
	}
}

// take carries out the actions of a router.
func (w *world) take(i int, acts []Action) {
	s := &w.sides[i]
	if is := s.r.peer.Incarnation; is != s.of { // a late call of an earlier process lets it forget, too
		s.of, s.newest, s.failed, s.times = is, 0, [TCP + 1]time.Time{}, [TCP + 1]int{}
		w.sides[1-i].failed, w.sides[1-i].times = s.failed, s.times
	}
	for _, k := range Routes {
		if s.r.paths[k].count == 0 { // it has learnt of a change
			s.failed[k], s.times[k] = time.Time{}, 0
		}
	}
	for _, a := range acts {
		switch a.Act {
		case Maintain:
			w.checkMaintain(i, a.Route)
			s.m[a.Route].maintain = true
		case Rest:
			s.m[a.Route].maintain = false
			if w.off == "the old channel stays until the new one is up" && s.ch[a.Route].up {
				w.leave(i, a.Route, s.r.leaving())
			}
		case Leave:
			if w.off != "the old channel is left when the new one is up" {
				w.leave(i, a.Route, a.Err)
			}
		case Ask:
			w.ids++
			w.calls++
			if w.off == "the peer hears of a change" && s.r.known {
				s.r.asking = false
				continue
			}
			w.net = append(w.net, message{kind: 'a', to: 1 - i, from: s.r.cfg.Own.Incarnation, call: w.ids, side: w.shown(i), failed: s.failed, seq: s.r.shown, sent: w.now})
		}
	}
	if c := s.ch[s.r.up()]; c.up && c.doomed == nil && c.peer == w.sides[1-i].r.cfg.Own.Incarnation && s.r.peer.Incarnation != c.peer {
		w.violation("side %d takes process %d for the peer, and is connected to process %d", i, s.r.peer.Incarnation, c.peer)
	}
	for i := range w.sides { // a router has at most one target, and its handshake is the only one that makes channels
		for _, k := range Routes {
			if w.sides[i].m[k].maintain != (w.sides[i].r.target == k) {
				w.violation("side %d maintains %v: %v, and its target is %v", i, k, w.sides[i].m[k].maintain, w.sides[i].r.target)
			}
		}
	}
}

func (w *world) leave(i int, k Route, err error) {
	s := &w.sides[i]
	if s.ch[k].id == 0 {
		return
	}
	if !slices.ContainsFunc(Routes[:], func(o Route) bool { return o != k && s.ch[o].up }) {
		w.violation("side %d leaves %v, and no other route is up", i, k)
	}
	w.end(i, k, nil, said(i, w, err))
}

// checkMaintain checks that a route that failed is not tried too early while another one is known
// to work.
func (w *world) checkMaintain(i int, k Route) {
	s, o := &w.sides[i], &w.sides[1-i]
	at, times := s.failed[k], s.times[k]
	if s.r.proposal != k && o.failed[k].After(at) && s.heard[k].Equal(o.failed[k]) {
		at, times = o.failed[k], o.times[k]
	}
	if at.IsZero() || s.ch[k].up {
		return
	}
	early := w.now.Sub(at)
	own, peer := s.r.sides(w.now)
	for _, other := range Routes {
		if other == k || Problem(own, peer, other) != "" {
			continue
		}
		if wait, _ := failure(&own, &peer, other); wait > 0 {
			continue
		}
		fresh := s.has[other] && o.has[other] && !w.dead[other] && s.failed[other].IsZero() && o.failed[other].IsZero()
		switch {
		case fresh && k < other && early < ChangeBack:
			w.violation("side %d goes back to %v after %v, and %v has not failed", i, k, early, other)
		case fresh && early < backoff(times):
			w.violation("side %d tries %v again after %v, for the %d. time", i, k, early, times)
		}
	}
}

// best is the kind by which both sides can reach each other in truth.
func (w *world) best() Route {
	for _, k := range Routes {
		if w.sides[0].has[k] && w.sides[1].has[k] && !w.dead[k] {
			return k
		}
	}
	return None
}

// settled reports whether both sides are connected by the best route, and by no other.
func (w *world) settled() bool {
	best := w.best()
	for i := range w.sides {
		s := &w.sides[i]
		for _, k := range Routes {
			if up := s.ch[k].up; up != (k == best) || up && s.ch[k].id != w.sides[1-i].ch[k].id {
				return false
			}
		}
		if best != None && s.r.target != best || len(w.net) > 0 {
			return false
		}
	}
	return true
}

// settle runs a copy of the world on without faults. It must get to the best route, with few
// calls, and within seconds if no route has failed.
func (w *world) settle() string {
	n := w.copy()
	n.left = budget{client: w.left.client}
	began, calls := n.now, n.calls
	var story []string
	for range 2000 {
		moves, inner := n.moves()
		if inner == 0 && n.settled() {
			return ""
		}
		story = append(story, fmt.Sprintf("%v: %v", n.now.Sub(began), moves[0]))
		n.play(moves[0])
		if n.wrong != "" {
			return "without faults: " + n.wrong + "\n  then " + strings.Join(story, "\n  then ") + "\nafter"
		}
		if took := n.now.Sub(began); took > n.patience() || n.calls-calls > 100 {
			return fmt.Sprintf("the best route, %v, is not up after %v and %d calls: %s\n  then %s\nafter", n.best(), took, n.calls-calls, n.state(),
				strings.Join(story[max(0, len(story)-50):], "\n  then "))
		}
	}
	return "the best route is not up after 2000 moves: " + n.state()
}

// patience is how long it may take to get to the best route: seconds, unless something has failed.
func (w *world) patience() time.Duration {
	limit := 15 * time.Second
	if w.changes > 0 {
		limit = time.Minute
	}
	for i := range w.sides {
		for _, k := range Routes {
			if n := w.sides[i].times[k]; n > 0 {
				limit = max(limit, 2*backoff(n+2)+time.Minute)
			}
		}
	}
	return limit
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
		if inner == 0 && n.w.settled() {
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
	worlds := 6_000
	if testing.Short() {
		worlds = 800
	}
	for name, b := range map[string]budget{
		"nothing goes wrong":          {kinds: 3},
		"one device":                  {kinds: 1, breaks: 1},
		"a break":                     {kinds: 2, breaks: 1},
		"two breaks":                  {kinds: 2, breaks: 2},
		"a better device comes":       {kinds: 1, comes: 2},
		"it comes and goes":           {kinds: 1, comes: 2, goes: 1},
		"a device goes":               {kinds: 2, goes: 1, comes: 1},
		"a route carries nothing":     {kinds: 2, dead: 1},
		"two routes carry nothing":    {kinds: 3, dead: 2},
		"a lost call":                 {kinds: 2, losses: 1, ticks: 1},
		"a lost call, and a break":    {kinds: 2, losses: 1, breaks: 1},
		"a restart":                   {kinds: 2, restarts: 1},
		"both restart":                {kinds: 2, restarts: 2},
		"a restart, a device comes":   {kinds: 1, restarts: 1, comes: 2},
		"a restart, and a break":      {kinds: 2, restarts: 1, breaks: 1},
		"time passes":                 {kinds: 2, breaks: 1, ticks: 3},
		"a forged inventory":          {kinds: 2, forged: 1},
		"forged, and a break":         {kinds: 2, forged: 1, breaks: 1},
		"a forged call to a client":   {kinds: 2, forged: 1, client: true},
		"a client":                    {kinds: 2, breaks: 1, client: true},
		"a client, a device comes":    {kinds: 1, comes: 2, client: true},
		"a client, and it restarts":   {kinds: 2, restarts: 1, client: true},
		"a client, a dead route":      {kinds: 2, dead: 1, losses: 1, client: true},
		"a dead route, and it breaks": {kinds: 3, dead: 1, breaks: 1},
	} {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			seen, whole, violation := search(b, "", min(worlds*effort(t), searchLimit))
			if violation != "" {
				t.Error(violation)
			}
			t.Logf("%d worlds, all of them: %v, %v", seen, whole, time.Since(began).Round(time.Millisecond))
		})
	}
}

// Each rule is needed: without it the search finds a violation.
func TestSimulationEachRuleMatters(t *testing.T) {
	for rule, b := range map[string]budget{
		"the old channel stays until the new one is up":           {kinds: 1, comes: 2},
		"the old channel is left when the new one is up":          {kinds: 1, comes: 2},
		"a failed route waits":                                    {kinds: 2, dead: 1},
		"a change back waits":                                     {kinds: 2, breaks: 1},
		"failures travel":                                         {kinds: 2, breaks: 1},
		"the peer hears of a change":                              {kinds: 1, comes: 2},
		"a call that failed is made again":                        {kinds: 1, losses: 1, client: true},
		"the proposing side decides":                              {kinds: 1, comes: 2},
		"another process does not replace the connected one":      {kinds: 2, restarts: 1},
		"an older inventory is ignored":                           {kinds: 1, comes: 2},
		"what a stranger takes away is asked for":                 {kinds: 2, forged: 1},
		"what a stranger shows proves nothing":                    {kinds: 2, forged: 1},
		"a peer that cannot be called is no failure of the route": {kinds: 2, losses: 1},
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
	for i := range scaled(t, 100) {
		seed := uint64(i) //nolint:gosec // not negative
		if i >= 100 {
			seed = rand.Uint64()
		}
		rng := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // a test that can be repeated
		w := newWorld(budget{comes: 40, goes: 40, breaks: 40, dead: 1, losses: 30, restarts: 10, ticks: 1000, forged: 20, client: seed%4 == 0, kinds: 1 + int(seed%3)}, "")
		quiet := rng.IntN(5)
		var story []string
		for steps := 0; steps < 2000 && w.wrong == ""; steps++ {
			moves, inner := w.moves()
			if inner > 0 && rng.IntN(quiet+1) > 0 {
				moves = moves[:inner]
			}
			m := moves[rng.IntN(len(moves))]
			story = append(story[max(0, len(story)-40):], fmt.Sprintf("%v: %v", w.now.Sub(time.Unix(1e6, 0)), m))
			w.play(m)
			w.now = w.now.Add(time.Duration(rng.IntN(int(20 * time.Millisecond))))
			if steps%50 == 0 && w.wrong == "" {
				w.wrong = w.settle()
			}
		}
		if w.wrong != "" {
			t.Fatalf("seed %#x: %s\nafter\n  %s", seed, w.wrong, strings.Join(story, "\n  "))
		}
	}
}
