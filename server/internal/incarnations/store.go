package incarnations

import (
	lists "container/list"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/status"
)

// store stores the incarnations of the devices of peers, and the receives that wait for one.
//
//	receive ──► known ──────────────────────────► start
//	        └─► wait ──► request ─┬─ answer ────► start, in the order of the calls
//	              │               └─ later ──┐
//	              │                  ▲───────┘
//	              └─ end of ctx or step, peer timeout ──► error
type store struct {
	mu       sync.Mutex // guards what follows, and the fields of requests and waits
	m        map[cluster.Device]entry
	devices  map[cluster.Task][]cluster.Device // of the tasks that have answered
	requests map[cluster.Device]*request       // in progress
}

// retryDelay is the pause before another request for an incarnation after a lost connection.
// It is short, since a restarted peer may be back soon, and prevents a storm of requests to a
// peer that accepts connections and drops them.
const retryDelay = 100 * time.Millisecond

// entry is the incarnation of a device.
type entry struct {
	n       uint64
	suspect bool // it may belong to an earlier process
	early   bool // receives that waited for it have still to start
}

// request is a request for an incarnation, which all receives from the device wait
// for: after an error there may be thousands. It ends when nothing waits for it.
type request struct {
	ctx     context.Context
	cancel  context.CancelFunc
	waiting lists.List // of *wait, in the order of the calls
	why     error      // why the last attempt failed; nil before the first has
	begun   int        // how many attempts have begun
	// answered is set when those that wait are being started.
	answered bool
}

// wait is a receive that waits for an incarnation.
type wait struct {
	known   *store
	device  cluster.Device
	step    int64
	name    string // of the value
	timeout time.Duration
	// done is called once, with store.mu not held. It must not block.
	done func(uint64, error)

	request  *request
	joined   int            // how many attempts had begun before it
	element  *lists.Element // nil when done is called or will be
	deadline time.Time
	unwatch  func() bool
	timer    *time.Timer
}

func (i *store) known(d cluster.Device) (n uint64, ok bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.knownLocked(d)
}

func (i *store) knownLocked(d cluster.Device) (n uint64, ok bool) {
	is, ok := i.m[d]
	return is.n, ok && !is.suspect && !is.early
}

// list stores the devices of a task, as it has last listed them.
func (i *store) list(task cluster.Task, has ...cluster.Device) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.devices == nil {
		i.devices = make(map[cluster.Task][]cluster.Device)
	}
	i.devices[task] = has
}

// lacks reports whether the task of a device has listed its devices without this one.
func (i *store) lacks(d cluster.Device) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	has, ok := i.devices[d.Task]
	return ok && !slices.Contains(has, d)
}

// suspect marks an incarnation as possibly outdated: the next receive requests it again.
func (i *store) suspect(d cluster.Device, n uint64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if is, ok := i.m[d]; ok && is.n == n {
		is.suspect = true
		i.m[d] = is
	}
}

// move marks all incarnations of a task as possibly outdated.
func (i *store) move(task cluster.Task) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for d, is := range i.m {
		if d.Task == task {
			is.suspect = true
			i.m[d] = is
		}
	}
}

// leave forgets a task, and returns the steps of the receives that wait for its devices.
func (i *store) leave(task cluster.Task) (steps []int64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.devices, task)
	maps.DeleteFunc(i.m, func(d cluster.Device, is entry) bool { return d.Task == task && !is.early })
	for d, r := range i.requests {
		for at := r.waiting.Front(); at != nil && d.Task == task; at = at.Next() {
			w, _ := at.Value.(*wait)
			steps = append(steps, w.step)
		}
	}
	return steps
}

// AskFunc makes one request for an incarnation. again reports whether a later one may succeed.
type AskFunc func(context.Context, cluster.Device) (n uint64, again bool, err error)

// wait adds a receive to those that wait, unless the incarnation has become known. It returns the
// request to run if the receive is the first: the request has the values of its ctx, but not its
// end. The caller then calls watch.
func (i *store) wait(ctx context.Context, w *wait) (n uint64, known bool, run func(AskFunc)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if n, ok := i.knownLocked(w.device); ok {
		return n, true, nil
	}
	r := i.requests[w.device]
	if r == nil {
		r = new(request)
		r.ctx, r.cancel = context.WithCancel(context.WithoutCancel(ctx))
		if i.requests == nil {
			i.requests = make(map[cluster.Device]*request)
		}
		i.requests[w.device] = r
		run = func(ask AskFunc) { i.run(r, w.device, ask) }
	}
	w.request, w.joined, w.element, w.deadline = r, r.begun, r.waiting.PushBack(w), time.Now().Add(w.timeout)
	return 0, false, run
}

// run requests until there is an answer or nothing waits.
func (i *store) run(r *request, d cluster.Device, ask AskFunc) {
	defer r.cancel()
	for {
		deadline, ok := i.begin(r)
		if !ok {
			return
		}
		ctx, cancel := context.WithDeadline(r.ctx, deadline)
		n, again, err := ask(ctx, d)
		switch {
		case err == nil:
			cancel()
			i.answer(r, d, n)
			return
		case !again:
			cancel()
			i.fail(r, err)
			continue
		}
		i.failed(r, err)
		select {
		case <-time.After(retryDelay):
		case <-ctx.Done():
		}
		cancel()
	}
}

// begin begins an attempt and returns until when it may last: the latest deadline of those that wait
// now. An attempt that ends says best what prevents an answer. ok is false when nothing waits.
func (i *store) begin(r *request) (deadline time.Time, ok bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	r.begun++
	last := r.waiting.Back()
	if last == nil {
		return time.Time{}, false
	}
	w, _ := last.Value.(*wait)
	return w.deadline, true
}

// answer starts those that wait, in order, also those that come meanwhile. Then the incarnation
// is known.
func (i *store) answer(r *request, d cluster.Device, n uint64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.requests[d] != r { // nothing waits any more
		return
	}
	r.answered = true
	if i.m == nil {
		i.m = make(map[cluster.Device]entry)
	}
	i.m[d] = entry{n: n, early: true}
	for front := r.waiting.Front(); front != nil; front = r.waiting.Front() {
		w, _ := front.Value.(*wait)
		w.leaveLocked()
		i.mu.Unlock()
		w.end(n, nil)
		i.mu.Lock()
	}
	is := i.m[d]
	is.early = false
	i.m[d] = is
	delete(i.requests, d)
}

// fail ends with err those that waited before the attempt began. The others ask again: the answer may be older
// than they are, and a task that has come back to a cluster must not hear that it has left it.
func (i *store) fail(r *request, err error) {
	i.mu.Lock()
	all := r.takeLocked(func(w *wait) bool { return w.joined < r.begun })
	i.mu.Unlock()
	for _, w := range all {
		w.end(0, err)
	}
}

// failed stores why an attempt failed, and ends those whose time was over before it had.
func (i *store) failed(r *request, err error) {
	i.mu.Lock()
	r.why = err
	now := time.Now()
	late := r.takeLocked(func(w *wait) bool { return !w.deadline.After(now) })
	i.mu.Unlock()
	for _, w := range late {
		w.end(0, w.notReached(err))
	}
}

// takeLocked takes some from those that wait; the caller calls end.
func (r *request) takeLocked(which func(*wait) bool) (taken []*wait) {
	for e := r.waiting.Front(); e != nil; {
		w, _ := e.Value.(*wait)
		e = e.Next()
		if which(w) {
			w.leaveLocked()
			taken = append(taken, w)
		}
	}
	return taken
}

// watch ends the wait with ctx, and after the peer timeout.
func (w *wait) watch(ctx context.Context) {
	w.known.mu.Lock()
	defer w.known.mu.Unlock()
	if w.element == nil {
		return
	}
	w.timer = time.AfterFunc(time.Until(w.deadline), w.expire)
	w.unwatch = context.AfterFunc(ctx, func() { w.Abort(status.From(ctx.Err())) })
}

// Abort implements rendezvous.Call: it ends the wait with err.
func (w *wait) Abort(err error) {
	w.known.mu.Lock()
	waits := w.element != nil
	if waits {
		w.leaveLocked()
	}
	w.known.mu.Unlock()
	if waits {
		w.end(0, err)
	}
}

// expire ends the wait after the peer timeout. Before the first attempt has failed it does
// nothing: that attempt ends at this time, too, and says why (failed).
func (w *wait) expire() {
	w.known.mu.Lock()
	why := w.request.why
	w.known.mu.Unlock()
	if why != nil {
		w.Abort(w.notReached(why))
	}
}

func (w *wait) notReached(why error) error {
	return status.Errorf(status.Unavailable, "%s was not reached for %v: %s", w.device.Task, w.timeout, status.From(why).Message())
}

// ended reports whether done was called or will be.
func (w *wait) ended() bool {
	w.known.mu.Lock()
	defer w.known.mu.Unlock()
	return w.element == nil
}

// leaveLocked takes the receive from those that wait; the caller calls end. The last one ends a
// request that has no answer yet.
func (w *wait) leaveLocked() {
	r := w.request
	r.waiting.Remove(w.element)
	w.element = nil
	if r.waiting.Len() == 0 && !r.answered {
		r.cancel()
		delete(w.known.requests, w.device)
	}
}

func (w *wait) end(n uint64, err error) {
	if w.timer != nil {
		w.timer.Stop()
		w.unwatch()
	}
	w.done(n, err)
}
