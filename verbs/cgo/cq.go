//go:build linux && cgo

package libibverbs

// #include "shim.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"

	"github.com/tryst-rdma/tryst/verbs"
)

// completionQueue is a completion queue with a channel of its own, so that
// whose event it is needs no look.
type completionQueue struct {
	device *device
	node
	size    int
	channel *C.struct_ibv_comp_channel
	events  *descriptor        // of the channel
	take    func(uintptr) bool // takeEvents, as a value that is made once
	problem error              // of take; under the lock of events

	closing sync.Mutex // one Close at a time
	orphan  bool       // the device was gone when the queue was destroyed

	mu     sync.Mutex       // protects what follows: one poll at a time; taken after a send queue's
	handle *C.struct_ibv_cq // nil when closed
	ring   completionRing   // where C writes completions
}

// CreateCQ makes a completion queue.
func (d *device) CreateCQ(cfg verbs.CQConfig) (verbs.CQ, error) {
	const op = "create a completion queue on"
	if limit := d.info.Limits.CQEntries; cfg.Size < 1 || cfg.Size > limit {
		return nil, verbs.Errorf(op, d.info.Name, verbs.ErrInvalid, "room for %d completions: this device has 1 to %d", cfg.Size, limit)
	}
	if err := d.enter(&d.counts.CQs, &d.node); err != nil {
		return nil, &verbs.Error{Op: op, Object: d.info.Name, Err: err}
	}
	q := &completionQueue{device: d}
	if err := q.create(op, cfg.Size); err != nil {
		_ = q.free() // the first error tells more
		d.leave(&d.counts.CQs, &d.node)
		return nil, err
	}
	return q, nil
}

// create makes the parts. When it fails, free frees those that were made.
func (q *completionQueue) create(op string, size int) error {
	d := q.device
	var errno error
	q.channel, errno = C.shim_create_comp_channel(d.lib, d.ctx)
	if err := pointerOrErrno(q.channel == nil, errno); err != nil {
		return explain(op, d.info.Name, err)
	}
	var err error
	if q.ring, err = newCompletionRing(); err != nil {
		return &verbs.Error{Op: op, Object: d.info.Name, Err: err}
	}
	q.events, err = newDescriptor(int(C.shim_channel_fd(q.channel)), "completion events of "+d.info.Name)
	if err != nil {
		return &verbs.Error{Op: op, Object: d.info.Name, Err: err}
	}
	q.handle, errno = C.shim_create_cq(d.lib, d.ctx, C.int(size), q.channel)
	if err := pointerOrErrno(q.handle == nil, errno); err != nil {
		return outOfMemory(op, d.info.Name, 0, err)
	}
	q.size = int(C.shim_cq_cqe(q.handle))
	q.take = q.takeEvents
	return nil
}

// free frees the parts that there are, in the order that the library wants: the
// queue before its channel. The duplicate descriptor goes first, so that nobody
// is in a call with the queue. What was freed is not freed again when it is
// called again after an error.
func (q *completionQueue) free() error {
	d := q.device
	if q.events != nil {
		q.events.close()
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.handle != nil {
		rc, errno := C.shim_destroy_cq(d.lib, q.handle)
		err := zeroOrErrno(int(rc), errno)
		if err != nil && !gone(err) {
			return err
		}
		q.handle, q.orphan = nil, err != nil
	}
	if q.channel != nil {
		rc, errno := C.shim_destroy_comp_channel(d.lib, q.channel)
		err := zeroOrErrno(int(rc), errno)
		// The library counts the queue of a device that is gone as a user of its channel still.
		if err != nil && !gone(err) && (!q.orphan || !errors.Is(err, syscall.EBUSY)) {
			return err
		}
		q.channel = nil
	}
	q.ring.free()
	return nil
}

// Size is the room in completions.
func (q *completionQueue) Size() int { return q.size }

// Arm asks for an event at the next completion.
func (q *completionQueue) Arm(solicitedOnly bool) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.handle == nil {
		return q.err("arm", verbs.ErrClosed)
	}
	var only C.int
	if solicitedOnly {
		only = 1
	}
	rc, errno := C.shim_req_notify_cq(q.handle, only)
	if err := zeroOrErrno(int(rc), errno); err != nil {
		return explain("arm the completion queue of", q.device.info.Name, err)
	}
	return nil
}

// Wait blocks in Go's poller until an event has come.
func (q *completionQueue) Wait(ctx context.Context) error {
	if err := q.events.wait(ctx, q.take); err != nil {
		return err
	}
	if q.problem != nil {
		return explain("wait for completions of", q.device.info.Name, q.problem)
	}
	return nil
}

// takeEvents reads all events that have come and acknowledges them: the library
// waits for that when the queue is destroyed. It reports whether there were any,
// or none can come any more. q.handle is there, for free waits for this to end.
func (q *completionQueue) takeEvents(uintptr) bool {
	lib := q.device.lib
	for n := C.uint(0); ; n++ {
		rc, errno := C.shim_get_cq_event(lib, q.channel)
		err := zeroOrMinusOne(int(rc), errno)
		if err == nil {
			continue
		}
		if n > 0 {
			C.shim_ack_cq_events(lib, q.handle, n)
		}
		again := errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EINTR)
		q.problem = nil
		if n == 0 && !again {
			q.problem = err
		}
		return n > 0 || !again
	}
}

// Close destroys the queue.
func (q *completionQueue) Close() error {
	q.closing.Lock()
	defer q.closing.Unlock()
	if q.channel == nil {
		return nil
	}
	d := q.device
	err := d.shut(&q.node, func(users int, _ verbs.Counts) string {
		return fmt.Sprintf("%d queue pairs use it", users)
	})
	if err != nil {
		return q.err("destroy", err)
	}
	if err := q.free(); err != nil {
		d.reopen(&q.node)
		return explain("destroy the completion queue of", d.info.Name, err)
	}
	d.leave(&d.counts.CQs, &d.node)
	return nil
}

func (q *completionQueue) err(what string, err error) error {
	return &verbs.Error{Op: what + " the completion queue of", Object: q.device.info.Name, Err: err}
}
