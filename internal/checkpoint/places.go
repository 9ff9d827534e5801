package checkpoint

import (
	"context"
	"hash"
	"slices"
	"time"

	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// places is the sink of a pull whose tensors are yielded in order. A tensor gets a place in the
// order, and a share of the window, when a part of it is requested for the first time. It keeps both,
// and what has come of it, until it is delivered, in this session or a later one:
//
//	piece ─► its range of the tensor's memory ─► digest, as far as the tensor has come without gaps
//
// A tensor that is given whole has been checked before it comes here. Memory is the caller's
// (PullRequest.Into), or for a tensor in pieces the Puller's Allocator's.
type places struct {
	pl    *pull
	order chan *place
	all   []*place // as pull.chosen
}

// place is the place of one tensor.
type place struct {
	*TensorInfo
	filled chan arrival // with the tensor, once
	weight int64        // its share of the window; 0 before begin. Used by one goroutine at a time.

	assembly
	// Both are guarded by mu.
	memory *tensor.Tensor           // of a tensor in pieces, with a reference; nil before the first one
	ranges map[piece]*tensor.Tensor // of memory, each with a reference, for the pieces that have not come
}

// arrival is a tensor in the window of bytes, with a reference.
type arrival struct {
	tensor *tensor.Tensor
	how    PulledTensor
}

func newPlaces(pl *pull) *places {
	// Each place in order has a share of the window, so there are never more.
	ps := &places{pl: pl, order: make(chan *place, min(int64(len(pl.chosen)), pl.size/leastWeight)+1)}
	for _, i := range pl.chosen {
		ps.all = append(ps.all, &place{TensorInfo: &pl.manifest.Entries[i], filled: make(chan arrival, 1)})
	}
	return ps
}

func (ps *places) at(p part) *place {
	n, _ := slices.BinarySearch(ps.pl.chosen, p.i)
	return ps.all[n]
}

func (ps *places) missing() (missing []int) {
	for n, i := range ps.pl.chosen {
		at := ps.all[n]
		at.mu.Lock()
		if !at.done {
			missing = append(missing, i)
		}
		at.mu.Unlock()
	}
	return missing
}

func (ps *places) has(p part) bool {
	at := ps.at(p)
	at.mu.Lock()
	defer at.mu.Unlock()
	return !p.whole() && at.have.covers(p.piece)
}

func (ps *places) weight(p part) int64 {
	at := ps.at(p)
	if at.weight > 0 {
		return 0
	}
	return ps.pl.share(at.Bytes)
}

func (ps *places) begin(p part) {
	if at := ps.at(p); at.weight == 0 {
		at.weight = ps.pl.share(at.Bytes)
		ps.order <- at // does not block: see newPlaces
	}
}

func (ps *places) lost(part) int64 { return 0 } // the tensor keeps its share

// into waits until the memory has no writer left from an earlier session.
func (ps *places) into(ctx context.Context, p part) (*rendezvous.Into, error) {
	dst, err := ps.destination(ctx, p)
	if err != nil || dst == nil {
		return nil, err
	}
	if err := unwritten(ctx, dst.Buffer()); err != nil {
		return nil, err
	}
	return rendezvous.NewInto(dst)
}

// destination returns the memory of a part; nil for any. It has a reference of the place.
func (ps *places) destination(ctx context.Context, p part) (*tensor.Tensor, error) {
	at := ps.at(p)
	at.mu.Lock()
	defer at.mu.Unlock()
	if !p.whole() {
		return ps.rangeLocked(ctx, at, p.piece)
	}
	ps.dropPiecesLocked(at) // the server may have given some before
	ps.pl.req.own.forget(at.Name)
	return ps.pl.req.Into[at.Name], nil
}

// dropPiecesLocked forgets the pieces of a tensor that comes otherwise.
func (ps *places) dropPiecesLocked(at *place) {
	ps.pl.mu.Lock()
	ps.pl.progress.Bytes -= at.have.size()
	ps.pl.mu.Unlock()
	at.dropLocked()
}

// rangeLocked returns the memory of a piece.
func (ps *places) rangeLocked(ctx context.Context, at *place, p piece) (*tensor.Tensor, error) {
	if at.memory == nil {
		if err := ps.allocateLocked(ctx, at); err != nil {
			return nil, err
		}
	}
	if dst := at.ranges[p]; dst != nil {
		return dst, nil
	}
	buf, err := at.memory.Buffer().Slice(int(p.off), int(p.n))
	if err != nil {
		return nil, err
	}
	dst, err := tensor.New(tensor.Uint8, tensor.Vector(int(p.n)), buf)
	if err != nil {
		buf.Release()
		return nil, err
	}
	at.ranges[p] = dst
	return dst, nil
}

// allocateLocked sets the memory of a tensor that comes in pieces.
func (ps *places) allocateLocked(ctx context.Context, at *place) (err error) {
	own := ps.pl.req.Into[at.Name]
	if own == nil {
		if at.memory, err = tensor.Allocate(ps.pl.p.o.Allocator, at.DType, at.Shape); err != nil {
			return wrap("memory for tensor "+quote(at.Name), err)
		}
	} else {
		if err := unwritten(ctx, own.Buffer()); err != nil {
			return err
		}
		if !own.Buffer().RetainUnique() {
			return status.Errorf(status.FailedPrecondition, "the memory of tensor %s in Into has other references than the caller's", quote(at.Name))
		}
		at.memory = own
		ps.pl.req.own.forget(at.Name)
	}
	at.ranges = make(map[piece]*tensor.Tensor)
	return nil
}

// unwritten waits until the caller's reference to memory is the only one, so that no peer writes to
// it. It gives up after intoWait; then the receive into the memory fails.
func unwritten(ctx context.Context, buf *tensor.Buffer) error {
	give := time.Now().Add(intoWait)
	for pause := time.Millisecond; !buf.Unique() && time.Now().Before(give); pause = min(2*pause, intoPause) {
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
	}
	return nil
}

func (ps *places) take(p part, t *tensor.Tensor) (again bool, err error) {
	at := ps.at(p)
	if p.whole() {
		at.mu.Lock()
		at.done = true
		at.mu.Unlock()
		ps.pl.req.own.came(at.TensorInfo)
		at.filled <- arrival{t.Named(at.Name), ps.pl.came(p.i, at.Bytes, true)}
		return false, nil
	}
	t.Release()
	at.mu.Lock()
	memory := at.memory
	at.ranges[p.piece].Release() // its receive has ended, and memory has the content
	delete(at.ranges, p.piece)
	at.mu.Unlock()
	content := memory.Bytes()
	read := func(h hash.Hash, p piece) error {
		_, _ = h.Write(content[p.off:p.end()]) // a hash's Write never fails
		return nil
	}
	ps.pl.came(p.i, p.n, false)
	switch made, err := ps.pl.add(&at.assembly, at.TensorInfo, p.piece, content[p.off:p.end()], read); {
	case err != nil:
		return false, err
	case made == complete:
		at.mu.Lock()
		at.memory = nil
		at.mu.Unlock()
		ps.pl.req.own.came(at.TensorInfo)
		at.filled <- arrival{memory.Named(at.Name), ps.pl.came(p.i, 0, true)}
	case made == anew:
		ps.pl.came(p.i, -at.Bytes, false)
		return true, nil
	}
	return false, nil
}

// dropLocked releases what has come of a tensor that is not whole.
func (at *place) dropLocked() {
	for _, r := range at.ranges {
		r.Release()
	}
	if at.memory != nil {
		at.memory.Release()
	}
	at.memory, at.ranges = nil, nil
	at.resetLocked()
}

// close releases what was not delivered, when all receives have ended.
func (ps *places) close() {
	for at := range ps.order {
		select {
		case a := <-at.filled:
			a.tensor.Release()
		default: // it never came
		}
	}
	for _, at := range ps.all {
		at.mu.Lock()
		at.dropLocked()
		at.mu.Unlock()
	}
}
