package checkpoint

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc/peer"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/identity"
	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
)

// Watching is a watcher, as its process says. With each version that it gets it opens another stream, which says so.
type Watching struct {
	Publication string
	Watcher     cluster.Task // zero: it says nothing, not even what it has
	Address     string       // of its connection
	Since       time.Time    // this stream
	// Version and Number are what it has; Number 0 for none, and Version empty where only the number is known.
	Version string
	Number  uint64
	// Behind is how many versions are newer, maxBehind for as many or more.
	Behind int
	// By is how that version came: ByDeltas, ByWhole, or empty without one.
	By string
}

// How a version came to a watcher.
const (
	ByDeltas = "deltas" // at least one tensor
	ByWhole  = "whole"
)

// listening is a stream of Watch. It does not change.
type listening struct {
	line    *line
	task    cluster.Task
	address string
	host    string // of the address
	since   time.Time
	has     Publication // without a Number if it has none
	by      string
}

// newWatcher returns the watcher of a stream. Under mutual TLS it must have the name that it says.
func (c *Catalog) newWatcher(ctx context.Context, req *trystpb.WatchRequest) (*listening, error) {
	w := &listening{host: identity.Address(ctx), since: time.Now(), has: Publication{Epoch: req.GetHasEpoch(), Number: req.GetHasNumber()}}
	if from, ok := peer.FromContext(ctx); ok {
		w.address = from.Addr.String()
	}
	if req.GetWatcher() == "" {
		return w, nil
	}
	switch {
	case w.has.Number == 0:
	case req.GetHasByDeltas():
		w.by = ByDeltas
	default:
		w.by = ByWhole
	}
	task, err := c.callerTask(ctx, "watcher", req.GetWatcher())
	w.task = task
	return w, err
}

// watches counts a watcher until the returned function is called.
func (c *Catalog) watches(l *line, w *listening) (leave func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w.line = l
	if now := c.publications[l.name]; now != nil && w.has.Epoch == now.epoch && w.has.Number == now.number {
		w.has.Version = now.manifest.Version
	}
	if l.watching == nil {
		l.watching = make(map[*listening]struct{})
	}
	l.watching[w] = struct{}{}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(l.watching, w)
		l.left = time.Now()
	}
}

// watchedLocked reports whether somebody watches, or has ended a stream just now, perhaps for another one.
func (l *line) watchedLocked() bool { return len(l.watching) > 0 || time.Since(l.left) < rejoinWithin }

// numbers are those of the last versions of an epoch, ascending, at most maxBehind.
type numbers struct {
	epoch uint64
	last  []uint64
}

// entered takes note of a version.
func (n *numbers) entered(epoch, number uint64) {
	if epoch != n.epoch {
		n.epoch, n.last = epoch, nil
	}
	if len(n.last) > 0 && n.last[len(n.last)-1] == number { // its files were replaced by others with the same content
		return
	}
	n.last = append(n.last, number)
	if len(n.last) > maxBehind {
		n.last = slices.Delete(n.last, 0, 1)
	}
}

// behind returns how many versions a watcher that has a version lacks.
func (n *numbers) behind(has Publication) int {
	if has.Epoch != n.epoch {
		return len(n.last)
	}
	at, found := slices.BinarySearch(n.last, has.Number)
	if found {
		at++
	}
	return len(n.last) - at
}

// seenLocked returns what is known of a watcher.
func (c *Catalog) seenLocked(w *listening) Watching {
	s := Watching{Publication: w.line.name, Watcher: w.task, Address: w.address, Since: w.since, Version: w.has.Version, Number: w.has.Number, By: w.by}
	if c.publications[s.Publication] != nil && w.task != (cluster.Task{}) {
		s.Behind = w.line.numbers.behind(w.has)
	}
	return s
}

// Watching returns the watchers, at most so many, and how many there are. The hosts take turns, so that nobody with many streams
// hides those of another host. Of each host one stream of a task for a publication goes before second ones, what has a version
// before what has none, and the oldest first.
func (c *Catalog) Watching(most int) (all []Watching, total int) {
	c.mu.RLock()
	var streams []*listening
	for _, l := range c.lines {
		streams = slices.AppendSeq(streams, maps.Keys(l.watching))
	}
	c.mu.RUnlock()
	shown := mixed(streams) // without the lock, for which Update waits
	shown = shown[:min(len(shown), most)]
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, w := range shown {
		all = append(all, c.seenLocked(w))
	}
	return all, len(streams)
}

// mixed returns streams in the order of Watching.
func mixed(streams []*listening) []*listening {
	slices.SortFunc(streams, func(a, b *listening) int {
		return cmp.Or(cmp.Compare(min(b.has.Number, 1), min(a.has.Number, 1)), a.since.Compare(b.since))
	})
	type who struct {
		host string
		task cluster.Task
		line *line
	}
	streams = inTurns(streams, func(w *listening) who { return who{w.host, w.task, w.line} })
	return inTurns(streams, func(w *listening) string { return w.host })
}

// inTurns returns the first stream of each key, then the second of each, and so on.
func inTurns[K comparable](streams []*listening, key func(*listening) K) []*listening {
	var rounds [][]*listening
	seen := make(map[K]int)
	for _, w := range streams {
		k := key(w)
		n := seen[k]
		seen[k]++
		if n == len(rounds) {
			rounds = append(rounds, nil)
		}
		rounds[n] = append(rounds[n], w)
	}
	return slices.Concat(rounds...)
}
