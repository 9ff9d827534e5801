package verbstransport

import (
	"context"
	"slices"
	"time"

	"github.com/tryst-rdma/tryst/internal/channel"
	"github.com/tryst-rdma/tryst/status"
)

// batch is a batch of acknowledgements or cancels that the peer has not confirmed.
type batch struct {
	cancel bool // cancels, else acknowledgements
	ids    []uint64
	mark   channel.Mark
	done   chan struct{}
	err    error
}

// end ends the batch: its sender returns err.
func (b *batch) end(err error) {
	b.err = err
	close(b.done)
}

// confirmedBy reports whether the peer has confirmed the batch, as of m.
func (b *batch) confirmedBy(m channel.Marks) bool {
	if b.cancel {
		return m.Cancels >= b.mark
	}
	return m.Acks >= b.mark
}

// sendBatch sends a batch and waits until the peer has confirmed it.
func (l *link) sendBatch(ctx context.Context, ids []uint64, cancel bool) error {
	b := &batch{cancel: cancel, ids: ids, done: make(chan struct{})}
	l.mu.Lock()
	if l.state != linkOpen {
		err := l.lostErr()
		l.mu.Unlock()
		return err
	}
	now := time.Now()
	if cancel {
		b.mark = l.machine.SendCancels(now, ids)
	} else {
		b.mark = l.machine.Ack(now, ids)
	}
	if b.confirmedBy(l.confirmed) {
		b.end(nil)
	} else {
		l.batches = append(l.batches, b)
	}
	l.run(now)
	select {
	case <-b.done:
		return b.err
	case <-ctx.Done():
		return status.From(context.Cause(ctx))
	}
}

// batchesConfirmed ends the batches that the peer has confirmed. Called with mu held.
func (l *link) batchesConfirmed(m channel.Marks) {
	l.confirmed = m
	l.batches = slices.DeleteFunc(l.batches, func(b *batch) bool {
		if !b.confirmedBy(m) {
			return false
		}
		b.end(nil)
		return true
	})
}
