package checkpoint

import (
	"context"
	"iter"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// A pull has these stages. They run in parallel, bounded by two windows:
//
//	for each chosen tensor, in the order of the manifest
//	  wait for room in the window of bytes and the window of receives
//	  receive                      ─ a receive fewer
//	  check the digest             ─ while others are received
//	  hand on: yield, or write     ─ its bytes fewer

// PullRequest is what to pull.
type PullRequest struct {
	// Publication is the name; empty for the only one that the server has.
	Publication string
	// Version is the one to pull; empty for the current one.
	Version string
	// Tensors are patterns of names, as path.Match has them but that * and ?
	// match the slash too; empty for all. One that matches nothing is
	// NotFound.
	Tensors []string
	// Inflight is how many tensors are received at once; 0 means
	// DefaultInflight.
	Inflight int
	// InflightBytes bounds the memory of the tensors that are requested and
	// not yet handed to the caller; 0 means DefaultInflightBytes. One tensor may always be
	// under way, whatever its size.
	InflightBytes int64
	// SkipDigests leaves the content unchecked.
	SkipDigests bool
	// Progress is called after each tensor that was received and checked,
	// one call at a time. Nil for no reports.
	Progress func(Progress)
	// Summary is filled in when the pull has succeeded. It may be nil.
	Summary *Summary
}

// Progress is how far a pull has come.
type Progress struct {
	Tensor         string // the name of the tensor that has just come
	Tensors, Total int    // those that have come, and all
	Bytes          int64  // of those that have come
	TotalBytes     int64
}

// Summary is what a pull did.
type Summary struct {
	Publication Publication
	Tensors     int // that were pulled
	Bytes       int64
	// Transfer is the time while at least one receive was under way,
	// without what was only checked or written. Total is everything.
	Transfer, Total time.Duration
	// Digest is one for all pulled tensors: over their digests, in the order
	// of the manifest, as "xxh64:53f0…".
	Digest string
	// Verified reports that each tensor's digest was checked.
	Verified bool
	// Files are the paths that were written.
	Files []string
}

// BytesPerSecond is the rate of the transfer alone; 0 when nothing was
// transferred.
func (s *Summary) BytesPerSecond() float64 {
	if s.Transfer <= 0 {
		return 0
	}
	return float64(s.Bytes) / s.Transfer.Seconds()
}

// pull is one pull under way.
type pull struct {
	p        *Puller
	req      PullRequest
	manifest *Manifest
	chosen   []int // indexes in Manifest.Entries, ascending
	begin    time.Time

	window *semaphore.Weighted // bytes of what is requested and not handed on
	size   int64               // of the window

	mu sync.Mutex
	// All below are guarded by mu.
	receiving int // receives under way
	since     time.Time
	transfer  time.Duration // while receiving was not 0, up to since
	progress  Progress
}

// start asks what there is and chooses.
func (p *Puller) start(ctx context.Context, req PullRequest) (*pull, error) {
	if req.Inflight <= 0 {
		req.Inflight = DefaultInflight
	}
	if req.InflightBytes <= 0 {
		req.InflightBytes = DefaultInflightBytes
	}
	begin := time.Now()
	m, err := p.Describe(ctx, req.Publication, req.Version)
	if err != nil {
		return nil, err
	}
	chosen, err := m.choose(req.Tensors)
	if err != nil {
		return nil, err
	}
	pl := &pull{p: p, req: req, manifest: m, chosen: chosen, begin: begin,
		window: semaphore.NewWeighted(req.InflightBytes), size: req.InflightBytes}
	pl.progress.Total = len(chosen)
	for _, i := range chosen {
		pl.progress.TotalBytes += m.Entries[i].Bytes
	}
	return pl, nil
}

// weight is what a tensor takes of the window.
func (pl *pull) weight(i int) int64 {
	return min(max(pl.manifest.Entries[i].Bytes, leastWeight), pl.size)
}

// handedOn makes room for more tensors.
func (pl *pull) handedOn(i int) { pl.window.Release(pl.weight(i)) }

// fetch receives and checks the chosen tensors. For each, in order, it calls
// next, and hands the tensor with a reference to the function that next
// returned, on a goroutine of its own; whoever has done with it calls handedOn.
// It returns when all goroutines have ended, with the first error.
func (pl *pull) fetch(caller context.Context, next func(i int) (func(*tensor.Tensor) error, error)) error {
	ctx, lost := context.WithCancelCause(caller)
	defer lost(nil)
	s, err := pl.p.open(ctx, pl.manifest, pl.chosen, lost)
	if err != nil {
		return pl.explain(caller, err)
	}
	defer s.close()
	receives := semaphore.NewWeighted(int64(pl.req.Inflight))
	g, ctx := errgroup.WithContext(ctx)
	for _, i := range pl.chosen {
		// Both fail only when ctx has ended.
		if pl.window.Acquire(ctx, pl.weight(i)) != nil || receives.Acquire(ctx, 1) != nil {
			break
		}
		take, err := next(i)
		if err != nil {
			g.Go(func() error { return err })
			break
		}
		g.Go(func() error {
			t, err := pl.receive(ctx, s, i)
			receives.Release(1)
			if err != nil {
				return err
			}
			return pl.check(i, t, take)
		})
	}
	err = g.Wait() // the first error, which also ended ctx
	if cause := context.Cause(ctx); err == nil && cause != nil && pl.done() < len(pl.chosen) {
		err = cause
	}
	return pl.explain(caller, err)
}

// receive receives one tensor through the rendezvous.
func (pl *pull) receive(ctx context.Context, s *session, i int) (*tensor.Tensor, error) {
	type outcome struct {
		v   rendezvous.Value
		err error
	}
	e := &pl.manifest.Entries[i]
	c := make(chan outcome, 1)
	pl.transferring(1)
	s.receiver.RecvAsync(ctx, s.step, s.keys[e.Name], func(v rendezvous.Value, _ rendezvous.Args, err error) {
		c <- outcome{v, err}
	})
	o := <-c
	pl.transferring(-1)
	switch {
	case o.err != nil:
		return nil, s.cause(ctx, wrap("receiving tensor "+quote(e.Name), o.err))
	case o.v.Dead:
		o.v.Tensor.Release()
		return nil, status.Errorf(status.Internal, "receiving tensor %s: the server sent a dead value", quote(e.Name))
	}
	return o.v.Tensor, nil
}

// check checks a tensor and hands it on.
func (pl *pull) check(i int, t *tensor.Tensor, take func(*tensor.Tensor) error) error {
	e := &pl.manifest.Entries[i]
	if err := e.check(t, pl.manifest.Algorithm, !pl.req.SkipDigests); err != nil {
		t.Release()
		return wrap("tensor "+quote(e.Name), err)
	}
	if err := take(t.Named(e.Name)); err != nil {
		return err
	}
	pl.mu.Lock()
	defer pl.mu.Unlock()
	pl.progress.Tensor = e.Name
	pl.progress.Tensors++
	pl.progress.Bytes += e.Bytes
	if pl.req.Progress != nil {
		pl.req.Progress(pl.progress)
	}
	return nil
}

// transferring counts the receives under way, and the time while there are any.
func (pl *pull) transferring(n int) {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	now := time.Now()
	if pl.receiving > 0 {
		pl.transfer += now.Sub(pl.since)
	}
	pl.since = now
	pl.receiving += n
}

// done is how many tensors have come.
func (pl *pull) done() int {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	return pl.progress.Tensors
}

// explain adds how far a pull had come when the caller ended it.
func (pl *pull) explain(caller context.Context, err error) error {
	if err == nil || caller.Err() == nil {
		return err
	}
	why, code := "was cancelled", status.Cancelled
	if caller.Err() == context.DeadlineExceeded {
		why, code = "took longer than its deadline", status.DeadlineExceeded
	}
	return status.Errorf(code, "the pull of %s %s: %d of %d tensors had come", quote(pl.manifest.Name), why, pl.done(), len(pl.chosen))
}

// summary is what the pull did, once it has ended well.
func (pl *pull) summary() Summary {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	return Summary{
		Publication: pl.manifest.Publication,
		Tensors:     pl.progress.Tensors, Bytes: pl.progress.Bytes,
		Transfer: pl.transfer, Total: time.Since(pl.begin),
		Digest: pl.manifest.combinedDigest(pl.chosen), Verified: !pl.req.SkipDigests,
	}
}

// Pull receives tensors of a publication and yields them in the order of the
// manifest, named and checked. Those that follow are received meanwhile, within
// the bounds of the request. The loop owns a reference to each tensor that it
// gets, and releases it.
//
// An error is yielded with a nil tensor, and is the last. Breaking out of the
// loop ends the pull; nothing of it is left when the loop has ended.
func (p *Puller) Pull(ctx context.Context, req PullRequest) iter.Seq2[*tensor.Tensor, error] {
	return func(yield func(*tensor.Tensor, error) bool) {
		if err := p.each(ctx, req, func(t *tensor.Tensor) bool { return yield(t, nil) }); err != nil {
			yield(nil, err)
		}
	}
}

// each calls yield with the tensors, in order, until it returns false.
func (p *Puller) each(ctx context.Context, req PullRequest, yield func(*tensor.Tensor) bool) error {
	pl, err := p.start(ctx, req)
	if err != nil {
		return err
	}
	// A tensor's place in the order is made before it is requested, and
	// filled when it has come. As many as the window has can wait.
	type place struct {
		i      int
		tensor chan *tensor.Tensor
	}
	order := make(chan place, min(int64(len(pl.chosen)), pl.size/leastWeight)+1)
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	var failure error // of fetch; read after ended
	go func() {
		defer close(ended)
		defer close(order)
		failure = pl.fetch(ctx, func(i int) (func(*tensor.Tensor) error, error) {
			c := make(chan *tensor.Tensor, 1)
			order <- place{i, c} // has room: each one in it has its share of the window
			return func(t *tensor.Tensor) error {
				c <- t
				return nil
			}, nil
		})
	}()
	// Also when yield panics: nothing of the pull outlives it.
	defer func() {
		cancel()
		<-ended
		for at := range order {
			select {
			case t := <-at.tensor:
				t.Release()
			default: // it never came
			}
		}
	}()
	for at := range order {
		var t *tensor.Tensor
		select {
		case t = <-at.tensor:
		case <-ended:
			select {
			case t = <-at.tensor: // it came, and then fetch ended
			default:
				return failure
			}
		}
		pl.handedOn(at.i)
		if !yield(t) {
			return nil
		}
	}
	<-ended
	if failure == nil && req.Summary != nil {
		*req.Summary = pl.summary()
	}
	return failure
}
