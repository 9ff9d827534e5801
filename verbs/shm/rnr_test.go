//go:build linux

package shm

import (
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
)

// TestLongMessageIsNoMissingReceive: once a receive was posted the requester's RNR retries end, also
// while the content is still being copied.
func TestLongMessageIsNoMissingReceive(t *testing.T) {
	t.Parallel() // it waits
	p := New(Options{})
	var over time.Time
	p.afterSlices(func() {
		if over.IsZero() {
			over = retriesAreOver()
			wait(t, func() bool { return time.Now().After(over) })
		}
	})
	x, y := newPair(t, p, 4*sliceSize)
	x.retryWithoutReceive()
	x.post(x.to(y, 1, verbs.OpSend, 0, 2*sliceSize, 0))
	x.qp.pollUntil(t, func() bool { return x.qp.req.rnr })
	y.recv(2, 0, 2*sliceSize)
	x.ends(1, verbs.StatusOK)
	y.ends(2, verbs.StatusOK)
}
