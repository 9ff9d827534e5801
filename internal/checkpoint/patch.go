package checkpoint

import (
	"bytes"
	"context"
	"slices"
	"sync"

	"github.com/tryst-rdma/tryst/internal/delta"
	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/tensor"
)

// A watcher that has a version makes the next one of it, tensor by tensor:
//
//	its digest is the same            ─► copied; nothing is transferred, and nothing requested
//	the server offers deltas (offers.go) ─► these are received, and applied
//	otherwise                         ─► the tensor is received as any other
//
// What was made is checked by its digest. When that fails, or a delta cannot be received, the tensor is received as any
// other, in the same session.

// way is how a tensor is made from another one.
type way struct {
	base   *tensor.Tensor                    // nil before it was read
	read   func(dst []byte, off int64) error // reads the base from off; nil if it is in memory
	digest []byte                            // of base
	from   basis                             // that base is of
	steps  []deltaPart
}

// deltaPart is a delta to receive.
type deltaPart struct {
	key    rendezvous.Key
	bytes  int64
	result []byte // digest
	method delta.Method
}

// patches is what a pull has of its base. The zero value is that of a pull without one.
type patches struct {
	mu sync.Mutex
	// All below are guarded by mu.
	refused  map[int]bool // tensors that could not be made: they come whole
	appliers []*delta.Applier
	stats    Deltas
	broken   int // sessions with deltas that failed: after brokenDeltas of them none are taken
}

// Deltas is how the tensors of a version came to a watcher that had another one: the bytes of tensors, and how many of them were
// transferred, by method.
type Deltas struct {
	// Whole came as with any pull, Nothing had not changed, Sparse and XOR came as deltas.
	Whole, Nothing, Sparse, XOR Saved
	// Failed are tensors of Whole that had to come whole after a delta could not be received or applied.
	Failed int
}

// Saved is a part of Deltas.
type Saved struct {
	Tensors  int
	Bytes    int64 // of the tensors
	Received int64 // instead of these
}

func (s *Saved) add(bytes, received int64) {
	s.Tensors++
	s.Bytes += bytes
	s.Received += received
}

// Received is how many bytes were transferred.
func (d *Deltas) Received() int64 {
	return d.Whole.Received + d.Nothing.Received + d.Sparse.Received + d.XOR.Received
}

// deltaRequest returns what the pull says of deltas when it opens a session; nil for a pull that takes none.
func (pl *pull) deltaRequest() *trystpb.DeltaRequest {
	pl.patches.mu.Lock()
	broken := pl.patches.broken
	pl.patches.mu.Unlock()
	if !pl.req.patches || broken >= brokenDeltas {
		return nil
	}
	var last Publication
	if pl.req.base != nil {
		last = pl.req.base.last()
	}
	return &trystpb.DeltaRequest{Epoch: last.Epoch, Number: last.Number, Rate: uint64(max(pl.req.route.rate, 0)), RoundTrip: uint64(max(pl.req.route.trip, 0))}
}

// deltaTerms returns which deltas the pull takes; nil for none.
func (pl *pull) deltaTerms() *deltaTerms {
	if req := pl.deltaRequest(); req != nil {
		return &deltaTerms{req, pl.wayOf}
	}
	return nil
}

// unchanged returns the parts of missing tensors that are here already, and the other tensors.
func (pl *pull) unchanged(missing []int) (here []part, others []int) {
	for _, i := range missing {
		e := &pl.manifest.Entries[i]
		var w *way
		if !pl.refuses(i) {
			if w = has(pl.req.own, e); w == nil {
				w = has(pl.req.base, e)
			}
		}
		if w != nil {
			here = append(here, part{i: i, way: w})
		} else {
			others = append(others, i)
		}
	}
	return here, others
}

// plan returns the parts of a session: what is here already, and for each other tensor its deltas, or its parts.
func (pl *pull) plan(here []part, s *session, others []int) []part {
	all := here
	for _, i := range others {
		if w := s.ways[i]; w != nil && !pl.refuses(i) {
			all = append(all, part{i: i, way: w})
		} else {
			all = append(all, s.partsOf(i)...)
		}
	}
	slices.SortStableFunc(all, func(a, b part) int { return a.i - b.i })
	return all
}

// brokeWith is called when a session has failed, in which there were deltas or not.
func (pl *pull) brokeWith(s *session) {
	if s == nil || len(s.ways) == 0 {
		return
	}
	pl.patches.mu.Lock()
	defer pl.patches.mu.Unlock()
	pl.patches.broken++
}

// wayOf returns how an offer makes a tensor; nil if it does not. The server is not trusted: deltas that together are longer than the
// tensor are not taken, nor more text than an honest offer has.
func (pl *pull) wayOf(i int, d *trystpb.TensorDelta) *way {
	e := &pl.manifest.Entries[i]
	if pl.req.base == nil {
		return nil
	}
	w := pl.req.base.find(e)
	if w == nil || !bytes.Equal(w.digest, d.GetBase()) {
		return nil
	}
	steps := d.GetSteps()
	if len(steps) == 0 || len(steps) > maxDeltaSteps || !bytes.Equal(steps[len(steps)-1].GetResult(), e.Digest) {
		return nil
	}
	left := uint64(e.Bytes)
	for _, s := range steps {
		if len(s.GetKey()) > pl.manifest.maxKey(e) {
			return nil
		}
		key, err := rendezvous.ParseKey(s.GetKey())
		if err != nil || s.GetBytes() == 0 || s.GetBytes() > left || len(s.GetResult()) > maxDeltaDigest {
			return nil
		}
		left -= s.GetBytes()
		w.steps = append(w.steps, deltaPart{key, int64(s.GetBytes()), s.GetResult(), delta.Method(min(s.GetMethod(), uint32(delta.XOR)))})
	}
	return w
}

func (pl *pull) refuses(i int) bool {
	pl.patches.mu.Lock()
	defer pl.patches.mu.Unlock()
	return pl.patches.refused[i]
}

// refuse is called when a tensor could not be made: it comes whole.
func (pl *pull) refuse(i int) {
	pl.patches.mu.Lock()
	defer pl.patches.mu.Unlock()
	if pl.patches.refused == nil {
		pl.patches.refused = make(map[int]bool)
	}
	if !pl.patches.refused[i] {
		pl.patches.refused[i] = true
		pl.patches.stats.Failed++
	}
}

// patch makes a tensor from its base. If that is not possible, it reports false, and the tensor must be requested. As many are made
// at once as are received, and those that wait for that keep their place in the window of receives: there are no more goroutines,
// deltas that have come, and appliers, however many tensors have deltas.
func (r *batch) patch(p part) (ok bool, err error) {
	received, err := r.receiveDeltas(p)
	if r.applies.Acquire(r.ctx, 1) == nil {
		defer r.applies.Release(1)
	} else if err == nil {
		err = context.Cause(r.ctx)
	}
	r.receives.Release(1)
	defer func() {
		for _, d := range received {
			d.Release()
		}
	}()
	deltas := received
	switch {
	case err != nil && (r.ctx.Err() != nil || mayPass(err)):
		if r.ctx.Err() == nil { // it is the one that failed
			r.pl.refuse(p.i)
		}
		r.lost.Add(r.to.lost(p))
		return false, err
	case err != nil:
		deltas, p.way = nil, nil // of which nothing can be made
	}
	if ok, err = r.to.patch(r.ctx, p, deltas); err == nil && !ok {
		r.pl.refuse(p.i)
	}
	return ok, err
}

// receiveDeltas receives the deltas of a part.
func (r *batch) receiveDeltas(p part) (deltas []*tensor.Tensor, err error) {
	for i := range p.way.steps {
		t, err := r.receiveDelta(p, &p.way.steps[i])
		if err != nil {
			return deltas, err
		}
		deltas = append(deltas, t)
	}
	return deltas, nil
}

// receiveDelta receives a delta, into memory of the length that was offered.
func (r *batch) receiveDelta(p part, d *deltaPart) (*tensor.Tensor, error) {
	dst, err := tensor.Allocate(r.pl.p.o.Allocator, tensor.Uint8, tensor.Vector(int(d.bytes)))
	if err != nil {
		return nil, err
	}
	defer dst.Release()
	into, err := rendezvous.NewInto(dst)
	if err != nil {
		return nil, err
	}
	return r.transfer(p, d.key, d.bytes, into)
}

// make makes the content of a tensor in dst.
func (pl *pull) make(p part, dst []byte, deltas []*tensor.Tensor) bool {
	e, w := &pl.manifest.Entries[p.i], p.way
	newHash, err := newHash(pl.manifest.Algorithm)
	if w == nil || err != nil {
		return false
	}
	base := w.base.Bytes()
	if len(w.steps) == 0 {
		if len(dst) > 0 && &dst[0] != &base[0] {
			copy(dst, base)
		}
		h := newHash()
		_, _ = h.Write(dst) // a hash's Write never fails
		if !bytes.Equal(h.Sum(nil), e.Digest) {
			w.from.forget(e.Name)
			return false
		}
		pl.made(delta.Nothing, e.Bytes, 0)
		return true
	}
	a, err := pl.applier()
	if err != nil {
		return false
	}
	defer pl.giveBack(a)
	t := delta.Target{Dst: dst, Base: base, BaseDigest: w.digest}
	method, received := delta.Nothing, int64(0)
	for i, s := range w.steps {
		t.Digest = s.result
		if i == len(w.steps)-1 {
			t.Hash = newHash()
		}
		if a.Apply(t, deltas[i].Bytes()) != nil {
			return false
		}
		t.Base, t.BaseDigest = dst, s.result
		method, received = max(method, s.method), received+s.bytes
	}
	pl.made(method, e.Bytes, received)
	return true
}

// deltas returns how the tensors came of which so many have, in all.
func (pl *pull) deltas(tensors int, bytes int64) Deltas {
	pl.patches.mu.Lock()
	defer pl.patches.mu.Unlock()
	d := pl.patches.stats
	d.Whole = Saved{Tensors: tensors, Bytes: bytes}
	for _, s := range []Saved{d.Nothing, d.Sparse, d.XOR} {
		d.Whole.Tensors -= s.Tensors
		d.Whole.Bytes -= s.Bytes
	}
	d.Whole.Received = d.Whole.Bytes
	return d
}

// made counts a tensor.
func (pl *pull) made(m delta.Method, bytes, received int64) {
	pl.patches.mu.Lock()
	defer pl.patches.mu.Unlock()
	switch s := &pl.patches.stats; m {
	case delta.Nothing:
		s.Nothing.add(bytes, received)
	case delta.Sparse:
		s.Sparse.add(bytes, received)
	case delta.XOR:
		s.XOR.add(bytes, received)
	case delta.Whole:
		s.Whole.add(bytes, received)
	}
}

// applier returns an Applier for one tensor.
func (pl *pull) applier() (*delta.Applier, error) {
	pl.patches.mu.Lock()
	defer pl.patches.mu.Unlock()
	if n := len(pl.patches.appliers); n > 0 {
		a := pl.patches.appliers[n-1]
		pl.patches.appliers = pl.patches.appliers[:n-1]
		return a, nil
	}
	return delta.NewApplier()
}

func (pl *pull) giveBack(a *delta.Applier) {
	a.Reset(delta.Target{})
	pl.patches.mu.Lock()
	defer pl.patches.mu.Unlock()
	pl.patches.appliers = append(pl.patches.appliers, a)
}

// patch implements sink.
func (ps *places) patch(ctx context.Context, p part, deltas []*tensor.Tensor) (ok bool, err error) {
	at := ps.at(p)
	at.mu.Lock()
	ps.dropPiecesLocked(at) // of an earlier session
	err = ps.allocateLocked(ctx, at)
	memory := at.memory
	at.mu.Unlock()
	if err != nil {
		return false, err
	}
	if !ps.pl.make(p, memory.Bytes(), deltas) {
		at.mu.Lock()
		defer at.mu.Unlock()
		at.dropLocked()
		return false, nil
	}
	at.mu.Lock()
	at.memory, at.done = nil, true
	at.mu.Unlock()
	ps.pl.req.own.came(at.TensorInfo)
	at.filled <- arrival{memory.Named(at.Name), ps.pl.came(p.i, at.Bytes, true)}
	return true, nil
}
