package roce

import (
	"net/netip"
	"testing"
	"testing/synctest"
)

// TestUnresponsivePeerDelaysNoOthers: a queue pair whose peer is gone does not occupy
// the shared window once its retransmission timer has fired.
func TestUnresponsivePeerDelaysNoOthers(t *testing.T) {
	const size = 256 << 10
	run := func(silent bool) (moved int) {
		synctest.Test(t, func(t *testing.T) {
			f := newFabric()
			f.bandwidth = 1 << 30
			list := pairsBetween(t, 2, size, newProvider(Options{Senders: 1}, f.host(hostA)), newProvider(Options{}, f.host(hostB)), "roce-eth0",
				netip.MustParseAddr(hostA), netip.MustParseAddr(hostB))
			if silent {
				if err := list[1].y.qp.Close(); err != nil {
					t.Fatal(err)
				}
				for range streamDepth {
					list[1].write()
				}
			}
			moved = runStreams(t, 2*firstRTO, virtualTime, list[0])[0]
		})
		return moved
	}
	alone, beside := run(false), run(true)
	t.Logf("alone it moves %d MB, next to one whose peer is gone %d MB", alone>>20, beside>>20)
	if beside < alone*8/10 {
		t.Error("it moves less than 0.8 of what it does alone")
	}
}
