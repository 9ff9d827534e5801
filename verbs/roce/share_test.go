package roce

import (
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tryst-rdma/tryst/internal/rocewire"
	"github.com/tryst-rdma/tryst/verbs"
)

// TestWindowsShareABuffer: all flows to one receiving socket share its buffer.
func TestWindowsShareABuffer(t *testing.T) {
	const buffer = 256 << 10
	w := newWindow(buffer, 4096)
	w.onAck(buffer, true)
	for _, c := range []struct{ among, limit uint64 }{{1, buffer}, {4, buffer / 4}, {2, buffer / 2}, {0, buffer}, {1 << 20, w.min}} {
		if w.share(c.among); w.limit != c.limit || w.size > w.limit {
			t.Errorf("one of %d windows is %d of at most %d, want at most %d", c.among, w.size, w.limit, c.limit)
		}
	}
	if w.share(1); w.size != w.min {
		t.Errorf("the window is %d at once, and has to grow again", w.size)
	}
}

// TestFlowsToOnePeerAreCounted.
func TestFlowsToOnePeerAreCounted(t *testing.T) {
	q, ok := nativeStreams(t, defaultSenders+1, 4096, New(Options{}), New(Options{}))[0].x.qp.(*qp)
	if !ok {
		t.Fatal("another kind of queue pair")
	}
	s := q.endpoint
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.flows); n != defaultSenders || len(s.peers) != 1 || s.peers[onlyKey(s)].flows.Load() != defaultSenders {
		t.Errorf("%d flows to %d peers, want %d to one", n, len(s.peers), defaultSenders)
	}
}

// TestTimeOfAFlow: it is the same for queue pairs of all opened devices.
func TestTimeOfAFlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		p, q := newProvider(Options{Senders: 1}, f.host(hostA)), newProvider(Options{}, f.host(hostB))
		var list []*qp
		for range 2 {
			s := pairsBetween(t, 1, 64, p, q, "roce-eth0", netip.MustParseAddr(hostA), netip.MustParseAddr(hostB))[0]
			x, _ := s.x.inner()
			list = append(list, x)
			time.Sleep(time.Second)
		}
		fl := list[0].flow.Load()
		if fl != list[1].flow.Load() {
			t.Fatal("there are two flows")
		}
		for i, x := range list {
			if at := fl.at(x, x.pd.dev.now()); at != 2*time.Second {
				t.Errorf("by queue pair %d it is %v, and the flow is 2 s old", i, at)
			}
		}
	})
}

// TestNoSillyWindow: an ACK that frees little space in a full window must not trigger a
// single packet, whose ACK would free as little.
func TestNoSillyWindow(t *testing.T) {
	list := nativeStreams(t, 1, 1<<20, New(Options{}), New(Options{}))
	runStreams(t, 0, nativeTime, list...)
	d, ok := list[0].x.dev.(verbs.CounterReader)
	if !ok {
		t.Fatal("the device does not count")
	}
	c, err := d.Counters(onlyPort)
	if err != nil {
		t.Fatal(err)
	}
	share := float64(c["rcvd_pkts"]) / float64(c["sent_pkts"])
	t.Logf("%d packets, of the peer %d: %.2f", c["sent_pkts"], c["rcvd_pkts"], share)
	if c["sent_pkts"] > 10_000 && share > 0.4 {
		t.Error("there is an acknowledgement for nearly every packet")
	}
}

func onlyKey(s *endpoint) (at netip.AddrPort) {
	for at = range s.peers {
	}
	return at
}

// TestQueuePairKeepsItsSourcePort: so its packets take one path through the network, in
// order.
func TestQueuePairKeepsItsSourcePort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		list := pairsBetween(t, 2*defaultSenders, 64<<10, newProvider(Options{}, f.host(hostA)), newProvider(Options{}, f.host(hostB)), "roce-eth0",
			netip.MustParseAddr(hostA), netip.MustParseAddr(hostB))
		sources := make(map[verbs.QPN]map[netip.AddrPort]bool)
		ports := make(map[netip.AddrPort]bool)
		f.see = func(from, _ netip.AddrPort, _ int, b []byte) {
			var h rocewire.Header
			if _, err := h.Decode(b); err != nil || from.Addr() != list[0].x.addr {
				return
			}
			if sources[h.DestQP] == nil {
				sources[h.DestQP] = make(map[netip.AddrPort]bool)
			}
			sources[h.DestQP][from], ports[from] = true, true
		}
		for _, s := range list {
			for range streamDepth {
				s.write()
			}
		}
		for _, s := range list {
			for range streamDepth {
				s.x.ends(0, verbs.StatusOK)
			}
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		if len(sources) != len(list) || len(ports) != defaultSenders {
			t.Errorf("%d queue pairs sent from %d ports", len(sources), len(ports))
		}
		for n, from := range sources {
			if len(from) != 1 {
				t.Errorf("what is for %v came from %d ports", n, len(from))
			}
		}
	})
}

// TestNumbersAreRandom: keys, queue pair numbers and addresses of a device neither
// begin at a fixed value nor count up.
func TestNumbersAreRandom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		seen := make(map[string]map[uint64]bool)
		steps := make(map[string]map[uint64]bool)
		last := make(map[string]uint64)
		note := func(what string, n uint64) {
			if seen[what] == nil {
				seen[what], steps[what] = make(map[uint64]bool), make(map[uint64]bool)
			}
			seen[what][n], steps[what][n-last[what]] = true, true
			last[what] = n
		}
		const openings = 16
		for i := range openings {
			x := newTestEnd(t, newProvider(Options{}, f.host(fmt.Sprintf("10.0.%d.1", i))), "roce-eth0", netip.MustParseAddr(fmt.Sprintf("10.0.%d.1", i)), 4096)
			note("QPN", uint64(x.qp.QPN()))
			note("LKey", uint64(x.mr.LKey()))
			note("RKey", uint64(x.mr.RKey()))
			note("address", x.mr.Addr())
			note("PSN", uint64(verbs.RandomPSN()))
		}
		for what := range seen {
			if len(seen[what]) < openings-1 || len(steps[what]) < openings-1 { // a value may occur twice by chance
				t.Errorf("%s: %d of %d openings differ, by %d steps", what, len(seen[what]), openings, len(steps[what]))
			}
		}
	})
}
