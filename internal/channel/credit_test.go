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
	l := newLink(t)
	l.manual = true
	for id := range uint64(6) { // with HELLO that is one less than half of 16
		l.receive(id+1, "k")
		l.run()
	}
	if slices.Contains(l.trace, "<CREDIT") {
		t.Error("CREDIT was sent too early")
	}
	l.receive(7, "k")
	l.receive(8, "k")
	l.run()
	if l.trace[len(l.trace)-1] != "<CREDIT" {
		t.Errorf("no CREDIT after %v", l.trace)
	}
	n := 0
	for _, m := range l.trace {
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
	l := newLink(t)
	l.cut = true
	for id := range uint64(30) {
		l.receive(id+1, "k")
	}
	l.run()
	if n := l.ends[0].ch.credits(0); n != creditReserve {
		t.Errorf("%d credits are left", n)
	}
	l.ends[0].ch.SendCancels(l.now, []uint64{99})
	l.run()
	if n := l.ends[0].ch.credits(0); n != creditReserve {
		t.Errorf("%d credits are left after CANCEL", n)
	}
}

// TestVeryLastCreditReportsRail0: a CREDIT for other rails may not use the last credit.
// Otherwise both sides could be without one while their messages wait.
func TestVeryLastCreditReportsRail0(t *testing.T) {
	l := newLink(t, func(c *Config) { c.Rails = 2 })
	l.cut = true
	c := l.ends[0].ch
	c.rails[0].sent = c.rails[0].confirmed + 15
	c.rails[1].taken = c.rails[1].reported + 8
	l.run()
	l.expect()
	c.rails[0].taken = c.rails[0].reported + 8
	l.run()
	l.expect(">CREDIT")
}

// TestWindowIsExact: the peer may send as many messages as its window on each rail, and no
// more.
func TestWindowIsExact(t *testing.T) {
	for rail := range 2 {
		l := newLink(t, func(c *Config) { c.Rails = 2 })
		c := l.ends[0].ch
		m := wire.Error{ID: 99, Code: status.Aborted} // for no receive
		if rail == 0 {
			m.Taken.N, m.Taken.Of[0] = 2, c.rails[0].confirmed
		}
		b := m.Append(nil)
		for c.rails[rail].taken != c.rails[rail].reported+uint32(c.cfg.Window) {
			if c.Message(l.now, rail, b); c.err != nil {
				t.Fatalf("rail %d, with %d of its window taken: %v", rail, c.rails[rail].taken-c.rails[rail].reported, c.err)
			}
		}
		if n := c.Messages().Received; n != uint64(c.rails[0].taken+c.rails[1].taken) {
			t.Errorf("%d messages are counted", n)
		}
		c.Message(l.now, rail, b)
		if c.err == nil || !strings.Contains(c.err.Error(), fmt.Sprintf("more than its window of 16 on rail %d", rail)) {
			t.Errorf("rail %d, with one more than its window: %v", rail, c.err)
		}
	}
}

// TestWriteWithImmTakesACredit: a WRITE_WITH_IMM uses a credit, and waits when there is none.
func TestWriteWithImmTakesACredit(t *testing.T) {
	l := newLink(t, func(c *Config) { c.Window, c.PeerWindow = 4, 4 })
	l.respondWith(64 << 10)
	for id := range uint64(50) {
		l.receive(id+1, "k")
		if id == 0 {
			l.run()
		}
	}
	l.run()
	if n := len(l.ends[0].ended); n != 50 {
		t.Errorf("%d ended", n)
	}
	r := &l.ends[1].ch.rails[0]
	imms := 0
	for _, m := range l.trace {
		if m == "<IMM 65536" {
			imms++
		}
	}
	if imms != 50 || r.sent < 50 {
		t.Errorf("%d imms used %d credits", imms, r.sent)
	}
	l.clean()
}

// TestLastWriteIsNotStarvedByMessages: a last write that waits for a credit gets the next
// one, however many responses wait.
func TestLastWriteIsNotStarvedByMessages(t *testing.T) {
	l := newLink(t)
	l.respondWith(64 << 10)
	l.receive(1, "k")
	l.run()
	l.manual = true
	l.receive(2, "k")
	for id := range uint64(5) {
		l.receive(id+3, "small")
	}
	l.run()
	l.trace, l.cut = nil, true
	c := l.ends[1].ch
	c.rails[0].sent = c.rails[0].confirmed + 14 // only the credits that are reserved for CREDIT
	c.Respond(l.now, 2, 1, Response{Value: valueOf(64 << 10), Source: Source{Handle: 2}})
	l.run()
	for id := range uint64(5) {
		c.Respond(l.now, id+3, 1, Response{Value: valueOf(5), Source: Source{Handle: id + 3}})
	}
	l.run()
	l.expect()
	c.rails[0].sent--
	l.run()
	l.expect("<IMM 65536")
	c.rails[0].sent--
	l.run()
	l.expect("<EAGER")
}

// TestSendPlacesAreReserved: CANCEL and ACK can be posted when contents and responses fill
// the send queue, and more of them and requests wait.
func TestSendPlacesAreReserved(t *testing.T) {
	l := newLink(t, func(c *Config) { c.Window, c.PeerWindow, c.SendQueue, c.Outstanding = 1000, 1000, 16, 1<<30 })
	l.respondWith(4 << 20)
	l.ends[1].hold = true
	l.receive(1, "k")
	l.run()
	c := l.ends[1].ch
	if free := 16 - c.rails[0].posts.n; free != 2*sendReserve {
		t.Errorf("content leaves %d places", free)
	}
	l.ends[1].respond = func(a Request) Response { return Response{Value: valueOf(5), Source: Source{Handle: a.ID}} }
	for id := range uint64(20) {
		l.receive(id+2, "small")
	}
	l.run()
	if free := 16 - c.rails[0].posts.n; free != sendReserve {
		t.Errorf("responses leave %d places", free)
	}
	c.SendCancels(l.now, []uint64{5})
	l.run()
	if l.trace[len(l.trace)-1] != "<CANCEL" {
		t.Errorf("no CANCEL: %v", l.trace)
	}
	c.Ack(l.now, []uint64{6})
	l.run()
	if l.trace[len(l.trace)-1] != "<ACK" {
		t.Errorf("no ACK: %v", l.trace)
	}
}

// TestUnsignaledPostsAreFollowedByASignaledOne, so that their places become free.
func TestUnsignaledPostsAreFollowedByASignaledOne(t *testing.T) {
	l := newLink(t, func(c *Config) { c.SendQueue = MinSendQueue })
	l.respondWith(10)
	for id := range uint64(1000) {
		l.receive(id+1, "k")
		l.run()
	}
	if n := len(l.ends[0].ended); n != 1000 {
		t.Errorf("%d ended", n)
	}
}

func TestAcksTravelWithTheNextMessage(t *testing.T) {
	l := newLink(t)
	l.respondWith(10)
	l.ends[0].ch.Receive(l.now, Receive{ID: 1, Attempt: 1, Responder: 2, Key: "k", Acks: []uint64{7, 8}})
	l.run()
	l.expect(">REQUEST", "<EAGER")
	if a := l.ends[1].others[0]; a.Kind != ActAcked || fmt.Sprint(a.IDs.AppendTo(nil)) != "[7 8]" {
		t.Errorf("the responder got %v", &a)
	}
}

// TestAckIsSentAtOnce: the caller of Ack has waited for a request already.
func TestAckIsSentAtOnce(t *testing.T) {
	l := newLink(t)
	mark := l.ends[0].ch.Ack(l.now, []uint64{7})
	l.run()
	l.expect(">ACK")
	l.wait(CountsDelay) // no other message carries the counts
	l.expect("<CREDIT")
	if l.ends[0].taken.Acks != mark {
		t.Errorf("taken %v, want %d", l.ends[0].taken, mark)
	}
}

// TestAcksDoNotWaitLongForTheirRequest when it cannot be posted: no slot is free.
func TestAcksDoNotWaitLongForTheirRequest(t *testing.T) {
	l := newLink(t)
	l.manual = true
	l.ends[0].ch.slots.most = 1
	for id := range uint64(2) {
		d := l.ends[0].dest()
		l.ends[0].ch.Receive(l.now, Receive{
			ID: id + 1, Attempt: 1, Responder: 2, Key: "k", Early: &d, Value: valueOf(1 << 20), Acks: []uint64{id + 100},
		})
		l.run()
	}
	l.expect(">REQUEST")
	l.wait(ackDelay - 1)
	l.expect()
	l.wait(1)
	l.expect(">ACK")
}

// TestThousandsOfAcks: they are sent in few messages, each once.
func TestThousandsOfAcks(t *testing.T) {
	l := newLink(t, func(c *Config) { c.Message, c.PeerMessage = wire.MinMessage, wire.MinMessage })
	var ids []uint64
	for id := range uint64(5000) {
		ids = append(ids, id+1)
	}
	mark := l.ends[0].ch.Ack(l.now, ids)
	l.wait(time.Second)
	var got []uint64
	for _, a := range l.ends[1].others {
		got = a.IDs.AppendTo(got)
	}
	if !slices.Equal(got, ids) || l.ends[0].taken.Acks != mark {
		t.Errorf("%d ids arrived, taken %v", len(got), l.ends[0].taken)
	}
	if n := len(l.ends[1].others); n > 11 {
		t.Errorf("%d messages", n)
	}
}

// TestAcksGoBeforeTheirRequest when they do not fit into it: a response to the request
// confirms them.
func TestAcksGoBeforeTheirRequest(t *testing.T) {
	l := newLink(t, func(c *Config) { c.Message, c.PeerMessage = wire.MinMessage, wire.MinMessage })
	l.respondWith(10)
	var ids []uint64
	for id := range uint64(1000) {
		ids = append(ids, id+100)
	}
	l.ends[0].ch.Receive(l.now, Receive{ID: 1, Attempt: 1, Responder: 2, Key: "k", Acks: ids})
	l.run()
	var got []uint64
	for _, a := range l.ends[1].others {
		got = a.IDs.AppendTo(got)
	}
	if !slices.Equal(got, ids) {
		t.Errorf("%d ids arrived", len(got))
	}
	l.expect(">ACK", ">ACK", ">REQUEST", "<EAGER")
}

// TestAcksThatDoNotFitNextToALongKey: they are sent before the request.
func TestAcksThatDoNotFitNextToALongKey(t *testing.T) {
	l := newLink(t, func(c *Config) { c.Message, c.PeerMessage = wire.MinMessage, wire.MinMessage })
	l.respondWith(100)
	r := Receive{ID: 1, Attempt: 1, Responder: 2, Step: 1, Key: strings.Repeat("k", 3500)}
	for id := range uint64(100) {
		r.Acks = append(r.Acks, 1000+id)
	}
	l.ends[0].ch.Receive(l.now, r)
	l.run()
	l.expect(">ACK", ">REQUEST", "<EAGER")
	l.clean()
}

// TestAckDoesNotWaitForARequest: acks that wait for their request do not delay those of Ack.
func TestAckDoesNotWaitForARequest(t *testing.T) {
	l := newLink(t)
	l.cut = true
	c := l.ends[0].ch
	for c.sendQueueFree(0, regularMessage) { // then no request can be posted
		c.post(0, posted{}, Post{Op: verbs.OpWrite})
	}
	c.Actions(l.now)
	c.Receive(l.now, Receive{ID: 1, Attempt: 1, Responder: 2, Key: "k", Acks: []uint64{7}})
	l.run()
	l.expect()
	c.Ack(l.now, []uint64{8})
	l.run()
	l.expect(">ACK")
}

// TestAcksGoBeforeBye, although they wait for a request.
func TestAcksGoBeforeBye(t *testing.T) {
	l := newLink(t)
	l.ends[0].ch.Receive(l.now, Receive{ID: 1, Attempt: 1, Responder: 2, Key: "k", Acks: []uint64{7}})
	l.ends[0].ch.Bye(l.now, "shutdown")
	l.run()
	l.expect(">ACK", ">BYE")
}

// TestAcksOfARequestAreNotReportedAsTaken: the response to the request confirms them, so
// there is no ActTaken.
func TestAcksOfARequestAreNotReportedAsTaken(t *testing.T) {
	l := newLink(t)
	l.respondWith(100)
	for id := range uint64(100) {
		l.ends[0].ch.Receive(l.now, Receive{ID: id + 1, Attempt: 1, Responder: 2, Key: "k", Acks: []uint64{id + 1000}})
		l.run()
	}
	if l.ends[0].taken != (Marks{}) {
		t.Errorf("ActTaken with %v", l.ends[0].taken)
	}
	mark := l.ends[0].ch.Ack(l.now, []uint64{1})
	l.run()
	l.wait(time.Second)
	if l.ends[0].taken.Acks != mark {
		t.Errorf("ActTaken with %v, want %d", l.ends[0].taken, mark)
	}
}

func TestCancelIsSentAndTaken(t *testing.T) {
	l := newLink(t)
	l.manual = true
	l.receive(1, "k")
	l.run()
	mark := l.ends[0].ch.SendCancels(l.now, []uint64{1, 50})
	l.run()
	l.expect(">REQUEST", ">CANCEL", "<CANCELLED")
	if l.ends[0].taken.Cancels != mark {
		t.Errorf("taken %v, want %d", l.ends[0].taken, mark)
	}
	if a := l.last(); a.ID != 1 || a.Outcome != OutcomeError || l.ends[0].ch.Cancel(l.now, 1, 1) {
		t.Errorf("%x ended with %v", a.ID, a.Outcome)
	}
	if a := l.ends[1].others[0]; a.Kind != ActCancelled || fmt.Sprint(a.IDs.AppendTo(nil)) != "[1 50]" {
		t.Errorf("the responder got %v", &a)
	}
	l.clean()
}

// TestCancelBeforeTheRequestIsPosted: the request is not posted.
func TestCancelBeforeTheRequestIsPosted(t *testing.T) {
	l := newLink(t)
	l.receive(1, "k")
	if !l.ends[0].ch.Cancel(l.now, 1, 1) {
		t.Error("not cancelled")
	}
	l.run()
	l.expect()
	l.clean()
}

// TestReceivesAreRepostedInBatches: an eighth of the window at once, or all of them after
// WANT_COUNTS. The counts report no receive that is not posted again.
func TestReceivesAreRepostedInBatches(t *testing.T) {
	l := newLink(t, func(c *Config) { c.Window, c.PeerWindow = 32, 32 })
	l.manual = true
	rail := &l.ends[1].ch.rails[0]
	if rail.taken != 1 || rail.toRepost != 1 { // HELLO
		t.Fatalf("%d taken and %d of them not posted again, want 1 and 1", rail.taken, rail.toRepost)
	}
	for id, left := range []int{2, 3, 0, 1} {
		l.receive(uint64(id)+1, "k")
		l.run()
		if rail.toRepost != left {
			t.Errorf("after request %d %d receives are not posted again, want %d", id+1, rail.toRepost, left)
		}
	}
	l.ends[1].ch.Respond(l.now, 1, 1, Response{Value: valueOf(5), Source: Source{Handle: 1}})
	l.run()
	if rail.reported != 4 || l.ends[0].ch.rails[0].confirmed != 4 {
		t.Errorf("%d were reported and %d confirmed, want the 4 that are posted again", rail.reported, l.ends[0].ch.rails[0].confirmed)
	}
	mark := l.ends[0].ch.Ack(l.now, []uint64{1}) // with WANT_COUNTS
	l.run()
	l.wait(time.Second)
	if l.ends[0].taken.Acks != mark || rail.toRepost != 0 {
		t.Errorf("ActTaken with %v, want %d; %d receives are not posted again", l.ends[0].taken, mark, rail.toRepost)
	}
}

// TestRequestComesBeforeItsAcks: the peer waits for the response, nothing waits for the acks.
func TestRequestComesBeforeItsAcks(t *testing.T) {
	l := newLink(t)
	l.ends[1].respond = func(a Request) Response { return Response{Value: valueOf(5), Source: Source{Handle: a.ID}} }
	l.receive(1, "k")
	l.run()
	l.ends[0].ch.Receive(l.now, Receive{ID: 2, Attempt: 1, Responder: 2, Key: "k", Acks: []uint64{1}})
	var post *Post
	for _, a := range l.ends[0].ch.Actions(l.now) {
		if a.Kind == ActPost {
			post = &a.Post
		}
	}
	if post == nil {
		t.Fatal("no request was posted")
	}
	l.ends[1].ch.Message(l.now, 0, slices.Clone(post.Message))
	var kinds []ActionKind
	for _, a := range l.ends[1].ch.Actions(l.now) {
		if a.Kind == ActRequest || a.Kind == ActAcked {
			kinds = append(kinds, a.Kind)
		}
	}
	if want := []ActionKind{ActRequest, ActAcked}; !slices.Equal(kinds, want) {
		t.Errorf("the request led to %v, want %v", kinds, want)
	}
}
