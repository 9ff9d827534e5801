package bench

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/tryst-rdma/tryst"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// watcher follows a publisher. It holds each version until the next one has come, as a rollout does.
type watcher struct {
	client *tryst.Client
	cancel context.CancelFunc
	work   sync.WaitGroup
	memory map[string]*tensor.Tensor // of the pulls beside it; nil before the first

	mu   sync.Mutex // guards all below
	came []versionsState
	err  error         // that ended the watch
	news chan struct{} // closed, and replaced, when something has changed
}

func startWatcher(ctx context.Context, s versionsSetup) (_ *watcher, err error) {
	w := &watcher{news: make(chan struct{})}
	if w.client, err = tryst.Dial(ctx, s.From, s.config()); err != nil {
		return nil, err
	}
	ctx, w.cancel = context.WithCancel(context.WithoutCancel(ctx))
	var opts []tryst.WatchOption
	if s.Whole {
		opts = append(opts, tryst.WatchWhole())
	}
	w.work.Go(func() { w.follow(ctx, opts) })
	return w, nil
}

func (w *watcher) address() string { return "" }

func (w *watcher) follow(ctx context.Context, opts []tryst.WatchOption) {
	var serving *tryst.Version
	defer func() {
		if serving != nil {
			serving.Release()
		}
	}()
	for v, err := range w.client.Watch(ctx, versionsName, opts...) {
		if err != nil {
			w.add(versionsState{}, err)
			return
		}
		w.add(versionsState{Number: v.Number, End: time.Now().UnixNano(), Bytes: v.Summary.Received()}, nil)
		if serving != nil {
			serving.Release()
		}
		serving = v
	}
}

func (w *watcher) add(s versionsState, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err = err; err == nil {
		w.came = append(w.came, s)
	}
	close(w.news)
	w.news = make(chan struct{})
}

func (w *watcher) do(ctx context.Context, c versionsCommand) (s versionsState, err error) {
	switch {
	case c.Await > 0:
		return w.await(ctx, c.Await)
	case c.Pull:
		return w.pull(ctx)
	case c.Hold:
		return s, w.hold(ctx)
	}
	return s, nil
}

// await waits for a version, or a newer one.
func (w *watcher) await(ctx context.Context, number uint64) (versionsState, error) {
	for {
		w.mu.Lock()
		news, err := w.news, w.err
		for _, s := range w.came {
			if s.Number >= number {
				w.mu.Unlock()
				return s, nil
			}
		}
		w.mu.Unlock()
		if err != nil {
			return versionsState{}, err
		}
		select {
		case <-news:
		case <-ctx.Done():
			return versionsState{}, status.Errorf(status.CodeOf(ctx.Err()), "version %d has not come", number)
		}
	}
}

// pull pulls the other publication into memory that is there, as a watcher does.
func (w *watcher) pull(ctx context.Context) (s versionsState, err error) {
	if w.memory == nil {
		m, err := w.client.Describe(ctx, onceName)
		if err != nil {
			return s, err
		}
		if w.memory, err = tryst.TensorsFor(slices.Values(m.Entries), w.client.Allocator()); err != nil {
			return s, err
		}
	}
	s.Begin = time.Now().UnixNano()
	for t, err := range w.client.Pull(ctx, onceName, tryst.PullInto(w.memory)) {
		if err != nil {
			return s, err
		}
		t.Release()
	}
	s.End = time.Now().UnixNano()
	return s, nil
}

// hold begins a pull, which is in the middle when hold returns, and ends with the watcher.
func (w *watcher) hold(ctx context.Context) error {
	held := make(chan error, 1)
	ended, cancel := context.WithCancel(context.WithoutCancel(ctx))
	before := w.cancel
	w.cancel = func() { cancel(); before() }
	w.work.Go(func() {
		for t, err := range w.client.Pull(ended, versionsName) {
			select {
			case held <- err:
			default:
			}
			if err == nil {
				t.Release()
			}
		}
	})
	select {
	case err := <-held:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (w *watcher) close() error {
	w.cancel()
	w.work.Wait()
	for _, t := range w.memory {
		t.Release()
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopWait)
	defer cancel()
	if err := w.client.Close(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}
