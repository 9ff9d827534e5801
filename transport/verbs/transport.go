package verbstransport

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/transport"
	"github.com/tryst-rdma/tryst/transport/internal/delivery"
	"github.com/tryst-rdma/tryst/transport/internal/wire"
	"github.com/tryst-rdma/tryst/transport/verbs/internal/handshake"
	"github.com/tryst-rdma/tryst/transport/verbs/internal/progress"
	"github.com/tryst-rdma/tryst/transport/verbs/internal/regmem"
	"github.com/tryst-rdma/tryst/verbs"
)

// Name is the name of this transport.
const Name = "verbs"

// Options configures the transport of a process. The fields of the first part are
// needed; zero fields of the second take the defaults of limits.go.
type Options struct {
	// Self is this process, as it names itself to its peers, and Task its task.
	Self transport.Process
	Task cluster.Task
	// Device is the device, open. It is closed when it is lost, else by its
	// owner after Close.
	Device verbs.Device
	// Address is the entry of the port's GID table that packets come from, and
	// LID the port's on InfiniBand.
	Address verbs.GIDEntry
	// Again finds the address in a table that has changed, or one of its type and
	// reach that stands for it while it is gone (discovery.Again); then same is
	// false. Nil when no other may be taken, as for one that was asked for.
	Again func(table []verbs.GIDEntry, was verbs.GIDEntry) (now verbs.GIDEntry, same bool, err error)
	// Path is how this side sends: port, MTU, timeouts, classes.
	Path verbs.Path
	// Exchanger does the bootstrap; Callable says whether a peer has an address
	// to call.
	Exchanger Exchanger
	Callable  func(cluster.Task) bool
	// GRPC returns the way to a task by gRPC alone.
	GRPC func(cluster.Task) (delivery.Conn, error)
	// Cache has the responses of this process, and Check returns why a key
	// cannot be one of its own (rendezvous.Session.CheckSource): of one key always
	// the same.
	Cache *transport.ResponseCache
	Check func(rendezvous.Key) error

	// Host is what processes that share the network of this host have in common, and
	// no others; 0 when it is not known. Peers are shown it.
	Host uint64
	// Require says that receives never go over gRPC (--fallback none).
	Require bool
	// Allocator gives the memory of what does not arrive in registered memory:
	// small tensors, strings. tensor.Heap when nil.
	Allocator tensor.Allocator
	// Memory configures the pools. Its Device is filled in.
	Memory regmem.Options
	// Window is how many receives are posted for each rail, SendQueue how many
	// work requests a send queue holds, EagerLimit the largest content in bytes
	// that travels in a message.
	Window, SendQueue, EagerLimit int
	// Rails is the number of queue pairs of a channel, 1 to 8; 0 for 1. The channel has
	// as many as the side with fewer (PROTOCOL.md section 9).
	Rails int
	// MaxWaiting bounds the receives without answer, each way, for each peer.
	MaxWaiting int
	// Chunk is the size of one write, and Outstanding how many bytes of writes
	// are under way on a rail.
	Chunk       int
	Outstanding int64
	// Poll says how completions are waited for.
	Poll progress.Mode
	// PeerTimeout is delivery.RequesterOptions.PeerTimeout.
	PeerTimeout time.Duration
	// Backoff is handshake.Config.Backoff: the wait before a channel that broke
	// is made again. Tests that break many have less time than peers.
	Backoff time.Duration
	// Transfers is told of every receive; none when nil.
	Transfers *transport.Log
	// Logger is told when a wire changes; none when nil.
	Logger *slog.Logger
}

// RdmaRemoteRendezvous receives from other tasks by RDMA writes into registered
// memory, and answers those that ask. One serves all steps of a process, and is
// its rendezvous.Remoter. It implements transport.Transport.
type RdmaRemoteRendezvous struct {
	opts      Options
	port      *port
	requester *delivery.Requester
	base      context.Context
	stop      context.CancelFunc
	work      group
	aside     func(func()) // work.Go
	index     atomic.Uint32
	spinners  *progress.Spinners

	links group // those that exist

	mu     sync.Mutex
	peers  map[cluster.Task]*peer
	closed bool
	lost   error // why there is no device any more
	// forgotten is the sum of the peers without a record any more; nil for none.
	forgotten *Link

	// Records of peers that have no address, and their links without a HELLO yet.
	clients, strangers *shares
}

// New returns the transport of a process, with its memory registered. Its Close
// ends what it has started.
func New(o Options) (*RdmaRemoteRendezvous, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	t := &RdmaRemoteRendezvous{opts: o, peers: make(map[cluster.Task]*peer), spinners: progress.NewSpinners(0)}
	t.clients = newShares(maxPeers, maxPeersOfSource)
	t.strangers = newShares(maxStrangers, maxStrangersOfSource)
	var err error
	if t.port, err = openPort(&t.opts); err != nil {
		return nil, err
	}
	t.aside = t.work.Go
	t.base, t.stop = context.WithCancel(context.Background())
	t.index.Store(rand.Uint32())
	t.requester = delivery.NewRequester(delivery.RequesterOptions{
		Self: o.Self, Conn: t.Conn, AckBytes: ackBytes, PeerTimeout: o.PeerTimeout, Logger: o.Logger,
	})
	t.work.Go(t.watchEvents)
	t.work.Go(t.sweep)
	return t, nil
}

// Name implements transport.Transport.
func (*RdmaRemoteRendezvous) Name() string { return Name }

// Allocator makes tensors that are sent without a copy.
func (t *RdmaRemoteRendezvous) Allocator() tensor.Allocator { return t.port.memory.Allocator() }

// RecvFromRemoteAsync implements rendezvous.Remoter.
func (t *RdmaRemoteRendezvous) RecvFromRemoteAsync(step int64, key rendezvous.Key, args rendezvous.Args, done rendezvous.DoneFunc) rendezvous.Transfer {
	return t.requester.RecvFromRemoteAsync(step, key, args, done)
}

// Connect asks for channels to tasks, now and again after each break: what is up
// is reached at once, the others when they come.
func (t *RdmaRemoteRendezvous) Connect(tasks ...cluster.Task) {
	for _, task := range tasks {
		if p, err := t.peer(task); err == nil {
			p.want()
		}
	}
}

// Conn returns the connection to a task.
func (t *RdmaRemoteRendezvous) Conn(task cluster.Task) (delivery.Conn, error) {
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

// Answer answers a bootstrap of a peer, which shows from and has called from a source
// address. The caller has checked that the peer may have this name.
func (t *RdmaRemoteRendezvous) Answer(ctx context.Context, source string, from handshake.Offer) (handshake.Offer, error) {
	if from.Task == t.opts.Task {
		return handshake.Offer{}, status.Errorf(status.InvalidArgument,
			"%v is the name of this process: it cannot be its own peer", from.Task)
	}
	for {
		p, err := t.peerFrom(from.Task, source)
		if err != nil {
			return handshake.Offer{}, err
		}
		offer, err := p.request(ctx, from)
		if err != errForgotten { //nolint:errorlint // it is said as it is
			return offer, err
		}
	}
}

// LeftGeneration checks the word of an asker, over another wire, that it has left
// a generation of its channel and all before it. leave closes them: their requests
// count no more (ARCHITECTURE.md section 6, rule c). A generation that neither side
// has shown is FailedPrecondition.
func (t *RdmaRemoteRendezvous) LeftGeneration(asker transport.Process, generation uint64) (leave func(), err error) {
	for _, p := range t.all() {
		if p.task.String() == asker.Name {
			if err := p.checkLeft(asker.Incarnation, generation); err != nil {
				return nil, err
			}
			return func() { p.leftBy(asker.Incarnation, generation) }, nil
		}
	}
	return func() {}, nil
}

// Links tells for each peer which wire carries its tensors. Those that have come and
// gone may be one together, a client.
func (t *RdmaRemoteRendezvous) Links() []Link {
	var links []Link
	for _, p := range t.all() {
		links = append(links, p.full())
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.forgotten != nil {
		links = append(links, *t.forgotten)
	}
	return links
}

// Memory tells what is registered.
func (t *RdmaRemoteRendezvous) Memory() regmem.Stats { return t.port.memory.Stats(time.Now()) }

func (t *RdmaRemoteRendezvous) all() []*peer {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]*peer, 0, len(t.peers))
	for _, p := range t.peers {
		all = append(all, p)
	}
	return all
}

// peer finds or makes the record of a task that this process wants to reach.
func (t *RdmaRemoteRendezvous) peer(task cluster.Task) (*peer, error) { return t.peerFrom(task, "") }

// peerFrom is peer for a task that has called from a source address. Tasks with an
// address are as many as the cluster has. Of the others each source has a share, and
// there is a total: beyond them those that have gone are forgotten, and newcomers are
// refused.
func (t *RdmaRemoteRendezvous) peerFrom(task cluster.Task, source string) (*peer, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, status.New(status.Cancelled, "the transport is closed").Derived()
	}
	p := t.peers[task]
	if p == nil {
		client := !t.opts.Callable(task)
		if client {
			if err := t.hasRoomFor(source); err != nil {
				return nil, err
			}
		}
		p = newPeer(t, task, source)
		if client {
			t.clients.add(source)
		}
		t.peers[task] = p
		if t.lost != nil {
			p.lose(t.lost)
		}
	}
	return p, nil
}

// nextIndex numbers links in wr_ids.
func (t *RdmaRemoteRendezvous) nextIndex() uint32 { return t.index.Add(1) % verbs.MaxWRChannel }

// instead says what happens to receives without a channel.
func (t *RdmaRemoteRendezvous) instead() string {
	if t.opts.Require {
		return "nothing: they wait for it (--fallback none)"
	}
	return "grpc"
}

// closedObject logs what the device did not let go of.
func (t *RdmaRemoteRendezvous) closedObject(what string, err error) {
	if err != nil {
		t.opts.Logger.Error("the device does not let go of a "+what, "error", err)
	}
}

// Close ends all receives with Cancelled, says to the peers what they have to
// know, leaves every channel, and gives back what it has of the device. It waits
// for callbacks until they have returned, and for peers until ctx ends.
func (t *RdmaRemoteRendezvous) Close(ctx context.Context) error {
	err := t.requester.Close(ctx)
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	for _, p := range t.all() {
		p.close()
	}
	t.links.Wait()
	t.stop()
	t.work.Wait()
	if e := t.port.close(); err == nil {
		err = e
	}
	return err
}

// release gives up a reference to a tensor's memory on a goroutine that polls, or that
// one which polls waits for: what an owner does with it may take its time.
func (t *RdmaRemoteRendezvous) release(b *tensor.Buffer) { b.ReleaseBy(t.aside) }

// messageSize is how many bytes a posted receive holds: a small content with its
// message, and at least what every message of the protocol fits into.
func (o *Options) messageSize() int { return max(o.EagerLimit+messageRoom, wire.MinMessage) }

func (o *Options) jitter() func() float64 { return rand.Float64 }
