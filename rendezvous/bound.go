package rendezvous

import (
	"container/list"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// bounds counts what a step has sent and its receivers do not have yet, in bytes, by the
// task of the receiver. A step has one from its first SendWait on. Other steps count
// nothing.
type bounds struct {
	limit int64
	step  *Local // to ask whether the step was aborted

	mu       sync.Mutex // guards the map and the accounts. No other lock is taken with it held
	accounts map[cluster.Task]*account
}

// account is the count for one task.
type account struct {
	of      *bounds
	task    cluster.Task
	bytes   int64
	waiting list.List // of *waiter, in the order of their calls
	now     *charge   // what counts from now on
	before  int64     // the bytes that counted when the head of waiting became the head, and still count
}

// charge is the part of an account that was counted while one waiter was the head of the
// queue, so that this one need not wait for values that were sent later.
type charge struct{ to *account }

// waiter is a SendWait that waits for space, or whose value is on its way into the table.
// It leaves the list when its value is there, so that values are queued in the order of
// the calls.
type waiter struct {
	key      string
	since    time.Time
	cost     int64
	head     bool          // it has come to the head of the queue
	admitted *charge       // where its cost is charged; nil before
	ready    chan struct{} // closed when it is admitted or the step has ended
}

func (b *bounds) accountLocked(task cluster.Task) *account {
	a := b.accounts[task]
	if a == nil {
		a = &account{of: b, task: task}
		a.now = &charge{a}
		b.accounts[task] = a
	}
	return a
}

// charge counts a value of a Send, or one that was sent before the step counted, and gives
// it its record.
func (b *bounds) charge(v Value, task cluster.Task) (device any) {
	cost := cost(v)
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.accountLocked(task)
	a.bytes += cost
	if v.SendArgs.Device == nil {
		return a.now
	}
	return &Delivery{charge: a.now, cost: cost, device: v.SendArgs.Device}
}

// enter charges n bytes, and waits until they fit and all earlier callers have gone on. The
// caller calls leaveQueue with the place that enter returned, when its value is queued.
func (b *bounds) enter(ctx context.Context, key *Key, n int64) (*charge, *list.Element, error) {
	b.mu.Lock()
	if err := b.step.Err(); err != nil {
		b.mu.Unlock()
		return nil, nil, err
	}
	a := b.accountLocked(key.dst.Task)
	if a.waiting.Len() == 0 && a.fitsLocked(n) {
		a.bytes += n
		c := a.now
		b.mu.Unlock()
		return c, nil, nil
	}
	w := &waiter{key: key.text, since: time.Now(), cost: n, ready: make(chan struct{})}
	at := a.waiting.PushBack(w)
	a.admitLocked()
	bytes := a.bytes
	b.mu.Unlock()

	var err error
	select {
	case <-w.ready:
		err = b.step.Err()
	case <-ctx.Done():
		err = notAdmitted(ctx, key, bytes, b.limit)
	}
	if err == nil {
		return w.admitted, at, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if w.admitted != nil {
		w.admitted.subtractLocked(n)
	}
	a.waiting.Remove(at)
	a.admitLocked()
	return nil, nil, err
}

// leaveQueue removes a caller from the queue, so that the next one becomes its head. at is nil for a
// caller that has not waited.
func (c *charge) leaveQueue(at *list.Element) {
	if at == nil {
		return
	}
	a := c.to
	a.of.mu.Lock()
	defer a.of.mu.Unlock()
	a.waiting.Remove(at)
	a.admitLocked()
}

// leave uncharges n bytes.
func (c *charge) leave(n int64) {
	c.to.of.mu.Lock()
	defer c.to.of.mu.Unlock()
	c.subtractLocked(n)
	c.to.admitLocked()
}

func (c *charge) subtractLocked(n int64) {
	c.to.bytes -= n
	if c != c.to.now {
		c.to.before -= n
	}
}

// fitsLocked reports whether n more bytes are within the bound. A value larger than the bound
// fits when nothing else is counted.
func (a *account) fitsLocked(n int64) bool { return a.bytes == 0 || a.bytes+n <= a.of.limit }

// admitLocked admits the first waiting caller if its value fits. It also admits that caller when
// everything that was counted as it became the first has left: Send does not wait for space, and could
// otherwise keep the caller out for ever.
func (a *account) admitLocked() {
	head := a.waiting.Front()
	if head == nil {
		return
	}
	w, _ := head.Value.(*waiter)
	if !w.head {
		w.head = true
		a.now, a.before = &charge{a}, a.bytes
	}
	if w.admitted == nil && (a.before == 0 || a.fitsLocked(w.cost)) {
		a.admitOneLocked(w)
	}
}

func (a *account) admitOneLocked(w *waiter) {
	w.admitted = a.now
	a.bytes += w.cost
	close(w.ready)
}

// abort ends the waits of all callers. The step has been aborted before.
func (b *bounds) abort() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, a := range b.accounts {
		for at := a.waiting.Front(); at != nil; at = at.Next() {
			if w, _ := at.Value.(*waiter); w.admitted == nil {
				a.admitOneLocked(w)
			}
		}
	}
}

// notAdmitted is the error of a SendWait whose context has ended.
func notAdmitted(ctx context.Context, key *Key, bytes, limit int64) error {
	code, what := status.Cancelled, "cancelled"
	if ctx.Err() == context.DeadlineExceeded {
		code, what = status.DeadlineExceeded, "the deadline passed"
	}
	return status.Errorf(code, "SendWait of %s: %s before there was space, so nothing was sent: %v did not have %d bytes that were sent before in this step, and the bound is %d",
		key.Describe(), what, key.dst.Task, bytes, limit).Derived()
}

// counts returns the bounds of the step. The first call makes them, and counts the values
// that wait in the table; calls at the same time wait for that. Sends meanwhile count at once.
func (b *BaseRemote) counts() *bounds {
	b.counting.Do(func() {
		limit := b.bound
		if limit == 0 {
			limit = DefaultSendBound
		}
		c := &bounds{limit: limit, step: &b.local, accounts: make(map[cluster.Task]*account)}
		b.bounds.Store(c)
		b.local.each(func(s *shard) { s.count(c) })
	})
	return b.bounds.Load()
}

// count gives all values of a shard their records.
func (s *shard) count(c *bounds) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.eachLocked(func(e *entry) {
		if e.done != nil || counted(e.args.Device) {
			return
		}
		if key, err := ParseKey(e.key); err == nil { // it was a Key before
			e.args.Device = c.charge(e.value(), key.dst.Task)
		}
	})
}

// SendWait is Send with a bound and a confirmation. It waits until the values of this step
// that were sent to the task of the key's destination, and that this task does not have
// yet, are within the bound together with this one (ManagerOptions.SendBound). Each counts
// with its memory, and with 256 bytes at least. A value that is larger than the bound waits until nothing
// else is counted. Waiting calls go on in their order. Send does not wait, and its values
// count too, from the first SendWait of the step on. They cannot keep a SendWait out: the one
// that is first in line goes on, if need be beyond the bound, once nothing counts any more
// that counted when it became the first.
//
// A value counts until it has its outcome; see Delivery. The receiver must ask for what was
// sent: one that waits for a value which is held back by the bound, while others are before
// it that nobody receives, waits until ctx ends.
//
// SendWait ends with Cancelled or DeadlineExceeded when ctx ends first, and with the error
// of the step. Nothing is sent then, and after any other error of Send. It must not be
// called from a DoneFunc.
func (b *BaseRemote) SendWait(ctx context.Context, key Key, args Args, t *tensor.Tensor, dead bool) (*Delivery, error) {
	v, err := b.value("SendWait", &key, args, t, dead)
	if err != nil {
		return nil, err
	}
	c, n := b.counts(), cost(v)
	if ctx.Err() != nil {
		err = notAdmitted(ctx, &key, b.Unreceived(key.dst.Task), c.limit)
	}
	var in *charge
	var at *list.Element
	if err == nil {
		in, at, err = c.enter(ctx, &key, n)
	}
	if err != nil {
		v.release()
		return nil, err
	}
	d := &Delivery{charge: in, cost: n, key: key.text, device: v.SendArgs.Device, done: make(chan struct{})}
	v.SendArgs.Device = d
	err = b.local.sendValue(key.text, v)
	in.leaveQueue(at)
	if err != nil {
		return nil, err
	}
	return d, nil
}

// Unreceived returns how many bytes this step has sent to a task that the task does not
// have yet, as SendWait counts them; 0 before the first SendWait.
func (b *BaseRemote) Unreceived(task cluster.Task) int64 {
	c := b.bounds.Load()
	if c == nil {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if a := c.accounts[task]; a != nil {
		return a.bytes
	}
	return 0
}

// Unreceived sums up all steps: the bytes as BaseRemote.Unreceived, and the calls of SendWait
// that wait for space.
func (m *Manager) Unreceived() (bytes int64, waiting int) {
	m.mu.Lock()
	steps := slices.Collect(maps.Values(m.steps))
	m.mu.Unlock()
	for _, e := range steps {
		if c := e.r.bounds.Load(); c != nil {
			b, w := c.sum()
			bytes, waiting = bytes+b, waiting+w
		}
	}
	return bytes, waiting
}

func (b *bounds) sum() (bytes int64, waiting int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, a := range b.accounts {
		bytes += a.bytes
		for at := a.waiting.Front(); at != nil; at = at.Next() {
			if w, _ := at.Value.(*waiter); w.admitted == nil {
				waiting++
			}
		}
	}
	return bytes, waiting
}
