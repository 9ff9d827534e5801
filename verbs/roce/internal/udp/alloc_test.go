//go:build !race

package udp

import (
	"net/netip"
	"testing"
)

// Neither packets nor calls allocate. (With the race detector, sync.Pool, in which
// x/net keeps its headers, drops items on purpose.)
func TestNoAllocation(t *testing.T) {
	eachMode(t, func(t *testing.T, addr netip.Addr, opts []Option) {
		r, s := ends(t, addr, opts...)
		bound(t, r)
		to := NewDestination(r.Addr())
		header, payload := pattern(16), pattern(4096)
		var buffers [][]byte
		for range 4 {
			buffers = append(buffers, header, payload)
		}
		msgs := []Message{
			{To: to, Segment: 4112, TOS: 2, Buffers: buffers},
			{To: to, TOS: 1, Buffers: buffers[:1]},
			{To: to, Buffers: buffers[:2]},
		}
		b := NewBatch()
		const want = 4*4112 + 16 + 4112
		if n := testing.AllocsPerRun(100, func() {
			if n, err := s.Send(msgs); n != len(msgs) || err != nil {
				t.Error(n, err)
			}
			for got := 0; got < want; {
				if err := r.Receive(b, nil); err != nil {
					t.Fatal(err)
				}
				for i := range b.Len() {
					got += len(b.Datagram(i).Data)
				}
			}
		}); n > 0 {
			t.Errorf("%v allocations", n)
		}
	})
}
