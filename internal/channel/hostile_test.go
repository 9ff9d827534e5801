package channel

import (
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/internal/wire"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/verbs"
)

// TestHostileMessages: the faults of PROTOCOL.md section 8.6. The victim is side 0. It has
// requested receives 1 (waits), 2 (its content is being written into slot 0) and 3
// (cancelled), and has request 10 of the peer (waits).
func TestHostileMessages(t *testing.T) {
	large := wire.Value{DType: tensor.Uint8, Size: 64 << 10, Dims: wire.AppendDims(nil, 64<<10)}
	small := wire.Value{DType: tensor.Uint8, Size: 2, Dims: wire.AppendDims(nil, 2)}
	for _, c := range []struct {
		name string
		send func(p *pair, h wire.Header) []byte
		want string // why the channel is closed; empty when it is not
	}{
		{"nothing", func(*pair, wire.Header) []byte { return nil }, "shorter than its header"},
		{"unknown kind", func(*pair, wire.Header) []byte { return []byte{wire.Version, 99, 0, 0, 12, 0, 0, 0, 0, 0, 0, 0} }, "unknown kind 99"},
		{"other version", func(*pair, wire.Header) []byte { return []byte{3, 2, 0, 0, 12, 0, 0, 0, 0, 0, 0, 0} }, "protocol version 3"},
		{"cut", func(_ *pair, h wire.Header) []byte {
			m := wire.Meta{Header: h, ID: 1, Value: large}
			b := m.Append(nil)
			return b[:len(b)-1]
		}, "META gives its length as"},
		{"longer than its length", func(_ *pair, h wire.Header) []byte {
			m := wire.Credit{Header: h}
			return append(m.Append(nil), 0)
		}, "CREDIT gives its length as"},
		{"HELLO twice", func(_ *pair, h wire.Header) []byte {
			m := wire.Hello{Header: h, Generation: 3, From: 2, To: 1}
			return m.Append(nil)
		}, "HELLO twice"},
		{"credit that goes back", func(_ *pair, h wire.Header) []byte {
			h.Taken.Of[0]--
			m := wire.Credit{Header: h}
			return m.Append(nil)
		}, "credit count of rail 0"},
		{"credit for what was not sent", func(_ *pair, h wire.Header) []byte {
			h.Taken.Of[0] += 100
			m := wire.Credit{Header: h}
			return m.Append(nil)
		}, "credit count of rail 0"},
		{"credit for one that was not sent", func(p *pair, h wire.Header) []byte {
			h.Taken.Of[0] = p.ends[0].ch.rails[0].sent + 1
			m := wire.Credit{Header: h}
			return m.Append(nil)
		}, "credit count of rail 0"},
		{"credit for all that was sent", func(p *pair, h wire.Header) []byte {
			h.Taken.Of[0] = p.ends[0].ch.rails[0].sent
			m := wire.Credit{Header: h}
			return m.Append(nil)
		}, ""},
		{"counts of other rails", func(_ *pair, h wire.Header) []byte {
			h.Taken.N = 2
			m := wire.Credit{Header: h}
			return m.Append(nil)
		}, "counts 2 rails"},
		{"EAGER for no receive", func(_ *pair, h wire.Header) []byte {
			m := wire.Eager{Header: h, ID: 99, Value: small, Content: []byte{1, 2}}
			return m.Append(nil)
		}, ""},
		{"EAGER of what is being written", func(_ *pair, h wire.Header) []byte {
			m := wire.Eager{Header: h, ID: 2, Value: small, Content: []byte{1, 2}}
			return m.Append(nil)
		}, "after its META"},
		{"META for no receive", func(_ *pair, h wire.Header) []byte {
			m := wire.Meta{Header: h, ID: 99, Value: large}
			return m.Append(nil)
		}, ""},
		{"META twice", func(_ *pair, h wire.Header) []byte {
			m := wire.Meta{Header: h, ID: 2, Value: large}
			return m.Append(nil)
		}, "META twice"},
		{"META of an empty value", func(_ *pair, h wire.Header) []byte {
			m := wire.Meta{Header: h, ID: 1, Value: wire.Value{DType: tensor.Uint8, Dims: wire.AppendDims(nil, 0)}}
			return m.Append(nil)
		}, "without a content"},
		{"META with a shape that no tensor has", func(_ *pair, h wire.Header) []byte {
			m := wire.Meta{Header: h, ID: 1, Value: wire.Value{DType: tensor.Uint8, Size: 1 << 40, Dims: wire.AppendDims(nil, 7)}}
			return m.Append(nil)
		}, "take 1099511627776 bytes"},
		{"ERROR for no receive", func(_ *pair, h wire.Header) []byte {
			m := wire.Error{Header: h, ID: 99, Code: status.Aborted}
			return m.Append(nil)
		}, ""},
		{"ERROR over each rail for a receive without destination", func(_ *pair, h wire.Header) []byte {
			m := wire.Error{Header: h, ID: 1, Code: status.Aborted, Each: true}
			return m.Append(nil)
		}, "expects nothing more on rail 0"},
		{"CANCELLED of what was not cancelled", func(_ *pair, h wire.Header) []byte {
			return appendList(wire.KindCancelled, h, wire.IDs(nil).Append(1))
		}, "which was not cancelled"},
		{"CANCELLED for no receive", func(_ *pair, h wire.Header) []byte {
			return appendList(wire.KindCancelled, h, wire.IDs(nil).Append(99))
		}, ""},
		{"CANCEL for no receive", func(_ *pair, h wire.Header) []byte {
			return appendList(wire.KindCancel, h, wire.IDs(nil).Append(99))
		}, ""},
		{"WAITING and UNKNOWN for no receive", func(p *pair, h wire.Header) []byte {
			p.ends[0].ch.Message(p.now, 0, appendList(wire.KindWaiting, h, wire.IDs(nil).Append(99)))
			return appendList(wire.KindUnknown, h, wire.IDs(nil).Append(99))
		}, ""},
		{"UNKNOWN of an outstanding receive", func(_ *pair, h wire.Header) []byte {
			return appendList(wire.KindUnknown, h, wire.IDs(nil).Append(1))
		}, "UNKNOWN for receive"},
		{"REQUEST twice", func(_ *pair, h wire.Header) []byte {
			m := wire.Request{Header: h, ID: 10, Attempt: 2, Requester: 2, Responder: 1, Key: []byte("k")}
			return m.Append(nil)
		}, "REQUEST twice"},
		{"REQUEST of another process", func(_ *pair, h wire.Header) []byte {
			m := wire.Request{Header: h, ID: 11, Attempt: 1, Requester: 3, Responder: 1, Key: []byte("k")}
			return m.Append(nil)
		}, "of incarnation 0000000000000003"},
		{"REQUEST with a destination for other rails", func(_ *pair, h wire.Header) []byte {
			m := wire.Request{Header: h, ID: 11, Attempt: 1, Requester: 2, Responder: 1, Key: []byte("k"), HasDest: true, Dest: wire.Dest{N: 2}, Value: large}
			return m.Append(nil)
		}, "a destination for 2 rails"},
		{"REQUEST without a key", func(_ *pair, h wire.Header) []byte {
			m := wire.Request{Header: h, ID: 11, Attempt: 1, Requester: 2, Responder: 1}
			return m.Append(nil)
		}, "REQUEST has no key"},
		{"REREQUEST for no receive", func(_ *pair, h wire.Header) []byte {
			m := wire.ReRequest{Header: h, ID: 99}
			return m.Append(nil)
		}, ""},
		{"REREQUEST without META", func(_ *pair, h wire.Header) []byte {
			m := wire.ReRequest{Header: h, ID: 10}
			return m.Append(nil)
		}, "without a META"},
		{"imm of a closed slot", func(p *pair, _ wire.Header) []byte {
			p.ends[0].ch.Imm(p.now, 0, uint32(wire.NewImm(1000, 1)))
			return nil
		}, "slot 1000 generation 1, which is not open"},
		{"imm on a rail that the channel does not have", func(p *pair, _ wire.Header) []byte {
			p.ends[0].ch.Imm(p.now, 1, uint32(wire.NewImm(0, 1)))
			return nil
		}, ""}, // ignored
		{"more than the window", func(p *pair, h wire.Header) []byte {
			m := wire.Credit{Header: h}
			for range 40 {
				p.ends[0].ch.Message(p.now, 0, m.Append(nil))
			}
			return nil
		}, "more than its window of 16"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPair(t)
			p.manual = true
			for id := range uint64(3) {
				p.receive(id+1, "k")
			}
			p.ends[1].ch.Receive(p.now, Receive{ID: 10, Attempt: 1, Responder: 1, Key: "k"})
			p.run()
			p.ends[1].ch.Respond(p.now, 2, 1, Response{Value: large, Source: Source{Handle: 1}})
			p.run()
			p.cut = true
			p.ends[0].ch.Place(p.now, 2, 1, p.ends[0].dest())
			p.ends[0].ch.Cancel(p.now, 3, 1)
			p.run()
			var h wire.Header
			h.Taken.N, h.Taken.Of[0] = 1, p.ends[0].ch.rails[0].confirmed
			b := c.send(p, h)
			if b != nil || c.name == "nothing" {
				p.ends[0].ch.Message(p.now, 0, b)
			}
			p.run()
			why := p.ends[0].closed()
			if c.want == "" && why != "" || !strings.Contains(why, c.want) {
				t.Errorf("closed: %q, want %q", why, c.want)
			}
			if c.want != "" && !strings.Contains(why, "/job:peer/replica:0/task:0, channel generation 3") {
				t.Errorf("the reason does not name the peer: %s", why)
			}
			p.ends[0].ch.Destroyed(p.now)
			p.run()
			p.ends[1].ch.Destroyed(p.now)
			p.run()
			p.clean()
		})
	}
}

// TestHostileRails: faults with several rails. Receive 1 is being written over all three,
// into slot 0.
func TestHostileRails(t *testing.T) {
	imm := uint32(wire.NewImm(0, 1))
	cancelled := func(each bool) []byte {
		var m wire.Cancelled
		m.Each, m.IDs = each, wire.IDs(nil).Append(1)
		return m.Append(nil)
	}
	failed := wire.Error{ID: 1, Code: status.Aborted, Each: true}
	for _, c := range []struct {
		name string
		send func(p *pair, c *Channel)
		want string
	}{
		{"a last write twice on a rail", func(p *pair, c *Channel) { c.Imm(p.now, 1, imm); c.Imm(p.now, 1, imm) }, "on rail 1, which had its last"},
		{"ERROR after the last write", func(p *pair, c *Channel) {
			c.Imm(p.now, 1, imm)
			c.Message(p.now, 1, failed.Append(nil))
		}, "expects nothing more on rail 1"},
		{"a last write after ERROR", func(p *pair, c *Channel) {
			c.Message(p.now, 2, failed.Append(nil))
			c.Imm(p.now, 2, imm)
		}, "on rail 2, which had its last"},
		{"CANCELLED of what was not cancelled", func(p *pair, c *Channel) { c.Message(p.now, 1, cancelled(true)) }, "which was not cancelled"},
		{"META over another rail", func(p *pair, c *Channel) {
			m := wire.Meta{ID: 1, Value: valueOf(1 << 20)}
			c.Message(p.now, 1, m.Append(nil))
		}, "META on rail 1"},
		{"counts over another rail", func(p *pair, c *Channel) {
			m := failed
			m.Taken.N = 3
			c.Message(p.now, 1, m.Append(nil))
		}, "carries counts"},
		{"ERROR for all rails after a last write", func(p *pair, c *Channel) {
			c.Imm(p.now, 1, imm)
			m := wire.Error{ID: 1, Code: status.Aborted}
			m.Taken.N, m.Taken.Of[0] = 3, c.rails[0].confirmed
			c.Message(p.now, 0, m.Append(nil))
		}, "which has ended on rail 1"},
		{"a response to what was not requested yet", func(p *pair, c *Channel) {
			c.Receive(p.now, Receive{ID: 2, Attempt: 1, Responder: 2, Key: "k"})
			m := wire.Error{ID: 2, Code: status.Aborted}
			m.Taken.N, m.Taken.Of[0] = 3, c.rails[0].confirmed
			c.Message(p.now, 0, m.Append(nil))
		}, "which was not requested yet"},
		{"WAITING for what was not requested yet", func(p *pair, c *Channel) {
			c.Receive(p.now, Receive{ID: 2, Attempt: 1, Responder: 2, Key: "k"})
			c.Message(p.now, 0, listMessage(wire.KindWaiting, 2, c.rails[0].confirmed, 3))
		}, "which was not requested yet"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPair(t, func(c *Config) { c.Rails = 3 })
			p.manual = true
			p.receive(1, "k")
			p.run()
			p.ends[1].ch.Respond(p.now, 1, 1, Response{Value: valueOf(4 << 20), Source: Source{Handle: 1}})
			p.run()
			p.cut = true
			p.ends[0].ch.Place(p.now, 1, 1, p.ends[0].dest())
			p.run()
			c.send(p, p.ends[0].ch)
			p.run()
			if why := p.ends[0].closed(); !strings.Contains(why, c.want) {
				t.Errorf("closed: %q, want %q", why, c.want)
			}
			for i := range p.ends {
				p.ends[i].ch.Destroyed(p.now)
			}
			p.run()
			p.clean()
		})
	}
}

func TestHelloOfAnotherChannel(t *testing.T) {
	for name, m := range map[string]wire.Hello{
		"generation": {Generation: 4, From: 2, To: 1}, "from": {Generation: 3, From: 9, To: 1}, "to": {Generation: 3, From: 2, To: 9},
	} {
		p := newPair(t)
		c, err := New(p.now, p.ends[0].ch.cfg)
		if err != nil {
			t.Fatal(err)
		}
		m.Taken.N = 1
		c.Message(p.now, 0, m.Append(nil))
		acts := c.Actions(p.now)
		if len(acts) == 0 || acts[0].Kind != ActClose || !strings.Contains(acts[0].Err.Error(), "HELLO for generation") {
			t.Errorf("%s: %v", name, acts)
		}
	}
}

func TestMessageBeforeHello(t *testing.T) {
	p := newPair(t)
	c, err := New(p.now, p.ends[0].ch.cfg)
	if err != nil {
		t.Fatal(err)
	}
	var m wire.Credit
	m.Taken.N = 1
	c.Message(p.now, 0, m.Append(nil))
	if acts := c.Actions(p.now); len(acts) == 0 || acts[0].Kind != ActClose || !strings.Contains(acts[0].Err.Error(), "CREDIT before HELLO") {
		t.Errorf("%v", acts)
	}
}

func TestConfigIsChecked(t *testing.T) {
	good := newPair(t).ends[0].ch.cfg
	for name, change := range map[string]func(*Config){
		"rails": func(c *Config) { c.Rails = 9 }, "no rails": func(c *Config) { c.Rails = 0 }, "window": func(c *Config) { c.Window = 3 },
		"message": func(c *Config) { c.PeerMessage = 4095 }, "queue": func(c *Config) { c.SendQueue = 8 },
		"generation": func(c *Config) { c.Generation = 0 }, "outstanding": func(c *Config) { c.Outstanding = 1 },
	} {
		c := good
		change(&c)
		if _, err := New(newPair(t).now, c); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// TestCompletionsOfNothing: a completion of a work request that was not posted closes the
// channel.
func TestCompletionsOfNothing(t *testing.T) {
	for _, slot := range []uint32{0, 1, 63, 64, 64 + 5, 1 << 31} {
		p := newPair(t)
		p.open(1)
		c := p.ends[0].ch
		c.rails[0].posts = queue[posted]{} // everything that was posted has completed
		if slot < 64 {
			c.Sent(p.now, 0, slot)
		} else {
			c.post(0, posted{kind: postProbe}, Post{Op: verbs.OpWrite})
			c.Sent(p.now, 0, c.rails[0].slot+slot-1)
		}
		if c.err == nil || !strings.Contains(c.err.Error(), "where nothing is posted") {
			t.Errorf("slot %d: %v", slot, c.err)
		}
	}
}

// FuzzPeer passes any message of a peer. None may cause a panic, and in the end every
// receive, destination and source is returned exactly once.
func FuzzPeer(f *testing.F) {
	h := wire.Header{Taken: wire.Counts{N: 1, Of: [wire.MaxRails]uint32{3}}}
	large := wire.Value{DType: tensor.Uint8, Size: 64 << 10, Dims: wire.AppendDims(nil, 64<<10)}
	meta := wire.Meta{Header: h, ID: 1, Value: large}
	f.Add(meta.Append(nil), uint32(0), uint8(0))
	eager := wire.Eager{Header: h, ID: 2, Value: wire.Value{DType: tensor.Uint8, Size: 1, Dims: wire.AppendDims(nil, 1)}, Content: []byte{1}}
	f.Add(eager.Append(nil), uint32(wire.NewImm(0, 1)), uint8(1))
	request := wire.Request{Header: h, ID: 50, Attempt: 1, Requester: 2, Responder: 1, Key: []byte("k"), HasDest: true, Dest: wire.Dest{N: 1}, Value: large}
	f.Add(request.Append(nil), uint32(wire.NewImm(1, 1)), uint8(2))
	failed := wire.Error{Header: h, ID: 3, Code: 5, Each: true, Text: []byte("x")}
	f.Add(failed.Append(nil), uint32(7), uint8(3))
	for _, k := range []wire.Kind{wire.KindCancel, wire.KindCancelled, wire.KindAck, wire.KindQuery, wire.KindWaiting, wire.KindUnknown} {
		f.Add(appendList(k, h, wire.IDs(nil).Append(1).Append(50)), uint32(0), uint8(k))
	}
	f.Fuzz(func(t *testing.T, b []byte, imm uint32, cancel uint8) {
		p := newPair(t)
		p.respondWith(64 << 10)
		p.receive(100, "k")
		p.run()
		p.manual = true
		for id := range uint64(4) {
			p.receive(id+1, "k")
		}
		p.ends[1].ch.Receive(p.now, Receive{ID: 50, Attempt: 1, Responder: 1, Key: "k"})
		p.run()
		p.ends[1].ch.Respond(p.now, 2, 1, Response{Value: valueOf(1 << 20), Source: Source{Handle: 7}})
		p.run()
		p.cut = true
		e := &p.ends[0]
		e.ch.Place(p.now, 2, 1, e.dest())
		p.run()
		ended := uint64(len(e.ended))
		want := ended + 4
		for range 2 {
			if cancel > 0 && e.ch.Cancel(p.now, uint64(cancel%5), 1) {
				want--
			}
			e.ch.Message(p.now, 0, b)
			p.run()
			e.ch.Imm(p.now, 0, imm)
			e.ch.Respond(p.now, 50, 1, Response{Value: valueOf(1 << 20), Source: Source{Handle: 9}})
			p.run()
		}
		for i := range p.ends {
			p.ends[i].ch.Destroyed(p.now)
		}
		p.run()
		if uint64(len(e.ended)) != want {
			t.Errorf("%d receives ended, want %d", len(e.ended), want)
		}
		p.clean()
	})
}
