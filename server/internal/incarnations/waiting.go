package incarnations

import (
	"slices"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
)

// Waiting is a receive that waits until its peer has said which process it is.
type Waiting struct {
	Device cluster.Device // of the peer
	Step   int64
	Name   string // of the value
	Since  time.Time
	Why    error // why the last attempt failed; nil before the first has
}

// Waiting returns the receives that have waited longest, up to most, and how many there are. It looks at the first visits of
// each peer.
func (t *Table) Waiting(most, visits int) (oldest []Waiting, total int) {
	return t.store.waiting(most, visits)
}

func (i *store) waiting(most, visits int) (oldest []Waiting, total int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for d, r := range i.requests {
		total += r.waiting.Len()
		for at, n := r.waiting.Front(), 0; at != nil && n < min(visits, most); at, n = at.Next(), n+1 {
			if w, ok := at.Value.(*wait); ok {
				oldest = append(oldest, Waiting{d, w.step, w.name, w.deadline.Add(-w.timeout), r.why})
			}
		}
	}
	slices.SortFunc(oldest, func(a, b Waiting) int { return a.Since.Compare(b.Since) })
	return oldest[:min(len(oldest), most)], total
}
