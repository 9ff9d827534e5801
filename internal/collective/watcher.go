package collective

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
)

// watcher is the shell around waits: for one run of an operation, or one call of the leader, it owns
// a timer while members are waited for, and a goroutine for each watch and call. fail is called, at most
// once for each of these, without a lock held; it must not call close.
type watcher struct {
	c    *Collectives
	m    *members // nil when only the leader is waited for
	rank int      // of this member
	step int64
	exec string // begins the keys of the watches
	fail func(rank int, err error)
	ctx  context.Context // of watches and calls
	stop context.CancelFunc

	mu     sync.Mutex // guards what follows; no other lock is taken while it is held
	waits  waits
	timer  *time.Timer
	closed bool
	work   sync.WaitGroup // Add needs mu and !closed
}

func (c *Collectives) newWatcher(ctx context.Context, m *members, rank int, step int64, exec string, fail func(rank int, err error)) *watcher {
	w := &watcher{c: c, m: m, rank: rank, step: step, exec: exec, fail: fail, waits: newWaits(c.opts.PeerTimeout)}
	w.ctx, w.stop = context.WithCancel(ctx)
	return w
}

// await notes that one more thing depends on a member. Its error says that the member has ended. Each
// await without an error has one done. Devices of this process need no watch: they share its tables.
func (w *watcher) await(rank int, what need) error {
	if w.here(rank) {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.waits.await(time.Now(), rank, what); err != nil {
		return err
	}
	if w.timer == nil && !w.closed {
		w.timer = time.AfterFunc(w.waits.every(), w.tick)
	}
	return nil
}

// done takes back one await. It takes only the watcher's own lock.
func (w *watcher) done(rank int, what need) {
	if w.here(rank) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waits.done(rank, what)
}

func (w *watcher) here(rank int) bool { return w.taskOf(rank) == w.c.opts.Task }

func (w *watcher) taskOf(rank int) cluster.Task {
	if rank == leaderRank {
		return w.c.opts.Leader
	}
	return w.m.list[rank].device.Task
}

// close ends the watches and calls, and waits for them.
func (w *watcher) close() {
	w.mu.Lock()
	w.closed = true
	if w.timer != nil {
		w.timer.Stop()
	}
	w.mu.Unlock()
	w.stop()
	w.work.Wait()
}

func (w *watcher) tick() {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return
	}
	w.work.Add(1)
	defer w.work.Done()
	now := time.Now()
	var failed []waitAction
	for _, a := range w.waits.tick(now) {
		if a.kind == actFail {
			failed = append(failed, a)
			continue
		}
		w.work.Go(func() { w.act(a) })
	}
	w.timer = nil
	if at, ok := w.waits.next(now); ok && len(failed) == 0 {
		w.timer = time.AfterFunc(at.Sub(now), w.tick)
	}
	w.mu.Unlock()
	for _, a := range failed {
		w.fail(a.rank, a.err)
	}
}

// act carries out an action and reports what came of it.
func (w *watcher) act(a waitAction) {
	var report func() error
	switch a.kind {
	case actWatch:
		known, err := w.watch(a.rank)
		report = func() error {
			if !known {
				w.waits.unwatched(a.rank)
				return nil
			}
			return w.waits.ended(a.rank, err)
		}
	case actCheck:
		ctx, cancel := context.WithDeadline(w.ctx, a.by)
		err := w.c.checkHealth(ctx, w.taskOf(a.rank), w.attributes(a.rank))
		cancel()
		report = func() error { return w.waits.checked(time.Now(), a.rank, err) }
	}
	w.mu.Lock()
	if w.ctx.Err() != nil { // it is the reason of what came
		w.mu.Unlock()
		return
	}
	err := report()
	w.mu.Unlock()
	if err != nil {
		w.fail(a.rank, err)
	}
}

// attributes returns the device that a call of a member has to find there; none for the leader.
func (w *watcher) attributes(rank int) []*tfpb.DeviceAttributes {
	if rank == leaderRank {
		return nil
	}
	return []*tfpb.DeviceAttributes{w.m.list[rank].attributes}
}

// watch waits until the operation of a member ends with an error. known is false when it could not
// find out what the member is. TensorFlow's workers cannot be watched: their RecvBuf does not end with
// its call. What they do is seen by calls alone.
func (w *watcher) watch(rank int) (known bool, err error) {
	peer := w.m.list[rank]
	tryst, err := w.m.isTryst(w.ctx, peer.device.Task, w.c.opts.Tryst)
	if err != nil {
		return false, err
	}
	if !tryst {
		<-w.ctx.Done()
		return true, nil
	}
	k, err := bufferKey(w.step, peer, w.m.list[w.rank].device, watchKey(w.exec, w.rank))
	if err != nil {
		return true, err
	}
	v, err := w.c.opts.Remoter.RecvFromRemoteAsync(wireStep(w.step), k, rendezvous.Args{}, nil).Wait(w.ctx)
	if err == nil {
		v.Tensor.Release()
		err = status.Errorf(status.Internal, "%s provides a buffer under the key of a watch, %s", peer.device.Task, k.Edge())
	}
	return true, err
}

// watchKey is the key of the buffer that a member never provides, for a member that watches it.
func watchKey(exec string, watching int) string { return fmt.Sprintf("%s:watch:%d", exec, watching) }
