package checkpoint

import (
	"container/list"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/tryst-rdma/tryst/internal/idle"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// loader reads tensors from files on request:
//
//	get ─ in the cache? ──────────────────────────────► done
//	  └─ being read, or to be read? ─ wait with the others
//	       └─ queue ─► reader, one of maxReaders ─► cache ─► done of each
//	            └─ parked, while the content of the file is compared
//
// All requests for a tensor that arrive before it is read share one read and one buffer. The
// cache holds the most recently used tensors within its limit of bytes, until they have not been
// used for a while, or the memory that they lie in is needed for something else (giveBack). It takes them only while several pulls are under way: for one alone, buffers that
// are used again cost less than new memory for each tensor.
type loader struct {
	alloc tensor.Allocator
	limit int64         // bytes in the cache at most
	keep  time.Duration // how long a tensor stays in the cache without use
	timer *idle.Timer   // runs while tensors are cached; nil when they stay
	// shared reports whether another puller may request what one has requested.
	shared func() bool

	mu sync.Mutex
	// All below are guarded by mu.
	loads   map[content]*load
	queue   []*load // not started by a reader
	readers int     // running reader goroutines
	cached  map[content]*list.Element
	recent  list.List // of cachedTensor, the most recently used first
	bytes   int64     // in recent
	closed  error     // the error after close; nil before
	idle    sync.WaitGroup
}

// load is a read that is queued or in progress.
type load struct {
	content content
	waiters map[*waiter]struct{}
	queued  bool // not started by a reader, or parked
}

type waiter struct {
	done func(*tensor.Tensor, error)
	stop func() bool // stops the watch of its context; nil without a watch
}

type cachedTensor struct {
	content content
	tensor  *tensor.Tensor // with a reference of the cache
	used    time.Time      // the last use
}

// cachedAt returns the value of an element of recent.
func cachedAt(at *list.Element) *cachedTensor {
	return at.Value.(*cachedTensor) //nolint:errcheck // the list has nothing else
}

// newLoader returns a loader. With a negative keep, tensors stay in the cache until others take their
// place.
func newLoader(a tensor.Allocator, limit int64, keep time.Duration, shared func() bool) *loader {
	l := &loader{alloc: a, limit: limit, keep: keep, shared: shared, loads: make(map[content]*load), cached: make(map[content]*list.Element)}
	if keep > 0 {
		l.timer = idle.NewTimer(keep/cacheSweeps, l.dropUnused)
	}
	return l
}

// get calls done once, on this goroutine or a reader's, with a reference to the tensor or an
// error. It never reads a file itself. If ctx ends first, the error is Cancelled or
// DeadlineExceeded.
func (l *loader) get(ctx context.Context, c content, done func(*tensor.Tensor, error)) {
	l.mu.Lock()
	if l.closed != nil {
		l.mu.Unlock()
		done(nil, l.closed)
		return
	}
	if at, ok := l.cached[c]; ok {
		l.recent.MoveToFront(at)
		hit := cachedAt(at)
		hit.used = time.Now()
		t := hit.tensor.Retain()
		l.mu.Unlock()
		done(t, nil)
		return
	}
	w := &waiter{done: done}
	ld := l.loads[c]
	if ld == nil {
		ld = &load{content: c, waiters: make(map[*waiter]struct{})}
		l.loads[c] = ld
		l.queueLocked(ld)
	}
	ld.waiters[w] = struct{}{}
	l.mu.Unlock()
	if ctx.Done() != nil {
		l.watch(ctx, ld, w)
	}
}

func (l *loader) queueLocked(ld *load) {
	ld.queued = true
	l.queue = append(l.queue, ld)
	if l.readers < maxReaders {
		l.readers++
		l.idle.Go(l.work)
	}
}

// watch removes w from the load when ctx ends. A queued read without waiters is removed; a read
// in progress continues, and its tensor goes into the cache.
func (l *loader) watch(ctx context.Context, ld *load, w *waiter) {
	stop := context.AfterFunc(ctx, func() {
		l.mu.Lock()
		_, waits := ld.waiters[w]
		delete(ld.waiters, w)
		if len(ld.waiters) == 0 && ld.queued {
			ld.queued = false
			l.queue = slices.DeleteFunc(l.queue, func(other *load) bool { return other == ld })
			delete(l.loads, ld.content)
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

// work does the queued reads, and returns when the queue is empty.
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

		t, err := ld.content.read(l.alloc)
		if c := pending(err); c != nil {
			l.park(ld, c)
			continue
		}
		l.finish(ld, t, err)
	}
}

// park lets a load wait for a comparison without a reader. Then it is queued again, or ends with the
// error of the comparison. Until then it ends as a queued one when its last waiter goes.
func (l *loader) park(ld *load, c *comparison) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(ld.waiters) == 0 {
		delete(l.loads, ld.content)
		return
	}
	ld.queued = true
	l.idle.Go(func() {
		<-c.done
		l.mu.Lock()
		if !ld.queued { // the last waiter has gone
			l.mu.Unlock()
			return
		}
		err := l.closed
		if c.err != nil {
			err = ofTensor(ld.content.info.Name, c.err)
		}
		if err == nil {
			l.queueLocked(ld)
			l.mu.Unlock()
			return
		}
		ld.queued = false
		l.mu.Unlock()
		l.finish(ld, nil, err)
	})
}

// finish passes the tensor or the error to all waiters, each with a reference.
func (l *loader) finish(ld *load, t *tensor.Tensor, err error) {
	shared := l.shared()
	l.mu.Lock()
	delete(l.loads, ld.content)
	waiters := ld.waiters
	ld.waiters = nil
	var displaced []*tensor.Tensor
	if err == nil && shared && l.closed == nil && !ld.content.withdrawn {
		displaced = l.addLocked(ld.content, t)
	}
	l.mu.Unlock()
	release(displaced)
	if err == nil {
		// Take all references before the first waiter gets one, and release the reader's
		// own before theirs.
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

// addLocked adds a tensor to the cache and returns the displaced ones. The caller releases them
// without the lock, since freeing memory may take long.
func (l *loader) addLocked(c content, t *tensor.Tensor) (displaced []*tensor.Tensor) {
	if t.Size() > l.limit {
		return nil
	}
	l.cached[c] = l.recent.PushFront(&cachedTensor{c, t.Retain(), time.Now()})
	if l.timer != nil {
		l.timer.Start()
	}
	for l.bytes += t.Size(); l.bytes > l.limit; {
		displaced = append(displaced, l.dropLocked(l.recent.Back()))
	}
	return displaced
}

// dropUnused removes the tensors that have not been used for as long as they stay. more is true
// while others are cached.
func (l *loader) dropUnused(time.Duration) (more bool) {
	var dropped []*tensor.Tensor
	before := time.Now().Add(-l.keep)
	l.mu.Lock()
	for at := l.recent.Back(); at != nil && !cachedAt(at).used.After(before); at = l.recent.Back() {
		dropped = append(dropped, l.dropLocked(at))
	}
	more = l.recent.Len() > 0
	l.mu.Unlock()
	release(dropped)
	return more
}

// giveBack removes tensors that nobody else uses, until they have n bytes or none is left: those first that have not
// been used for the longest time. It reports whether there was one.
func (l *loader) giveBack(n int64) bool {
	var dropped []*tensor.Tensor
	l.mu.Lock()
	for at := l.recent.Back(); at != nil && n > 0; {
		newer := at.Prev()
		if c := cachedAt(at).tensor; c.Buffer().Unique() { // and stays so while mu is held
			n -= c.Size()
			dropped = append(dropped, l.dropLocked(at))
		}
		at = newer
	}
	l.mu.Unlock()
	release(dropped)
	return len(dropped) > 0
}

// size returns the bytes in the cache.
func (l *loader) size() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bytes
}

// dropLocked removes a tensor from the cache and returns it with the cache's reference.
func (l *loader) dropLocked(at *list.Element) *tensor.Tensor {
	c := cachedAt(at)
	l.recent.Remove(at)
	delete(l.cached, c.content)
	l.bytes -= c.tensor.Size()
	return c.tensor
}

func release(tensors []*tensor.Tensor) {
	for _, t := range tensors {
		t.Release()
	}
}

// forget removes withdrawn entries from the cache. They are not cached again.
func (l *loader) forget(entries []*entry) {
	var dropped []*tensor.Tensor
	l.mu.Lock()
	for _, e := range entries {
		e.withdrawn = true
	}
	for at := l.recent.Front(); at != nil; {
		next := at.Next()
		if cachedAt(at).content.withdrawn {
			dropped = append(dropped, l.dropLocked(at))
		}
		at = next
	}
	l.mu.Unlock()
	release(dropped)
}

// close ends queued reads with err, waits for reads in progress, and empties the cache.
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
