package transport

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/tryst-rdma/tryst/rendezvous"
)

// fetch is one receive that the table of answers has in the source, and the context
// of that receive: it ends when the receive is taken back. A context of package
// context would cost six allocations for each small tensor; this one is used again
// unless somebody has asked for its channel, or still watches it, and so may hold it.
type fetch struct {
	kept *Kept
	done rendezvous.DoneFunc // its method end, made once

	id  uint64
	ask Ask

	mu       sync.Mutex // guards what follows
	begun    bool       // RecvLocalAsync has returned
	reported bool       // done has
	over     bool       // the context has ended
	ended    chan struct{}
	watchers []*watcher
}

// free reports whether nobody has f any more. Called with the lock held.
func (f *fetch) free() bool {
	return f.begun && f.reported && !f.over && f.ended == nil && len(f.watchers) == 0
}

type watcher struct {
	f  *fetch
	do func()
}

// end is what the source calls.
func (f *fetch) end(v rendezvous.Value, _ rendezvous.Args, err error) {
	k := f.kept
	defer k.work.Done()
	k.fetched(f, Answer{Value: v, Err: err})
	f.mu.Lock()
	f.reported = true
	free := f.free()
	f.mu.Unlock()
	if free {
		k.recycle(f)
	}
}

// begin asks the source.
func (f *fetch) begin() {
	k := f.kept
	k.source.RecvLocalAsync(f, f.ask.Step, f.ask.Key, f.done)
	f.mu.Lock()
	f.begun = true
	free := f.free()
	f.mu.Unlock()
	if free {
		k.recycle(f)
	}
}

// cancel takes the receive back.
func (f *fetch) cancel() {
	f.mu.Lock()
	if f.over {
		f.mu.Unlock()
		return
	}
	f.over = true
	if f.ended != nil {
		close(f.ended)
	}
	watchers := f.watchers
	f.watchers = nil
	f.mu.Unlock()
	for _, w := range watchers {
		go w.do()
	}
}

// Deadline implements context.Context.
func (*fetch) Deadline() (at time.Time, ok bool) { return at, false }

// Value implements context.Context.
func (*fetch) Value(any) any { return nil }

// Done implements context.Context.
func (f *fetch) Done() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended == nil {
		f.ended = make(chan struct{})
		if f.over {
			close(f.ended)
		}
	}
	return f.ended
}

// Err implements context.Context.
func (f *fetch) Err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over {
		return context.Canceled
	}
	return nil
}

// AfterFunc is what context.AfterFunc and rendezvous ask a context for that is not
// of package context: to call do on a goroutine of its own when it has ended.
func (f *fetch) AfterFunc(do func()) (stop func() bool) {
	w := &watcher{f, do}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over {
		go do()
	} else {
		f.watchers = append(f.watchers, w)
	}
	return w.stop
}

// stop reports whether do will not be called.
func (w *watcher) stop() bool {
	f := w.f
	f.mu.Lock()
	defer f.mu.Unlock()
	at := slices.Index(f.watchers, w)
	if at < 0 {
		return false
	}
	f.watchers = slices.Delete(f.watchers, at, at+1)
	return true
}
