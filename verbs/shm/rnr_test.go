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
	p := New(Options{})
	const delay = 5 * time.Millisecond
	var began time.Time
	p.afterSlices(func() {
		if began.IsZero() {
			began = time.Now()
			wait(t, func() bool { return time.Since(began) > 20*delay })
		}
	})
	x, y := newPair(t, p, 4*sliceSize)
	x.retryWithoutReceive(6, delay)
	x.post(x.to(y, 1, verbs.OpSend, 0, 2*sliceSize, 0))
	x.qp.pollUntil(t, func() bool { return x.qp.req.rnr })
	y.recv(2, 0, 2*sliceSize)
	x.ends(1, verbs.StatusOK)
	y.ends(2, verbs.StatusOK)
}
