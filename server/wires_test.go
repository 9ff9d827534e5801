package server

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
	"github.com/tryst-rdma/tryst/verbs/shm"
)

// needsSharedMemory skips where this system has none.
func needsSharedMemory(t *testing.T) {
	t.Helper()
	if _, err := shm.New(shm.Options{}).Devices(); err != nil {
		t.Skip("no shared memory: ", err)
	}
}

// TestEveryWireOnAnyMachine: two servers exchange values both ways and a client pulls, over each
// device that works on any machine, without TLS and with mutual TLS.
func TestEveryWireOnAnyMachine(t *testing.T) {
	a := newAuthority(t)
	for i := range 2 {
		a.makeFor(cluster.Task{Job: "worker", Index: i}.String(), certificateOf(i), loopbackIPs)
	}
	a.make("client", nil)
	for _, c := range []struct{ provider, over string }{
		{"tcp", "TCP"}, {"shm", "shared memory"}, {"auto", "shared memory"}, {"tcp,roce", "TCP"},
	} {
		for _, secure := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, TLS %v", c.provider, secure), func(t *testing.T) {
				if c.over == "shared memory" {
					needsSharedMemory(t)
				}
				w := newVerbsTown(t, 2)
				var both [2]*VerbsServer
				for i := range both {
					both[i] = startWire(t, w.settings(i, func(cfg *config.Config) {
						cfg.Provider, cfg.RDMA.Timeout, cfg.Fallback = c.provider, 0, "none"
						if secure {
							cfg.TLS, cfg.TLS.RequireClientCert = a.pair(certificateOf(i)), true
						}
					}))
				}
				for i, s := range both {
					peer := both[1-i]
					linked(t, s.Links, peer.Task().String(), "reached over "+c.over, func(l Link) bool { return l.Over == c.over })
					w.exchange(int64(1+i), s, peer, float32(i))
				}
				n := publishSome(t, both[0].Server)
				cc := config.Default().Client
				cc.Transport, cc.Provider, cc.Fallback = "verbs", c.provider, "none"
				cc.Arena, cc.ArenaLimit = 4<<20, 64<<20
				if secure {
					cc.TLS = a.pair("client")
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

func startWire(t *testing.T, c config.Config) *VerbsServer {
	t.Helper()
	v, err := StartVerbs(t.Context(), c, Options{Allocator: tensortest.NewAllocator(t)})
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
	off := func(c *config.Config) { c.SHM, c.RDMA.Timeout, c.Provider = config.SHMOff, 0, "tcp" }
	s := startWire(t, w.settings(0, off))
	peer := startWire(t, w.settings(1, func(c *config.Config) { c.RDMA.Timeout, c.Provider = 0, "tcp,shm" }))
	l := linked(t, peer.Links, s.Task().String(), "reached over TCP", func(l Link) bool { return l.Over == "TCP" })
	i := slices.IndexFunc(l.Routes, func(r LinkRoute) bool { return r.Over == "shared memory" })
	if i < 0 || !strings.Contains(l.Routes[i].Reason, "/job:worker/replica:0/task:0 has no device for shared memory") {
		t.Errorf("%+v", l.Routes)
	}
}
