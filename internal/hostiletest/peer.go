package hostiletest

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/handshake"
	"github.com/tryst-rdma/tryst/internal/wire"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/verbs"
)

// Victim is the process under test.
type Victim interface {
	Task() cluster.Task
	// Answer is its response to an offer of the bootstrap.
	Answer(context.Context, handshake.Offer) (handshake.Offer, error)
	// Channel returns the state of its channel to the hostile peer.
	Channel() Channel
	// Send makes it send size bytes to the hostile peer. Recv makes it receive from the
	// hostile peer. EndStep ends a step, with every receive in it.
	Send(step int64, key rendezvous.Key, size int)
	Recv(step int64, key rendezvous.Key) Receive
	EndStep(step int64)
}

// Channel is the state of a victim's channel to the hostile peer.
type Channel struct {
	Up     bool
	Breaks uint64 // channels that the victim has left
	Reason string // has the reasons for which it left them; may contain more
}

// Receive is a receive of the victim.
type Receive interface {
	// UnderWay reports whether it has not ended.
	UnderWay() bool
	// Wait waits for its end and releases the value. It is called once.
	Wait() error
}

// Options make a Peer.
type Options struct {
	// Task is the name that the peer uses.
	Task   cluster.Task
	Victim Victim
	// Device is open. The caller closes it, after the peer. Packets come from Address.
	Device  verbs.Device
	Address verbs.GIDEntry
	// Memory returns n bytes that may be registered: make([]byte, n) when nil.
	Memory func(n int) []byte
	// Timeout is how long a queue pair waits for an acknowledgement. WaitLimit is how long
	// a test waits for an event.
	Timeout, WaitLimit time.Duration
	// Reasons has what the victim's device reports in place of a Case.Want.
	Reasons map[string]string
}

// Peer is the hostile peer.
type Peer struct {
	testing.TB
	Options
	// Step is the step of the requests and receives of the present case.
	Step int64

	incarnation       uint64
	victimIncarnation uint64
	pd                verbs.PD
	cq                verbs.CQ
	qp                verbs.QP
	mem               verbs.MR // of memory
	dest              verbs.MR // of Destination; nil before
	memory            []byte
	generation        uint64
	own, answer       handshake.Offer // of the present channel
	taken             uint32          // messages of the victim
	requests          uint64
	pending           []verbs.WC
	receives          []*receive // of the present step
}

const (
	// Window is how many receives the peer posts.
	Window = 64
	// MessageSize is the size of a posted receive, in bytes.
	MessageSize = 16 * kib
	// sendSize bytes at sendOffset, behind the posted receives, hold the message to send.
	sendOffset = Window * MessageSize
	sendSize   = 64 * kib

	kib = 1 << 10
	mib = 1 << 20

	checkEvery = time.Millisecond
)

// The kinds of work requests.
const (
	kindRecv uint8 = iota + 1
	kindSend
)

// New returns a peer without a channel. The caller closes it.
func New(t testing.TB, o Options) *Peer {
	t.Helper()
	if o.Memory == nil {
		o.Memory = func(n int) []byte { return make([]byte, n) }
	}
	p := &Peer{TB: t, Options: o, Step: 1, incarnation: cluster.NewIncarnation(), memory: o.Memory(sendOffset + sendSize)}
	var err error
	if p.pd, err = p.Device.AllocPD(); err != nil {
		t.Fatal(err)
	}
	if p.mem, err = p.pd.RegisterMemory(p.memory, verbs.AccessLocalWrite); err != nil {
		t.Fatal(err)
	}
	return p
}

// Close leaves the channel with BYE, so that the victim leaves it at once, and closes all objects
// of the device.
func (p *Peer) Close() {
	p.Helper()
	p.Bye()
	if p.dest != nil {
		p.close(p.dest)
	}
	p.close(p.mem, p.pd)
}

// Destination registers n bytes that the victim can write into. It is called once.
func (p *Peer) Destination(n int) wire.Dest {
	p.Helper()
	var err error
	if p.dest, err = p.pd.RegisterMemory(p.Memory(n), verbs.AccessLocalWrite|verbs.AccessRemoteWrite); err != nil {
		p.Fatal(err)
	}
	d := wire.Dest{N: 1}
	d.Rails[0] = wire.Remote{Addr: p.dest.Addr(), RKey: p.dest.RKey()}
	return d
}

func (p *Peer) close(all ...interface{ Close() error }) {
	p.Helper()
	for _, c := range all {
		if err := c.Close(); err != nil {
			p.Error(err)
		}
	}
}

// Bye sends BYE if there is a channel, and leaves it.
func (p *Peer) Bye() {
	p.Helper()
	if p.qp != nil && p.Victim.Channel().Up {
		m := wire.Bye{Header: p.Header()}
		p.Send(m.Append(nil))
		p.until("the victim has left the channel", func() bool { return !p.Victim.Channel().Up })
	}
	p.Leave()
}

// Leave destroys the queue pair without sending anything.
func (p *Peer) Leave() {
	p.Helper()
	if p.qp == nil {
		return
	}
	p.close(p.qp, p.cq)
	p.qp, p.pending, p.taken = nil, nil, 0
}

// Prepare leaves the present channel, makes a queue pair with receives posted, and returns the
// offer of it.
func (p *Peer) Prepare(generation uint64) (own handshake.Offer) {
	p.Helper()
	p.Leave()
	var err error
	if p.cq, err = p.Device.CreateCQ(verbs.CQConfig{Size: 4 * Window}); err != nil {
		p.Fatal(err)
	}
	if p.qp, err = p.pd.CreateQP(verbs.QPConfig{SendCQ: p.cq, RecvCQ: p.cq, MaxSend: 2 * Window, MaxRecv: Window}); err != nil {
		p.close(p.cq)
		p.Fatal(err)
	}
	path := p.path()
	if err := path.Init(p.qp); err != nil {
		p.Fatal(err)
	}
	for i := range Window {
		p.repost(uint32(i))
	}
	return handshake.Offer{
		Task: p.Task, Incarnation: p.incarnation, Version: handshake.Version, Generation: generation,
		Link: verbs.LinkEthernet, GIDType: p.Address.Type, Window: Window, ReceiveSize: MessageSize, EagerLimit: 8 * kib, MaxMessage: 1 << 30,
		Rails: []handshake.Rail{{Endpoint: verbs.Endpoint{QPN: p.qp.QPN(), PSN: 7, GID: p.Address.GID}, MTU: verbs.MTU4096}},
	}
}

// Exchange sends the victim an offer and returns the victim's.
func (p *Peer) Exchange(own handshake.Offer) (answer handshake.Offer) {
	p.Helper()
	answer, err := p.Victim.Answer(p.Context(), own)
	if err != nil {
		p.Fatalf("the victim refuses the offer: %v", err)
	}
	return answer
}

func (p *Peer) path() verbs.Path {
	return verbs.Path{Port: 1, SGIDIndex: uint8(p.Address.Index), MTU: verbs.MTU4096, Access: verbs.AccessLocalWrite | verbs.AccessRemoteWrite,
		Timeout: verbs.TimeoutCode(p.Timeout), Retry: 6, RNRRetry: 6, MinRNRTimer: verbs.DefaultMinRNRTimer}
}

// Connect makes a channel that is ready for HELLO. Its generation is above those that the peer has
// left: the victim may not have left the last one yet.
func (p *Peer) Connect() {
	p.Helper()
	for {
		own := p.Prepare(p.generation + 1)
		answer := p.Exchange(own)
		if answer.Generation == own.Generation {
			p.ConnectTo(own, answer)
			return
		}
		p.generation = answer.Generation - 1
	}
}

// ConnectTo connects the queue pair of own to that of the victim's answer.
func (p *Peer) ConnectTo(own, answer handshake.Offer) {
	p.Helper()
	p.victimIncarnation, p.generation = answer.Incarnation, own.Generation
	p.own, p.answer = own, answer
	path := p.path()
	path.MTU = min(path.MTU, answer.Rails[0].MTU)
	if err := path.Connect(p.qp, own.Rails[0].PSN, answer.Rails[0].Endpoint); err != nil {
		p.Fatal(err)
	}
}

// Offers returns the two offers of the present channel.
func (p *Peer) Offers() (own, answer handshake.Offer) { return p.own, p.answer }

// Open makes a channel and waits until it is up on both sides.
func (p *Peer) Open() {
	p.Helper()
	p.Connect()
	p.ExchangeHello()
}

// ExchangeHello sends HELLO and waits for the victim's.
func (p *Peer) ExchangeHello() {
	p.Helper()
	m := p.hello()
	p.Send(m.Append(nil))
	p.Await(wire.KindHello)
	p.until("the victim's channel is up", func() bool { return p.Victim.Channel().Up })
}

func (p *Peer) hello() wire.Hello {
	return wire.Hello{Header: p.Header(), Generation: p.generation, From: p.incarnation, To: p.victimIncarnation}
}

// Header returns a header with the correct counts.
func (p *Peer) Header() wire.Header {
	h := wire.Header{Taken: wire.Counts{N: 1}}
	h.Taken.Of[0] = p.taken
	return h
}

// Key returns the key of a value that the victim sends to the peer.
func (p *Peer) Key(name string) rendezvous.Key {
	p.Helper()
	return p.keyOf(p.Victim.Task(), p.victimIncarnation, p.Task, name)
}

// ownKey returns the key of a value that the peer sends to the victim.
func (p *Peer) ownKey(name string) rendezvous.Key {
	p.Helper()
	return p.keyOf(p.Task, p.incarnation, p.Victim.Task(), name)
}

func (p *Peer) keyOf(from cluster.Task, incarnation uint64, to cluster.Task, name string) rendezvous.Key {
	p.Helper()
	k, err := rendezvous.NewKey(cluster.Device{Task: from, Type: "CPU"}, incarnation, cluster.Device{Task: to, Type: "CPU"}, name, rendezvous.FrameIter{})
	if err != nil {
		p.Fatal(err)
	}
	return k
}

// Request returns a REQUEST for a value of the victim.
func (p *Peer) Request(key rendezvous.Key) wire.Request {
	p.requests++
	return wire.Request{
		Header: p.Header(), ID: p.requests, Attempt: 1, Requester: p.incarnation, Responder: p.victimIncarnation, Step: p.Step, Key: []byte(key.String()),
	}
}

// receive is a Receive whose Wait may be called again.
type receive struct {
	Receive
	ended bool
	err   error
}

func (r *receive) Wait() error {
	if !r.ended {
		r.err, r.ended = r.Receive.Wait(), true
	}
	return r.err
}

// VictimRecv makes the victim receive a value from the peer.
func (p *Peer) VictimRecv(name string) *receive {
	p.Helper()
	r := &receive{Receive: p.Victim.Recv(p.Step, p.ownKey(name))}
	p.receives = append(p.receives, r)
	return r
}

func (p *Peer) repost(slot uint32) {
	p.Helper()
	_, err := p.qp.PostRecv([]verbs.RecvWR{{ID: verbs.NewWRID(0, 0, slot, kindRecv), SGL: []verbs.SGE{{
		Addr: p.mem.Addr() + uint64(slot)*MessageSize, Length: MessageSize, LKey: p.mem.LKey(),
	}}}})
	if err != nil {
		p.Error(err)
	}
}

// Send sends a message, valid or not. That the queue pair is broken is no error.
func (p *Peer) Send(b []byte) {
	p.Helper()
	p.post(p.message(b))
}

// message returns the work request that sends a message.
func (p *Peer) message(b []byte) verbs.SendWR {
	n := copy(p.memory[sendOffset:], b)
	return verbs.SendWR{Op: verbs.OpSend, SGL: []verbs.SGE{{Addr: p.mem.Addr() + sendOffset, Length: uint32(n), LKey: p.mem.LKey()}}}
}

// write writes b to any address, with an immediate if imm is not nil.
func (p *Peer) write(b []byte, addr uint64, key verbs.RKey, imm *wire.Imm) {
	p.Helper()
	n := copy(p.memory[sendOffset:], b)
	wr := verbs.SendWR{Op: verbs.OpWrite, RemoteAddr: addr, RKey: key}
	if n > 0 {
		wr.SGL = []verbs.SGE{{Addr: p.mem.Addr() + sendOffset, Length: uint32(n), LKey: p.mem.LKey()}}
	}
	if imm != nil {
		wr.Op, wr.Imm = verbs.OpWriteImm, uint32(*imm)
	}
	p.post(wr)
}

// post posts work requests and waits for their completions, whatever the status.
func (p *Peer) post(wrs ...verbs.SendWR) {
	p.Helper()
	for i := range wrs {
		wrs[i].ID, wrs[i].Signaled = verbs.NewWRID(0, 0, 0, kindSend), true
	}
	if _, err := p.qp.PostSend(wrs); err != nil {
		p.Fatal(err)
	}
	left := len(wrs)
	p.until("the work requests complete", func() bool {
		p.poll()
		p.pending = slices.DeleteFunc(p.pending, func(wc verbs.WC) bool {
			sent := wc.ID.Kind() == kindSend
			if sent {
				left--
			}
			return sent
		})
		return left == 0
	})
}

func (p *Peer) poll() {
	p.Helper()
	var wcs [16]verbs.WC
	n, err := p.cq.Poll(wcs[:])
	if err != nil {
		p.Fatal(err)
	}
	p.pending = append(p.pending, wcs[:n]...)
}

// Await waits for the next message of a kind. It drops the messages before.
func (p *Peer) Await(want wire.Kind) (message []byte) {
	p.Helper()
	p.until(fmt.Sprint("the victim sends ", want), func() bool {
		p.poll()
		for len(p.pending) > 0 {
			wc := p.pending[0]
			p.pending = p.pending[1:]
			if wc.ID.Kind() != kindRecv || wc.Status != verbs.StatusOK {
				continue
			}
			at := int(wc.ID.Slot()) * MessageSize
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

// parse parses a message of the victim.
func (p *Peer) parse(m interface{ Parse([]byte) error }, b []byte) {
	p.Helper()
	if err := m.Parse(b); err != nil {
		p.Fatal(err)
	}
}

// destination makes the victim receive a value of size bytes from the peer, and returns when the
// victim has sent the destination.
func (p *Peer) destination(size int) (r *receive, id uint64, d wire.Dest) {
	p.Helper()
	r = p.VictimRecv(fmt.Sprint("v", p.requests, p.generation))
	var q wire.Request
	p.parse(&q, p.Await(wire.KindRequest))
	m := wire.Meta{Header: p.Header(), ID: q.ID, Value: bytesValue(size)}
	p.Send(m.Append(nil))
	var again wire.ReRequest
	p.parse(&again, p.Await(wire.KindReRequest))
	if !again.HasDest {
		p.Fatal("the victim has no memory")
	}
	return r, again.ID, again.Dest
}

// wantValue waits for a receive that must succeed.
func (p *Peer) wantValue(r *receive) {
	p.Helper()
	if err := r.Wait(); err != nil {
		p.Fatal(err)
	}
}

func bytesValue(size int) wire.Value {
	return wire.Value{DType: tensor.Uint8, Size: uint64(size), Dims: wire.AppendDims(nil, int64(size))}
}

// until waits until cond is true; what describes it.
func (p *Peer) until(what string, cond func() bool) {
	p.Helper()
	limit := time.NewTimer(p.WaitLimit)
	defer limit.Stop()
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-limit.C:
			p.Fatalf("after %v it is not true that %s; the victim's channel: %+v", p.WaitLimit, what, p.Victim.Channel())
		}
	}
}

// flood sends a message without credits until the victim has left the channel.
func (p *Peer) flood(b []byte) {
	p.Helper()
	before := p.Victim.Channel().Breaks
	for range 10_000 / Window {
		if p.Victim.Channel().Breaks > before {
			return
		}
		p.post(slices.Repeat([]verbs.SendWR{p.message(b)}, Window)...)
	}
}
