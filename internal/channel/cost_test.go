package channel

import (
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/internal/wire"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/verbs"
)

// busy is a channel with many of everything that can wait. As a responder: small contents
// whose last write waits for a credit; large ones, which wait for space; contents that are
// staged; responses; requests without a response or without a destination. As a requester:
// receives that are requested, are not requested yet, wait for a destination, or are
// cancelled. The test plays the peer. It has taken everything that was posted, except for
// one window.
type busy struct {
	t         testing.TB
	c         *Channel
	now       time.Time
	sent      uint32 // messages and last writes of the channel
	confirmed uint32 // how many of these the peer has confirmed
	// posts are the work requests in flight, by rail and slot.
	posts   []Post
	waiting int
}

// The ids of receives and requests that wait. Each group has ids from its number times group
// on.
const (
	group        = 1 << 32
	unanswered   = 1 * group
	withoutDest  = 2 * group
	small        = 3 * group
	large        = 4 * group
	answered     = 5 * group
	requested    = 6 * group
	placing      = 7 * group
	quarantined  = 8 * group
	notRequested = 9 * group
	staging      = 10 * group
)

func newBusy(t testing.TB, n int) *busy {
	w := &busy{t: t, now: time.Unix(1000, 0), waiting: n}
	c, err := New(w.now, Config{
		Peer: "the peer", Generation: 3, OwnIncarnation: 1, PeerIncarnation: 2, Rails: 1, Window: 16, PeerWindow: 16,
		Message: 12 << 10, PeerMessage: 12 << 10, Eager: 8 << 10, SendQueue: 64, Chunk: 64 << 10, Outstanding: 256 << 10,
		QuarantineBytes: 1 << 50,
	})
	if err != nil {
		t.Fatal(err)
	}
	w.c = c
	c.Ready(w.now)
	hello := wire.Hello{Header: w.header(), Generation: 3, From: 2, To: 1}
	w.message(hello.Append(nil))
	for i := range uint64(n) { // as a requester
		for _, id := range []uint64{requested, placing, quarantined} {
			c.Receive(w.now, Receive{ID: id + i, Attempt: 1, Responder: 2, Step: 1, Key: "k"})
			w.settle()
		}
		for _, id := range []uint64{placing, quarantined} {
			m := wire.Meta{Header: w.header(), ID: id + i, Value: valueOf(64 << 10)}
			w.message(m.Append(nil))
		}
		c.Place(w.now, quarantined+i, 1, Dest{Handle: quarantined + i})
		w.settle()
		if !c.Cancel(w.now, quarantined+i, 1) {
			t.Fatal("not cancelled")
		}
		w.settle()
	}
	for i := range uint64(n) { // as a responder
		w.request(unanswered+i, 0)
		w.request(withoutDest+i, 0)
		w.request(answered+i, 0)
		w.request(small+i, 16<<10)
		w.request(large+i, 1<<20)
		w.request(staging+i, 1<<20)
		c.Respond(w.now, withoutDest+i, 1, Response{Value: valueOf(1 << 20), Source: Source{Handle: withoutDest + i}})
		c.Respond(w.now, staging+i, 1, Response{Value: valueOf(1 << 20), Source: Source{Handle: staging + i}, Unregistered: true})
		w.settle()
	}
	w.list(wire.KindAck, 1) // the last counts of the peer
	for i := range uint64(n) {
		for _, v := range []struct {
			id   uint64
			size int64
		}{{large, 1 << 20}, {small, 16 << 10}, {answered, 100}} {
			c.Respond(w.now, v.id+i, 1, Response{Value: valueOf(v.size), Source: Source{Handle: v.id + i}})
		}
		c.Receive(w.now, Receive{ID: notRequested + i, Attempt: 1, Responder: 2, Step: 1, Key: "k"})
		w.act()
	}
	// All work requests have completed, and the peer's counts do not confirm them.
	w.completes()
	for l, least := range map[listID]int{listRequested: n, listPlacing: n, listQuarantine: n, listToRequest: n - 16} {
		if got := c.receives.lists[l].n; got < least {
			t.Fatalf("list %d of receives has %d of %d", l, got, least)
		}
	}
	if got := c.shares.lists[sharesLast.on(0)].n; got < n-16 || c.requests.lists[listToRespond].n < n-16 || c.shares.lists[sharesMore.on(0)].n < min(n-16, 1) {
		t.Fatalf("%d last writes wait, %d responses, %d large contents", got, c.requests.lists[listToRespond].n, c.shares.lists[sharesMore.on(0)].n)
	}
	return w
}

func (w *busy) header() wire.Header {
	w.confirmed = w.sent
	return wire.Header{Taken: wire.Counts{N: 1, Of: [wire.MaxRails]uint32{w.confirmed}}}
}

// staleHeader returns a header whose counts confirm nothing new.
func (w *busy) staleHeader() wire.Header {
	return wire.Header{Taken: wire.Counts{N: 1, Of: [wire.MaxRails]uint32{w.confirmed}}}
}

func (w *busy) message(b []byte) {
	w.c.Message(w.now, 0, b)
	w.settle()
}

func (w *busy) list(kind wire.Kind, ids ...uint64) {
	var l wire.IDs
	for _, id := range ids {
		l = l.Append(id)
	}
	w.message(appendList(kind, w.header(), l))
}

// request passes a REQUEST of the peer, with a destination for size bytes unless size is 0.
func (w *busy) request(id uint64, size int64) {
	m := wire.Request{Header: w.header(), ID: id, Requester: 2, Responder: 1, Step: 1, Attempt: 1, Key: []byte("k")}
	if size > 0 {
		m.HasDest, m.Value = true, valueOf(size)
		m.Dest = wire.Dest{N: 1, Rails: [wire.MaxRails]wire.Remote{{Addr: 1 << 40, RKey: 1}}}
	}
	w.message(m.Append(nil))
}

// act carries out the actions of the channel.
func (w *busy) act() {
	for more := true; more; {
		acts := w.c.Actions(w.now)
		more = len(acts) > 0
		for _, a := range acts {
			if a.Kind == ActClose {
				w.t.Fatalf("closed: %v", a.Err)
			}
			if a.Kind == ActPost {
				w.posts = append(w.posts, a.Post)
				if a.Post.Op != verbs.OpWrite {
					w.sent++
				}
			}
		}
	}
}

// settle carries out all actions and completes all work requests.
func (w *busy) settle() {
	for w.act(); len(w.posts) > 0; w.act() {
		w.completes()
	}
}

// completes completes all work requests in flight.
func (w *busy) completes() {
	posts := w.posts
	w.posts = nil
	for _, p := range posts {
		if p.Signaled {
			w.c.Sent(w.now, 0, p.Slot)
		}
	}
}

// looks returns how many records and elements of queues the channel has accessed so far.
func (c *Channel) looks() int {
	n := c.receives.looks + c.requests.looks + c.shares.looks + c.metas.of.looks + c.slots.free.looks +
		c.cancelledIDs.looks + c.waitingIDs.looks + c.unknownIDs.looks + c.pending.unconfirmed.looks + c.pending.acks.ids.looks + c.pending.cancels.ids.looks
	for i := range c.rails {
		n += c.rails[i].posts.looks
	}
	return n
}

// written returns the id of a content that is being written, of which a write is posted.
func (w *busy) written(n int) uint64 {
	id := uint64(large + n) //nolint:gosec // small
	if a := w.c.requests.at(w.c.requestsByID[id]); a.state != requestWriting || !a.written {
		w.t.Fatalf("nothing of %x is written", id)
	}
	return id
}

type busyEvent struct {
	name string
	do   func()
}

// events returns all kinds of events of a busy channel, in an order in which each can happen.
func (w *busy) events() []busyEvent {
	c, mid := w.c, uint64(w.waiting)/2
	send := func(b []byte) { c.Message(w.now, 0, b) }
	ids := func(kind wire.Kind, ids ...uint64) func() {
		return func() {
			var l wire.IDs
			for _, id := range ids {
				l = l.Append(id)
			}
			send(appendList(kind, w.staleHeader(), l))
		}
	}
	credit := func(more uint32) func() {
		return func() {
			m := wire.Credit{Header: w.staleHeader()}
			m.Taken.Of[0] += more
			w.confirmed += more
			send(m.Append(nil))
		}
	}
	return []busyEvent{
		{"nothing", func() {}},
		{"the clock", func() { c.Deadline(); c.Tick(w.now) }},
		{"CREDIT of nothing", credit(0)},
		{"CREDIT of one", credit(1)},
		{"a completion", func() { w.completes() }},
		{"CANCEL of a small content", ids(wire.KindCancel, small+mid)},
		{"CANCEL of a large content", ids(wire.KindCancel, large+mid)},
		{"CANCEL of a content that is being written", ids(wire.KindCancel, w.written(0))},
		{"a content that is being written fails", func() { c.Fail(w.now, w.written(1), 1, status.New(status.DataLoss, "given up")) }},
		{"CANCEL of a response", ids(wire.KindCancel, answered+mid)},
		{"CANCEL of a request", ids(wire.KindCancel, unanswered+mid)},
		{"CANCEL without a destination", ids(wire.KindCancel, withoutDest+mid)},
		{"CANCELLED", ids(wire.KindCancelled, quarantined+mid)},
		{"ACK", ids(wire.KindAck, mid)},
		{"QUERY", ids(wire.KindQuery, unanswered+mid+1, 1)},
		{"WAITING", ids(wire.KindWaiting, requested+mid)},
		{"a Send of a small value", func() {
			c.Respond(w.now, unanswered+mid+2, 1, Response{Value: valueOf(100), Source: Source{Handle: 1}})
		}},
		{"a Send of a large value", func() {
			c.Respond(w.now, unanswered+mid+3, 1, Response{Value: valueOf(1 << 20), Source: Source{Handle: 1}})
		}},
		{"a value that fails", func() { c.Fail(w.now, small+mid+1, 1, status.New(status.DataLoss, "given up")) }},
		{"a large value that fails", func() { c.Fail(w.now, large+mid+1, 1, status.New(status.DataLoss, "given up")) }},
		{"Staged", func() { c.Staged(w.now, staging+mid, 1, Source{Handle: 1}) }},
		{"NotStaged", func() { c.NotStaged(w.now, staging+mid+1, 1, status.New(status.ResourceExhausted, "no memory")) }},
		{"CANCEL of a content that is staged", ids(wire.KindCancel, staging+mid+2)},
		{"REQUEST", func() {
			m := wire.Request{Header: w.staleHeader(), ID: 77, Requester: 2, Responder: 1, Step: 1, Attempt: 1, Key: []byte("k")}
			send(m.Append(nil))
		}},
		{"REREQUEST", func() {
			m := wire.ReRequest{Header: w.staleHeader(), ID: withoutDest + mid + 1, HasDest: true, Dest: wire.Dest{N: 1}}
			send(m.Append(nil))
		}},
		{"META", func() {
			m := wire.Meta{Header: w.staleHeader(), ID: requested + mid + 1, Value: valueOf(1 << 20)}
			send(m.Append(nil))
		}},
		{"EAGER", func() {
			m := wire.Eager{Header: w.staleHeader(), ID: requested + mid + 2, Value: valueOf(1), Content: []byte{1}}
			send(m.Append(nil))
		}},
		{"ERROR", func() {
			m := wire.Error{Header: w.staleHeader(), ID: requested + mid + 3, Code: status.Aborted}
			send(m.Append(nil))
		}},
		{"a Recv", func() { c.Receive(w.now, Receive{ID: 78, Attempt: 1, Responder: 2, Key: "k"}) }},
		{"its Cancel", func() { c.Cancel(w.now, requested+mid+3, 1) }},
		{"Cancel of one placed", func() { c.Cancel(w.now, placing+mid+1, 1) }},
		{"Cancel before REQUEST", func() { c.Cancel(w.now, notRequested+mid, 1) }},
		{"SendCancels", func() { c.SendCancels(w.now, []uint64{requested + mid, 79}) }},
		{"Ack", func() { c.Ack(w.now, []uint64{80}) }},
		{"Place", func() { c.Place(w.now, placing+mid+2, 1, Dest{Handle: 1}) }},
		{"NoPlace", func() { c.NoPlace(w.now, placing+mid+3, 1) }},
		{"an imm", func() { c.Imm(w.now, 0, uint32(c.receives.at(c.byID[quarantined+mid+1]).imm)) }},
		{"CANCEL of ten", func() {
			var l []uint64
			for i := range uint64(10) {
				l = append(l, small+mid+2+i)
			}
			ids(wire.KindCancel, l...)()
		}},
		{"Watch", func() { c.Watch(w.now, true) }},
		{"Doubt", func() { c.Doubt(w.now) }},
	}
}

// TestEventCostDoesNotGrow: no event walks over everything that waits. With 80,000 of
// everything, an event accesses as many records as with 30.
func TestEventCostDoesNotGrow(t *testing.T) {
	const few, many = 30, 80_000
	cost := func(n int) map[string]int {
		w := newBusy(t, n)
		all := make(map[string]int)
		for _, e := range w.events() {
			before := w.c.looks()
			e.do()
			w.act()
			w.c.Deadline()
			all[e.name] = w.c.looks() - before
		}
		return all
	}
	want, got := cost(few), cost(many)
	for name := range want {
		if got[name] > want[name] {
			t.Errorf("%s accesses %d records while %d of each kind wait, and %d while %d do", name, got[name], many, want[name], few)
		}
	}
}
