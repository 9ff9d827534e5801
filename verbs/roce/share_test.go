package roce

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
)

// TestWindowsShareABuffer: all flows to one receiving socket fill the same one.
func TestWindowsShareABuffer(t *testing.T) {
	const buffer = 256 << 10
	w := newWindow(buffer, 4096)
	w.onAck(buffer, true)
	for _, c := range []struct{ among, limit uint64 }{{1, buffer}, {4, buffer / 4}, {2, buffer / 2}, {0, buffer}, {1 << 20, w.least}} {
		if w.share(c.among); w.limit != c.limit || w.size > w.limit {
			t.Errorf("one of %d windows is %d of at most %d, want at most %d", c.among, w.size, w.limit, c.limit)
		}
	}
	if w.share(1); w.size != w.least {
		t.Errorf("the window is %d at once, and has to grow again", w.size)
	}
}

// TestFlowsToOnePeerAreCounted: by what they share.
func TestFlowsToOnePeerAreCounted(t *testing.T) {
	q, ok := nativeStreams(t, defaultSenders+1, 4096, New(Options{}), New(Options{}))[0].x.qp.(*qp)
	if !ok {
		t.Fatal("another kind of queue pair")
	}
	s := q.station
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.flows); n != defaultSenders || len(s.peers) != 1 || s.peers[onlyKey(s)].flows.Load() != defaultSenders {
		t.Errorf("%d flows to %d peers, want %d to one", n, len(s.peers), defaultSenders)
	}
}

// TestTimeOfAFlow: it is the same by the queue pairs of all openings of a device.
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

// TestFullWindowIsNotSilly: an acknowledgement that opens a full window by little lets
// no single packet go, whose acknowledgement would open it by as little.
func TestFullWindowIsNotSilly(t *testing.T) {
	list := nativeStreams(t, 1, 1<<20, New(Options{}), New(Options{}))
	runStreams(t, 0, nativeTime, list...)
	d, ok := list[0].x.dev.(verbs.Counted)
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

func onlyKey(s *station) (at netip.AddrPort) {
	for at = range s.peers {
	}
	return at
}
