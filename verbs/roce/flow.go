package roce

import (
	"errors"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/tryst-rdma/tryst/internal/rocewire"
	"github.com/tryst-rdma/tryst/verbs/roce/internal/udp"
)

// flow carries everything from one sending socket to one peer. Its queue pairs share a
// congestion window and send in turns (deficit round robin: Shreedhar and Varghese,
// 1996). In its turn a queue pair may send a quantum; the unused part is kept while it
// has more to send. A turn that a full window interrupts continues later. The size of a
// packet is known only when it is built, so a turn may exceed its quantum, which the
// next turn pays for.
type flow struct {
	endpoint *endpoint
	key      flowKey
	remote   remote
	peer     *peer
	sender   sender
	to       *udp.Destination
	start    time.Time // origin of the flow's time
	// readCost is the weight of READs in the window, relative to WRITEs, in units of
	// 1/readCostUnit.
	readCost uint64
	users    int // queue pairs; guarded by the endpoint's lock

	mu            sync.Mutex // guards the fields below
	path          rocewire.Path
	window        window
	flight        uint64
	ready         []*qp // queue pairs with something to send, in the order of their turns
	urgent        int   // number of ready queue pairs with hasUrgent
	windowLimited bool  // the window was full since the last transmit
	sendQueued    bool  // listed in endpoint.sending
	readPacer     readPacer
	quantum       int
	probe         superPacketProbe
	batch         batch
	packet        packet
	warned        bool // a warning that packets cannot be sent was logged, at warnedAt
	warnedAt      time.Duration
}

func newFlow(e *endpoint, key flowKey, r remote, p *peer, mtu uint64) *flow {
	f := &flow{
		endpoint: e, key: key, remote: r, peer: p, sender: e.senders[key.sender], to: udp.NewDestination(r.at), start: time.Now(), quantum: quantum,
	}
	f.window, f.readPacer = newWindow(r.buffer, mtu), newReadPacer(r.buffer, mtu)
	// WRITEs fill the peer's receive buffer, READ responses ours. If ours is smaller,
	// READs count for more.
	own := newWindow(uint64(e.receiver.Buffer()), mtu) //nolint:gosec // a size
	f.readCost = max(readCostUnit, readCostUnit*f.window.capacity/own.capacity)
	f.path = rocewire.NewPath(f.sender.Addr(), r.at)
	if r.userSpace {
		f.probe.state = probeSucceeded
	}
	return f
}

// kick sends what the queue pair has to send.
func (q *qp) kick() {
	if f := q.schedule(false); f != nil {
		f.transmit()
		f.mu.Unlock()
	}
}

// kickWithFeedback is kick after a timer or an error: it first applies the queue pair's
// feedback to the window.
func (q *qp) kickWithFeedback() {
	if f := q.schedule(true); f != nil {
		f.transmit()
		f.mu.Unlock()
	}
}

// schedule puts the queue pair into the list of turns if it has something to send, and
// removes it otherwise. With withFeedback it first applies the queue pair's feedback to
// the window. It returns the flow, locked, or nil if there is none.
func (q *qp) schedule(withFeedback bool) *flow {
	f := q.flow.Load()
	if f == nil {
		return nil
	}
	f.mu.Lock()
	if q.flow.Load() != f { // the queue pair has left the flow
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
			n.timeouts = 0 // other queue pairs get through: the path works
		}
		f.window.apply(f.at(q, now), n, f.windowLimited)
		f.probe.update(q, n)
	}
	q.machine.req.pathRTT = f.window.rtt
	f.countLocked(q)
	f.readPacer.refill(f.at(q, now), int64(f.peer.flows.Load()), q.machine.takeReadCredit())
	f.updateUrgentLocked(q)
	switch more := q.hasMore(); {
	case more && !q.queued:
		q.queued = true
		f.ready = append(f.ready, q)
	case !more && q.queued: // it failed, or waits for the receiver: others must not wait for it
		f.dequeueLocked(slices.Index(f.ready, q))
	}
	return f
}

// at converts the time of a queue pair's device into the time of the flow. The queue
// pairs of a flow may belong to several opened devices.
func (f *flow) at(q *qp, now time.Duration) time.Duration { return now + q.pd.dev.start.Sub(f.start) }

// countLocked updates the flow's flight with the queue pair's. An unresponsive queue
// pair does not count: its peer may be gone, and the others would wait until it fails.
func (f *flow) countLocked(q *qp) {
	flight := q.machine.req.flight
	if q.machine.unresponsive() {
		flight = 0
	}
	f.flight += flight - q.counted
	q.counted = flight
}

// hasMore reports whether the queue pair has something to send, given space in the
// window. An unresponsive queue pair sends one packet at a time.
func (q *qp) hasMore() bool {
	m := &q.machine
	return m.hasResponse() || m.req.canSend() && (!m.unresponsive() || m.req.flight == 0)
}

// updateUrgentLocked updates the count of ready queue pairs with something urgent.
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

// hasUrgent reports whether the queue pair can send in a full window: a response, or
// the probe packet of an unresponsive queue pair.
func (q *qp) hasUrgent() bool {
	m := &q.machine
	return m.hasResponse() || m.unresponsive() && m.req.flight == 0 && m.req.canSend()
}

// leave removes the queue pair for good.
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
	f.transmit() // the others have more space now
	f.mu.Unlock()
	f.endpoint.release(f)
}

// send gives the packets to the kernel. A packet that the kernel does not take counts
// as lost on the network; it will be retransmitted.
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

// warn logs that packets cannot be sent, at most once per warnInterval. The interval
// also applies when other packets are sent in between: with a path MTU that is too
// small, only full packets fail.
func (f *flow) warn(err error) {
	at := time.Since(f.start)
	if f.warned && at < f.warnedAt+warnInterval {
		return
	}
	f.warned, f.warnedAt = true, at
	log, args := f.endpoint.provider.log, []any{"from", f.endpoint.addr, "to", f.remote.at, "reason", err}
	switch {
	case errors.Is(err, syscall.EMSGSIZE):
		log.Warn("roce: packets are too long for the path; lower rdma.mtu, or raise the MTU of the interfaces on it", args...)
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EACCES):
		log.Warn("roce: this host refuses to send packets; check its firewall, which must pass UDP", args...)
	default: // the interface is down or gone, which is logged once for it, or the kernel is short of memory
		log.Info("roce: sending failed", args...)
	}
}
