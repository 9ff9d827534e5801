package roce

import (
	"slices"
	"testing"

	"github.com/tryst-rdma/tryst/internal/rocewire"
)

// TestReadIsRepeatedDuringItsResponse: a requester that misses a packet of a response
// repeats the READ at once, while the rest of the response is being sent, which is
// useless then. Packets that were not sent yet are not sent twice.
func TestReadIsRepeatedDuringItsResponse(t *testing.T) {
	const packets, sent = 8, 5
	for _, missing := range []int{0, 2, sent - 1, sent, packets - 1} {
		s := newResponderTest(t)
		first, mtu := s.psn, int(s.machine.mtu)
		s.request(s.write(rocewire.ReadRequest, 0, packets*mtu))
		behind := s.psn
		var p packet
		next := func() uint64 {
			if !s.machine.nextPacket(0, 0, &p) || !p.Op.IsReadResponse() {
				t.Fatalf("no response from packet %d on", missing)
			}
			return uint64((p.PSN - first)) //nolint:gosec // small
		}
		for range sent {
			next()
		}
		s.psn = psnOf(first, uint64(missing))
		s.request(s.write(rocewire.ReadRequest, missing*mtu, (packets-missing)*mtu))
		if s.psn != behind {
			t.Fatalf("the next packet is %v, not %v", s.psn, behind)
		}
		want := []uint64{}
		for n := min(missing, sent); n < packets; n++ {
			want = append(want, uint64(n)) //nolint:gosec // small
		}
		var got []uint64
		for range want {
			got = append(got, next())
		}
		if !slices.Equal(got, want) || p.Op != rocewire.ReadResponseLast && p.Op != rocewire.ReadResponseOnly {
			t.Errorf("packet %d was missing when %d were sent: then come %v, %v, want %v", missing, sent, got, p.Op, want)
		}
		if s.machine.nextPacket(0, 0, &p) && p.Op.IsReadResponse() {
			t.Errorf("packet %d was missing: and after it packet %d", missing, p.PSN-first)
		}
	}
}
