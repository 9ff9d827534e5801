package checkpoint

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc"
	grpcstatus "google.golang.org/grpc/status"

	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
	"github.com/tryst-rdma/tryst/status"
)

// follower is a watcher: a goroutine that hears which version is current, and the caller's, which pulls.
//
//	listen: stream of Watch ─► announced ─┐
//	          └ broken: again, for ever   ├─► watch (a value) ─► next ─► pull ─► came, failed
//	        an older server: List         ┘
type follower struct {
	p   *Puller
	req PullRequest

	wake chan struct{} // holds a value when the watch may want something else
	stop context.CancelFunc
	done chan struct{} // closed when listen has ended

	mu sync.Mutex
	// All below are guarded by mu.
	watch watch
	name  string        // of the publication; empty while it is not known
	fatal error         // that ends the watch
	got   Publication   // that the caller has, for those who look; without a Version before the first
	by    string        // how it came
	tell  func()        // ends the stream of Watch, for one that says what has come
	trip  time.Duration // a round trip, as measured; 0 before that
	// silentSince is when nothing could be heard from the server any more; zero if something can.
	silentSince time.Time

	base basis   // what the caller got last; of the goroutine that pulls
	rate float64 // bytes a second, as measured; of the same goroutine

	begun   time.Time
	telling sync.Mutex // held while Interrupted is called
}

// follow begins to watch. The caller calls close.
func (p *Puller) follow(ctx context.Context, req PullRequest) *follower {
	f := &follower{p: p, req: req, name: req.Publication, wake: make(chan struct{}, 1), done: make(chan struct{}), tell: func() {}, begun: time.Now()}
	if f.req.Interrupted != nil {
		f.req.Interrupted = func(i Interruption) {
			f.telling.Lock()
			defer f.telling.Unlock()
			req.Interrupted(i)
		}
	}
	p.watches.begin(f)
	ctx, f.stop = context.WithCancel(ctx)
	go func() {
		defer close(f.done)
		f.listen(ctx)
	}()
	return f
}

func (f *follower) close() {
	f.stop()
	<-f.done
	f.p.watches.end(f)
}

// next waits for a version that is newer than the one that was taken. era goes to came.
func (f *follower) next(ctx context.Context) (p Publication, era uint64, err error) {
	for {
		f.mu.Lock()
		p, ok, at := f.watch.wanted(time.Now())
		era, err := f.watch.era, f.fatal
		f.mu.Unlock()
		if ok || err != nil {
			return p, era, err
		}
		if err := f.sleep(ctx, at); err != nil {
			return Publication{}, 0, err
		}
	}
}

// sleep waits for an event, or until a time if it is not zero.
func (f *follower) sleep(ctx context.Context, at time.Time) error {
	var later <-chan time.Time
	if !at.IsZero() {
		t := time.NewTimer(time.Until(at))
		defer t.Stop()
		later = t.C
	}
	select {
	case <-f.wake:
	case <-later:
	case <-ctx.Done():
		return f.ended(ctx)
	}
	return nil
}

// ended is the error of a watch whose ctx has ended.
func (f *follower) ended(ctx context.Context) *status.Error {
	return wrap("watching "+quote(f.req.Publication), status.From(context.Cause(ctx)))
}

func (f *follower) event(do func(w *watch)) {
	f.mu.Lock()
	do(&f.watch)
	f.mu.Unlock()
	select {
	case f.wake <- struct{}{}:
	default: // it is awake
	}
}

// came takes note that a version came whole, and reports whether the caller may have it.
func (f *follower) came(p Publication, era uint64) (ok bool, err error) {
	f.event(func(w *watch) { ok, err = w.came(p, era) })
	return ok, err
}

// failed takes note of the error of a pull. It returns the one that ends the watch. If only the end of ctx keeps the watch from
// trying again, that is the error of ctx.
func (f *follower) failed(ctx context.Context, err error) (final error) {
	switch {
	case ctx.Err() != nil && watchPasses(err):
		return f.ended(ctx).WithSuffix("; the last pull: " + status.From(err).Message())
	case ctx.Err() != nil:
		return err
	}
	f.event(func(w *watch) {
		final = w.failed(time.Now(), err, func(d time.Duration) time.Duration { return rand.N(d) }) //nolint:gosec // so that watchers do not return all at once
	})
	return final
}

// taken returns the version that was taken last.
func (f *follower) taken() Publication {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.watch.taken
}

// era returns the era in which what begins now begins.
func (f *follower) era() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.watch.era
}

// listen hears which version is current, until ctx ends or an error that does not pass.
func (f *follower) listen(ctx context.Context) {
	for pause := retryMin; ctx.Err() == nil; pause = min(2*pause, retryMax) {
		heard, err := f.hear(ctx)
		if ctx.Err() != nil {
			return
		}
		if !watchPasses(err) {
			f.mu.Lock()
			f.fatal = err
			f.mu.Unlock()
			f.event(func(*watch) {})
			return
		}
		if heard {
			pause = retryMin
		}
		f.silent(err)
		t := time.NewTimer(pause/2 + rand.N(pause)) //nolint:gosec // so that watchers do not return all at once
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
		}
	}
}

// silent reports that nothing can be heard from the server, once.
func (f *follower) silent(err error) {
	f.mu.Lock()
	first := f.silentSince.IsZero()
	if first {
		f.silentSince = time.Now()
	}
	f.mu.Unlock()
	if first && f.req.Interrupted != nil {
		f.req.Interrupted(Interruption{Err: err})
	}
}

// answers reports that something can be heard again, once.
func (f *follower) answers() {
	f.mu.Lock()
	since := f.silentSince
	f.silentSince = time.Time{}
	f.mu.Unlock()
	if !since.IsZero() && f.req.Interrupted != nil {
		f.req.Interrupted(Interruption{Lasted: time.Since(since)})
	}
}

// publication returns the name of the publication, which it asks for if it is not known.
func (f *follower) publication(ctx context.Context) (string, error) {
	f.mu.Lock()
	name := f.name
	f.mu.Unlock()
	if name != "" {
		return name, nil
	}
	name, err := f.p.only(ctx)
	if err != nil {
		return "", err
	}
	f.mu.Lock()
	f.name = name
	f.mu.Unlock()
	return name, nil
}

// hear has streams of the server, one after the other as versions come, and returns the error with which one ends. heard
// reports whether anything came on them.
func (f *follower) hear(ctx context.Context) (heard bool, err error) {
	name, err := f.publication(ctx)
	if err != nil {
		return false, err
	}
	var rejoins time.Time // when the stream ended after which another one is opened
	for {
		one, cancel := context.WithCancel(ctx)
		begun := time.Now()
		some, err := f.hearOne(one, f.says(name, cancel))
		again := one.Err() != nil && ctx.Err() == nil
		cancel()
		heard = heard || some
		switch {
		case again:
			rejoins = time.Now()
		case !triesAgain(err) || time.Since(rejoins) > rejoinWithin:
			return heard, err
		}
		select { // a stream is told the version at once, so it is streams that come no faster than announcements
		case <-time.After(announceEvery - time.Since(begun)):
		case <-ctx.Done():
			return heard, ctx.Err()
		}
	}
}

// triesAgain reports whether the server has refused a call for a while. The stream before may count there still.
func triesAgain(err error) bool {
	if err == nil {
		return false
	}
	_, ok := status.From(err).Payload(status.TryAgain)
	return ok
}

// hearOne has one stream.
func (f *follower) hearOne(ctx context.Context, says *trystpb.WatchRequest) (heard bool, err error) {
	name := says.GetPublication()
	what := "watching publication " + quote(name)
	era := f.era()
	begin := time.Now()
	stream, err := f.p.client.Watch(ctx, says)
	if err != nil {
		return false, f.p.notOpened(ctx, what, err, nil)
	}
	for {
		resp, err := stream.Recv()
		if err != nil && f.unnumbered(err, stream) {
			return heard, f.poll(ctx, name)
		}
		if err != nil {
			return heard, f.p.notOpened(ctx, what, err, stream.Trailer())
		}
		if !heard { // it comes at once
			f.answered(time.Since(begin))
		}
		heard = true
		f.answers()
		var p Publication
		if resp.GetPublication() != nil {
			p = publicationOf(resp.GetPublication())
		}
		if err := f.announce(name, p, era); err != nil {
			return heard, err
		}
	}
}

// announce takes note of what a server has announced, which is not trusted.
func (f *follower) announce(name string, p Publication, era uint64) (err error) {
	if p.Name != "" && p.Name != name || p.Name == "" && p.Version != "" || p.Name != "" && p.Version == "" || len(p.Version) > maxName {
		return status.Errorf(status.InvalidArgument, "watching publication %s: %s announced version %s of publication %s", quote(name), f.p.server(), quote(p.Version), quote(p.Name))
	}
	f.event(func(w *watch) { err = w.announced(p, era) })
	return err
}

// unnumbered reports whether the server, not a proxy, has publications and cannot announce them.
func (f *follower) unnumbered(err error, stream grpc.ClientStream) bool {
	return status.Code(grpcstatus.Code(err)) == status.Unimplemented && len(stream.Trailer().Get(answeredKey)) == 0
}

// poll lists the publications of a server that cannot announce them.
func (f *follower) poll(ctx context.Context, name string) error {
	era := f.era()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		all, err := f.p.List(ctx)
		if err != nil {
			return err
		}
		f.answers()
		var p Publication
		for _, one := range all {
			if one.Name == name {
				p = one
			}
		}
		if err := f.announce(name, p, era); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return status.From(ctx.Err())
		}
	}
}

// request returns the request of the next pull, with the base for deltas.
func (f *follower) request() PullRequest {
	req := f.req
	if !req.Whole {
		f.mu.Lock()
		defer f.mu.Unlock()
		req.patches, req.base, req.route = true, f.base, pullRoute{f.rate, f.trip}
	}
	return req
}

// measured takes note of the rate of a pull. What came as deltas is little, and its time one of round trips, so it says only
// that the route is at least as fast.
func (f *follower) measured(s *Summary) {
	rate := s.BytesPerSecond()
	if n := s.Received(); n >= leastMeasured && (2*n >= s.Bytes || rate > f.rate) {
		f.rate = rate
	}
}

// answered takes note of how long the first announcement of a stream took. The shortest time is nearest to a round trip; others
// count little, in case the route has become longer.
func (f *follower) answered(took time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.trip > 0 && took > f.trip {
		took = f.trip + (took-f.trip)/tripShare
	}
	f.trip = took
}
