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

// A pull has these stages. Two windows, of receives and of bytes, limit how many tensors are in
// them at once:
//
//	for each chosen tensor, in the order of the manifest
//	  wait for space in both windows
//	  receive                      ─ then leave the window of receives
//	  check the digest             ─ while others are received
//	  deliver: yield, or write     ─ then leave the window of bytes

// PullRequest is what to pull.
type PullRequest struct {
	// Publication is the name; empty for the server's only publication.
	Publication string
	// Version is the version to pull; empty for the current one.
	Version string
	// Tensors are patterns of tensor names, as in path.Match except that * and ? also match
	// a slash; empty for all. A pattern that matches no tensor is NotFound.
	Tensors []string
	// Inflight is how many tensors are received at once; 0 means
	// DefaultInflight.
	Inflight int
	// InflightBytes bounds the memory of the tensors that are requested and not yet
	// delivered; 0 means DefaultInflightBytes. One tensor of any size is always permitted.
	InflightBytes int64
	// SkipDigests skips the check of the digests.
	SkipDigests bool
	// Progress, if not nil, is called after each tensor that was received and checked, one
	// call at a time.
	Progress func(Progress)
	// Summary, if not nil, is set when the pull has succeeded.
	Summary *Summary
}

// Progress is the progress of a pull.
type Progress struct {
	Tensor         string // the name of the last received tensor
	Tensors, Total int    // received tensors, and all
	Bytes          int64  // of the received tensors
	TotalBytes     int64
}

// Summary is the result of a pull.
type Summary struct {
	Publication Publication
	Tensors     int // that were pulled
	Bytes       int64
	// Transfer is the time during which at least one receive was in progress, without time
	// that was only for checks and writes. Total is the whole time.
	Transfer, Total time.Duration
	// Digest is the digest of all pulled tensors: of their digests, in the order of the
	// manifest, as "xxh64:53f0…".
	Digest string
	// Verified reports whether the digest of each tensor was checked.
	Verified bool
	// Files are the paths that were written.
	Files []string
}

// BytesPerSecond is the rate during Transfer; 0 when nothing was transferred.
func (s *Summary) BytesPerSecond() float64 {
	if s.Transfer <= 0 {
		return 0
	}
	return float64(s.Bytes) / s.Transfer.Seconds()
}

// pull is a pull in progress.
type pull struct {
	p        *Puller
	req      PullRequest
	manifest *Manifest
	chosen   []int // indexes in Manifest.Entries, ascending
	begin    time.Time

	window *semaphore.Weighted // bytes of the requested tensors that are not delivered
	size   int64               // of the window

	mu sync.Mutex
	// All below are guarded by mu.
	receiving int // receives under way
	since     time.Time
	transfer  time.Duration // while receiving was not 0, up to since
	progress  Progress
}

// start gets the manifest and chooses the tensors.
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

// weight returns how much of the window of bytes a tensor takes.
func (pl *pull) weight(i int) int64 {
	return min(max(pl.manifest.Entries[i].Bytes, leastWeight), pl.size)
}

// handedOn returns a tensor's share of the window of bytes.
func (pl *pull) handedOn(i int) { pl.window.Release(pl.weight(i)) }

// fetch receives and checks the chosen tensors. For each, in order, it calls next. It then
// passes the tensor, with a reference, to the function that next returned, on a goroutine of
// its own; that function, or a later consumer, must call handedOn. fetch returns the first
// error when all goroutines have ended.
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

// check checks a tensor and passes it on.
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

// transferring counts the receives in progress, and measures the time with at least one.
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

// done returns how many tensors have been received.
func (pl *pull) done() int {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	return pl.progress.Tensors
}

// explain adds the progress to the error of a pull that the caller has ended.
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

// summary returns the Summary of a pull that has succeeded.
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

// Pull receives tensors of a publication and yields them in the order of the manifest, named
// and checked. It receives the following tensors in parallel, within the limits of the request.
// The loop owns a reference to each tensor and must release it.
//
// An error is yielded last, with a nil tensor. Breaking out of the loop ends the pull. When the
// loop has ended, no goroutine and no memory of the pull is left.
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
	// A tensor gets a place in the order before it is requested, and fills it when it is
	// received. There are as many places as the window permits.
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
			order <- place{i, c} // never blocks: each place has its share of the window
			return func(t *tensor.Tensor) error {
				c <- t
				return nil
			}, nil
		})
	}()
	// Deferred, so that the pull also ends when yield panics.
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
