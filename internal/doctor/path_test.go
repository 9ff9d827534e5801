package doctor

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/internal/discovery"
	"github.com/tryst-rdma/tryst/server"
	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/roce"
	"github.com/tryst-rdma/tryst/verbs/verbstest"
)

// lines returns the lines of a report about a check that contain words.
func lines(r Report, check, words string) (found Report) {
	for _, l := range r {
		if strings.HasPrefix(l.Check, check) && strings.Contains(l.Text, words) {
			found = append(found, l)
		}
	}
	return found
}

// TestPathsSayWhatToExpect: round trip and loss, what to expect of it, and how bad that is.
func TestPathsSayWhatToExpect(t *testing.T) {
	path := func(device string, sent, lost uint64, expect float64) *server.Measured {
		m := &server.Measured{Device: device, Echoes: 100, Min: 2 * time.Millisecond, Median: 2100 * time.Microsecond, P99: 5 * time.Millisecond, Sent: sent, Lost: lost, Expect: expect, Do: "find it"}
		if device != "" {
			m.Provider = roce.Name
		}
		return m
	}
	for _, tt := range []struct {
		name  string
		path  *server.Measured
		level Level
		text  string
	}{
		{"clean", path("roce-eth0", 4000, 0, 100e6), OK, "median 2.1ms, min 2ms, p99 5ms of 100 messages, by roce-eth0; none of 4000 packets to it was lost: expect about 100 MB/s at a round trip of 2ms"},
		{"loss", path("roce-eth0", 4000, 20, 9.7e6), Warn, "0.50 % of packets to it were lost (20 of 4000): expect about 9.7 MB/s at a round trip of 2ms"},
		{"a late acknowledgement", path("roce-eth0", 4000, 2, 90e6), OK, "0.05 %"},
		{"much loss", path("roce-eth0", 4000, 500, 1.4e6), Fail, "12.50 %"},
		{"nearly nothing", path("roce-eth0", 4000, 200, 0.5e6), Fail, "expect about 0.5 MB/s"},
		{"tcp", path("", 3000, 15, 12.5e6), Warn, "over gRPC: median 2.1ms, min 2ms, p99 5ms of 100 messages; 0.50 % of packets to it were lost (15 of 3000): expect about 12 MB/s at a round trip of 2ms at most"},
		{"TCP on a busy host", path("", 222, 3, 28890e6), OK, "1.35 % of packets to it were lost (3 of 222)"},
		{"TCP on a very busy host", path("", 222, 23, 9000e6), OK, "(23 of 222)"},
		{"few probes of TCP", path("", 1500, 4, 17e6), OK, "(4 of 1500)"},
		{"no counters", path("mlx5_0", 0, 0, 0), OK, "the packets are not counted"},
	} {
		p := Peer{Task: "x", GRPC: Reached{Path: tt.path}}
		if tt.path.Device != "" {
			p = Peer{Task: "x", Verbs: &Reached{Path: tt.path}}
		}
		got := lines(Examine(Facts{Peers: []Peer{p}, NoDiscovery: errors.New("not looked for")}), "peer x", "round trip")
		if len(got) != 1 || got[0].Level != tt.level || !strings.Contains(got[0].Text, tt.text) || (got[0].Do != "") != (tt.level != OK) {
			t.Errorf("%s: %+v; want %v: %s", tt.name, got, tt.level, tt.text)
			continue
		}
		if tt.path.Device == "" && tt.level == OK && strings.Contains(got[0].Text, "expect") {
			t.Errorf("%s: it says what to expect of no loss: %s", tt.name, got[0].Text)
		}
	}
}

// TestPathsAreMeasured: over gRPC and by the device in user space, also to a server that only an
// address names.
func TestPathsAreMeasured(t *testing.T) {
	cfg := server.Config{}
	cfg.Transport, cfg.Provider, cfg.Listen = "verbs", "roce", "127.0.0.1:0"
	cfg.RDMA.Arena, cfg.RDMA.ArenaLimit = 4<<20, 64<<20
	address := start(t, cfg, server.Options{})
	f := Gather(t.Context(), Options{Client: cfg, From: address, NoSystem: errors.New("not looked for"), ReachVerbs: ReachVerbs(cfg, server.Options{}, false)})
	if len(f.Peers) != 1 || f.Peers[0].Verbs == nil {
		t.Fatalf("%+v", f.Peers)
	}
	for transport, r := range map[string]Reached{"gRPC": f.Peers[0].GRPC, "RDMA": *f.Peers[0].Verbs} {
		m := r.Path
		if r.Err != nil || r.Unmeasured != nil || m == nil {
			t.Errorf("%s: %+v", transport, r)
			continue
		}
		// On a slow machine the measurement ends after ten large messages.
		if m.Echoes < 10 || m.Min <= 0 || m.Median < m.Min || m.P99 < m.Median || transport == "RDMA" && (m.Device != "roce-lo" || m.Sent < 200 || m.Expect < 1e6) {
			t.Errorf("%s: %+v", transport, m)
		}
	}
}

// TestAPeerWithoutADeviceIsToldApart: it serves verbs and has no device for now, which is no
// fault of the network, and known soon.
func TestAPeerWithoutADeviceIsToldApart(t *testing.T) {
	fabric := verbstest.NewFabric(verbstest.Options{})
	t.Cleanup(fabric.Close)
	cfg := server.Config{}
	cfg.Transport, cfg.Listen = "verbs", nobody(t)
	cfg.RDMA.Arena, cfg.RDMA.ArenaLimit = 4<<20, 64<<20
	cfg.Cluster = map[string][]string{"worker": {cfg.Listen}}
	host := fabric.Provider("server")
	fabric.Host("server").NIC("mem0").PortDown(1)
	start(t, cfg, server.Options{Provider: host})
	client := verbsOn("")
	client.Cluster = cfg.Cluster
	o := Options{Client: client, NoSystem: errors.New("not looked for"), ReachVerbs: ReachVerbs(client, server.Options{Provider: fabric.Provider("doctor")}, false)}
	begin := time.Now()
	f := Gather(t.Context(), o)
	if took := time.Since(begin); took > probeTimeout {
		t.Errorf("it takes %v", took)
	}
	got := lines(Examine(f), "peer", "it has no verbs for now")
	if len(got) != 1 || got[0].Level != Warn || !strings.Contains(got[0].Do, "on its host") || strings.Contains(got[0].Do, "firewall") {
		t.Errorf("%+v", got)
	}
	f.NoFallback, f.Required = true, true
	if got := lines(Examine(f), "peer", "it has no verbs for now"); len(got) != 1 || got[0].Level != Fail {
		t.Errorf("without the fallback: %+v", got)
	}
}

// selecting is a device that closes.
type selecting struct{ verbs.Device }

func (selecting) Close() error { return nil }

type roceProvider struct{ verbs.Provider }

func (roceProvider) Name() string { return roce.Name }

// TestTheDeviceOfAPullIsExamined: the report is about the device that a process would take
// (server.SelectFor), and names no other one as its own.
func TestTheDeviceOfAPullIsExamined(t *testing.T) {
	o := softly(Options{Client: roceOn(""), NoSystem: errors.New("not looked for")}, Sockets{Buffer: 1 << 20})
	inv, _ := o.Software.Inventory()
	for _, device := range []string{"roce-lo", "roce-eth0"} {
		choice, err := discovery.Choose(inv, discovery.Want{Device: device})
		if err != nil {
			t.Fatal(err)
		}
		o.Select = func(context.Context) (server.Selection, error) {
			return server.Selection{Provider: roceProvider{}, Device: selecting{}, Choice: choice, Why: "of the test"}, nil
		}
		r := Examine(Gather(t.Context(), o))
		if got := lines(r, "device", device+" port 1"); len(got) != 1 || got[0].Level != OK {
			t.Errorf("%s: no line names the device of a pull: %+v", device, r)
		}
		if got := lines(r, "roce", device+" port 1, GID"); len(got) != 1 {
			t.Errorf("%s: another device was examined: %+v", device, r)
		}
		if got := lines(r, "provider", "of the test"); len(got) != 1 {
			t.Errorf("%s: %+v", device, r)
		}
	}
	o.Select = func(context.Context) (server.Selection, error) {
		return server.Selection{}, errors.New("no port is active")
	}
	if got := lines(Examine(Gather(t.Context(), o)), "device", "no port is active"); len(got) != 1 || got[0].Level != Fail {
		t.Errorf("without a device: %+v", got)
	}
}
