package hostiletest

import (
	"cmp"
	"math/rand/v2"
	"strings"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/transport/internal/wire"
)

// Case is something that a stranger does.
type Case struct {
	Name string
	// NoHello says that the stranger has not said HELLO when it does so.
	NoHello bool
	Do      func(*Stranger)
	// Want is in the reason for which the channel is left; "" when it stays.
	Want string
}

// Run makes a channel, does it, and looks what becomes of the channel. In the end
// there is none, and every receive of the victim has ended. Meanwhile runs while the
// stranger has done it, and is to look at others' channels.
func (p *Stranger) Run(c Case, meanwhile func()) {
	p.Helper()
	if c.NoHello {
		p.Connects()
	} else {
		p.Meets()
	}
	breaks := p.Victim.Link().Breaks
	c.Do(p)
	if c.Want == "" {
		p.IsThere()
		if l := p.Victim.Link(); l.Breaks != breaks {
			p.Errorf("the channel was left: %+v", l)
		}
	} else {
		want := cmp.Or(p.Told[c.Want], c.Want)
		p.until("the channel is left because of "+want, func() bool {
			l := p.Victim.Link()
			return !l.Verbs && strings.Contains(l.Reason, want)
		})
		p.Log(c.Name + ": " + want)
	}
	meanwhile()
	p.Bye()
	p.Victim.EndStep(p.Step)
	for _, r := range p.receives {
		_ = r.Wait() // how it ends, its case has said; that it does is what counts
	}
	p.receives = nil
	p.Step++
}

// IsThere asks for a value: the channel answers.
func (p *Stranger) IsThere() {
	p.Helper()
	k := p.Key("still there")
	m := p.Request(k)
	p.Victim.Send(p.Step, k, 10)
	p.Says(m.Append(nil))
	p.Hears(wire.KindEager)
}

// third is a task that is neither the victim nor the stranger.
var third = cluster.Task{Job: "worker", Index: 99}

// noise is as many bytes that are nothing.
func noise(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(b) // never fails
	return b
}

// Cases are what a stranger may do.
func Cases() []Case {
	imm := func(slot, generation uint32) *wire.Imm {
		i := wire.NewImm(slot, generation)
		return &i
	}
	return []Case{
		{Name: "garbage", Do: func(p *Stranger) { p.Says(noise(300)) }, Want: "protocol version"},
		{Name: "nothing", Do: func(p *Stranger) { p.Says(nil) }, Want: "shorter than its header"},
		{Name: "unknown kind", Do: func(p *Stranger) { p.Says([]byte{wire.Version, 99, 0, 1, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}) }, Want: "unknown kind 99"},
		{Name: "truncated", Do: func(p *Stranger) {
			m := p.Request(p.Key("v"))
			b := m.Append(nil)
			p.Says(b[:len(b)-1])
		}, Want: "REQUEST gives its length as"},
		{Name: "oversized", Do: func(p *Stranger) { p.Says(noise(room)) }, Want: "local length error"},
		{Name: "a key that is none", Do: func(p *Stranger) {
			m := p.Request(rendezvous.Key{})
			m.Key = noise(1000)
			p.Says(m.Append(nil))
			var e wire.Error
			p.parse(&e, p.Hears(wire.KindError))
			if e.Code != status.InvalidArgument {
				p.Errorf("answered %v %q", e.Code, e.Text)
			}
		}},
		{Name: "a key of another task", Do: func(p *Stranger) {
			m := p.Request(p.keyOf(third, 1, p.Task, "v"))
			p.Says(m.Append(nil))
			var e wire.Error
			p.parse(&e, p.Hears(wire.KindError))
			if e.Code != status.InvalidArgument {
				p.Errorf("answered %v %q", e.Code, e.Text)
			}
		}},
		{Name: "a request without a key", Do: func(p *Stranger) {
			m := p.Request(p.Key("v"))
			m.Key = nil
			p.Says(m.Append(nil))
		}, Want: "REQUEST has no key"},
		{Name: "a request of another process", Do: func(p *Stranger) {
			m := p.Request(p.Key("v"))
			m.Requester++
			p.Says(m.Append(nil))
		}, Want: "REQUEST of incarnation"},
		{Name: "a request to another process", Do: func(p *Stranger) {
			m := p.Request(p.Key("v"))
			m.Responder++
			p.Says(m.Append(nil))
			var e wire.Error
			p.parse(&e, p.Hears(wire.KindError))
			if e.Code != status.Aborted {
				p.Errorf("answered %v %q", e.Code, e.Text)
			}
		}},
		{Name: "a request twice", Do: func(p *Stranger) {
			m := p.Request(p.Key("v"))
			p.Says(m.Append(nil))
			p.Says(m.Append(nil))
		}, Want: "REQUEST twice"},
		{Name: "message before HELLO", NoHello: true, Do: func(p *Stranger) {
			m := wire.Credit{Header: p.Header()}
			p.Says(m.Append(nil))
		}, Want: "CREDIT before HELLO"},
		{Name: "HELLO of another generation", NoHello: true, Do: func(p *Stranger) {
			m := p.hello()
			m.Generation++
			p.Says(m.Append(nil))
		}, Want: "HELLO for generation"},
		{Name: "HELLO of another process", NoHello: true, Do: func(p *Stranger) {
			m := p.hello()
			m.From++
			p.Says(m.Append(nil))
		}, Want: "HELLO for generation"},
		{Name: "HELLO twice", Do: func(p *Stranger) {
			m := p.hello()
			p.Says(m.Append(nil))
		}, Want: "HELLO twice"},
		{Name: "credit that goes back", Do: func(p *Stranger) {
			m := wire.Credit{Header: p.Header()}
			p.Says(m.Append(nil))
			m.Taken.Of[0]--
			p.Says(m.Append(nil))
		}, Want: "credit count of rail 0"},
		{Name: "credit for what was not sent", Do: func(p *Stranger) {
			m := wire.Credit{Header: p.Header()}
			m.Taken.Of[0] += 1000
			p.Says(m.Append(nil))
		}, Want: "credit count of rail 0"},
		{Name: "credits of rails that are not there", Do: func(p *Stranger) {
			m := wire.Credit{Header: p.Header()}
			m.Taken.N = 8
			p.Says(m.Append(nil))
		}, Want: "counts 8 rails"},
		{Name: "a last write into no slot", Do: func(p *Stranger) { p.writes(nil, 0, 0, imm(77, 3)) }, Want: "slot 77 generation 3, which is not open"},
		{Name: "a last write into an earlier use of a slot", Do: func(p *Stranger) {
			r, _, d := p.asked(64 * kib)
			p.writes(noise(64*kib), d.Rails[0].Addr, d.Rails[0].RKey, &d.Imm)
			p.arrives(r)
			p.writes(nil, 0, 0, &d.Imm)
		}, Want: "which is not open"},
		{Name: "a last write twice", Do: func(p *Stranger) {
			r, _, d := p.asked(64 * kib)
			p.writes(noise(64*kib), d.Rails[0].Addr, d.Rails[0].RKey, &d.Imm)
			p.writes(nil, 0, 0, &d.Imm) // the key may have ended
			p.arrives(r)
		}, Want: "which is not open"},
		{Name: "a write with a key that is none", Do: func(p *Stranger) {
			_, _, d := p.asked(64 * kib)
			p.writes(noise(100), d.Rails[0].Addr, d.Rails[0].RKey+1, nil)
			m := wire.Credit{Header: p.Header()}
			p.Says(m.Append(nil)) // it has noticed nothing before it polls
		}, Want: "QP access error"},
		{Name: "a write past the memory", Do: func(p *Stranger) {
			_, _, d := p.asked(64 * kib)
			p.writes(noise(64*kib), d.Rails[0].Addr+64*mib, d.Rails[0].RKey, nil)
			m := wire.Credit{Header: p.Header()}
			p.Says(m.Append(nil)) // it has noticed nothing before it polls
		}, Want: "QP access error"},
		{Name: "META twice", Do: func(p *Stranger) {
			_, id, _ := p.asked(64 * kib)
			m := wire.Meta{Header: p.Header(), ID: id, Value: bytesValue(64 * kib)}
			p.Says(m.Append(nil))
		}, Want: "META twice"},
		{Name: "EAGER of what is being written", Do: func(p *Stranger) {
			_, id, _ := p.asked(64 * kib)
			m := wire.Eager{Header: p.Header(), ID: id, Value: bytesValue(2), Content: []byte{1, 2}}
			p.Says(m.Append(nil))
		}, Want: "after its META"},
		{Name: "EAGER, META, ERROR and WAITING of nobody", Do: func(p *Stranger) {
			eager := wire.Eager{Header: p.Header(), ID: 4711, Value: bytesValue(2), Content: []byte{1, 2}}
			p.Says(eager.Append(nil))
			meta := wire.Meta{Header: p.Header(), ID: 4711, Value: bytesValue(1 << 40)}
			p.Says(meta.Append(nil))
			failed := wire.Error{Header: p.Header(), ID: 4711, Code: status.Aborted}
			p.Says(failed.Append(nil))
			var waiting wire.Waiting
			waiting.Header, waiting.IDs = p.Header(), wire.IDs(nil).Append(4711)
			p.Says(waiting.Append(nil))
			var cancel wire.Cancel
			cancel.Header, cancel.IDs = p.Header(), wire.IDs(nil).Append(4711)
			p.Says(cancel.Append(nil))
			var finished wire.Ack
			finished.Header, finished.IDs = p.Header(), wire.IDs(nil).Append(4711)
			p.Says(finished.Append(nil))
		}},
		{Name: "a value of more bytes than there are", Do: func(p *Stranger) {
			r := p.Await("large")
			var q wire.Request
			p.parse(&q, p.Hears(wire.KindRequest))
			m := wire.Meta{Header: p.Header(), ID: q.ID, Value: bytesValue(1 << 50)}
			p.Says(m.Append(nil))
			var again wire.ReRequest
			p.parse(&again, p.Hears(wire.KindReRequest))
			if again.HasDest || !r.UnderWay() {
				p.Error("a petabyte has found room")
			}
		}},
		{Name: "a TensorProto that is none", Do: func(p *Stranger) {
			r := p.Await("strings")
			var q wire.Request
			p.parse(&q, p.Hears(wire.KindRequest))
			m := wire.Eager{Header: p.Header(), ID: q.ID, Content: noise(500), Value: wire.Value{DType: tensor.String, Proto: true, Size: 500, Dims: wire.AppendDims(nil, 3)}}
			p.Says(m.Append(nil))
			if err := r.Wait(); err == nil {
				p.Error("noise is a tensor")
			}
		}},
		{Name: "a written TensorProto that is none", Do: func(p *Stranger) {
			r := p.Await("more strings")
			var q wire.Request
			p.parse(&q, p.Hears(wire.KindRequest))
			m := wire.Meta{Header: p.Header(), ID: q.ID, Value: wire.Value{DType: tensor.String, Proto: true, Size: 50 * kib, Dims: wire.AppendDims(nil, 3)}}
			p.Says(m.Append(nil))
			var again wire.ReRequest
			p.parse(&again, p.Hears(wire.KindReRequest))
			p.writes(noise(50*kib), again.Dest.Rails[0].Addr, again.Dest.Rails[0].RKey, &again.Dest.Imm)
			if err := r.Wait(); err == nil {
				p.Error("noise is a tensor")
			}
		}},
		{Name: "REREQUEST without META", Do: func(p *Stranger) {
			m := p.Request(p.Key("v"))
			p.Says(m.Append(nil))
			again := wire.ReRequest{Header: p.Header(), ID: m.ID}
			p.Says(again.Append(nil))
		}, Want: "REREQUEST for receive"},
		{Name: "an address that is none", Do: func(p *Stranger) {
			k := p.Key("large")
			p.Victim.Send(p.Step, k, 100*kib)
			m := p.Request(k)
			p.Says(m.Append(nil))
			p.Hears(wire.KindMeta)
			again := wire.ReRequest{Header: p.Header(), ID: m.ID, HasDest: true, Dest: wire.Dest{N: 1}}
			again.Dest.Rails[0] = wire.Remote{Addr: 0xdead0000, RKey: 0x12345678}
			p.Says(again.Append(nil))
		}, Want: "remote access error"},
		{Name: "more than the window", Do: func(p *Stranger) {
			// It takes no CREDIT, so that the victim can grant nothing after a while.
			m := wire.Ack{}
			m.Header, m.IDs = p.Header(), wire.IDs(nil).Append(1)
			p.flood(m.Append(nil))
		}, Want: "more than its window"},
		{Name: "BYE", Do: func(p *Stranger) {
			m := wire.Bye{Header: p.Header(), Reason: []byte("I have had enough")}
			p.Says(m.Append(nil))
		}, Want: "I have had enough"},
		{Name: "a queue pair that vanishes", Do: func(p *Stranger) {
			p.Await("vain")
			p.Hears(wire.KindRequest)
			p.Leave()
		}, Want: "transport retry counter exceeded"},
	}
}
