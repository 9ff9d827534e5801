package checkpoint

import (
	"context"
	"hash"
	"iter"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// A pull has these stages. Two windows, of receives and of bytes, limit how many tensors are in
// them at once:
//
//	for each part that has not come, in the order of the manifest: a tensor, or a piece of a large one
//	  wait for space in both windows
//	  receive                      ─ then leave the window of receives
//	  put it in its place: memory, or a file
//	  check the digest             ─ while others are received
//	  deliver: yield the tensor; what is in a file is delivered  ─ then leave the window of bytes
//
// When a connection or the server fails, the same begins again with what is missing
// (session.go), for as long as the request permits (outage.go).

// PullRequest is what to pull.
type PullRequest struct {
	// Publication is the name; empty for the server's only publication.
	Publication string
	// Version is the version to pull; empty for the current one.
	Version string
	// Tensors are patterns of tensor names, as in path.Match except that * and ? also match
	// a slash; empty for all. A pattern that matches no tensor is NotFound.
	Tensors []string
	// Into has memory of the caller's for tensors, by name; TensorsFor makes it. Such a tensor
	// is received straight into it, over verbs without a copy if the memory is of the
	// Allocator of the client, and its digest is checked there. Pull yields it as any other,
	// with a reference of its own. Without Tensors, those of Into are pulled.
	//
	// An unknown name, or memory of another type or shape, is InvalidArgument, and memory
	// with a reference beside the caller's FailedPrecondition, before anything is transferred.
	// The caller keeps its references until the pull has ended. Then the content of what was
	// not yielded is undefined, and a peer may still write to it, as rendezvous.Into says.
	// Save does not take it.
	Into map[string]*tensor.Tensor
	// Inflight is how many tensors, or pieces of 4 MiB of larger ones, are received at once;
	// 0 means DefaultInflight.
	Inflight int
	// InflightBytes bounds the memory of the tensors that are requested and not yet
	// delivered; 0 means DefaultInflightBytes. One tensor of any size is always permitted.
	// Save uses at most 64 MiB, which is what is sent again after the process was killed.
	InflightBytes int64
	// Retry is how long the pull tries to go on after a connection or the server failed, or the
	// server had no room for a call: the longest time without any progress. 0 means DefaultRetry; with a negative value the
	// first failure ends the pull. It also holds for the first question to a server that is
	// not up yet. Progress is a tensor, or a piece of a large one, that has come whole and had
	// not come before. An attempt that has begun may take up to 20 seconds longer.
	//
	// Silence is a failure, too: a server answers, and brings nothing for Retry, a minute at
	// least, and for the time that the requested bytes take at 1 MiB/s and its files at 128 MiB/s.
	Retry time.Duration
	// Interrupted, if not nil, is called when such a failure interrupts the pull, and when
	// the pull goes on; one call at a time, not for every attempt.
	Interrupted func(Interruption)
	// Measurement marks a pull that only measures: the server logs it at level DEBUG.
	Measurement bool
	// SkipDigests skips the check of the digests.
	SkipDigests bool
	// Progress, if not nil, is called after each tensor that was received and checked, and
	// after each piece of a large one; one call at a time.
	Progress func(Progress)
	// Received, if not nil, is called once for each tensor that has come whole and was checked,
	// with how it came; one call at a time. Pull calls it in the loop, before it yields the
	// tensor. Save does not call it for a tensor that was in the file already.
	Received func(PulledTensor)
	// Whole makes a watch receive each version whole, and not as what differs from the version before.
	Whole bool
	// patches is set for a watch that takes deltas. base is what the watch has of the version before, nil at first. own is
	// what it knows of Into, and shelf gets what it knows of the files. route is what it has measured.
	patches bool
	base    basis
	own     *known
	shelf   *shelf
	route   pullRoute
	// memory, if not nil, returns Into when the tensors are chosen.
	memory func(m *Manifest, chosen []int) (map[string]*tensor.Tensor, error)
	// Summary, if not nil, is set when the pull has ended without an error. When the loop over
	// Pull was left, it is about the tensors that had come, and has no Digest.
	Summary *Summary
}

// Progress is the progress of a pull.
type Progress struct {
	Tensor         string // the name of the last received tensor
	Tensors, Total int    // received tensors, and all
	Bytes          int64  // of the received tensors and pieces
	TotalBytes     int64
}

// Summary is the result of a pull.
type Summary struct {
	Publication Publication
	Tensors     int // that were pulled
	Bytes       int64
	// Resumed is how many of the Bytes were in the files already, from an earlier pull.
	Resumed int64
	// Transfer is the time during which at least one receive was in progress, without time
	// that was only for checks and writes. Total is the whole time.
	Transfer, Total time.Duration
	// Digest is the digest of all pulled tensors: of their digests, in the order of the
	// manifest, as "xxh64:53f0…".
	Digest string
	// Verified reports whether the digest of each tensor was checked.
	Verified bool
	// Deltas is how the tensors came, for a watch.
	Deltas Deltas
	// Carried is what each transport has carried, the one with the most tensors first. What was in
	// the files already is not in it.
	Carried []Carried
	// Files are the paths that were written, or were right already.
	Files []string
	// Unsynced says why the names of these files, which are complete and on the disk, may be lost with
	// the power: a directory could not be synced. Nil if they are not.
	Unsynced error
}

// BytesPerSecond is the rate during Transfer; 0 when nothing was transferred.
func (s *Summary) BytesPerSecond() float64 {
	if s.Transfer <= 0 {
		return 0
	}
	return float64(s.Received()) / s.Transfer.Seconds()
}

// Received is how many bytes were transferred: fewer than Bytes, where deltas came for tensors or an earlier pull had them.
func (s *Summary) Received() int64 {
	d := &s.Deltas
	return s.Bytes - s.Resumed - (d.Nothing.Bytes - d.Nothing.Received) - (d.Sparse.Bytes - d.Sparse.Received) - (d.XOR.Bytes - d.XOR.Received)
}

// pull is a pull in progress.
type pull struct {
	p        *Puller
	req      PullRequest
	manifest *Manifest
	chosen   []int // indexes in Manifest.Entries, ascending
	begin    time.Time

	newHash func() hash.Hash // nil if digests are not checked

	window *semaphore.Weighted // bytes of the requested tensors that are not delivered
	size   int64               // of the window

	mu sync.Mutex
	// All below are guarded by mu.
	receiving int // receives under way
	since     time.Time
	transfer  time.Duration // while receiving was not 0, up to since
	progress  Progress
	whole     int64 // bytes of progress of tensors that are whole
	resumed   int64 // bytes of progress that an earlier pull had written
	arrivals  arrivals
	yields    bool  // the loop that yields calls Received
	unsynced  error // why a directory could not be synced; of Save's goroutine
	outage    outage

	patches patches
}

// start gets the manifest and chooses the tensors.
func (p *Puller) start(ctx context.Context, req PullRequest) (*pull, error) {
	if req.Inflight <= 0 {
		req.Inflight = DefaultInflight
	}
	if req.InflightBytes <= 0 {
		req.InflightBytes = DefaultInflightBytes
	}
	if req.Retry == 0 {
		req.Retry = DefaultRetry
	}
	pl := &pull{p: p, req: req, begin: time.Now(), outage: outage{retry: max(req.Retry, 0)}}
	err := pl.ask(ctx, func(ctx context.Context) (err error) {
		pl.manifest, err = p.Describe(ctx, req.Publication, req.Version)
		return err
	})
	if err != nil {
		return nil, err
	}
	pl.progressed()
	if !req.SkipDigests {
		pl.newHash, _ = newHash(pl.manifest.Algorithm) // known since the manifest came
	}
	if err = pl.checkInto(); err != nil {
		return nil, err
	}
	if pl.chosen, err = pl.manifest.choose(pl.req.Tensors); err != nil {
		return nil, err
	}
	if req.memory != nil {
		if pl.req.Into, err = req.memory(pl.manifest, pl.chosen); err != nil {
			return nil, err
		}
	}
	if err = pl.chosenInto(); err != nil {
		return nil, err
	}
	pl.progress.Total = len(pl.chosen)
	for _, i := range pl.chosen {
		pl.progress.TotalBytes += pl.manifest.Entries[i].Bytes
	}
	return pl, nil
}

// limit sets the size of the window of bytes.
func (pl *pull) limit(bytes int64) {
	pl.window, pl.size = semaphore.NewWeighted(bytes), bytes
}

// share returns how much of the window of bytes n bytes take.
func (pl *pull) share(n int64) int64 { return min(max(n, leastWeight), pl.size) }

// came takes note of n bytes of a tensor that have come; whole is set with the last ones of it, and
// then came returns how the tensor came.
func (pl *pull) came(i int, n int64, whole bool) (how PulledTensor) {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	if n > 0 || whole { // not for a damaged tensor, of which nothing counts
		pl.outage.over()
	}
	pl.progress.Tensor = pl.manifest.Entries[i].Name
	pl.progress.Bytes += n
	if whole {
		pl.progress.Tensors++
		pl.whole += pl.manifest.Entries[i].Bytes
		how = PulledTensor{Name: pl.manifest.Entries[i].Name, Arrivals: pl.arrivals.whole(i)}
		if pl.req.Received != nil && !pl.yields {
			pl.req.Received(how)
		}
	}
	if pl.req.Progress != nil {
		pl.req.Progress(pl.progress)
	}
	return how
}

// progressed ends an outage.
func (pl *pull) progressed() {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	pl.outage.over()
}

// transferring counts the receives in progress, and measures the time with at least one.
func (pl *pull) transferring(n int) {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	pl.transferringLocked(n)
}

// received takes note that a receive of a part of tensor i has ended.
func (pl *pull) received(i int, v rendezvous.Value, err error) {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	pl.transferringLocked(-1)
	if err != nil {
		pl.arrivals.fails(i)
		return
	}
	pl.arrivals.arrived(i, v.Arrival())
}

func (pl *pull) transferringLocked(n int) {
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
	pl.mu.Lock()
	last := pl.outage.err
	pl.mu.Unlock()
	before := ""
	if last != nil {
		before = "; it was interrupted: " + status.From(last).Message()
	}
	if pl.manifest == nil {
		return status.Errorf(code, "the pull %s before %s answered%s", why, pl.p.server(), before)
	}
	return status.Errorf(code, "the pull of %s from %s %s: %d of %d tensors had come%s", quote(pl.manifest.Name), pl.p.server(), why, pl.done(), len(pl.chosen), before)
}

// summary returns the Summary of a pull that has succeeded.
func (pl *pull) summary() Summary {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	return Summary{
		Publication: pl.manifest.Publication,
		Tensors:     pl.progress.Tensors, Bytes: pl.whole, Resumed: pl.resumed,
		Transfer: pl.transfer, Total: time.Since(pl.begin),
		Digest: pl.manifest.combinedDigest(pl.chosen), Verified: !pl.req.SkipDigests,
		Carried: pl.arrivals.carried(), Deltas: pl.deltas(pl.progress.Tensors, pl.whole-pl.resumed),
	}
}

// summarize sets the Summary of the request. A pull whose loop was left is not whole.
func (pl *pull) summarize(whole bool) {
	if pl.req.Summary == nil {
		return
	}
	s := pl.summary()
	if !whole {
		s.Digest = ""
	}
	*pl.req.Summary = s
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

// each starts a pull and calls yield with its tensors, as pull.each does.
func (p *Puller) each(ctx context.Context, req PullRequest, yield func(*tensor.Tensor) bool) error {
	pl, err := p.start(ctx, req)
	if err != nil {
		return err
	}
	return pl.undefined(pl.each(ctx, yield))
}

// each calls yield with the tensors, in order, until it returns false.
func (pl *pull) each(ctx context.Context, yield func(*tensor.Tensor) bool) error {
	pl.limit(pl.req.InflightBytes)
	pl.yields = true
	to := newPlaces(pl)
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	var failure error // of fetch; read after ended
	go func() {
		defer close(ended)
		defer close(to.order)
		failure = pl.fetch(ctx, to)
	}()
	// Deferred, so that the pull also ends when yield panics.
	defer func() {
		cancel()
		<-ended
		to.close()
	}()
	for at := range to.order {
		var a arrival
		select {
		case a = <-at.filled:
		case <-ended:
			select {
			case a = <-at.filled: // it came, and then fetch ended
			default:
				return failure
			}
		}
		to.pl.window.Release(at.weight)
		if pl.req.Received != nil {
			pl.req.Received(a.how)
		}
		if !yield(a.tensor) {
			pl.summarize(false)
			return nil
		}
	}
	<-ended
	if failure == nil {
		pl.summarize(true)
	}
	return failure
}
