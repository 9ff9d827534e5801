package server

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/certificates/certtest"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
	"github.com/tryst-rdma/tryst/verbs/shm"
	"github.com/tryst-rdma/tryst/verbs/tcp"
)

// needsSharedMemory skips where this system has none.
func needsSharedMemory(t *testing.T) {
	t.Helper()
	if _, err := shm.New(shm.Options{}).Devices(); err != nil {
		t.Skip("no shared memory: ", err)
	}
}

// TestEveryRouteOnAnyMachine: two servers exchange values both ways and a client pulls, over each
// device that works on any machine, without TLS and with mutual TLS.
func TestEveryRouteOnAnyMachine(t *testing.T) {
	a := certtest.New(t)
	for i := range 2 {
		a.MakeFor(cluster.Task{Job: "worker", Index: i}.String(), certificateOf(i), certtest.Loopback)
	}
	a.Make("client", nil)
	for _, c := range []struct{ provider, over string }{
		{"tcp", "tcp"}, {"shm", "shm"}, {"auto", "shm"}, {"tcp,roce", "tcp"},
	} {
		for _, secure := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, TLS %v", c.provider, secure), func(t *testing.T) {
				if c.over == "shm" {
					needsSharedMemory(t)
				}
				w := newVerbsTown(t, 2)
				var both [2]*VerbsServer
				for i := range both {
					both[i] = startRoute(t, w.settings(i, func(cfg *Config) {
						cfg.Provider, cfg.RDMA.Timeout, cfg.Fallback = c.provider, 0, "none"
						if secure {
							cfg.TLS, cfg.TLS.RequireClientCert = TLS(a.Pair(certificateOf(i))), true
						}
					}))
				}
				for i, s := range both {
					peer := both[1-i]
					linked(t, s.Links, peer.Task().String(), "reached over "+c.over, func(l Link) bool { return l.Over == c.over })
					w.exchange(int64(1+i), s, peer, float32(i))
				}
				n := publishSome(t, both[0].Server)
				cc := Config{}
				cc.Transport, cc.Provider, cc.Fallback = "verbs", c.provider, "none"
				cc.RDMA.Arena, cc.RDMA.ArenaLimit = 4<<20, 64<<20
				if secure {
					cc.TLS = TLS(a.Pair("client"))
				}
				cl := dial(t, cc, both[0].Addr().String())
				pullAll(t, cl)
				if got := cl.Received(); got["verbs"] != n || len(got) != 1 {
					t.Errorf("received %v, want %d over verbs", got, n)
				}
				if l := cl.Links(); len(l) != 1 || l[0].Over != c.over {
					t.Errorf("the links of the client: %+v", l)
				}
			})
		}
	}
}

func startRoute(t *testing.T, c Config) *VerbsServer {
	t.Helper()
	return startRouteWith(t, c, Options{})
}

func startRouteWith(t *testing.T, c Config, o Options) *VerbsServer {
	t.Helper()
	o.Allocator = tensortest.NewAllocator(t)
	v, err := StartVerbs(t.Context(), c, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := v.Close(context.Background()); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return v
}

// TestSharedMemoryOff: a peer whose settings allow no shared memory is reached over TCP, and the
// link says why.
func TestSharedMemoryOff(t *testing.T) {
	needsSharedMemory(t)
	w := newVerbsTown(t, 2)
	off := func(c *Config) { c.SHM, c.RDMA.Timeout, c.Provider = SHMOff, 0, "tcp" }
	s := startRoute(t, w.settings(0, off))
	peer := startRoute(t, w.settings(1, func(c *Config) { c.RDMA.Timeout, c.Provider = 0, "tcp,shm" }))
	l := linked(t, peer.Links, s.Task().String(), "reached over TCP", func(l Link) bool { return l.Over == "tcp" })
	i := slices.IndexFunc(l.Routes, func(r LinkRoute) bool { return r.Over == "shm" })
	if i < 0 || !strings.Contains(l.Routes[i].Reason, "/job:worker/replica:0/task:0 has no shm device") {
		t.Errorf("%+v", l.Routes)
	}
}

// forkedAddress is an address that leads to two servers, as a virtual one may: connections of gRPC to
// the first, those of queue pairs to the second.
func forkedAddress(t *testing.T, grpc, queuePairs string) string {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() {
		cancel()
		lis.Close()
		work.Wait()
	})
	forward := func(in net.Conn) {
		defer in.Close()
		stop := context.AfterFunc(ctx, func() { in.Close() })
		defer stop()
		first := make([]byte, len(tcp.Magic))
		if _, err := io.ReadFull(in, first); err != nil {
			return
		}
		to := grpc
		if string(first) == tcp.Magic {
			to = queuePairs
		}
		out, err := net.Dial("tcp", to)
		if err != nil {
			return
		}
		defer out.Close()
		var back sync.WaitGroup
		back.Go(func() {
			_, _ = io.Copy(in, out)
			in.Close()
		})
		_, _ = out.Write(first)
		_, _ = io.Copy(out, in)
		out.Close()
		back.Wait()
	}
	work.Go(func() {
		for {
			in, err := lis.Accept()
			if err != nil {
				return
			}
			work.Go(func() { forward(in) })
		}
	})
	return lis.Addr().String()
}

// TestAnAddressThatLeadsToAnotherProcess: a peer behind an address whose queue pairs reach another
// process is reached another way, and its link says what is wrong with the route. Nothing is lost.
func TestAnAddressThatLeadsToAnotherProcess(t *testing.T) {
	w := newVerbsTown(t, 2)
	overTCP := func(c *Config) { c.Provider, c.RDMA.Timeout, c.Cluster = "tcp", 0, nil }
	s, other := startRoute(t, w.settings(0, overTCP)), startRoute(t, w.settings(1, overTCP))
	n := publishSome(t, s.Server)
	c := Config{}
	c.Transport, c.Provider = "verbs", "tcp"
	c.RDMA.Arena, c.RDMA.ArenaLimit = 4<<20, 64<<20
	cl := dial(t, c, forkedAddress(t, s.Addr().String(), other.Addr().String()))
	pullAll(t, cl)
	if got := cl.Received(); got["grpc"] != n || len(got) != 1 {
		t.Errorf("received %v, want %d over grpc", got, n)
	}
	linked(t, cl.Links, s.Task().String(), "known to have no route over TCP", func(l Link) bool {
		return l.Route == "grpc" && slices.ContainsFunc(l.Routes, func(r LinkRoute) bool {
			return r.Over == "tcp" && strings.Contains(r.Reason, "another process")
		})
	})
}
