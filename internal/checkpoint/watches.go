package checkpoint

import (
	"context"
	"slices"
	"sync"
	"time"

	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
)

// WatchState is a watch of this process, while it goes on.
type WatchState struct {
	Publication string // empty while it is not known
	Server      string // its address
	Since       time.Time
	// Version and Number are those of the version that came last, without a Version before the first one, and By how it came.
	Version string
	Number  uint64
	By      string
	// Newest and NewestNumber are those of the version that the server has announced last.
	Newest       string
	NewestNumber uint64
	// Silent is since when nothing can be heard from the server; zero while something can.
	Silent time.Time
}

// watches are the watches of a Puller. The zero value is ready for use.
type watches struct {
	mu  sync.Mutex
	all map[*follower]struct{} // guarded by mu
}

func (w *watches) begin(f *follower) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.all == nil {
		w.all = make(map[*follower]struct{})
	}
	w.all[f] = struct{}{}
}

func (w *watches) end(f *follower) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.all, f)
}

// Watches returns the watches that go on, the oldest first.
func (p *Puller) Watches() (all []WatchState) {
	p.watches.mu.Lock()
	defer p.watches.mu.Unlock()
	for f := range p.watches.all {
		all = append(all, f.state())
	}
	slices.SortFunc(all, func(a, b WatchState) int { return a.Since.Compare(b.Since) })
	return all
}

// state returns what the watch has.
func (f *follower) state() WatchState {
	f.mu.Lock()
	defer f.mu.Unlock()
	return WatchState{
		Publication: f.name, Server: f.p.server(), Since: f.begun,
		Version: f.got.Version, Number: f.got.Number, By: f.by,
		Newest: f.watch.newest.Version, NewestNumber: f.watch.newest.Number, Silent: f.silentSince,
	}
}

// gotWhole takes note of a version that the caller has, and tells the server.
func (f *follower) gotWhole(p Publication, s *Summary) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.got, f.by = p, ByWhole
	if d := &s.Deltas; d.Sparse.Tensors+d.XOR.Tensors > 0 || d.Nothing.Received > 0 {
		f.by = ByDeltas
	}
	f.tell()
}

// says returns what the next stream of Watch says. The stream ends by again when that has changed.
func (f *follower) says(name string, again context.CancelFunc) *trystpb.WatchRequest {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tell = again
	return &trystpb.WatchRequest{
		Publication: name, Watcher: f.p.o.Task.String(), HasEpoch: f.got.Epoch, HasNumber: f.got.Number, HasByDeltas: f.by == ByDeltas,
	}
}
