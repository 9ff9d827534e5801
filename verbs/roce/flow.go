package roce

import (
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/tryst-rdma/tryst/verbs/roce/internal/udp"
	"github.com/tryst-rdma/tryst/verbs/roce/internal/wire"
)

// flow is all that goes from one sending socket to one peer. Its queue pairs share
// a congestion window, and take turns (deficit round robin: Shreedhar and
// Varghese, 1996): each may send a quantum in its turn, and keeps what it did not
// use while it has more. A turn that has no room in the window goes on when there is.
// How long a packet is, is known when it was made: what the last one goes beyond is
// taken off the next turn.
type flow struct {
	endpoint *endpoint
	key      flowKey
	remote   remote
	peer     *peer
	sender   sender
	to       *udp.Destination
	start    time.Time // the beginning of the flow's time
	// readCost is what READs count in the window, in readCostOne-ths of what writes do.
	readCost uint64
	users    int // queue pairs; guarded by the station's lock

	mu            sync.Mutex // guards what follows
	path          wire.Path
	window        window
	flight        uint64
	ready         []*qp // those with something to send, whose turn is next first
	urgent        int   // of them, those that need no room in the window for it
	windowLimited bool  // the window was full at some time since the last turns
	sendQueued    bool  // the flow is in its station's list
	readPacer     readPacer
	quantum       int
	probe         superPacketProbe
	batch         batch
	packet        packet
	warned        bool // that packets cannot be sent
	warnedAt      time.Duration
}

func newFlow(s *endpoint, key flowKey, r remote, p *peer, mtu uint64) *flow {
	f := &flow{
		endpoint: s, key: key, remote: r, peer: p, sender: s.senders[key.sender], to: udp.NewDestination(r.at), start: time.Now(), quantum: quantum,
	}
	f.window, f.readPacer = newWindow(r.buffer, mtu), newReadPacer(r.buffer, mtu)
	// What is written fills the peer's buffer, and what is asked for this side's: where
	// that is smaller, as much counts for more.
	own := newWindow(uint64(s.receiver.Buffer()), mtu) //nolint:gosec // a size
	f.readCost = max(readCostUnit, readCostUnit*f.window.capacity/own.capacity)
	f.path = wire.NewPath(f.sender.Addr(), r.at)
	if r.peerIsRoCE {
		f.probe.state = probeSucceeded
	}
	return f
}

// kick sends what a queue pair has to send.
func (q *qp) kick() {
	if f := q.schedule(false); f != nil {
		f.transmit()
		f.mu.Unlock()
	}
}

// settle does that after a timer or the end: the flow learns first what came of what
// was sent.
func (q *qp) kickWithFeedback() {
	if f := q.schedule(true); f != nil {
		f.transmit()
		f.mu.Unlock()
	}
}

// enlist lets a queue pair have turns, if it has something to send, and tells the flow
// the news of it. It returns the flow locked, or nil.
func (q *qp) schedule(withFeedback bool) *flow {
	f := q.flow.Load()
	if f == nil {
		return nil
	}
	f.mu.Lock()
	if q.flow.Load() != f { // it has left meanwhile
		f.mu.Unlock()
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.pd.dev.now()
	f.window.fitMTU(q.machine.mtu)
	f.window.share(uint64(f.peer.flows.Load())) //nolint:gosec // not negative
	if withFeedback {
		n := q.machine.takeFeedback()
		f.windowLimited = f.windowLimited || f.flight+f.minTurn() > f.window.size
		f.countLocked(q)
		if n.timeouts > 1 && f.flight > 0 {
			n.timeouts = 0 // others get through: it is the peer's queue pair that is silent, not the way
		}
		f.window.apply(f.at(q, now), n, f.windowLimited)
		f.probe.update(q, n)
	}
	f.countLocked(q)
	f.readPacer.refill(f.at(q, now), int64(f.peer.flows.Load()), q.machine.takeReadCredit())
	f.updateUrgentLocked(q)
	switch more := q.hasMore(); {
	case more && !q.queued:
		q.queued = true
		f.ready = append(f.ready, q)
	case !more && q.queued: // it broke, or rests: nobody waits for it
		f.dequeueLocked(slices.Index(f.ready, q))
	}
	return f
}

// at is the flow's time: its queue pairs may be of several openings of a device,
// each with a beginning of its own.
func (f *flow) at(q *qp, now time.Duration) time.Duration { return now + q.pd.dev.start.Sub(f.start) }

// countLocked takes a queue pair's flight into the flow's. One that is silent has no
// part in the window: its peer may be gone, and the others would wait for it until it
// gives up.
func (f *flow) countLocked(q *qp) {
	flight := q.machine.req.flight
	if q.machine.unresponsive() {
		flight = 0
	}
	f.flight += flight - q.counted
	q.counted = flight
}

// hasMore says whether a queue pair would send, were there room. One that is silent
// waits for the answer to its only packet.
func (q *qp) hasMore() bool {
	m := &q.machine
	return m.hasResponse() || m.req.canSend() && (!m.unresponsive() || m.req.flight == 0)
}

// urgesLocked looks whether a queue pair has something to send that needs no room.
func (f *flow) updateUrgentLocked(q *qp) {
	urges := q.hasUrgent()
	switch {
	case urges && !q.urgent:
		f.urgent++
	case !urges && q.urgent:
		f.urgent--
	}
	q.urgent = urges
}

// urges says whether a queue pair would send in a full window: what its responder
// owes, or the only packet of one that is silent.
func (q *qp) hasUrgent() bool {
	m := &q.machine
	return m.hasResponse() || m.unresponsive() && m.req.flight == 0 && m.req.canSend()
}

// leave takes a queue pair out for good.
func (f *flow) leave(q *qp) {
	f.mu.Lock()
	f.flight -= q.counted
	q.counted = 0
	if q.urgent {
		f.urgent--
		q.urgent = false
	}
	if q.queued {
		f.dequeueLocked(slices.Index(f.ready, q))
	}
	f.probe.cancel(q)
	f.transmit() // there is room for others
	f.mu.Unlock()
	f.endpoint.release(f)
}

// send hands the packets to the kernel. What it does not take is as good as lost
// on the way: it is sent again.
func (f *flow) send() {
	if f.batch.packets > 0 {
		f.endpoint.provider.order.onSend()
	}
	for msgs := f.batch.messages(f.to); len(msgs) > 0; {
		n, err := f.sender.Send(msgs)
		if err == nil {
			break
		}
		if !errors.Is(err, net.ErrClosed) {
			f.warn(err)
		}
		msgs = msgs[min(n+1, len(msgs)):]
	}
	f.batch.reset()
}

// tell says that packets cannot be sent. It says it again only after a while, also
// where others were sent in between: short packets go where full ones are too long for
// a link, and each of those would be told of.
func (f *flow) warn(err error) {
	at := time.Since(f.start)
	if f.warned && at < f.warnedAt+warnInterval {
		return
	}
	f.warned, f.warnedAt = true, at
	f.endpoint.provider.log.Warn("roce: packets cannot be sent", "from", f.endpoint.addr, "to", f.remote.at, "reason", err)
}
