package doctor

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

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
	works := Reached{Path: &server.Measured{Device: "shm0", Provider: config.ProviderShm, Echoes: 100, Median: 20 * time.Microsecond}, Rate: 4.2e9}
	refused := status.New(status.FailedPrecondition, "they run on two hosts")
	for name, c := range map[string]struct {
		facts Facts
		check string
		text  string
		level Level
	}{
		"a device": {Facts{Others: []Other{{Provider: "tcp", Device: "tcp0"}}}, "tcp", "tcp0 works: queue pairs over TCP", OK},
		"a device that auto does without": {Facts{Required: true, Others: []Other{{Provider: "shm", Err: errors.New("no memfd here")}}},
			"shm", "shared memory cannot be used: no memfd here", Warn},
		"a device that was named": {Facts{Required: true, Others: []Other{{Provider: "shm", Named: true, Err: errors.New("no memfd here")}}},
			"shm", "the setting provider names it: no memfd here", Fail},
		"a route":        {Facts{Peers: []Peer{{Task: "x", Others: []OtherReached{{"shm", works}}}}}, peer, "bandwidth over shared memory: 4.20 GB/s", OK},
		"its round trip": {Facts{Peers: []Peer{{Task: "x", Others: []OtherReached{{"shm", works}}}}}, peer, "round trip over shared memory: median 20µs", OK},
		"a route beside another": {Facts{Required: true, Peers: []Peer{{Task: "x", Others: []OtherReached{{"shm", Reached{Err: refused}}, {"tcp", works}}}}},
			peer, "not over shared memory: FailedPrecondition: they run on two hosts", OK},
		"RDMA beside another": {Facts{Required: true, Provider: config.ProviderRoCE, Peers: []Peer{{Task: "x", Verbs: &Reached{Err: refused}, Others: []OtherReached{{"tcp", works}}}}},
			peer, "not by RDMA: FailedPrecondition: they run on two hosts", OK},
		"no route": {Facts{Required: true, Peers: []Peer{{Task: "x", Others: []OtherReached{{"tcp", Reached{Err: refused}}}}}},
			peer, "it cannot be reached over TCP: FailedPrecondition: they run on two hosts", Fail},
		"nothing to pull": {Facts{Peers: []Peer{{Task: "x", Others: []OtherReached{{"tcp", Reached{NoRate: errors.New("it publishes nothing")}}}}}},
			peer, "the bandwidth over TCP could not be measured: it publishes nothing", Warn},
	} {
		got := lines(Examine(c.facts), c.check, c.text)
		if len(got) != 1 || got[0].Level != c.level || (got[0].Do == "") != (c.level == OK) {
			t.Errorf("%s: %+v, want one %v with %q in\n%+v", name, got, c.level, c.text, Examine(c.facts))
		}
	}
}

// TestOthersReplaceRDMA: a host without RDMA lacks nothing while another device works.
func TestOthersReplaceRDMA(t *testing.T) {
	f := Facts{Required: true, Provider: config.ProviderAuto, NoDiscovery: errors.New("no RDMA here")}
	if Examine(f).Worst() != Fail {
		t.Error("missing RDMA is no FAIL")
	}
	f.Others = []Other{{Provider: config.ProviderTCP, Device: "tcp0"}}
	if worst := Examine(f).Worst(); worst != Warn {
		t.Errorf("with tcp it is %v", worst)
	}
	f.Provider = ""
	if worst := Examine(f).Worst(); worst != OK {
		t.Errorf("with tcp alone it is %v: %+v", worst, Examine(f))
	}
}

// TestMeasuresEachRoute: over TCP and shared memory the doctor reaches a real server by that device
// alone, and pulls some of what it publishes.
func TestMeasuresEachRoute(t *testing.T) {
	cfg := config.Default()
	cfg.Listen, cfg.Transport, cfg.Arena, cfg.ArenaLimit = "127.0.0.1:0", "verbs", 4<<20, 64<<20
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
	if _, err := s.Catalog().PublishTensors("m", x.Named("w [1]")); err != nil {
		t.Fatal(err)
	}
	o := Options{Client: cfg.Client, From: s.Addr().String(), Measure: true}.OnThisHost()
	o.NoSystem = errors.New("not looked for")
	f := Gather(t.Context(), o)
	if len(f.Peers) != 1 || len(f.Peers[0].Others) != len(strings.Split(cfg.Provider, ",")) || f.Peers[0].GRPC.Rate <= 0 {
		t.Fatalf("%+v", f.Peers)
	}
	for _, r := range f.Peers[0].Others {
		if r.Err != nil || r.NoRate != nil || r.Rate <= 0 || r.Path == nil || r.Path.Provider != r.Provider {
			t.Errorf("%s: %+v", r.Provider, r.Reached)
		}
	}
	if worst := Examine(f).Worst(); worst == Fail {
		t.Errorf("%+v", Examine(f))
	}
}
