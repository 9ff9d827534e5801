package server

import (
	"context"
	"testing"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/delivery"
	"github.com/tryst-rdma/tryst/internal/transporttest"
	"github.com/tryst-rdma/tryst/rendezvous"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
)

// suiteCluster is a transporttest.Cluster of whole servers. Each has a proxy, which keeps its address
// when the server starts again.
type suiteCluster struct {
	t       testing.TB
	change  func(*Config)
	spec    *cluster.Spec
	proxies map[cluster.Task]*transporttest.Proxy
}

func newSuiteCluster(change func(*Config)) func(testing.TB, []cluster.Task) transporttest.Cluster {
	return func(t testing.TB, tasks []cluster.Task) transporttest.Cluster {
		c := &suiteCluster{t: t, change: change, proxies: make(map[cluster.Task]*transporttest.Proxy)}
		lists := make(map[string][]string)
		for _, task := range tasks {
			p := transporttest.NewProxy(t)
			c.proxies[task] = p
			lists[task.Job] = append(lists[task.Job], p.Addr())
		}
		var err error
		if c.spec, err = cluster.SpecFromLists(lists); err != nil {
			t.Fatal(err)
		}
		return c
	}
}

func (c *suiteCluster) Faults(task cluster.Task) transporttest.Faults { return c.proxies[task] }

func (c *suiteCluster) Start(task cluster.Task, o transporttest.NodeOptions) transporttest.Node {
	cfg := settings(c.change)
	cfg.Cluster, cfg.Task, cfg.PeerTimeout = c.spec.Lists(), task.String(), o.PeerTimeout
	if o.PeerTimeout == 0 {
		cfg.PeerTimeout = Config{}.WithDefaults().PeerTimeout
	}
	if o.Cache.KeptPerRequester > 0 {
		cfg.Limits.KeptPerPeer = o.Cache.KeptPerRequester
	}
	s, err := Start(context.Background(), cfg, Options{Allocator: o.Allocator, incarnation: o.Incarnation})
	if err != nil {
		c.t.Fatal(err)
	}
	c.proxies[task].SetTarget(s.Addr().String())
	return &suiteNode{s, c.proxies[task]}
}

type suiteNode struct {
	s     *Server
	proxy *transporttest.Proxy
}

func (n *suiteNode) Manager() *rendezvous.Manager   { return n.s.manager }
func (n *suiteNode) Cache() *delivery.ResponseCache { return n.s.cache }

func (n *suiteNode) Stop(ctx context.Context) error {
	defer n.proxy.SetTarget("")
	return n.s.Close(ctx)
}

// Kill: first no byte leaves the process any more, also to the tasks that it receives from: a cancel
// that Close sends would have a sender take back a value which this process was receiving.
func (n *suiteNode) Kill() {
	n.proxy.SetTarget("")
	n.proxy.CutAfter(0)
	_ = n.s.conns.Close()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = n.s.Close(ctx)
}

// TestSuite runs the suite of all transports over whole servers, with their settings: over gRPC, and
// over devices without a fallback.
func TestSuite(t *testing.T) {
	for _, provider := range []string{"", ProviderTCP, ProviderSHM} {
		name, only := provider, []string{"Order", "Content", "Step"} // the others cut connections, which only gRPC has a proxy for
		if provider == "" {
			name, only = "grpc", append(only, "Cancel", "Cut", "Delivery")
		}
		t.Run(name, func(t *testing.T) {
			transporttest.Run(t, transporttest.Suite{
				New: newSuiteCluster(func(c *Config) {
					if c.Transport = TransportGRPC; provider != "" {
						c.Transport, c.Provider, c.Fallback = verbstransport.Name, provider, "none"
					}
				}),
				MaxSize: 8 << 20, Parallel: true, Registered: provider != "",
				Only: only,
			})
		})
	}
}
