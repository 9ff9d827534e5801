package delivery

import (
	"cmp"
	"slices"
	"strings"

	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/transport"
)

// Waiting returns the receives that have waited longest, up to most, the longest first, and how many there are.
// It looks at visits of them in all, and holds the lock of one peer at a time, for peerVisits of them at most; complete is
// false if there are more. Receives of buffers of collective operations are left out when skip returns true for their
// edge name.
func (r *Requester) Waiting(most, visits int, skip func(edge string) bool) (oldest []transport.Waiting, total int, complete bool) {
	r.mu.Lock()
	peers := make([]*peer, 0, len(r.peers))
	for _, p := range r.peers {
		peers = append(peers, p)
	}
	r.mu.Unlock()
	complete = true
	older := func(a, b transport.Waiting) int { return a.Since.Compare(b.Since) }
	for _, p := range peers {
		n := 0
		p.mu.Lock()
		for _, t := range p.machine.transfers {
			if n == peerVisits || visits == 0 {
				complete = false
				break
			}
			n++
			visits--
			if t.over || strings.HasPrefix(t.Key.Edge(), rendezvous.BufferPrefix) && skip(t.Key.Edge()) {
				continue
			}
			total++
			if len(oldest) == most && !t.asked.Before(oldest[most-1].Since) {
				continue
			}
			w := transport.Waiting{Task: p.task, Step: t.Step, Key: t.Key, Since: t.asked, Requests: t.tries, Sent: t.sent}
			if p.machine.conn != connUp {
				w.Why = p.missed
			}
			at, _ := slices.BinarySearchFunc(oldest, w, older)
			if len(oldest) == most {
				oldest = oldest[:most-1]
			}
			oldest = slices.Insert(oldest, at, w)
		}
		p.mu.Unlock()
	}
	slices.SortStableFunc(oldest, func(a, b transport.Waiting) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Key.String(), b.Key.String()))
	})
	return oldest, total, complete
}
