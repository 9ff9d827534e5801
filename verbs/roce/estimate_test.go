package roce

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
)

// lossyStream is a stream over a path, and what both sides have counted of it.
type lossyStream struct {
	rate float64 // bytes a second
	x, y verbs.PathStats
}

func streamWith(t *testing.T, mtu verbs.MTU, rtt time.Duration, loss float64) (s lossyStream) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		f.latency, f.loss, f.buffer = rtt/2, loss, 1<<20
		x, y := f.pair(t, 1<<20)
		joinEnds(x, y, func(p *verbs.Path, _ *verbs.Endpoint) { p.MTU = mtu })
		const size = 256 << 10
		begin, n := time.Now(), 0
		for ; n < 80; n++ {
			if n < 4 {
				x.post(x.to(y, 1, verbs.OpWrite, 0, size, 0))
			}
			x.post(x.to(y, 1, verbs.OpWrite, 0, size, 0))
			x.ends(1, verbs.StatusOK)
		}
		s.rate = float64(n*size) / time.Since(begin).Seconds()
		for range 4 {
			x.ends(1, verbs.StatusOK)
		}
		s.x, s.y = pathOf(t, x.dev), pathOf(t, y.dev)
	})
	return s
}

// pathOf returns the counters of a device's only path.
func pathOf(t *testing.T, d verbs.Device) verbs.PathStats {
	t.Helper()
	r, ok := d.(verbs.PathReader)
	if !ok {
		t.Fatal("it does not count by peer")
	}
	all := r.Paths()
	if len(all) != 1 {
		t.Fatalf("there are %d paths: %+v", len(all), all)
	}
	return all[0]
}

// TestThroughput: the estimate is within a factor of two of what streams on a network with
// loss and delay reach, and of a pull that was measured between two hosts.
func TestThroughput(t *testing.T) {
	within := func(what string, got, want float64) {
		t.Helper()
		t.Logf("%s: %.1f MB/s, estimated %.1f", what, want/1e6, got/1e6)
		if got > 2*want || got < want/2 {
			t.Errorf("%s: %.1f MB/s are estimated, and it is %.1f", what, got/1e6, want/1e6)
		}
	}
	for _, c := range []struct {
		mtu  verbs.MTU
		rtt  time.Duration
		loss float64
	}{
		{1024, 2 * ms, 0.005}, {1024, 2 * ms, 0}, {1024, 100 * time.Microsecond, 0.03}, {1024, 10 * ms, 0.01},
		{4096, 2 * ms, 0.005}, {4096, 500 * time.Microsecond, 0.001}, {4096, 10 * ms, 0.02},
	} {
		s := streamWith(t, c.mtu, c.rtt, c.loss)
		within(fmt.Sprintf("MTU %d, %v, %.1f %%", int(c.mtu), c.rtt, 100*c.loss), Throughput(c.mtu, c.rtt, c.loss, 0), s.rate)
	}
	within("the pull", Throughput(1024, 2*ms, 0.005, 0), 5.4e6)
}

// TestPathsCountLossByPeer: both sides count the losses of a path, and its round trip.
func TestPathsCountLossByPeer(t *testing.T) {
	const loss = 0.01
	s := streamWith(t, 1024, 2*ms, loss)
	if got := float64(s.x.Lost) / float64(s.x.Sent); got < loss/2 || got > 2*loss {
		t.Errorf("the sender counts %d of %d packets as lost: %.2f %%", s.x.Lost, s.x.Sent, 100*got)
	}
	if got := float64(s.y.Missing) / float64(s.x.Sent); got < loss/2 || got > 2*loss {
		t.Errorf("the receiver counts %d gaps in %d packets: %.2f %%", s.y.Missing, s.x.Sent, 100*got)
	}
	if s.x.Resent < s.x.Lost || s.x.RoundTrip < 2*ms || s.x.RoundTrip > 4*ms || s.y.Received == 0 {
		t.Errorf("%+v and %+v", s.x, s.y)
	}
	if s := streamWith(t, 1024, 2*ms, 0); s.x.Lost+s.x.Resent+s.y.Missing != 0 {
		t.Errorf("without loss: %+v and %+v", s.x, s.y)
	}
}

// TestDropsOfAFullBufferAreCounted: what the own receive buffer had no space for is a counter
// of the device.
func TestDropsOfAFullBufferAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		f.bandwidth = 1 << 20
		x, y := f.pair(t, 1<<20)
		f.buffer = 16 << 10 // less than the peer was told
		joinEnds(x, y, func(_ *verbs.Path, e *verbs.Endpoint) { e.UDP.Buffer = 1 << 20 })
		x.post(x.to(y, 1, verbs.OpWrite, 0, 1<<20, 0))
		x.ends(1, verbs.StatusOK)
		r, _ := y.dev.(verbs.CounterReader)
		if c := must(r.Counters(onlyPort))(t); c["dropped_buffer_full"] == 0 {
			t.Errorf("none is counted: %v", c)
		}
	})
}
