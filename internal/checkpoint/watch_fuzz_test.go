package checkpoint

import (
	"testing"
	"time"
)

// FuzzWatch lets servers announce and send what they want, in any order: a watcher takes ascending numbers within an epoch,
// never an epoch that it has left, and remembers little.
func FuzzWatch(f *testing.F) {
	f.Add([]byte("\x00\x11\x40\x00\x12\x40\x00\x11\x40"))
	f.Add([]byte("\x00\x11\x40\x00\x21\x40\x00\x15\x40"))
	f.Add([]byte("\x00\x11\x00\x10\x80\x00\x00\x12\x40"))
	f.Fuzz(func(t *testing.T, events []byte) {
		var w watch
		var last Publication
		left := make(map[uint64]bool)
		now := time.Unix(1, 0)
		for ; len(events) >= 2; events = events[2:] {
			kind, epoch, number := events[0]>>6, uint64(events[0]&15), uint64(events[1])
			p := Publication{Name: "w", Version: string(rune('a' + number%7)), Epoch: epoch, Number: number}
			var err error
			switch kind {
			case 0:
				err = w.announced(p, w.era)
			case 1:
				err = w.announced(Publication{}, w.era)
			case 2:
				err = w.failed(now, changed(errClosed()), func(d time.Duration) time.Duration { return d })
			case 3:
				var ok bool
				if ok, err = w.came(p, w.era); ok {
					if p.Epoch != last.Epoch {
						left[last.Epoch] = last.Epoch != 0 // a server without numbers has no epoch
					} else if last.Version != "" && p.Epoch != 0 && p.Number <= last.Number || left[p.Epoch] && len(left) < maxEpochs {
						t.Fatalf("%+v came after %+v", p, last)
					}
					last = p
				}
			}
			if err != nil {
				return // the watch ends
			}
			now = now.Add(retryMin)
			if p, ok, at := w.wanted(now); ok && p.Version == "" || !at.IsZero() && at.Sub(now) > 2*retryMax {
				t.Fatalf("it wants %+v at %v", p, at)
			}
			if len(w.left) > maxEpochs {
				t.Fatalf("it remembers %d epochs", len(w.left))
			}
		}
	})
}
