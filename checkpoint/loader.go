package checkpoint

import (
	"container/list"
	"context"
	"slices"
	"sync"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// loader reads tensors from files when they are requested:
//
//	get ─ in the cache? ──────────────────────────────► done
//	  └─ being read, or to be read? ─ wait with the others
//	       └─ queue ─► reader, one of maxReaders ─► cache ─► done of each
//
// Requests for a tensor that is being read share one read and one buffer. A
// tensor stays in the cache, which holds the most recently used ones, as long
// as the bound on its bytes allows.
type loader struct {
	alloc tensor.Allocator
	limit int64 // bytes in the cache at most

	mu sync.Mutex
	// All below are guarded by mu.
	loads   map[*entry]*load
	queue   []*load // that no reader has begun
	readers int     // goroutines that read
	cached  map[*entry]*list.Element
	recent  list.List // of cachedTensor, the most recently used first
	bytes   int64     // in recent
	closed  error     // why; nil while open
	idle    sync.WaitGroup
}

// load is a read that is to be made or under way.
type load struct {
	entry   *entry
	waiters map[*waiter]struct{}
	queued  bool // no reader has begun
}

type waiter struct {
	done func(*tensor.Tensor, error)
	stop func() bool // ends the watch of its context; nil without one
}

type cachedTensor struct {
	entry  *entry
	tensor *tensor.Tensor // with a reference of the cache
}

// cachedAt returns what an element of recent holds.
func cachedAt(at *list.Element) cachedTensor {
	return at.Value.(cachedTensor) //nolint:errcheck // the list has nothing else
}

func newLoader(a tensor.Allocator, limit int64) *loader {
	return &loader{alloc: a, limit: limit, loads: make(map[*entry]*load), cached: make(map[*entry]*list.Element)}
}

// get calls done once, on this goroutine or a reader's, with a reference to the
// tensor or an error. It never reads a file itself. When ctx ends first the
// error is Cancelled or DeadlineExceeded.
func (l *loader) get(ctx context.Context, e *entry, done func(*tensor.Tensor, error)) {
	l.mu.Lock()
	if l.closed != nil {
		l.mu.Unlock()
		done(nil, l.closed)
		return
	}
	if at, ok := l.cached[e]; ok {
		l.recent.MoveToFront(at)
		t := cachedAt(at).tensor.Retain()
		l.mu.Unlock()
		done(t, nil)
		return
	}
	w := &waiter{done: done}
	ld := l.loads[e]
	if ld == nil {
		ld = &load{entry: e, waiters: make(map[*waiter]struct{})}
		l.loads[e] = ld
		ld.queued = true
		l.queue = append(l.queue, ld)
		if l.readers < maxReaders {
			l.readers++
			l.idle.Go(l.work)
		}
	}
	ld.waiters[w] = struct{}{}
	l.mu.Unlock()
	if ctx.Done() != nil {
		l.watch(ctx, ld, w)
	}
}

// watch takes w out of the load when ctx ends. A read that nobody waits for
// any more is not begun; one under way goes on, into the cache.
func (l *loader) watch(ctx context.Context, ld *load, w *waiter) {
	stop := context.AfterFunc(ctx, func() {
		l.mu.Lock()
		_, waits := ld.waiters[w]
		delete(ld.waiters, w)
		if len(ld.waiters) == 0 && ld.queued {
			ld.queued = false
			l.queue = slices.DeleteFunc(l.queue, func(other *load) bool { return other == ld })
			delete(l.loads, ld.entry)
		}
		l.mu.Unlock()
		if waits {
			w.done(nil, status.From(context.Cause(ctx)))
		}
	})
	l.mu.Lock()
	_, waits := ld.waiters[w]
	if waits {
		w.stop = stop
	}
	l.mu.Unlock()
	if !waits {
		stop()
	}
}

// work reads what is queued, and ends when nothing is.
func (l *loader) work() {
	for {
		l.mu.Lock()
		if len(l.queue) == 0 {
			l.readers--
			l.mu.Unlock()
			return
		}
		ld := l.queue[0]
		l.queue = slices.Delete(l.queue, 0, 1)
		ld.queued = false
		l.mu.Unlock()

		t, err := ld.entry.read(l.alloc)
		l.finish(ld, t, err)
	}
}

// finish gives every waiting request its own reference to what was read.
func (l *loader) finish(ld *load, t *tensor.Tensor, err error) {
	l.mu.Lock()
	delete(l.loads, ld.entry)
	waiters := ld.waiters
	ld.waiters = nil
	var displaced []*tensor.Tensor
	if err == nil && l.closed == nil && !ld.entry.withdrawn {
		displaced = l.addLocked(ld.entry, t)
	}
	l.mu.Unlock()
	release(displaced)
	if err == nil {
		// All references are there before the first one is used: the
		// reader's own does not outlive theirs.
		for range waiters {
			t.Retain()
		}
		t.Release()
	}
	for w := range waiters {
		if w.stop != nil {
			w.stop()
		}
		w.done(t, err)
	}
}

// addLocked puts a tensor into the cache and returns those that it displaces,
// for release outside the lock: giving back memory can take its time.
func (l *loader) addLocked(e *entry, t *tensor.Tensor) (displaced []*tensor.Tensor) {
	if t.Size() > l.limit {
		return nil
	}
	l.cached[e] = l.recent.PushFront(cachedTensor{e, t.Retain()})
	for l.bytes += t.Size(); l.bytes > l.limit; {
		displaced = append(displaced, l.dropLocked(l.recent.Back()))
	}
	return displaced
}

// dropLocked takes a tensor out of the cache and returns it with the cache's
// reference.
func (l *loader) dropLocked(at *list.Element) *tensor.Tensor {
	c := cachedAt(at)
	l.recent.Remove(at)
	delete(l.cached, c.entry)
	l.bytes -= c.tensor.Size()
	return c.tensor
}

func release(tensors []*tensor.Tensor) {
	for _, t := range tensors {
		t.Release()
	}
}

// forget takes entries that were withdrawn out of the cache, for good.
func (l *loader) forget(entries []*entry) {
	var dropped []*tensor.Tensor
	l.mu.Lock()
	for _, e := range entries {
		e.withdrawn = true
		if at, ok := l.cached[e]; ok {
			dropped = append(dropped, l.dropLocked(at))
		}
	}
	l.mu.Unlock()
	release(dropped)
}

// close ends what is queued with err, waits for what is being read, and empties
// the cache.
func (l *loader) close(err error) {
	var dropped []*tensor.Tensor
	l.mu.Lock()
	l.closed = err
	queued := l.queue
	l.queue = nil
	for _, ld := range queued {
		ld.queued = false
	}
	for l.recent.Len() > 0 {
		dropped = append(dropped, l.dropLocked(l.recent.Back()))
	}
	l.mu.Unlock()
	release(dropped)
	for _, ld := range queued {
		l.finish(ld, nil, err)
	}
	l.idle.Wait()
}
