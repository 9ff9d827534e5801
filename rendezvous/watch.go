package rendezvous

import "context"

// watch tells the remote receives of a step that their context has ended. It is theirs
// together, those of one context at a time, and stays when the last of them has ended: the
// next receive has that context too, as a rule, and to be told of its end would cost four
// allocations for each. The end of the step ends it, as does another context.
type watch struct {
	b    *BaseRemote
	done <-chan struct{} // of the context: contexts that share it end together

	// Guarded by b.mu.
	stop func() bool // set once it has begun
	n    int         // receives under way that have it
}

// watchLocked gives a receive the watch of its context, which can end. When the lock has
// been given up the caller begins the watch, if it is a fresh one, and ends the one that it
// has replaced, if nobody has that.
func (b *BaseRemote) watchLocked(r *remoteRecv, done <-chan struct{}) (fresh *watch, end func() bool) {
	if b.watching == nil || b.watching.done != done {
		fresh = &watch{b: b, done: done}
		end = b.watchesLocked(fresh)
	}
	r.watch = b.watching
	r.watch.n++
	return fresh, end
}

// watchesLocked sets the watch that is kept, nil for none, and returns how the one before
// it ends when nobody has it.
func (b *BaseRemote) watchesLocked(w *watch) (end func() bool) {
	old := b.watching
	b.watching = w
	if old == nil || old.n > 0 {
		return nil
	}
	return old.stop
}

// begin watches ctx.
func (w *watch) begin(ctx context.Context) {
	stop := afterFunc(ctx, w.fire)
	w.b.mu.Lock()
	w.stop = stop
	over := w.n == 0 && w.b.watching != w
	w.b.mu.Unlock()
	if over {
		stop()
	}
}

// leftLocked is said of a receive that has ended, and returns how the watch ends when that
// was the last of a watch that is not kept.
func (w *watch) leftLocked() (end func() bool) {
	if w.n--; w.n == 0 && w.b.watching != w {
		return w.stop // nil: it is just being begun, which ends it
	}
	return nil
}

// fire ends the receives whose context has ended.
func (w *watch) fire() {
	var calls []RemoteRecv
	var errs []error
	b := w.b
	b.mu.Lock()
	for r := b.remote; r != nil; r = r.next {
		if r.watch == w && r.why == nil {
			r.why = ended(r.ctx, methodRemote, r.key)
			calls, errs = append(calls, r.call), append(errs, r.why)
		}
	}
	if b.watching == w {
		b.watching = nil
	}
	b.mu.Unlock()
	for i := range calls {
		calls[i].Cancel(errs[i]) // by began, where it is not known yet
	}
}
