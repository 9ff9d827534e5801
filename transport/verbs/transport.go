package verbstransport

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/bootstrap"
	"github.com/tryst-rdma/tryst/internal/delivery"
	"github.com/tryst-rdma/tryst/internal/idle"
	"github.com/tryst-rdma/tryst/internal/wire"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/transport"
	"github.com/tryst-rdma/tryst/transport/verbs/internal/progress"
	"github.com/tryst-rdma/tryst/transport/verbs/internal/regmem"
	"github.com/tryst-rdma/tryst/transport/verbs/internal/route"
	"github.com/tryst-rdma/tryst/verbs"
)

// Name is the name of this transport.
const Name = "verbs"

// RdmaRemoteRendezvous receives from other tasks by RDMA writes into registered memory,
// and responds to their requests. One instance serves all steps of a process and is its
// rendezvous.Remoter. It implements transport.Transport.
type RdmaRemoteRendezvous struct {
	opts      Options
	exchanger *bootstrap.Exchanger
	requester *delivery.Requester
	base      context.Context
	stop      context.CancelFunc
	work      group
	async     func(func()) // work.Go
	index     atomic.Uint32
	spinners  *progress.Spinners
	memory    *regmem.Memory // registered with each device that is open
	sweeps    *idle.Timer    // runs while there is idle or quarantined memory

	links group       // counts the links that exist
	clear atomic.Bool // the log says that RDMA is in clear

	// changing is held while port changes and the peers get the change, so that they get
	// changes in order. It is taken before mu.
	changing sync.Mutex

	mu      sync.Mutex // guards what follows
	peers   map[cluster.Task]*peer
	closed  bool
	ports   [routes]*port // the devices in use; nil where there is none
	lost    [routes]error // why there is none
	carried carried

	// forgotten has the counts of all peers whose records were dropped; nil for none.
	forgotten *Connection

	// own is this process with its devices in use, and names has their names. They change with
	// mu held.
	own   atomic.Pointer[route.Side]
	names atomic.Pointer[[routes]string]

	// clients counts the records of peers without an address. unverified counts their
	// links that have not received HELLO.
	clients, unverified *shares
}

// New returns the transport of a process, with its memory registered. The caller has to
// call Close.
func New(o Options) (*RdmaRemoteRendezvous, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	t := &RdmaRemoteRendezvous{opts: o, exchanger: bootstrap.NewExchanger(o.Bootstrap), peers: make(map[cluster.Task]*peer), spinners: progress.NewSpinners(0)}
	t.sweeps = idle.NewTimer(sweepInterval, t.sweep)
	t.opts.Memory.Active, t.opts.Memory.Logger = t.sweeps.Start, t.opts.Logger
	var err error
	if t.memory, err = regmem.New(t.opts.Memory); err != nil {
		return nil, err
	}
	t.clients = newShares(maxPeers, maxPeersPerAddress)
	t.unverified = newShares(maxUnverified, maxUnverifiedPerAddress)
	if err = t.openPorts(); err != nil {
		return nil, err
	}
	t.noteDevices()
	t.async = t.work.Go
	t.base, t.stop = context.WithCancel(context.Background())
	t.index.Store(rand.Uint32())
	t.requester = delivery.NewRequester(delivery.RequesterOptions{
		Self: o.Self, Conn: t.Conn, AckBytes: ackBytes, PeerTimeout: o.PeerTimeout, Logger: o.Logger, ConnLogs: true,
	})
	for _, on := range t.ports {
		if on != nil {
			t.work.Go(func() { t.watchEvents(on) })
		}
	}
	return t, nil
}

// Name implements transport.Transport.
func (*RdmaRemoteRendezvous) Name() string { return Name }

// RecvFromRemoteAsync implements rendezvous.Remoter.
func (t *RdmaRemoteRendezvous) RecvFromRemoteAsync(step int64, key rendezvous.Key, args rendezvous.Args, done rendezvous.DoneFunc) rendezvous.Transfer {
	return t.requester.RecvFromRemoteAsync(step, key, args, done)
}

// RecvFrom implements transport.Transport.
func (t *RdmaRemoteRendezvous) RecvFrom(task cluster.Task, step int64, key rendezvous.Key, args rendezvous.Args, done rendezvous.DoneFunc) rendezvous.Transfer {
	return t.requester.RecvFrom(task, step, key, args, done)
}

// Unreached returns the peers that receives wait for, or have given up.
func (t *RdmaRemoteRendezvous) Unreached() []transport.Unreached { return t.requester.Unreached() }

// Waiting returns the receives from peers that have not ended; the longest first, as delivery.Requester.Waiting does.
func (t *RdmaRemoteRendezvous) Waiting(most, visits int, skip func(edge string) bool) ([]transport.Waiting, int, bool) {
	return t.requester.Waiting(most, visits, skip)
}

// Connect makes channels to tasks, and makes them again after each break. It does not wait
// for them.
func (t *RdmaRemoteRendezvous) Connect(tasks ...cluster.Task) {
	for _, task := range tasks {
		if p, err := t.peer(task); err == nil {
			p.keepConnected()
		}
	}
}

// Conn returns the connection to a task.
func (t *RdmaRemoteRendezvous) Conn(task cluster.Task) (transport.Conn, error) {
	g, err := t.opts.GRPC(task)
	if err != nil {
		return nil, err
	}
	p, err := t.peer(task)
	if err != nil {
		return nil, err
	}
	return &conn{peer: p, grpc: g}, nil
}

// LeftGeneration checks a requester's report, received over gRPC, that it has left a
// generation of its channel and all earlier ones. The function leave closes them: their
// requests are not served any more (ARCHITECTURE.md section 6, rule c). The error is
// FailedPrecondition for a generation that neither side has offered.
func (t *RdmaRemoteRendezvous) LeftGeneration(requester transport.Process, generation uint64) (leave func(), err error) {
	for _, p := range t.all() {
		if p.task.String() == requester.Name {
			if err := p.checkLeft(requester.Incarnation, generation); err != nil {
				return nil, err
			}
			return func() { p.closeLeft(requester.Incarnation, generation) }, nil
		}
	}
	return func() {}, nil
}

// Connections returns for each peer whether verbs or gRPC carries its tensors. Clients whose
// records were dropped, and tasks that have left the cluster, share one entry, with the job of clients as its task.
func (t *RdmaRemoteRendezvous) Connections() []Connection {
	var all []Connection
	for _, p := range t.all() {
		all = append(all, p.statusWithCounts())
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.forgotten != nil {
		all = append(all, *t.forgotten)
	}
	return all
}

// Sent returns how many values verbs has sent to a task, and the device of the channel that is up or
// was up last; 0 and empty for a task that is not known.
func (t *RdmaRemoteRendezvous) Sent(task cluster.Task) (values uint64, device string) {
	t.mu.Lock()
	p := t.peers[task]
	t.mu.Unlock()
	if p == nil {
		return 0, ""
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counters.sent.Load(), p.lastDevice
}

func (t *RdmaRemoteRendezvous) all() []*peer {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]*peer, 0, len(t.peers))
	for _, p := range t.peers {
		all = append(all, p)
	}
	return all
}

// peer finds or makes the record of a task that this process connects to.
func (t *RdmaRemoteRendezvous) peer(task cluster.Task) (*peer, error) {
	return t.peerFrom(task, "", transport.TaskLeft)
}

// peerFrom is peer for a task that has called from that address; left makes the error of one that has left the
// cluster. The cluster bounds the number of tasks with an address in it. The others are bounded per address of the
// caller and in total: at a limit, records without a channel are dropped; if that is not enough, the new peer is
// refused.
func (t *RdmaRemoteRendezvous) peerFrom(task cluster.Task, address string, left func(cluster.Task) *status.Error) (*peer, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, errTransportClosed
	}
	p := t.peers[task]
	if p == nil {
		if t.opts.Left != nil && t.opts.Left(task) {
			return nil, left(task)
		}
		client := !t.opts.Callable(task)
		if client {
			if err := t.checkClients(address); err != nil {
				return nil, err
			}
		}
		p = newPeer(t, task, address)
		if client {
			p.client.Store(true)
			t.clients.add(address)
		}
		t.peers[task] = p
	}
	return p, nil
}

var errTransportClosed = status.New(status.Cancelled, "the transport is closed").Derived()

// nextIndex returns the number of a new link, which is part of its wr_ids.
func (t *RdmaRemoteRendezvous) nextIndex() uint32 { return t.index.Add(1) % verbs.MaxWRChannel }

// active reports traffic to the caller of New.
func (t *RdmaRemoteRendezvous) active() {
	if t.opts.Active != nil {
		t.opts.Active()
	}
}

// fallback describes, for log lines, what carries receives without a channel.
func (t *RdmaRemoteRendezvous) fallback() string {
	if t.opts.Require {
		return "nothing: receives here wait for verbs, and then fail (the setting fallback is none)"
	}
	return "grpc"
}

// logClose logs that an object of the device could not be released.
func (t *RdmaRemoteRendezvous) logClose(what string, err error) {
	if err != nil {
		t.opts.Logger.Error("the device does not release the "+what+"; it can be removed only when this process has ended", "reason", err)
	}
}

// Close ends all receives with Cancelled, sends pending acknowledgements and cancels to
// the peers, leaves every channel, and releases all objects of the device. It waits for
// callbacks until they have returned, and for peers until ctx ends.
func (t *RdmaRemoteRendezvous) Close(ctx context.Context) error {
	err := t.requester.Close(ctx)
	t.changing.Lock()
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.changing.Unlock()
	for _, p := range t.all() {
		p.close()
	}
	t.links.Wait()
	t.stop()
	t.work.Wait()
	var e error
	for _, on := range t.ports { // nothing changes them any more
		if on != nil {
			e = errors.Join(e, on.close())
		}
	}
	if e = errors.Join(e, t.memory.Close()); err == nil {
		err = e
	}
	return err
}

// release releases a reference to a tensor's memory. It may be called by the polling
// goroutine: the owner's release function, which may be slow, runs on another one.
func (t *RdmaRemoteRendezvous) release(b *tensor.Buffer) { b.ReleaseBy(t.async) }

// messageSize is the size of a posted receive in bytes: a message with the largest eager
// content, and at least the smallest size that the protocol allows.
func (o *Options) messageSize() int { return max(o.EagerLimit+messageOverhead, wire.MinMessage) }

func (o *Options) jitter() func() float64 { return rand.Float64 }
