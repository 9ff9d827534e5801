package grpctransport_test

import (
	"context"
	"net"
	"sync"
	"testing"

	"google.golang.org/grpc"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/delivery"
	"github.com/tryst-rdma/tryst/internal/tensorflow/worker"
	"github.com/tryst-rdma/tryst/internal/transporttest"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/transport"
	grpctransport "github.com/tryst-rdma/tryst/transport/grpc"
)

// TestSuite runs the conformance suite with tensors up to 1 GiB; up to 64 MiB with -short and under
// the race detector, which needs ten times the memory.
func TestSuite(t *testing.T) {
	size := int64(1 << 30)
	if testing.Short() || grpctransport.UnderRace {
		size = 64 << 20
	}
	transporttest.Run(t, transporttest.Suite{New: newCluster(clusterOptions{}), MaxSize: size, Parallel: true})
}

// TestSuiteInChunks runs the suite with chunks for all but the smallest tensors.
func TestSuiteInChunks(t *testing.T) {
	transporttest.Run(t, transporttest.Suite{
		New: newCluster(clusterOptions{unaryLimit: 4 << 10}), MaxSize: 8 << 20, Parallel: true,
		Only: []string{"Content", "Size", "Memory", "Abort", "Cancel", "Cut", "Publication", "Limit", "Slow", "Stop"},
	})
}

// TestSuiteOverConnections: the calls to a peer are spread over connections.
func TestSuiteOverConnections(t *testing.T) {
	transporttest.Run(t, transporttest.Suite{
		New: newCluster(clusterOptions{connections: 3}), MaxSize: 8 << 20, Parallel: true,
		Only: []string{"Order", "Cancel", "Cut", "Peer", "Stop"},
	})
}

type clusterOptions struct {
	unaryLimit  int64
	connections int
}

// suiteCluster is a transporttest.Cluster. Each process has a proxy, which keeps its address when
// the process restarts.
type suiteCluster struct {
	clusterOptions
	t       testing.TB
	proxies map[cluster.Task]*transporttest.Proxy
}

func newCluster(o clusterOptions) func(testing.TB, []cluster.Task) transporttest.Cluster {
	return func(t testing.TB, tasks []cluster.Task) transporttest.Cluster {
		c := &suiteCluster{o, t, make(map[cluster.Task]*transporttest.Proxy)}
		for _, task := range tasks {
			c.proxies[task] = transporttest.NewProxy(t)
		}
		return c
	}
}

func (c *suiteCluster) Faults(task cluster.Task) transporttest.Faults { return c.proxies[task] }

func (c *suiteCluster) resolve(task cluster.Task) (address string, ok bool) {
	p, ok := c.proxies[task]
	if !ok {
		return "", false
	}
	return p.Addr(), true
}

// suiteNode is a transporttest.Node: the parts of a server, put together by hand.
type suiteNode struct {
	proxy     *transporttest.Proxy
	conns     *grpctransport.Conns
	transport *grpctransport.RpcRemoteRendezvous
	manager   *rendezvous.Manager
	kept      *delivery.ResponseCache
	server    *grpc.Server
	serving   sync.WaitGroup
}

func (c *suiteCluster) Start(task cluster.Task, o transporttest.NodeOptions) transporttest.Node {
	self := transport.Process{Name: task.String(), Incarnation: o.Incarnation}
	n := &suiteNode{proxy: c.proxies[task]}
	n.conns = grpctransport.NewConns(grpctransport.ConnsOptions{
		Self: task, Resolve: c.resolve, Allocator: o.Allocator,
		Dial: grpctransport.DialOptions{Connections: c.connections},
	})
	n.transport = grpctransport.New(grpctransport.Options{Self: self, Conns: n.conns, PeerTimeout: o.PeerTimeout})
	n.manager = rendezvous.NewManager(rendezvous.ManagerOptions{
		Session: rendezvous.NewSession(task, o.Incarnation, 1), Remoter: n.transport,
	})
	o.Cache.Addressed, o.Cache.Verify = n.conns.Addressed, n.conns.Incarnation
	n.kept = delivery.NewResponseCache(n.manager, o.Cache)
	w := worker.New(worker.Options{Task: task, Incarnation: o.Incarnation, Manager: n.manager, Cache: n.kept})
	n.server = grpc.NewServer(grpctransport.ServerOptions(grpctransport.ServerTuning{})...)
	grpctransport.Register(n.server, grpctransport.ServiceOptions{Self: self, Worker: w, Cache: n.kept, UnaryLimit: c.unaryLimit})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		c.t.Fatal(err)
	}
	n.proxy.SetTarget(l.Addr().String())
	n.serving.Go(func() { _ = n.server.Serve(l) }) // ends with Stop
	return n
}

func (n *suiteNode) Manager() *rendezvous.Manager   { return n.manager }
func (n *suiteNode) Cache() *delivery.ResponseCache { return n.kept }

// Stop: first nothing is received any more and the peers are told so, then those
// who wait here get their error, then the connections are closed.
func (n *suiteNode) Stop(ctx context.Context) error {
	err := n.transport.Close(ctx)
	n.kept.Close()
	n.manager.Close()
	unhurried := context.AfterFunc(ctx, n.server.Stop)
	n.server.GracefulStop()
	unhurried()
	n.serving.Wait()
	n.proxy.SetTarget("")
	if e := n.conns.Close(); err == nil {
		err = e
	}
	return err
}

// Kill: first no byte leaves the process any more.
func (n *suiteNode) Kill() {
	n.proxy.SetTarget("")
	n.proxy.CutAfter(0)
	_ = n.conns.Close()
	n.server.Stop()
	n.serving.Wait()
	ended, end := context.WithCancel(context.Background())
	end()
	_ = n.transport.Close(ended)
	n.kept.Close()
	n.manager.Close()
}
