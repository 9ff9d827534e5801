//go:build linux

package shm

import (
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/internal/soft"
)

// TestRequestsExecutedBeforeTheEndComplete: the peer executes requests and closes its queue pair. The
// poster, which sleeps, gets their completions and not an error after its timeout.
func TestRequestsExecutedBeforeTheEndComplete(t *testing.T) {
	for range 20 {
		func() {
			x, y := newPair(t, New(Options{}), 1<<16)
			var l *connection
			wait(t, func() bool { l = x.qp.live.Load(); return l != nil && y.qp.live.Load() != nil })
			y.recv(2, 0, 8)
			x.qp.drive.Lock() // x reads nothing until the connection has ended
			x.post(x.to(y, 1, verbs.OpSend, 0, 8, 0))
			y.ends(2, verbs.StatusOK)
			if err := y.qp.Close(); err != nil {
				t.Error(err)
			}
			x.qp.drive.Unlock()
			<-l.ended
			if x.cq.(*soft.DrivenCQ).Empty() { //nolint:errcheck // it is one
				t.Error("the completion of the executed request is lost")
			}
		}()
	}
}

// TestPostedReceiveEndsRetriesOfAStoppedResponder: the requester's RNR retries end when the receive is
// posted, and not when the responder's goroutine gets to the request.
func TestPostedReceiveEndsRetriesOfAStoppedResponder(t *testing.T) {
	t.Parallel() // it waits
	x, y := newPair(t, New(Options{}), 1<<16)
	x.retryWithoutReceive()
	x.post(x.to(y, 1, verbs.OpWriteImm, 0, 64, 0))
	y.qp.pollUntil(t, func() bool { return y.qp.resp.stalled })
	y.qp.drive.Lock()
	y.recv(2, 0, 8)
	over := retriesAreOver()
	wait(t, func() bool { return time.Now().After(over) })
	y.qp.drive.Unlock()
	x.ends(1, verbs.StatusOK)
	y.ends(2, verbs.StatusOK)
}

// TestReadBeforeARefusedRequestEndsWithTheRefusal: the peer answers a READ, then refuses a request and
// takes its memory back. The READ cannot be copied any more, and does not wait for its timeout.
func TestReadBeforeARefusedRequestEndsWithTheRefusal(t *testing.T) {
	x, y := newPair(t, New(Options{}), 1<<16)
	x.post(x.to(y, 9, verbs.OpWrite, 0, 8, 0)) // both are connected
	x.ends(9, verbs.StatusOK)
	x.qp.drive.Lock()
	wrong := x.to(y, 2, verbs.OpWrite, 0, 8, 0)
	wrong.RKey++
	x.post(x.to(y, 1, verbs.OpRead, 0, 4096, 0), wrong)
	wait(t, func() bool { s, _ := y.qp.State(); return s == verbs.StateErr })
	x.qp.drive.Unlock()
	x.ends(1, verbs.StatusRemoteAccess)
	x.ends(2, verbs.StatusFlushed)
}
