package channel

import (
	"slices"
	"testing"
	"time"
)

// TestCancelIsSentOnce: the requester drops the attempt, and names the id in a batch and with the
// requests before that. CANCEL carries the id once, and the batch is confirmed.
func TestCancelIsSentOnce(t *testing.T) {
	run := (*pair).run
	drop := func(p *pair) { p.ends[0].ch.Cancel(p.now, 1, 1) }
	request := func(p *pair) {
		p.ends[0].ch.CancelBefore(p.now, []uint64{1})
		p.receive(2, "other")
	}
	batch := func(p *pair) {
		mark := p.ends[0].ch.SendCancels(p.now, []uint64{1})
		p.run()
		p.wait(time.Second)
		if got := p.ends[0].taken.Cancels; got < mark {
			p.t.Errorf("the peer has confirmed %d cancels, want %d", got, mark)
		}
	}
	for what, c := range map[string]struct {
		events []func(*pair)
		want   int // times that the peer gets the id
	}{
		"dropped, then in a batch":               {[]func(*pair){drop, batch}, 1},
		"dropped, confirmed, then in a batch":    {[]func(*pair){drop, run, batch}, 1},
		"in a batch, then dropped":               {[]func(*pair){batch, drop}, 1},
		"dropped, with a request, in a batch":    {[]func(*pair){drop, request, batch}, 1},
		"dropped, confirmed, with two, in batch": {[]func(*pair){drop, run, request, request, run, batch}, 1},
		"with a request, then in a batch":        {[]func(*pair){request, batch}, 1},
		"with a request, then dropped":           {[]func(*pair){request, drop, run}, 1},
		"in a batch that is repeated":            {[]func(*pair){drop, batch, batch}, 2},
	} {
		t.Run(what, func(t *testing.T) {
			p := newPair(t)
			p.manual = true
			p.receive(1, "k")
			p.run()
			for _, f := range c.events {
				f(p)
			}
			p.run()
			var ids []uint64
			for _, a := range p.ends[1].others {
				if a.Kind == ActCancelled {
					for i := range a.IDs.Count() {
						ids = append(ids, a.IDs.At(i))
					}
				}
			}
			if want := slices.Repeat([]uint64{1}, c.want); !slices.Equal(ids, want) {
				t.Errorf("CANCEL carried %v, want %v", ids, want)
			}
			if x, ok := p.ends[0].ch.byID[1]; ok {
				t.Errorf("the receive is still in list %d", p.ends[0].ch.receives.at(x).list)
			}
		})
	}
}

// TestCancelsToRememberAreBounded: ids that no batch names are remembered up to a limit.
func TestCancelsToRememberAreBounded(t *testing.T) {
	p := newPair(t, func(c *Config) { c.MaxWaiting = 4 })
	for id := range uint64(10) {
		p.ends[0].ch.CancelBefore(p.now, []uint64{id + 1})
		p.run()
	}
	if n := len(p.ends[0].ch.pending.unbatched); n != 4 {
		t.Errorf("%d ids are remembered, want 4", n)
	}
}
