package soft

import (
	"context"
	"sync"

	"github.com/tryst-rdma/tryst/verbs"
)

// events holds the asynchronous events of a device until NextEvent.
type events struct {
	mu   sync.Mutex
	list []verbs.AsyncEvent
	wake chan struct{} // one token, sent when list is not empty
}

func (q *events) push(e verbs.AsyncEvent) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.list) == maxEvents {
		q.list = append(q.list[:0], q.list[1:]...)
	}
	q.list = append(q.list, e)
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *events) pop() (verbs.AsyncEvent, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.list) == 0 {
		return verbs.AsyncEvent{}, false
	}
	e := q.list[0]
	q.list = append(q.list[:0], q.list[1:]...)
	return e, true
}

// waiter allows one call to wait. Its owner's lock guards it.
type waiter struct {
	on       bool
	returned chan struct{} // made by Close, closed when the waiting call returns
}

// begin returns false if another call waits.
func (w *waiter) begin() bool {
	if w.on {
		return false
	}
	w.on = true
	return true
}

func (w *waiter) end() {
	w.on = false
	if w.returned != nil {
		close(w.returned)
		w.returned = nil
	}
}

// returns returns a channel that is closed when the waiting call has returned; nil if none waits.
func (w *waiter) returns() <-chan struct{} {
	if w.on && w.returned == nil {
		w.returned = make(chan struct{})
	}
	return w.returned
}

// Event queues an asynchronous event for NextEvent. It takes no lock of the device.
func (d *Device) Event(e verbs.AsyncEvent) { d.events.push(e) }

// NextEvent implements verbs.Device.
func (d *Device) NextEvent(ctx context.Context) (verbs.AsyncEvent, error) {
	d.Mu.Lock()
	closed, began := d.closed, !d.closed && d.waiting.begin()
	d.Mu.Unlock()
	switch {
	case closed:
		return verbs.AsyncEvent{}, verbs.Errorf("next event", d.name, verbs.ErrClosed, "the device is closed")
	case !began:
		return verbs.AsyncEvent{}, verbs.Errorf("next event", d.name, verbs.ErrBusy, "another goroutine waits")
	}
	e, err := d.nextEvent(ctx)
	d.Mu.Lock()
	d.waiting.end()
	d.Mu.Unlock()
	return e, err
}

func (d *Device) nextEvent(ctx context.Context) (verbs.AsyncEvent, error) {
	for {
		if err := ctx.Err(); err != nil {
			return verbs.AsyncEvent{}, err
		}
		if e, ok := d.events.pop(); ok {
			return e, nil
		}
		if err := d.Gone("next event"); err != nil {
			return verbs.AsyncEvent{}, err
		}
		select {
		case <-d.events.wake:
		case <-d.goneSignal:
		case <-ctx.Done():
			return verbs.AsyncEvent{}, ctx.Err()
		case <-d.done:
			return verbs.AsyncEvent{}, verbs.Errorf("next event", d.name, verbs.ErrClosed, "the device was closed")
		}
	}
}
