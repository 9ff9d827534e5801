package channel

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/internal/wire"
	"github.com/tryst-rdma/tryst/verbs"
)

// pair is two channels that are connected. Messages are delivered at once and in order. The
// test decides how requests are answered.
type pair struct {
	t      testing.TB
	now    time.Time
	ends   [2]end
	trace  []string
	cut    bool // nothing is delivered any more
	manual bool // the test answers ActRequest and ActPlace
}

type end struct {
	ch       *Channel
	respond  func(Request) Response
	requests []Request
	ended    []Action
	whole    []int    // for each of ended, the destinations that were returned before
	freed    []uint64 // destinations
	dropped  []uint64 // sources
	places   []Action
	others   []Action // ActTaken, ActAcked, ActCancelled, ActDetach, ActClose, ActUp
	taken    Marks
	handle   uint64
	first    uint8 // rail on which its destinations begin
	hold     bool  // completions of sends are held back
	held     []uint32
}

func newPair(t testing.TB, change ...func(*Config)) *pair {
	p := &pair{t: t, now: time.Unix(1000, 0)}
	for i := range p.ends {
		cfg := Config{
			Peer: "/job:peer/replica:0/task:0", Generation: 3, OwnIncarnation: uint64(i) + 1, PeerIncarnation: uint64(2 - i),
			Rails: 1, Window: 16, PeerWindow: 16, Message: 12 << 10, PeerMessage: 12 << 10, Eager: 8 << 10, SendQueue: 64,
			Chunk: 64 << 10, Outstanding: 256 << 10,
		}
		for _, f := range change {
			f(&cfg)
		}
		ch, err := New(p.now, cfg)
		if err != nil {
			t.Fatal(err)
		}
		p.ends[i].ch = ch
		p.ends[i].respond = func(a Request) Response { t.Errorf("a request for %s", a.Key); return Response{} }
	}
	p.ends[0].ch.Ready(p.now)
	p.run()
	p.trace = nil
	for i := range p.ends {
		p.ends[i].others = nil
	}
	return p
}

// tickAndAct calls Tick when it is due, then Actions.
func tickAndAct(c *Channel, now time.Time) []Action {
	if at := c.Deadline(); !at.IsZero() && !now.Before(at) {
		c.Tick(now)
	}
	return c.Actions(now)
}

// run carries out actions until there are none.
func (p *pair) run() {
	for busy := true; busy; {
		busy = false
		for i := range p.ends {
			for _, a := range tickAndAct(p.ends[i].ch, p.now) {
				busy = true
				p.do(i, a)
			}
		}
	}
}

// wait advances the time by d, and runs at each deadline of either side.
func (p *pair) wait(d time.Duration) {
	for until := p.now.Add(d); ; {
		next := until
		for i := range p.ends {
			if at := p.ends[i].ch.Deadline(); !at.IsZero() && at.Before(next) {
				next = at
			}
		}
		if next.After(p.now) {
			p.now = next
		}
		p.run()
		if !p.now.Before(until) {
			return
		}
		stuck := true
		for i := range p.ends {
			if at := p.ends[i].ch.Deadline(); at.IsZero() || at.After(p.now) {
				continue
			}
			stuck = false
			p.t.Fatalf("side %d has a deadline that passes without effect", i)
		}
		_ = stuck
	}
}

func (p *pair) do(i int, a Action) {
	e := &p.ends[i]
	switch a.Kind {
	case ActEnd:
		a.Value = a.Value.Clone()
		a.Content = slices.Clone(a.Content)
		e.ended = append(e.ended, a)
		e.whole = append(e.whole, len(e.freed))
		if a.Outcome == OutcomeWritten {
			e.freed = append(e.freed, a.Dest)
		}
	case ActFree:
		e.freed = append(e.freed, a.Dest)
	case ActDrop:
		if a.Source.Handle != 0 {
			e.dropped = append(e.dropped, a.Source.Handle)
		}
	case ActPlace:
		a.Value = a.Value.Clone()
		e.places = append(e.places, a)
		if !p.manual {
			e.ch.Place(p.now, a.ID, a.Attempt, e.dest())
		}
	case ActRequest:
		a.Request.Key = slices.Clone(a.Request.Key)
		e.requests = append(e.requests, a.Request)
		if !p.manual {
			e.ch.Respond(p.now, a.Request.ID, a.Request.Attempt, e.respond(a.Request))
		}
	case ActPost:
		p.post(i, a.Post)
	case ActTaken:
		e.taken = a.Taken
		e.others = append(e.others, a)
	case ActRepost:
	default:
		a.IDs = slices.Clone(a.IDs)
		e.others = append(e.others, a)
	}
}

func (e *end) dest() Dest {
	e.handle++
	d := Dest{First: e.first, Handle: e.handle}
	for i := range d.Rails {
		d.Rails[i] = wire.Remote{Addr: e.handle<<48 + uint64(i)<<40, RKey: verbs.RKey(e.handle<<8) + verbs.RKey(i)} //nolint:gosec // small
	}
	return d
}

func (p *pair) post(i int, w Post) {
	p.trace = append(p.trace, describe(i, &w))
	if p.cut {
		return
	}
	to := p.ends[1-i].ch
	switch w.Op {
	case verbs.OpSend:
		to.Message(p.now, w.Rail, append(slices.Clone(w.Message), make([]byte, w.Length)...))
	case verbs.OpWriteImm:
		to.Imm(p.now, w.Rail, w.Imm)
	}
	if e := &p.ends[i]; w.Signaled && e.hold {
		e.held = append(e.held, w.Slot)
	} else if w.Signaled {
		e.ch.Sent(p.now, w.Rail, w.Slot)
	}
}

func describe(i int, w *Post) string {
	s := []string{">", "<"}[i]
	if w.Rail > 0 {
		s += fmt.Sprint(w.Rail)
	}
	switch {
	case w.Op == verbs.OpSend:
		kind, _ := wire.KindOf(w.Message)
		s += kind.String()
	case w.Length == 0:
		s += "PROBE"
	case w.Op == verbs.OpWrite:
		s += fmt.Sprintf("WRITE %d", w.Length)
	default:
		s += fmt.Sprintf("IMM %d", w.Length)
	}
	return s
}

// expect compares what was posted since the last call: ">" is from side 0, "<" from side 1.
func (p *pair) expect(want ...string) {
	p.t.Helper()
	if got := strings.Join(p.trace, ", "); got != strings.Join(want, ", ") {
		p.t.Errorf("posted: %s\nwant:   %s", got, strings.Join(want, ", "))
	}
	p.trace = nil
}

// receive starts a receive at side 0.
func (p *pair) receive(id uint64, key string) {
	e := &p.ends[0]
	r := Receive{ID: id, Attempt: 1, Responder: 2, Step: 1, Key: key}
	if v, ok := e.ch.CachedMeta(key); ok {
		d := e.dest()
		r.Early, r.Value = &d, v
	}
	e.ch.Receive(p.now, r)
}

// last returns the ActEnd of the last receive of side 0.
func (p *pair) last() Action {
	p.t.Helper()
	if len(p.ends[0].ended) == 0 {
		p.t.Fatal("no receive has ended")
	}
	return p.ends[0].ended[len(p.ends[0].ended)-1]
}

// respondWith makes side 1 respond with values of these sizes in turn.
func (p *pair) respondWith(sizes ...int64) {
	n := uint64(0)
	p.ends[1].respond = func(Request) Response {
		n++
		return Response{Value: valueOf(sizes[int(n-1)%len(sizes)]), Source: Source{Handle: n}}
	}
}

// clean checks that every receive, request, destination, slot and share is released.
func (p *pair) clean() {
	p.t.Helper()
	for i := range p.ends {
		e := &p.ends[i]
		if n := e.ch.receives.n; n > 0 {
			p.t.Errorf("side %d has %d receives left", i, n)
		}
		if n := e.ch.requests.n; n > 0 {
			p.t.Errorf("side %d has %d requests left", i, n)
		}
		if n := e.ch.shares.n; n > 0 {
			p.t.Errorf("side %d has %d shares left", i, n)
		}
		if got := len(slices.Compact(slices.Sorted(slices.Values(e.freed)))); got != len(e.freed) || uint64(got) != e.handle {
			p.t.Errorf("side %d returned destinations %v of %d", i, e.freed, e.handle)
		}
		if e.ch.slots.free.n != len(e.ch.slots.of) {
			p.t.Errorf("side %d has slots that are not free", i)
		}
		if e.ch.quarantined != 0 {
			p.t.Errorf("side %d has %d bytes in quarantine", i, e.ch.quarantined)
		}
	}
}

// closed returns the error of ActClose of a side, empty when there was none.
func (e *end) closed() string {
	for _, a := range e.others {
		if a.Kind == ActClose {
			return a.Err.Error()
		}
	}
	return ""
}
