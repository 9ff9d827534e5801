package verbstransport_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/transport"
	"github.com/tryst-rdma/tryst/transport/transporttest"
	"github.com/tryst-rdma/tryst/transport/verbs/pairing"
	"github.com/tryst-rdma/tryst/transport/verbs/wire"
	"github.com/tryst-rdma/tryst/verbs"
)

// stranger is a process that has queue pairs and the bootstrap of a peer, and says
// and writes what it likes: no part of the transport is in it.
type stranger struct {
	s           *stage
	victim      *actor
	task        cluster.Task
	incarnation uint64
	device      verbs.Device
	pd          verbs.PD
	cq          verbs.CQ
	qp          verbs.QP
	room        verbs.MR
	memory      []byte
	generation  uint64
	taken       uint32 // messages of the victim
	requests    uint64
	pending     []verbs.WC
}

const (
	strangerWindow  = 64
	strangerMessage = 16 * kib
	// What it says lies behind the memory of its receives, as long as its longest
	// message.
	strangerSays = strangerWindow * strangerMessage
	strangerRoom = 64 * kib
)

// newStranger takes the name of the i-th task, and has no channel yet.
func newStranger(s *stage, i int, victim *actor) *stranger {
	s.Helper()
	p := &stranger{s: s, victim: victim, task: s.tasks[i], incarnation: cluster.NewIncarnation(), memory: make([]byte, strangerSays+strangerRoom)}
	var err error
	if p.device, err = s.c.fabric.Provider(p.task.String()).Open("mem0"); err != nil {
		s.Fatal(err)
	}
	if p.pd, err = p.device.AllocPD(); err != nil {
		s.Fatal(err)
	}
	if p.room, err = p.pd.RegisterMemory(p.memory, verbs.AccessLocalWrite); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		if p.qp != nil && victim.linkTo(p.task).Verbs { // so that the victim need not find out
			m := wire.Bye{Header: p.header()}
			p.says(m.Append(nil))
		}
		p.leave()
		for _, c := range []interface{ Close() error }{p.room, p.pd, p.device} {
			if err := c.Close(); err != nil {
				s.Error(err)
			}
		}
	})
	return p
}

// leave destroys its end of a channel, without a word.
func (p *stranger) leave() {
	if p.qp == nil {
		return
	}
	for _, c := range []interface{ Close() error }{p.qp, p.cq} {
		if err := c.Close(); err != nil {
			p.s.Error(err)
		}
	}
	p.qp, p.pending, p.taken = nil, nil, 0
}

// offer makes a queue pair, with receives posted, and shows it. The answer is the
// victim's.
func (p *stranger) offer() (own, answer pairing.Offer) {
	p.s.Helper()
	p.leave()
	var err error
	if p.cq, err = p.device.CreateCQ(verbs.CQConfig{Size: 4 * strangerWindow}); err != nil {
		p.s.Fatal(err)
	}
	if p.qp, err = p.pd.CreateQP(verbs.QPConfig{SendCQ: p.cq, RecvCQ: p.cq, MaxSend: 2 * strangerWindow, MaxRecv: strangerWindow}); err != nil {
		p.s.Fatal(err)
	}
	gid, err := address(p.device)
	if err != nil {
		p.s.Fatal(err)
	}
	path := p.path(gid)
	if err := path.Init(p.qp); err != nil {
		p.s.Fatal(err)
	}
	for i := range strangerWindow {
		p.repost(uint32(i))
	}
	own = pairing.Offer{
		Task: p.task, Incarnation: p.incarnation, Version: pairing.Version, Generation: max(p.generation, 1),
		Link: verbs.LinkEthernet, GIDType: gid.Type, Window: strangerWindow, ReceiveSize: strangerMessage, EagerLimit: 8 * kib, MaxMessage: gib,
		Rails: []pairing.Rail{{Endpoint: verbs.Endpoint{QPN: p.qp.QPN(), PSN: 7, GID: gid.GID}, MTU: verbs.MTU4096}},
	}
	answer, err = p.victim.transport.Answer(p.s.Context(), own)
	if err != nil {
		p.s.Fatalf("the bootstrap was refused: %v", err)
	}
	return own, answer
}

func (p *stranger) path(gid verbs.GIDEntry) verbs.Path {
	return verbs.Path{Port: 1, SGIDIndex: uint8(gid.Index), MTU: verbs.MTU4096, Access: verbs.AccessLocalWrite | verbs.AccessRemoteWrite,
		Timeout: verbs.TimeoutCode(20 * time.Millisecond), Retry: 6, RNRRetry: 6, MinRNRTimer: verbs.DefaultMinRNRTimer}
}

// connects makes a channel up to where HELLO is due.
func (p *stranger) connects() {
	p.s.Helper()
	for {
		own, answer := p.offer()
		if answer.Generation != own.Generation {
			p.generation = answer.Generation
			continue
		}
		p.generation = own.Generation
		gid, err := address(p.device)
		if err != nil {
			p.s.Fatal(err)
		}
		if err := p.path(gid).Connect(p.qp, own.Rails[0].PSN, answer.Rails[0].Endpoint); err != nil {
			p.s.Fatal(err)
		}
		return
	}
}

// meets makes a channel that carries both ways.
func (p *stranger) meets() {
	p.s.Helper()
	p.connects()
	m := p.hello()
	p.says(m.Append(nil))
	p.hears(wire.KindHello)
	p.s.until("the victim has a channel to the stranger", func() bool { return p.victim.linkTo(p.task).Verbs })
}

func (p *stranger) hello() wire.Hello {
	return wire.Hello{Header: p.header(), Generation: p.generation, From: p.incarnation, To: p.victim.incarnation}
}

// header has the counts that are true.
func (p *stranger) header() wire.Header {
	h := wire.Header{Taken: wire.Counts{N: 1}}
	h.Taken.Of[0] = p.taken
	return h
}

// request asks for a value of the victim.
func (p *stranger) request(key rendezvous.Key) wire.Request {
	p.requests++
	return wire.Request{
		Header: p.header(), ID: p.requests, Attempt: 1, Asker: p.incarnation, Sender: p.victim.incarnation, Step: 1, Key: []byte(key.String()),
	}
}

func (p *stranger) repost(slot uint32) {
	_, err := p.qp.PostRecv([]verbs.RecvWR{{ID: verbs.NewWRID(0, 0, slot, 1), SGL: []verbs.SGE{{
		Addr: p.room.Addr() + uint64(slot)*strangerMessage, Length: strangerMessage, LKey: p.room.LKey(),
	}}}})
	if err != nil {
		p.s.Error(err)
	}
}

// says sends bytes, whatever they are. It is no fault when the queue pair is broken by
// then.
func (p *stranger) says(b []byte) {
	p.s.Helper()
	n := copy(p.memory[strangerSays:], b)
	p.post(verbs.SendWR{Op: verbs.OpSend, SGL: []verbs.SGE{{Addr: p.room.Addr() + strangerSays, Length: uint32(n), LKey: p.room.LKey()}}})
}

// writes writes bytes to where it likes; with an imm when that is not nil.
func (p *stranger) writes(b []byte, addr uint64, key verbs.RKey, imm *wire.Imm) {
	p.s.Helper()
	n := copy(p.memory[strangerSays:], b)
	wr := verbs.SendWR{Op: verbs.OpWrite, RemoteAddr: addr, RKey: key}
	if n > 0 {
		wr.SGL = []verbs.SGE{{Addr: p.room.Addr() + strangerSays, Length: uint32(n), LKey: p.room.LKey()}}
	}
	if imm != nil {
		wr.Op, wr.Imm = verbs.OpWriteImm, uint32(*imm)
	}
	p.post(wr)
}

// post posts a request and waits until it has ended, well or badly.
func (p *stranger) post(wr verbs.SendWR) {
	p.s.Helper()
	wr.ID, wr.Signaled = verbs.NewWRID(0, 0, 0, 2), true
	if _, err := p.qp.PostSend([]verbs.SendWR{wr}); err != nil {
		p.s.Fatal(err)
	}
	p.s.until("the post has ended", func() bool {
		p.poll()
		for i, wc := range p.pending {
			if wc.ID.Kind() == 2 {
				p.pending = append(p.pending[:i], p.pending[i+1:]...)
				return true
			}
		}
		return false
	})
}

func (p *stranger) poll() {
	var wcs [16]verbs.WC
	n, err := p.cq.Poll(wcs[:])
	if err != nil {
		p.s.Fatal(err)
	}
	p.pending = append(p.pending, wcs[:n]...)
}

// hears returns the next message of that kind; those before it are taken and dropped.
func (p *stranger) hears(want wire.Kind) (message []byte) {
	p.s.Helper()
	p.s.until(fmt.Sprint("the stranger hears ", want), func() bool {
		p.poll()
		for len(p.pending) > 0 {
			wc := p.pending[0]
			p.pending = p.pending[1:]
			if wc.ID.Kind() != 1 || wc.Status != verbs.StatusOK {
				continue
			}
			at := int(wc.ID.Slot()) * strangerMessage
			b := bytes.Clone(p.memory[at : at+int(wc.Len)])
			p.taken++
			p.repost(wc.ID.Slot())
			if kind, err := wire.KindOf(b); err == nil && kind == want {
				message = b
				return true
			}
		}
		return false
	})
	return message
}

// parse reads what the victim has said.
func (p *stranger) parse(m interface{ Parse([]byte) error }, b []byte) {
	p.s.Helper()
	if err := m.Parse(b); err != nil {
		p.s.Fatal(err)
	}
}

// asked lets the victim receive from the stranger, up to where it has told an address.
func (p *stranger) asked(size int) (r *receiving, id uint64, d wire.Dest) {
	p.s.Helper()
	key := p.s.keyOf(p.task, p.incarnation, p.victim.task, fmt.Sprint("v", p.requests, p.generation))
	r = p.victim.recv(1, key)
	var q wire.Request
	p.parse(&q, p.hears(wire.KindRequest))
	m := wire.Meta{Header: p.header(), ID: q.ID, Value: bytesValue(size)}
	p.says(m.Append(nil))
	var again wire.ReRequest
	p.parse(&again, p.hears(wire.KindReRequest))
	if !again.HasDest {
		p.s.Fatal("the victim has no memory")
	}
	return r, again.ID, again.Dest
}

func bytesValue(size int) wire.Value {
	return wire.Value{DType: tensor.Uint8, Size: uint64(size), Dims: wire.AppendDims(nil, int64(size))}
}

// TestHostilePeer: a peer with a queue pair of its own says and writes what no peer
// may. The channel to it is left, with an error that says why; nothing panics, and a
// channel to somebody else does not feel it. PROTOCOL.md section 8.6 is the list;
// package channel has the same for the machine alone.
func TestHostilePeer(t *testing.T) {
	imm := func(slot, generation uint32) *wire.Imm {
		i := wire.NewImm(slot, generation)
		return &i
	}
	noise := func(n int) []byte {
		b := make([]byte, n)
		_, _ = rand.NewChaCha8([32]byte{1}).Read(b) // never fails
		return b
	}
	for _, c := range []struct {
		name   string
		silent bool // the stranger has not said HELLO
		do     func(p *stranger)
		want   string // why the channel is left; "" when it stays
	}{
		{name: "garbage", do: func(p *stranger) { p.says(noise(300)) }, want: "protocol version"},
		{name: "nothing", do: func(p *stranger) { p.says(nil) }, want: "shorter than its header"},
		{name: "unknown kind", do: func(p *stranger) { p.says([]byte{1, 99, 0, 1, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}) }, want: "unknown kind 99"},
		{name: "truncated", do: func(p *stranger) {
			m := p.request(p.s.keyOf(p.victim.task, p.victim.incarnation, p.task, "v"))
			b := m.Append(nil)
			p.says(b[:len(b)-1])
		}, want: "REQUEST says that it has"},
		{name: "oversized", do: func(p *stranger) { p.says(noise(strangerRoom)) }, want: "local length error"},
		{name: "a key that is none", do: func(p *stranger) {
			m := p.request(rendezvous.Key{})
			m.Key = noise(1000)
			p.says(m.Append(nil))
			var e wire.Error
			p.parse(&e, p.hears(wire.KindError))
			if e.Code != status.InvalidArgument {
				p.s.Errorf("answered %v %q", e.Code, e.Text)
			}
		}},
		{name: "a key of another task", do: func(p *stranger) {
			m := p.request(p.s.keyOf(p.s.tasks[2], 1, p.task, "v"))
			p.says(m.Append(nil))
			var e wire.Error
			p.parse(&e, p.hears(wire.KindError))
			if e.Code != status.InvalidArgument {
				p.s.Errorf("answered %v %q", e.Code, e.Text)
			}
		}},
		{name: "a request of another process", do: func(p *stranger) {
			m := p.request(p.s.keyOf(p.victim.task, p.victim.incarnation, p.task, "v"))
			m.Asker++
			p.says(m.Append(nil))
		}, want: "REQUEST of incarnation"},
		{name: "a request to another process", do: func(p *stranger) {
			m := p.request(p.s.keyOf(p.victim.task, p.victim.incarnation, p.task, "v"))
			m.Sender++
			p.says(m.Append(nil))
			var e wire.Error
			p.parse(&e, p.hears(wire.KindError))
			if e.Code != status.Aborted {
				p.s.Errorf("answered %v %q", e.Code, e.Text)
			}
		}},
		{name: "a request twice", do: func(p *stranger) {
			m := p.request(p.s.keyOf(p.victim.task, p.victim.incarnation, p.task, "v"))
			p.says(m.Append(nil))
			p.says(m.Append(nil))
		}, want: "REQUEST twice"},
		{name: "message before HELLO", silent: true, do: func(p *stranger) {
			m := wire.Credit{Header: p.header()}
			p.says(m.Append(nil))
		}, want: "CREDIT before HELLO"},
		{name: "HELLO of another generation", silent: true, do: func(p *stranger) {
			m := p.hello()
			m.Generation++
			p.says(m.Append(nil))
		}, want: "HELLO for generation"},
		{name: "HELLO of another process", silent: true, do: func(p *stranger) {
			m := p.hello()
			m.From++
			p.says(m.Append(nil))
		}, want: "HELLO for generation"},
		{name: "HELLO twice", do: func(p *stranger) {
			m := p.hello()
			p.says(m.Append(nil))
		}, want: "HELLO twice"},
		{name: "credit that goes back", do: func(p *stranger) {
			m := wire.Credit{Header: p.header()}
			p.says(m.Append(nil))
			m.Taken.Of[0]--
			p.says(m.Append(nil))
		}, want: "credit count of rail 0"},
		{name: "credit for what was not sent", do: func(p *stranger) {
			m := wire.Credit{Header: p.header()}
			m.Taken.Of[0] += 1000
			p.says(m.Append(nil))
		}, want: "credit count of rail 0"},
		{name: "credits of rails that are not there", do: func(p *stranger) {
			m := wire.Credit{Header: p.header()}
			m.Taken.N = 8
			p.says(m.Append(nil))
		}, want: "counts 8 rails"},
		{name: "a last write into no slot", do: func(p *stranger) { p.writes(nil, 0, 0, imm(77, 3)) }, want: "slot 77 generation 3, which is not open"},
		{name: "a last write into an earlier use of a slot", do: func(p *stranger) {
			r, _, d := p.asked(64 * kib)
			p.writes(noise(64*kib), d.Addr, d.RKeys[0], &d.Imm)
			r.value().Release()
			p.writes(nil, 0, 0, &d.Imm)
		}, want: "which is not open"},
		{name: "a last write twice", do: func(p *stranger) {
			r, _, d := p.asked(64 * kib)
			p.writes(noise(64*kib), d.Addr, d.RKeys[0], &d.Imm)
			p.writes(nil, 0, 0, &d.Imm) // the key may have ended
			r.value().Release()
		}, want: "which is not open"},
		{name: "a write with a key that is none", do: func(p *stranger) {
			_, _, d := p.asked(64 * kib)
			p.writes(noise(100), d.Addr, d.RKeys[0]+1, nil)
			m := wire.Credit{Header: p.header()}
			p.says(m.Append(nil)) // it has noticed nothing before it polls
		}, want: "QP access error"},
		{name: "a write past the memory", do: func(p *stranger) {
			_, _, d := p.asked(64 * kib)
			p.writes(noise(64*kib), d.Addr+64*mib, d.RKeys[0], nil)
			m := wire.Credit{Header: p.header()}
			p.says(m.Append(nil)) // it has noticed nothing before it polls
		}, want: "QP access error"},
		{name: "META twice", do: func(p *stranger) {
			_, id, _ := p.asked(64 * kib)
			m := wire.Meta{Header: p.header(), ID: id, Value: bytesValue(64 * kib)}
			p.says(m.Append(nil))
		}, want: "META twice"},
		{name: "EAGER of what is being written", do: func(p *stranger) {
			_, id, _ := p.asked(64 * kib)
			m := wire.Eager{Header: p.header(), ID: id, Value: bytesValue(2), Content: []byte{1, 2}}
			p.says(m.Append(nil))
		}, want: "after its META"},
		{name: "EAGER, META, ERROR and WAITING of nobody", do: func(p *stranger) {
			eager := wire.Eager{Header: p.header(), ID: 4711, Value: bytesValue(2), Content: []byte{1, 2}}
			p.says(eager.Append(nil))
			meta := wire.Meta{Header: p.header(), ID: 4711, Value: bytesValue(1 << 40)}
			p.says(meta.Append(nil))
			failed := wire.Error{Header: p.header(), ID: 4711, Code: status.Aborted}
			p.says(failed.Append(nil))
			var waiting wire.Waiting
			waiting.Header, waiting.IDs = p.header(), wire.IDs(nil).Append(4711)
			p.says(waiting.Append(nil))
			var cancel wire.Cancel
			cancel.Header, cancel.IDs = p.header(), wire.IDs(nil).Append(4711)
			p.says(cancel.Append(nil))
			var finished wire.Finished
			finished.Header, finished.IDs = p.header(), wire.IDs(nil).Append(4711)
			p.says(finished.Append(nil))
		}},
		{name: "a value of more bytes than there are", do: func(p *stranger) {
			key := p.s.keyOf(p.task, p.incarnation, p.victim.task, "large")
			r := p.victim.recv(1, key)
			var q wire.Request
			p.parse(&q, p.hears(wire.KindRequest))
			m := wire.Meta{Header: p.header(), ID: q.ID, Value: bytesValue(1 << 50)}
			p.says(m.Append(nil))
			var again wire.ReRequest
			p.parse(&again, p.hears(wire.KindReRequest))
			if again.HasDest || !r.underWay() {
				p.s.Error("a petabyte has found room")
			}
		}},
		{name: "a TensorProto that is none", do: func(p *stranger) {
			key := p.s.keyOf(p.task, p.incarnation, p.victim.task, "strings")
			r := p.victim.recv(1, key)
			var q wire.Request
			p.parse(&q, p.hears(wire.KindRequest))
			m := wire.Eager{Header: p.header(), ID: q.ID, Content: noise(500), Value: wire.Value{DType: tensor.String, Proto: true, Size: 500, Dims: wire.AppendDims(nil, 3)}}
			p.says(m.Append(nil))
			if o := r.wait(); o.err == nil {
				o.value.Tensor.Release()
				p.s.Error("noise is a tensor")
			}
		}},
		{name: "a written TensorProto that is none", do: func(p *stranger) {
			key := p.s.keyOf(p.task, p.incarnation, p.victim.task, "more strings")
			r := p.victim.recv(1, key)
			var q wire.Request
			p.parse(&q, p.hears(wire.KindRequest))
			m := wire.Meta{Header: p.header(), ID: q.ID, Value: wire.Value{DType: tensor.String, Proto: true, Size: 50 * kib, Dims: wire.AppendDims(nil, 3)}}
			p.says(m.Append(nil))
			var again wire.ReRequest
			p.parse(&again, p.hears(wire.KindReRequest))
			p.writes(noise(50*kib), again.Dest.Addr, again.Dest.RKeys[0], &again.Dest.Imm)
			if o := r.wait(); o.err == nil {
				o.value.Tensor.Release()
				p.s.Error("noise is a tensor")
			}
		}},
		{name: "REREQUEST without META", do: func(p *stranger) {
			m := p.request(p.s.keyOf(p.victim.task, p.victim.incarnation, p.task, "v"))
			p.says(m.Append(nil))
			again := wire.ReRequest{Header: p.header(), ID: m.ID}
			p.says(again.Append(nil))
		}, want: "REREQUEST for receive"},
		{name: "an address that is none", do: func(p *stranger) {
			k := p.s.keyOf(p.victim.task, p.victim.incarnation, p.task, "large")
			p.victim.sendsBlob(1, k, 1, 100*kib)
			m := p.request(k)
			p.says(m.Append(nil))
			p.hears(wire.KindMeta)
			again := wire.ReRequest{Header: p.header(), ID: m.ID, HasDest: true, Dest: wire.Dest{N: 1, Addr: 0xdead0000}}
			again.Dest.RKeys[0] = 0x12345678
			p.says(again.Append(nil))
		}, want: "remote access error"},
		{name: "more than the window", do: func(p *stranger) {
			// It takes no CREDIT, so that the victim can grant nothing after a while.
			m := wire.Finished{}
			m.Header, m.IDs = p.header(), wire.IDs(nil).Append(1)
			p.flood(m.Append(nil))
		}, want: "more than its window"},
		{name: "BYE", do: func(p *stranger) {
			m := wire.Bye{Header: p.header(), Reason: []byte("I have had enough")}
			p.says(m.Append(nil))
		}, want: "I have had enough"},
		{name: "a queue pair that vanishes", do: func(p *stranger) {
			p.victim.recv(1, p.s.keyOf(p.task, p.incarnation, p.victim.task, "vain"))
			p.hears(wire.KindRequest)
			p.leave()
		}, want: "transport retry counter exceeded"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStage(t, clusterOptions{})
			victim := s.startWith(0, transporttest.NodeOptions{PeerTimeout: 50 * time.Millisecond})
			other := s.start(2)
			other.meets(victim)
			p := newStranger(s, 1, victim)
			if c.silent {
				p.connects()
			} else {
				p.meets()
			}
			if c.want == "" {
				c.do(p)
				// Its channel is there and answers.
				m := p.request(s.keyOf(victim.task, victim.incarnation, p.task, "still there"))
				x := s.blob(s.source, 5, 10)
				victim.send(1, s.keyOf(victim.task, victim.incarnation, p.task, "still there"), x)
				p.says(m.Append(nil))
				p.hears(wire.KindEager)
				if k := victim.linkTo(p.task); k.Stats.Breaks != 0 {
					t.Errorf("the channel was left: %+v", k)
				}
			} else {
				c.do(p)
				s.until("the channel is left because of "+c.want, func() bool {
					k := victim.linkTo(p.task)
					return !k.Verbs && k.Reason != nil && strings.Contains(k.Reason.Error(), c.want)
				})
				t.Log(victim.linkTo(p.task).Reason)
			}
			k := other.key(victim, "v")
			other.sendsBlob(1, k, 1, 100*kib)
			victim.recv(1, k).isBlob(1, 100*kib)
			back := victim.key(other, "v")
			victim.sendsBlob(1, back, 2, 100*kib)
			other.recv(1, back).isBlob(2, 100*kib)
			if l := victim.link(other); l.Stats.Breaks != 0 || l.Stats.Received != 1 {
				t.Errorf("the channel to another peer: %+v", l)
			}
		})
	}
}

// flood says the same until the victim has left the channel, whatever the credits.
func (p *stranger) flood(b []byte) {
	p.s.Helper()
	for range 10_000 {
		if p.victim.linkTo(p.task).Stats.Breaks > 0 {
			return
		}
		p.says(b)
	}
}

// TestReceiverThatNeverSaysFinished: it has its answers and does not say so. They are
// kept, bounded; beyond the limit its next requests wait without a value, nobody
// else's do, and the end of the step gives everything back.
func TestReceiverThatNeverSaysFinished(t *testing.T) {
	const limit, size = 100 * kib, 4 * kib
	s := newStage(t, clusterOptions{})
	victim := s.startWith(0, transporttest.NodeOptions{Kept: transport.KeptOptions{KeptPerAsker: limit}})
	other := s.start(2)
	other.meets(victim)
	p := newStranger(s, 1, victim)
	p.meets()
	const asks = 2 * limit / size
	for i := range asks {
		k := s.keyOf(victim.task, victim.incarnation, p.task, fmt.Sprint("v", i))
		victim.sendsBlob(1, k, uint64(i), size)
		m := p.request(k)
		m.Header = p.header()
		p.says(m.Append(nil))
		if i < limit/size/2 {
			p.hears(wire.KindEager)
		}
	}
	s.until("all have been asked", func() bool { k := victim.kept.Stats(); return k.Kept+k.Waiting == asks })
	if k := victim.kept.Stats(); k.Bytes > limit || k.Waiting < asks/2-2 {
		t.Errorf("%+v: more is kept than %d bytes", k, limit)
	}
	k := victim.key(other, "v")
	victim.sendsBlob(2, k, 1, 100*kib)
	other.recv(2, k).isBlob(1, 100*kib)
	// One FINISHED makes room for one more.
	var f wire.Finished
	f.Header, f.IDs = p.header(), wire.IDs(nil).Append(1)
	waited := victim.kept.Stats().Waiting
	p.says(f.Append(nil))
	s.until("the next one is answered", func() bool { return victim.kept.Stats().Waiting < waited })
	if l := victim.linkTo(p.task); l.Stats.Breaks != 0 {
		t.Errorf("%+v: the channel was left", l)
	}
	victim.manager.Cleanup(1)
	victim.kept.EndStep(1)
	s.until("the end of the step gives all back", func() bool {
		k := victim.kept.Stats()
		return k.Kept+k.Waiting == 0 && k.Bytes == 0 && victim.transport.Memory().Sending.InUse == 0
	})
}

// TestOffersThatDisturbNobody: what the bootstrap of a live channel must bear, over and
// over and all at once: our own name, another incarnation, offers that are none, an
// earlier generation, a second offer of the present one.
func TestOffersThatDisturbNobody(t *testing.T) {
	s := newStage(t, clusterOptions{})
	from, to := s.pair()
	gid, err := address(from.device)
	if err != nil {
		t.Fatal(err)
	}
	generation := to.link(from).Generation
	offer := func(change func(*pairing.Offer)) pairing.Offer {
		o := pairing.Offer{
			Task: from.task, Incarnation: from.incarnation, Version: pairing.Version, Generation: generation,
			Link: verbs.LinkEthernet, GIDType: gid.Type, Window: 64, ReceiveSize: strangerMessage, EagerLimit: 8 * kib, MaxMessage: gib,
			Rails: []pairing.Rail{{Endpoint: verbs.Endpoint{QPN: 77, PSN: 7, GID: gid.GID}, MTU: verbs.MTU4096}},
		}
		change(&o)
		return o
	}
	var asks sync.WaitGroup
	for name, c := range map[string]struct {
		offer pairing.Offer
		code  status.Code // OK: answered
		words string
	}{
		"our own name":        {offer(func(o *pairing.Offer) { o.Task = to.task }), status.InvalidArgument, "its own peer"},
		"our own incarnation": {offer(func(o *pairing.Offer) { o.Incarnation = to.incarnation }), status.FailedPrecondition, "incarnation of this process"},
		"another incarnation": {offer(func(o *pairing.Offer) { o.Incarnation, o.Generation = 4711, generation+7 }), status.OK, "introduction"},
		"a second offer":      {offer(func(*pairing.Offer) {}), status.Aborted, "another offer of generation"},
		"no version":          {offer(func(o *pairing.Offer) { o.Version = 0 }), status.FailedPrecondition, "no protocol version"},
		"no queue pair":       {offer(func(o *pairing.Offer) { o.Rails[0].QPN = 0 }), status.FailedPrecondition, "no queue pair has the number"},
		"no generation":       {offer(func(o *pairing.Offer) { o.Generation = 0 }), status.FailedPrecondition, "its generation is 0"},
		"the last generation": {offer(func(o *pairing.Offer) { o.Generation = 1<<64 - 1 }), status.FailedPrecondition, "its generation is 1844"},
		"InfiniBand": {offer(func(o *pairing.Offer) {
			o.Link, o.GIDType, o.Rails[0].LID = verbs.LinkInfiniBand, verbs.GIDTypeIB, 3
		}), status.FailedPrecondition, "cannot talk by verbs"},
	} {
		for range 20 {
			asks.Go(func() {
				answer, err := to.transport.Answer(t.Context(), c.offer)
				got := answer.String()
				if err != nil {
					got = err.Error()
				}
				if status.CodeOf(err) != c.code || !strings.Contains(got, c.words) {
					t.Errorf("%s: got %v, want %v %q", name, got, c.code, c.words)
				}
			})
		}
	}
	asks.Wait()
	k := from.key(to, "v")
	from.sendsBlob(1, k, 1, 100*kib)
	to.recv(1, k).isBlob(1, 100*kib)
	if l := to.link(from); l.Generation != generation || l.Stats.Breaks != 0 || l.Stats.Received != 1 {
		t.Errorf("%+v: want generation %d still", l, generation)
	}
}
