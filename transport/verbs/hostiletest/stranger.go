package hostiletest

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/transport/internal/wire"
	"github.com/tryst-rdma/tryst/transport/verbs/internal/handshake"
	"github.com/tryst-rdma/tryst/verbs"
)

// Victim is the process that a stranger talks to, as its test sees it.
type Victim interface {
	Task() cluster.Task
	// Answer is its answer to a bootstrap.
	Answer(context.Context, handshake.Offer) (handshake.Offer, error)
	// Link is how it reaches the stranger.
	Link() Link
	// Send lets it send some bytes to the stranger, Recv receive what comes from
	// it, and EndStep end a step: what waits in it ends.
	Send(step int64, key rendezvous.Key, size int)
	Recv(step int64, key rendezvous.Key) Receive
	EndStep(step int64)
}

// Link is a victim's channel to the stranger.
type Link struct {
	Verbs  bool
	Breaks uint64 // channels that were left
	Reason string // why there is none, and was none before: all that the victim has said
}

// Receive is a receive of the victim.
type Receive interface {
	// UnderWay says that it has not ended.
	UnderWay() bool
	// Wait waits for its end, and is called once. A value is released, whatever it
	// is.
	Wait() error
}

// Options make a Stranger.
type Options struct {
	// Task is the name that it takes.
	Task   cluster.Task
	Victim Victim
	// Device is open, and stays its owner's; packets come from Address.
	Device  verbs.Device
	Address verbs.GIDEntry
	// Memory gives memory that may be registered: make([]byte, n) when nil.
	Memory func(n int) []byte
	// Timeout is how long a queue pair waits for an acknowledgement, and Patience
	// how long a test waits for what must happen soon.
	Timeout, Patience time.Duration
	// Told is what the victim's device says instead of some Case.Want.
	Told map[string]string
}

// Stranger is the peer.
type Stranger struct {
	testing.TB
	Options
	// Step is the present one.
	Step int64

	incarnation uint64
	of          uint64 // the incarnation of the victim
	pd          verbs.PD
	cq          verbs.CQ
	qp          verbs.QP
	room        verbs.MR
	into        verbs.MR // of Destination; nil before
	memory      []byte
	generation  uint64
	own, answer handshake.Offer // of the present channel
	taken       uint32          // messages of the victim
	requests    uint64
	pending     []verbs.WC
	receives    []*receive // of the present step
}

const (
	// Window is how many receives the stranger posts.
	Window = 64
	// MessageSize is what a receive of the stranger holds, in bytes.
	MessageSize = 16 * kib
	// What it says lies behind the memory of its receives, as long as its longest
	// message.
	says = Window * MessageSize
	room = 64 * kib

	kib = 1 << 10
	mib = 1 << 20

	lookEvery = time.Millisecond
)

// The kinds of its work requests.
const (
	kindRecv uint8 = iota + 1
	kindSend
)

// New returns a stranger, which has no channel yet. Its Close is the caller's.
func New(t testing.TB, o Options) *Stranger {
	t.Helper()
	if o.Memory == nil {
		o.Memory = func(n int) []byte { return make([]byte, n) }
	}
	p := &Stranger{TB: t, Options: o, Step: 1, incarnation: cluster.NewIncarnation(), memory: o.Memory(says + room)}
	var err error
	if p.pd, err = p.Device.AllocPD(); err != nil {
		t.Fatal(err)
	}
	if p.room, err = p.pd.RegisterMemory(p.memory, verbs.AccessLocalWrite); err != nil {
		t.Fatal(err)
	}
	return p
}

// Close leaves the channel, with BYE, so that the victim need not find out, and gives
// back what the device has of the stranger.
func (p *Stranger) Close() {
	p.Helper()
	p.Bye()
	if p.into != nil {
		p.close(p.into)
	}
	p.close(p.room, p.pd)
}

// Destination is memory of n bytes that the victim can write into. It is called once.
func (p *Stranger) Destination(n int) wire.Dest {
	p.Helper()
	var err error
	if p.into, err = p.pd.RegisterMemory(p.Memory(n), verbs.AccessLocalWrite|verbs.AccessRemoteWrite); err != nil {
		p.Fatal(err)
	}
	d := wire.Dest{N: 1}
	d.Rails[0] = wire.Remote{Addr: p.into.Addr(), RKey: p.into.RKey()}
	return d
}

func (p *Stranger) close(all ...interface{ Close() error }) {
	p.Helper()
	for _, c := range all {
		if err := c.Close(); err != nil {
			p.Error(err)
		}
	}
}

// Bye says BYE where there is a channel, and leaves it.
func (p *Stranger) Bye() {
	p.Helper()
	if p.qp != nil && p.Victim.Link().Verbs {
		m := wire.Bye{Header: p.Header()}
		p.Says(m.Append(nil))
		p.until("the victim has left the channel", func() bool { return !p.Victim.Link().Verbs })
	}
	p.Leave()
}

// Leave destroys its end of a channel, without a word.
func (p *Stranger) Leave() {
	p.Helper()
	if p.qp == nil {
		return
	}
	p.close(p.qp, p.cq)
	p.qp, p.pending, p.taken = nil, nil, 0
}

// Prepare makes a queue pair, with receives posted, and returns what is shown of it.
// What there was is left.
func (p *Stranger) Prepare(generation uint64) (own handshake.Offer) {
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

// Show shows the victim an offer. The answer is the victim's.
func (p *Stranger) Show(own handshake.Offer) (answer handshake.Offer) {
	p.Helper()
	answer, err := p.Victim.Answer(p.Context(), own)
	if err != nil {
		p.Fatalf("the bootstrap was refused: %v", err)
	}
	return answer
}

func (p *Stranger) path() verbs.Path {
	return verbs.Path{Port: 1, SGIDIndex: uint8(p.Address.Index), MTU: verbs.MTU4096, Access: verbs.AccessLocalWrite | verbs.AccessRemoteWrite,
		Timeout: verbs.TimeoutCode(p.Timeout), Retry: 6, RNRRetry: 6, MinRNRTimer: verbs.DefaultMinRNRTimer}
}

// Connects makes a channel up to where HELLO is due.
func (p *Stranger) Connects() {
	p.Helper()
	for {
		own := p.Prepare(max(p.generation, 1))
		answer := p.Show(own)
		if answer.Generation == own.Generation {
			p.Join(own, answer)
			return
		}
		p.generation = answer.Generation
	}
}

// Join brings the queue pair to the one that the victim has shown.
func (p *Stranger) Join(own, answer handshake.Offer) {
	p.Helper()
	p.of, p.generation = answer.Incarnation, own.Generation
	p.own, p.answer = own, answer
	path := p.path()
	path.MTU = min(path.MTU, answer.Rails[0].MTU)
	if err := path.Connect(p.qp, own.Rails[0].PSN, answer.Rails[0].Endpoint); err != nil {
		p.Fatal(err)
	}
}

// Present is what was shown and answered for the present channel.
func (p *Stranger) Present() (own, answer handshake.Offer) { return p.own, p.answer }

// Meets makes a channel that carries both ways.
func (p *Stranger) Meets() {
	p.Helper()
	p.Connects()
	p.Greets()
}

// Greets says HELLO and hears it.
func (p *Stranger) Greets() {
	p.Helper()
	m := p.hello()
	p.Says(m.Append(nil))
	p.Hears(wire.KindHello)
	p.until("the victim has a channel to the stranger", func() bool { return p.Victim.Link().Verbs })
}

func (p *Stranger) hello() wire.Hello {
	return wire.Hello{Header: p.Header(), Generation: p.generation, From: p.incarnation, To: p.of}
}

// Header has the counts that are true.
func (p *Stranger) Header() wire.Header {
	h := wire.Header{Taken: wire.Counts{N: 1}}
	h.Taken.Of[0] = p.taken
	return h
}

// Key names a value that the victim sends to the stranger.
func (p *Stranger) Key(name string) rendezvous.Key {
	p.Helper()
	return p.keyOf(p.Victim.Task(), p.of, p.Task, name)
}

// ownKey names one that goes the other way.
func (p *Stranger) ownKey(name string) rendezvous.Key {
	p.Helper()
	return p.keyOf(p.Task, p.incarnation, p.Victim.Task(), name)
}

func (p *Stranger) keyOf(from cluster.Task, incarnation uint64, to cluster.Task, name string) rendezvous.Key {
	p.Helper()
	k, err := rendezvous.NewKey(cluster.Device{Task: from, Type: "CPU"}, incarnation, cluster.Device{Task: to, Type: "CPU"}, name, rendezvous.FrameIter{})
	if err != nil {
		p.Fatal(err)
	}
	return k
}

// Request asks for a value of the victim.
func (p *Stranger) Request(key rendezvous.Key) wire.Request {
	p.requests++
	return wire.Request{
		Header: p.Header(), ID: p.requests, Attempt: 1, Requester: p.incarnation, Responder: p.of, Step: p.Step, Key: []byte(key.String()),
	}
}

// receive is one whose end may be asked for again.
type receive struct {
	Receive
	over bool
	err  error
}

func (r *receive) Wait() error {
	if !r.over {
		r.err, r.over = r.Receive.Wait(), true
	}
	return r.err
}

// Await lets the victim receive.
func (p *Stranger) Await(name string) *receive {
	p.Helper()
	r := &receive{Receive: p.Victim.Recv(p.Step, p.ownKey(name))}
	p.receives = append(p.receives, r)
	return r
}

func (p *Stranger) repost(slot uint32) {
	p.Helper()
	_, err := p.qp.PostRecv([]verbs.RecvWR{{ID: verbs.NewWRID(0, 0, slot, kindRecv), SGL: []verbs.SGE{{
		Addr: p.room.Addr() + uint64(slot)*MessageSize, Length: MessageSize, LKey: p.room.LKey(),
	}}}})
	if err != nil {
		p.Error(err)
	}
}

// Says sends bytes, whatever they are. It is no fault when the queue pair is broken by
// then.
func (p *Stranger) Says(b []byte) {
	p.Helper()
	p.post(p.saying(b))
}

func (p *Stranger) saying(b []byte) verbs.SendWR {
	n := copy(p.memory[says:], b)
	return verbs.SendWR{Op: verbs.OpSend, SGL: []verbs.SGE{{Addr: p.room.Addr() + says, Length: uint32(n), LKey: p.room.LKey()}}}
}

// writes writes bytes to where it likes; with an imm when that is not nil.
func (p *Stranger) writes(b []byte, addr uint64, key verbs.RKey, imm *wire.Imm) {
	p.Helper()
	n := copy(p.memory[says:], b)
	wr := verbs.SendWR{Op: verbs.OpWrite, RemoteAddr: addr, RKey: key}
	if n > 0 {
		wr.SGL = []verbs.SGE{{Addr: p.room.Addr() + says, Length: uint32(n), LKey: p.room.LKey()}}
	}
	if imm != nil {
		wr.Op, wr.Imm = verbs.OpWriteImm, uint32(*imm)
	}
	p.post(wr)
}

// post posts requests and waits until they have ended, well or badly.
func (p *Stranger) post(wrs ...verbs.SendWR) {
	p.Helper()
	for i := range wrs {
		wrs[i].ID, wrs[i].Signaled = verbs.NewWRID(0, 0, 0, kindSend), true
	}
	if _, err := p.qp.PostSend(wrs); err != nil {
		p.Fatal(err)
	}
	left := len(wrs)
	p.until("the posts have ended", func() bool {
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

func (p *Stranger) poll() {
	p.Helper()
	var wcs [16]verbs.WC
	n, err := p.cq.Poll(wcs[:])
	if err != nil {
		p.Fatal(err)
	}
	p.pending = append(p.pending, wcs[:n]...)
}

// Hears returns the next message of that kind; those before it are taken and dropped.
func (p *Stranger) Hears(want wire.Kind) (message []byte) {
	p.Helper()
	p.until(fmt.Sprint("the stranger hears ", want), func() bool {
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

// parse reads what the victim has said.
func (p *Stranger) parse(m interface{ Parse([]byte) error }, b []byte) {
	p.Helper()
	if err := m.Parse(b); err != nil {
		p.Fatal(err)
	}
}

// asked lets the victim receive from the stranger, up to where it has told an address.
func (p *Stranger) asked(size int) (r *receive, id uint64, d wire.Dest) {
	p.Helper()
	r = p.Await(fmt.Sprint("v", p.requests, p.generation))
	var q wire.Request
	p.parse(&q, p.Hears(wire.KindRequest))
	m := wire.Meta{Header: p.Header(), ID: q.ID, Value: bytesValue(size)}
	p.Says(m.Append(nil))
	var again wire.ReRequest
	p.parse(&again, p.Hears(wire.KindReRequest))
	if !again.HasDest {
		p.Fatal("the victim has no memory")
	}
	return r, again.ID, again.Dest
}

// arrives waits for a receive that brings a value.
func (p *Stranger) arrives(r *receive) {
	p.Helper()
	if err := r.Wait(); err != nil {
		p.Fatal(err)
	}
}

func bytesValue(size int) wire.Value {
	return wire.Value{DType: tensor.Uint8, Size: uint64(size), Dims: wire.AppendDims(nil, int64(size))}
}

// until waits until cond is true, which what describes.
func (p *Stranger) until(what string, cond func() bool) {
	p.Helper()
	limit := time.NewTimer(p.Patience)
	defer limit.Stop()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-limit.C:
			p.Fatalf("not so after %v: %s; the victim's channel: %+v", p.Patience, what, p.Victim.Link())
		}
	}
}

// flood says the same until the victim has left the channel, whatever the credits.
func (p *Stranger) flood(b []byte) {
	p.Helper()
	before := p.Victim.Link().Breaks
	for range 10_000 / Window {
		if p.Victim.Link().Breaks > before {
			return
		}
		p.post(slices.Repeat([]verbs.SendWR{p.saying(b)}, Window)...)
	}
}
