package doctor

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/server"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/verbs/shm"
)

// TestEveryRouteHasALine: the report has each device, and each route to a peer with the reason
// against one that does not reach it. That is no fault while another route does.
func TestEveryRouteHasALine(t *testing.T) {
	const peer = "peer x"
	timed := Reached{Path: &server.Measured{Device: "shm0", Provider: server.ProviderSHM, Echoes: 100, Median: 9 * time.Microsecond, Bytes: 8}}
	works := Reached{Path: &server.Measured{Device: "shm0", Provider: server.ProviderSHM, Echoes: 100, Median: 20 * time.Microsecond}, Rate: 4.2e9}
	refused := status.New(status.FailedPrecondition, "they run on two hosts")
	for name, c := range map[string]struct {
		facts Facts
		check string
		text  string
		level Level
	}{
		"a device": {Facts{Fixed: []FixedDevice{{Provider: "tcp", Device: "tcp0"}}}, "tcp", "tcp0 works: queue pairs over TCP", OK},
		"a device that auto does without": {Facts{Required: true, Fixed: []FixedDevice{{Provider: "shm", Err: errors.New("no memfd here")}}},
			"shm", "shm cannot be used: no memfd here", Warn},
		"a device that was named": {Facts{Required: true, Fixed: []FixedDevice{{Provider: "shm", Named: true, Err: errors.New("no memfd here")}}},
			"shm", "the setting provider names it: no memfd here", Fail},
		"a route":        {Facts{Peers: []Peer{{Task: "x", Fixed: []FixedReached{{"shm", works}}}}}, peer, "bandwidth over shm: 4200 MB/s", OK},
		"its receives":   {Facts{Peers: []Peer{{Task: "x", Fixed: []FixedReached{{"shm", timed}}}}}, peer, "p99 0s of 100 receives of 8 B", OK},
		"its round trip": {Facts{Peers: []Peer{{Task: "x", Fixed: []FixedReached{{"shm", works}}}}}, peer, "round trip over shm: median 20µs", OK},
		"a route beside another": {Facts{Required: true, Peers: []Peer{{Task: "x", Fixed: []FixedReached{{"shm", Reached{Err: refused}}, {"tcp", works}}}}},
			peer, "not over shm: FailedPrecondition: they run on two hosts", OK},
		"RDMA beside another": {Facts{Required: true, Provider: server.ProviderRoCE, Peers: []Peer{{Task: "x", Verbs: &Reached{Err: refused}, Fixed: []FixedReached{{"tcp", works}}}}},
			peer, "not over rdma: FailedPrecondition: they run on two hosts", OK},
		"no route": {Facts{Required: true, Peers: []Peer{{Task: "x", Fixed: []FixedReached{{"tcp", Reached{Err: refused}}}}}},
			peer, "it cannot be reached over tcp: FailedPrecondition: they run on two hosts", Fail},
		"nothing to pull": {Facts{Peers: []Peer{{Task: "x", Fixed: []FixedReached{{"tcp", Reached{NoRate: errors.New("it publishes nothing")}}}}}},
			peer, "the bandwidth over tcp could not be measured: it publishes nothing", Warn},
	} {
		got := lines(Examine(c.facts), c.check, c.text)
		if len(got) != 1 || got[0].Level != c.level || (got[0].Do == "") != (c.level == OK) {
			t.Errorf("%s: %+v, want one %v with %q in\n%+v", name, got, c.level, c.text, Examine(c.facts))
		}
	}
}

// TestDirectoryForSocketsIsNoLineOfItsOwn: an OK for a setting would say that it works. The line of shared
// memory says so.
func TestDirectoryForSocketsIsNoLineOfItsOwn(t *testing.T) {
	dir := []config.Entry{{Key: shmDir, Value: "/run/tryst", Source: config.Source{Kind: config.FromFlag, Name: "--shm-dir"}}}
	for name, c := range map[string]struct {
		err   error
		level Level
		text  string
	}{
		"it works":    {nil, OK, "shm0 works: shared memory with processes of this host; from other network namespaces by the directory /run/tryst"},
		"it does not": {errors.New("the directory for sockets does not exist"), Warn, "shm cannot be used: the directory for sockets does not exist"},
	} {
		r := Examine(Facts{Settings: dir, Fixed: []FixedDevice{{Provider: server.ProviderSHM, Device: "shm0", Err: c.err}}})
		if got := lines(r, "setting", ""); len(got) > 0 {
			t.Errorf("%s: %+v", name, got)
		}
		if got := lines(r, "shm", c.text); len(got) != 1 || got[0].Level != c.level {
			t.Errorf("%s: %+v", name, r)
		}
	}
	if got := lines(Examine(Facts{Settings: dir}), "setting", "/run/tryst"); len(got) != 1 {
		t.Error("without shared memory the setting is not shown")
	}
}

// TestFixedDevicesReplaceRDMA: a host without RDMA lacks nothing while another device works.
func TestFixedDevicesReplaceRDMA(t *testing.T) {
	f := Facts{Required: true, Provider: server.ProviderAuto, NoDiscovery: errors.New("no RDMA here")}
	if Examine(f).Worst() != Fail {
		t.Error("missing RDMA is no FAIL")
	}
	f.Fixed = []FixedDevice{{Provider: server.ProviderTCP, Device: "tcp0"}}
	if worst := Examine(f).Worst(); worst != OK {
		t.Errorf("with tcp it is %v", worst)
	}
	f.Provider = ""
	if worst := Examine(f).Worst(); worst != OK {
		t.Errorf("with tcp alone it is %v: %+v", worst, Examine(f))
	}
}

// TestGRPCNeedsNoRDMA: a host without RDMA and the default transport gets no WARN of the kernel, and
// the report says what verbs would take.
func TestGRPCNeedsNoRDMA(t *testing.T) {
	f := Facts{Provider: server.ProviderAuto, NoDiscovery: errors.New("no RDMA here"), Fixed: []FixedDevice{{Provider: server.ProviderTCP, Device: "tcp0"}}}
	r := Examine(f)
	if r.Worst() != OK || len(lines(r, "kernel", "gRPC needs none")) != 1 {
		t.Errorf("%+v", r)
	}
	if got := lines(r, "routes", "with --transport verbs each peer is reached over the first of these that it has, too, and that works: tcp"); len(got) != 1 {
		t.Errorf("%+v", r)
	}
	f.Provider = server.ProviderLibibverbs
	if worst := Examine(f).Worst(); worst != Warn {
		t.Errorf("with libibverbs named it is %v", worst)
	}
}

// TestOrderOfRoutes: the report has the devices in the order in which a process takes them.
func TestOrderOfRoutes(t *testing.T) {
	all := []FixedDevice{{Provider: server.ProviderTCP}, {Provider: server.ProviderSHM}}
	works := []FixedReached{{server.ProviderTCP, Reached{}}, {server.ProviderSHM, Reached{}}}
	refused := status.New(status.FailedPrecondition, "they run on two hosts")
	const peer = "its tensors come over the first of these that works: "
	for name, c := range map[string]struct {
		provider string
		peer     Peer
		routes   string
		text     string
	}{
		"an RDMA device of the kernel": {server.ProviderLibibverbs, Peer{Verbs: &Reached{}, Fixed: works}, "works: shm, libibverbs, tcp", peer + "shm, libibverbs, tcp"},
		"roce":                         {server.ProviderRoCE, Peer{Verbs: &Reached{}, Fixed: works}, "works: shm, tcp, roce (roce: before tcp to a peer with an RDMA device of its kernel)", peer + "shm, tcp, roce (roce: before tcp to a peer with an RDMA device of its kernel)"},
		"roce alone":                   {server.ProviderRoCE, Peer{Verbs: &Reached{}}, "works: shm, tcp, roce", peer + "roce"},
		"tcp alone":                    {server.ProviderRoCE, Peer{Verbs: &Reached{Err: refused}, Fixed: works[:1]}, "works: shm, tcp, roce", peer + "tcp"},
	} {
		c.peer.Task = "x"
		f := Facts{Required: true, Provider: server.ProviderAuto, NamesUserSpace: true, Selected: Selected{Asked: true, Provider: c.provider}, Fixed: all, Peers: []Peer{c.peer}}
		r := Examine(f)
		if len(lines(r, "routes", c.routes)) != 1 || len(lines(r, "peer x", c.text)) != 1 {
			t.Errorf("%s: %+v", name, r)
		}
		f.NamesUserSpace = false
		const only = "roce (roce: before tcp to a peer with an RDMA device of its kernel, otherwise only if a provider names it)"
		if got := lines(Examine(f), "routes", only); (len(got) == 1) != (c.provider == server.ProviderRoCE) {
			t.Errorf("%s, which no setting names: %+v", name, Examine(f))
		}
	}
}

// TestNoRouteToAPeerFails: with verbs and no route to a peer at all the report has a FAIL, whatever
// devices this process has.
func TestNoRouteToAPeerFails(t *testing.T) {
	refused := Reached{Err: status.New(status.FailedPrecondition, "nothing in common")}
	for name, p := range map[string]Peer{
		"tcp":      {Task: "x", Fixed: []FixedReached{{server.ProviderTCP, refused}}},
		"roce":     {Task: "x", Verbs: &refused},
		"all":      {Task: "x", Verbs: &refused, Fixed: []FixedReached{{server.ProviderTCP, refused}, {server.ProviderSHM, refused}}},
		"only tcp": {Task: "x", Verbs: &refused, Fixed: []FixedReached{{server.ProviderTCP, Reached{}}}},
	} {
		f := Facts{Required: true, Provider: server.ProviderAuto, Selected: Selected{Asked: true, Provider: server.ProviderRoCE}, Peers: []Peer{p},
			Fixed: []FixedDevice{{Provider: server.ProviderTCP, Device: "tcp0"}, {Provider: server.ProviderSHM, Device: "shm0"}}}
		if worst := Examine(f).Worst(); (worst == Fail) != (name != "only tcp") {
			t.Errorf("%s: %v: %+v", name, worst, Examine(f))
		}
	}
}

// TestTakenPortIsNoFault: another process of the host has the port of RoCE. That is a WARN only where
// roce is all that the settings allow.
func TestTakenPortIsNoFault(t *testing.T) {
	for provider, want := range map[string]Level{server.ProviderAuto: OK, server.ProviderRoCE: Warn} {
		f := Facts{Required: true, Provider: provider, Selected: Selected{Asked: true, Provider: server.ProviderRoCE},
			Software: Software{Asked: true, Sockets: Sockets{Taken: errors.New("another socket has it")}}}
		if got := lines(Examine(f), "UDP port 4791", "another socket has it"); len(got) != 1 || got[0].Level != want {
			t.Errorf("%s: %+v", provider, got)
		}
	}
}

// TestMeasuresEachRoute: over TCP and shared memory the doctor reaches a real server by that device
// alone, and pulls some of what it publishes.
func TestMeasuresEachRoute(t *testing.T) {
	cfg := server.Config{}
	cfg.Listen, cfg.Transport, cfg.RDMA.Arena, cfg.RDMA.ArenaLimit = "127.0.0.1:0", "verbs", 4<<20, 64<<20
	cfg.Provider = "tcp"
	if _, err := shm.New(shm.Options{}).Devices(); err == nil {
		cfg.Provider = "tcp,shm"
	}
	s, err := server.Start(t.Context(), cfg, server.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(context.Background())
	x, err := tensor.FromSlice(tensor.Vector(1<<20), make([]float32, 1<<20))
	if err != nil {
		t.Fatal(err)
	}
	defer x.Release()
	small, err := tensor.FromSlice(tensor.Vector(2), make([]float32, 2))
	if err != nil {
		t.Fatal(err)
	}
	defer small.Release()
	if _, err := s.Catalog().PublishTensors(t.Context(), "m", x.Named("w [1]"), small.Named("step")); err != nil {
		t.Fatal(err)
	}
	o := Options{Client: cfg, From: s.Addr().String(), Measure: true}.OnThisHost()
	o.NoSystem = errors.New("not looked for")
	f := Gather(t.Context(), o)
	if len(f.Peers) != 1 || len(f.Peers[0].Fixed) != len(strings.Split(cfg.Provider, ",")) || f.Peers[0].GRPC.Rate <= 0 {
		t.Fatalf("%+v", f.Peers)
	}
	for _, r := range f.Peers[0].Fixed {
		if r.Err != nil || r.NoRate != nil || r.Rate <= 0 || r.Path == nil || r.Path.Provider != r.Provider {
			t.Errorf("%s: %+v", r.Provider, r.Reached)
		}
		// Acknowledgements are delayed, so they say nothing of a round trip of microseconds.
		if m := r.Path; m == nil || m.Bytes != 8 || m.Echoes < 10 || m.Min <= 0 || m.Median < m.Min || m.P99 < m.Median {
			t.Errorf("%s: receives of the smallest tensor: %+v", r.Provider, m)
		}
	}
	if worst := Examine(f).Worst(); worst == Fail {
		t.Errorf("%+v", Examine(f))
	}
}

// TestADeviceThatIsNamedIsOfRDMAOnly: the setting rdma.device says nothing about the routes over other devices, and
// does not make them wrong.
func TestADeviceThatIsNamedIsOfRDMAOnly(t *testing.T) {
	c := server.Config{Transport: server.TransportVerbs, RDMA: server.RDMA{Device: "mlx5_0"}}
	o := Options{Client: c}.OnThisHost()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, s := range o.Fixed {
		if r := s.Reach(ctx, cluster.Task{Job: "w"}, "127.0.0.1:1"); status.CodeOf(r.Err) == status.InvalidArgument {
			t.Errorf("%s: %v", s.Provider, r.Err)
		}
	}
	if len(o.Fixed) != 2 {
		t.Errorf("%d devices that are no RDMA", len(o.Fixed))
	}
}

// TestPeerWithoutVerbs: one advice is right for all routes to a peer that does not serve verbs.
func TestPeerWithoutVerbs(t *testing.T) {
	lacks := Reached{Err: status.New(status.Unimplemented, "x does not serve verbs")}
	f := Facts{Required: true, Peers: []Peer{{Task: "x", Fixed: []FixedReached{{"shm", lacks}, {"tcp", lacks}}}}}
	for _, provider := range []string{"shm", "tcp"} {
		got := lines(Examine(f), "peer x", "it cannot be reached over "+provider)
		if len(got) != 1 || got[0].Do != "start it with --transport auto or verbs" {
			t.Errorf("%s: %+v", provider, got)
		}
	}
}

// TestAutoLacksNothing: with the transport auto, a host without RDMA and a peer without verbs are in order; the report says
// what is used instead. What the settings name is looked at as ever.
func TestAutoLacksNothing(t *testing.T) {
	lacks := Reached{Err: status.New(status.Unimplemented, "x does not serve verbs")}
	f := Facts{
		Auto: true, Provider: server.ProviderLibibverbs, NoDiscovery: errors.New("no RDMA here"), Selected: Selected{Asked: true, Err: errors.New("no RDMA here")},
		Fixed: []FixedDevice{{Provider: server.ProviderTCP, Device: "tcp0"}},
		Peers: []Peer{{Task: "x", Fixed: []FixedReached{{"shm", lacks}, {"tcp", lacks}}}, {Task: "y", Fixed: []FixedReached{{"shm", Reached{Err: errors.New("two hosts")}}, {"tcp", Reached{}}}}},
	}
	r := Examine(f)
	if r.Worst() != OK {
		t.Errorf("it is %v: %+v", r.Worst(), r)
	}
	for check, text := range map[string]string{
		"kernel": "the other devices and gRPC need none", "routes": "that works: tcp; over gRPC if there is none",
		"peer x": "it does not serve verbs, so its tensors come over gRPC", "peer y": "first of these that works: tcp",
	} {
		if len(lines(r, check, text)) != 1 {
			t.Errorf("no line of %s says %q: %+v", check, text, r)
		}
	}
	f.Want.Device = "mlx5_0"
	if worst := Examine(f).Worst(); worst != Warn {
		t.Errorf("with a device that is named it is %v", worst)
	}
}

// TestAutoReachesPeersOverEachDevice: with auto, and without the fallback as with verbs, peers are tried over each device.
func TestAutoReachesPeersOverEachDevice(t *testing.T) {
	for _, c := range []struct {
		transport, fallback string
		reaches, required   bool
	}{{"auto", "", true, false}, {"auto", "none", true, true}, {"verbs", "", true, true}, {"grpc", "", false, false}} {
		o := Options{Client: server.Config{Transport: c.transport, Fallback: c.fallback}}.OnThisHost()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		f := Gather(ctx, o)
		if reaches := o.Fixed[0].Reach != nil; reaches != c.reaches || f.Required != c.required || f.Auto != (c.transport == "auto" && !c.required) {
			t.Errorf("%+v: reaches peers: %v, required %v, auto %v", c, reaches, f.Required, f.Auto)
		}
	}
}
