// Package incarnations knows the processes of peers: the incarnation of each device, which the key of a
// receive contains.
package incarnations

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
)

// Table knows the incarnations of the devices of peers, which the keys of receives contain. It
// requests one before the first receive from a device, and again when the peer may have been
// restarted.
type Table struct {
	o     Options
	store store

	mu     sync.Mutex // guards what follows
	ending bool
	work   sync.WaitGroup // requests; Add only with mu held and ending false
}

// Options are the arguments of New.
type Options struct {
	// Task is that of this process, and Incarnation its incarnation.
	Task        cluster.Task
	Incarnation uint64
	// PeerTimeout bounds how long a receive waits for a peer that is not reached.
	PeerTimeout time.Duration
	// Steps has the steps of receives.
	Steps *rendezvous.Manager
	// Ask makes one request for an incarnation. It may call List.
	Ask AskFunc
}

// New makes a table that knows no peer.
func New(o Options) *Table { return &Table{o: o} }

// Known returns the incarnation of a device if it is known.
func (t *Table) Known(d cluster.Device) (uint64, bool) {
	if d.Task == t.o.Task {
		return t.o.Incarnation, true
	}
	return t.store.known(d)
}

// List stores the devices of a task, as it has last listed them.
func (t *Table) List(task cluster.Task, has ...cluster.Device) {
	t.store.list(task, has...)
}

// Lacks reports whether the task of a device has listed its devices without this one.
func (t *Table) Lacks(d cluster.Device) bool { return t.store.lacks(d) }

// Leave forgets the processes of a task that has left the cluster, and returns the steps of receives that wait for one.
func (t *Table) Leave(task cluster.Task) (steps []int64) { return t.store.leave(task) }

// Move makes the process of a task be requested before the next receive: the task has another address.
func (t *Table) Move(task cluster.Task) { t.store.move(task) }

// End makes receives that wait from now on fail at once. Those that wait end with their steps.
func (t *Table) End() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ending = true
}

// Wait returns when no request is under way, after End.
func (t *Table) Wait() { t.work.Wait() }

// NoteResult is called with the result of a receive from a device. An error makes the
// incarnation suspect: the peer may be restarting, and it reports even that in several ways.
// Errors for this side's reasons say nothing about the peer.
func (t *Table) NoteResult(ctx context.Context, step int64, src cluster.Device, incarnation uint64, err error) {
	if err != nil && !t.ownReason(ctx, step, err) {
		t.store.suspect(src, incarnation)
	}
}

// ownReason reports whether a receive failed for a reason of this side: its context or its step
// has ended, there is no memory for the value, or it does not fit the caller's memory. DataLoss is
// what the present process of the peer says of a value that it had.
func (t *Table) ownReason(ctx context.Context, step int64, err error) bool {
	switch status.CodeOf(err) {
	case status.Cancelled, status.DeadlineExceeded:
		if ctx.Err() != nil {
			return true
		}
	case status.ResourceExhausted, status.DataLoss, status.InvalidArgument, status.FailedPrecondition, status.Unimplemented:
		return true
	}
	return t.o.Steps.Err(step) != nil
}

// Outdated reports whether a receive ended with err only because its key names an earlier
// process of the peer, which the request has not reached. Then nothing is lost if the request goes to
// the present process.
func (t *Table) Outdated(src cluster.Device, err error) bool {
	if src.Task == t.o.Task || status.CodeOf(err) != status.Aborted || errors.Is(err, transport.ErrProcessGone) {
		return false
	}
	_, restarted := status.From(err).Payload(status.PayloadPossiblyRestarted)
	return restarted
}

// Request requests the incarnation of a peer's device, for the receive of a value of a step, by its name. The end of
// the step or of ctx ends the wait, and so does the peer timeout.
func (t *Table) Request(ctx context.Context, step int64, name string, d cluster.Device) (uint64, error) {
	type answer struct {
		n   uint64
		err error
	}
	c := make(chan answer, 1)
	t.Await(ctx, step, name, d, func(n uint64, err error) { c <- answer{n, err} })
	a := <-c
	return a.n, a.err
}

// Await requests the incarnation of a device and calls done with it, once, perhaps
// before it returns. Receives that wait for the same device get it in the order of their calls,
// and before later receives know it. done must not block. After end it is called at
// once, with 0: the receive fails, since every step has ended.
func (t *Table) Await(ctx context.Context, step int64, name string, d cluster.Device, done func(uint64, error)) {
	t.mu.Lock()
	if t.ending {
		t.mu.Unlock()
		done(0, nil)
		return
	}
	in := t.o.Steps.Find(step)
	w := &wait{known: &t.store, device: d, step: step, name: name, timeout: t.o.PeerTimeout}
	w.done = func(n uint64, err error) {
		in.DeregisterCall(w)
		switch {
		case err == nil:
		case in.Err() != nil:
			err = in.Err()
		case ctx.Err() != nil:
			err = status.Errorf(status.CodeOf(ctx.Err()), "the context of the receive ended before %s was reached: %s", d.Task, status.From(err).Message()).Derived()
		}
		done(n, err)
	}
	n, known, run := t.store.wait(ctx, w)
	if run != nil {
		t.work.Add(1)
	}
	t.mu.Unlock()
	if known {
		done(n, nil)
		return
	}
	if run != nil {
		go func() {
			defer t.work.Done()
			run(t.o.Ask)
		}()
	}
	w.watch(ctx)
	if err := in.RegisterCall(w); err == nil && w.ended() { // done came before, and has deregistered nothing
		in.DeregisterCall(w)
	}
}
