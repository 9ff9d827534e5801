package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/internal/discovery"
	"github.com/tryst-rdma/tryst/internal/discovery/discoverytest"
	"github.com/tryst-rdma/tryst/internal/providers"
	"github.com/tryst-rdma/tryst/internal/transporttest"
	"github.com/tryst-rdma/tryst/server"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/verbstest"
)

var update = flag.Bool("update", false, "write testdata anew")

// limit is a Memlock of that many bytes.
func limit(n uint64) func() (verbstransport.Memlock, error) {
	return func() (verbstransport.Memlock, error) { return verbstransport.Memlock{Limit: n, Hard: n}, nil }
}

func exempt(n uint64) func() (verbstransport.Memlock, error) {
	return func() (verbstransport.Memlock, error) {
		return verbstransport.Memlock{Limit: n, Hard: n, Exempt: true}, nil
	}
}

// settings are the defaults of a transport, with a device that is asked for.
func settings(transport string, r server.RDMA) server.Config {
	c := server.Config{}
	c.Transport, c.RDMA = transport, r
	return c
}

// roceOn are settings with the device in software of an interface.
func roceOn(device string) server.Config {
	c := verbsOn(device)
	c.Provider = "roce"
	return c
}

// softly adds devices in software on lo and eth0, and what the kernel gives them.
func softly(o Options, k Sockets) Options {
	port := func(netdev string, mtu verbs.MTU, addr string) []discovery.Port {
		return []discovery.Port{{
			Number: 1, State: verbs.PortActive, Link: verbs.LinkEthernet, ActiveMTU: mtu, TableSize: 128, Netdev: netdev,
			GIDs: []discovery.GID{{GIDEntry: verbs.GIDEntry{GID: verbs.GIDFromAddr(netip.MustParseAddr(addr)), Type: verbs.GIDTypeRoCEv2}, Netdev: netdev}},
		}}
	}
	inv := discovery.Inventory{
		Netdevs: []discovery.Netdev{{Name: "eth0", MTU: 1500, Up: true, State: "up"}, {Name: "lo", MTU: 65536, Up: true, State: "up"}},
		Devices: []discovery.Device{
			{Name: "roce-eth0", NodeType: discovery.NodeCA, Driver: "roce", NUMA: -1, Ports: port("eth0", verbs.MTU1024, "192.0.2.7")},
			{Name: "roce-lo", NodeType: discovery.NodeCA, Driver: "roce", NUMA: -1, Ports: port("lo", verbs.MTU4096, "127.0.0.1")},
		},
	}
	o.Software = &providers.Opener{Row: providers.Row{Inventory: func(verbs.Provider) (discovery.Inventory, error) { return inv, nil }}}
	o.Sockets = func(netip.Addr) Sockets { return k }
	return o
}

func verbsOn(device string) server.Config { return settings("verbs", server.RDMA{Device: device}) }

// library is a verbs.Provider that knows some devices.
type library struct {
	devices []string
	err     error
	port    verbs.PortInfo
	openErr error
	closed  int
}

func (l *library) Name() string { return "library" }

func (l *library) Devices() ([]verbs.DeviceInfo, error) {
	var infos []verbs.DeviceInfo
	for _, d := range l.devices {
		infos = append(infos, verbs.DeviceInfo{Name: d})
	}
	return infos, l.err
}

func (l *library) Open(string) (verbs.Device, error) {
	if l.openErr != nil {
		return nil, l.openErr
	}
	return &openDevice{library: l}, nil
}

type openDevice struct {
	verbs.Device
	library *library
}

func (d *openDevice) Port(uint8) (verbs.PortInfo, error) { return d.library.port, nil }
func (d *openDevice) Close() error                       { d.library.closed++; return nil }

const unlimited = verbstransport.NoMemlock

// hosts are cases of a whole report; what each says is in testdata/reports.txt.
var hosts = []struct {
	name, tree string
	change     func(*discoverytest.Host)
	options    Options
	worst      Level
}{
	{name: "nothing of RDMA, and gRPC will do", tree: "no-rdma", options: Options{Client: settings("grpc", server.RDMA{}), Memlock: limit(8 << 20)}, worst: OK},
	{name: "nothing of RDMA, and it was asked for", tree: "no-rdma", options: Options{Client: verbsOn(""), Memlock: limit(8 << 20)}, worst: Fail},
	{name: "no device", tree: "no-devices", options: Options{Client: verbsOn(""), Memlock: limit(unlimited)}, worst: Fail},
	{
		name: "a NIC that works", tree: "mlx5-two-ports",
		change: func(h *discoverytest.Host) {
			for _, c := range []string{"out_of_sequence", "packet_seq_err"} {
				h.Set("class/infiniband/mlx5_0/ports/1/hw_counters/"+c, "0")
			}
			h.Set("class/infiniband/mlx5_0/ports/1/hw_counters/np_cnp_sent", "12")
			h.Remove("class/infiniband/mlx5_1")
			h.Netlink.DeviceList = h.Netlink.DeviceList[:1]
			for i := range 8 {
				h.Set(fmt.Sprintf("class/net/eth0/ecn/roce_np/enable/%d", i), map[bool]string{true: "1", false: "0"}[i == 3])
			}
			h.Netlink.PFCs = map[string]discovery.PFC{"eth0": {On: 1 << 3, Sent: [8]uint64{3: 5}}}
			h.Set("kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "1024")
			h.Set("kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "1000")
			h.Set("kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages", "0")
			h.Set("kernel/mm/hugepages/hugepages-1048576kB/free_hugepages", "0")
			h.Set("kernel/mm/transparent_hugepage/enabled", "always [madvise] never")
		},
		options: Options{
			Client: settings("verbs", server.RDMA{TrafficClass: 106}), Memlock: limit(unlimited),
			Provider: &library{devices: []string{"mlx5_0"}, port: verbs.PortInfo{ActiveMTU: 4096}},
		},
		worst: OK,
	},
	{
		name: "a NIC that loses packets, with one port down", tree: "mlx5-two-ports",
		change: func(h *discoverytest.Host) {
			for i := range 8 {
				h.Set(fmt.Sprintf("class/net/eth0/ecn/roce_np/enable/%d", i), "0")
			}
			h.Set("kernel/mm/transparent_hugepage/enabled", "always madvise [never]")
			h.Netlink.PFCs = map[string]discovery.PFC{"eth0": {}}
		},
		options: Options{
			Client: verbsOn(""), Memlock: limit(256 << 20),
			Provider: &library{devices: []string{"mlx5_0", "mlx5_1"}, port: verbs.PortInfo{ActiveMTU: 1024}},
		},
		worst: Warn,
	},
	{
		name: "memlock too low, and packets of a priority that nobody pauses", tree: "mlx5-two-ports",
		change: func(h *discoverytest.Host) {
			h.Netlink.PFCs = map[string]discovery.PFC{"eth0": {On: 1<<3 | 1<<5}}
		},
		options: Options{Client: verbsOn(""), Memlock: limit(64 << 10)},
		worst:   Fail,
	},
	{
		name: "memlock too low, but exempt", tree: "infiniband",
		options: Options{Client: verbsOn(""), Memlock: exempt(64 << 10)},
		worst:   Warn,
	},
	{
		name: "nodes that may not be opened, and a library without drivers", tree: "rxe",
		change: func(h *discoverytest.Host) {
			h.Nodes["/dev/infiniband/uverbs0"] = &fs.PathError{Op: "open", Path: "/dev/infiniband/uverbs0", Err: syscall.EACCES}
			h.Nodes["/dev/infiniband/uverbs1"] = &fs.PathError{Op: "open", Path: "/dev/infiniband/uverbs1", Err: syscall.ENOENT}
			h.Remove("class/infiniband_verbs/uverbs2")
			h.Netlink.OneNetns = true
		},
		options: Options{Client: verbsOn(""), Memlock: limit(unlimited), Provider: &library{devices: []string{"rxe0"}, openErr: syscall.EACCES}},
		worst:   Fail,
	},
	{
		name: "a small MTU on Soft-RoCE", tree: "rxe",
		options: Options{Client: settings("grpc", server.RDMA{Device: "rxe1"}), Memlock: limit(unlimited), Provider: &library{devices: []string{"rxe0", "rxe1", "rxe_lo"}, port: verbs.PortInfo{ActiveMTU: 1024}}},
		worst:   Warn,
	},
	{
		name: "an MTU that the open port does not have", tree: "infiniband",
		options: Options{Client: settings("verbs", server.RDMA{MTU: 4096}), Memlock: limit(unlimited), Provider: &library{devices: []string{"mlx5_0", "mlx5_1"}, port: verbs.PortInfo{ActiveMTU: 2048}}},
		worst:   Fail,
	},
	{
		name: "RoCE v1 only", tree: "mlx4-two-ports",
		options: Options{Client: verbsOn(""), Memlock: limit(unlimited)},
		worst:   Warn,
	},
	{
		name: "the device that was asked for cannot be used", tree: "irdma",
		options: Options{Client: verbsOn("irdma0"), Memlock: limit(unlimited)},
		worst:   Fail,
	},
	{
		name: "no libibverbs", tree: "sriov",
		options: Options{Client: verbsOn(""), Memlock: limit(unlimited),
			Provider: &library{err: verbs.Errorf("open", "libibverbs.so.1", verbs.ErrUnavailable, "it is not installed")}},
		worst: Fail,
	},
	{
		name: "what cannot be read", tree: "rxe",
		change: func(h *discoverytest.Host) {
			h.Fail("class/infiniband/rxe0/ports/1/rate", syscall.EIO)
			h.Fail("class/net/v0/operstate", syscall.EIO)
			h.Set("class/infiniband/rxe0/ports/1/hw_counters/sent_pkts", "many")
			h.Fail("kernel/mm/transparent_hugepage/enabled", syscall.EACCES)
		},
		options: Options{Client: settings("grpc", server.RDMA{})},
		worst:   Warn,
	},
	{
		name: "settings by TensorFlow's names", tree: "no-rdma",
		options: Options{Client: settings("grpc", server.RDMA{}), Memlock: limit(8 << 20), Settings: []config.Entry{
			{Key: "rdma.mtu", Value: "1024", Source: config.Source{Kind: config.FromTensorFlow, Name: "RDMA_QP_MTU"}},
		}},
		worst: OK,
	},
	{
		name: "no RDMA, and the device in software takes its place", tree: "no-rdma",
		options: softly(Options{Client: verbsOn(""), Memlock: limit(8 << 20), LocalAddr: netip.MustParseAddr("127.0.0.1"), LocalAddrWhy: "the server listens there"}, Sockets{Buffer: 2796202, ReceiveMax: 4 << 20}),
		worst:   OK,
	},
	{
		name: "software asked for, and a kernel that gives it little", tree: "no-rdma",
		options: softly(Options{Client: roceOn("eth0"), Memlock: limit(8 << 20)}, Sockets{
			Taken: errors.New("another socket has it"), Buffer: 141994, ReceiveMax: 212992,
			Missing: []string{
				"the receive buffer is capped at 212992 bytes by net.core.rmem_max, so peers may send less at once: sysctl -w net.core.rmem_max=4194304",
				"each datagram is received alone, which takes more time: setsockopt UDP_GRO: protocol not available; Linux has it since 5.0",
			},
		}),
		worst: Warn,
	},
	{
		name: "software asked for", tree: "rxe",
		options: softly(Options{Client: roceOn("lo"), Memlock: limit(8 << 20)}, Sockets{Buffer: 2796202, ReceiveMax: 4 << 20}),
		worst:   OK,
	},
	{
		name: "software asked for on an interface that is not there", tree: "no-rdma",
		options: softly(Options{Client: roceOn("eth7")}, Sockets{}),
		worst:   Fail,
	},
	{
		name: "software without sockets", tree: "no-rdma",
		options: softly(Options{Client: roceOn("")}, Sockets{Err: errors.New("listen udp 192.0.2.7: operation not permitted")}),
		worst:   Fail,
	},
	{
		name: "RDMA that may not be used, and the device in software", tree: "rxe",
		options: softly(Options{Client: verbsOn(""), Memlock: limit(unlimited), Provider: &library{devices: []string{"rxe0", "rxe1", "rxe_lo"}, openErr: syscall.EACCES}}, Sockets{Buffer: 2796202}),
		worst:   Warn,
	},
	{
		name: "RDMA that works, beside the device in software", tree: "infiniband",
		options: softly(Options{Client: verbsOn(""), Memlock: limit(unlimited)}, Sockets{}),
		worst:   Warn,
	},
	{
		name: "libibverbs asked for, and there is none", tree: "no-rdma",
		options: softly(Options{Client: func() server.Config { c := verbsOn(""); c.Provider = "libibverbs"; return c }()}, Sockets{}),
		worst:   Fail,
	},
	{name: "another system", tree: "no-rdma", options: Options{Client: verbsOn(""), NoSystem: errors.New("discover RDMA devices: this is no Linux")}, worst: Fail},
}

func TestReports(t *testing.T) {
	var s strings.Builder
	for _, tt := range hosts {
		o := tt.options
		if o.NoSystem == nil {
			h := discoverytest.Load(t, tt.tree)
			if tt.change != nil {
				tt.change(h)
			}
			o.System = h.System()
		}
		r := Examine(Gather(t.Context(), o))
		if r.Worst() != tt.worst {
			t.Errorf("%s: %s, want %s", tt.name, r.Worst(), tt.worst)
		}
		fmt.Fprintf(&s, "## %s (%s)\n", tt.name, tt.tree)
		if err := r.WriteText(&s); err != nil {
			t.Fatal(err)
		}
		s.WriteString("\n")
		for _, l := range r {
			if l.Level != OK && l.Do == "" {
				t.Errorf("%s: %s: %q is %v, and nothing is said to do", tt.name, l.Check, l.Text, l.Level)
			}
			if l.Level == OK && l.Do != "" {
				t.Errorf("%s: %q is OK, and there is something to do: %s", tt.name, l.Text, l.Do)
			}
		}
	}
	name := filepath.Join("testdata", "reports.txt")
	if *update {
		if err := os.WriteFile(name, []byte(s.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(s.String(), "\n")); d != "" {
		t.Errorf("%s (-want +got):\n%s", name, d)
	}
}

// What lacks for RDMA fails only when RDMA was asked for.
func TestWithoutRDMAOnlyWarnsUnlessItWasAskedFor(t *testing.T) {
	for _, tt := range hosts {
		o := tt.options
		o.Client.Transport = "grpc"
		if o.NoSystem == nil {
			h := discoverytest.Load(t, tt.tree)
			if tt.change != nil {
				tt.change(h)
			}
			o.System = h.System()
		}
		if r := Examine(Gather(t.Context(), o)); r.Worst() == Fail {
			t.Errorf("%s: it fails, and tensors would go over gRPC", tt.name)
		}
	}
}

func TestTheOpenedDeviceIsClosed(t *testing.T) {
	l := &library{devices: []string{"rxe0", "rxe1", "rxe_lo"}, port: verbs.PortInfo{ActiveMTU: 4096}}
	f := Gather(t.Context(), Options{System: discoverytest.Load(t, "rxe").System(), Provider: l})
	if l.closed != 1 || f.Library.OpenErr != nil {
		t.Errorf("closed %d times, %v; want once", l.closed, f.Library.OpenErr)
	}
}

// startServer starts a server that lives as long as the test.
func startServer(t *testing.T) string {
	t.Helper()
	cfg := server.Config{}
	cfg.Listen = "127.0.0.1:0"
	return start(t, cfg, server.Options{})
}

func start(t *testing.T, cfg server.Config, o server.Options) string {
	t.Helper()
	s, err := server.Start(t.Context(), cfg, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return s.Addr().String()
}

// nobody is an address where nobody listens.
func nobody(t *testing.T) string {
	t.Helper()
	return transporttest.FreeAddresses(t, 1)[0]
}

// Peers are asked over gRPC, and those that do not answer fail with the reason.
func TestPeers(t *testing.T) {
	self := cluster.Task{Job: "worker"}
	up := startServer(t)
	// A gRPC server without any service, as TensorFlow's has no health.
	foreign, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	done := make(chan error, 1)
	go func() { done <- g.Serve(foreign) }()
	defer func() {
		g.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	spec, err := cluster.ParseSpec(fmt.Sprintf("worker=127.0.0.1:1;ps=%s,%s,%s", up, foreign.Addr(), nobody(t)))
	if err != nil {
		t.Fatal(err)
	}
	cfg := server.Config{}
	cfg.Cluster = spec.Lists()
	f := Gather(t.Context(), Options{
		Client: cfg, Self: &self, NoSystem: errors.New("not looked for"),
		ReachVerbs: func(_ context.Context, task cluster.Task, _ string) Reached {
			if task.Index == 0 {
				return Reached{Text: "over rxe0"}
			}
			return Reached{Err: errors.New("the other side has InfiniBand")}
		},
	})
	if len(f.Peers) != 3 {
		t.Fatalf("%d peers, want 3: this task is none", len(f.Peers))
	}
	r := Examine(f)
	var text strings.Builder
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct {
		reached bool
		words   string
	}{{true, "it serves"}, {true, "no health service"}, {false, "cannot be reached over gRPC"}} {
		p := f.Peers[i]
		if (p.GRPC.Err == nil) != want.reached || !strings.Contains(text.String(), want.words) || (p.Verbs != nil) != want.reached || want.reached && (p.Verbs.Err == nil) != (i == 0) {
			t.Errorf("peer %s: %+v, want reached %v (%s) in\n%s", p.Address, p.GRPC, want.reached, want.words, text.String())
		}
	}
	if r.Worst() != Fail || r.Count(Fail) != 1 {
		t.Errorf("want one FAIL, for the peer that is not there:\n%s", text.String())
	}
}

// Peers are asked by RDMA with a channel of their own: one that has verbs answers,
// one that has not is told apart, and what runs there is not disturbed.
func TestPeersByRDMA(t *testing.T) {
	fabric := verbstest.NewFabric(verbstest.Options{})
	t.Cleanup(func() {
		if open := fabric.Counts(); open != (verbs.Counts{}) {
			t.Errorf("open on the fabric: %+v", open)
		}
		fabric.Close()
	})
	var addresses []string
	for range 2 {
		addresses = append(addresses, nobody(t))
	}
	spec, err := cluster.ParseSpec("worker=" + strings.Join(addresses, ","))
	if err != nil {
		t.Fatal(err)
	}
	for i, transport := range []string{"verbs", "grpc"} {
		cfg := server.Config{}
		task := cluster.Task{Job: "worker", Index: i}
		cfg.Task = task.String()
		cfg.Transport, cfg.Cluster = transport, spec.Lists()
		cfg.Listen, _ = spec.Address(task)
		cfg.RDMA.Arena, cfg.RDMA.ArenaLimit = 4<<20, 64<<20
		start(t, cfg, server.Options{Provider: fabric.Provider(fmt.Sprint("host", i))})
	}
	client := verbsOn("")
	client.Cluster = spec.Lists()
	r := Examine(Gather(t.Context(), Options{
		Client: client, NoSystem: errors.New("not looked for"),
		ReachVerbs: ReachVerbs(client, server.Options{Provider: fabric.Provider("doctor")}, false),
	}))
	for _, want := range []Line{
		{OK, "peer /job:worker/replica:0/task:0", "in full packets came through", ""},
		{Fail, "peer /job:worker/replica:0/task:1", "does not serve verbs", "start it with --transport auto or verbs"},
	} {
		found := false
		for _, l := range r {
			found = found || l.Level == want.Level && l.Check == want.Check && strings.Contains(l.Text, want.Text) && l.Do == want.Do
		}
		if !found {
			t.Errorf("no line like %+v in\n%+v", want, r)
		}
	}
}

// TestPeersBySoftware: full packets reach a peer with a device in software, on any
// machine.
func TestPeersBySoftware(t *testing.T) {
	cfg := server.Config{}
	cfg.Transport, cfg.Provider, cfg.Listen = "verbs", "roce", nobody(t)
	cfg.RDMA.Arena, cfg.RDMA.ArenaLimit = 4<<20, 64<<20
	spec, err := cluster.ParseSpec("worker=" + cfg.Listen)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Cluster = spec.Lists()
	start(t, cfg, server.Options{})
	o := Options{Client: cfg}.OnThisHost()
	o.LocalAddr, o.LocalAddrWhy = server.LocalAddr(t.Context(), cfg)
	r := Examine(Gather(t.Context(), o))
	var s strings.Builder
	if err := r.WriteText(&s); err != nil {
		t.Fatal(err)
	}
	if r.Worst() == Fail || strings.Contains(s.String(), "libibverbs") {
		t.Errorf("it fails, or looks at what is not asked for:\n%s", &s)
	}
	for _, want := range []string{"provider", "the setting provider names it", "(the server listens there)", "UDP port 4791", "it answers over rdma", "in full packets came through"} {
		if !strings.Contains(s.String(), want) {
			t.Errorf("no %q in\n%s", want, &s)
		}
	}
}

// Peers are not asked by RDMA with a device that cannot be used: that is told once.
func TestPeersAreNotAskedWithoutADevice(t *testing.T) {
	client := verbsOn("")
	client.Cluster = map[string][]string{"worker": {startServer(t)}}
	for _, tt := range []Options{
		{NoSystem: errors.New("this is no Linux"), Provider: &library{}},
		{System: discoverytest.Load(t, "no-devices").System(), Provider: &library{}},
		{System: discoverytest.Load(t, "rxe").System(), Provider: &library{openErr: syscall.EACCES}},
		{System: discoverytest.Load(t, "rxe").System(), Provider: &library{err: verbs.ErrUnavailable}},
	} {
		tt.Client = client
		tt.ReachVerbs = func(context.Context, cluster.Task, string) Reached {
			t.Error("a peer is asked by RDMA")
			return Reached{}
		}
		if f := Gather(t.Context(), tt); len(f.Peers) != 1 || f.Peers[0].GRPC.Err != nil || f.Peers[0].Verbs != nil {
			t.Errorf("peers: %+v", f.Peers)
		}
	}
}

func TestJSON(t *testing.T) {
	in := Report{{OK, "kernel", "fine", ""}, {Fail, "peer /job:a", "a <b> & \u202e\nc", "mend it"}}
	var s strings.Builder
	if err := in.WriteJSON(&s); err != nil {
		t.Fatal(err)
	}
	var out Report
	d := json.NewDecoder(strings.NewReader(s.String()))
	for d.More() {
		var l Line
		if err := d.Decode(&l); err != nil {
			t.Fatal(err)
		}
		out = append(out, l)
	}
	if diff := cmp.Diff(in, out); diff != "" {
		t.Error(diff)
	}
	if !strings.Contains(s.String(), `{"level":"FAIL","check":"peer /job:a"`) {
		t.Errorf("levels are not words:\n%s", s.String())
	}
}

// What a peer or a device says does nothing to a terminal, and is one line.
func TestTextIsPrintable(t *testing.T) {
	var s strings.Builder
	if err := (Report{{Warn, "a\x1b[2J", "one\ntwo\x07", "do\r\nit"}}).WriteText(&s); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsAny(s.String(), "\x1b\x07\r") || strings.Count(s.String(), "\n") != 2 {
		t.Errorf("%q", s.String())
	}
}

// TestTextFitsTheTerminal: long texts continue below their beginning; without a terminal each is
// one line.
func TestTextFitsTheTerminal(t *testing.T) {
	r := Report{{OK, "kernel", "short", ""}, {Warn, "memlock", "the limit of locked memory is 64 KiB", "raise it: ulimit -l unlimited"}}
	for columns, want := range map[int]string{
		0:  "OK    kernel   short\nWARN  memlock  the limit of locked memory is 64 KiB\n               do: raise it: ulimit -l unlimited\n",
		36: "OK    kernel   short\nWARN  memlock  the limit of locked\n               memory is 64 KiB\n               do: raise it: ulimit\n               -l unlimited\n",
		20: "OK    kernel   short\nWARN  memlock  the limit of locked memory is 64 KiB\n               do: raise it: ulimit -l unlimited\n",
	} {
		var s strings.Builder
		if err := r.writeText(&s, columns); err != nil || s.String() != want {
			t.Errorf("%d columns:\n%swant\n%s%v", columns, &s, want, err)
		}
	}
}
