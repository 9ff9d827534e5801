package bootstrap

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/handshake"
	"github.com/tryst-rdma/tryst/verbs"
)

// fakeCluster is a cluster of processes without devices. Each has a machine for each peer. Calls
// between them are real gRPC over loopback.
type fakeCluster struct {
	t     *testing.T
	tls   func(cluster.Task) (server, client credentials.TransportCredentials)
	mu    sync.Mutex
	nodes map[cluster.Task]*node
	addrs map[cluster.Task]string
}

func newFakeCluster(t *testing.T) *fakeCluster {
	return &fakeCluster{t: t, nodes: map[cluster.Task]*node{}, addrs: map[cluster.Task]string{}}
}

// node is one process.
type node struct {
	fakeCluster *fakeCluster
	task        cluster.Task
	self        handshake.Offer
	ex          *Exchanger
	conns       map[cluster.Task]*grpc.ClientConn
	server      *grpc.Server
	ctx         context.Context
	stop        context.CancelFunc
	work        sync.WaitGroup

	mu      sync.Mutex // guards all fields below
	peers   map[cluster.Task]*side
	changed chan struct{}
	opened  int // channels so far
	closed  int
}

// side is the handshake with one peer.
type side struct {
	m        *handshake.Machine
	requests map[uint64]func(handshake.Offer, error)
	last     uint64
	made     uint64 // id of the last offer
	timer    *time.Timer
}

var (
	zero = cluster.Task{Job: "worker"}
	one  = cluster.Task{Job: "worker", Index: 1}
)

func offer(task cluster.Task, incarnation uint64) handshake.Offer {
	return handshake.Offer{
		Task: task, Incarnation: incarnation, Version: handshake.Version, Link: verbs.LinkEthernet, GIDType: verbs.GIDTypeRoCEv2,
		Rails: []handshake.Rail{{MTU: verbs.MTU1024, Endpoint: verbs.Endpoint{
			QPN: verbs.QPN(17 + task.Index), PSN: verbs.PSN(incarnation % (1 << 24)), GID: verbs.GID{10: 0xff, 11: 0xff, 12: 10, 15: byte(task.Index + 1)},
		}}},
		Window: 64, ReceiveSize: 8192, EagerLimit: 4096, MaxMessage: 1 << 20, Host: 0xfeed_0000_0000_0001,
	}
}

// start starts a process, which has the address of the task from now on.
func (w *fakeCluster) start(task cluster.Task) *node {
	w.t.Helper()
	l, err := new(net.ListenConfig).Listen(w.t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	n := &node{fakeCluster: w, task: task, self: offer(task, cluster.NewIncarnation()), peers: map[cluster.Task]*side{}, conns: map[cluster.Task]*grpc.ClientConn{}, changed: make(chan struct{})}
	n.ctx, n.stop = context.WithCancel(context.Background())
	server, client := insecure.NewCredentials(), insecure.NewCredentials()
	if w.tls != nil {
		server, client = w.tls(task)
	}
	n.ex = NewExchanger(func(peer cluster.Task) (grpc.ClientConnInterface, error) {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.conns[peer] == nil {
			c, err := grpc.NewClient("passthrough:///"+peer.String(), grpc.WithTransportCredentials(client),
				grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
					w.mu.Lock()
					addr := w.addrs[peer]
					w.mu.Unlock()
					if addr == "" {
						return nil, errors.New("no process has this address")
					}
					return new(net.Dialer).DialContext(ctx, "tcp", addr)
				}))
			if err != nil {
				return nil, err
			}
			n.conns[peer] = c
		}
		return n.conns[peer], nil
	})
	n.server = grpc.NewServer(grpc.Creds(server))
	Register(n.server, ServiceOptions{Self: task, Host: w.host, Answer: n.answer})
	go func() { _ = n.server.Serve(l) }()
	w.mu.Lock()
	w.nodes[task], w.addrs[task] = n, l.Addr().String()
	w.mu.Unlock()
	w.t.Cleanup(n.close)
	return n
}

func (w *fakeCluster) host(task cluster.Task) (string, bool) {
	return "127.0.0.1", task.Job == "worker"
}

func (n *node) close() {
	n.stop()
	n.mu.Lock()
	for _, s := range n.peers {
		n.do(s, s.m.Stop(time.Now()))
		if s.timer != nil {
			s.timer.Stop()
		}
	}
	n.mu.Unlock()
	n.server.Stop()
	n.work.Wait() // a call that is under way may make a connection
	for _, c := range n.conns {
		_ = c.Close()
	}
}

// Call side with the lock held.
func (n *node) side(peer cluster.Task) *side {
	s := n.peers[peer]
	if s == nil {
		s = &side{
			m:        handshake.New(handshake.Config{Self: n.self, Peer: peer, Callable: peer.Job == "worker"}),
			requests: map[uint64]func(handshake.Offer, error){},
		}
		n.peers[peer] = s
	}
	return s
}

func (n *node) want(peer cluster.Task) {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.side(peer)
	n.do(s, s.m.Maintain(time.Now()))
}

func (n *node) answer(ctx context.Context, _ string, from handshake.Offer) (handshake.Offer, error) {
	type result struct {
		offer handshake.Offer
		err   error
	}
	got := make(chan result, 1)
	n.mu.Lock()
	s := n.side(from.Task)
	s.last++
	s.requests[s.last] = func(o handshake.Offer, err error) { got <- result{o, err} }
	n.do(s, s.m.Request(time.Now(), s.last, from))
	n.mu.Unlock()
	select {
	case r := <-got:
		return r.offer, r.err
	case <-ctx.Done():
		return handshake.Offer{}, ctx.Err()
	}
}

// do carries out actions with the lock held. Devices take no time here.
func (n *node) do(s *side, acts []handshake.Action) {
	for len(acts) > 0 {
		a := acts[0]
		acts = acts[1:]
		switch a.Kind {
		case handshake.Make:
			o := n.self
			o.Generation, s.made = a.Generation, a.ID
			acts = append(acts, s.m.Made(time.Now(), a.ID, o)...)
		case handshake.Connect:
			acts = append(acts, s.m.Connected(time.Now(), a.ID)...)
		case handshake.Destroy:
			n.closed++
		case handshake.Open:
			n.opened++
			n.work.Go(func() { n.hello(a.Generation, s.m) })
		case handshake.Call:
			n.work.Go(func() {
				ctx, cancel := context.WithTimeout(n.ctx, handshake.CallTimeout)
				defer cancel()
				o, err := n.ex.Exchange(ctx, n.peerOf(s), a.Offer)
				n.mu.Lock()
				defer n.mu.Unlock()
				n.do(s, s.m.CallDone(time.Now(), a.Call, o, err))
			})
		case handshake.Respond, handshake.Refuse:
			s.requests[a.Request](a.Offer, a.Err)
			delete(s.requests, a.Request)
		}
	}
	if wake := s.m.Wake(); !wake.IsZero() {
		if s.timer == nil {
			s.timer = time.AfterFunc(time.Until(wake), func() {
				n.mu.Lock()
				defer n.mu.Unlock()
				n.do(s, s.m.Tick(time.Now()))
			})
		}
		s.timer.Reset(time.Until(wake))
	}
	close(n.changed)
	n.changed = make(chan struct{})
}

func (n *node) peerOf(s *side) cluster.Task {
	n.mu.Lock()
	defer n.mu.Unlock()
	for task, x := range n.peers {
		if x == s {
			return task
		}
	}
	return cluster.Task{}
}

// hello is the first message of a channel, delivered without a network.
func (n *node) hello(generation uint64, m *handshake.Machine) {
	n.mu.Lock()
	to := m.Peer().Task
	n.mu.Unlock()
	n.fakeCluster.mu.Lock()
	other := n.fakeCluster.nodes[to]
	n.fakeCluster.mu.Unlock()
	if other == nil {
		return
	}
	other.mu.Lock()
	defer other.mu.Unlock()
	s := other.side(n.task)
	if p := s.m.Peer(); p.Incarnation != n.self.Incarnation || p.Generation != generation {
		if s.m.Generation() == generation {
			n.fakeCluster.t.Errorf("a HELLO of %v came to an end that is connected to %v", n.task, p)
		}
		return
	}
	other.do(s, s.m.Hello(time.Now(), s.made))
}

// wait waits until a condition on a peer's machine holds.
func (n *node) wait(what string, peer cluster.Task, holds func(*handshake.Machine) bool) {
	n.fakeCluster.t.Helper()
	deadline := time.After(30 * time.Second)
	for {
		n.mu.Lock()
		m := n.side(peer).m
		ok, changed := holds(m), n.changed
		state, err := m.State()
		n.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			n.fakeCluster.t.Fatalf("%v waits in vain for %s: %v, %v", n.task, what, state, err)
		}
	}
}

func (n *node) up(peer *node) {
	n.fakeCluster.t.Helper()
	n.wait("a channel", peer.task, func(m *handshake.Machine) bool {
		state, err := m.State()
		return state == handshake.Up && err == nil && m.Peer().Incarnation == peer.self.Incarnation
	})
}
