package collective

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// bufs is TensorFlow's BufRendezvous: the table in which the producers and consumers of one step
// find each other. Each key has at most one producer and one consumer.
//
//	          provide                consume
//	(none) ──────────► provided ──────────────► matched, removed
//	   └────consume──► awaited ───provide─────►
//
// The end of a context or an abort removes the key, and ends both sides. All callbacks run once,
// outside the lock. The zero value is ready for use.
type bufs struct {
	mu     sync.Mutex // guards what follows
	hooks  map[string]*hook
	err    error               // of an abort
	groups map[int32]*groupRun // of the Groups, by key
}

// groupRun is the present use of a group key by the Groups of this process. A Group that was made
// again has another number, so that the end of the old one does not end it.
type groupRun struct {
	number  uint64
	devices []cluster.Device // that have entered
	err     error            // of an abort of this group alone
}

// hook is what one side has left under a key.
type hook struct {
	value    *tensor.Tensor // with a reference; nil before provide
	provided func(error)
	consume  consumer
	stops    []func() bool // end the watches of contexts
}

// consumer gets the value, with a reference of its own, or an error.
type consumer func(*tensor.Tensor, error)

// cancelled is TensorFlow's error for a side whose operation was cancelled.
func cancelled(key string) error {
	return status.Errorf(status.Cancelled, "Operation was cancelled for BufRendezvous key %s", key)
}

// provide makes t available under key. It takes a reference of its own to t. done runs once: with
// nil when a consumer has taken the value, or with why nobody will. It may run before provide
// returns. It must not block, and takes only locks under which no other lock is taken, since a
// consumer may hold locks.
func (b *bufs) provide(ctx context.Context, key string, t *tensor.Tensor, done func(error)) {
	if ctx.Err() != nil {
		done(cancelled(key))
		return
	}
	b.mu.Lock()
	if err := b.errLocked(key); err != nil {
		b.mu.Unlock()
		done(err)
		return
	}
	h := b.hooks[key]
	switch {
	case h == nil:
		h = &hook{value: t.Retain(), provided: done}
		b.addLocked(ctx, key, h)
		b.mu.Unlock()
	case h.value != nil:
		b.mu.Unlock()
		done(status.Errorf(status.Internal, "BufRendezvous::ProvideBuf already called for key %s", key))
	default:
		delete(b.hooks, key)
		b.mu.Unlock()
		h.unwatch()
		t.Retain()
		done(nil) // before the peer has it, and may leave
		h.consume(t, nil)
	}
}

// consume takes the value under key. done runs once, perhaps before consume returns.
func (b *bufs) consume(ctx context.Context, key string, done consumer) {
	if ctx.Err() != nil {
		done(nil, cancelled(key))
		return
	}
	b.mu.Lock()
	if err := b.errLocked(key); err != nil {
		b.mu.Unlock()
		done(nil, err)
		return
	}
	h := b.hooks[key]
	switch {
	case h == nil:
		b.addLocked(ctx, key, &hook{consume: done})
		b.mu.Unlock()
	case h.value == nil:
		b.mu.Unlock()
		done(nil, status.Errorf(status.Internal, "Second consumer arrived for key %s", key))
	default:
		delete(b.hooks, key)
		b.mu.Unlock()
		h.unwatch()
		h.provided(nil) // before the peer has it, and may leave
		done(h.value, nil)
	}
}

// take is consume for a value that is there. Otherwise it returns nil and changes nothing.
func (b *bufs) take(key string) *tensor.Tensor {
	b.mu.Lock()
	h := b.hooks[key]
	if h == nil || h.value == nil {
		b.mu.Unlock()
		return nil
	}
	delete(b.hooks, key)
	b.mu.Unlock()
	h.unwatch()
	h.provided(nil)
	return h.value
}

// restore puts back a value that a consumer took and that did not reach its peer. The producer has
// ended already. restore takes over the reference; it returns false, and the reference stays the
// caller's, when nobody can take the value any more.
func (b *bufs) restore(key string, t *tensor.Tensor) bool {
	b.mu.Lock()
	h := b.hooks[key]
	switch {
	case b.errLocked(key) != nil, h != nil && h.value != nil:
		b.mu.Unlock()
		return false
	case h == nil:
		b.addLocked(context.Background(), key, &hook{value: t, provided: func(error) {}})
		b.mu.Unlock()
	default:
		delete(b.hooks, key)
		b.mu.Unlock()
		h.unwatch()
		h.consume(t, nil)
	}
	return true
}

// addLocked enters a hook, which the end of ctx removes.
func (b *bufs) addLocked(ctx context.Context, key string, h *hook) {
	if b.hooks == nil {
		b.hooks = make(map[string]*hook)
	}
	b.hooks[key] = h
	if ctx.Done() != nil {
		h.stops = append(h.stops, context.AfterFunc(ctx, func() { b.cancel(key, h) }))
	}
}

// cancel removes a hook whose context has ended. It does nothing when the hook was matched.
func (b *bufs) cancel(key string, h *hook) {
	b.mu.Lock()
	there := b.hooks[key] == h
	if there {
		delete(b.hooks, key)
	}
	b.mu.Unlock()
	if there {
		h.end(cancelled(key))
	}
}

// abort ends all waiting sides with err, and all later ones with err as a derived error. Only the
// first call counts.
func (b *bufs) abort(err error) {
	b.mu.Lock()
	hooks := b.hooks
	if b.err == nil {
		b.err = status.From(err).Derived()
	}
	b.hooks = nil
	b.mu.Unlock()
	for _, h := range hooks {
		h.end(err)
	}
}

// beginGroup enters a device into a group and returns the number of the run. A device that is in the
// present run, and one that comes after an abort, begins the next run.
func (b *bufs) beginGroup(group int32, d cluster.Device) uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.groups == nil {
		b.groups = make(map[int32]*groupRun)
	}
	r := b.groups[group]
	if r == nil {
		r = new(groupRun)
		b.groups[group] = r
	} else if r.err != nil || slices.Contains(r.devices, d) {
		*r = groupRun{number: r.number + 1}
	}
	r.devices = append(r.devices, d)
	return r.number
}

// abortGroup is abort for the keys of one run of a group. It does nothing when that is over.
func (b *bufs) abortGroup(group int32, number uint64, err error) {
	var ended []*hook
	b.mu.Lock()
	if r := b.groups[group]; r != nil && r.number == number {
		if r.err == nil {
			r.err = status.From(err).Derived()
		}
		for key, h := range b.hooks {
			if groupOf(key) == group {
				delete(b.hooks, key)
				ended = append(ended, h)
			}
		}
	}
	b.mu.Unlock()
	for _, h := range ended {
		h.end(err)
	}
}

// close ends what is left in a table that nobody uses any more.
func (b *bufs) close() {
	b.abort(status.New(status.Internal, "Delete called on non-empty BufRendezvous"))
}

// empty reports whether nobody waits.
func (b *bufs) empty() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.hooks) == 0
}

func (b *bufs) errLocked(key string) error {
	if b.err != nil || len(b.groups) == 0 {
		return b.err
	}
	if r := b.groups[groupOf(key)]; r != nil {
		return r.err
	}
	return nil
}

// groupOf returns the group that a key begins with.
func groupOf(key string) int32 {
	text, _, _ := strings.Cut(key, ":")
	n, _ := strconv.ParseInt(text, 10, 32) // 0, which is no group, for a key of another kind
	return int32(n)
}

// unwatch ends the watches of the contexts.
func (h *hook) unwatch() {
	for _, stop := range h.stops {
		stop()
	}
}

// end ends the sides of a hook that was removed.
func (h *hook) end(err error) {
	h.unwatch()
	if h.consume != nil {
		h.consume(nil, err)
	}
	if h.value != nil {
		h.value.Release()
		h.provided(err)
	}
}
