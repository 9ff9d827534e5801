package verbstransport_test

import (
	"context"
	"errors"
	"fmt"
	"net"
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
	"github.com/tryst-rdma/tryst/transport"
	grpctransport "github.com/tryst-rdma/tryst/transport/grpc"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
	"github.com/tryst-rdma/tryst/transport/verbs/internal/regmem"
	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/verbstest"
)

// retryTime is longer than the retries of a queue pair of the suite take.
const retryTime = 50 * time.Millisecond

// TestSuiteRequired runs the suite with gRPC only for the bootstrap. No fallback hides
// the time that a break takes, so the back-off is short.
func TestSuiteRequired(t *testing.T) {
	o := tuned(clusterOptions{require: true}, func(o *verbstransport.Options) { o.Backoff = 20 * time.Millisecond })
	transporttest.Run(t, transporttest.Suite{New: newCluster(o), MaxSize: largest, Registered: true, Parallel: true,
		Only: smoke("Order", "Content", "Size", "Memory", "Into", "Abort", "Cancel", "Step", "Cut", "Stop")})
}

// TestSuite runs the suite of all transports over devices in memory.
func TestSuite(t *testing.T) {
	transporttest.Run(t, transporttest.Suite{New: newCluster(clusterOptions{}), MaxSize: 64 << 20, Registered: true, Parallel: true})
}

// TestSuiteSideBySide: the tasks have every route.
func TestSuiteSideBySide(t *testing.T) {
	o := clusterOptions{fixed: []verbs.LinkLayer{verbs.LinkTCP, verbs.LinkShared}}
	transporttest.Run(t, transporttest.Suite{New: newCluster(o), MaxSize: largest, Registered: true, Parallel: true,
		Only: smoke("Order", "Content", "Into", "Abort", "Cancel", "Cut", "Peer", "Stop")})
}

// TestSuiteBlocking: the callers that wait for their receives poll.
func TestSuiteBlocking(t *testing.T) {
	transporttest.Run(t, transporttest.Suite{New: newCluster(clusterOptions{}), MaxSize: largest, Registered: true, Parallel: true,
		Blocking: true, Only: smoke("Content", "Into", "Abort", "Cancel", "Cut", "Peer", "Stop")})
}

// TestSuiteTwoQueuePairs: large contents use two queue pairs at once, and either may be
// late.
func TestSuiteTwoQueuePairs(t *testing.T) {
	o := tuned(clusterOptions{require: true, gate: true}, func(o *verbstransport.Options) { o.Rails, o.Backoff = 2, gateBackoff })
	transporttest.Run(t, transporttest.Suite{New: newCluster(o), MaxSize: largest, Registered: true, Parallel: true,
		Only: smoke("Order", "Content", "Size", "Memory", "Into", "Abort", "Cancel", "Step", "Peer", "Slow", "Stop")})
}

type clusterOptions struct {
	require bool
	// open opens the device of a task on a real system, whose connections cannot be
	// disturbed. A fabric is used when nil.
	open func(cluster.Task) (verbs.Device, error)
	// fixed are the link layers of each task's further devices on the fabric.
	fixed []verbs.LinkLayer
	// beside opens a further device of a task on a real system.
	beside    func(cluster.Task) (verbs.Device, error)
	hardware  bool // the device of the fabric has no memory windows
	gate      bool // disturb posts instead of connections
	gateFixed bool // and those over further devices, too
	// parallel runs a stage's test in parallel with others; the package's TestMain
	// then checks for its goroutines.
	parallel bool
	path     verbs.Path // short timeouts when zero
	// fabric configures the fabric. wrap wraps the device of a task there. tune changes
	// the transport options of a process.
	fabric    verbstest.Options
	wrap      func(cluster.Task, verbs.Device) verbs.Device
	wrapFixed bool // the further devices are wrapped, too
	tune      func(cluster.Task, *verbstransport.Options)
}

// suiteCluster is a transporttest.Cluster. Each task is a host of a fabric. Its gRPC
// address is a proxy, which keeps the address when the process restarts.
type suiteCluster struct {
	clusterOptions
	t       testing.TB
	tasks   []cluster.Task
	proxies map[cluster.Task]*transporttest.Proxy
	fabric  *verbstest.Fabric
	gates   *gates // nil without clusterOptions.gate

	mu    sync.Mutex
	nodes map[cluster.Task]*suiteNode
	work  sync.WaitGroup
	over  chan struct{} // closed at the end of the test
}

func newCluster(o clusterOptions) func(testing.TB, []cluster.Task) transporttest.Cluster {
	return func(t testing.TB, tasks []cluster.Task) transporttest.Cluster {
		c := &suiteCluster{
			clusterOptions: o, t: t, tasks: tasks, proxies: make(map[cluster.Task]*transporttest.Proxy),
			nodes: make(map[cluster.Task]*suiteNode),
			over:  make(chan struct{}),
		}
		for _, task := range tasks {
			c.proxies[task] = transporttest.NewProxy(t)
		}
		if c.path == (verbs.Path{}) {
			c.path = verbs.Path{Port: 1, Timeout: verbs.TimeoutCode(2 * time.Millisecond), Retry: 3, RNRRetry: 6}
		}
		if len(c.fixed) > 0 {
			c.clusterOptions.fabric.Devices = []verbstest.DeviceOptions{{NoGoMemory: c.hardware}}
			for _, link := range c.fixed {
				c.clusterOptions.fabric.Devices = append(c.clusterOptions.fabric.Devices, verbstest.DeviceOptions{Name: link.String(), Link: link})
			}
		}
		if c.open == nil {
			c.fabric = verbstest.NewFabric(c.clusterOptions.fabric)
			c.open = c.openInMemory
			t.Cleanup(func() {
				if n := c.fabric.Counts(); n != (verbs.Counts{}) {
					t.Errorf("open on the fabric: %+v", n)
				}
				close(c.over)
				c.work.Wait()
				c.fabric.Close()
			})
		}
		if c.gate {
			c.gates = newGates(t)
		}
		return c
	}
}

func (c *suiteCluster) openInMemory(task cluster.Task) (verbs.Device, error) {
	d, err := c.fabric.Provider(task.String()).Open("mem0")
	if err == nil && c.wrap != nil {
		d = c.wrap(task, d)
	}
	return d, err
}

func (c *suiteCluster) resolve(task cluster.Task) (address string, ok bool) {
	p, ok := c.proxies[task]
	if !ok {
		return "", false
	}
	return p.Addr(), true
}

func (c *suiteCluster) node(task cluster.Task) *suiteNode {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nodes[task]
}

// called returns the transport that bootstrap calls of a task reach, as long as its proxy has a target.
func (c *suiteCluster) called(task cluster.Task) *verbstransport.RdmaRemoteRendezvous {
	n := c.node(task)
	if n == nil || c.proxies[task].Target() == "" {
		return nil
	}
	return n.transport
}

// suiteNode is a transporttest.Node: the parts of a server without the server.
type suiteNode struct {
	c         *suiteCluster
	task      cluster.Task
	proxy     *transporttest.Proxy
	device    verbs.Device
	fixed     []verbs.Device
	conns     *grpctransport.Conns
	grpc      *grpctransport.RpcRemoteRendezvous
	transport *verbstransport.RdmaRemoteRendezvous
	manager   *rendezvous.Manager
	kept      *delivery.ResponseCache
	server    *grpc.Server
	serving   sync.WaitGroup
}

func (c *suiteCluster) Start(task cluster.Task, o transporttest.NodeOptions) transporttest.Node {
	self := transport.Process{Name: task.String(), Incarnation: o.Incarnation}
	n := &suiteNode{c: c, task: task, proxy: c.proxies[task]}
	var err error
	if n.device, err = c.open(task); err != nil {
		c.t.Fatal(err)
	}
	if c.gates != nil {
		if n.device, err = c.gates.gate(task).device(n.device); err != nil {
			c.t.Fatal(err)
		}
	}
	address, err := address(n.device)
	if err != nil {
		c.t.Fatal(err)
	}
	n.conns = grpctransport.NewConns(grpctransport.ConnsOptions{Self: task, Resolve: c.resolve, Allocator: o.Allocator})
	n.grpc = grpctransport.New(grpctransport.Options{Self: self, Conns: n.conns, PeerTimeout: o.PeerTimeout})
	late := &lateManager{}
	o.Cache.Addressed, o.Cache.Verify = n.conns.Addressed, n.conns.Incarnation
	n.kept = delivery.NewResponseCache(late, o.Cache)
	options := verbstransport.Options{
		Self: self, Task: task,
		PortOptions: verbstransport.PortOptions{Device: n.device, Address: address, Path: c.path},
		Bootstrap:   verbstransport.InMemory(c.called), Callable: func(cluster.Task) bool { return true }, GRPC: n.grpc.Conn, Cache: n.kept,
		Check:   rendezvous.NewSession(task, o.Incarnation, 1).CheckSource,
		Require: c.require, Allocator: o.Allocator, PeerTimeout: o.PeerTimeout,
		// When the connections are held, only a part of a tensor may be posted.
		Chunk: 64 << 10, Outstanding: 256 << 10,
		Memory: regmem.Options{Arena: 4 << 20, LateWrite: func(w regmem.LateWrite) { c.t.Errorf("%v", w) }},
	}
	n.openFixed(&options)
	if c.tune != nil {
		c.tune(task, &options)
	}
	if n.transport, err = verbstransport.New(options); err != nil {
		c.t.Fatal(err)
	}
	n.manager = rendezvous.NewManager(rendezvous.ManagerOptions{
		Session: rendezvous.NewSession(task, o.Incarnation, 1), Remoter: n.transport,
	})
	late.Manager = n.manager
	w := worker.New(worker.Options{Task: task, Incarnation: o.Incarnation, Manager: n.manager, Cache: n.kept})
	n.server = grpc.NewServer(grpctransport.ServerOptions(grpctransport.ServerTuning{})...)
	grpctransport.Register(n.server, grpctransport.ServiceOptions{
		Self: self, Worker: w, Cache: n.kept, LeftGeneration: n.transport.LeftGeneration,
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		c.t.Fatal(err)
	}
	n.serving.Go(func() { _ = n.server.Serve(l) }) // ends with Stop
	c.mu.Lock()
	c.nodes[task] = n
	c.mu.Unlock()
	n.proxy.SetTarget(l.Addr().String())
	for _, other := range c.tasks {
		if other != task {
			n.transport.Connect(other)
		}
	}
	return n
}

// address returns the GID entry of port 1 that the suite uses: IPv4 over RoCE v2 if there
// is one.
func address(d verbs.Device) (verbs.GIDEntry, error) {
	gids, err := d.GIDs(1)
	if err != nil || len(gids) == 0 {
		return verbs.GIDEntry{}, fmt.Errorf("no address: %w", err)
	}
	for _, g := range gids {
		if g.Type == verbs.GIDTypeRoCEv2 && g.GID.Addr().Is4() {
			return g, nil
		}
	}
	return gids[0], nil
}

// lateManager is a Source that is made before its Manager.
type lateManager struct{ *rendezvous.Manager }

func (n *suiteNode) Manager() *rendezvous.Manager   { return n.manager }
func (n *suiteNode) Cache() *delivery.ResponseCache { return n.kept }

// ReceiveAllocator implements transporttest.ReceiveAllocator.
func (n *suiteNode) ReceiveAllocator() tensor.Allocator { return n.transport.ReceiveAllocator() }

// ZeroCopyAbove implements transporttest.ReceiveAllocator: larger contents do not fit into a
// message.
func (n *suiteNode) ZeroCopyAbove() int { return verbstransport.DefaultEagerLimit }

// Stop closes the transports first, which flushes pending acks and cancels to the peers.
// Then local waiters end with an error, and then the connections are closed.
func (n *suiteNode) Stop(ctx context.Context) error {
	err := n.transport.Close(ctx)
	n.kept.Close()
	n.manager.Close()
	unhurried := context.AfterFunc(ctx, n.server.Stop)
	n.server.GracefulStop()
	unhurried()
	n.serving.Wait()
	n.proxy.SetTarget("")
	for _, e := range []error{n.grpc.Close(ctx), n.conns.Close(), n.closeDevices()} {
		if err == nil {
			err = e
		}
	}
	return err
}

// Kill stops all output of the process first, over RDMA and gRPC.
func (n *suiteNode) Kill() {
	if d, ok := n.device.(*gatedDevice); ok {
		d.kill()
	} else if n.c.fabric != nil {
		faults := &suiteFaults{c: n.c, task: n.task}
		faults.wires(func(w *verbstest.Wires) { w.Cut() }) // packets under way are lost
		n.c.fabric.Host(n.task.String()).Kill()
		faults.wires(func(w *verbstest.Wires) { w.Restore() })
	}
	n.proxy.SetTarget("")
	n.proxy.CutAfter(0)
	_ = n.conns.Close()
	n.server.Stop()
	n.serving.Wait()
	ended, end := context.WithCancel(context.Background())
	end()
	_ = n.transport.Close(ended)
	_ = n.grpc.Close(ended)
	n.kept.Close()
	n.manager.Close()
	_ = n.closeDevices()
}

// openFixed opens the further devices of a node, which reach all other nodes.
func (n *suiteNode) openFixed(o *verbstransport.Options) {
	open := make([]func(cluster.Task) (verbs.Device, error), 0, len(n.c.fixed)+1)
	for _, link := range n.c.fixed {
		open = append(open, func(task cluster.Task) (verbs.Device, error) {
			return n.c.fabric.Provider(task.String()).Open(link.String())
		})
	}
	if n.c.beside != nil {
		open = append(open, n.c.beside)
	}
	for _, open := range open {
		d, err := open(n.task)
		if err != nil {
			n.c.t.Fatal(err)
		}
		gid, err := address(d)
		if n.c.wrapFixed {
			d = n.c.wrap(n.task, d)
		}
		if err == nil && n.c.gateFixed {
			d, err = n.c.gates.gate(n.task).device(d)
		}
		if err != nil {
			n.c.t.Fatal(err)
		}
		n.fixed = append(n.fixed, d)
		o.Fixed = append(o.Fixed, verbstransport.PortOptions{Device: d, Address: gid, Path: n.c.path, Addresses: []string{"host:1"}})
		o.Host, o.User = 1, 1
	}
}

func (n *suiteNode) closeDevices() error {
	err := n.device.Close()
	for _, d := range n.fixed {
		err = errors.Join(err, d.Close())
	}
	return err
}

// suiteFaults disturbs the RDMA and gRPC connections of a task.
type suiteFaults struct {
	c     *suiteCluster
	task  cluster.Task
	proxy *transporttest.Proxy
	stop  chan struct{} // cancels what has not happened yet
}

func (c *suiteCluster) Faults(task cluster.Task) transporttest.Faults {
	switch {
	case c.gates != nil:
		return gatedFaults{c.gates.gate(task), c.proxies[task]}
	case c.fabric == nil:
		return nil
	}
	return &suiteFaults{c: c, task: task, proxy: c.proxies[task]}
}

// wires calls do with the wires between the task and each requester.
func (f *suiteFaults) wires(do func(*verbstest.Wires)) {
	for _, other := range f.c.tasks {
		if other != f.task {
			do(f.c.fabric.Wires(f.task.String(), other.String()))
		}
	}
}

// CutAfter breaks the queue pairs by dropping all packets for a while.
func (f *suiteFaults) CutAfter(n int64) <-chan struct{} {
	return f.after(n, (*verbstest.Wires).CutAfter, f.proxy.CutAfter, func() {
		f.wires(func(w *verbstest.Wires) { w.Cut() })
		<-time.After(retryTime)
		f.wires(func(w *verbstest.Wires) { w.Restore() })
	})
}

func (f *suiteFaults) HoldAfter(n int64) <-chan struct{} {
	return f.after(n, (*verbstest.Wires).HoldAfter, f.proxy.HoldAfter, func() {
		f.wires(func(w *verbstest.Wires) { w.Hold() })
	})
}

// after disturbs both connections when one of them has carried n bytes.
func (f *suiteFaults) after(n int64, fabric func(*verbstest.Wires, uint64) <-chan struct{}, proxy func(int64) <-chan struct{}, do func()) <-chan struct{} {
	f.stop = make(chan struct{})
	stop, done := f.stop, make(chan struct{})
	happened := make(chan struct{}, len(f.c.tasks)+1)
	watch := func(c <-chan struct{}) {
		f.c.work.Go(func() {
			select {
			case <-c:
				happened <- struct{}{}
			case <-stop:
			case <-f.c.over:
			}
		})
	}
	for _, other := range f.c.tasks {
		if other != f.task {
			watch(fabric(f.c.fabric.OneWay(f.task.String(), other.String()), uint64(n)))
		}
	}
	watch(proxy(n))
	f.c.work.Go(func() {
		select {
		case <-happened:
		case <-stop:
			return
		case <-f.c.over:
			return
		}
		<-proxy(0)
		do()
		close(done)
	})
	return done
}

func (f *suiteFaults) Release() {
	if f.stop != nil {
		close(f.stop)
		f.stop = nil
	}
	f.proxy.Release()
	f.wires(func(w *verbstest.Wires) { w.Release().Restore() })
}

func (f *suiteFaults) Throttle(bytesPerSecond int64) {
	f.proxy.Throttle(bytesPerSecond)
	f.wires(func(w *verbstest.Wires) { w.SetBandwidth(bytesPerSecond) })
}
