package channel

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/internal/wire"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/verbs"
)

// TestCreditIsSentWhenHalfTheWindowIsOwed, and not before.
func TestCreditIsSentWhenHalfTheWindowIsOwed(t *testing.T) {
	p := newPair(t)
	p.manual = true
	for id := range uint64(6) { // with HELLO that is one less than half of 16
		p.receive(id+1, "k")
		p.run()
	}
	if slices.Contains(p.trace, "<CREDIT") {
		t.Error("CREDIT was sent too early")
	}
	p.receive(7, "k")
	p.receive(8, "k")
	p.run()
	if p.trace[len(p.trace)-1] != "<CREDIT" {
		t.Errorf("no CREDIT after %v", p.trace)
	}
	n := 0
	for _, m := range p.trace {
		if m == "<CREDIT" || m == ">CREDIT" {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d CREDITs", n)
	}
}

// TestLastCreditsAreReservedForCredit: requests stop two short of the window.
func TestLastCreditsAreReservedForCredit(t *testing.T) {
	p := newPair(t)
	p.cut = true
	for id := range uint64(30) {
		p.receive(id+1, "k")
	}
	p.run()
	if n := p.ends[0].ch.credits(0); n != creditReserve {
		t.Errorf("%d credits are left", n)
	}
	p.ends[0].ch.SendCancels(p.now, []uint64{99})
	p.run()
	if n := p.ends[0].ch.credits(0); n != creditReserve {
		t.Errorf("%d credits are left after CANCEL", n)
	}
}

// TestVeryLastCreditReportsRail0: a CREDIT for other rails may not use the last credit.
// Otherwise both sides could be without one while their messages wait.
func TestVeryLastCreditReportsRail0(t *testing.T) {
	p := newPair(t, func(c *Config) { c.Rails = 2 })
	p.cut = true
	c := p.ends[0].ch
	c.rails[0].sent = c.rails[0].confirmed + 15
	c.rails[1].taken = c.rails[1].reported + 8
	p.run()
	p.expect()
	c.rails[0].taken = c.rails[0].reported + 8
	p.run()
	p.expect(">CREDIT")
}

// TestWindowIsExact: the peer may send as many messages as its window on each rail, and no
// more.
func TestWindowIsExact(t *testing.T) {
	for rail := range 2 {
		p := newPair(t, func(c *Config) { c.Rails = 2 })
		c := p.ends[0].ch
		m := wire.Error{ID: 99, Code: status.Aborted} // for no receive
		if rail == 0 {
			m.Taken.N, m.Taken.Of[0] = 2, c.rails[0].confirmed
		}
		b := m.Append(nil)
		for c.rails[rail].taken != c.rails[rail].reported+uint32(c.cfg.Window) {
			if c.Message(p.now, rail, b); c.err != nil {
				t.Fatalf("rail %d, with %d of its window taken: %v", rail, c.rails[rail].taken-c.rails[rail].reported, c.err)
			}
		}
		if n := c.Messages().Received; n != uint64(c.rails[0].taken+c.rails[1].taken) {
			t.Errorf("%d messages are counted", n)
		}
		c.Message(p.now, rail, b)
		if c.err == nil || !strings.Contains(c.err.Error(), fmt.Sprintf("more than its window of 16 on rail %d", rail)) {
			t.Errorf("rail %d, with one more than its window: %v", rail, c.err)
		}
	}
}

// TestWriteWithImmTakesACredit: a WRITE_WITH_IMM uses a credit, and waits when there is none.
func TestWriteWithImmTakesACredit(t *testing.T) {
	p := newPair(t, func(c *Config) { c.Window, c.PeerWindow = 4, 4 })
	p.respondWith(64 << 10)
	for id := range uint64(50) {
		p.receive(id+1, "k")
		if id == 0 {
			p.run()
		}
	}
	p.run()
	if n := len(p.ends[0].ended); n != 50 {
		t.Errorf("%d ended", n)
	}
	r := &p.ends[1].ch.rails[0]
	imms := 0
	for _, m := range p.trace {
		if m == "<IMM 65536" {
			imms++
		}
	}
	if imms != 50 || r.sent < 50 {
		t.Errorf("%d imms used %d credits", imms, r.sent)
	}
	p.clean()
}

// TestLastWriteIsNotStarvedByMessages: a last write that waits for a credit gets the next
// one, however many responses wait.
func TestLastWriteIsNotStarvedByMessages(t *testing.T) {
	p := newPair(t)
	p.respondWith(64 << 10)
	p.receive(1, "k")
	p.run()
	p.manual = true
	p.receive(2, "k")
	for id := range uint64(5) {
		p.receive(id+3, "small")
	}
	p.run()
	p.trace, p.cut = nil, true
	c := p.ends[1].ch
	c.rails[0].sent = c.rails[0].confirmed + 14 // only the credits that are reserved for CREDIT
	c.Respond(p.now, 2, 1, Response{Value: valueOf(64 << 10), Source: Source{Handle: 2}})
	p.run()
	for id := range uint64(5) {
		c.Respond(p.now, id+3, 1, Response{Value: valueOf(5), Source: Source{Handle: id + 3}})
	}
	p.run()
	p.expect()
	c.rails[0].sent--
	p.run()
	p.expect("<IMM 65536")
	c.rails[0].sent--
	p.run()
	p.expect("<EAGER")
}

// TestSendPlacesAreReserved: CANCEL and ACK can be posted when contents and responses fill
// the send queue, and more of them and requests wait.
func TestSendPlacesAreReserved(t *testing.T) {
	p := newPair(t, func(c *Config) { c.Window, c.PeerWindow, c.SendQueue, c.Outstanding = 1000, 1000, 16, 1<<30 })
	p.respondWith(4 << 20)
	p.ends[1].hold = true
	p.receive(1, "k")
	p.run()
	c := p.ends[1].ch
	if free := 16 - c.rails[0].posts.n; free != 2*sendReserve {
		t.Errorf("content leaves %d places", free)
	}
	p.ends[1].respond = func(a Request) Response { return Response{Value: valueOf(5), Source: Source{Handle: a.ID}} }
	for id := range uint64(20) {
		p.receive(id+2, "small")
	}
	p.run()
	if free := 16 - c.rails[0].posts.n; free != sendReserve {
		t.Errorf("responses leave %d places", free)
	}
	c.SendCancels(p.now, []uint64{5})
	p.run()
	if p.trace[len(p.trace)-1] != "<CANCEL" {
		t.Errorf("no CANCEL: %v", p.trace)
	}
	c.Ack(p.now, []uint64{6})
	p.run()
	if p.trace[len(p.trace)-1] != "<ACK" {
		t.Errorf("no ACK: %v", p.trace)
	}
}

// TestUnsignaledPostsAreFollowedByASignaledOne, so that their places become free.
func TestUnsignaledPostsAreFollowedByASignaledOne(t *testing.T) {
	p := newPair(t, func(c *Config) { c.SendQueue = MinSendQueue })
	p.respondWith(10)
	for id := range uint64(1000) {
		p.receive(id+1, "k")
		p.run()
	}
	if n := len(p.ends[0].ended); n != 1000 {
		t.Errorf("%d ended", n)
	}
}

func TestAcksTravelWithTheNextMessage(t *testing.T) {
	p := newPair(t)
	p.respondWith(10)
	p.ends[0].ch.Receive(p.now, Receive{ID: 1, Attempt: 1, Responder: 2, Key: "k", Acks: []uint64{7, 8}})
	p.run()
	p.expect(">REQUEST", "<EAGER")
	if a := p.ends[1].others[0]; a.Kind != ActAcked || fmt.Sprint(a.IDs.AppendTo(nil)) != "[7 8]" {
		t.Errorf("the responder got %v", &a)
	}
}

// TestAckIsSentAtOnce: the caller of Ack has waited for a request already.
func TestAckIsSentAtOnce(t *testing.T) {
	p := newPair(t)
	mark := p.ends[0].ch.Ack(p.now, []uint64{7})
	p.run()
	p.expect(">ACK")
	p.wait(CountsDelay) // no other message carries the counts
	p.expect("<CREDIT")
	if p.ends[0].taken.Acks != mark {
		t.Errorf("taken %v, want %d", p.ends[0].taken, mark)
	}
}

// TestAcksDoNotWaitLongForTheirRequest when it cannot be posted: no slot is free.
func TestAcksDoNotWaitLongForTheirRequest(t *testing.T) {
	p := newPair(t)
	p.manual = true
	p.ends[0].ch.slots.most = 1
	for id := range uint64(2) {
		d := p.ends[0].dest()
		p.ends[0].ch.Receive(p.now, Receive{
			ID: id + 1, Attempt: 1, Responder: 2, Key: "k", Early: &d, Value: valueOf(1 << 20), Acks: []uint64{id + 100},
		})
		p.run()
	}
	p.expect(">REQUEST")
	p.wait(ackDelay - 1)
	p.expect()
	p.wait(1)
	p.expect(">ACK")
}

// TestThousandsOfAcks: they are sent in few messages, each once.
func TestThousandsOfAcks(t *testing.T) {
	p := newPair(t, func(c *Config) { c.Message, c.PeerMessage = wire.MinMessage, wire.MinMessage })
	var ids []uint64
	for id := range uint64(5000) {
		ids = append(ids, id+1)
	}
	mark := p.ends[0].ch.Ack(p.now, ids)
	p.wait(time.Second)
	var got []uint64
	for _, a := range p.ends[1].others {
		got = a.IDs.AppendTo(got)
	}
	if !slices.Equal(got, ids) || p.ends[0].taken.Acks != mark {
		t.Errorf("%d ids arrived, taken %v", len(got), p.ends[0].taken)
	}
	if n := len(p.ends[1].others); n > 11 {
		t.Errorf("%d messages", n)
	}
}

// TestAcksGoBeforeTheirRequest when they do not fit into it: a response to the request
// confirms them.
func TestAcksGoBeforeTheirRequest(t *testing.T) {
	p := newPair(t, func(c *Config) { c.Message, c.PeerMessage = wire.MinMessage, wire.MinMessage })
	p.respondWith(10)
	var ids []uint64
	for id := range uint64(1000) {
		ids = append(ids, id+100)
	}
	p.ends[0].ch.Receive(p.now, Receive{ID: 1, Attempt: 1, Responder: 2, Key: "k", Acks: ids})
	p.run()
	var got []uint64
	for _, a := range p.ends[1].others {
		got = a.IDs.AppendTo(got)
	}
	if !slices.Equal(got, ids) {
		t.Errorf("%d ids arrived", len(got))
	}
	p.expect(">ACK", ">ACK", ">REQUEST", "<EAGER")
}

// TestAcksThatDoNotFitNextToALongKey: they are sent before the request.
func TestAcksThatDoNotFitNextToALongKey(t *testing.T) {
	p := newPair(t, func(c *Config) { c.Message, c.PeerMessage = wire.MinMessage, wire.MinMessage })
	p.respondWith(100)
	r := Receive{ID: 1, Attempt: 1, Responder: 2, Step: 1, Key: strings.Repeat("k", 3500)}
	for id := range uint64(100) {
		r.Acks = append(r.Acks, 1000+id)
	}
	p.ends[0].ch.Receive(p.now, r)
	p.run()
	p.expect(">ACK", ">REQUEST", "<EAGER")
	p.clean()
}

// TestAckDoesNotWaitForARequest: acks that wait for their request do not delay those of Ack.
func TestAckDoesNotWaitForARequest(t *testing.T) {
	p := newPair(t)
	p.cut = true
	c := p.ends[0].ch
	for c.sendQueueFree(0, regularMessage) { // then no request can be posted
		c.post(0, posted{}, Post{Op: verbs.OpWrite})
	}
	c.Actions(p.now)
	c.Receive(p.now, Receive{ID: 1, Attempt: 1, Responder: 2, Key: "k", Acks: []uint64{7}})
	p.run()
	p.expect()
	c.Ack(p.now, []uint64{8})
	p.run()
	p.expect(">ACK")
}

// TestAcksGoBeforeBye, although they wait for a request.
func TestAcksGoBeforeBye(t *testing.T) {
	p := newPair(t)
	p.ends[0].ch.Receive(p.now, Receive{ID: 1, Attempt: 1, Responder: 2, Key: "k", Acks: []uint64{7}})
	p.ends[0].ch.Bye(p.now, "shutdown")
	p.run()
	p.expect(">ACK", ">BYE")
}

// TestAcksOfARequestAreNotReportedAsTaken: the response to the request confirms them, so
// there is no ActTaken.
func TestAcksOfARequestAreNotReportedAsTaken(t *testing.T) {
	p := newPair(t)
	p.respondWith(100)
	for id := range uint64(100) {
		p.ends[0].ch.Receive(p.now, Receive{ID: id + 1, Attempt: 1, Responder: 2, Key: "k", Acks: []uint64{id + 1000}})
		p.run()
	}
	if p.ends[0].taken != (Marks{}) {
		t.Errorf("ActTaken with %v", p.ends[0].taken)
	}
	mark := p.ends[0].ch.Ack(p.now, []uint64{1})
	p.run()
	p.wait(time.Second)
	if p.ends[0].taken.Acks != mark {
		t.Errorf("ActTaken with %v, want %d", p.ends[0].taken, mark)
	}
}

func TestCancelIsSentAndTaken(t *testing.T) {
	p := newPair(t)
	p.manual = true
	p.receive(1, "k")
	p.run()
	mark := p.ends[0].ch.SendCancels(p.now, []uint64{1, 50})
	p.run()
	p.expect(">REQUEST", ">CANCEL", "<CANCELLED")
	if p.ends[0].taken.Cancels != mark {
		t.Errorf("taken %v, want %d", p.ends[0].taken, mark)
	}
	if a := p.last(); a.ID != 1 || a.Outcome != OutcomeError || p.ends[0].ch.Cancel(p.now, 1, 1) {
		t.Errorf("%x ended with %v", a.ID, a.Outcome)
	}
	if a := p.ends[1].others[0]; a.Kind != ActCancelled || fmt.Sprint(a.IDs.AppendTo(nil)) != "[1 50]" {
		t.Errorf("the responder got %v", &a)
	}
	p.clean()
}

// TestCancelBeforeTheRequestIsPosted: the request is not posted.
func TestCancelBeforeTheRequestIsPosted(t *testing.T) {
	p := newPair(t)
	p.receive(1, "k")
	if !p.ends[0].ch.Cancel(p.now, 1, 1) {
		t.Error("not cancelled")
	}
	p.run()
	p.expect()
	p.clean()
}

// TestReceivesAreRepostedInBatches: an eighth of the window at once, or all of them after
// WANT_COUNTS. The counts report no receive that is not posted again.
func TestReceivesAreRepostedInBatches(t *testing.T) {
	p := newPair(t, func(c *Config) { c.Window, c.PeerWindow = 32, 32 })
	p.manual = true
	rail := &p.ends[1].ch.rails[0]
	if rail.taken != 1 || rail.toRepost != 1 { // HELLO
		t.Fatalf("%d taken and %d of them not posted again, want 1 and 1", rail.taken, rail.toRepost)
	}
	for id, left := range []int{2, 3, 0, 1} {
		p.receive(uint64(id)+1, "k")
		p.run()
		if rail.toRepost != left {
			t.Errorf("after request %d %d receives are not posted again, want %d", id+1, rail.toRepost, left)
		}
	}
	p.ends[1].ch.Respond(p.now, 1, 1, Response{Value: valueOf(5), Source: Source{Handle: 1}})
	p.run()
	if rail.reported != 4 || p.ends[0].ch.rails[0].confirmed != 4 {
		t.Errorf("%d were reported and %d confirmed, want the 4 that are posted again", rail.reported, p.ends[0].ch.rails[0].confirmed)
	}
	mark := p.ends[0].ch.Ack(p.now, []uint64{1}) // with WANT_COUNTS
	p.run()
	p.wait(time.Second)
	if p.ends[0].taken.Acks != mark || rail.toRepost != 0 {
		t.Errorf("ActTaken with %v, want %d; %d receives are not posted again", p.ends[0].taken, mark, rail.toRepost)
	}
}

// TestRequestComesBeforeItsAcks: the peer waits for the response, nothing waits for the acks.
func TestRequestComesBeforeItsAcks(t *testing.T) {
	p := newPair(t)
	p.ends[1].respond = func(a Request) Response { return Response{Value: valueOf(5), Source: Source{Handle: a.ID}} }
	p.receive(1, "k")
	p.run()
	p.ends[0].ch.Receive(p.now, Receive{ID: 2, Attempt: 1, Responder: 2, Key: "k", Acks: []uint64{1}})
	var post *Post
	for _, a := range p.ends[0].ch.Actions(p.now) {
		if a.Kind == ActPost {
			post = &a.Post
		}
	}
	if post == nil {
		t.Fatal("no request was posted")
	}
	p.ends[1].ch.Message(p.now, 0, slices.Clone(post.Message))
	var kinds []ActionKind
	for _, a := range p.ends[1].ch.Actions(p.now) {
		if a.Kind == ActRequest || a.Kind == ActAcked {
			kinds = append(kinds, a.Kind)
		}
	}
	if want := []ActionKind{ActRequest, ActAcked}; !slices.Equal(kinds, want) {
		t.Errorf("the request led to %v, want %v", kinds, want)
	}
}
