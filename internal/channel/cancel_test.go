package channel

import (
	"slices"
	"testing"
	"time"
)

// TestCancelIsSentOnce: the requester drops the attempt, and names the id in a batch and with the
// requests before that. CANCEL carries the id once, and the batch is confirmed.
func TestCancelIsSentOnce(t *testing.T) {
	run := (*link).run
	drop := func(l *link) { l.ends[0].ch.Cancel(l.now, 1, 1) }
	request := func(l *link) {
		l.ends[0].ch.CancelBefore(l.now, []uint64{1})
		l.receive(2, "other")
	}
	batch := func(l *link) {
		mark := l.ends[0].ch.SendCancels(l.now, []uint64{1})
		l.run()
		l.wait(time.Second)
		if got := l.ends[0].taken.Cancels; got < mark {
			l.t.Errorf("the peer has confirmed %d cancels, want %d", got, mark)
		}
	}
	for what, c := range map[string]struct {
		events []func(*link)
		want   int // times that the peer gets the id
	}{
		"dropped, then in a batch":               {[]func(*link){drop, batch}, 1},
		"dropped, confirmed, then in a batch":    {[]func(*link){drop, run, batch}, 1},
		"in a batch, then dropped":               {[]func(*link){batch, drop}, 1},
		"dropped, with a request, in a batch":    {[]func(*link){drop, request, batch}, 1},
		"dropped, confirmed, with two, in batch": {[]func(*link){drop, run, request, request, run, batch}, 1},
		"with a request, then in a batch":        {[]func(*link){request, batch}, 1},
		"with a request, then dropped":           {[]func(*link){request, drop, run}, 1},
		"in a batch that is repeated":            {[]func(*link){drop, batch, batch}, 2},
	} {
		t.Run(what, func(t *testing.T) {
			l := newLink(t)
			l.manual = true
			l.receive(1, "k")
			l.run()
			for _, f := range c.events {
				f(l)
			}
			l.run()
			var ids []uint64
			for _, a := range l.ends[1].others {
				if a.Kind == ActCancelled {
					for i := range a.IDs.Count() {
						ids = append(ids, a.IDs.At(i))
					}
				}
			}
			if want := slices.Repeat([]uint64{1}, c.want); !slices.Equal(ids, want) {
				t.Errorf("CANCEL carried %v, want %v", ids, want)
			}
			if x, ok := l.ends[0].ch.byID[1]; ok {
				t.Errorf("the receive is still in list %d", l.ends[0].ch.receives.at(x).list)
			}
		})
	}
}

// TestCancelsToRememberAreBounded: ids that no batch names are remembered up to a limit.
func TestCancelsToRememberAreBounded(t *testing.T) {
	l := newLink(t, func(c *Config) { c.MaxWaiting = 4 })
	for id := range uint64(10) {
		l.ends[0].ch.CancelBefore(l.now, []uint64{id + 1})
		l.run()
	}
	if n := len(l.ends[0].ch.pending.unbatched); n != 4 {
		t.Errorf("%d ids are remembered, want 4", n)
	}
}
