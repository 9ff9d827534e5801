package channel

import (
	"slices"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/internal/wire"
	"github.com/tryst-rdma/tryst/status"
)

// TestStripes: the shares have every byte once, and each goes over another rail.
func TestStripes(t *testing.T) {
	for rails := 1; rails <= wire.MaxRails; rails++ {
		testStripes(t, &Channel{cfg: Config{Rails: rails}, stripe: stripeUnit}, 0)
		testStripes(t, &Channel{cfg: Config{Rails: rails, Apart: true}, stripe: stripeUnit}, min(1, rails-1))
	}
}

// testStripes checks the shares over the rails of a channel from least on.
func testStripes(t *testing.T, c *Channel, least int) {
	t.Helper()
	rails := c.cfg.Rails
	for _, size := range []uint64{1, 4096, 1<<20 - 1, 1 << 20, 2<<20 - 1, 2 << 20, 3<<20 + 1, 8 << 20, 8<<20 + 4095, 1<<40 + 1} {
		n := c.Stripes(size)
		var at uint64
		for share := range n {
			from, to := stripe(size, n, share)
			if from != at || to <= from {
				t.Errorf("%d bytes, share %d of %d: %d to %d", size, share, n, from, to)
			}
			at = to
		}
		if at != size {
			t.Errorf("%d bytes in %d shares end at %d", size, n, at)
		}
	}
	for first := least; first < rails; first++ {
		seen := make(map[int]bool)
		for share := range rails - least {
			rail := c.RailOf(uint8(first), share)                                                                                     //nolint:gosec // a rail
			if seen[rail] || rail < least || rail >= rails || c.shareOf(uint8(first), rail) != share || share == 0 && rail != first { //nolint:gosec // a rail
				t.Errorf("%d rails, from rail %d: share %d is on rail %d", rails, first, share, rail)
			}
			seen[rail] = true
		}
	}
}

// ofThreeRails returns a pair whose requester chooses first as the first rail. A share has at
// least unit bytes.
func ofThreeRails(t *testing.T, first uint8, unit uint64, size int64) *pair {
	p := newPair(t, func(c *Config) { c.Rails, c.Chunk, c.Outstanding = 3, 1<<20, 4<<20 })
	p.respondWith(size)
	p.ends[0].first = first
	for i := range p.ends {
		p.ends[i].ch.stripe = unit
	}
	return p
}

// railsEnds returns the last writes and messages of side 1 since the last call, in the order
// of their rails.
func (p *pair) railsEnds() string {
	var ends []string
	for _, event := range p.trace {
		if strings.HasPrefix(event, "<") && !strings.Contains(event, "WRITE") && !strings.Contains(event, "META") {
			ends = append(ends, event)
		}
	}
	p.trace = nil
	slices.Sort(ends)
	return strings.Join(ends, ", ")
}

// TestContentBeginsOnTheRequestersRail: the shares go over the rails from there on; rail 0
// follows the last.
func TestContentBeginsOnTheRequestersRail(t *testing.T) {
	for _, c := range []struct {
		first  uint8
		shares int64
		want   string
	}{
		{0, 1, "<IMM 65536"},
		{2, 1, "<2IMM 65536"},
		{1, 2, "<1IMM 65536, <2IMM 65536"},
		{2, 2, "<2IMM 65536, <IMM 65536"},
		{1, 3, "<1IMM 65536, <2IMM 65536, <IMM 65536"},
	} {
		p := ofThreeRails(t, c.first, 64<<10, c.shares*64<<10)
		for id := range uint64(2) { // after META, and with an early destination
			p.receive(id+1, "k")
			p.run()
			if got := p.railsEnds(); got != c.want || p.last().Outcome != OutcomeWritten {
				t.Errorf("%d shares from rail %d: %s, %v; want %s", c.shares, c.first, got, p.last().Outcome, c.want)
			}
		}
		p.clean()
	}
}

// TestEndOnTheRequestersRails: CANCELLED and ERROR go over the rails that carry the content,
// and over no other.
func TestEndOnTheRequestersRails(t *testing.T) {
	for want, end := range map[string]func(*pair){
		"<2CANCELLED, <CANCELLED": func(p *pair) { p.ends[0].ch.Cancel(p.now, 1, 1) },
		"<2ERROR, <ERROR": func(p *pair) {
			p.ends[1].ch.Fail(p.now, 1, 1, status.New(status.DataLoss, "given up"))
		},
	} {
		p := ofThreeRails(t, 2, 10<<20, 20<<20)
		p.ends[1].hold = true
		p.receive(1, "k")
		p.run()
		if got := p.railsEnds(); got != "" {
			t.Fatalf("it is not in flight: %s", got)
		}
		end(p)
		p.run()
		if got := p.railsEnds(); got != want {
			t.Errorf("posted %s, want %s", got, want)
		}
		for _, rail := range []int{2, 0} { // the send queue has places again
			p.ends[1].ch.Sent(p.now, rail, (p.ends[1].ch.rails[rail].slot+63)%64)
		}
		p.run()
		if len(p.trace) > 0 {
			t.Errorf("%s, and then %v", want, p.trace)
		}
		p.clean()
	}
}

// TestLastWriteOnAnotherRail: a last write on a rail that carries none of the content closes
// the channel.
func TestLastWriteOnAnotherRail(t *testing.T) {
	for rail := range 2 {
		p := ofThreeRails(t, 2, 64<<10, 64<<10)
		p.receive(1, "k")
		p.run()
		p.cut = true
		p.receive(2, "k")
		p.run()
		p.ends[0].ch.Imm(p.now, rail, uint32(wire.NewImm(0, 2)))
		if err := p.ends[0].ch.err; err == nil || !strings.Contains(err.Error(), "carries no share") {
			t.Errorf("rail %d: %v", rail, err)
		}
	}
}
