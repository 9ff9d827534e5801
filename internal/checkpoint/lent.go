package checkpoint

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// Lent says when memory that was published is its owner's again: no puller, no response and no device
// refers to it any more. It does not wait for the owner's own references.
type Lent struct {
	// Publication is the version whose memory it is; of a withdrawal the last one.
	Publication Publication

	left atomic.Int64 // tensors that have not come back, and the publication
	done chan struct{}

	readers readers // over gRPC

	want func() (unwant func()) // called by Wait while the memory is not back; nil for nothing

	mu   sync.Mutex
	then []func() // called before done is closed; guarded by mu
	over bool     // they were called; guarded by mu
}

// newLent returns the Lent of a publication without tensors.
func newLent() *Lent {
	l := &Lent{done: make(chan struct{})}
	l.left.Store(1)
	return l
}

// take lends a tensor. The caller releases the result.
func (l *Lent) take(t *tensor.Tensor) *tensor.Tensor {
	l.left.Add(1)
	return t.Lend(loan{l})
}

// returned counts what has come back. It is called once for each tensor, by whoever releases the last
// reference, and once by the publication.
func (l *Lent) returned() {
	if l.left.Add(-1) > 0 {
		return
	}
	l.mu.Lock()
	then := l.then
	l.then, l.over = nil, true
	l.mu.Unlock()
	for _, f := range then {
		f()
	}
	close(l.done)
}

// whenBack calls f when the memory is back, on the goroutine that releases the last reference. f must not
// block.
func (l *Lent) whenBack(f func()) {
	l.mu.Lock()
	over := l.over
	if !over {
		l.then = append(l.then, f)
	}
	l.mu.Unlock()
	if over {
		f()
	}
}

// Done returns a channel that is closed when the memory may be written again.
func (l *Lent) Done() <-chan struct{} { return l.done }

// Wait waits until the memory may be written again. If ctx ends first, the error is Cancelled or
// DeadlineExceeded, and a peer may still read the memory. While it waits, a version that was replaced ends with
// its last pull: a pull whose connection broke does not find it again. While deltas from it are made, for deltasWithin
// at most, its memory is read.
func (l *Lent) Wait(ctx context.Context) error {
	select {
	case <-l.done:
		return nil
	default:
	}
	if l.want != nil {
		defer l.want()()
	}
	select {
	case <-l.done:
		return nil
	case <-ctx.Done():
	}
	select {
	case <-l.done: // with both, it is the owner's
		return nil
	default:
		return status.Errorf(status.CodeOf(ctx.Err()), "the memory of publication %s, version %s, is still read by a puller", quote(l.Publication.Name), l.Publication.Version)
	}
}

// allLent returns a Lent that is done when all of the given ones are.
func allLent(last Publication, all []*Lent) *Lent {
	l := newLent()
	l.Publication = last
	for _, one := range all {
		l.left.Add(1)
		one.whenBack(l.returned)
	}
	l.returned()
	return l
}
