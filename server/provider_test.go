package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/checkpoint"
	"github.com/tryst-rdma/tryst/server/internal/listen"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/roce"
)

// TestServerLocalAddr: the listening address, else that of the cluster spec, else that of the route to a
// peer.
func TestServerLocalAddr(t *testing.T) {
	for _, tt := range []struct {
		listen, cluster, addr, why string
	}{
		{"127.0.0.1:2222", "", "127.0.0.1", "listens"},
		{"[::1]:2222", "worker=127.0.0.1:2222", "::1", "listens"},
		{"localhost:2222", "", "127.0.0.1", "listens"},
		{"0.0.0.0:2222", "", "invalid IP", ""},
		{"0.0.0.0:2222", "worker=127.0.0.1:2222,192.0.2.77:2222", "127.0.0.1", "the cluster spec has this task at 127.0.0.1:2222"},
		{":2222", "worker=192.0.2.77:2222,127.0.0.1:2223", "127.0.0.1", "route to /job:worker/replica:0/task:1 at 127.0.0.1:2223"},
		{"[::]:2222", "worker=192.0.2.77:2222", "invalid IP", ""},
	} {
		c := settings(func(c *Config) {
			c.Listen, c.Task = tt.listen, cluster.Task{Job: "worker"}.String()
			if tt.cluster != "" {
				spec, err := cluster.ParseSpec(tt.cluster)
				if err != nil {
					t.Fatal(err)
				}
				c.Cluster = spec.Lists()
			}
		})
		if addr, why := LocalAddr(t.Context(), c); addr.String() != tt.addr || !strings.Contains(why, tt.why) {
			t.Errorf("%s in %q: %v, %q; want %s, %q", tt.listen, tt.cluster, addr, why, tt.addr, tt.why)
		}
	}
}

// overUDP are the settings of a process with a device in software on loopback.
func overUDP(change ...func(*Config)) Config {
	return settings(append([]func(*Config){func(c *Config) {
		c.Transport, c.Provider, c.Fallback = "verbs", "roce", "none"
		c.RDMA.Arena, c.RDMA.ArenaLimit = 4<<20, 64<<20
	}}, change...)...)
}

// needsLoopback skips where the host has no such address.
func needsLoopback(t *testing.T, a string) {
	t.Helper()
	if !listen.IsLocal(netip.MustParseAddr(a)) {
		t.Skipf("no interface has the address %s", a)
	}
}

// publishSome publishes tensors of several sizes, and says how many.
func publishSome(t *testing.T, s *Server) int {
	t.Helper()
	sizes := []int64{3, 1000, 100_000, 3 << 20}
	var all []*tensor.Tensor
	for i, n := range sizes {
		x := tensortest.Random(rand.New(rand.NewPCG(1, uint64(i))), tensor.Uint8, tensortest.Shape(t, n), tensor.Heap{}) //nolint:gosec // a test that can be repeated
		defer x.Release()
		all = append(all, x.Named(fmt.Sprint("t", i)))
	}
	if _, err := s.Catalog().PublishTensors(t.Context(), "m", all...); err != nil {
		t.Fatal(err)
	}
	return len(sizes)
}

// pullAll pulls them; each is checked by its digest.
func pullAll(t *testing.T, cl *Client) {
	t.Helper()
	for x, err := range cl.Puller().Pull(t.Context(), checkpoint.PullRequest{Publication: "m"}) {
		if err != nil {
			t.Fatal(err)
		}
		x.Release()
	}
}

// TestTwoServersOnAnyMachine exchange values both ways, over the device in user space.
func TestTwoServersOnAnyMachine(t *testing.T) {
	needsLoopback(t, "127.0.0.1")
	w := newVerbsTown(t, 2)
	var both [2]*VerbsServer
	for i := range both {
		c := w.settings(i, func(c *Config) { c.Provider, c.RDMA.Timeout = "roce", 0 })
		v, err := StartVerbs(t.Context(), c, Options{Allocator: tensortest.NewAllocator(t)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := v.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
		both[i] = v
	}
	a, b := both[0], both[1]
	w.up(a, b.Task())
	w.up(b, a.Task())
	w.exchange(1, a, b, 1)
	w.exchange(2, b, a, 2)
	text := metricsText(a.gatherer)
	device := `device="` + a.Choice().Device + `",port="1"}`
	if n := metric(t, text, `tryst_rdma_port_counter{counter="sent_pkts",`+device); n <= 0 {
		t.Errorf("%v packets were sent:\n%s", n, text)
	}
	for name, want := range map[string]float64{
		`tryst_received_tensors_total{peer="` + b.Task().String() + `",transport="verbs"}`: 1,
		`tryst_rdma_port_counter{counter="dropped_icrc",` + device:                         0,
	} {
		if got := metric(t, text, name); got != want {
			t.Errorf("%s %v, want %v", name, got, want)
		}
	}
	if number := both[0].Connections()[0]; strings.Contains(text, "0x") {
		t.Errorf("a number of a queue pair is in the metrics (%+v):\n%s", number, text)
	}
}

// TestVerbsOnAnyMachine: a server and a client of this machine, with no RDMA, no
// privilege and no C, over both families. What is pulled comes over verbs, all of it.
func TestVerbsOnAnyMachine(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "::1"} {
		t.Run(host, func(t *testing.T) {
			needsLoopback(t, host)
			var log syncBuffer
			v, err := StartVerbs(t.Context(), overUDP(func(c *Config) { c.Listen = net.JoinHostPort(host, "0") }),
				Options{Logger: slog.New(slog.NewTextHandler(&log, nil)), Allocator: tensortest.NewAllocator(t)})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := v.Close(context.Background()); err != nil {
					t.Error(err)
				}
			})
			s := v.Selection()
			if s.Kernel || s.Name() != roce.Name || s.Choice.GID != verbs.GIDFromAddr(netip.MustParseAddr(host)) || !strings.Contains(s.Choice.Reason, "the server listens there") {
				t.Errorf("%s by %v: %s", s.Name(), s.Choice, s.Choice.Reason)
			}
			if !strings.Contains(log.String(), "provider=roce") || !strings.Contains(log.String(), "the server listens there") {
				t.Errorf("the log does not tell the choice:\n%s", log.String())
			}
			if s.Why == "" || !strings.Contains(log.String(), s.Why) {
				t.Errorf("the log does not tell why the provider was chosen, %q:\n%s", s.Why, log.String())
			}
			text := metricsText(v.gatherer)
			if want := fmt.Sprintf("tryst_verbs_device_info{device=%q,provider=\"roce\"} 1", s.Choice.Device); !strings.Contains(text, want) {
				t.Errorf("the metrics do not have %s:\n%s", want, text)
			}
			n := publishSome(t, v.Server)

			cl, err := Dial(t.Context(), overUDP().ForClient(), v.Addr().String(), Options{Allocator: tensortest.NewAllocator(t)})
			if err != nil {
				t.Fatal(err)
			}
			pullAll(t, cl)
			if got := cl.Received(); len(got) != 1 || got["verbs"] != n {
				t.Errorf("of %d tensors came %v", n, got)
			}
			if own, ok := cl.Verbs(); !ok || own.Choice.Device != s.Choice.Device || !strings.Contains(own.Choice.Reason, "local address of the route to "+v.Addr().String()) {
				t.Errorf("the client has %v", own.Choice)
			}
			if err := cl.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestServerOnAllAddresses has an outer interface, if there is one, and who comes by
// loopback has that: within a host the two reach each other.
func TestServerOnAllAddresses(t *testing.T) {
	needsLoopback(t, "127.0.0.1")
	v, err := StartVerbs(t.Context(), overUDP(func(c *Config) { c.Listen = "0.0.0.0:0" }), Options{Allocator: tensortest.NewAllocator(t)})
	if err != nil {
		t.Fatal(err)
	}
	n := publishSome(t, v.Server)
	_, port, err := net.SplitHostPort(v.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	cl, err := Dial(t.Context(), overUDP().ForClient(), net.JoinHostPort("127.0.0.1", port), Options{Allocator: tensortest.NewAllocator(t)})
	if err != nil {
		t.Fatal(err)
	}
	pullAll(t, cl)
	own, _ := cl.Verbs()
	if got := cl.Received(); len(got) != 1 || got["verbs"] != n {
		t.Errorf("from %v to %v came %v of %d tensors", v.Selection().Choice, own.Choice, got, n)
	}
	t.Logf("from %v to %v", v.Selection().Choice, own.Choice)
	if err := errors.Join(cl.Close(t.Context()), v.Close(t.Context())); err != nil {
		t.Error(err)
	}
}

// TestFirstReceivesOfAClient wait for the channel, and not for one that does not come.
func TestFirstReceivesOfAClient(t *testing.T) {
	needsLoopback(t, "127.0.0.1")
	plain := start(t, settings(), Options{})
	n := publishSome(t, plain)
	c := overUDP(func(c *Config) { c.Fallback = "grpc" }).ForClient()
	cl, err := Dial(t.Context(), c, plain.Addr().String(), Options{Allocator: tensortest.NewAllocator(t)})
	if err != nil {
		t.Fatal(err)
	}
	pullAll(t, cl)
	if got := cl.Received(); got["grpc"] != n || len(got) != 1 {
		t.Errorf("from a server without verbs came %v", got)
	}
	if err := cl.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestOtherFamilyGetsGRPC: a process whose settings name an IPv4 address and one on IPv6 have no
// way to each other by verbs; tensors come over gRPC, and the reason is told.
func TestOtherFamilyGetsGRPC(t *testing.T) {
	needsLoopback(t, "127.0.0.1")
	needsLoopback(t, "::1")
	v := start(t, overUDP(func(c *Config) { c.Fallback, c.RDMA.Device = "grpc", "127.0.0.1" }), Options{})
	n := publishSome(t, v)
	c := overUDP(func(c *Config) { c.Fallback, c.RDMA.Device = "grpc", "::1" }).ForClient()
	var log syncBuffer
	cl, err := Dial(t.Context(), c, v.Addr().String(), Options{Logger: slog.New(slog.NewTextHandler(&log, nil)), Allocator: tensortest.NewAllocator(t)})
	if err != nil {
		t.Fatal(err)
	}
	pullAll(t, cl)
	if got := cl.Received(); got["grpc"] != n {
		t.Errorf("came %v, and the log is\n%s", got, log.String())
	}
	until(t, "the log says why", func() bool { return strings.Contains(log.String(), "cannot talk by verbs: no route leads") })
	if err := cl.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// A device that the settings name and that does not exist is an error, whatever the fallback.
func TestDeviceThatNobodyHas(t *testing.T) {
	_, err := Start(t.Context(), overUDP(func(c *Config) { c.Provider, c.Fallback, c.RDMA.Device = "auto", "grpc", "mlx5_99" }), Options{})
	wantError(t, err, status.FailedPrecondition, "mlx5_99", "roce")
}
