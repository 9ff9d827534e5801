package overview

import (
	"context"
	"sync"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
)

// WatchOptions are how a Watch looks at peers.
type WatchOptions struct {
	// Signs returns the peers that can be probed.
	Signs func() []Sign
	// Probe calls a peer, and sent when the call was sent. It returns nil when the peer has answered, and
	// an error when the connection or ctx has ended.
	Probe func(ctx context.Context, peer cluster.Task, sent func()) error
}

// Watch looks for silent peers while somebody reads the status. Its owner closes it.
type Watch struct {
	opts    WatchOptions
	silence *Silence
	wake    chan struct{}
	ctx     context.Context // ends with Close
	stop    context.CancelFunc
	work    sync.WaitGroup

	mu      sync.Mutex // guards what follows
	looked  time.Time  // when somebody has read the status last
	looking bool
	until   time.Time     // readers wait for first no longer
	first   chan struct{} // closed when the peers are decided since looking became true, or it is false; nil after that
	changed chan struct{} // closed when a peer becomes silent or is not silent any more
	at      time.Time     // of the last such change
}

// StartWatch starts the goroutine of a Watch.
func StartWatch(o WatchOptions) *Watch {
	w := &Watch{opts: o, silence: NewSilence(), wake: make(chan struct{}, 1), changed: make(chan struct{})}
	w.ctx, w.stop = context.WithCancel(context.Background())
	w.work.Go(w.run)
	return w
}

// Close ends the probes and waits for the goroutines. A nil Watch is closed.
func (w *Watch) Close() {
	if w == nil {
		return
	}
	w.stop()
	w.work.Wait()
}

// Read is the event that somebody reads the status. Those after a pause wait until the peers have answered or are silent, firstWait
// has passed since the first of them, or ctx ends. A nil Watch has no peers.
func (w *Watch) Read(ctx context.Context) {
	if w == nil {
		return
	}
	first, until := w.read(time.Now())
	if first == nil {
		return
	}
	enough := time.NewTimer(time.Until(until))
	defer enough.Stop()
	select {
	case <-first:
	case <-enough.C:
	case <-ctx.Done():
	case <-w.ctx.Done():
	}
}

// read begins to look if nobody has looked. It returns for what a reader waits, and until when; nil for nothing.
func (w *Watch) read(now time.Time) (first <-chan struct{}, until time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.looked = now
	if !w.looking {
		w.silence.Begin(now)
		w.looking, w.first, w.until = true, make(chan struct{}), now.Add(firstWait)
		w.wake <- struct{}{} // run is about to take it, or waits for it
	}
	return w.first, w.until
}

// Silent returns the peers that are silent, and for how long nothing has come from each.
func (w *Watch) Silent() map[cluster.Task]Quiet {
	if w == nil {
		return nil
	}
	return w.silence.Silent()
}

// Changed returns a channel that is closed when a peer becomes silent or is not silent any more. A nil Watch never closes it.
func (w *Watch) Changed() <-chan struct{} {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.changed
}

// ChangedAt returns when that was last.
func (w *Watch) ChangedAt() time.Time {
	if w == nil {
		return time.Time{}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.at
}

// run looks while somebody reads the status.
func (w *Watch) run() {
	for {
		select {
		case <-w.wake:
			w.lookOn()
		case <-w.ctx.Done():
			return
		}
	}
}

func (w *Watch) lookOn() {
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	for w.isRead() {
		w.look()
		select {
		case <-tick.C:
		case <-w.ctx.Done():
			return
		}
	}
}

// isRead reports whether somebody has read the status recently. Otherwise it lets the readers go on: after a pause of this process
// their time is over, too.
func (w *Watch) isRead() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.looking = time.Since(w.looked) < lookFor; !w.looking {
		w.settleLocked()
	}
	return w.looking
}

// look looks once.
func (w *Watch) look() {
	probes, changed := w.silence.Look(time.Now(), w.opts.Signs())
	for _, one := range probes {
		w.work.Go(func() { w.probe(one) })
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if changed {
		close(w.changed)
		w.changed, w.at = make(chan struct{}), time.Now()
	}
	if !w.silence.Undecided() {
		w.settleLocked()
	}
}

// probe calls a peer.
func (w *Watch) probe(one ProbeOf) {
	if err := w.opts.Probe(w.ctx, one.Peer, func() { w.silence.Sent(one) }); err == nil {
		w.silence.Answered(time.Now(), one)
	} else {
		w.silence.Failed(one)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.silence.Undecided() {
		w.settleLocked()
	}
}

// settleLocked lets the readers go on.
func (w *Watch) settleLocked() {
	if w.first != nil {
		close(w.first)
		w.first = nil
	}
}
