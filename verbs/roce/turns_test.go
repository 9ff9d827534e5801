package roce

import (
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/roce/wire"
)

// TestTurnsAreFairToAllLengths: queue pairs that all have something to send get the
// same part of the window, whatever the length of their packets.
func TestTurnsAreFairToAllLengths(t *testing.T) {
	sizes := []int{8, 300, 64 << 10, 1000, 4096}
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		f.latency = 100 * time.Microsecond
		list := pairsBetween(t, len(sizes), 64<<10, newProvider(Options{Senders: 1}, f.host(hostA)), newProvider(Options{}, f.host(hostB)), "roce-eth0",
			netip.MustParseAddr(hostA), netip.MustParseAddr(hostB))
		number := make(map[verbs.QPN]int)
		for i, s := range list {
			s.size = sizes[i]
			number[s.y.qp.QPN()] = i
		}
		sent := make([]uint64, len(list))
		f.mu.Lock()
		f.see = func(sender, _ netip.AddrPort, _ int, b []byte) {
			var h wire.Header
			if payload, err := h.Decode(b); err == nil && sender.Addr() == list[0].x.addr {
				sent[number[h.DestQP]] += charge(1, uint64(len(payload)))
			}
		}
		f.mu.Unlock()
		stop := make(chan struct{})
		ended := make(chan struct{})
		for _, s := range list {
			depth := max(streamDepth, min(tipDepth-1, 256<<10/s.size)) // more than a window
			for range depth {
				s.write()
			}
			go func() {
				for n := depth; n > 0; n-- {
					s.x.wait()
					select {
					case <-stop:
					default:
						s.write()
						n++
					}
				}
				ended <- struct{}{}
			}()
		}
		time.Sleep(20 * time.Millisecond)
		f.mu.Lock()
		clear(sent)
		f.mu.Unlock()
		time.Sleep(virtualTime)
		f.mu.Lock()
		got := slices.Clone(sent)
		f.mu.Unlock()
		close(stop)
		for range list {
			<-ended
		}
		least, most := slices.Min(got), slices.Max(got)
		t.Logf("messages of %d bytes: %d; the least has %.2f of the most", sizes, got, float64(least)/float64(most))
		if least < most*9/10 {
			t.Error("that is less than 0.9")
		}
	})
}
