package hostiletest

import (
	"cmp"
	"math/rand/v2"
	"strings"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/wire"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// Case is one violation of the protocol, or something unusual that is allowed.
type Case struct {
	Name string
	// NoHello means that the peer has not sent HELLO before Do.
	NoHello bool
	Do      func(*Peer)
	// Want is part of the reason for which the victim leaves the channel; "" if it stays.
	Want string
}

// Run makes a channel, runs the case and checks what the victim does with the channel. Then it
// closes the channel and checks that every receive of the victim ends. It calls others in
// between, which checks the channels to other peers.
func (p *Peer) Run(c Case, others func()) {
	p.Helper()
	if c.NoHello {
		p.Connect()
	} else {
		p.Open()
	}
	breaks := p.Victim.Channel().Breaks
	c.Do(p)
	if c.Want == "" {
		p.CheckChannel()
		if l := p.Victim.Channel(); l.Breaks != breaks {
			p.Errorf("the victim left the channel: %+v", l)
		}
	} else {
		want := cmp.Or(p.Reasons[c.Want], c.Want)
		p.until("the victim leaves the channel because of "+want, func() bool {
			l := p.Victim.Channel()
			return !l.Up && strings.Contains(l.Reason, want)
		})
		p.Log(c.Name + ": " + want)
	}
	others()
	p.Bye()
	p.Victim.EndStep(p.Step)
	for _, r := range p.receives {
		_ = r.Wait() // the case has checked the outcome
	}
	p.receives = nil
	p.Step++
}

// CheckChannel requests a value and waits for it.
func (p *Peer) CheckChannel() {
	p.Helper()
	k := p.Key("still there")
	m := p.Request(k)
	p.Victim.Send(p.Step, k, 10)
	p.Send(m.Append(nil))
	p.Await(wire.KindEager)
}

// third is a task that is neither the victim nor the hostile peer.
var third = cluster.Task{Job: "worker", Index: 99}

// noise returns n random bytes, the same ones each time.
func noise(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(b) // never fails
	return b
}

// Cases returns all cases.
func Cases() []Case {
	imm := func(slot, generation uint32) *wire.Imm {
		i := wire.NewImm(slot, generation)
		return &i
	}
	return []Case{
		{Name: "garbage", Do: func(p *Peer) { p.Send(noise(300)) }, Want: "protocol version"},
		{Name: "nothing", Do: func(p *Peer) { p.Send(nil) }, Want: "shorter than its header"},
		{Name: "unknown kind", Do: func(p *Peer) { p.Send([]byte{wire.Version, 99, 0, 1, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}) }, Want: "unknown kind 99"},
		{Name: "truncated", Do: func(p *Peer) {
			m := p.Request(p.Key("v"))
			b := m.Append(nil)
			p.Send(b[:len(b)-1])
		}, Want: "REQUEST gives its length as"},
		{Name: "oversized", Do: func(p *Peer) { p.Send(noise(sendSize)) }, Want: "local length error"},
		{Name: "an invalid key", Do: func(p *Peer) {
			m := p.Request(rendezvous.Key{})
			m.Key = noise(1000)
			p.Send(m.Append(nil))
			var e wire.Error
			p.parse(&e, p.Await(wire.KindError))
			if e.Code != status.InvalidArgument {
				p.Errorf("got ERROR %v %q", e.Code, e.Text)
			}
		}},
		{Name: "a key of another task", Do: func(p *Peer) {
			m := p.Request(p.keyOf(third, 1, p.Task, "v"))
			p.Send(m.Append(nil))
			var e wire.Error
			p.parse(&e, p.Await(wire.KindError))
			if e.Code != status.InvalidArgument {
				p.Errorf("got ERROR %v %q", e.Code, e.Text)
			}
		}},
		{Name: "a request without a key", Do: func(p *Peer) {
			m := p.Request(p.Key("v"))
			m.Key = nil
			p.Send(m.Append(nil))
		}, Want: "REQUEST has no key"},
		{Name: "a request of another process", Do: func(p *Peer) {
			m := p.Request(p.Key("v"))
			m.Requester++
			p.Send(m.Append(nil))
		}, Want: "REQUEST of incarnation"},
		{Name: "a request to another process", Do: func(p *Peer) {
			m := p.Request(p.Key("v"))
			m.Responder++
			p.Send(m.Append(nil))
			var e wire.Error
			p.parse(&e, p.Await(wire.KindError))
			if e.Code != status.Aborted {
				p.Errorf("got ERROR %v %q", e.Code, e.Text)
			}
		}},
		{Name: "a request twice", Do: func(p *Peer) {
			m := p.Request(p.Key("v"))
			p.Send(m.Append(nil))
			p.Send(m.Append(nil))
		}, Want: "REQUEST twice"},
		{Name: "message before HELLO", NoHello: true, Do: func(p *Peer) {
			m := wire.Credit{Header: p.Header()}
			p.Send(m.Append(nil))
		}, Want: "CREDIT before HELLO"},
		{Name: "HELLO of another generation", NoHello: true, Do: func(p *Peer) {
			m := p.hello()
			m.Generation++
			p.Send(m.Append(nil))
		}, Want: "HELLO for generation"},
		{Name: "HELLO of another process", NoHello: true, Do: func(p *Peer) {
			m := p.hello()
			m.From++
			p.Send(m.Append(nil))
		}, Want: "HELLO for generation"},
		{Name: "HELLO twice", Do: func(p *Peer) {
			m := p.hello()
			p.Send(m.Append(nil))
		}, Want: "HELLO twice"},
		{Name: "a credit count that decreases", Do: func(p *Peer) {
			m := wire.Credit{Header: p.Header()}
			p.Send(m.Append(nil))
			m.Taken.Of[0]--
			p.Send(m.Append(nil))
		}, Want: "credit count of rail 0"},
		{Name: "credit for messages that were not sent", Do: func(p *Peer) {
			m := wire.Credit{Header: p.Header()}
			m.Taken.Of[0] += 1000
			p.Send(m.Append(nil))
		}, Want: "credit count of rail 0"},
		{Name: "credit counts of rails that do not exist", Do: func(p *Peer) {
			m := wire.Credit{Header: p.Header()}
			m.Taken.N = 8
			p.Send(m.Append(nil))
		}, Want: "counts 8 rails"},
		{Name: "a last write into a slot that is not open", Do: func(p *Peer) { p.write(nil, 0, 0, imm(77, 3)) }, Want: "slot 77 generation 3, which is not open"},
		{Name: "a last write into an earlier use of a slot", Do: func(p *Peer) {
			r, _, d := p.destination(64 * kib)
			p.write(noise(64*kib), d.Rails[0].Addr, d.Rails[0].RKey, &d.Imm)
			p.wantValue(r)
			p.write(nil, 0, 0, &d.Imm)
		}, Want: "which is not open"},
		{Name: "a last write twice", Do: func(p *Peer) {
			r, _, d := p.destination(64 * kib)
			p.write(noise(64*kib), d.Rails[0].Addr, d.Rails[0].RKey, &d.Imm)
			p.write(nil, 0, 0, &d.Imm) // the rkey may be revoked
			p.wantValue(r)
		}, Want: "which is not open"},
		{Name: "a write with a wrong rkey", Do: func(p *Peer) {
			_, _, d := p.destination(64 * kib)
			p.write(noise(100), d.Rails[0].Addr, d.Rails[0].RKey+1, nil)
			m := wire.Credit{Header: p.Header()}
			p.Send(m.Append(nil)) // the victim notices the refused write when it polls
		}, Want: "QP access error"},
		{Name: "a write beyond the memory", Do: func(p *Peer) {
			_, _, d := p.destination(64 * kib)
			p.write(noise(64*kib), d.Rails[0].Addr+64*mib, d.Rails[0].RKey, nil)
			m := wire.Credit{Header: p.Header()}
			p.Send(m.Append(nil)) // the victim notices the refused write when it polls
		}, Want: "QP access error"},
		{Name: "META twice", Do: func(p *Peer) {
			_, id, _ := p.destination(64 * kib)
			m := wire.Meta{Header: p.Header(), ID: id, Value: bytesValue(64 * kib)}
			p.Send(m.Append(nil))
		}, Want: "META twice"},
		{Name: "EAGER after META", Do: func(p *Peer) {
			_, id, _ := p.destination(64 * kib)
			m := wire.Eager{Header: p.Header(), ID: id, Value: bytesValue(2), Content: []byte{1, 2}}
			p.Send(m.Append(nil))
		}, Want: "after its META"},
		{Name: "EAGER, META, ERROR, WAITING, CANCEL and ACK of an unknown receive", Do: func(p *Peer) {
			eager := wire.Eager{Header: p.Header(), ID: 4711, Value: bytesValue(2), Content: []byte{1, 2}}
			p.Send(eager.Append(nil))
			meta := wire.Meta{Header: p.Header(), ID: 4711, Value: bytesValue(1 << 40)}
			p.Send(meta.Append(nil))
			failed := wire.Error{Header: p.Header(), ID: 4711, Code: status.Aborted}
			p.Send(failed.Append(nil))
			var waiting wire.Waiting
			waiting.Header, waiting.IDs = p.Header(), wire.IDs(nil).Append(4711)
			p.Send(waiting.Append(nil))
			var cancel wire.Cancel
			cancel.Header, cancel.IDs = p.Header(), wire.IDs(nil).Append(4711)
			p.Send(cancel.Append(nil))
			var ack wire.Ack
			ack.Header, ack.IDs = p.Header(), wire.IDs(nil).Append(4711)
			p.Send(ack.Append(nil))
		}},
		{Name: "a value larger than all memory", Do: func(p *Peer) {
			r := p.VictimRecv("large")
			var q wire.Request
			p.parse(&q, p.Await(wire.KindRequest))
			m := wire.Meta{Header: p.Header(), ID: q.ID, Value: bytesValue(1 << 50)}
			p.Send(m.Append(nil))
			var again wire.ReRequest
			p.parse(&again, p.Await(wire.KindReRequest))
			if again.HasDest || !r.UnderWay() {
				p.Error("the victim has memory for a petabyte, or the receive has ended")
			}
		}},
		{Name: "an invalid TensorProto", Do: func(p *Peer) {
			r := p.VictimRecv("strings")
			var q wire.Request
			p.parse(&q, p.Await(wire.KindRequest))
			m := wire.Eager{Header: p.Header(), ID: q.ID, Content: noise(500), Value: wire.Value{DType: tensor.String, Proto: true, Size: 500, Dims: wire.AppendDims(nil, 3)}}
			p.Send(m.Append(nil))
			if err := r.Wait(); err == nil {
				p.Error("the receive succeeds with random bytes")
			}
		}},
		{Name: "an invalid TensorProto that is written", Do: func(p *Peer) {
			r := p.VictimRecv("more strings")
			var q wire.Request
			p.parse(&q, p.Await(wire.KindRequest))
			m := wire.Meta{Header: p.Header(), ID: q.ID, Value: wire.Value{DType: tensor.String, Proto: true, Size: 50 * kib, Dims: wire.AppendDims(nil, 3)}}
			p.Send(m.Append(nil))
			var again wire.ReRequest
			p.parse(&again, p.Await(wire.KindReRequest))
			p.write(noise(50*kib), again.Dest.Rails[0].Addr, again.Dest.Rails[0].RKey, &again.Dest.Imm)
			if err := r.Wait(); err == nil {
				p.Error("the receive succeeds with random bytes")
			}
		}},
		{Name: "REREQUEST without META", Do: func(p *Peer) {
			m := p.Request(p.Key("v"))
			p.Send(m.Append(nil))
			again := wire.ReRequest{Header: p.Header(), ID: m.ID}
			p.Send(again.Append(nil))
		}, Want: "REREQUEST for receive"},
		{Name: "an address that is not registered", Do: func(p *Peer) {
			k := p.Key("large")
			p.Victim.Send(p.Step, k, 100*kib)
			m := p.Request(k)
			p.Send(m.Append(nil))
			p.Await(wire.KindMeta)
			again := wire.ReRequest{Header: p.Header(), ID: m.ID, HasDest: true, Dest: wire.Dest{N: 1}}
			again.Dest.Rails[0] = wire.Remote{Addr: 0xdead0000, RKey: 0x12345678}
			p.Send(again.Append(nil))
		}, Want: "remote access error"},
		{Name: "more messages than the window", Do: func(p *Peer) {
			// The peer returns no credits, so that the victim soon cannot send CREDIT.
			m := wire.Ack{}
			m.Header, m.IDs = p.Header(), wire.IDs(nil).Append(1)
			p.flood(m.Append(nil))
		}, Want: "more than its window"},
		{Name: "BYE", Do: func(p *Peer) {
			m := wire.Bye{Header: p.Header(), Reason: []byte("the peer stops")}
			p.Send(m.Append(nil))
		}, Want: "the peer stops"},
		{Name: "a queue pair that disappears", Do: func(p *Peer) {
			p.VictimRecv("v")
			p.Await(wire.KindRequest)
			p.Leave()
		}, Want: "transport retry counter exceeded"},
	}
}
