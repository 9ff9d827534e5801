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
func (p *pair) open(id uint64) {
	p.manual = true
	p.receive(id, "k")
	p.run()
	p.manual = false
	p.trace = nil
}

func TestIdleChannelPostsNothing(t *testing.T) {
	p := newPair(t)
	p.respondWith(10, 64<<10, 64<<10)
	for id := range uint64(3) {
		r := Receive{ID: id + 1, Attempt: 1, Responder: 2, Key: "k", Acks: []uint64{id + 100}}
		if v, ok := p.ends[0].ch.CachedMeta("k"); ok {
			d := p.ends[0].dest()
			r.Early, r.Value = &d, v
		}
		p.ends[0].ch.Receive(p.now, r)
		p.run()
	}
	p.expect(">REQUEST", "<EAGER", ">REQUEST", "<META", ">REREQUEST", "<IMM 65536", ">REQUEST", "<IMM 65536")
	p.wait(time.Hour)
	p.expect()
	for i := range p.ends {
		if at := p.ends[i].ch.Deadline(); !at.IsZero() {
			t.Errorf("side %d has a deadline in %v", i, at.Sub(p.now))
		}
	}
}

// TestProbeWhileSomethingIsOutstanding: both sides probe after each second of silence.
func TestProbeWhileSomethingIsOutstanding(t *testing.T) {
	p := newPair(t)
	p.open(1)
	p.wait(3500 * time.Millisecond)
	p.expect(">PROBE", "<PROBE", ">PROBE", "<PROBE", ">PROBE", "<PROBE")

	p = newPair(t)
	p.ends[1].ch.Watch(p.now, true)
	p.wait(1500 * time.Millisecond)
	p.expect("<PROBE")
	p.ends[1].ch.Watch(p.now, false)
	p.wait(10 * time.Second)
	p.expect()
}

// TestProbeAtOnceInDoubt: it does not wait for silence.
func TestProbeAtOnceInDoubt(t *testing.T) {
	p := newPair(t)
	p.ends[1].ch.Doubt(p.now)
	p.wait(time.Millisecond)
	p.expect("<PROBE")
	p.wait(probeAfter - 2*time.Millisecond)
	p.expect()
}

// TestArrivalsDelayTheProbe: a message, a last write and a completion do.
func TestArrivalsDelayTheProbe(t *testing.T) {
	for what, comes := range map[string]func(*pair){
		"a message": func(p *pair) {
			m := wire.Credit{Header: wire.Header{Taken: wire.Counts{N: 1, Of: [wire.MaxRails]uint32{p.ends[0].ch.rails[0].confirmed}}}}
			p.ends[0].ch.Message(p.now, 0, m.Append(nil))
		},
		"a last write": func(p *pair) { p.ends[0].ch.Imm(p.now, 0, uint32(wire.NewImm(0, 2))) },
		"a completion": func(p *pair) { p.ends[0].ch.Sent(p.now, 0, (p.ends[0].ch.rails[0].slot+63)%64) },
	} {
		p := newPair(t)
		p.respondWith(64 << 10)
		p.receive(1, "k")
		p.run()
		p.open(2) // into slot 0, in its second use
		p.open(3)
		p.cut = true
		p.wait(probeAfter - time.Millisecond)
		p.expect()
		comes(p)
		p.wait(probeAfter - time.Millisecond)
		if slices.Contains(p.trace, ">PROBE") {
			t.Errorf("%s does not delay the probe", what)
		}
		p.wait(2 * time.Millisecond)
		if !slices.Contains(p.trace, ">PROBE") {
			t.Errorf("no probe %v after %s, %v", probeAfter, what, p.trace)
		}
		if why := p.ends[0].closed(); why != "" {
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
		p := newPair(t)
		p.cut = true
		says(p.ends[0].ch, p.now)
		p.run()
		p.expect(what)
		p.wait(probeAfter + time.Millisecond)
		p.expect(">PROBE")
	}
}

func TestProbeIsOneAtATime(t *testing.T) {
	p := newPair(t, func(c *Config) { c.Rails = 2 })
	p.open(1)
	p.ends[0].hold, p.ends[1].hold = true, true
	p.wait(10 * time.Second)
	p.expect(">PROBE", ">1PROBE", "<PROBE", "<1PROBE")
}

func TestQueryAfterLongSilence(t *testing.T) {
	p := newPair(t)
	p.open(1)
	p.wait(100 * time.Second)
	var messages []string
	for _, m := range p.trace {
		if !strings.HasSuffix(m, "PROBE") {
			messages = append(messages, m)
		}
	}
	p.trace = messages
	p.expect(">QUERY", "<WAITING", ">QUERY", "<WAITING", ">QUERY", "<WAITING")
	p.ends[1].ch.Respond(p.now, 1, 1, Response{Value: valueOf(5), Source: Source{Handle: 1}})
	p.run()
	if a := p.last(); a.Outcome != OutcomeEager {
		t.Errorf("ended with %v", a.Outcome)
	}
	p.clean()
}

// TestQueryOfLostRequestClosesTheChannel: the responder does not know it.
func TestQueryOfLostRequestClosesTheChannel(t *testing.T) {
	p := newPair(t)
	p.open(1)
	r := p.ends[1].ch.requestsByID[1]
	p.ends[1].ch.forget(r) // lost
	p.wait(31 * time.Second)
	if why := p.ends[0].closed(); !strings.Contains(why, "UNKNOWN for receive 0000000000000001, which is outstanding") {
		t.Errorf("closed: %q", why)
	}
}

// TestQueryWithoutReplyClosesTheChannel: the peer's device responds, the process does not.
func TestQueryWithoutReplyClosesTheChannel(t *testing.T) {
	p := newPair(t)
	p.open(1)
	p.cut = true // no message is delivered; writes still complete
	for range 45 {
		p.now = p.now.Add(time.Second)
		for _, a := range tickAndAct(p.ends[0].ch, p.now) {
			p.do(0, a)
			if a.Kind == ActPost && a.Post.Signaled {
				p.ends[0].ch.Sent(p.now, 0, a.Post.Slot)
			}
		}
	}
	if why := p.ends[0].closed(); !strings.Contains(why, "has not answered QUERY for receive 0000000000000001 within 10s") {
		t.Errorf("closed: %q", why)
	}
}

// TestOnlyTickChecksTimeouts: a process that was stopped may process local events and old
// completions before the messages that have arrived meanwhile.
func TestOnlyTickChecksTimeouts(t *testing.T) {
	for name, reads := range map[string]bool{"its word is read before": true, "there is none": false} {
		p := newPair(t)
		p.open(1)
		p.cut = true
		p.now = p.now.Add(queryAfter)
		p.run() // QUERY
		p.now = p.now.Add(2 * queryTime)
		p.receive(2, "k")
		ch := p.ends[0].ch
		for _, a := range ch.Actions(p.now) {
			p.do(0, a)
		}
		if why := p.ends[0].closed(); why != "" {
			t.Errorf("%s: closed by an event: %s", name, why)
		}
		if reads {
			ch.Message(p.now, 0, listMessage(wire.KindWaiting, 1, ch.rails[0].confirmed, 1))
		}
		ch.Tick(p.now)
		for _, a := range ch.Actions(p.now) {
			p.do(0, a)
		}
		if why := p.ends[0].closed(); (why == "") != reads {
			t.Errorf("%s: closed: %q", name, why)
		}
	}
}

// TestQueryWhileContentIsWritten: the responder answers WAITING.
func TestQueryWhileContentIsWritten(t *testing.T) {
	p := newPair(t)
	p.respondWith(64 << 10)
	p.ends[1].hold = true // the last write is not confirmed
	p.receive(1, "k")
	p.run()
	p.trace = nil
	p.ends[1].ch.Message(p.now, 0, listMessage(wire.KindQuery, 1, p.ends[0].ch.rails[0].taken, 1))
	p.run()
	p.expect("<WAITING")
}

// TestWantCountsWithoutCredits: there is no credit for the CREDIT that the peer requests. The
// channel has no deadline for it meanwhile.
func TestWantCountsWithoutCredits(t *testing.T) {
	p := newPair(t)
	p.open(1)
	p.cut = true
	c := p.ends[1].ch
	c.rails[0].sent = c.rails[0].confirmed + 16
	m := wire.Ack{}
	m.WantCounts, m.Taken, m.IDs = true, wire.Counts{N: 1, Of: [wire.MaxRails]uint32{c.rails[0].confirmed}}, wire.IDs(nil).Append(1)
	c.Message(p.now, 0, m.Append(nil))
	p.run()
	p.now = p.now.Add(2 * CountsDelay)
	p.run()
	if at := c.Deadline(); !at.After(p.now) {
		t.Errorf("the deadline was %v ago", p.now.Sub(at))
	}
	m.WantCounts, m.Taken.Of[0] = false, c.rails[0].confirmed+16
	c.Message(p.now, 0, m.Append(nil))
	p.run()
	p.expect("<CREDIT")
}

// TestQueryWithoutCredits: a QUERY that waits for a credit is sent when one arrives. Until
// then the channel has no deadline for it.
func TestQueryWithoutCredits(t *testing.T) {
	p := newPair(t)
	p.open(1)
	p.cut = true
	c := p.ends[0].ch
	c.rails[0].sent = c.rails[0].confirmed + 16
	for i := range p.ends {
		p.ends[i].ch.rails[0].probing = true // without probes
	}
	p.now = p.now.Add(queryAfter + time.Second)
	p.run()
	if at := c.Deadline(); !at.After(p.now) {
		t.Errorf("the deadline was %v ago", p.now.Sub(at))
	}
	c.Message(p.now, 0, listMessage(wire.KindAck, 1, c.rails[0].sent, 1))
	p.run()
	p.expect(">QUERY")
}

func TestNoHelloInTime(t *testing.T) {
	now := time.Unix(1000, 0)
	c, err := New(now, newPair(t).ends[0].ch.cfg)
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
	cancelled := func(p *pair, id uint64) {
		p.ends[0].ch.Cancel(p.now, id, 1)
		for _, a := range tickAndAct(p.ends[0].ch, p.now) {
			p.do(0, a)
		}
	}
	begin := func(limit int64) *pair {
		p := newPair(t, func(c *Config) { c.QuarantineBytes = limit })
		p.respondWith(64 << 10)
		p.receive(1, "k")
		p.run()
		p.open(2)
		p.open(3)
		p.cut = true
		return p
	}
	p := begin(1 << 20)
	cancelled(p, 2)
	cancelled(p, 3)
	p.now = p.now.Add(quarantineTime - time.Millisecond)
	p.run()
	if why := p.ends[0].closed(); why != "" {
		t.Fatalf("closed: %s", why)
	}
	p.now = p.now.Add(time.Millisecond)
	p.run()
	if why := p.ends[0].closed(); !strings.Contains(why, "has not confirmed the cancel of receive 0000000000000002") {
		t.Errorf("closed: %q", why)
	}
	if n := len(p.ends[0].freed); n != 1 {
		t.Errorf("%d destinations were returned before the queue pairs were destroyed", n)
	}
	p.ends[0].ch.Destroyed(p.now)
	p.run()
	if n := len(p.ends[0].freed); n != 3 {
		t.Errorf("%d destinations were returned", n)
	}

	p = begin(128 << 10) // as much as both
	cancelled(p, 2)
	cancelled(p, 3)
	if why := p.ends[0].closed(); why != "" {
		t.Fatalf("closed: %s", why)
	}

	p = begin(100 << 10)
	cancelled(p, 2)
	if why := p.ends[0].closed(); why != "" {
		t.Fatalf("closed: %s", why)
	}
	cancelled(p, 3)
	if why := p.ends[0].closed(); !strings.Contains(why, "131072 bytes, the limit is 102400") {
		t.Errorf("closed: %q", why)
	}
}

// TestMetaEndsTheQuarantine: after META the peer does not write into the early destination.
// It is returned at once and does not wait for CANCELLED.
func TestMetaEndsTheQuarantine(t *testing.T) {
	p := newPair(t)
	p.respondWith(64 << 10)
	p.receive(1, "k")
	p.run()
	p.open(2) // with a destination
	p.cut = true
	c := p.ends[0].ch
	c.Cancel(p.now, 2, 1)
	if c.quarantined != 64<<10 {
		t.Fatalf("%d bytes in quarantine", c.quarantined)
	}
	m := wire.Meta{Header: wire.Header{Taken: wire.Counts{N: 1, Of: [wire.MaxRails]uint32{c.rails[0].confirmed}}}, ID: 2, Value: valueOf(1 << 20)}
	c.Message(p.now, 0, m.Append(nil))
	p.run()
	if n := len(p.ends[0].freed); c.quarantined != 0 || n != 2 {
		t.Errorf("%d bytes in quarantine, and %d destinations were returned", c.quarantined, n)
	}
	p.wait(quarantineTime + time.Second)
	if why := p.ends[0].closed(); why != "" {
		t.Errorf("closed: %s", why)
	}
	c.Message(p.now, 0, listMessage(wire.KindCancelled, 2, c.rails[0].confirmed, 1))
	if _, known := c.byID[2]; known || c.quarantined != 0 {
		t.Errorf("the receive is left after CANCELLED, with %d bytes in quarantine", c.quarantined)
	}
}

// TestCancelledReceiveWithoutDestination: it occupies no memory, so it waits for CANCELLED
// for stallTime.
func TestCancelledReceiveWithoutDestination(t *testing.T) {
	p := newPair(t)
	p.open(1)
	p.cut = true
	p.ends[0].ch.Cancel(p.now, 1, 1)
	p.wait(stallTime - time.Second)
	if why := p.ends[0].closed(); why != "" {
		t.Fatalf("closed: %s", why)
	}
	p.wait(time.Second)
	if why := p.ends[0].closed(); !strings.Contains(why, "has not confirmed the cancel of receive 0000000000000001") {
		t.Errorf("closed: %q", why)
	}
}

// TestContentThatArrivesDelaysTheQuery: the last write on one of its rails has arrived.
func TestContentThatArrivesDelaysTheQuery(t *testing.T) {
	p := newPair(t, func(c *Config) { c.Rails = 2 })
	p.ends[0].ch.stripe, p.ends[1].ch.stripe = 64<<10, 64<<10
	p.respondWith(128 << 10)
	p.receive(1, "k")
	p.run()
	p.open(2)
	p.cut = true
	queried := func() bool { return slices.Contains(p.trace, ">QUERY") }
	p.wait(queryAfter - time.Second)
	p.ends[0].ch.Imm(p.now, 1, uint32(wire.NewImm(0, 2)))
	p.wait(queryAfter - time.Second)
	if queried() {
		t.Error("QUERY was sent")
	}
	if p.wait(2 * time.Second); !queried() {
		t.Error("QUERY was not sent, although nothing more has arrived")
	}
}

// TestPeerThatTakesNothing: messages wait for credits, and nothing else is outstanding.
func TestPeerThatTakesNothing(t *testing.T) {
	p := newPair(t, func(c *Config) { c.Window, c.PeerWindow = 4, 4 })
	p.cut = true
	for id := range uint64(10) {
		p.receive(id+1, "k")
	}
	p.run()
	began := p.now
	for p.ends[0].closed() == "" && p.now.Sub(began) < time.Hour {
		if at := p.ends[0].ch.Deadline(); at.After(p.now) {
			p.now = at
		} else {
			p.now = p.now.Add(time.Millisecond)
		}
		for _, a := range tickAndAct(p.ends[0].ch, p.now) {
			p.do(0, a)
			if a.Kind == ActPost && a.Post.Op != 0 {
				p.ends[0].ch.Sent(p.now, 0, a.Post.Slot)
			}
		}
	}
	if why := p.ends[0].closed(); why == "" || p.now.Sub(began) > stallTime {
		t.Errorf("closed after %v: %q", p.now.Sub(began), why)
	}
}

// TestSlowPeerKeepsItsChannel: it takes a response now and then, while more wait.
func TestSlowPeerKeepsItsChannel(t *testing.T) {
	p := newPair(t, func(c *Config) { c.Window, c.PeerWindow = 4, 4 })
	for id := range uint64(100) {
		p.open(id + 1)
	}
	p.cut = true
	c := p.ends[1].ch
	for id := range uint64(100) {
		c.Respond(p.now, id+1, 1, Response{Value: valueOf(5), Source: Source{Handle: id + 1}})
	}
	does := func() {
		for _, a := range tickAndAct(c, p.now) {
			p.do(1, a)
		}
	}
	does()
	for i := range 20 {
		for range int(stallTime/time.Second) - 1 {
			p.now = p.now.Add(time.Second)
			does()
		}
		c.Message(p.now, 0, appendList(wire.KindAck, wire.Header{Taken: wire.Counts{N: 1, Of: [wire.MaxRails]uint32{c.rails[0].confirmed + 1}}}, wire.IDs(nil).Append(1)))
		does()
		if why := p.ends[1].closed(); why != "" {
			t.Fatalf("closed after %d: %s", i, why)
		}
	}
}

// TestContentWaitsForCreditsInVain: the peer takes nothing any more, its device still
// acknowledges probes, and a last write waits, on either rail.
func TestContentWaitsForCreditsInVain(t *testing.T) {
	for rail := range 2 {
		p := newPair(t, func(c *Config) { c.Rails, c.Window, c.PeerWindow = 2, 4, 4 })
		p.respondWith(64 << 10)
		p.ends[0].first = uint8(rail) //nolint:gosec // a rail
		p.receive(1, "k")
		p.run()
		p.manual = true
		for id := range uint64(10) {
			p.receive(id+2, "k")
			p.run()
		}
		p.cut = true
		c := p.ends[1].ch
		began := p.now
		for id := range uint64(10) {
			c.Respond(p.now, id+2, 1, Response{Value: valueOf(64 << 10), Source: Source{Handle: id + 2}})
		}
		for c.State() == Up && p.now.Sub(began) < time.Hour {
			p.now = p.now.Add(500 * time.Millisecond)
			for _, a := range tickAndAct(c, p.now) {
				p.do(1, a)
				if a.Kind == ActPost && a.Post.Signaled {
					c.Sent(p.now, a.Post.Rail, a.Post.Slot)
				}
			}
		}
		if why := p.ends[1].closed(); !strings.HasPrefix(why, "DeadlineExceeded: ") || !strings.Contains(why, fmt.Sprintf("it has taken nothing from rail %d", rail)) || p.now.Sub(began) > stallTime+time.Second {
			t.Errorf("closed after %v: %q", p.now.Sub(began), why)
		}
	}
}

func TestBye(t *testing.T) {
	p := newPair(t)
	p.open(1)
	p.ends[0].ch.Ack(p.now, []uint64{7})
	p.ends[0].ch.Bye(p.now, "shutdown")
	p.run()
	p.expect(">ACK", ">BYE")
	if why := p.ends[0].closed(); why != "closed here: shutdown" {
		t.Errorf("closed: %q", why)
	}
	if why := p.ends[1].closed(); !strings.HasSuffix(why, `task:0 says: "shutdown"`) {
		t.Errorf("the peer closed: %q", why)
	}
}

// TestByeThatCannotBeSent: the channel closes nevertheless.
func TestByeThatCannotBeSent(t *testing.T) {
	p := newPair(t)
	p.open(1)
	p.ends[0].hold, p.cut = true, true
	p.ends[0].ch.Bye(p.now, "shutdown")
	p.run()
	p.expect(">BYE")
	p.wait(byeTime)
	if why := p.ends[0].closed(); why == "" {
		t.Error("not closed")
	}
}

// TestPeerThatNeverSendsTheDestination: the channel closes when META is not answered in time.
func TestPeerThatNeverSendsTheDestination(t *testing.T) {
	p := newPair(t)
	p.ends[1].respond = func(a Request) Response { return Response{Value: valueOf(64 << 10), Source: Source{Handle: a.ID}} }
	p.manual = true
	p.receive(1, "k")
	p.run()
	p.ends[1].ch.Respond(p.now, 1, 1, p.ends[1].respond(Request{ID: 1}))
	p.run()
	met := p.now
	p.wait(destTime - time.Millisecond)
	if why := p.ends[1].closed(); why != "" {
		t.Fatalf("closed after %v: %s", p.now.Sub(met), why)
	}
	p.wait(time.Millisecond)
	if why := p.ends[1].closed(); !strings.Contains(why, "has not sent the destination of receive 0000000000000001 within 40s") {
		t.Errorf("closed after %v: %q", p.now.Sub(met), why)
	}
}
