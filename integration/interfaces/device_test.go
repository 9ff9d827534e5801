//go:build linux

package interfaces_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/checkpoint"
	"github.com/tryst-rdma/tryst/server"
	"github.com/tryst-rdma/tryst/tensor"
)

// soon is longer than anything here takes.
const soon = 30 * time.Second

// namespace skips the test without a network namespace of its own, and brings loopback up.
func namespace(t *testing.T) {
	t.Helper()
	if why := os.Getenv(inside); why != "" {
		t.Skip("no other network namespace: ", why)
	}
	up(t, "lo")
}

func check(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func link(t *testing.T, name string) netlink.Link {
	t.Helper()
	l, err := netlink.LinkByName(name)
	check(t, name, err)
	return l
}

func up(t *testing.T, name string) {
	t.Helper()
	check(t, "set "+name+" up", netlink.LinkSetUp(link(t, name)))
}

// add makes an interface with an address, and with the other end of its cable, which is up
// too. Both end with the test.
func add(t *testing.T, name, address string) {
	t.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	check(t, "add "+name, netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: name + "-end"}))
	t.Cleanup(func() {
		if l, err := netlink.LinkByName(name + "-end"); err == nil {
			check(t, "remove "+name, netlink.LinkDel(l))
		}
	})
	a, err := netlink.ParseAddr(address)
	check(t, address, err)
	check(t, "give "+name+" "+address, netlink.AddrAdd(link(t, name), a))
	up(t, name)
	up(t, name+"-end")
	running(t, name)
}

// running waits until an interface has a carrier.
func running(t *testing.T, name string) {
	t.Helper()
	until(t, name+" has a carrier", func() bool {
		i, err := net.InterfaceByName(name)
		return err == nil && i.Flags&net.FlagRunning != 0
	})
}

func remove(t *testing.T, name string) {
	t.Helper()
	check(t, "remove "+name, netlink.LinkDel(link(t, name)))
}

func rename(t *testing.T, name, to string) {
	t.Helper()
	l := link(t, name)
	check(t, "rename "+name, netlink.LinkSetName(l, to))
}

// until waits until ok is true.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ticks := time.NewTicker(20 * time.Millisecond)
	defer ticks.Stop()
	for end := time.Now().Add(soon); !ok(); <-ticks.C {
		if time.Now().After(end) {
			t.Fatalf("%s: not so after %v", what, soon)
		}
	}
}

func settings(change func(*server.Config)) server.Config {
	c := server.Config{}
	c.Transport, c.Provider, c.Listen, c.Task = "verbs", server.ProviderRoCE, "127.0.0.1:0", cluster.Task{Job: "worker"}.String()
	c.RDMA.Arena, c.RDMA.ArenaLimit = 4<<20, 64<<20
	if change != nil {
		change(&c)
	}
	return c
}

// everywhere has a server listen on all addresses.
func everywhere(c *server.Config) { c.Listen = ":0" }

// port is the port that a server listens on.
func port(s *server.Server) string {
	_, p, _ := net.SplitHostPort(s.Addr().String()) // an address of the system
	return p
}

// logger writes to stderr what a process does when TRYST_TEST_LOG is set.
func logger() *slog.Logger {
	if os.Getenv("TRYST_TEST_LOG") == "" {
		return nil
	}
	return slog.New(slog.NewTextHandler(os.Stderr, nil))
}

// serve starts a server that publishes a tensor.
func serve(t *testing.T, change func(*server.Config)) *server.Server {
	t.Helper()
	s, err := server.Start(t.Context(), settings(change), server.Options{Logger: logger()})
	check(t, "start", err)
	t.Cleanup(func() { check(t, "close the server", s.Close(context.Background())) })
	shape, err := tensor.NewShape(1 << 20)
	check(t, "shape", err)
	x, err := tensor.Allocate(tensor.Heap{}, tensor.Uint8, shape)
	check(t, "allocate", err)
	_, err = s.Catalog().PublishTensors(t.Context(), "p", x.Named("x"))
	check(t, "publish", err)
	x.Release()
	return s
}

// puller is a client of a server.
type puller struct {
	t *testing.T
	*server.Client
}

func dial(t *testing.T, address string, change func(*server.Config)) puller {
	t.Helper()
	c, err := server.Dial(t.Context(), settings(change).ForClient(), address, server.Options{})
	check(t, "dial", err)
	t.Cleanup(func() { check(t, "close the client", c.Close(context.Background())) })
	return puller{t, c}
}

// pull pulls the publication and returns the transport that carried it.
func (p puller) pull() string {
	p.t.Helper()
	before := p.Received()
	for x, err := range p.Puller().Pull(p.t.Context(), checkpoint.PullRequest{Publication: "p"}) {
		check(p.t, "pull", err)
		x.Release()
	}
	for transport, n := range p.Received() {
		if n > before[transport] {
			return transport
		}
	}
	return ""
}

func (p puller) until(transport string) {
	p.t.Helper()
	until(p.t, fmt.Sprintf("a pull over %s", transport), func() bool { return p.pull() == transport })
}

// TestInterfaceIsRemovedAndComesBack: when the interface of a server is removed, pulls go
// over gRPC, and over verbs again when there is an interface of that name again. Likewise on
// the side of the client.
func TestInterfaceIsRemovedAndComesBack(t *testing.T) {
	namespace(t)
	add(t, "va1", "10.9.1.1/24")
	add(t, "va2", "10.9.2.1/24")
	s := serve(t, func(c *server.Config) { c.RDMA.Device = "va1" })
	p := dial(t, s.Addr().String(), func(c *server.Config) { c.RDMA.Device = "va2" })
	p.until("verbs")
	for _, side := range []struct{ name, address string }{{"va1", "10.9.1.1/24"}, {"va2", "10.9.2.1/24"}} {
		remove(t, side.name)
		for range 3 {
			p.pull()
		}
		p.until("grpc")
		add(t, side.name, side.address)
		p.until("verbs")
	}
}

// TestInterfaceIsRenamed: a device that is named by its address is found under its new name.
func TestInterfaceIsRenamed(t *testing.T) {
	namespace(t)
	add(t, "va1", "10.9.1.1/24")
	add(t, "va2", "10.9.2.1/24")
	s := serve(t, func(c *server.Config) { c.RDMA.Device = "10.9.1.1" })
	p := dial(t, s.Addr().String(), func(c *server.Config) { c.RDMA.Device = "va2" })
	p.until("verbs")
	rename(t, "va1", "vb1")
	until(t, "the server uses the new name", func() bool {
		p.pull()
		v, ok := s.Verbs()
		return ok && v.Choice().Device == "roce-vb1"
	})
	p.until("verbs")
	rename(t, "vb1", "va1")
	until(t, "the server uses the old name", func() bool {
		p.pull()
		v, ok := s.Verbs()
		return ok && v.Choice().Device == "roce-va1"
	})
	p.until("verbs")
}
