package roce

import (
	"net/netip"
	"testing"
)

// TestWindowsShareABuffer: all flows to one receiving socket fill the same one.
func TestWindowsShareABuffer(t *testing.T) {
	w := newWindow(1<<20, 4096)
	w.onAck(1<<20, true)
	for _, c := range []struct{ among, limit uint64 }{{1, 1 << 20}, {4, 1 << 18}, {2, 1 << 19}, {0, 1 << 20}, {1 << 20, w.least}} {
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

func onlyKey(s *station) (at netip.AddrPort) {
	for at = range s.peers {
	}
	return at
}
