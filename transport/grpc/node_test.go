package grpctransport

import (
	"context"
	"math/rand/v2"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/delivery"
	"github.com/tryst-rdma/tryst/internal/tensorflow/worker"
	"github.com/tryst-rdma/tryst/internal/transporttest"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
	"github.com/tryst-rdma/tryst/transport"
)

// waitLimit bounds every wait of these tests. It is much longer than any wait on a loaded
// machine.
const waitLimit = 3 * time.Minute

// node has all parts of one process of a cluster, over real TCP.
type node struct {
	t           testing.TB
	task        cluster.Task
	incarnation uint64
	address     string
	manager     *rendezvous.Manager
	kept        *delivery.ResponseCache
	worker      *worker.Worker
	server      *grpc.Server
	served      chan struct{} // closed when Serve has returned
	conns       *Conns
	transport   *RpcRemoteRendezvous
	alloc       *tensortest.Allocator // of received tensors; nil if nodeOptions had another
	log         *transport.Log
	close       func()
}

// nodeOptions are the differences from a node with default settings.
type nodeOptions struct {
	unaryLimit  int64
	listener    net.Listener   // of the server; a new one if nil
	addresses   map[int]string // replace the addresses of other tasks
	wrap        func(transport.Worker) transport.Worker
	serve       func(*grpc.Server, *node) // registers in place of Register
	peerTimeout time.Duration
	dial        DialOptions
	bounds      *Bounds
	tuning      ServerTuning
	alloc       tensor.Allocator
	responses   tensor.Reserver // nil: a pool without a limit
}

func task(i int) cluster.Task { return cluster.Task{Job: "worker", Index: i} }

// testCluster has the addresses of its nodes.
type testCluster struct {
	mu        sync.Mutex
	addresses map[cluster.Task]string
}

func (c *testCluster) resolve(t cluster.Task) (string, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a, ok := c.addresses[t]
	return a, ok
}

func (c *testCluster) set(t cluster.Task, address string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.addresses == nil {
		c.addresses = make(map[cluster.Task]string)
	}
	c.addresses[t] = address
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// listenAgain listens at an address that no other socket takes by chance when the listener has closed.
func listenAgain(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", transporttest.FreeAddresses(t, 1)[0])
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// start starts a node that ends with the test.
func (c *testCluster) start(t testing.TB, index int, o nodeOptions) *node {
	t.Helper()
	n := &node{
		t: t, task: task(index), incarnation: cluster.NewIncarnation(),
		served: make(chan struct{}), log: transport.NewLog(100, nil),
	}
	if o.alloc == nil {
		n.alloc = tensortest.NewAllocator(t)
		o.alloc = n.alloc
	}
	unlimited := tensor.NewPool(tensor.PoolOptions{})
	if o.responses == nil {
		o.responses = unlimited
	}
	l := o.listener
	if l == nil {
		l = listen(t)
	}
	n.address = l.Addr().String()
	c.set(n.task, n.address)
	self := transport.Process{Name: n.task.String(), Incarnation: n.incarnation}
	n.conns = NewConns(ConnsOptions{
		Self: n.task, Allocator: o.alloc, Log: n.log, Dial: o.dial, Bounds: o.bounds, Responses: o.responses,
		Resolve: func(t cluster.Task) (string, bool) {
			if a, ok := o.addresses[t.Index]; ok {
				return a, true
			}
			return c.resolve(t)
		},
	})
	n.transport = New(Options{Self: self, Conns: n.conns, PeerTimeout: o.peerTimeout})
	n.manager = rendezvous.NewManager(rendezvous.ManagerOptions{
		Session: rendezvous.NewSession(n.task, n.incarnation, 1), Remoter: n.transport,
	})
	n.kept = delivery.NewResponseCache(n.manager, delivery.CacheOptions{Addressed: n.conns.Addressed, Verify: n.conns.Incarnation})
	n.worker = worker.New(worker.Options{Task: n.task, Incarnation: n.incarnation, Manager: n.manager, Cache: n.kept})
	n.conns.opts.Local = n.worker
	n.server = grpc.NewServer(ServerOptions(o.tuning)...)
	if o.serve != nil {
		o.serve(n.server, n)
	} else {
		var w transport.Worker = n.worker
		if o.wrap != nil {
			w = o.wrap(w)
		}
		Register(n.server, ServiceOptions{Self: self, Worker: w, Cache: n.kept, UnaryLimit: o.unaryLimit})
	}
	go func() {
		defer close(n.served)
		_ = n.server.Serve(l) // ends with Stop
	}()
	n.close = sync.OnceFunc(func() {
		ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
		defer cancel()
		if err := n.transport.Close(ctx); err != nil {
			t.Errorf("closing the transport of %v: %v", n.task, err)
		}
		n.kept.Close()
		n.manager.Close()
		n.server.Stop()
		<-n.served
		if err := n.conns.Close(); err != nil {
			t.Errorf("closing the connections of %v: %v", n.task, err)
		}
		if held := unlimited.Stats().InUse; held != 0 {
			t.Errorf("%d bytes are reserved for responses to %v after all has ended", held, n.task)
		}
	})
	t.Cleanup(n.close)
	return n
}

// channelOf returns the connections to a peer of a node without bounds.
func channelOf(t *testing.T, p *peerConn) *channel {
	t.Helper()
	ch, ok := p.channel.now().(*channel)
	if !ok {
		t.Fatalf("the connections are a %T", p.channel.now())
	}
	return ch
}

// key returns the key of a value that n sends to other.
func (n *node) key(other *node, name string) rendezvous.Key {
	n.t.Helper()
	k, err := rendezvous.NewKey(cluster.DeviceOf(n.task), n.incarnation, cluster.DeviceOf(other.task), name, rendezvous.FrameIter{})
	if err != nil {
		n.t.Fatal(err)
	}
	return k
}

// send puts t under key in a step of n. The caller keeps its reference.
func (n *node) send(step int64, key rendezvous.Key, t *tensor.Tensor) {
	n.t.Helper()
	if err := n.manager.Find(step).Send(key, rendezvous.Args{}, t, false); err != nil {
		n.t.Fatal(err)
	}
}

// recv receives at n and fails the test on an error. The caller releases the tensor.
func (n *node) recv(step int64, key rendezvous.Key) rendezvous.Value {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	v, err := n.manager.Find(step).Recv(ctx, key, rendezvous.Args{})
	if err != nil {
		n.t.Fatalf("receive of %s: %v", key, err)
	}
	return v
}

// value returns a float tensor of n random elements, in memory of alloc.
func value(t testing.TB, alloc tensor.Allocator, n int64) *tensor.Tensor {
	return tensortest.Random(rand.New(rand.NewPCG(uint64(n), 1)), tensor.Float32, tensortest.Shape(t, n), alloc)
}

// waitReleased waits until all memory of a is released. It runs the garbage collector, since
// gRPC drops some buffers without releasing them.
func waitReleased(t testing.TB, a *tensortest.Allocator) {
	t.Helper()
	for end := time.Now().Add(waitLimit); a.Outstanding() > 0 && time.Now().Before(end); {
		runtime.GC()
		runtime.Gosched()
	}
	a.WaitAllReleased(time.Millisecond)
}

// replier is a transport.Replier that calls a function.
type replier struct{ f func(transport.Response) }

func (r *replier) Reply(_ uint64, _ uint32, resp transport.Response) { r.f(resp) }

func replyTo(f func(transport.Response)) transport.Replier { return &replier{f} }
