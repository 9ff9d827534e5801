package verbstransport

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
	"github.com/tryst-rdma/tryst/transport/internal/delivery"
	"github.com/tryst-rdma/tryst/transport/verbs/internal/handshake"
)

// peer is one task at the other end: the bootstrap with it, and the link that it
// leads to. The machine's actions are carried out one after another, by one
// goroutine at a time, since each may take time and the machine counts on their
// order.
type peer struct {
	transport *RdmaRemoteRendezvous
	task      cluster.Task
	source    string // where it called from first; empty when this process called it
	counters  counters

	mu       sync.Mutex
	past     past // of links that are gone
	machine  *handshake.Machine
	acts     []handshake.Action
	acting   bool
	links    map[uint64]*link // by id: those that exist, not yet torn down
	up       *link            // carries receives; nil when none does
	wireDown func()           // of up: tells the table of answers
	left     left             // the last channel that this side has left
	changed  chan struct{}    // closed when up changes
	requests map[uint64]func(handshake.Offer, error)
	lastReq  uint64
	timer    *time.Timer
	alarm    alarm // of timer
	lost     error // why there is no device any more
	gone     bool  // it has been forgotten: there may be another record of the task
	ending   bool  // this process closes it: nothing of that is news

	logging sync.Mutex // one goroutine at a time tells the log, so that the last state is told last
	told    string     // what it was told last
}

func newPeer(t *RdmaRemoteRendezvous, task cluster.Task, source string) *peer {
	return &peer{
		transport: t, task: task, source: source, links: make(map[uint64]*link), changed: make(chan struct{}),
		requests: make(map[uint64]func(handshake.Offer, error)),
		machine: handshake.New(handshake.Config{
			Self: t.port.self, Peer: task, Callable: t.opts.Callable(task), Jitter: t.opts.jitter(), Backoff: t.opts.Backoff,
		}),
	}
}

// want asks for a channel, from now on.
func (p *peer) want() {
	p.mu.Lock()
	p.do(p.machine.Want(time.Now()))
}

// hurry asks for a channel for somebody who has no other wire.
func (p *peer) hurry() {
	p.mu.Lock()
	p.do(p.machine.Hurry(time.Now()))
}

// do takes the machine's actions over. It is called with the lock held and gives
// it up.
func (p *peer) do(acts []handshake.Action) {
	for i := range acts {
		if acts[i].Kind == handshake.Make {
			p.transport.links.add() // it exists from here on for who waits until none does
		}
	}
	p.acts = append(p.acts, acts...)
	p.arm()
	if p.acting || len(p.acts) == 0 {
		p.mu.Unlock()
		return
	}
	p.acting = true
	p.mu.Unlock()
	p.transport.work.Go(p.act)
}

func (p *peer) act() {
	for {
		p.mu.Lock()
		if len(p.acts) == 0 {
			p.acting = false
			p.mu.Unlock()
			return
		}
		a := p.acts[0]
		p.acts = p.acts[1:]
		p.mu.Unlock()
		p.carryOut(a)
	}
}

// arm sees to it that the machine is told of the time when it wants to. Called
// with the lock held.
func (p *peer) arm() {
	at := p.machine.Wake()
	if at.IsZero() || p.transport.base.Err() != nil || !p.alarm.set(at) {
		return
	}
	if p.timer == nil {
		p.timer = time.AfterFunc(time.Until(at), p.tick)
		return
	}
	p.timer.Reset(time.Until(at))
}

func (p *peer) tick() {
	p.mu.Lock()
	now := time.Now()
	if wait := p.alarm.rings(now, false); wait > 0 { // HELLO may be there, unread
		p.timer.Reset(wait)
		p.mu.Unlock()
		return
	}
	p.do(p.machine.Tick(now))
}

func (p *peer) carryOut(a handshake.Action) {
	t := p.transport
	switch a.Kind {
	case handshake.Make:
		stranger := !t.opts.Callable(p.task)
		if stranger {
			if err := t.strangers.take(p.source, "channels that wait for the first message of a client"); err != nil {
				t.links.done()
				p.mu.Lock()
				p.do(p.machine.MakeFailed(time.Now(), a.ID, err))
				return
			}
		}
		var l *link
		err := t.steady(func() (err error) {
			l, err = newLink(p, a.ID, a.Generation)
			return err
		})
		p.mu.Lock()
		if err != nil {
			if stranger {
				t.strangers.give(p.source)
			}
			t.links.done()
			p.do(p.machine.MakeFailed(time.Now(), a.ID, err))
			return
		}
		p.links[a.ID], l.stranger = l, stranger
		p.do(p.machine.Made(time.Now(), l.id, l.own))
	case handshake.Destroy:
		p.mu.Lock()
		l := p.links[a.ID]
		p.mu.Unlock()
		if l != nil {
			l.discard(a.Err, a.Left)
		}
	case handshake.Connect:
		p.mu.Lock()
		l := p.links[a.ID]
		p.mu.Unlock()
		var err error
		if l == nil {
			err = status.Errorf(status.Internal, "there is no generation %d to connect", a.Generation)
		} else {
			err = p.connect(l, a.Offer)
		}
		p.mu.Lock()
		if err != nil {
			p.do(p.machine.ConnectFailed(time.Now(), a.ID, err))
			return
		}
		p.do(p.machine.Connected(time.Now(), a.ID))
	case handshake.Open:
		p.mu.Lock()
		l := p.links[a.ID]
		p.mu.Unlock()
		if l != nil {
			l.open()
		}
	case handshake.Call:
		t.work.Go(func() { p.call(a.Call, a.Offer) })
	case handshake.Answer, handshake.Refuse:
		p.mu.Lock()
		answer := p.requests[a.Request]
		delete(p.requests, a.Request)
		p.mu.Unlock()
		if answer != nil {
			answer(a.Offer, a.Err)
		}
	}
	p.logState()
}

// connect connects a link with an offer of the peer. The table of answers has to accept
// the process that shows it as an asker first: it will ask over the channel.
func (p *peer) connect(l *link, with handshake.Offer) error {
	t := p.transport
	asker := transport.Process{Name: with.Task.String(), Incarnation: with.Incarnation}
	if err := t.opts.Cache.Introduce(t.base, asker, p.source); err != nil {
		return err
	}
	return t.steady(func() error { return l.connect(with) })
}

func (p *peer) call(id uint64, own handshake.Offer) {
	p.counters.bootstraps.Add(1)
	ctx, cancel := context.WithTimeout(p.transport.base, handshake.CallTimeout)
	offer, err := p.transport.opts.Exchanger.Exchange(ctx, p.task, own)
	cancel()
	p.mu.Lock()
	p.do(p.machine.Answered(time.Now(), id, offer, err))
	p.logState()
}

// request answers a bootstrap of the peer.
func (p *peer) request(ctx context.Context, from handshake.Offer) (handshake.Offer, error) {
	type result struct {
		offer handshake.Offer
		err   error
	}
	done := make(chan result, 1)
	p.mu.Lock()
	if p.gone {
		p.mu.Unlock()
		return handshake.Offer{}, errForgotten
	}
	p.lastReq++
	id := p.lastReq
	p.requests[id] = func(o handshake.Offer, err error) { done <- result{o, err} }
	p.do(p.machine.Request(time.Now(), id, from))
	select {
	case r := <-done:
		return r.offer, r.err
	case <-ctx.Done():
		p.mu.Lock()
		delete(p.requests, id)
		p.mu.Unlock()
		return handshake.Offer{}, status.From(context.Cause(ctx))
	}
}

// linkUp is the word of a link that the peer's HELLO has come.
func (p *peer) linkUp(l *link) {
	down := p.transport.opts.Cache.Connected(l.requester) // answers others: no lock is held
	p.mu.Lock()
	p.noStranger(l)
	// A link that was left meanwhile is not put up: nobody would take it down again.
	if l.id > p.left.id && p.links[l.id] == l && (p.up == nil || p.up.id < l.id) {
		p.setUp(l)
		p.wireDown, down = down, nil
	}
	p.do(p.machine.Hello(time.Now(), l.id))
	if down != nil {
		down()
	}
	p.transport.work.Go(p.logState) // a log may hold up whoever writes to it
}

// noStranger counts a link no more whose peer has spoken, or that is gone. Called with
// the lock held.
func (p *peer) noStranger(l *link) {
	if l.stranger {
		l.stranger = false
		p.transport.strangers.give(p.source)
	}
}

// setUp changes which link carries receives. Called with the lock held.
func (p *peer) setUp(l *link) {
	if p.wireDown != nil {
		p.transport.work.Go(p.wireDown)
		p.wireDown = nil
	}
	p.up = l
	close(p.changed)
	p.changed = make(chan struct{})
}

// leaving is the word of a link that nothing is posted on it any more.
func (p *peer) leaving(l *link) {
	p.mu.Lock()
	if p.up == l {
		p.setUp(nil)
	}
	if l.id > p.left.id {
		p.left = left{l.id, l.requester.Incarnation, l.own.Generation}
	}
	p.counters.breaks.Add(1)
	p.mu.Unlock()
}

// linkGone is the word of a link that its queue pairs are destroyed.
func (p *peer) linkGone(l *link, err error) {
	did := l.did()
	p.mu.Lock()
	p.noStranger(l)
	delete(p.links, l.id)
	p.past.add(did) // with the deletion: no count is ever lost or told twice
	p.do(p.machine.Broken(time.Now(), l.id, err))
	p.logState()
	p.transport.links.done()
}

// offerGone ends a link that was shown and is not connected yet. Another one is made.
func (p *peer) offerGone(l *link, why error) {
	l.mu.Lock()
	offered := l.state == linkOffered
	l.mu.Unlock()
	p.mu.Lock()
	if !offered {
		p.mu.Unlock()
		return
	}
	p.do(p.machine.Broken(time.Now(), l.id, why))
}

// left is a channel that was left.
type left struct{ id, peer, generation uint64 }

// with is its generation, if it was with that process of the peer.
func (l left) with(incarnation uint64) uint64 {
	if l.peer != incarnation {
		return 0
	}
	return l.generation
}

// current returns the link that carries receives, nil when none does, the last one
// that was left, and a channel that is closed when that changes.
func (p *peer) current() (l *link, was left, changed <-chan struct{}) {
	p.mu.Lock()
	l, was, changed = p.up, p.left, p.changed
	p.mu.Unlock()
	return l, was, changed
}

// known is the process at the other end of the link that carries receives, if one does.
func (p *peer) known() (who delivery.Peer, ok bool) {
	l, _, _ := p.current()
	if l == nil {
		return delivery.Peer{}, false
	}
	return delivery.Peer{Tryst: true, Incarnation: l.requester.Incarnation}, true
}

// checkLeft refuses a generation that a process of the peer cannot have left: neither side
// has shown it.
func (p *peer) checkLeft(incarnation, generation uint64) error {
	p.mu.Lock()
	last, ok := p.machine.Last(incarnation)
	p.mu.Unlock()
	if ok && generation > last {
		return status.Errorf(status.FailedPrecondition, "%v says that it has left generation %d, and the highest between it and this process is %d", p.task, generation, last)
	}
	return nil
}

// leftBy is the word of a process of the peer that it has left a generation and
// all before it.
func (p *peer) leftBy(incarnation, generation uint64) {
	p.mu.Lock()
	var old []*link
	for _, l := range p.links {
		if l.own.Generation <= generation {
			old = append(old, l)
		}
	}
	p.mu.Unlock()
	for _, l := range old {
		if l.leads(incarnation) {
			l.leave(status.Errorf(status.Unavailable, "%v left generation %d", p.task, generation))
		}
	}
}

// lose ends every link, since the device is lost.
func (p *peer) lose(err error) {
	p.mu.Lock()
	p.lost = err
	p.do(p.machine.Stop(time.Now(), err))
	p.leaveAll(err)
}

// leaveAll ends every link that is in use because of err.
func (p *peer) leaveAll(err error) {
	for _, l := range p.existing() {
		l.leave(err)
	}
}

// existing are the links that are not torn down yet.
func (p *peer) existing() []*link {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []*link
	for _, l := range p.links {
		all = append(all, l)
	}
	return all
}

// close ends the bootstrap, and with it every link.
func (p *peer) close() {
	p.mu.Lock()
	if p.timer != nil {
		p.timer.Stop()
	}
	p.ending = true
	p.do(p.machine.Stop(time.Now(), nil))
}

// link is how the peer is reached, without what has gone over verbs.
func (p *peer) link() Link {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := Link{Task: p.task}
	k.State, k.Reason = p.machine.State()
	switch {
	case p.up != nil:
		k.Verbs, k.Generation, k.QueuePairs, k.Reason = true, p.up.own.Generation, len(p.up.rails), nil
	case p.lost != nil:
		k.Reason = p.lost
	}
	return k
}

// full is link with all counts.
func (p *peer) full() Link {
	k := p.link()
	k.Stats = p.counters.read()
	p.mu.Lock()
	sum := p.past
	all := make([]*link, 0, len(p.links))
	for _, l := range p.links {
		all = append(all, l)
	}
	p.mu.Unlock()
	for _, l := range all {
		sum.add(l.did())
	}
	k.Stats.MessagesSent, k.Stats.MessagesReceived, k.Poll = sum.messages.Sent, sum.messages.Received, sum.poll
	return k
}

// logState tells the log of a change of the wire.
func (p *peer) logState() {
	p.logging.Lock()
	defer p.logging.Unlock()
	p.mu.Lock()
	ending := p.ending
	p.mu.Unlock()
	if ending {
		return
	}
	k := p.link()
	said := "grpc"
	switch {
	case k.Verbs:
		said = "verbs"
	case k.Reason != nil:
		said += ": " + k.Reason.Error()
	}
	if said == p.told {
		return
	}
	p.told = said
	switch {
	case k.Verbs:
		p.transport.opts.Logger.Info("tensors from and to the peer go over verbs", "peer", p.task.String(), "generation", k.Generation, "queue_pairs", k.QueuePairs)
	case k.Reason != nil:
		p.transport.opts.Logger.Log(context.Background(), levelOf(k.Reason), "no verbs with the peer", "peer", p.task.String(), "reason", k.Reason, "instead", p.transport.instead())
	}
}

// levelOf is how loud the log says why there is no verbs with a peer: what passes by itself,
// as that it is not up yet, is no warning.
func levelOf(reason error) slog.Level {
	switch status.CodeOf(reason) {
	case status.Unavailable, status.DeadlineExceeded, status.Cancelled, status.Aborted:
		return slog.LevelInfo
	}
	return slog.LevelWarn
}

var _ delivery.Conn = (*conn)(nil)
