package checkpoint

import (
	"context"
	"iter"
	"sync"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// WatchRequest is what to watch.
type WatchRequest struct {
	// Pull is how each version is pulled. Its Version and Into are not used. With an Interrupted, failures of the
	// connection and the server are reported, also those between pulls; their Retry is 0, since a watch tries again
	// for ever.
	Pull PullRequest
	// Into has memory of the caller's, by name as in PullRequest.Into. Without any the watcher allocates two sets
	// of its own. With two maps, versions come into one and the other in turn. With one map a version comes in place,
	// when Apply is called.
	Into []map[string]*tensor.Tensor
}

// Version is a version of a publication that a watch has yielded.
type Version struct {
	Publication
	// Tensors are those that were pulled, in the order of the manifest, named and checked. They stay as they are
	// until Release. In place there are none before Apply.
	Tensors []*tensor.Tensor
	// Summary is about the pull.
	Summary Summary

	done  sync.Once
	mu    sync.Mutex                      // held while Tensors is taken away
	back  func()                          // gives the memory back
	apply func(ctx context.Context) error // nil unless in place
}

// Release gives the memory of the version back: the watcher receives a later version into it, when nothing else refers to
// it. It may be called twice, from any goroutine.
func (v *Version) Release() {
	v.done.Do(func() {
		v.drop()
		if v.back != nil {
			v.back()
		}
	})
}

// drop releases the tensors.
func (v *Version) drop() {
	v.mu.Lock()
	tensors := v.Tensors
	v.Tensors = nil
	v.mu.Unlock()
	for _, t := range tensors {
		t.Release()
	}
}

// Apply receives the version in place: into the one map of WatchRequest.Into, which nothing writes to before Apply is called and
// after it has returned nil. If a newer version takes its place meanwhile, that one comes; Publication says which. After an
// error the content is undefined, and Apply may be called again; Tensor.Buffer().WaitUnique says when no peer writes any more. Call it
// in the loop, before the next version is asked for. Without such memory the tensors are there already, and Apply does nothing.
func (v *Version) Apply(ctx context.Context) error {
	if v.apply == nil {
		return nil
	}
	return v.apply(ctx)
}

// Watch yields the newest complete version of a publication, and then each newer one: each at most once, ascending within
// an epoch. A version that is replaced while the loop works on another one is left out. It goes on when connections break, when the server
// restarts, and while there is no such publication; the versions of a server that has restarted follow whatever their
// numbers are. Two sets of memory are in use: a version is pulled while the caller has the one before, which it gives back with Release.
//
// An error is yielded last, with a nil Version: that of ctx, one that does not pass, such as memory in Into that does not
// fit, or that two servers have the publication at one address. Versions that were not released stay valid.
func (p *Puller) Watch(ctx context.Context, req WatchRequest) iter.Seq2[*Version, error] {
	return func(yield func(*Version, error) bool) {
		if err := p.watch(ctx, req, func(v *Version) bool { return yield(v, nil) }); err != nil {
			yield(nil, err)
		}
	}
}

func (p *Puller) watch(ctx context.Context, req WatchRequest, yield func(*Version) bool) error {
	req.Pull.Version, req.Pull.Into = "", nil
	if len(req.Into) > bufferedSets {
		return status.Errorf(status.InvalidArgument, "Into has %d maps: one is filled in place, two in turn", len(req.Into))
	}
	f := p.follow(ctx, req.Pull)
	defer f.close()
	if len(req.Into) == 1 {
		return f.inPlace(ctx, req.Into[0], yield)
	}
	s := newSets(p.o.Allocator, req.Into)
	defer s.close()
	for {
		v, err := f.pullNext(ctx, s)
		if err != nil {
			return err
		}
		if !yield(v) {
			return nil
		}
	}
}

// pullNext waits for memory and for a newer version, and pulls it.
func (f *follower) pullNext(ctx context.Context, s *sets) (*Version, error) {
	one, err := s.take(ctx)
	if err != nil {
		return nil, wrap("watching "+quote(f.req.Publication), err)
	}
	var v *Version
	err = f.until(ctx, func(p Publication) (*Summary, error) {
		v = &Version{}
		if err := waitUnique(ctx, one.memory); err != nil { // of a pull before that failed
			return nil, err
		}
		return f.fill(ctx, p, v, one.known, func(req *PullRequest) {
			if !one.own {
				req.Into = one.memory
				return
			}
			req.memory = func(m *Manifest, chosen []int) (map[string]*tensor.Tensor, error) { return one.fit(m, chosen, s.alloc) }
		})
	}, func() { v.drop() })
	if err != nil {
		s.put(one)
		return nil, err
	}
	f.base = one.known
	v.back = func() { s.put(one) }
	return v, nil
}

// until pulls the newest version until one came that is newer than the last one. pull returns which it was. drop drops what came and is
// not newer.
func (f *follower) until(ctx context.Context, pull func(Publication) (*Summary, error), drop func()) error {
	for {
		p, era, err := f.next(ctx)
		if err != nil {
			return err
		}
		got, err := pull(p)
		if err != nil {
			if err = f.failed(ctx, err); err != nil {
				return err
			}
			continue
		}
		ok, err := f.came(got.Publication, era)
		if ok {
			f.gotWhole(got.Publication, got)
			return nil
		}
		drop()
		if err == nil {
			err = f.failed(ctx, status.Errorf(status.NotFound, "%s announced version %d and gave version %d", f.p.server(), p.Number, got.Publication.Number))
		}
		if err != nil {
			return err
		}
	}
}

// fill pulls a version into v.
// own is what is known of the memory that it comes into.
func (f *follower) fill(ctx context.Context, p Publication, v *Version, own *known, into func(*PullRequest)) (*Summary, error) {
	req := f.request()
	req.own = own
	req.Publication, req.Version, req.Summary = p.Name, p.Version, &v.Summary
	into(&req)
	for t, err := range f.p.Pull(ctx, req) {
		if err != nil {
			v.drop()
			return nil, err
		}
		v.Tensors = append(v.Tensors, t)
	}
	v.Publication = v.Summary.Publication
	own.whole(v.Publication)
	f.measured(&v.Summary)
	return &v.Summary, nil
}

// inPlace yields versions that come into memory when they are applied.
func (f *follower) inPlace(ctx context.Context, memory map[string]*tensor.Tensor, yield func(*Version) bool) error {
	own := newKnown(memory)
	f.base = own
	failed := false // the last Apply has: a peer may write into the memory for a while
	for {
		p, era, err := f.next(ctx)
		if err != nil {
			return err
		}
		before := f.taken()
		if ok, err := f.came(p, era); err != nil {
			return err
		} else if !ok {
			continue
		}
		v := &Version{Publication: p}
		v.apply = func(ctx context.Context) error {
			if failed {
				if err := waitUnique(ctx, memory); err != nil {
					return err
				}
			}
			err := f.applyTo(ctx, v, before, own)
			failed = err != nil
			return err
		}
		if !yield(v) {
			return nil
		}
		v.apply = nil
		v.drop()
	}
}

// applyTo pulls a version that was yielded, or a newer one if that is gone, in place. before is the version that was taken
// before that one: what has not come whole may be taken again.
func (f *follower) applyTo(ctx context.Context, v *Version, before Publication, own *known) error {
	v.drop() // what an earlier Apply got
	yielded := v.Publication
	pull := func(p Publication) (*Summary, error) {
		return f.fill(ctx, p, v, own, func(req *PullRequest) { req.Into = own.memory })
	}
	era := f.era()
	got, err := pull(yielded)
	if err == nil {
		ok, err := f.came(got.Publication, era) // its number may be higher, with the same content
		if !ok {
			v.Publication = yielded // or lower: the server has the content in the version before one that was dropped
		}
		if err == nil {
			f.gotWhole(v.Publication, got)
		}
		return err
	}
	if err = f.failed(ctx, err); err != nil {
		return err
	}
	f.event(func(w *watch) { w.taken = before })
	err = f.until(ctx, func(p Publication) (*Summary, error) {
		if err := waitUnique(ctx, own.memory); err != nil {
			return nil, err
		}
		return pull(p)
	}, v.drop)
	if err != nil {
		f.event(func(w *watch) { w.taken = yielded }) // the loop does not get it again
	}
	return err
}
