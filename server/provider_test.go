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
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/checkpoint"
	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/internal/discovery"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/roce"
	"github.com/tryst-rdma/tryst/verbs/verbstest"
)

// sources are a host with RDMA and one with none, and a device in software.
type sources struct {
	kernel, down, none, software Source
}

func newSources(t *testing.T) sources {
	t.Helper()
	provider := func(name string) (*verbstest.Host, Source) {
		f := verbstest.NewFabric(verbstest.Options{Devices: []verbstest.DeviceOptions{{Name: name}}})
		t.Cleanup(func() {
			if open := f.Counts(); open != (verbs.Counts{}) {
				t.Errorf("open of %s: %+v", name, open)
			}
			f.Close()
		})
		h := f.Host("h")
		return h, sourceOf(h.Provider())
	}
	var s sources
	_, s.kernel = provider("hard0")
	h, down := provider("hard1")
	h.NIC("hard1").PortDown(1)
	s.down = down
	s.none = sourceOf(noDevices{roce.New(roce.Options{})})
	_, s.software = provider("soft0")
	return s
}

// TestSelect: auto takes an active RDMA port if there is one, else the device in
// software, and says why; a name is looked up in both.
func TestSelect(t *testing.T) {
	s := newSources(t)
	for _, tt := range []struct {
		name, provider string
		want           discovery.Want
		kernel         Source
		device, why    string
		unused         bool
		err            string // instead of a device
		is             error
	}{
		{name: "auto and an active port", provider: "auto", kernel: s.kernel, device: "hard0", why: "auto: an RDMA port is active"},
		{name: "auto without RDMA", provider: "auto", kernel: s.none, device: "soft0", why: "auto: look for devices: the kernel has no RDMA"},
		{name: "auto and a port that is down", provider: "auto", kernel: s.down, device: "soft0", why: "hard1 port 1: the port is DOWN", unused: true},
		{name: "libibverbs named", provider: "libibverbs", kernel: s.kernel, device: "hard0", why: "the setting provider names it"},
		{name: "libibverbs named, and the kernel has no device", provider: "libibverbs", kernel: s.none, err: "the kernel has no RDMA", is: verbs.ErrUnavailable},
		{name: "roce named", provider: "roce", kernel: s.kernel, device: "soft0", why: "the setting provider names it"},
		{name: "a name of the kernel's", provider: "auto", want: discovery.Want{Device: "hard0"}, kernel: s.kernel, device: "hard0"},
		{name: "a name of software", provider: "auto", want: discovery.Want{Device: "soft0"}, kernel: s.kernel, device: "soft0", why: `"soft0": it is no RDMA device`, unused: true},
		{name: "a name that nobody has", provider: "auto", want: discovery.Want{Device: "x"}, kernel: s.kernel, err: "there is hard0), no network device, and no address; and roce: ", is: verbs.ErrNotFound},
		{name: "a name of software for libibverbs", provider: "libibverbs", want: discovery.Want{Device: "soft0"}, kernel: s.kernel, err: "soft0", is: verbs.ErrNotFound},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Select(tt.provider, tt.want, tt.kernel, s.software)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) || !errors.Is(err, tt.is) {
					t.Errorf("%v; want %q, %v", err, tt.err, tt.is)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got.Choice.Device != tt.device || got.Device.Info().Name != tt.device || !strings.Contains(got.Why, tt.why) || (got.Unused != nil) != tt.unused {
				t.Errorf("%v: %q, unused %v; want %s: %q", got.Choice, got.Why, got.Unused, tt.device, tt.why)
			}
			if err := got.Device.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// The time of a device in software is its own, unless one was set.
func TestAckTimeoutByProvider(t *testing.T) {
	soft := RoCESource(nil)
	for _, tt := range []struct {
		p    verbs.Provider
		set  time.Duration
		code uint8
	}{{soft, 0, 16}, {KernelSource(), 0, 14}, {soft, time.Millisecond, 8}} {
		if got := verbs.TimeoutCode(timeoutOf(tt.set, tt.p)); got != tt.code {
			t.Errorf("%s with %v: code %d, want %d", tt.p.Name(), tt.set, got, tt.code)
		}
	}
}

// TestQueuePairsByProvider: a device in software has one for each peer, others two,
// unless a number was set.
func TestQueuePairsByProvider(t *testing.T) {
	soft := RoCESource(nil)
	for _, tt := range []struct {
		p         verbs.Provider
		set, want int
	}{{soft, 0, 1}, {KernelSource(), 0, 2}, {soft, 3, 3}, {KernelSource(), 1, 1}} {
		if got := queuePairsOf(tt.set, tt.p); got != tt.want {
			t.Errorf("%s with %d: %d queue pairs, want %d", tt.p.Name(), tt.set, got, tt.want)
		}
	}
}

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
		c := settings(func(c *config.Config) {
			c.Listen, c.Task = tt.listen, cluster.Task{Job: "worker"}
			if tt.cluster != "" {
				spec, err := cluster.ParseSpec(tt.cluster)
				if err != nil {
					t.Fatal(err)
				}
				c.Cluster = spec
			}
		})
		if got := newOwnAddress(t.Context(), c, lookup).local(t.Context()); got.addr.String() != tt.addr || !strings.Contains(got.why, tt.why) {
			t.Errorf("%s in %q: %v, %q; want %s, %q", tt.listen, tt.cluster, got.addr, got.why, tt.addr, tt.why)
		}
	}
}

// overUDP are the settings of a process with a device in software on loopback.
func overUDP(change ...func(*config.Config)) config.Config {
	return settings(append([]func(*config.Config){func(c *config.Config) {
		c.Transport, c.Provider, c.Fallback = "verbs", "roce", "none"
		c.Arena, c.ArenaLimit = 4<<20, 64<<20
	}}, change...)...)
}

// needsLoopback skips where the host has no such address.
func needsLoopback(t *testing.T, a string) {
	t.Helper()
	if !isLocal(netip.MustParseAddr(a)) {
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
		c := w.settings(i, func(c *config.Config) { c.Provider, c.RDMA.Timeout = "roce", 0 })
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

// TestPathOfTheSettings: what queue pairs are brought up with is what was set, and what
// the choice is.
func TestPathOfTheSettings(t *testing.T) {
	on := Selection{Source: Source{Provider: roce.New(roce.Options{})}, Choice: discovery.Choice{Port: 2, MTU: verbs.MTU1024}}
	retry := 5
	got := path(on, config.RDMA{PKeyIndex: 3, TrafficClass: 106, ServiceLevel: 4, Timeout: 500 * time.Millisecond, Retry: &retry})
	want := verbs.Path{
		Port: 2, MTU: verbs.MTU1024, PKeyIndex: 3, TrafficClass: 106, ServiceLevel: 4,
		Timeout: verbs.TimeoutCode(500 * time.Millisecond), Retry: 5, RNRRetry: rnrRetries,
	}
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	usual := config.Default().RDMA
	if got := path(on, usual); got.Retry != 6 || got.TrafficClass != uint8(usual.TrafficClass) || got.Timeout != 16 { //nolint:gosec // a test's
		t.Errorf("unless something is set it is %+v", got)
	}
}

// TestVerbsOnAnyMachine: a server and a client of this machine, with no RDMA, no
// privilege and no C, over both families. What is pulled comes over verbs, all of it.
func TestVerbsOnAnyMachine(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "::1"} {
		t.Run(host, func(t *testing.T) {
			needsLoopback(t, host)
			var log syncBuffer
			v, err := StartVerbs(t.Context(), overUDP(func(c *config.Config) { c.Listen = net.JoinHostPort(host, "0") }),
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
			if want := fmt.Sprintf("tryst_verbs_device_info{device=%q,provider=\"roce\",reason=%q,why=%q} 1", s.Choice.Device, s.Choice.Reason, s.Why); !strings.Contains(text, want) {
				t.Errorf("the metrics do not have %s:\n%s", want, text)
			}
			n := publishSome(t, v.Server)

			cl, err := Dial(t.Context(), overUDP().Client, v.Addr().String(), Options{Allocator: tensortest.NewAllocator(t)})
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
	v, err := StartVerbs(t.Context(), overUDP(func(c *config.Config) { c.Listen = "0.0.0.0:0" }), Options{Allocator: tensortest.NewAllocator(t)})
	if err != nil {
		t.Fatal(err)
	}
	n := publishSome(t, v.Server)
	_, port, err := net.SplitHostPort(v.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	cl, err := Dial(t.Context(), overUDP().Client, net.JoinHostPort("127.0.0.1", port), Options{Allocator: tensortest.NewAllocator(t)})
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
	c := overUDP(func(c *config.Config) { c.Fallback = "grpc" }).Client
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
	v := start(t, overUDP(func(c *config.Config) { c.Fallback, c.RDMA.Device = "grpc", "127.0.0.1" }), Options{})
	n := publishSome(t, v)
	c := overUDP(func(c *config.Config) { c.Fallback, c.RDMA.Device = "grpc", "::1" }).Client
	var log syncBuffer
	cl, err := Dial(t.Context(), c, v.Addr().String(), Options{Logger: slog.New(slog.NewTextHandler(&log, nil)), Allocator: tensortest.NewAllocator(t)})
	if err != nil {
		t.Fatal(err)
	}
	pullAll(t, cl)
	if got := cl.Received(); got["grpc"] != n || !strings.Contains(log.String(), "cannot talk by verbs: no route leads") {
		t.Errorf("came %v, and the log is\n%s", got, log.String())
	}
	if err := cl.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// A device that the settings name and that does not exist is an error, whatever the fallback.
func TestDeviceThatNobodyHas(t *testing.T) {
	_, err := Start(t.Context(), overUDP(func(c *config.Config) { c.Provider, c.Fallback, c.RDMA.Device = "auto", "grpc", "mlx5_99" }), Options{})
	wantError(t, err, status.FailedPrecondition, "mlx5_99", "roce")
}
