package channel

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/internal/wire"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/verbs"
)

func TestSmallTakesOneRoundTrip(t *testing.T) {
	p := newPair(t)
	p.respondWith(100)
	p.receive(1, "k")
	p.run()
	p.expect(">REQUEST", "<EAGER")
	if a := p.last(); a.Outcome != OutcomeEager || len(a.Content) != 100 || a.Value.Size != 100 {
		t.Errorf("ended with %v, %d bytes", a.Outcome, len(a.Content))
	}
	p.clean()
}

func TestV2MetaOnlyAtFirstAndOnChange(t *testing.T) {
	p := newPair(t)
	p.respondWith(64<<10, 64<<10, 64<<10, 32<<10, 32<<10)
	for i, want := range [][]string{
		{">REQUEST", "<META", ">REREQUEST", "<IMM 65536"},
		{">REQUEST", "<IMM 65536"},
		{">REQUEST", "<IMM 65536"},
		{">REQUEST", "<META", ">REREQUEST", "<IMM 32768"},
		{">REQUEST", "<IMM 32768"},
	} {
		p.receive(uint64(i)+1, "k")
		p.run()
		p.expect(want...)
		if a := p.last(); a.Outcome != OutcomeWritten {
			t.Errorf("ended with %v", a.Outcome)
		}
	}
	p.clean()
}

// TestV3SteadyStateIsOneRequestAndItsWrites counts the messages of many receives of
// a large tensor. Each request acknowledges the receive before.
func TestV3SteadyStateIsOneRequestAndItsWrites(t *testing.T) {
	p := newPair(t)
	p.respondWith(200 << 10)
	p.receive(1, "k")
	p.run()
	p.trace = nil
	for id := uint64(2); id < 100; id++ {
		r := Receive{ID: id, Attempt: 1, Responder: 2, Key: "k", Acks: []uint64{id - 1}}
		v, _ := p.ends[0].ch.CachedMeta("k")
		d := p.ends[0].dest()
		r.Early, r.Value = &d, v
		p.ends[0].ch.Receive(p.now, r)
		p.run()
		want := []string{">REQUEST", "<WRITE 65536", "<WRITE 65536", "<WRITE 65536", "<IMM 8192"}
		if len(p.trace) > 0 && p.trace[len(p.trace)-1] != "<IMM 8192" { // CREDIT of the responder, once in half a window
			p.trace = p.trace[:len(p.trace)-1]
		}
		if len(p.trace) == 6 && p.trace[1] == "<CREDIT" {
			want = append([]string{">REQUEST", "<CREDIT"}, want[1:]...)
		}
		p.expect(want...)
	}
	credits := p.ends[1].ch.rails[0].sent
	if want := uint32(99 + 99/8 + 8); credits > want {
		t.Errorf("the responder used %d credits, want at most %d", credits, want)
	}
	p.clean()
}

func TestV4DeadValue(t *testing.T) {
	p := newPair(t)
	p.respondWith(64<<10, -1, 64<<10)
	for i := range 3 {
		p.receive(uint64(i)+1, "k")
		p.run()
	}
	p.expect(">REQUEST", "<META", ">REREQUEST", "<IMM 65536", ">REQUEST", "<EAGER", ">REQUEST", "<IMM 65536")
	if a := p.ends[0].ended[1]; !a.Value.Dead || a.Outcome != OutcomeEager {
		t.Errorf("ended with %v of %+v", a.Outcome, a.Value)
	}
	p.clean()
}

func TestV5EmptyTensorNeedsNoMemory(t *testing.T) {
	p := newPair(t, func(c *Config) { c.Eager = 0 })
	p.ends[1].respond = func(Request) Response {
		return Response{Value: wire.Value{DType: tensor.Float32, Dims: wire.AppendDims(nil, 3, 0, 7)}}
	}
	p.receive(1, "k")
	p.run()
	p.expect(">REQUEST", "<EAGER")
	if a := p.last(); a.Value.Dims.Count() != 3 || len(p.ends[0].places) > 0 {
		t.Errorf("ended with %+v", a.Value)
	}
	p.clean()
}

func TestV6StringsGoAsProto(t *testing.T) {
	p := newPair(t)
	for i, size := range []uint64{0, 5, 70_000, 70_000} {
		v := wire.Value{DType: tensor.String, Proto: true, Size: size, Dims: wire.AppendDims(nil, 2)}
		p.ends[1].respond = func(Request) Response { return Response{Value: v, Source: Source{Handle: 1}} }
		p.receive(uint64(i)+1, "k")
		p.run()
		if a := p.last(); !a.Value.Same(&v) {
			t.Errorf("ended with %+v", a.Value)
		}
	}
	// The size of a serialised value changes each time, so it is not in the cache of meta-data.
	p.expect(">REQUEST", "<EAGER", ">REQUEST", "<EAGER",
		">REQUEST", "<META", ">REREQUEST", "<WRITE 65536", "<IMM 4464", ">REQUEST", "<META", ">REREQUEST", "<WRITE 65536", "<IMM 4464")
	p.clean()
}

func TestV7ValueShrinksAndGrows(t *testing.T) {
	p := newPair(t)
	sizes := []int64{64 << 10, 100, 16 << 10, 1 << 20, 8 << 10, 8<<10 + 1}
	p.respondWith(sizes...)
	for i, size := range sizes {
		p.receive(uint64(i)+1, "k")
		p.run()
		if a := p.last(); a.Value.Size != uint64(size) {
			t.Errorf("%d bytes came as %d", size, a.Value.Size)
		}
	}
	p.clean()
}

func TestV9LongKeyFallsBack(t *testing.T) {
	p := newPair(t, func(c *Config) { c.Message, c.PeerMessage = wire.MinMessage, wire.MinMessage })
	p.respondWith(100)
	p.receive(1, strings.Repeat("k", 3000))
	p.run()
	p.expect(">REQUEST", "<EAGER")
	p.receive(2, strings.Repeat("k", wire.MinMessage))
	p.run()
	p.expect()
	if a := p.last(); a.Outcome != OutcomeFallback || !strings.Contains(a.Err.Error(), "does not fit") {
		t.Errorf("ended with %v: %v", a.Outcome, a.Err)
	}
	p.clean()
}

// TestKeyTooLongForARequest: the length field has two bytes, however long a message may be.
func TestKeyTooLongForARequest(t *testing.T) {
	p := newPair(t, func(c *Config) { c.Message, c.PeerMessage = MaxMessage, MaxMessage })
	p.respondWith(100)
	p.receive(1, strings.Repeat("k", wire.MaxKey))
	p.receive(2, strings.Repeat("k", wire.MaxKey+1))
	p.run()
	p.expect(">REQUEST", "<EAGER")
	if a := p.ends[0].ended[0]; a.Outcome != OutcomeFallback || !strings.Contains(a.Err.Error(), "65536 bytes: the most is 65535") {
		t.Errorf("ended with %v: %v", a.Outcome, a.Err)
	}
	p.clean()
}

// TestLongKeyAndLargeShape: each fits into a REQUEST, both together do not.
func TestLongKeyAndLargeShape(t *testing.T) {
	p := newPair(t, func(c *Config) { c.Message, c.PeerMessage, c.Eager = wire.MinMessage, wire.MinMessage, 0 })
	dims := make([]int64, 254)
	for i := range dims {
		dims[i] = 1
	}
	dims[0] = 64 << 10
	v := wire.Value{DType: tensor.Uint8, Size: 64 << 10, Dims: wire.AppendDims(nil, dims...)}
	p.ends[1].respond = func(Request) Response { return Response{Value: v, Source: Source{Handle: 1}} }
	for id := range uint64(2) {
		p.receive(id+1, strings.Repeat("k", 3000))
		p.run()
		p.expect(">REQUEST", "<META", ">REREQUEST", "<IMM 65536")
	}
	p.clean()
}

// TestV10RequestNamesTheIncarnation: the shell can refuse a request for another process.
func TestV10RequestNamesTheIncarnation(t *testing.T) {
	p := newPair(t)
	p.ends[1].respond = func(a Request) Response {
		if a.Responder != 99 || a.Left != 2 || a.Step != -1 || string(a.Key) != "k" || a.Attempt != 4 {
			t.Errorf("request %+v", a)
		}
		return Response{Err: status.New(status.Aborted, "another process").WithPayload("p", []byte("v"))}
	}
	p.ends[0].ch.Receive(p.now, Receive{ID: 1, Attempt: 4, Responder: 99, Left: 2, Step: -1, Key: "k"})
	p.run()
	var err *status.Error
	if a := p.last(); a.Outcome != OutcomeError || !errors.As(a.Err, &err) || err.Code() != status.Aborted || a.Attempt != 4 {
		t.Fatalf("ended with %v: %v", a.Outcome, a.Err)
	}
	if v, _ := err.Payload("p"); string(v) != "v" {
		t.Errorf("payload %q", v)
	}
	p.clean()
}

// TestV11StepAbortedAtTheSender: the receive ends with an error, and the channel stays up.
func TestV11StepAbortedAtTheSender(t *testing.T) {
	p := newPair(t)
	p.ends[1].respond = func(Request) Response { return Response{Err: status.New(status.Aborted, "Cleanup 1")} }
	p.receive(1, "k")
	p.run()
	p.expect(">REQUEST", "<ERROR")
	if a := p.last(); status.CodeOf(a.Err) != status.Aborted {
		t.Errorf("ended with %v", a.Err)
	}
	p.respondWith(10)
	p.receive(2, "k")
	p.run()
	p.expect(">REQUEST", "<EAGER")
	p.clean()
}

// TestV12DestinationIsHeldUntilConfirmed: a receive is cancelled while it is written.
func TestV12DestinationIsHeldUntilConfirmed(t *testing.T) {
	for _, rails := range []int{1, 2} {
		t.Run(fmt.Sprint(rails, " rails"), func(t *testing.T) {
			p := newPair(t, func(c *Config) { c.Rails = rails })
			p.respondWith(4 << 20)
			p.ends[1].hold = true // the first writes are in flight
			p.receive(1, "k")
			p.run()
			p.trace = nil
			if !p.ends[0].ch.Cancel(p.now, 1, 1) || p.ends[0].ch.Cancel(p.now, 1, 1) {
				t.Error("a receive can be cancelled only once")
			}
			p.cut = true
			for _, a := range p.ends[0].ch.Actions(p.now) {
				p.do(0, a)
			}
			p.expect(">CANCEL")
			if len(p.ends[0].freed) > 0 {
				t.Fatal("the destination was returned before the responder confirmed the cancel")
			}
			p.cut = false
			p.ends[1].ch.Message(p.now, 0, listMessage(wire.KindCancel, 1, 2, rails))
			p.run()
			if want := []string{"<CANCELLED", "<1CANCELLED"}[:rails]; true {
				p.expect(want...)
			}
			if len(p.ends[0].freed) != 1 || len(p.ends[0].ended) != 0 {
				t.Errorf("freed %v, ended %v", p.ends[0].freed, p.ends[0].ended)
			}
			if len(p.ends[1].dropped) > 0 {
				t.Error("the source was dropped with writes in flight")
			}
			for rail := range rails {
				r := &p.ends[1].ch.rails[rail]
				p.ends[1].ch.Sent(p.now, rail, (r.slot+63)%64)
			}
			p.run()
			if len(p.ends[1].dropped) != 1 {
				t.Error("the source was not dropped")
			}
			p.clean()
		})
	}
}

// TestErrorBehindWrites: a request fails while its value is written. ERROR goes over each
// rail, and the destination is free when the last one has arrived.
func TestErrorBehindWrites(t *testing.T) {
	p := newPair(t, func(c *Config) { c.Rails = 3 })
	p.respondWith(4 << 20)
	p.ends[1].hold = true
	p.receive(1, "k")
	p.run()
	p.trace = nil
	gone := status.New(status.DataLoss, "given up").WithPayload("p", []byte("v"))
	p.ends[1].ch.Fail(p.now, 1, 1, gone)
	p.ends[1].ch.Fail(p.now, 1, 1, gone)
	p.run()
	p.expect("<ERROR", "<1ERROR", "<2ERROR")
	var err *status.Error
	if a := p.last(); a.Outcome != OutcomeError || !errors.As(a.Err, &err) || err.Message() != "given up" {
		t.Errorf("ended with %v: %v", a.Outcome, a.Err)
	}
	for rail := range 3 {
		r := &p.ends[1].ch.rails[rail]
		p.ends[1].ch.Sent(p.now, rail, (r.slot+63)%64)
	}
	p.run()
	if len(p.ends[1].dropped) != 1 {
		t.Error("the source was not dropped")
	}
	p.clean()
}

// TestResponderWithoutMemory: the receive ends with OutcomeFallback.
func TestResponderWithoutMemory(t *testing.T) {
	p := newPair(t)
	p.ends[1].respond = func(Request) Response {
		return Response{Err: status.New(status.ResourceExhausted, "no registered memory"), Fallback: true}
	}
	p.receive(1, "k")
	p.run()
	if a := p.last(); a.Outcome != OutcomeFallback || status.CodeOf(a.Err) != status.ResourceExhausted {
		t.Errorf("ended with %v: %v", a.Outcome, a.Err)
	}
	p.clean()
}

// listMessage returns a list message with one id. Its counts report n messages taken.
func listMessage(kind wire.Kind, id uint64, n uint32, rails int) []byte {
	var h wire.Header
	h.Taken.N = uint8(rails) //nolint:gosec // a handful
	h.Taken.Of[0] = n
	return appendList(kind, h, wire.IDs(nil).Append(id))
}

func appendList(kind wire.Kind, h wire.Header, ids wire.IDs) []byte {
	switch kind {
	case wire.KindCancel:
		var m wire.Cancel
		m.Header, m.IDs = h, ids
		return m.Append(nil)
	case wire.KindCancelled:
		var m wire.Cancelled
		m.Header, m.IDs = h, ids
		return m.Append(nil)
	case wire.KindAck:
		var m wire.Ack
		m.Header, m.IDs = h, ids
		return m.Append(nil)
	case wire.KindQuery:
		var m wire.Query
		m.Header, m.IDs = h, ids
		return m.Append(nil)
	case wire.KindWaiting:
		var m wire.Waiting
		m.Header, m.IDs = h, ids
		return m.Append(nil)
	default:
		var m wire.Unknown
		m.Header, m.IDs = h, ids
		return m.Append(nil)
	}
}

// TestV13SlotsAndGenerationsWrap uses a slot more often than its generation can count,
// while other receives are outstanding.
func TestV13SlotsAndGenerationsWrap(t *testing.T) {
	p := newPair(t)
	p.respondWith(64 << 10)
	p.receive(1, "k")
	p.run()
	// Two receives whose destination is sent and whose content does not arrive.
	p.manual = true
	p.receive(2, "k")
	p.receive(3, "k")
	p.run()
	p.manual = false
	for id := range uint64(2*wire.SlotGenerations + 10) {
		p.receive(id+10, "k")
		p.run()
		if a := p.last(); a.ID != id+10 || a.Outcome != OutcomeWritten {
			t.Fatalf("receive %d: %x ended with %v", id+10, a.ID, a.Outcome)
		}
		p.trace = nil
	}
	if n := len(p.ends[0].ch.slots.of); n > 4 {
		t.Errorf("%d slots were used for 3 receives at once", n)
	}
	for _, a := range p.ends[1].requests[1:3] {
		p.ends[1].ch.Respond(p.now, a.ID, a.Attempt, p.ends[1].respond(a))
		p.run()
		if e := p.last(); e.ID != a.ID || e.Outcome != OutcomeWritten {
			t.Errorf("receive %x ended with %v, want receive %x", e.ID, e.Outcome, a.ID)
		}
	}
	p.clean()
}

// TestV13StaleImmClosesTheChannel: the immediate data is of an earlier use of the slot.
func TestV13StaleImmClosesTheChannel(t *testing.T) {
	p := newPair(t)
	p.respondWith(64 << 10)
	p.receive(1, "k")
	p.run()
	p.manual = true
	p.receive(2, "k")
	p.run()
	p.ends[0].ch.Imm(p.now, 0, uint32(wire.NewImm(0, 1)))
	p.run()
	if why := p.ends[0].closed(); !strings.Contains(why, "slot 0 generation 1") {
		t.Errorf("closed: %q", why)
	}
}

// TestV14MoreRequestsThanTheWindow: of a thousand requests none is answered before the
// last one has arrived.
func TestV14MoreRequestsThanTheWindow(t *testing.T) {
	p := newPair(t)
	p.manual = true
	const n = 1000
	for id := range uint64(n) {
		p.receive(id+1, fmt.Sprint("k", id))
	}
	p.run()
	asked := p.ends[1].requests
	if len(asked) != n {
		t.Fatalf("%d of %d requests arrived", len(asked), n)
	}
	for i := range asked { // in reverse order, as when values depend on later requests
		a := asked[n-1-i]
		p.ends[1].ch.Respond(p.now, a.ID, a.Attempt, Response{Value: valueOf(int64(i)), Source: Source{Handle: uint64(i) + 1}})
	}
	p.run()
	if len(p.ends[0].ended) != n {
		t.Errorf("%d of %d ended", len(p.ends[0].ended), n)
	}
	p.clean()
}

func TestMoreReceivesThanMayWait(t *testing.T) {
	p := newPair(t, func(c *Config) {
		if c.MaxWaiting = 3; c.OwnIncarnation == 2 {
			c.MaxWaiting = 2
		}
	})
	p.manual = true
	for id := range uint64(4) {
		p.receive(id+1, "k")
	}
	p.run()
	if len(p.ends[0].ended) != 2 || len(p.ends[1].requests) != 2 {
		t.Fatalf("%d ended, %d requests", len(p.ends[0].ended), len(p.ends[1].requests))
	}
	for i, id := range []uint64{4, 3} { // here, then at the peer
		if a := p.ends[0].ended[i]; a.ID != id || status.CodeOf(a.Err) != status.ResourceExhausted {
			t.Errorf("%x ended with %v", a.ID, a.Err)
		}
	}
}

// TestPeerThatRequestsAndTakesNoResponses: twice MaxWaiting requests, or answers to QUERY,
// may wait; then the channel closes.
func TestPeerThatRequestsAndTakesNoResponses(t *testing.T) {
	const most = 4
	for what, says := range map[string]func(id uint64, h wire.Header) []byte{
		"it has 4 requests": func(id uint64, h wire.Header) []byte {
			m := wire.Request{Header: h, ID: id, Attempt: 1, Requester: 1, Responder: 2, Key: []byte("k")}
			return m.Append(nil)
		},
		"it has sent QUERY for 5 receives": func(id uint64, h wire.Header) []byte {
			return appendList(wire.KindQuery, h, wire.IDs(nil).Append(id))
		},
	} {
		p := newPair(t, func(c *Config) { c.MaxWaiting = most / 2 })
		c := p.ends[1].ch
		c.rails[0].sent = c.rails[0].confirmed + 16 // no response can be posted
		h := wire.Header{Taken: wire.Counts{N: 1, Of: [wire.MaxRails]uint32{c.rails[0].confirmed}}}
		for id := range uint64(most) {
			if c.Message(p.now, 0, says(id+1, h)); c.err != nil {
				t.Fatalf("%d: %v", id+1, c.err)
			}
		}
		c.Message(p.now, 0, says(most+1, h))
		if c.err == nil || !strings.Contains(c.err.Error(), what) {
			t.Errorf("want %q: %v", what, c.err)
		}
	}
}

// TestPayloadsFillTheMessage: the payloads that fit into a message with its counts are sent.
func TestPayloadsFillTheMessage(t *testing.T) {
	full := 0
	for size := 4000; size < wire.MinMessage; size++ {
		p := newPair(t, func(c *Config) { c.Message, c.PeerMessage = wire.MinMessage, wire.MinMessage })
		p.open(1)
		c := p.ends[1].ch
		c.Respond(p.now, 1, 1, Response{Err: status.New(status.Internal, "x").WithPayload("a", make([]byte, size))})
		for _, a := range c.Actions(p.now) {
			switch n := len(a.Post.Message); {
			case n > wire.MinMessage:
				t.Fatalf("an ERROR of %d bytes with a payload of %d", n, size)
			case n == wire.MinMessage:
				full++
			}
		}
	}
	if full != 1 {
		t.Errorf("%d payloads fill the message, want 1", full)
	}
}

// TestCancelBeforeRerequestIsPosted: the destination was not sent, so it is free at once.
func TestCancelBeforeRerequestIsPosted(t *testing.T) {
	p := newPair(t)
	p.respondWith(64 << 10)
	p.manual = true
	p.receive(1, "k")
	p.run()
	p.ends[1].ch.Respond(p.now, 1, 1, p.ends[1].respond(Request{}))
	p.run()
	p.ends[0].ch.Place(p.now, 1, 1, p.ends[0].dest())
	if !p.ends[0].ch.Cancel(p.now, 1, 1) {
		t.Fatal("not cancelled")
	}
	p.cut = true
	p.run()
	if n := len(p.ends[0].freed); n != 1 {
		t.Errorf("%d destinations were returned", n)
	}
	p.expect(">REQUEST", "<META", ">CANCEL")
}

// TestV15BreakGivesBackWhatHasNotEnded: after a break every receive, destination and source
// is returned. Messages that arrived before are processed.
func TestV15BreakGivesBackWhatHasNotEnded(t *testing.T) {
	p := newPair(t)
	p.respondWith(1 << 20)
	p.ends[1].hold = true
	p.receive(1, "k")
	p.run() // writes are in flight
	p.manual = true
	p.receive(2, "other")
	p.run()
	mark := p.ends[0].ch.Ack(p.now, []uint64{77})
	p.trace = nil
	why := errors.New("transport retry counter exceeded")
	for i := range p.ends {
		p.ends[i].ch.Leave(p.now, why)
		p.ends[i].ch.Receive(p.now, Receive{ID: 50, Attempt: 1, Key: "k"})
	}
	p.run()
	p.wait(time.Minute)
	p.expect()
	if a := p.last(); a.ID != 50 || a.Outcome != OutcomeLost {
		t.Errorf("%x ended with %v", a.ID, a.Outcome)
	}
	if n := len(p.ends[0].ended); n != 1 || len(p.ends[0].freed) > 0 || len(p.ends[1].dropped) > 0 {
		t.Errorf("%d ended, freed %v, dropped %v before the queue pairs were destroyed", n, p.ends[0].freed, p.ends[1].dropped)
	}
	if len(p.ends[1].others) == 0 || p.ends[1].others[0].Kind != ActDetach || p.ends[1].others[0].ID != 2 {
		t.Errorf("the responder did not forget the request without a value: %v", p.ends[1].others)
	}
	for i := range p.ends {
		p.ends[i].ch.Destroyed(p.now)
	}
	p.run()
	for _, a := range p.ends[0].ended {
		if a.Outcome != OutcomeLost || !errors.Is(a.Err, why) {
			t.Errorf("%x ended with %v: %v", a.ID, a.Outcome, a.Err)
		}
	}
	if len(p.ends[0].ended) != 3 || len(p.ends[1].dropped) != 1 {
		t.Errorf("%d ended, dropped %v", len(p.ends[0].ended), p.ends[1].dropped)
	}
	if p.ends[0].taken.Acks >= mark {
		t.Error("ACK is reported as taken")
	}
	p.clean()
}

// TestMessagesBeforeTheEndAreProcessed: a last write and ACK that are polled after
// the channel was left.
func TestMessagesBeforeTheEndAreProcessed(t *testing.T) {
	p := newPair(t)
	p.respondWith(64 << 10)
	p.cut = true
	p.receive(1, "k")
	p.cut = false
	p.run()
	p.manual = true
	p.receive(2, "k")
	p.run()
	r := p.ends[0].ch.byID[2]
	imm := uint32(p.ends[0].ch.receives.at(r).imm)
	p.ends[0].ch.Leave(p.now, errors.New("broken"))
	p.ends[0].ch.Imm(p.now, 0, imm)
	p.run()
	if a := p.last(); a.ID != 2 || a.Outcome != OutcomeWritten {
		t.Errorf("%x ended with %v", a.ID, a.Outcome)
	}
	p.ends[1].ch.Leave(p.now, errors.New("broken"))
	var h wire.Header
	h.Taken.N, h.Taken.Of[0] = 1, p.ends[0].ch.rails[0].taken-1
	p.ends[1].ch.Message(p.now, 0, appendList(wire.KindAck, h, wire.IDs(nil).Append(2)))
	p.ends[1].ch.Message(p.now, 0, appendList(wire.KindCancel, h, wire.IDs(nil).Append(3)))
	m := wire.Request{Header: h, ID: 9, Attempt: 1, Requester: 1, Responder: 2, Key: []byte("k")}
	p.ends[1].ch.Message(p.now, 0, m.Append(nil))
	p.run()
	var kinds []string
	for _, a := range p.ends[1].others {
		kinds = append(kinds, a.Kind.String())
	}
	if got := strings.Join(kinds, " "); got != "detach acked cancelled" || len(p.ends[1].requests) != 2 {
		t.Errorf("the responder got %s, %d requests", got, len(p.ends[1].requests))
	}
}

// TestV20MessageBeforeOwnReadyIsNotLost: HELLO of the peer may arrive before Ready.
func TestV20MessageBeforeOwnReadyIsNotLost(t *testing.T) {
	p := newPair(t) // only side 0 has had Ready
	if p.ends[1].ch.State() != Up {
		t.Errorf("side 1 is %v", p.ends[1].ch.State())
	}
	p.respondWith(1)
	p.receive(1, "k")
	p.run()
	p.expect(">REQUEST", "<EAGER")
}

// TestV21ContentOver4GiB: addresses and lengths are correct beyond 32 bits.
func TestV21ContentOver4GiB(t *testing.T) {
	const size = 10<<30 + 7
	p := newPair(t, func(c *Config) { c.Chunk, c.Outstanding, c.Rails = 1<<30, 2<<30, 3 })
	p.respondWith(size)
	var bytes uint64
	next := make(map[int]uint64)
	for i := range 3 {
		next[i], _ = stripe(size, 3, i)
	}
	p.receive(1, "k")
	for range 100 {
		for i := range p.ends {
			for _, a := range p.ends[i].ch.Actions(p.now) {
				if w := a.Post; a.Kind == ActPost && w.Op != verbs.OpSend {
					if w.Offset != next[w.Rail] || w.RemoteAddr != 1<<48+uint64(w.Rail)<<40+w.Offset {
						t.Fatalf("a write at %d to %#x, want at %d", w.Offset, w.RemoteAddr, next[w.Rail])
					}
					next[w.Rail] += uint64(w.Length)
					bytes += uint64(w.Length)
				}
				p.do(i, a)
			}
		}
	}
	if a := p.last(); a.Outcome != OutcomeWritten || a.Value.Size != size || bytes != size {
		t.Errorf("ended with %v, %d bytes written", a.Outcome, bytes)
	}
	p.clean()
}

// TestLongContentsTakeLongWrites: from twice the length of a long write on.
func TestLongContentsTakeLongWrites(t *testing.T) {
	const chunk, long = 64 << 10, 1 << 20
	for size, want := range map[int64]int{chunk: 1, 2*long - 1: 2 * long / chunk, 2 * long: 2, 5*long + 1: 6} {
		p := newPair(t, func(c *Config) { c.Chunk, c.LongChunk, c.Outstanding = chunk, long, 4*long })
		p.respondWith(size)
		p.receive(1, "k")
		writes, most, flying := 0, uint32(0), int64(0)
		for range 100 {
			for i := range p.ends {
				for _, a := range p.ends[i].ch.Actions(p.now) {
					if w := a.Post; a.Kind == ActPost && w.Op != verbs.OpSend {
						writes++
						most = max(most, w.Length)
					}
					p.do(i, a)
				}
				flying = max(flying, p.ends[i].ch.rails[0].inFlight)
			}
		}
		if p.last().Outcome != OutcomeWritten || writes != want || most > long || flying > 4*long {
			t.Errorf("%d bytes: %v in %d writes of at most %d bytes, %d at once; want %d", size, p.last().Outcome, writes, most, flying, want)
		}
		p.clean()
	}
}

func TestV22LongErrorTextIsCut(t *testing.T) {
	p := newPair(t, func(c *Config) { c.Message, c.PeerMessage = wire.MinMessage, wire.MinMessage })
	text := strings.Repeat("ä", 1<<19)
	p.ends[1].respond = func(Request) Response {
		return Response{Err: status.New(status.Internal, text).WithPayload("a", make([]byte, 4000)).WithPayload("b", []byte("fits"))}
	}
	p.receive(1, "k")
	p.run()
	a := p.last()
	var err *status.Error
	if !errors.As(a.Err, &err) || err.Message() != status.Truncate(text) {
		t.Fatalf("ended with %.80v", a.Err)
	}
	if _, ok := err.Payload("a"); ok {
		t.Error("a payload that does not fit was sent")
	}
	if v, _ := err.Payload("b"); string(v) != "fits" {
		t.Error("a payload that fits was not sent")
	}
}

// TestV26TwoShapesForOneKeyAtOnce: receives of two steps, one after the other and together.
func TestV26TwoShapesForOneKeyAtOnce(t *testing.T) {
	p := newPair(t)
	p.ends[1].respond = func(a Request) Response {
		return Response{Value: valueOf(64<<10 + a.Step), Source: Source{Handle: a.ID}}
	}
	id := uint64(0)
	for range 20 {
		for range 2 {
			for step := range int64(2) {
				id++
				r := Receive{ID: id, Attempt: 1, Responder: 2, Step: step, Key: "k"}
				if v, ok := p.ends[0].ch.CachedMeta("k"); ok {
					d := p.ends[0].dest()
					r.Early, r.Value = &d, v
				}
				p.ends[0].ch.Receive(p.now, r)
			}
		}
		p.run()
	}
	for _, a := range p.ends[0].ended {
		if want := uint64(64<<10) + (a.ID+1)%2; a.Value.Size != want || a.Outcome != OutcomeWritten {
			t.Errorf("receive %d: %v of %d bytes, want %d", a.ID, a.Outcome, a.Value.Size, want)
		}
	}
	p.clean()
}

func TestShapeThatChangesEveryStep(t *testing.T) {
	p := newPair(t)
	p.ends[1].respond = func(a Request) Response {
		return Response{Value: valueOf(int64(64<<10 + a.ID)), Source: Source{Handle: a.ID}}
	}
	for id := range uint64(5) {
		p.receive(id+1, "k")
		p.run()
		p.expect(">REQUEST", "<META", ">REREQUEST", "<WRITE 65536", fmt.Sprint("<IMM ", id+1))
	}
	p.clean()
}

func TestMetasAreBounded(t *testing.T) {
	p := newPair(t, func(c *Config) { c.MaxMetas = 10 })
	p.respondWith(64 << 10)
	for i := range 30 {
		p.receive(uint64(i)+1, fmt.Sprint("k", i))
		p.run()
		p.ends[0].ch.CachedMeta("k3") // used
	}
	for i, want := range map[int]bool{3: true, 29: true, 21: true, 20: false, 0: false} {
		if _, ok := p.ends[0].ch.CachedMeta(fmt.Sprint("k", i)); ok != want {
			t.Errorf("k%d is in the cache: %v", i, ok)
		}
	}
	if n := p.ends[0].ch.metas.of.n; n != 10 || len(p.ends[0].ch.metas.of.items) != 10 {
		t.Errorf("%d are in the cache", n)
	}
}

func TestNoMemoryForDestination(t *testing.T) {
	p := newPair(t)
	p.respondWith(64 << 10)
	p.manual = true
	p.receive(1, "k")
	p.run()
	p.ends[1].ch.Respond(p.now, 1, 1, p.ends[1].respond(Request{}))
	p.run()
	p.ends[0].ch.NoPlace(p.now, 1, 1)
	p.run()
	p.expect(">REQUEST", "<META", ">REREQUEST")
	if a := p.last(); a.Outcome != OutcomeFallback {
		t.Errorf("ended with %v", a.Outcome)
	}
	if len(p.ends[1].dropped) != 1 || len(p.ends[1].others) != 0 {
		t.Errorf("dropped %v, %v", p.ends[1].dropped, p.ends[1].others)
	}
	p.clean()
}

func TestPlaceTooLate(t *testing.T) {
	p := newPair(t)
	p.respondWith(64 << 10)
	p.manual = true
	p.receive(1, "k")
	p.run()
	p.ends[1].ch.Respond(p.now, 1, 1, p.ends[1].respond(Request{}))
	p.run()
	p.ends[0].ch.Cancel(p.now, 1, 1)
	p.run()
	p.ends[0].ch.Place(p.now, 1, 1, p.ends[0].dest())
	p.run()
	p.expect(">REQUEST", "<META", ">CANCEL", "<CANCELLED")
	p.clean()
}

// TestSmallIsNotDelayedByLarge: chunks of several contents take turns.
func TestSmallIsNotDelayedByLarge(t *testing.T) {
	p := newPair(t, func(c *Config) { c.Outstanding = 128 << 10 })
	p.respondWith(10<<20, 64<<10, 10)
	p.ends[1].hold = true
	p.receive(1, "a")
	p.run()
	p.trace = nil
	p.receive(2, "b")
	p.receive(3, "c")
	p.run()
	p.expect(">REQUEST", ">REQUEST", "<META", "<EAGER", ">REREQUEST")
	for range 3 { // completions of the large one
		p.ends[1].ch.Sent(p.now, 0, p.ends[1].held[0])
		p.ends[1].held = p.ends[1].held[1:]
		p.run()
	}
	p.expect("<WRITE 65536", "<IMM 65536", "<WRITE 65536")
}

// TestContentIsStagedWhenItsDestinationIsKnown: registered memory for a copy is requested
// only when the peer has sent the destination.
func TestContentIsStagedWhenItsDestinationIsKnown(t *testing.T) {
	p := newPair(t)
	sender := &p.ends[1]
	sender.respond = func(a Request) Response {
		return Response{Value: valueOf(64 << 10), Source: Source{Handle: a.ID}, Unregistered: true}
	}
	staging := func() (n int) {
		for _, a := range sender.others {
			if a.Kind == ActStage {
				n++
			}
		}
		return n
	}
	p.manual = true
	p.receive(1, "k")
	p.run()
	sender.ch.Respond(p.now, 1, 1, sender.respond(Request{ID: 1}))
	p.run()
	p.expect(">REQUEST", "<META")
	if n := staging(); n != 0 {
		t.Errorf("%d copies before the peer has sent the destination", n)
	}
	p.ends[0].ch.Place(p.now, 1, 1, p.ends[0].dest())
	p.run()
	p.expect(">REREQUEST")
	if n := staging(); n != 1 {
		t.Errorf("%d copies are requested, want 1", n)
	}
	sender.ch.Staged(p.now, 1, 1, Source{Handle: 100})
	p.run()
	p.expect("<IMM 65536")
	if a := p.last(); a.Outcome != OutcomeWritten {
		t.Errorf("ended with %v", a.Outcome)
	}
	// With an early destination, the content is staged at once.
	p.manual = false
	p.receive(2, "k")
	p.run()
	if n := staging(); n != 2 {
		t.Errorf("%d copies are requested, want 2", n)
	}
	sender.ch.NotStaged(p.now, 2, 1, status.New(status.ResourceExhausted, "no registered memory"))
	p.run()
	p.expect(">REQUEST", "<ERROR")
	if a := p.last(); a.Outcome != OutcomeFallback || !a.ByPeer || status.CodeOf(a.Err) != status.ResourceExhausted {
		t.Errorf("ended with %v: %v", a.Outcome, a.Err)
	}
	if want := []uint64{1, 100, 2}; !slices.Equal(sender.dropped, want) {
		t.Errorf("dropped %v, want %v", sender.dropped, want)
	}
	p.clean()
}

// TestStagedTooLate: a copy for a request that was cancelled meanwhile is dropped.
func TestStagedTooLate(t *testing.T) {
	p := newPair(t)
	sender := &p.ends[1]
	sender.respond = func(a Request) Response {
		return Response{Value: valueOf(64 << 10), Source: Source{Handle: a.ID}, Unregistered: true}
	}
	p.receive(1, "k")
	p.run()
	p.ends[0].ch.Cancel(p.now, 1, 1)
	p.run()
	p.expect(">REQUEST", "<META", ">REREQUEST", ">CANCEL", "<CANCELLED")
	sender.ch.Staged(p.now, 1, 1, Source{Handle: 100})
	sender.ch.NotStaged(p.now, 1, 1, status.New(status.ResourceExhausted, "no registered memory"))
	p.run()
	p.expect()
	if want := []uint64{1, 100}; !slices.Equal(sender.dropped, want) {
		t.Errorf("dropped %v, want %v", sender.dropped, want)
	}
	p.clean()
}

// TestDestinationIsReturnedBeforeItsReceiveEnds: a destination may be the receiver's own memory,
// which the receiver uses again as soon as the receive has ended.
func TestDestinationIsReturnedBeforeItsReceiveEnds(t *testing.T) {
	early := func(p *pair) {
		d := p.ends[0].dest()
		p.ends[0].ch.Receive(p.now, Receive{ID: 1, Attempt: 1, Responder: 2, Step: 1, Key: "k", Early: &d, Value: valueOf(64 << 10)})
	}
	with := func(r Response) func(p *pair) {
		return func(p *pair) {
			p.ends[1].respond = func(Request) Response { return r }
			early(p)
			p.run()
		}
	}
	for name, c := range map[string]struct {
		do   func(p *pair)
		want Outcome
	}{
		"dead value":  {with(Response{Value: valueOf(-1)}), OutcomeEager},
		"small value": {with(Response{Value: valueOf(8), Source: Source{Handle: 1}}), OutcomeEager},
		"error":       {with(Response{Err: status.New(status.NotFound, "nothing")}), OutcomeError},
		"fallback":    {with(Response{Err: status.New(status.NotFound, "nothing"), Fallback: true}), OutcomeFallback},
		"channel gone": {func(p *pair) {
			p.cut = true
			early(p)
			p.run()
			p.ends[0].ch.Destroyed(p.now)
			p.run()
		}, OutcomeLost},
		"cancelled before it was requested": {func(p *pair) {
			early(p)
			p.ends[0].ch.SendCancels(p.now, []uint64{1})
			p.run()
		}, OutcomeError},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t)
			c.do(p)
			if got := p.last().Outcome; got != c.want {
				t.Errorf("it ended with outcome %v", got)
			}
			if p.ends[0].whole[0] != 1 {
				t.Error("the receive ended first")
			}
		})
	}
}
