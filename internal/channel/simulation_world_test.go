package channel

import (
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"slices"
	"time"

	"github.com/tryst-rdma/tryst/internal/wire"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/verbs"
)

// world is two channels with everything between and around them: on each side a shell with
// memory, a response cache and a completion queue, and between them a reliable, ordered
// wire in each direction of each rail. A move is something that can happen next; a search
// or a random walk chooses among the moves.
//
// Memory is modelled by page: a content of n pages has n marks, each the number of its
// value.
type world struct {
	cfg   *simConfig
	now   time.Time
	left  budget
	down  bool // the wires are broken
	sides [2]side
	wires [2][]simQueue // from each side, per rail

	staleImms []completion // WRITE_WITH_IMMs that have arrived at side 0
	posts     int          // that were made
	broken    string       // the first violation
}

type simQueue []packet

// packet is a work request in flight.
type packet struct {
	post    Post
	message []byte
	content byte // page marks of a write: all of one value
}

type simConfig struct {
	budget
	rails          int
	window         int
	window1        int     // of side 1; 0 is the same
	values         []int64 // contents in turn, in bytes; -1: dead, -2: an error, -3: fallback
	keys           int     // number of keys that the receives use in turn; 0 is 1
	both           bool    // both sides receive
	noEarly        bool    // no early destinations
	noMemory       bool    // there may be none: NoPlace and NotStaged are possible
	unregistered   bool    // contents are staged before they are written
	broken         rules
	maxOutstanding int64
}

func (c *simConfig) windowOf(side int) int {
	if side == 1 && c.window1 > 0 {
		return c.window1
	}
	return c.window
}

// rules are rules of a channel. A test breaks one to check that the search notices.
type rules struct {
	reserve    bool // the last credits are reserved for CREDIT
	order      bool // nothing is posted after CANCELLED
	generation bool // an imm fits the generation of its slot
	answer     bool // CREDIT is not answered by CREDIT
}

// budget is how many events from outside may still happen.
type budget struct{ receives, cancels, fails, breaks, byes, replays int }

type side struct {
	ch           *Channel
	posted       []int // receives posted, per rail
	cq           []completion
	recvs        []simReceive
	requests     []simRequest
	dests        []simDest
	values       []simValue // of the responder, by number-1
	ready        bool
	left         bool // its queue pairs are in ERR
	close        bool // after ActClose
	gone         bool
	acked        simSet // receives of this side that were said to be finished
	acksReceived simSet // those of the other side that were said here
	mark         Mark
}

type completion struct {
	sent    bool
	rail    int
	slot    uint32
	message []byte // of a receive; nil: imm
	imm     uint32
}

type simReceive struct {
	id        uint64
	key       string
	ended     int
	cancelled bool // Cancel returned true
	outcome   Outcome
	placing   bool
	size      uint64 // in bytes, while it is placing
	late      bool   // it began after the channel was left
}

type simRequest struct {
	id       uint64
	attempt  uint32
	answered bool
	canceled bool
	failed   bool
	staging  bool // after ActStage, before the answer
}

type simValue struct {
	id      uint64 // of the receive
	size    int64
	dropped bool
	over    uint8 // rails on which nothing more may be posted for it, one bit each
}

type simDest struct {
	id    uint64 // of its receive
	pages []byte
	free  bool
}

const simPage = 4096

var simKeys = [...]string{"key 0", "key 1", "another key", "key 3"}

// simSet is a set of receives.
type simSet [4]uint64

func (s *simSet) has(i int) bool { return s[i/64]&(1<<(i%64)) != 0 }
func (s *simSet) add(i int)      { s[i/64] |= 1 << (i % 64) }

// addrOf returns the address of a destination for the device of a rail.
func addrOf(dest, rail int) uint64 { return uint64(dest+1)<<32 + uint64(rail)<<24 }

func newWorld(cfg *simConfig) *world {
	w := &world{cfg: cfg, now: time.Unix(1, 0), left: cfg.budget}
	if cfg.maxOutstanding == 0 {
		cfg.maxOutstanding = 2 * simPage
	}
	for i := range w.sides {
		ch, err := New(w.now, Config{
			Peer: "the peer", Generation: 1, OwnIncarnation: uint64(i) + 1, PeerIncarnation: uint64(2 - i),
			Rails: cfg.rails, Window: cfg.windowOf(i), PeerWindow: cfg.windowOf(1 - i),
			Message: wire.MinMessage, PeerMessage: wire.MinMessage, Eager: 256, SendQueue: MinSendQueue,
			Chunk: simPage, Outstanding: cfg.maxOutstanding, MaxMetas: 4,
		})
		if err != nil {
			panic(err) //nolint:forbidigo // the test's own numbers
		}
		ch.stripe = simPage
		if cfg.broken.reserve {
			ch.reserve = 0
		}
		s := &w.sides[i]
		s.ch = ch
		for range cfg.rails {
			s.posted = append(s.posted, cfg.windowOf(i))
		}
		w.wires[i] = make([]simQueue, cfg.rails)
	}
	return w
}

func (w *world) fail(format string, args ...any) {
	if w.broken == "" {
		w.broken = fmt.Sprintf(format, args...)
	}
}

// copy returns a copy of which other moves can be played.
func (w *world) copy() *world {
	n := *w
	n.staleImms = slices.Clone(w.staleImms)
	for i := range n.sides {
		s := &n.sides[i]
		s.ch = s.ch.SearchCopy()
		s.posted, s.cq = slices.Clone(s.posted), slices.Clone(s.cq)
		s.recvs, s.requests, s.values = slices.Clone(s.recvs), slices.Clone(s.requests), slices.Clone(s.values)
		s.dests = slices.Clone(s.dests)
		for k := range s.dests {
			s.dests[k].pages = slices.Clone(s.dests[k].pages)
		}
		n.wires[i] = slices.Clone(n.wires[i])
		for k := range n.wires[i] {
			n.wires[i][k] = slices.Clone(n.wires[i][k])
		}
	}
	return &n
}

// state returns a hash of everything that later moves depend on.
func (w *world) state() [2]uint64 {
	b := make([]byte, 0, 1024)
	num := func(xs ...uint64) {
		for _, x := range xs {
			b = binary.AppendUvarint(b, x)
		}
	}
	flag := func(xs ...bool) {
		for _, x := range xs {
			if x {
				num(1)
			} else {
				num(0)
			}
		}
	}
	num(uint64(w.left.receives), uint64(w.left.cancels), uint64(w.left.fails), uint64(w.left.breaks), uint64(w.left.byes), uint64(w.left.replays), uint64(len(w.staleImms)))
	flag(w.down)
	for i := range w.sides {
		s := &w.sides[i]
		b = s.ch.AppendSearchState(b)
		flag(s.ready, s.left, s.close, s.gone)
		num(uint64(len(s.cq)))
		for _, c := range s.cq {
			flag(c.sent, c.message != nil)
			num(uint64(c.rail), uint64(c.imm))
			b = w.appendMessage(b, c.message, i)
			if c.sent {
				num((uint64(s.ch.rails[c.rail].slot) + MinSendQueue - uint64(c.slot)) % MinSendQueue)
			}
		}
		for _, n := range s.posted {
			num(uint64(n))
		}
		for _, r := range s.recvs {
			num(r.id, uint64(r.ended), uint64(r.outcome))
			flag(r.cancelled, r.placing, r.late)
		}
		for _, a := range s.requests {
			num(a.id)
			flag(a.answered, a.canceled, a.failed, a.staging)
		}
		for _, v := range s.values {
			num(uint64(v.size + 4))
			flag(v.dropped)
			num(uint64(v.over))
		}
		for _, d := range s.dests {
			flag(d.free)
			b = append(b, d.pages...)
		}
		for rail, q := range w.wires[i] {
			num(uint64(len(q)))
			for _, p := range q {
				num(uint64(p.post.Op), uint64(p.post.Imm), p.post.RemoteAddr, uint64(p.content),
					(uint64(s.ch.rails[rail].slot)+MinSendQueue-uint64(p.post.Slot))%MinSendQueue)
				flag(p.post.Signaled)
				b = w.appendMessage(b, p.message, 1-i)
			}
		}
	}
	return [2]uint64{maphash.Bytes(simSeed, b), maphash.Bytes(simSeed2, b)}
}

var simSeed, simSeed2 = maphash.MakeSeed(), maphash.MakeSeed()

// appendMessage encodes a message in flight to a side. Of its counts it has the differences
// to what that side has sent.
func (w *world) appendMessage(b, m []byte, to int) []byte {
	b = binary.AppendUvarint(b, uint64(len(m)))
	if len(m) < 12 {
		return b
	}
	b = append(b, m[:12]...)
	m, counts := m[12:], int(m[3])
	for i := range counts {
		b = binary.AppendUvarint(b, uint64(w.sides[to].ch.rails[i].sent-binary.LittleEndian.Uint32(m)))
		m = m[4:]
	}
	return append(b, m...)
}

// Moves.

type move struct {
	kind moveKind
	side int
	n    int
}

type moveKind uint8

const (
	moveReceive moveKind = iota
	moveCancel
	moveReady
	moveAnswer
	movePlace
	moveNoPlace
	moveDeliver
	movePoll
	moveTick
	moveBreak
	moveLeave
	moveDestroy
	moveBye
	moveReplay
	moveFail
	moveStage
	moveNoStage
)

var moveNames = [...]string{
	"receives", "cancels receive", "has its bootstrap answered", "responds to request", "places receive", "has no memory for receive",
	"sends the next packet on rail", "polls", "reaches its deadline", "breaks", "leaves", "destroys", "sends BYE", "gets again imm", "fails request", "stages request", "has no memory for request",
}

func (m move) String() string {
	return fmt.Sprintf("side %d %s %d", m.side, moveNames[m.kind], m.n)
}

// moves returns the moves that can happen next. The first inner moves need no event from
// outside.
func (w *world) moves() (all []move, inner int) {
	add := func(kind moveKind, side, n int) { all = append(all, move{kind, side, n}) }
	for i := range w.sides {
		s := &w.sides[i]
		if !s.ready {
			add(moveReady, i, 0)
		}
		for k := range s.requests {
			if !s.requests[k].answered {
				add(moveAnswer, i, k)
			}
			if s.requests[k].staging {
				add(moveStage, i, k)
				if w.cfg.noMemory {
					add(moveNoStage, i, k)
				}
			}
		}
		for k := range s.recvs {
			if s.recvs[k].placing {
				add(movePlace, i, k)
				if w.cfg.noMemory {
					add(moveNoPlace, i, k)
				}
			}
		}
		for rail := range w.wires[i] {
			if len(w.wires[i][rail]) > 0 && !w.sides[1-i].left {
				add(moveDeliver, i, rail)
			}
		}
		if len(s.cq) > 0 && !s.gone {
			add(movePoll, i, 0)
		}
		if !s.left && (w.down || s.close) {
			add(moveLeave, i, 0)
		}
		if s.left && !s.gone {
			add(moveDestroy, i, 0)
		}
		if at := s.ch.Deadline(); !at.IsZero() && at.Sub(w.now) <= 2*ackDelay {
			add(moveTick, i, 0)
		}
	}
	inner = len(all)
	for i := range w.sides {
		s := &w.sides[i]
		if i == 1 && !w.cfg.both {
			break
		}
		if w.left.receives > 0 && !s.gone {
			add(moveReceive, i, 0)
		}
		if w.left.cancels > 0 {
			for k := range s.recvs {
				if r := &s.recvs[k]; r.ended == 0 && !r.cancelled {
					add(moveCancel, i, k)
				}
			}
		}
	}
	for i := range w.sides {
		for k := range w.sides[i].requests {
			if w.left.fails > 0 && !w.sides[i].requests[k].failed {
				add(moveFail, i, k)
			}
		}
	}
	busy := len(w.sides[0].recvs)+len(w.sides[1].recvs) > 0
	if w.left.breaks > 0 && !w.down && busy {
		add(moveBreak, 0, 0)
	}
	if w.left.byes > 0 && busy {
		add(moveBye, 0, 0)
		add(moveBye, 1, 0)
	}
	if w.left.replays > 0 && w.sides[0].posted[0] > 0 && !w.sides[0].left {
		for i := range w.staleImms {
			add(moveReplay, 0, i)
		}
	}
	return all, inner
}

func (w *world) play(m move) {
	s := &w.sides[m.side]
	switch m.kind {
	case moveReceive:
		w.left.receives--
		w.receive(m.side)
	case moveCancel:
		w.left.cancels--
		r := &s.recvs[m.n]
		r.placing = false
		if r.cancelled = s.ch.Cancel(w.now, r.id, 1); !r.cancelled {
			w.fail("receive %d could not be cancelled, and has not ended", r.id)
		}
	case moveReady:
		s.ready = true
		s.ch.Ready(w.now)
	case moveAnswer:
		w.respond(m.side, m.n)
	case movePlace:
		r := &s.recvs[m.n]
		r.placing = false
		s.ch.Place(w.now, r.id, 1, w.dest(m.side, r.id, r.size))
	case moveNoPlace:
		s.recvs[m.n].placing = false
		s.ch.NoPlace(w.now, s.recvs[m.n].id, 1)
	case moveStage:
		a := &s.requests[m.n]
		a.staging = false
		s.values = append(s.values, simValue{id: a.id})
		s.ch.Staged(w.now, a.id, a.attempt, Source{Handle: uint64(len(s.values))})
	case moveNoStage:
		a := &s.requests[m.n]
		a.staging = false
		s.ch.NotStaged(w.now, a.id, a.attempt, status.New(status.ResourceExhausted, "no memory"))
	case moveDeliver:
		w.deliver(m.side, m.n)
		return
	case movePoll:
		w.poll(m.side)
	case moveTick:
		if at := s.ch.Deadline(); at.After(w.now) {
			w.now = at
		}
	case moveBreak:
		w.left.breaks--
		w.down = true
		return
	case moveLeave:
		s.left = true
		s.ch.Leave(w.now, fmt.Errorf("the queue pair broke"))
	case moveDestroy:
		for len(s.cq) > 0 {
			w.poll(m.side)
		}
		s.gone = true
		for i := range w.wires[1-m.side] {
			w.wires[1-m.side][i] = nil
		}
		for i := range w.wires[m.side] {
			w.wires[m.side][i] = nil
		}
		w.down = true
		s.ch.Destroyed(w.now)
	case moveFail:
		w.left.fails--
		a := &s.requests[m.n]
		a.failed = true
		s.ch.Fail(w.now, a.id, a.attempt, status.New(status.DataLoss, "given up"))
	case moveReplay: // an old last write arrives again
		w.left.replays--
		s.posted[0]--
		s.cq = append(s.cq, w.staleImms[m.n])
		return
	case moveBye:
		w.left.byes--
		s.ch.Bye(w.now, "that is all")
	}
	w.do(m.side)
}

func (w *world) receive(i int) {
	s := &w.sides[i]
	n := len(s.recvs)
	r := simReceive{id: uint64(n)*2 + uint64(i) + 1, key: simKeys[n%max(1, w.cfg.keys)], late: s.ch.State() >= Leaving}
	s.recvs = append(s.recvs, r)
	a := Receive{ID: r.id, Attempt: 1, Responder: uint64(2 - i), Step: 1, Key: r.key}
	if v, ok := s.ch.CachedMeta(r.key); ok && !w.cfg.noEarly {
		d := w.dest(i, r.id, v.Size)
		a.Early, a.Value = &d, v
	}
	for k := range s.recvs { // acknowledge what has arrived
		if s.recvs[k].ended == 1 && !s.acked.has(k) && s.recvs[k].outcome < OutcomeFallback {
			s.acked.add(k)
			a.Acks = append(a.Acks, s.recvs[k].id)
		}
	}
	s.ch.Receive(w.now, a)
}

func (w *world) dest(i int, id, size uint64) Dest {
	s := &w.sides[i]
	s.dests = append(s.dests, simDest{id: id, pages: make([]byte, (size+simPage-1)/simPage)})
	n := len(s.dests) - 1
	d := Dest{First: uint8(n % w.cfg.rails), Handle: uint64(n) + 1} //nolint:gosec // a rail
	for rail := range d.Rails {
		d.Rails[rail] = wire.Remote{Addr: addrOf(n, rail), RKey: verbs.RKey(rail) + 1} //nolint:gosec // a rail
	}
	return d
}

// valueOf returns the meta-data of a value of size bytes.
func valueOf(size int64) wire.Value {
	if size < 0 {
		return wire.Value{DType: tensor.Float32, Dead: true, Dims: wire.AppendDims(nil, 0)}
	}
	return wire.Value{DType: tensor.Uint8, Size: uint64(size), Dims: wire.AppendDims(nil, size)}
}

func (w *world) respond(i, n int) {
	s := &w.sides[i]
	a := &s.requests[n]
	a.answered = true
	if a.canceled {
		s.ch.Respond(w.now, a.id, a.attempt, Response{Err: status.New(status.Cancelled, "cancelled")})
		return
	}
	size := w.cfg.values[int(a.id-1)/2%len(w.cfg.values)]
	switch size {
	case -2, -3:
		s.ch.Respond(w.now, a.id, a.attempt, Response{Err: status.New(status.NotFound, "nothing"), Fallback: size == -3})
		return
	}
	s.values = append(s.values, simValue{id: a.id, size: size})
	s.ch.Respond(w.now, a.id, a.attempt, Response{Value: valueOf(size), Source: Source{Handle: uint64(len(s.values))}, Unregistered: w.cfg.unregistered})
}

// deliver delivers the next packet of a rail.
func (w *world) deliver(from, rail int) {
	q := w.wires[from][rail]
	p := q[0]
	w.wires[from][rail] = q[1:]
	to := &w.sides[1-from]
	if p.post.Op != verbs.OpWrite {
		if to.posted[rail] == 0 {
			w.fail("%v met an empty receive queue at side %d", &p.post, 1-from)
			return
		}
		to.posted[rail]--
	}
	if p.post.Op != verbs.OpSend && p.post.Length > 0 {
		d := int(p.post.RemoteAddr>>32) - 1
		page := (p.post.RemoteAddr & (1<<24 - 1)) / simPage
		switch {
		case p.post.RemoteAddr>>24&0xff != uint64(rail) || int(p.post.RKey) != rail+1:
			w.fail("%v goes to address %#x with key %v, which are not this rail's", &p.post, p.post.RemoteAddr, p.post.RKey)
			return
		case d < 0 || d >= len(to.dests) || page >= uint64(len(to.dests[d].pages)):
			w.fail("%v was written out of bounds", &p.post)
			return
		case to.dests[d].free:
			w.fail("%v was written into memory that was returned", &p.post)
			return
		}
		to.dests[d].pages[page] = p.content
	}
	if p.post.Op != verbs.OpWrite {
		c := completion{rail: rail, message: p.message, imm: p.post.Imm}
		to.cq = append(to.cq, c)
		if w.left.replays > 0 && from == 1 && p.message == nil {
			w.staleImms = append(w.staleImms, c)
		}
	}
	if s := &w.sides[from]; p.post.Signaled && !s.left {
		s.cq = append(s.cq, completion{sent: true, rail: rail, slot: p.post.Slot})
	}
}

func (w *world) poll(i int) {
	s := &w.sides[i]
	c := s.cq[0]
	s.cq = s.cq[1:]
	switch {
	case c.sent:
		s.ch.Sent(w.now, c.rail, c.slot)
	case c.message != nil:
		w.message(s, &c)
	default:
		imm := wire.Imm(c.imm)
		if n := imm.Slot(); w.cfg.broken.generation && int(n) < len(s.ch.slots.of) {
			imm = wire.NewImm(n, s.ch.slots.of[n].generation)
		}
		s.ch.Imm(w.now, c.rail, uint32(imm))
	}
	w.do(i)
}

// message passes a message to a channel, and breaks the rules of the configuration.
func (w *world) message(s *side, c *completion) {
	kind, _ := wire.KindOf(c.message)
	b := c.message
	var m wire.Cancel
	if w.cfg.broken.order && m.Parse(b) == nil {
		var others wire.IDs
		for _, id := range m.IDs.AppendTo(nil) {
			if r, ok := s.ch.requestsByID[id]; ok && s.ch.requests.at(r).state == requestWriting {
				s.ch.cancelledIDs.push(id) // and continue to write
				id = 1 << 60               // no receive
			}
			others = others.Append(id)
		}
		m.IDs = others
		b = m.Append(nil)
	}
	s.ch.Message(w.now, c.rail, b)
	if w.cfg.broken.answer && kind == wire.KindCredit && s.ch.State() == Up {
		s.ch.countsBy = w.now
	}
}

// do carries out the actions of a side.
func (w *world) do(i int) {
	s := &w.sides[i]
	reported := false
	for _, a := range tickAndAct(s.ch, w.now) {
		switch a.Kind {
		case ActEnd:
			w.end(i, &a)
		case ActFree:
			w.free(i, a.Dest)
		case ActRepost:
			if reported {
				w.fail("side %d reported receives before they were posted again", i)
			}
			s.posted[a.Rail] += a.Count
			if s.posted[a.Rail] > w.cfg.windowOf(i) {
				w.fail("side %d has %d receives posted", i, s.posted[a.Rail])
			}
		case ActPost:
			reported = reported || a.Post.Op == verbs.OpSend
			w.post(i, a.Post)
		case ActPlace:
			r := w.find(i, a.ID)
			r.placing, r.size = true, a.Value.Size
			if !w.cfg.noMemory {
				r.placing = false
				s.ch.Place(w.now, a.ID, a.Attempt, w.dest(i, a.ID, a.Value.Size))
				defer w.do(i)
			}
		case ActRequest:
			if r := w.find(1-i, a.Request.ID); string(a.Request.Key) != r.key {
				w.fail("side %d has a request for %q by receive %d, which is for %q", i, a.Request.Key, a.Request.ID, r.key)
			}
			s.requests = append(s.requests, simRequest{id: a.Request.ID, attempt: a.Request.Attempt})
		case ActStage:
			for k := range s.requests {
				if s.requests[k].id == a.ID {
					s.requests[k].staging = true
				}
			}
			s.values[a.Source.Handle-1].over = 0xff // no write may use it
		case ActDetach:
			for k := range s.requests {
				if s.requests[k].id == a.ID {
					s.requests[k].answered = true
				}
			}
		case ActDrop:
			if a.Source.Handle == 0 {
				continue
			}
			v := &s.values[a.Source.Handle-1]
			if v.dropped {
				w.fail("source %d was dropped twice", a.Source.Handle)
			}
			v.dropped = true
			for rail := range w.wires[i] {
				for _, p := range w.wires[i][rail] {
					if p.post.Op != verbs.OpSend && p.post.Source == a.Source && !s.gone {
						w.fail("source %d was dropped with a write in flight", a.Source.Handle)
					}
				}
			}
		case ActAcked:
			for _, id := range a.IDs.AppendTo(nil) {
				if s.acksReceived.has(int(id-1) / 2) {
					w.fail("receive %d was acknowledged twice", id)
				}
				s.acksReceived.add(int(id-1) / 2)
			}
		case ActCancelled:
			for _, id := range a.IDs.AppendTo(nil) {
				for k := range s.requests {
					if s.requests[k].id == id {
						s.requests[k].canceled = true
					}
				}
			}
		case ActClose:
			s.close = true
			if !w.down && w.left.byes == w.cfg.byes && w.left.replays == w.cfg.replays {
				w.fail("side %d closes: %v", i, a.Err)
			}
		}
	}
}

func (w *world) find(i int, id uint64) *simReceive {
	s := &w.sides[i]
	return &s.recvs[(id-1)/2]
}

func (w *world) post(i int, p Post) {
	s := &w.sides[i]
	if s.left {
		w.fail("side %d posted after it had left", i)
		return
	}
	if w.posts++; w.posts > 100+20*w.cfg.receives {
		w.fail("it never ends: %v", &p)
	}
	k := packet{post: p}
	if p.Op == verbs.OpSend {
		k.message = append(slices.Clone(p.Message), make([]byte, p.Length)...)
		if p.Length > 0 {
			k.message[len(k.message)-1] = byte(p.Source.Handle)
		}
		k.post.Message = nil
		w.over(i, p.Rail, k.message)
	} else if p.Length > 0 {
		v := &s.values[p.Source.Handle-1]
		switch {
		case v.dropped:
			w.fail("side %d wrote out of source %d, which was dropped", i, p.Source.Handle)
		case v.over&(1<<p.Rail) != 0:
			w.fail("side %d wrote for receive %d after the last of it on rail %d", i, v.id, p.Rail)
		}
		if p.Op == verbs.OpWriteImm {
			v.over |= 1 << p.Rail
		}
		k.content = byte(p.Source.Handle)
	}
	w.wires[i][p.Rail] = append(w.wires[i][p.Rail], k)
}

// over notes the messages after which nothing more may be posted for a receive.
func (w *world) over(i, rail int, b []byte) {
	end := func(id uint64, each bool) {
		for k := range w.sides[i].values {
			if v := &w.sides[i].values[k]; v.id == id && each {
				v.over |= 1 << rail
			} else if v.id == id {
				v.over = 0xff
			}
		}
	}
	var cancelled wire.Cancelled
	var failed wire.Error
	switch kind, _ := wire.KindOf(b); {
	case kind == wire.KindCancelled && cancelled.Parse(b) == nil:
		for _, id := range cancelled.IDs.AppendTo(nil) {
			end(id, cancelled.Each)
		}
	case kind == wire.KindError && failed.Parse(b) == nil:
		end(failed.ID, failed.Each)
	}
}

func (w *world) free(i int, dest uint64) {
	x := &w.sides[i].dests[dest-1]
	if x.free {
		w.fail("destination %d was returned twice", dest)
	}
	x.free = true
}

func (w *world) end(i int, a *Action) {
	s := &w.sides[i]
	r := w.find(i, a.ID)
	r.ended++
	r.placing = false
	r.outcome = a.Outcome
	switch {
	case r.ended > 1:
		w.fail("receive %d ended %d times", a.ID, r.ended)
	case r.cancelled:
		w.fail("receive %d ended after it was cancelled", a.ID)
	}
	want := w.cfg.values[int(a.ID-1)/2%len(w.cfg.values)]
	switch a.Outcome {
	case OutcomeEager, OutcomeWritten:
		if v := valueOf(want); want < -1 || !a.Value.Same(&v) {
			w.fail("receive %d ended with %v, want a value of %d bytes", a.ID, a.Value, want)
		}
	case OutcomeError:
		failed := false
		for _, k := range w.sides[1-i].requests {
			failed = failed || k.id == a.ID && k.failed
		}
		if failed = failed && status.CodeOf(a.Err) == status.DataLoss; want != -2 && !failed {
			w.fail("receive %d ended with %v", a.ID, a.Err)
		}
	case OutcomeFallback:
		if want != -3 && !w.cfg.noMemory {
			w.fail("receive %d ended with fallback: %v", a.ID, a.Err)
		}
	case OutcomeLost:
		if !s.gone && !r.late {
			w.fail("receive %d was lost before the queue pairs were destroyed", a.ID)
		}
	}
	for k := range s.dests {
		if d := &s.dests[k]; d.id == a.ID && !d.free && uint64(k)+1 != a.Dest { //nolint:gosec // few
			w.fail("receive %d ended before its destination %d was returned", a.ID, k+1)
		}
	}
	if a.Outcome == OutcomeWritten {
		d := &s.dests[a.Dest-1]
		for _, v := range d.pages {
			if v == 0 || v != d.pages[0] {
				w.fail("receive %d ended with pages %v", a.ID, d.pages)
				break
			}
		}
		w.free(i, a.Dest)
	}
	if a.Outcome <= OutcomeWritten && !s.gone && s.ch.State() == Up {
		k := int(a.ID-1) / 2
		if w.left.receives == 0 { // no request will follow that could carry it
			s.acked.add(k)
			s.mark = s.ch.Ack(w.now, []uint64{a.ID})
		}
	}
}

// checkQuiet checks a world without inner moves.
func (w *world) checkQuiet() {
	for i := range w.sides {
		s := &w.sides[i]
		for k := range s.recvs {
			if r := &s.recvs[k]; r.ended == 0 && !r.cancelled {
				w.fail("receive %d of side %d waits for ever", r.id, i)
			}
		}
		for k := range s.dests {
			if !s.dests[k].free {
				w.fail("destination %d of side %d was never returned", k+1, i)
			}
		}
		for k := range s.values {
			if !s.values[k].dropped {
				w.fail("source %d of side %d was never dropped", k+1, i)
			}
		}
		if n := s.ch.receives.n + s.ch.requests.n + s.ch.shares.n; n > 0 {
			w.fail("side %d still has %d records", i, n)
		}
		if n := s.ch.slots.free.n; n != len(s.ch.slots.of) {
			w.fail("side %d has %d of %d slots free", i, n, len(s.ch.slots.of))
		}
		if s.gone {
			continue
		}
		if s.ch.pending.acks.taken < s.mark {
			w.fail("side %d has no confirmation of its ACK", i)
		}
		if s.acked != w.sides[1-i].acksReceived && !w.sides[1-i].gone {
			w.fail("not all receives of side %d were acknowledged", i)
		}
		for rail, n := range s.posted {
			window, left := w.cfg.windowOf(i), s.ch.rails[rail].toRepost
			if n+left != window || left > window/repostPart {
				w.fail("side %d has %d receives posted on rail %d, and %d to post", i, n, rail, left)
			}
			if peer := w.cfg.windowOf(1 - i); s.ch.credits(rail) < peer-peer/2 {
				w.fail("side %d is left with %d credits on rail %d", i, s.ch.credits(rail), rail)
			}
		}
	}
}
