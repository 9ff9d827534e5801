package loss

import (
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/devices"
	"github.com/tryst-rdma/tryst/internal/discovery"
	"github.com/tryst-rdma/tryst/internal/logtest"
	"github.com/tryst-rdma/tryst/internal/providers"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/roce"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// readings makes readings of a device in user space with one path.
type readings struct {
	at   time.Time
	path verbs.PathStats
	drop uint64
}

func (r *readings) next(after time.Duration, sent, lost uint64) Reading {
	r.at = r.at.Add(after)
	r.path.Peer = netip.MustParseAddrPort("10.0.0.2:4791")
	r.path.RoundTrip = 2 * time.Millisecond
	r.path.Sent, r.path.Lost = r.path.Sent+sent, r.path.Lost+lost
	r.path.Received += sent
	roceRow, _ := providers.Of(roce.Name)
	return Reading{
		at: r.at, throughput: roceRow.Throughput, Software: true, choice: discovery.Choice{Device: "roce-eth0", Port: 1, MTU: verbs.MTU1024, Link: verbs.LinkEthernet},
		Counters: map[string]uint64{
			"sent_pkts": r.path.Sent, "resent_pkts": 0, "rcvd_seq_err": r.path.Lost, "rcvd_pkts": r.path.Received, "dropped_buffer_full": r.drop,
		},
		Paths: []verbs.PathStats{r.path},
	}
}

// TestLossIsReportedOncePerKind: with the rate, the time, the device, the peer and what to
// expect; again only when it is of another kind, or after an hour.
func TestLossIsReportedOncePerKind(t *testing.T) {
	var j judge
	r := readings{at: time.Now()}
	j.begin(r.next(0, 0, 0))
	got := j.observe(r.next(interval, 20_000, 100))
	if len(got) != 1 {
		t.Fatalf("%d findings: %+v", len(got), got)
	}
	f := got[0]
	if f.kind != "sent" || f.rate() != 0.005 || f.over != interval || f.device != "roce-eth0 port 1" || f.peer != r.path.Peer ||
		f.roundTrip != 2*time.Millisecond || f.expect != roce.Throughput(verbs.MTU1024, 2*time.Millisecond, 0.005, 0) || f.do == "" {
		t.Errorf("%+v", f)
	}
	for range 100 {
		if got := j.observe(r.next(interval, 20_000, 100)); len(got) > 0 {
			t.Fatalf("the same again: %+v", got)
		}
	}
	r.drop += 50
	if got := j.observe(r.next(interval, 20_000, 100)); len(got) != 1 || got[0].kind != "buffer_full" || !strings.Contains(got[0].do, "rmem_max") {
		t.Errorf("another kind: %+v", got)
	}
	if got := j.observe(r.next(warnPause, 20_000, 100)); len(got) != 1 || got[0].kind != "sent" {
		t.Errorf("after an hour: %+v", got)
	}
}

// TestLossToAnotherPeerIsReported: within the hour after the first warning. Another port is no other
// peer.
func TestLossToAnotherPeerIsReported(t *testing.T) {
	var j judge
	r := readings{at: time.Now()}
	peer := func(address string, lost uint64) Reading {
		now := r.next(interval, 20_000, lost)
		now.Paths[0].Peer = netip.MustParseAddrPort(address)
		return now
	}
	j.begin(peer("10.0.0.2:4791", 0))
	for i, c := range []struct {
		peer string
		want int
	}{{"10.0.0.2:4791", 1}, {"10.0.0.3:4791", 1}, {"10.0.0.3:5000", 0}, {"10.0.0.2:4791", 0}} {
		if got := j.observe(peer(c.peer, 100)); len(got) != c.want {
			t.Errorf("%d: loss to %s: %d findings, want %d: %+v", i, c.peer, len(got), c.want, got)
		}
	}
	if j.observe(r.next(warnPause, 0, 0)); len(j.warned) != 0 {
		t.Errorf("kept after an hour: %v", j.warned)
	}
}

// TestLittleLossIsNotReported: below the rate, or a single burst. What comes slowly counts
// together, for a minute.
func TestLittleLossIsNotReported(t *testing.T) {
	for _, c := range []struct {
		name       string
		sent, lost uint64 // in each interval
		after      int    // intervals until it is reported; 0 for never
	}{
		{"none", 20_000, 0, 0},
		{"half of the rate", 100_000, 24, 0},
		{"the rate", 100_000, 51, 1},
		{"a slow path", 500, 3, 4},
		{"too few in a minute", 100, 0, 0},
	} {
		var j judge
		r := readings{at: time.Now()}
		j.begin(r.next(0, 0, 0))
		if c.name == "too few in a minute" {
			r.path.Lost += leastLosses - 1
		}
		first := 0
		for i := range 30 {
			if got := j.observe(r.next(interval, c.sent, c.lost)); len(got) > 0 && first == 0 {
				first = i + 1
			}
		}
		if first != c.after {
			t.Errorf("%s: reported after %d readings, want %d", c.name, first, c.after)
		}
	}
}

// TestLateAcknowledgementsAreNoLoss: a busy host causes timeouts of roce, and loses nothing.
func TestLateAcknowledgementsAreNoLoss(t *testing.T) {
	var j judge
	r := readings{at: time.Now()}
	j.begin(r.next(0, 0, 0))
	now := r.next(interval, 2000, 0)
	now.Counters["completer_retry_err"] = 50
	if got := j.observe(now); len(got) > 0 {
		t.Errorf("%+v", got)
	}
}

// TestWarningsOfLossAreDocumented: docs/warnings.md has each, which archtest cannot see.
func TestWarningsOfLossAreDocumented(t *testing.T) {
	document, err := os.ReadFile("../../docs/warnings.md")
	if err != nil {
		t.Fatal(err)
	}
	tcp, _ := tcpFinding(nil, []Conn{{id: 1, sent: 100, resent: 10, MSS: 1448}})
	texts := []string{tcp.what}
	for _, k := range kinds {
		texts = append(texts, k.text)
	}
	for _, text := range texts {
		if !strings.Contains(string(document), "`"+text+"`") {
			t.Errorf("docs/warnings.md does not have %q", text)
		}
	}
}

// TestTheWorstPathIsReported: many peers without loss do not hide one with it.
func TestTheWorstPathIsReported(t *testing.T) {
	var j judge
	r := readings{at: time.Now()}
	j.begin(r.next(0, 0, 0))
	now := r.next(interval, 2000, 20)
	now.Counters["sent_pkts"] = 10_000_000
	now.Paths = append(now.Paths, verbs.PathStats{Peer: netip.MustParseAddrPort("10.0.0.3:4791"), Sent: 9_998_000})
	if got := j.observe(now); len(got) != 1 || got[0].peer != r.path.Peer || got[0].rate() != 0.01 {
		t.Errorf("%+v", got)
	}
}

// TestLossOfKernelDevices: by the counters of the driver; without a count of packets, many losses.
func TestLossOfKernelDevices(t *testing.T) {
	reading := func(at time.Time, counters map[string]uint64) Reading {
		return Reading{at: at, Counters: counters, choice: discovery.Choice{Device: "mlx5_0", Port: 1, MTU: verbs.MTU4096, Link: verbs.LinkEthernet}}
	}
	for _, c := range []struct {
		name     string
		counters map[string]uint64
		want     string // kinds
	}{
		{"sequence errors", map[string]uint64{"packet_seq_err": 20, "port_xmit_packets": 10_000}, "sent"},
		{"timeouts", map[string]uint64{"local_ack_timeout_err": 20, "port_xmit_packets": 10_000}, "sent"},
		{"out of sequence", map[string]uint64{"out_of_sequence": 20, "port_rcv_packets": 10_000}, "received"},
		{"RNR", map[string]uint64{"rnr_nak_retry_err": 20, "port_xmit_packets": 10_000}, "not_ready"},
		{"adaptive retransmissions", map[string]uint64{"roce_adp_retrans": 20, "port_xmit_packets": 10_000}, "sent"},
		{"rxe", map[string]uint64{"completer_retry_err": 20, "send_rnr_err": 20, "sent_pkts": 10_000}, "sent not_ready"},
		{"packets are not counted", map[string]uint64{"packet_seq_err": 150}, "sent"},
		{"packets are not counted, and few are lost", map[string]uint64{"packet_seq_err": 50}, ""},
		{"congestion marks", map[string]uint64{"rp_cnp_handled": 500, "port_xmit_packets": 10_000}, ""},
	} {
		var j judge
		now := time.Now()
		zero := make(map[string]uint64)
		for name := range c.counters {
			zero[name] = 0
		}
		j.begin(reading(now, zero))
		var kinds []string
		for _, f := range j.observe(reading(now.Add(interval), c.counters)) {
			if kinds = append(kinds, f.kind); f.do == "" {
				t.Errorf("%s: nothing to do", c.name)
			}
		}
		if got := strings.Join(kinds, " "); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// TestCountersThatCannotBeReadAreNoLoss: those of the next reading count from the start of the device.
func TestCountersThatCannotBeReadAreNoLoss(t *testing.T) {
	var j judge
	r := readings{at: time.Now()}
	r.path.Sent, r.path.Lost, r.drop = 1e9, 1e7, 1e7 // long ago
	first := r.next(0, 0, 0)
	j.begin(first)
	for i, counters := range []map[string]uint64{nil, {"sent_pkts": 1e9}, first.Counters, nil, first.Counters} {
		now := r.next(interval, 0, 0)
		now.Counters, now.Paths = counters, nil
		if got := j.observe(now); len(got) > 0 {
			t.Errorf("reading %d: %+v", i, got)
		}
	}
}

// TestTCPLossIsReported: only where the bound that follows from it is low.
func TestTCPLossIsReported(t *testing.T) {
	for _, c := range []struct {
		name      string
		roundTrip time.Duration
		resent    uint64
		want      int
	}{
		{"far", 2 * time.Millisecond, 50, 1}, {"near", 20 * time.Microsecond, 50, 0}, {"little", 20 * time.Millisecond, 9, 0}, {"none", 20 * time.Millisecond, 0, 0},
	} {
		var j judge
		now := time.Now()
		tcp := Conn{id: 1, peer: netip.MustParseAddrPort("10.0.0.2:2222"), sent: 100, resent: 50, MSS: 1448, roundTrip: c.roundTrip}
		j.begin(Reading{at: now, TCP: []Conn{tcp}})
		tcp.sent, tcp.resent = tcp.sent+10_000, tcp.resent+c.resent
		got := j.observe(Reading{at: now.Add(interval), TCP: []Conn{tcp}})
		if len(got) != c.want || c.want > 0 && (got[0].kind != tcpKind || got[0].rate() != 0.005 || got[0].peer != tcp.peer) {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}

// countingDevice is a device whose path loses packets, and that counts how often it is read.
type countingDevice struct {
	verbs.Device
	read func() []verbs.PathStats
}

func (d countingDevice) Paths() []verbs.PathStats { return d.read() }

type roceNamed struct{ verbs.Provider }

func (roceNamed) Name() string { return roce.Name }

// TestLossWatch: loss while there is traffic is one WARN with all that is known, and nothing is
// read while there is none.
func TestLossWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &logtest.Log{}
		w := NewWatch(log.Logger())
		defer w.Stop()
		var r readings
		var read atomic.Int64
		var reading atomic.Pointer[Reading]
		advance := func(sent, lost uint64) {
			now := r.next(0, sent, lost)
			reading.Store(&now)
		}
		advance(0, 0)
		to := r.path.Peer
		w.WatchDevice(Device{
			Current: func() (devices.Selection, bool) {
				now := reading.Load()
				return devices.Selection{Provider: roceNamed{}, Choice: now.choice, Device: countingDevice{read: func() []verbs.PathStats { return now.Paths }}}, true
			},
			Counters: func() (discovery.Choice, map[string]uint64) {
				read.Add(1)
				now := reading.Load()
				return now.choice, now.Counters
			},
			Connections: func() []verbstransport.Connection {
				return []verbstransport.Connection{{Task: cluster.Task{Job: "worker", Index: 3}, Verbs: true, Socket: to}}
			},
		})
		time.Sleep(time.Hour)
		if n := read.Load(); n != 0 {
			t.Errorf("%d readings before there is traffic", n)
		}
		// Readings are at multiples of interval from the first touch on, and packets come
		// between them.
		w.Touch()
		time.Sleep(interval / 4)
		for range 100 {
			w.Touch()
			advance(20_000, 100)
			time.Sleep(interval / 2)
		}
		const want = `level=WARN msg="packets to peers are lost" device="roce-eth0 port 1" peer=/job:worker/replica:0/task:3 lost="0.50 % (200 of 40000 packets in 5s)" expect="about 9.7 MB/s at a round trip of 2ms" do="find where`
		if log.Count("WARN") != 1 || log.Count(want) != 1 {
			t.Errorf("the log is\n%swant\n%s", log.String(), want)
		}
		time.Sleep(2 * interval)
		before := read.Load()
		time.Sleep(time.Hour)
		if n := read.Load() - before; n != 0 {
			t.Errorf("%d readings without traffic", n)
		}
		// A long transfer, in which no receive begins or ends, is traffic, too.
		w.Touch()
		time.Sleep(interval / 4)
		for range 3 * warnPause / interval {
			advance(20_000, 100)
			time.Sleep(interval / 2)
		}
		if got := log.Count("WARN"); got != 3 {
			t.Errorf("%d warnings, want one when it begins and another after an hour", got)
		}
	})
}
