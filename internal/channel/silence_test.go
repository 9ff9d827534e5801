package channel

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/internal/wire"
)

// open starts a receive that the responder knows and does not answer.
func (l *link) open(id uint64) {
	l.manual = true
	l.receive(id, "k")
	l.run()
	l.manual = false
	l.trace = nil
}

func TestIdleChannelPostsNothing(t *testing.T) {
	l := newLink(t)
	l.respondWith(10, 64<<10, 64<<10)
	for id := range uint64(3) {
		r := Receive{ID: id + 1, Attempt: 1, Responder: 2, Key: "k", Acks: []uint64{id + 100}}
		if v, ok := l.ends[0].ch.CachedMeta("k"); ok {
			d := l.ends[0].dest()
			r.Early, r.Value = &d, v
		}
		l.ends[0].ch.Receive(l.now, r)
		l.run()
	}
	l.expect(">REQUEST", "<EAGER", ">REQUEST", "<META", ">REREQUEST", "<IMM 65536", ">REQUEST", "<IMM 65536")
	l.wait(time.Hour)
	l.expect()
	for i := range l.ends {
		if at := l.ends[i].ch.Deadline(); !at.IsZero() {
			t.Errorf("side %d has a deadline in %v", i, at.Sub(l.now))
		}
	}
}

// TestProbeWhileSomethingIsOutstanding: both sides probe after each second of silence.
func TestProbeWhileSomethingIsOutstanding(t *testing.T) {
	l := newLink(t)
	l.open(1)
	l.wait(3500 * time.Millisecond)
	l.expect(">PROBE", "<PROBE", ">PROBE", "<PROBE", ">PROBE", "<PROBE")

	l = newLink(t)
	l.ends[1].ch.Watch(l.now, true)
	l.wait(1500 * time.Millisecond)
	l.expect("<PROBE")
	l.ends[1].ch.Watch(l.now, false)
	l.wait(10 * time.Second)
	l.expect()
}

// TestArrivalsDelayTheProbe: a message, a last write and a completion do.
func TestArrivalsDelayTheProbe(t *testing.T) {
	for what, comes := range map[string]func(*link){
		"a message": func(l *link) {
			m := wire.Credit{Header: wire.Header{Taken: wire.Counts{N: 1, Of: [wire.MaxRails]uint32{l.ends[0].ch.rails[0].confirmed}}}}
			l.ends[0].ch.Message(l.now, 0, m.Append(nil))
		},
		"a last write": func(l *link) { l.ends[0].ch.Imm(l.now, 0, uint32(wire.NewImm(0, 2))) },
		"a completion": func(l *link) { l.ends[0].ch.Sent(l.now, 0, (l.ends[0].ch.rails[0].slot+63)%64) },
	} {
		l := newLink(t)
		l.respondWith(64 << 10)
		l.receive(1, "k")
		l.run()
		l.open(2) // into slot 0, in its second use
		l.open(3)
		l.cut = true
		l.wait(probeAfter - time.Millisecond)
		l.expect()
		comes(l)
		l.wait(probeAfter - time.Millisecond)
		if slices.Contains(l.trace, ">PROBE") {
			t.Errorf("%s does not delay the probe", what)
		}
		l.wait(2 * time.Millisecond)
		if !slices.Contains(l.trace, ">PROBE") {
			t.Errorf("no probe %v after %s, %v", probeAfter, what, l.trace)
		}
		if why := l.ends[0].closed(); why != "" {
			t.Errorf("%s closed the channel: %s", what, why)
		}
	}
}

// TestProbeWhileAcksAreUnconfirmed: only the confirmation of an ACK or CANCEL is outstanding.
func TestProbeWhileAcksAreUnconfirmed(t *testing.T) {
	for what, says := range map[string]func(*Channel, time.Time){
		">ACK":    func(c *Channel, now time.Time) { c.Ack(now, []uint64{1}) },
		">CANCEL": func(c *Channel, now time.Time) { c.SendCancels(now, []uint64{1}) },
	} {
		l := newLink(t)
		l.cut = true
		says(l.ends[0].ch, l.now)
		l.run()
		l.expect(what)
		l.wait(probeAfter + time.Millisecond)
		l.expect(">PROBE")
	}
}

func TestProbeIsOneAtATime(t *testing.T) {
	l := newLink(t, func(c *Config) { c.Rails = 2 })
	l.open(1)
	l.ends[0].hold, l.ends[1].hold = true, true
	l.wait(10 * time.Second)
	l.expect(">PROBE", ">1PROBE", "<PROBE", "<1PROBE")
}

func TestQueryAfterLongSilence(t *testing.T) {
	l := newLink(t)
	l.open(1)
	l.wait(100 * time.Second)
	var messages []string
	for _, m := range l.trace {
		if !strings.HasSuffix(m, "PROBE") {
			messages = append(messages, m)
		}
	}
	l.trace = messages
	l.expect(">QUERY", "<WAITING", ">QUERY", "<WAITING", ">QUERY", "<WAITING")
	l.ends[1].ch.Respond(l.now, 1, 1, Response{Value: valueOf(5), Source: Source{Handle: 1}})
	l.run()
	if a := l.last(); a.Outcome != OutcomeEager {
		t.Errorf("ended with %v", a.Outcome)
	}
	l.clean()
}

// TestQueryOfLostRequestClosesTheChannel: the responder does not know it.
func TestQueryOfLostRequestClosesTheChannel(t *testing.T) {
	l := newLink(t)
	l.open(1)
	r := l.ends[1].ch.requestsByID[1]
	l.ends[1].ch.forget(r) // lost
	l.wait(31 * time.Second)
	if why := l.ends[0].closed(); !strings.Contains(why, "UNKNOWN for receive 0000000000000001, which is outstanding") {
		t.Errorf("closed: %q", why)
	}
}

// TestQueryWithoutReplyClosesTheChannel: the peer's device responds, the process does not.
func TestQueryWithoutReplyClosesTheChannel(t *testing.T) {
	l := newLink(t)
	l.open(1)
	l.cut = true // no message is delivered; writes still complete
	for range 45 {
		l.now = l.now.Add(time.Second)
		for _, a := range tickAndAct(l.ends[0].ch, l.now) {
			l.do(0, a)
			if a.Kind == ActPost && a.Post.Signaled {
				l.ends[0].ch.Sent(l.now, 0, a.Post.Slot)
			}
		}
	}
	if why := l.ends[0].closed(); !strings.Contains(why, "has not answered QUERY for receive 0000000000000001 within 10s") {
		t.Errorf("closed: %q", why)
	}
}

// TestOnlyTickChecksTimeouts: a process that was stopped may process local events and old
// completions before the messages that have arrived meanwhile.
func TestOnlyTickChecksTimeouts(t *testing.T) {
	for name, reads := range map[string]bool{"its word is read before": true, "there is none": false} {
		l := newLink(t)
		l.open(1)
		l.cut = true
		l.now = l.now.Add(queryAfter)
		l.run() // QUERY
		l.now = l.now.Add(2 * queryTime)
		l.receive(2, "k")
		ch := l.ends[0].ch
		for _, a := range ch.Actions(l.now) {
			l.do(0, a)
		}
		if why := l.ends[0].closed(); why != "" {
			t.Errorf("%s: closed by an event: %s", name, why)
		}
		if reads {
			ch.Message(l.now, 0, listMessage(wire.KindWaiting, 1, ch.rails[0].confirmed, 1))
		}
		ch.Tick(l.now)
		for _, a := range ch.Actions(l.now) {
			l.do(0, a)
		}
		if why := l.ends[0].closed(); (why == "") != reads {
			t.Errorf("%s: closed: %q", name, why)
		}
	}
}

// TestQueryWhileContentIsWritten: the responder answers WAITING.
func TestQueryWhileContentIsWritten(t *testing.T) {
	l := newLink(t)
	l.respondWith(64 << 10)
	l.ends[1].hold = true // the last write is not confirmed
	l.receive(1, "k")
	l.run()
	l.trace = nil
	l.ends[1].ch.Message(l.now, 0, listMessage(wire.KindQuery, 1, l.ends[0].ch.rails[0].taken, 1))
	l.run()
	l.expect("<WAITING")
}

// TestWantCountsWithoutCredits: there is no credit for the CREDIT that the peer requests. The
// channel has no deadline for it meanwhile.
func TestWantCountsWithoutCredits(t *testing.T) {
	l := newLink(t)
	l.open(1)
	l.cut = true
	c := l.ends[1].ch
	c.rails[0].sent = c.rails[0].confirmed + 16
	m := wire.Ack{}
	m.WantCounts, m.Taken, m.IDs = true, wire.Counts{N: 1, Of: [wire.MaxRails]uint32{c.rails[0].confirmed}}, wire.IDs(nil).Append(1)
	c.Message(l.now, 0, m.Append(nil))
	l.run()
	l.now = l.now.Add(2 * CountsDelay)
	l.run()
	if at := c.Deadline(); !at.After(l.now) {
		t.Errorf("the deadline was %v ago", l.now.Sub(at))
	}
	m.WantCounts, m.Taken.Of[0] = false, c.rails[0].confirmed+16
	c.Message(l.now, 0, m.Append(nil))
	l.run()
	l.expect("<CREDIT")
}

// TestQueryWithoutCredits: a QUERY that waits for a credit is sent when one arrives. Until
// then the channel has no deadline for it.
func TestQueryWithoutCredits(t *testing.T) {
	l := newLink(t)
	l.open(1)
	l.cut = true
	c := l.ends[0].ch
	c.rails[0].sent = c.rails[0].confirmed + 16
	for i := range l.ends {
		l.ends[i].ch.rails[0].probing = true // without probes
	}
	l.now = l.now.Add(queryAfter + time.Second)
	l.run()
	if at := c.Deadline(); !at.After(l.now) {
		t.Errorf("the deadline was %v ago", l.now.Sub(at))
	}
	c.Message(l.now, 0, listMessage(wire.KindAck, 1, c.rails[0].sent, 1))
	l.run()
	l.expect(">QUERY")
}

func TestNoHelloInTime(t *testing.T) {
	now := time.Unix(1000, 0)
	c, err := New(now, newLink(t).ends[0].ch.cfg)
	if err != nil {
		t.Fatal(err)
	}
	c.Ready(now)
	if acts := c.Actions(now); len(acts) != 1 || acts[0].Kind != ActPost {
		t.Errorf("%d actions, want HELLO", len(acts))
	}
	if at := c.Deadline(); at != now.Add(helloTime) {
		t.Errorf("deadline in %v", at.Sub(now))
	}
	acts := tickAndAct(c, now.Add(helloTime))
	if len(acts) != 1 || acts[0].Kind != ActClose || c.State() != Leaving {
		t.Errorf("%v", acts)
	}
}

// TestQuarantineIsBounded in time and in bytes.
func TestQuarantineIsBounded(t *testing.T) {
	cancelled := func(l *link, id uint64) {
		l.ends[0].ch.Cancel(l.now, id, 1)
		for _, a := range tickAndAct(l.ends[0].ch, l.now) {
			l.do(0, a)
		}
	}
	begin := func(limit int64) *link {
		l := newLink(t, func(c *Config) { c.QuarantineBytes = limit })
		l.respondWith(64 << 10)
		l.receive(1, "k")
		l.run()
		l.open(2)
		l.open(3)
		l.cut = true
		return l
	}
	l := begin(1 << 20)
	cancelled(l, 2)
	cancelled(l, 3)
	l.now = l.now.Add(quarantineTime - time.Millisecond)
	l.run()
	if why := l.ends[0].closed(); why != "" {
		t.Fatalf("closed: %s", why)
	}
	l.now = l.now.Add(time.Millisecond)
	l.run()
	if why := l.ends[0].closed(); !strings.Contains(why, "has not confirmed the cancel of receive 0000000000000002") {
		t.Errorf("closed: %q", why)
	}
	if n := len(l.ends[0].freed); n != 1 {
		t.Errorf("%d destinations were returned before the queue pairs were destroyed", n)
	}
	l.ends[0].ch.Destroyed(l.now)
	l.run()
	if n := len(l.ends[0].freed); n != 3 {
		t.Errorf("%d destinations were returned", n)
	}

	l = begin(128 << 10) // as much as both
	cancelled(l, 2)
	cancelled(l, 3)
	if why := l.ends[0].closed(); why != "" {
		t.Fatalf("closed: %s", why)
	}

	l = begin(100 << 10)
	cancelled(l, 2)
	if why := l.ends[0].closed(); why != "" {
		t.Fatalf("closed: %s", why)
	}
	cancelled(l, 3)
	if why := l.ends[0].closed(); !strings.Contains(why, "131072 bytes, the limit is 102400") {
		t.Errorf("closed: %q", why)
	}
}

// TestMetaEndsTheQuarantine: after META the peer does not write into the early destination.
// It is returned at once and does not wait for CANCELLED.
func TestMetaEndsTheQuarantine(t *testing.T) {
	l := newLink(t)
	l.respondWith(64 << 10)
	l.receive(1, "k")
	l.run()
	l.open(2) // with a destination
	l.cut = true
	c := l.ends[0].ch
	c.Cancel(l.now, 2, 1)
	if c.quarantined != 64<<10 {
		t.Fatalf("%d bytes in quarantine", c.quarantined)
	}
	m := wire.Meta{Header: wire.Header{Taken: wire.Counts{N: 1, Of: [wire.MaxRails]uint32{c.rails[0].confirmed}}}, ID: 2, Value: valueOf(1 << 20)}
	c.Message(l.now, 0, m.Append(nil))
	l.run()
	if n := len(l.ends[0].freed); c.quarantined != 0 || n != 2 {
		t.Errorf("%d bytes in quarantine, and %d destinations were returned", c.quarantined, n)
	}
	l.wait(quarantineTime + time.Second)
	if why := l.ends[0].closed(); why != "" {
		t.Errorf("closed: %s", why)
	}
	c.Message(l.now, 0, listMessage(wire.KindCancelled, 2, c.rails[0].confirmed, 1))
	if _, known := c.byID[2]; known || c.quarantined != 0 {
		t.Errorf("the receive is left after CANCELLED, with %d bytes in quarantine", c.quarantined)
	}
}

// TestCancelledReceiveWithoutDestination: it occupies no memory, so it waits for CANCELLED
// for stallTime.
func TestCancelledReceiveWithoutDestination(t *testing.T) {
	l := newLink(t)
	l.open(1)
	l.cut = true
	l.ends[0].ch.Cancel(l.now, 1, 1)
	l.wait(stallTime - time.Second)
	if why := l.ends[0].closed(); why != "" {
		t.Fatalf("closed: %s", why)
	}
	l.wait(time.Second)
	if why := l.ends[0].closed(); !strings.Contains(why, "has not confirmed the cancel of receive 0000000000000001") {
		t.Errorf("closed: %q", why)
	}
}

// TestContentThatArrivesDelaysTheQuery: the last write on one of its rails has arrived.
func TestContentThatArrivesDelaysTheQuery(t *testing.T) {
	l := newLink(t, func(c *Config) { c.Rails = 2 })
	l.ends[0].ch.stripe, l.ends[1].ch.stripe = 64<<10, 64<<10
	l.respondWith(128 << 10)
	l.receive(1, "k")
	l.run()
	l.open(2)
	l.cut = true
	queried := func() bool { return slices.Contains(l.trace, ">QUERY") }
	l.wait(queryAfter - time.Second)
	l.ends[0].ch.Imm(l.now, 1, uint32(wire.NewImm(0, 2)))
	l.wait(queryAfter - time.Second)
	if queried() {
		t.Error("QUERY was sent")
	}
	if l.wait(2 * time.Second); !queried() {
		t.Error("QUERY was not sent, although nothing more has arrived")
	}
}

// TestPeerThatTakesNothing: messages wait for credits, and nothing else is outstanding.
func TestPeerThatTakesNothing(t *testing.T) {
	l := newLink(t, func(c *Config) { c.Window, c.PeerWindow = 4, 4 })
	l.cut = true
	for id := range uint64(10) {
		l.receive(id+1, "k")
	}
	l.run()
	began := l.now
	for l.ends[0].closed() == "" && l.now.Sub(began) < time.Hour {
		if at := l.ends[0].ch.Deadline(); at.After(l.now) {
			l.now = at
		} else {
			l.now = l.now.Add(time.Millisecond)
		}
		for _, a := range tickAndAct(l.ends[0].ch, l.now) {
			l.do(0, a)
			if a.Kind == ActPost && a.Post.Op != 0 {
				l.ends[0].ch.Sent(l.now, 0, a.Post.Slot)
			}
		}
	}
	if why := l.ends[0].closed(); why == "" || l.now.Sub(began) > stallTime {
		t.Errorf("closed after %v: %q", l.now.Sub(began), why)
	}
}

// TestSlowPeerKeepsItsChannel: it takes a response now and then, while more wait.
func TestSlowPeerKeepsItsChannel(t *testing.T) {
	l := newLink(t, func(c *Config) { c.Window, c.PeerWindow = 4, 4 })
	for id := range uint64(100) {
		l.open(id + 1)
	}
	l.cut = true
	c := l.ends[1].ch
	for id := range uint64(100) {
		c.Respond(l.now, id+1, 1, Response{Value: valueOf(5), Source: Source{Handle: id + 1}})
	}
	does := func() {
		for _, a := range tickAndAct(c, l.now) {
			l.do(1, a)
		}
	}
	does()
	for i := range 20 {
		for range int(stallTime/time.Second) - 1 {
			l.now = l.now.Add(time.Second)
			does()
		}
		c.Message(l.now, 0, appendList(wire.KindAck, wire.Header{Taken: wire.Counts{N: 1, Of: [wire.MaxRails]uint32{c.rails[0].confirmed + 1}}}, wire.IDs(nil).Append(1)))
		does()
		if why := l.ends[1].closed(); why != "" {
			t.Fatalf("closed after %d: %s", i, why)
		}
	}
}

// TestContentWaitsForCreditsInVain: the peer takes nothing any more, its device still
// acknowledges probes, and a last write waits, on either rail.
func TestContentWaitsForCreditsInVain(t *testing.T) {
	for rail := range 2 {
		l := newLink(t, func(c *Config) { c.Rails, c.Window, c.PeerWindow = 2, 4, 4 })
		l.respondWith(64 << 10)
		l.ends[0].first = uint8(rail) //nolint:gosec // a rail
		l.receive(1, "k")
		l.run()
		l.manual = true
		for id := range uint64(10) {
			l.receive(id+2, "k")
			l.run()
		}
		l.cut = true
		c := l.ends[1].ch
		began := l.now
		for id := range uint64(10) {
			c.Respond(l.now, id+2, 1, Response{Value: valueOf(64 << 10), Source: Source{Handle: id + 2}})
		}
		for c.State() == Up && l.now.Sub(began) < time.Hour {
			l.now = l.now.Add(500 * time.Millisecond)
			for _, a := range tickAndAct(c, l.now) {
				l.do(1, a)
				if a.Kind == ActPost && a.Post.Signaled {
					c.Sent(l.now, a.Post.Rail, a.Post.Slot)
				}
			}
		}
		if why := l.ends[1].closed(); !strings.HasPrefix(why, "DeadlineExceeded: ") || !strings.Contains(why, fmt.Sprintf("it has taken nothing from rail %d", rail)) || l.now.Sub(began) > stallTime+time.Second {
			t.Errorf("closed after %v: %q", l.now.Sub(began), why)
		}
	}
}

func TestBye(t *testing.T) {
	l := newLink(t)
	l.open(1)
	l.ends[0].ch.Ack(l.now, []uint64{7})
	l.ends[0].ch.Bye(l.now, "shutdown")
	l.run()
	l.expect(">ACK", ">BYE")
	if why := l.ends[0].closed(); why != "closed here: shutdown" {
		t.Errorf("closed: %q", why)
	}
	if why := l.ends[1].closed(); !strings.HasSuffix(why, `task:0 says: "shutdown"`) {
		t.Errorf("the peer closed: %q", why)
	}
}

// TestByeThatCannotBeSent: the channel closes nevertheless.
func TestByeThatCannotBeSent(t *testing.T) {
	l := newLink(t)
	l.open(1)
	l.ends[0].hold, l.cut = true, true
	l.ends[0].ch.Bye(l.now, "shutdown")
	l.run()
	l.expect(">BYE")
	l.wait(byeTime)
	if why := l.ends[0].closed(); why == "" {
		t.Error("not closed")
	}
}

// TestPeerThatNeverSendsTheDestination: the channel closes when META is not answered in time.
func TestPeerThatNeverSendsTheDestination(t *testing.T) {
	l := newLink(t)
	l.ends[1].respond = func(a Request) Response { return Response{Value: valueOf(64 << 10), Source: Source{Handle: a.ID}} }
	l.manual = true
	l.receive(1, "k")
	l.run()
	l.ends[1].ch.Respond(l.now, 1, 1, l.ends[1].respond(Request{ID: 1}))
	l.run()
	met := l.now
	l.wait(destTime - time.Millisecond)
	if why := l.ends[1].closed(); why != "" {
		t.Fatalf("closed after %v: %s", l.now.Sub(met), why)
	}
	l.wait(time.Millisecond)
	if why := l.ends[1].closed(); !strings.Contains(why, "has not sent the destination of receive 0000000000000001 within 40s") {
		t.Errorf("closed after %v: %q", l.now.Sub(met), why)
	}
}
