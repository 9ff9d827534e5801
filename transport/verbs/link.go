package verbstransport

import (
	"cmp"
	"fmt"
	"sync"
	"time"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
	"github.com/tryst-rdma/tryst/transport/internal/channel"
	"github.com/tryst-rdma/tryst/transport/internal/delivery"
	"github.com/tryst-rdma/tryst/transport/internal/wire"
	"github.com/tryst-rdma/tryst/transport/verbs/internal/handshake"
	"github.com/tryst-rdma/tryst/transport/verbs/internal/progress"
	"github.com/tryst-rdma/tryst/transport/verbs/internal/regmem"
	"github.com/tryst-rdma/tryst/verbs"
)

// link is one generation of a channel to a peer: its queue pairs, the completion
// queue that they share, the memory of its messages, and the machine that decides
// (package channel).
//
//	newLink ──► open ──────► leave, or the machine's word ──► torn down
//	offer made   connected    queue pairs to ERR, drained,     peer.linkGone
//	             machine runs destroyed; what is left ends
//
// What is posted and what completes goes through one lock, mu, held from the event
// to the last post. What calls out of the package waits in outbox and is carried
// out in order, by one goroutine at a time, when the lock has been given up; but for the
// question whether the table of answers has a value already, which calls nobody.
type link struct {
	peer      *peer
	id        uint64 // the machine of the bootstrap knows it by (handshake.Action.ID)
	own       handshake.Offer
	index     uint32 // in wr_ids: tells links of one device apart
	cq        verbs.CQ
	rails     []*rail
	inbox     *regmem.Slots // messages of the peer: those of all rails, one rail after the other
	out       *regmem.Slots // messages to it, likewise
	queue     *progress.Queue
	requester transport.Process // the peer, from connect on
	// stranger says that it counts among Transport.strangers. Guarded by peer.mu.
	stranger bool

	mu        sync.Mutex
	machine   *channel.Channel // nil until open
	account   *regmem.Account
	attempts  table[*attempt]
	keys      *keys  // of the peer's requests
	turn      uint8  // rail on which the next content of less than all rails begins
	named     uint64 // the highest generation that the peer's requests said it had left
	sources   table[source]
	staged    regmem.Share // copies for this peer
	dests     table[destination]
	batches   []*batch
	confirmed channel.Marks
	sends     []verbs.SendWR // scratch of flush
	sges      []verbs.SGE
	recvs     []verbs.RecvWR
	places    []placing
	shape     []int64 // scratch of describe
	dims      wire.Dims
	outbox    []outgoing
	emptying  bool // somebody carries out the outbox
	timer     *time.Timer
	alarm     alarm // of timer
	state     linkState
	err       error // why it was left; set once, but that a better witness replaces it
	witness   witness
	drained   *sync.Cond
}

type linkState uint8

const (
	linkOffered linkState = iota // shown to the peer
	linkOpen                     // carries messages, or will when HELLO has come
	linkLeaving                  // posts nothing more; what comes in counts
	linkGone                     // its queue pairs are destroyed
)

// witness is who has told why a channel was left: the lower, the better it knows.
type witness uint8

const (
	witnessCause   witness = iota // a completion with an error of its own, the machine, the peer
	witnessEvent                  // the device, of a queue pair
	witnessFlushed                // a completion that only says that the queue pair broke before
)

// attemptID names one attempt of a receive.
type attemptID struct {
	id      uint64
	attempt uint32
}

// rail is a queue pair with the places of its messages. Receives complete in the
// order in which they were posted, so both queues are rings.
type rail struct {
	qp        verbs.QP
	psn       verbs.PSN
	recvBase  int    // index of the first slot of its receives
	window    int    // how many there are
	completed uint64 // receives that have completed
	posted    uint64 // receives that have been posted
	marked    bool   // a marker is posted behind the last send and has not come back
	inline    int    // bytes that the queue pair sends inline
}

// The kinds of work requests, as wr_ids say them.
const (
	kindRecv uint8 = iota + 1
	kindSend
	kindMarker // the last of a broken queue
)

// newLink makes queue pairs in INIT with all receives posted, and the offer that
// shows them. What it has made is gone again when it fails.
func newLink(p *peer, id, generation uint64) (l *link, err error) {
	t := p.transport
	o := &t.opts
	l = &link{
		peer: p, id: id, index: t.nextIndex(),
		keys: newKeys(o.Check),
	}
	l.drained = sync.NewCond(&l.mu)
	defer func() {
		if err != nil {
			l.destroy()
		}
	}()
	rails := o.Rails
	message := o.messageSize()
	// Room for each receive and each send of all rails, signalled or not: a
	// break completes them all.
	l.cq, err = t.port.device.CreateCQ(verbs.CQConfig{Size: rails * (o.Window + o.SendQueue + 1)})
	if err != nil {
		return l, err
	}
	if l.inbox, err = t.port.memory.NewSlots(rails*o.Window, message, regmem.RecvSlots); err != nil {
		return l, err
	}
	if l.out, err = t.port.memory.NewSlots(rails*o.SendQueue, message, regmem.SendSlots); err != nil {
		return l, err
	}
	l.own = t.port.self
	l.own.Generation = generation
	l.own.Rails = make([]handshake.Rail, rails)
	for i := range rails {
		r := &rail{window: o.Window, recvBase: i * o.Window, psn: verbs.RandomPSN()}
		r.qp, err = t.port.pd.CreateQP(verbs.QPConfig{
			SendCQ: l.cq, RecvCQ: l.cq, MaxSend: o.SendQueue + 1, MaxRecv: o.Window, MaxInline: maxInline,
		})
		if err != nil {
			return l, err
		}
		l.rails = append(l.rails, r)
		r.inline = r.qp.MaxInline()
		if err = t.port.path.Init(r.qp); err != nil {
			return l, err
		}
		if err = l.postReceives(i, r.window); err != nil {
			return l, err
		}
		l.own.Rails[i] = handshake.Rail{Endpoint: r.qp.Endpoint(), MTU: t.port.path.MTU}
		e := &l.own.Rails[i].Endpoint
		e.PSN, e.GID, e.LID = r.psn, t.port.gid, t.port.lid
	}
	return l, nil
}

// connect takes the queue pairs to RTS, with the peer's at their other ends, and
// starts to take what comes. The machine posts nothing before open.
func (l *link) connect(peer handshake.Offer) error {
	t := l.peer.transport
	o := &t.opts
	rails := min(len(l.rails), len(peer.Rails))
	for i := range rails {
		path := t.port.path
		path.MTU = min(path.MTU, peer.Rails[i].MTU)
		if err := path.Connect(l.rails[i].qp, l.rails[i].psn, peer.Rails[i].Endpoint); err != nil {
			return err
		}
	}
	// Those that the peer has none for are not broken first, as queue pairs in use are:
	// nothing has reached them, and receives that are flushed mean a break.
	for _, r := range l.rails[rails:] {
		t.closedObject("queue pair", r.qp.Close())
	}
	l.rails = l.rails[:rails]
	l.requester = transport.Process{Name: peer.Task.String(), Incarnation: peer.Incarnation}
	machine, err := channel.New(time.Now(), channel.Config{
		Peer: l.peer.task.String(), Generation: l.own.Generation,
		OwnIncarnation: t.opts.Self.Incarnation, PeerIncarnation: peer.Incarnation,
		Rails: rails, Window: o.Window, PeerWindow: int(peer.Window),
		Message: int(l.own.ReceiveSize), PeerMessage: int(min(peer.ReceiveSize, l.own.ReceiveSize)),
		Eager: int(min(l.own.EagerLimit, peer.EagerLimit)), SendQueue: o.SendQueue,
		MaxWaiting: o.MaxWaiting, Chunk: longestWrite(o, l.own, peer), Outstanding: o.Outstanding,
		QuarantineBytes: t.port.memory.Stats(time.Now()).Receiving.Limit / 4,
	})
	if err != nil {
		return err
	}
	account := t.port.memory.OpenAccount(l.String())
	l.mu.Lock() // Handle waits for it
	l.queue = progress.Start(progress.Config{CQ: l.cq, Handle: l.completed, Failed: l.leave, Mode: o.Poll, Spinners: t.spinners})
	l.machine, l.account, l.state = machine, account, linkOpen
	l.run(time.Now())
	return nil
}

// longestWrite is how many bytes of a content go in one write: no more than the ports of
// both sides take. Messages are bounded by what the receives of both sides hold, which is
// less (openPort, handshake.Vet).
func longestWrite(o *Options, own, peer handshake.Offer) int {
	return int(min(int64(cmp.Or(o.Chunk, channel.DefaultChunk)), int64(own.MaxMessage), int64(peer.MaxMessage)))
}

// open lets the machine send: the peer has answered, so its queue pairs take what
// comes.
func (l *link) open() {
	l.mu.Lock()
	l.machine.Ready(time.Now())
	l.run(time.Now())
}

// postReceives posts the next n receives of a rail.
func (l *link) postReceives(at, n int) error {
	r := l.rails[at]
	l.recvs, l.sges = l.recvs[:0], l.sges[:0]
	for range n {
		slot := r.recvBase + int(r.posted%uint64(r.window)) //nolint:gosec // a window is no larger than an int
		l.sges = append(l.sges, l.inbox.SGE(slot, l.inbox.Size()))
		l.recvs = append(l.recvs, verbs.RecvWR{ID: l.wrID(uint32(slot), kindRecv)}) //nolint:gosec // a window
		r.posted++
	}
	for i := range l.recvs {
		l.recvs[i].SGL = l.sges[i : i+1]
	}
	_, err := r.qp.PostRecv(l.recvs)
	return err
}

// wrID is the name of a work request. For sends slot has the rail in its upper
// bits, for receives it is the index of the slot.
func (l *link) wrID(slot uint32, kind uint8) verbs.WRID {
	return verbs.NewWRID(l.index, uint32(l.own.Generation), slot, kind) //nolint:gosec // the lower bits
}

func (l *link) String() string {
	return fmt.Sprintf("channel to %v, generation %d", l.peer.task, l.own.Generation)
}

// leave leaves the channel because of err: a failed completion, a generation that
// the peer has left, a device that is gone. It may be called in any state and
// from any goroutine, and does not block.
func (l *link) leave(err error) {
	l.mu.Lock()
	if l.state != linkOpen {
		l.mu.Unlock()
		return
	}
	l.machine.Leave(time.Now(), err)
	l.leaving(err)
	l.run(time.Now())
}

// broke is the word of the device that a queue pair of the channel broke by itself,
// or refused what the peer wanted. What was posted is flushed, before or after this
// word.
func (l *link) broke(e verbs.AsyncEvent) {
	l.mu.Lock()
	l.fails(time.Now(), witnessEvent, status.Errorf(status.Unavailable, "%v: QP %v: %v: %s", l, e.QPN, e.Kind, e.Kind.Cause()))
	l.run(time.Now())
}

// fails leaves the channel because of err, or takes it for the reason when it is a
// better one than what was known. Called with the lock held.
func (l *link) fails(now time.Time, w witness, err error) {
	switch {
	case l.state == linkOpen:
		l.witness = w
		l.machine.Leave(now, err)
		l.leaving(err)
	case l.state == linkLeaving && w < l.witness:
		l.err, l.witness = err, w
		l.drained.Broadcast()
	}
}

// has reports whether a queue pair is the link's.
func (l *link) has(qpn verbs.QPN) bool {
	for _, r := range l.own.Rails {
		if r.QPN == qpn {
			return true
		}
	}
	return false
}

// leads reports whether the channel is, or was, to the process with that
// incarnation.
func (l *link) leads(incarnation uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state != linkOffered && l.requester.Incarnation == incarnation
}

// leaving begins the end. Called with the lock held.
func (l *link) leaving(err error) {
	if l.state != linkOpen {
		return
	}
	l.state, l.err = linkLeaving, err
	l.aside(l.tearDown)
}

// tearDown is rule b of ARCHITECTURE.md section 6: nothing more is posted; all
// queue pairs go to ERR; what was posted comes back, what came complete counts;
// they are destroyed; then what has not ended is given back. The order is that:
// the peer's writes can land until a queue pair is destroyed, so a destination is
// nobody else's before, and a receive is not asked again before either, since its
// answer may be under way to be counted.
func (l *link) tearDown() {
	p, t := l.peer, l.peer.transport
	p.leaving(l)
	broken := true
	l.mu.Lock()
	for i, r := range l.rails {
		if err := l.breakRail(i, r); err != nil {
			broken = false // then there is nothing to wait for
		}
	}
	if broken {
		timeout := time.AfterFunc(drainTime, func() {
			l.mu.Lock()
			broken = false
			l.mu.Unlock()
			l.drained.Broadcast()
		})
		for broken && !l.isDrained() {
			l.drained.Wait()
		}
		timeout.Stop()
	}
	l.awaitCause()
	l.mu.Unlock()
	l.destroy()
	l.mu.Lock()
	l.state = linkGone
	if l.timer != nil {
		l.timer.Stop()
	}
	l.machine.Destroyed(time.Now())
	unconfirmed := l.batches
	l.batches = nil
	l.run(time.Now())
	for _, b := range unconfirmed {
		b.end(l.lostErr())
	}
	t.closedObject("account", l.account.Close())
	// The peer's state has the reason for a moment only: then the next try has its own.
	t.opts.Logger.Info("a channel was left", "peer", p.task.String(), "generation", l.own.Generation, "reason", l.err)
	p.linkGone(l, l.err)
}

// awaitCause waits a moment for the cause of a break that is known by what was flushed
// alone. Some devices never tell. Called with the lock held.
func (l *link) awaitCause() {
	late := false
	timeout := time.AfterFunc(causeTime, func() {
		l.mu.Lock()
		late = true
		l.mu.Unlock()
		l.drained.Broadcast()
	})
	for l.witness == witnessFlushed && !late {
		l.drained.Wait()
	}
	timeout.Stop()
	l.witness = witnessCause // what comes now comes too late
}

// breakRail breaks a queue pair and posts a marker behind what was sent: sends that
// are not signalled say nothing when they end well, so the last one's end has to be
// seen (as the kernel's ib_drain_sq does). Called with the lock held.
func (l *link) breakRail(at int, r *rail) error {
	if err := r.qp.ToErr(); err != nil {
		return err
	}
	r.marked = true
	_, err := r.qp.PostSend([]verbs.SendWR{{
		ID: l.wrID(uint32(at), kindMarker), Op: verbs.OpWrite, Signaled: true, //nolint:gosec // a rail
	}})
	if err != nil {
		r.marked = false
	}
	return err
}

// isDrained says whether everything that was posted has come back. Called with
// the lock held.
func (l *link) isDrained() bool {
	for _, r := range l.rails {
		if r.completed != r.posted || r.marked {
			return false
		}
	}
	return true
}

// discard ends a link whatever its state: one that was shown and never connected
// has nothing to drain; one in use tells the peer, unless the peer has left it.
func (l *link) discard(err error, left bool) {
	l.mu.Lock()
	if l.state != linkOffered {
		l.mu.Unlock()
		if left {
			l.leave(err)
		} else {
			l.bye(err.Error())
		}
		return
	}
	l.state, l.err = linkGone, err
	l.mu.Unlock()
	l.destroy()
	l.peer.linkGone(l, err)
}

// bye leaves the channel, and tells the peer why.
func (l *link) bye(reason string) {
	l.mu.Lock()
	if l.state != linkOpen {
		l.mu.Unlock()
		return
	}
	l.machine.Bye(time.Now(), status.WithoutQPNs(reason))
	l.run(time.Now())
}

// holds reports whether an account is the link's.
func (l *link) holds(a *regmem.Account) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.account == a
}

// destroy gives back what the device has of the link.
func (l *link) destroy() {
	t := l.peer.transport
	for _, r := range l.rails {
		if r.qp != nil {
			t.closedObject("queue pair", r.qp.Close())
		}
	}
	if l.queue != nil {
		_ = l.queue.Stop() // why it failed was told
	}
	if l.cq != nil {
		t.closedObject("completion queue", l.cq.Close())
	}
	for _, s := range []*regmem.Slots{l.inbox, l.out} {
		if s != nil {
			t.closedObject("memory of messages", s.Close())
		}
	}
}

// lostErr is why receives of the channel have no answer. Called with the lock held, or
// when the channel is gone.
func (l *link) lostErr() *status.Error {
	return status.Errorf(status.Unavailable, "%v was left: %w", l, l.err)
}

// lostBy is the outcome of an attempt whose channel was left because of cause. It is
// Unavailable whatever the code of the cause: a connection that breaks is no answer, however
// often it breaks (delivery.LostError).
func lostBy(cause error) error {
	return &delivery.LostError{Err: status.New(status.Unavailable, status.From(cause).Message())}
}
