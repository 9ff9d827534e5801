package verbstransport

import (
	"cmp"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tryst-rdma/tryst/internal/channel"
	"github.com/tryst-rdma/tryst/internal/handshake"
	"github.com/tryst-rdma/tryst/internal/wire"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/transport"
	"github.com/tryst-rdma/tryst/transport/verbs/internal/progress"
	"github.com/tryst-rdma/tryst/transport/verbs/internal/regmem"
	"github.com/tryst-rdma/tryst/transport/verbs/internal/route"
	"github.com/tryst-rdma/tryst/verbs"
)

// link is one generation of a channel to a peer: its queue pairs, the completion queue
// that they share, the memory of its messages, and the state machine (package channel).
//
//	newLink ───► connect ────────► leave, or ActClose ──► tearDown ──────────► linkGone
//	offer made   queue pairs RTS,  nothing is posted      queue pairs to ERR,
//	             machine runs      any more               drained, destroyed
//
// mu is held from an event to the last post that follows from it. Calls out of the package
// are queued in outbox and run in order, by one goroutine at a time, without mu. The one
// exception is ResponseCache.RequestNow, which does not block.
type link struct {
	peer      *peer
	route     *peerRoute
	port      *port
	id        uint64          // handshake.Action.ID
	own       handshake.Offer // this side's offer
	index     uint32          // identifies the link in wr_ids
	cq        verbs.CQ
	rails     []*rail
	inbox     *regmem.Slots // received messages: the slots of each rail follow those of the one before
	out       *regmem.Slots // messages to send, likewise
	queue     *progress.Queue
	requester transport.Process // the peer's process; set by connect
	remote    verbs.GID         // GID of the peer; set by connect
	socket    netip.AddrPort    // destination of packets to the peer; set by connect
	// peer.mu guards the next seven fields. RdmaRemoteRendezvous.unverified counts the links with
	// unverified set.
	unverified bool
	serial     uint64      // orders the links to the peer
	up         bool        // HELLO has come
	down       bool        // the link was left
	reported   bool        // the router knows that it was left
	patience   *time.Timer // until HELLO has come (routes.go); nil in a process with one device
	hello      alarm       // of patience

	// movedAt is when the peer last redirected a request to a better channel, in nanoseconds since
	// 1970; 0 for never.
	movedAt atomic.Int64

	mu           sync.Mutex       // guards what follows
	machine      *channel.Channel // nil until connect
	account      *regmem.Account
	attempts     table[*attempt]
	keys         *keys                                          // of the peer's requests
	receiver     func(rendezvous.Key) (rendezvous.Guard, error) // Options.Receiver of the peer; nil without it
	nextRail     uint8                                          // first rail of the next content that does not use all rails
	peerLeft     uint64                                         // highest generation that the peer's requests report as left
	sources      table[contentMemory]
	staged       regmem.Share // copies for this peer
	dests        table[destination]
	batches      []*batch
	confirmed    channel.Marks
	sends        []verbs.SendWR // scratch of execute: one post
	sges         []verbs.SGE
	recvs        []verbs.RecvWR
	destRequests []destRequest // scratch of execute
	shape        []int64       // scratch of describe
	dims         wire.Dims
	outbox       []outgoing
	outboxBusy   bool // a goroutine runs the outbox
	timer        *time.Timer
	alarm        alarm     // of timer
	doubted      time.Time // when a connection with the peer ended; zero when it was probed since
	state        linkState
	err          error      // why it was left; only an error of a lower rank replaces it
	rank         causeRank  // of err
	drained      *sync.Cond // signals changes of what tearDown waits for
	replaced     error      // why a better channel replaces it (replace.go); nil while none does
	byes         bool       // it is closed in order
}

type linkState uint8

const (
	linkOffered linkState = iota // the offer is made; not connected
	linkOpen                     // connected
	linkLeaving                  // nothing is posted any more; completions are still handled
	linkGone                     // the queue pairs are destroyed
)

// attemptID names one attempt of a receive.
type attemptID struct {
	id      uint64
	attempt uint32
}

// rail is a queue pair with the slots of its messages. Receives complete in the order in
// which they were posted, so their slots are a ring.
type rail struct {
	qp        verbs.QP
	psn       verbs.PSN
	recvBase  int    // index of the first slot of its receives
	window    int    // number of those slots
	completed uint64 // receives that have completed
	posted    uint64 // receives that have been posted
	marked    bool   // the marker of breakRail is posted and has not completed
	inline    int    // maximum inline data of the queue pair, in bytes
}

// The kinds of work requests, as wr_ids encode them.
const (
	kindRecv uint8 = iota + 1
	kindSend
	kindMarker // the last send of a queue pair in ERR (breakRail)
)

// newLink makes queue pairs in INIT with all receives posted, and the offer that describes
// them. Their packets come from that address of the port; from the one in use if it is zero. When it fails, everything that it made is destroyed.
func newLink(r *peerRoute, on *port, from verbs.GID, id, generation uint64) (l *link, err error) {
	t := r.peer.transport
	o := &t.opts
	l = &link{
		peer: r.peer, route: r, port: on, id: id, index: t.nextIndex(),
		keys: newKeys(o.Check),
	}
	if o.Receiver != nil {
		l.receiver = o.Receiver(r.peer.task)
	}
	l.drained = sync.NewCond(&l.mu)
	defer func() {
		if err != nil {
			l.destroy()
		}
	}()
	path, err := on.pathFrom(from)
	if err != nil {
		return l, err
	}
	rails := on.rails
	message := o.messageSize()
	// The completion queue has an entry for each receive and each send, signalled or not: a
	// queue pair in ERR completes them all.
	l.cq, err = on.device.CreateCQ(verbs.CQConfig{Size: rails * (o.Window + o.SendQueue + 1)})
	if err != nil {
		return l, err
	}
	if l.inbox, err = on.memory.NewSlots(rails*o.Window, message, regmem.RecvSlots); err != nil {
		return l, err
	}
	if l.out, err = on.memory.NewSlots(rails*o.SendQueue, message, regmem.SendSlots); err != nil {
		return l, err
	}
	l.own = on.self
	l.own.Generation = generation
	l.own.Rails = make([]handshake.Rail, rails)
	for i := range rails {
		r := &rail{window: o.Window, recvBase: i * o.Window, psn: verbs.RandomPSN()}
		r.qp, err = on.pd.CreateQP(verbs.QPConfig{
			SendCQ: l.cq, RecvCQ: l.cq, MaxSend: o.SendQueue + 1, MaxRecv: o.Window, MaxInline: maxInline,
		})
		if err != nil {
			return l, err
		}
		l.rails = append(l.rails, r)
		r.inline = r.qp.MaxInline()
		if err = path.Init(r.qp); err != nil {
			return l, err
		}
		if err = l.postReceives(i, r.window); err != nil {
			return l, err
		}
		l.own.Rails[i] = handshake.Rail{Endpoint: r.qp.Endpoint(), MTU: path.MTU}
		e := &l.own.Rails[i].Endpoint
		e.PSN, e.GID, e.LID = r.psn, cmp.Or(from, on.gid), on.lid
	}
	return l, nil
}

// connect brings the queue pairs to RTS, connected to those of the peer's offer, and starts
// polling. The machine posts nothing before open.
func (l *link) connect(peer handshake.Offer) error {
	t := l.peer.transport
	o := &t.opts
	rails := min(len(l.rails), len(peer.Rails))
	from, err := l.port.pathFrom(l.own.Rails[0].GID)
	if err != nil {
		return err
	}
	for i := range rails {
		path := from
		path.MTU = min(path.MTU, peer.Rails[i].MTU)
		to := peer.Rails[i].Endpoint
		if o.Target != nil {
			to.Target = o.Target(l.peer.task)
		}
		if err := path.Connect(l.rails[i].qp, l.rails[i].psn, to); err != nil {
			return err
		}
	}
	// Queue pairs without a counterpart at the peer are destroyed without moving them to
	// ERR: the receives that this would flush look like the end of the channel.
	for _, r := range l.rails[rails:] {
		t.logClose("queue pair", r.qp.Close())
	}
	l.rails = l.rails[:rails]
	l.requester = transport.Process{Name: peer.Task.String(), Incarnation: peer.Incarnation}
	to := peer.Rails[0].Endpoint
	l.remote, l.socket = to.GID, netip.AddrPortFrom(to.GID.Addr(), cmp.Or(to.UDP.Port, verbs.RoCEPort))
	chunk, long, outstanding := l.writes(peer)
	machine, err := channel.New(time.Now(), channel.Config{
		Peer: l.peer.task.String(), Generation: l.own.Generation,
		OwnIncarnation: t.opts.Self.Incarnation, PeerIncarnation: peer.Incarnation,
		Rails: rails, Apart: l.port.route == route.TCP, Window: o.Window, PeerWindow: int(peer.Window),
		Message: int(l.own.ReceiveSize), PeerMessage: int(min(peer.ReceiveSize, l.own.ReceiveSize)),
		Eager: int(min(l.own.EagerLimit, peer.EagerLimit)), SendQueue: o.SendQueue,
		MaxWaiting: o.MaxWaiting, Chunk: chunk, LongChunk: long, Outstanding: outstanding,
		QuarantineBytes: t.memory.Stats(time.Now()).Receiving.Limit / 4,
	})
	if err != nil {
		return err
	}
	account := l.port.memory.OpenAccount(l.String())
	l.mu.Lock() // Handle, which progress.Start may call at once, takes mu
	l.queue = progress.Start(progress.Config{CQ: l.cq, Handle: l.completed, Failed: l.leave, Mode: o.Poll, Spinners: t.spinners})
	l.machine, l.account, l.state = machine, account, linkOpen
	l.run(time.Now())
	return nil
}

// writes returns the sizes of RDMA writes in bytes: of one write, of one of a long content, and how
// much is in flight. A write is no longer than a message of either port. Messages need no such
// bound: they are no longer than the receives of both sides (openPort, handshake.Validate).
//
// Shared memory copies a long write past the caches, and has the next one at hand by the time that a
// completion is seen.
func (l *link) writes(peer handshake.Offer) (chunk, long int, outstanding int64) {
	o := &l.peer.transport.opts
	longest := min(l.own.MaxMessage, peer.MaxMessage)
	chunk, outstanding = cmp.Or(o.Chunk, channel.DefaultChunk), o.Outstanding
	if l.port.route == route.Shared && o.Chunk == 0 && o.Outstanding == 0 {
		long, outstanding = sharedChunk, 4*sharedChunk
	}
	return int(min(int64(chunk), int64(longest))), int(min(int64(long), int64(longest))), outstanding
}

// open lets the machine send: the peer has answered, so its queue pairs can receive.
func (l *link) open() {
	l.mu.Lock()
	l.machine.Ready(time.Now())
	l.run(time.Now())
}

// postReceives posts the next n receives of a rail. Called with mu held, or before connect.
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

// wrID is the wr_id of a work request. slot is the index of its slot in inbox or out, or
// the rail for a marker.
func (l *link) wrID(slot uint32, kind uint8) verbs.WRID {
	return verbs.NewWRID(l.index, uint32(l.own.Generation), slot, kind) //nolint:gosec // the lower bits
}

func (l *link) String() string {
	return fmt.Sprintf("channel to %v, generation %d", l.peer.task, l.own.Generation)
}

// ownsQP reports whether a queue pair belongs to the link.
func (l *link) ownsQP(qpn verbs.QPN) bool {
	for _, r := range l.own.Rails {
		if r.QPN == qpn {
			return true
		}
	}
	return false
}

// isTo reports whether the link is, or was, connected to the process with that incarnation.
func (l *link) isTo(incarnation uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state != linkOffered && l.requester.Incarnation == incarnation
}

// ownsAccount reports whether an account belongs to the link.
func (l *link) ownsAccount(a *regmem.Account) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.account == a
}
