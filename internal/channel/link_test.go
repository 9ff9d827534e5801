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

// link is two channels that are connected. Messages are delivered at once and in order. The
// test decides how requests are answered.
type link struct {
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

func newLink(t testing.TB, change ...func(*Config)) *link {
	l := &link{t: t, now: time.Unix(1000, 0)}
	for i := range l.ends {
		cfg := Config{
			Peer: "/job:peer/replica:0/task:0", Generation: 3, OwnIncarnation: uint64(i) + 1, PeerIncarnation: uint64(2 - i),
			Rails: 1, Window: 16, PeerWindow: 16, Message: 12 << 10, PeerMessage: 12 << 10, Eager: 8 << 10, SendQueue: 64,
			Chunk: 64 << 10, Outstanding: 256 << 10,
		}
		for _, f := range change {
			f(&cfg)
		}
		ch, err := New(l.now, cfg)
		if err != nil {
			t.Fatal(err)
		}
		l.ends[i].ch = ch
		l.ends[i].respond = func(a Request) Response { t.Errorf("a request for %s", a.Key); return Response{} }
	}
	l.ends[0].ch.Ready(l.now)
	l.run()
	l.trace = nil
	for i := range l.ends {
		l.ends[i].others = nil
	}
	return l
}

// tickAndAct calls Tick when it is due, then Actions.
func tickAndAct(c *Channel, now time.Time) []Action {
	if at := c.Deadline(); !at.IsZero() && !now.Before(at) {
		c.Tick(now)
	}
	return c.Actions(now)
}

// run carries out actions until there are none.
func (l *link) run() {
	for busy := true; busy; {
		busy = false
		for i := range l.ends {
			for _, a := range tickAndAct(l.ends[i].ch, l.now) {
				busy = true
				l.do(i, a)
			}
		}
	}
}

// wait advances the time by d, and runs at each deadline of either side.
func (l *link) wait(d time.Duration) {
	for until := l.now.Add(d); ; {
		next := until
		for i := range l.ends {
			if at := l.ends[i].ch.Deadline(); !at.IsZero() && at.Before(next) {
				next = at
			}
		}
		if next.After(l.now) {
			l.now = next
		}
		l.run()
		if !l.now.Before(until) {
			return
		}
		stuck := true
		for i := range l.ends {
			if at := l.ends[i].ch.Deadline(); at.IsZero() || at.After(l.now) {
				continue
			}
			stuck = false
			l.t.Fatalf("side %d has a deadline that passes without effect", i)
		}
		_ = stuck
	}
}

func (l *link) do(i int, a Action) {
	e := &l.ends[i]
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
		if !l.manual {
			e.ch.Place(l.now, a.ID, a.Attempt, e.dest())
		}
	case ActRequest:
		a.Request.Key = slices.Clone(a.Request.Key)
		e.requests = append(e.requests, a.Request)
		if !l.manual {
			e.ch.Respond(l.now, a.Request.ID, a.Request.Attempt, e.respond(a.Request))
		}
	case ActPost:
		l.post(i, a.Post)
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

func (l *link) post(i int, p Post) {
	l.trace = append(l.trace, describe(i, &p))
	if l.cut {
		return
	}
	to := l.ends[1-i].ch
	switch p.Op {
	case verbs.OpSend:
		to.Message(l.now, p.Rail, append(slices.Clone(p.Message), make([]byte, p.Length)...))
	case verbs.OpWriteImm:
		to.Imm(l.now, p.Rail, p.Imm)
	}
	if e := &l.ends[i]; p.Signaled && e.hold {
		e.held = append(e.held, p.Slot)
	} else if p.Signaled {
		e.ch.Sent(l.now, p.Rail, p.Slot)
	}
}

func describe(i int, p *Post) string {
	s := []string{">", "<"}[i]
	if p.Rail > 0 {
		s += fmt.Sprint(p.Rail)
	}
	switch {
	case p.Op == verbs.OpSend:
		kind, _ := wire.KindOf(p.Message)
		s += kind.String()
	case p.Length == 0:
		s += "PROBE"
	case p.Op == verbs.OpWrite:
		s += fmt.Sprintf("WRITE %d", p.Length)
	default:
		s += fmt.Sprintf("IMM %d", p.Length)
	}
	return s
}

// expect compares what was posted since the last call: ">" is from side 0, "<" from side 1.
func (l *link) expect(want ...string) {
	l.t.Helper()
	if got := strings.Join(l.trace, ", "); got != strings.Join(want, ", ") {
		l.t.Errorf("posted: %s\nwant:   %s", got, strings.Join(want, ", "))
	}
	l.trace = nil
}

// receive starts a receive at side 0.
func (l *link) receive(id uint64, key string) {
	e := &l.ends[0]
	r := Receive{ID: id, Attempt: 1, Responder: 2, Step: 1, Key: key}
	if v, ok := e.ch.CachedMeta(key); ok {
		d := e.dest()
		r.Early, r.Value = &d, v
	}
	e.ch.Receive(l.now, r)
}

// last returns the ActEnd of the last receive of side 0.
func (l *link) last() Action {
	l.t.Helper()
	if len(l.ends[0].ended) == 0 {
		l.t.Fatal("no receive has ended")
	}
	return l.ends[0].ended[len(l.ends[0].ended)-1]
}

// respondWith makes side 1 respond with values of these sizes in turn.
func (l *link) respondWith(sizes ...int64) {
	n := uint64(0)
	l.ends[1].respond = func(Request) Response {
		n++
		return Response{Value: valueOf(sizes[int(n-1)%len(sizes)]), Source: Source{Handle: n}}
	}
}

// clean checks that every receive, request, destination, slot and share is released.
func (l *link) clean() {
	l.t.Helper()
	for i := range l.ends {
		e := &l.ends[i]
		if n := e.ch.receives.n; n > 0 {
			l.t.Errorf("side %d has %d receives left", i, n)
		}
		if n := e.ch.requests.n; n > 0 {
			l.t.Errorf("side %d has %d requests left", i, n)
		}
		if n := e.ch.shares.n; n > 0 {
			l.t.Errorf("side %d has %d shares left", i, n)
		}
		if got := len(slices.Compact(slices.Sorted(slices.Values(e.freed)))); got != len(e.freed) || uint64(got) != e.handle {
			l.t.Errorf("side %d returned destinations %v of %d", i, e.freed, e.handle)
		}
		if e.ch.slots.free.n != len(e.ch.slots.of) {
			l.t.Errorf("side %d has slots that are not free", i)
		}
		if e.ch.quarantined != 0 {
			l.t.Errorf("side %d has %d bytes in quarantine", i, e.ch.quarantined)
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
