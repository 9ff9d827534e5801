package delivery

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
)

func TestAcksGoWithRequests(t *testing.T) {
	b := ups(t)
	b.recv(1)
	b.recv(2)
	b.want("answered", b.answered(1, 10), "wake in 5ms")
	b.want("goes with the request", b.recv(3), "send 3.1 with [1]")
	b.want("nothing is left", b.pass(ackDelay), "")
	b.want("answered", b.answered(3, 10), "wake in 5ms")
	b.want("acks of a request are not sent again", b.pass(ackDelay), "ack [3]")
	b.recv(5)
	b.answered(5, 10)
	b.want("goes with the request", b.recv(3), "send 3.1 with [5]")
	b.flushed(nil)
	b.want("refused, perhaps unread", b.do(b.m.answeredID(b.now, 3, 0, status.New(status.Internal, ""))), "wake in 5ms")
	b.want("sent again", b.pass(ackDelay), "ack [5 3]")
	b.answered(2, 10)
	b.want("goes with the request", b.recv(4), "send 4.1 with [2]")
	b.flushed(nil)
	b.now = b.now.Add(time.Minute)
	b.want("lost", b.lost(4, 1), "hello in 0s")
	b.want("goes with the next attempt", b.hello(5), "send 4.2 with [2]")
}

// TestAckWithoutRequestWaits5ms, however many ids requests have carried before.
func TestAckWithoutRequestWaits5ms(t *testing.T) {
	b := ups(t)
	b.recv(1)
	for id := uint64(1); id <= 20; id++ {
		b.want("answered", b.answered(id, 1), "wake in 5ms")
		b.recv(id + 1)
		b.want("carried", b.pass(ackDelay), "")
	}
	b.want("answered", b.answered(21, 1), "wake in 5ms")
	b.want("nothing carried it", b.pass(ackDelay), "ack [21]")
}

func TestAcksOfARequestAreBounded(t *testing.T) {
	b := ups(t)
	for id := uint64(1); id <= maxAcksOfRequest+2; id++ {
		b.recv(id)
	}
	for id := uint64(1); id <= maxAcksOfRequest+2; id++ {
		b.answered(id, 1)
	}
	b.recv(1000)
	if n := len(b.m.transfers[1000].Acks); n != maxAcksOfRequest {
		t.Errorf("%d ids go with the request, want %d", n, maxAcksOfRequest)
	}
	b.want("the rest", b.pass(ackDelay), fmt.Sprint("ack [", maxAcksOfRequest+1, " ", maxAcksOfRequest+2, "]"))
}

func TestAcksWithoutRequest(t *testing.T) {
	b := ups(t)
	b.recv(1)
	b.recv(2)
	b.recv(3)
	b.want("answered", b.answered(1, 10), "wake in 5ms")
	b.want("one wake is enough", b.answered(2, 10), "")
	b.want("too early", b.pass(ackDelay-1), "wake in 1ns")
	b.want("5 ms", b.pass(1), "ack [1 2]")
	b.want("one at a time", b.answered(3, DefaultAckBytes), "")
	b.want("then the large one", b.flushed(nil), "ack [3]")
	b.want("taken", b.flushed(nil), "")
}

// TestLargeResponsesAreAcknowledgedSoon, whether one response is large or all together are. A
// request before that carries the acks.
func TestLargeResponsesAreAcknowledgedSoon(t *testing.T) {
	b := ups(t)
	for id := uint64(1); id <= 4; id++ {
		b.recv(id)
	}
	b.want("not yet", b.answered(1, DefaultAckBytes-1), "wake in 5ms")
	b.pass(time.Millisecond)
	b.want("now", b.answered(2, 1), "wake in 200µs")
	b.want("more does not make it later", b.answered(3, DefaultAckBytes), "")
	b.want("all", b.pass(ackSoon), "ack [1 2 3]")
	b.want("large", b.answered(4, DefaultAckBytes), "")
	b.want("goes with the request", b.recv(5), "send 5.1 with [4]")
	b.flushed(nil)
	b.want("nothing is left", b.pass(ackDelay), "")
	b.want("acks of a request do not count any more", b.answered(5, 1), "wake in 5ms")
}

// TestAcksAreSentAtOnceWhereNoRequestCame: who receives now and then acknowledges at once. A request that comes soon after
// an acknowledgement could have carried it, so the next one waits.
func TestAcksAreSentAtOnceWhereNoRequestCame(t *testing.T) {
	b := ups(t)
	b.recv(1)
	b.want("the first", b.answered(1, 1), "wake in 5ms")
	b.want("no request came", b.pass(ackDelay), "ack [1]")
	b.flushed(nil)
	for id := uint64(2); id < 5; id++ {
		b.pass(ackDelay)
		b.recv(id)
		b.want("after silence", b.answered(id, 1), fmt.Sprintf("ack [%d]", id))
		b.flushed(nil)
	}
	b.pass(ackDelay - 1)
	b.want("soon", b.recv(5), "send 5.1")
	b.want("a request may carry it", b.answered(5, 1), "wake in 5ms")
	b.want("carried", b.recv(6), "send 6.1 with [5]")
	b.want("and the next", b.answered(6, 1), "")
	b.want("no request came", b.pass(ackDelay), "ack [6]")
	b.pass(ackDelay)
	b.recv(7)
	b.recv(8)
	b.want("one at a time", b.answered(7, 1), "")
	b.want("carried", b.recv(9), "send 9.1 with [7]")
	b.flushed(nil)
	b.want("a request may carry the next", b.answered(8, 1), "wake in 5ms")
	b.want("no request came", b.pass(ackDelay), "ack [8]")
	b.flushed(errLost)
	b.want("no faster than hellos", b.hello(5), "wake in 5ms")
}

// TestAcksOfALostRequestAreSentAgain: the ids of a request that ended without a value wake the
// machine, too.
func TestAcksOfALostRequestAreSentAgain(t *testing.T) {
	b := ups(t)
	for id := uint64(1); id <= 3; id++ {
		b.recv(id)
	}
	b.answered(1, 1)
	b.want("goes with the request", b.recv(4), "send 4.1 with [1]")
	b.want("cancel", b.cancel(4), "drop 4.1, end 4: Cancelled, cancel [4]")
	b.want("taken, and a tick is due already", b.flushed(nil), "")
	b.want("sent", b.pass(ackDelay), "ack [1]")

	b = ups(t)
	b.recv(1)
	b.recv(2)
	b.answered(1, 1)
	b.recv(3) // carries 1
	b.pass(ackDelay)
	b.want("no tick is due", b.do(b.m.answeredID(b.now, 3, 0, status.New(status.Internal, ""))), "wake in 5ms")
}

func TestUnconfirmedBatchIsSentAgain(t *testing.T) {
	for _, err := range []error{errLost, &transport.LostError{Err: errors.New("reset")}, status.New(status.DeadlineExceeded, "")} {
		b := ups(t)
		b.recv(1)
		b.recv(2)
		b.cancel(1)
		b.now = b.now.Add(time.Minute)
		b.want("not taken", b.flushed(err), "hello in 0s")
		b.want("the cancel is sent again", b.hello(5), "cancel [1]")
		b.flushed(nil)
		b.answered(2, 1)
		b.want("ack", b.pass(ackDelay), "ack [2]")
		b.now = b.now.Add(time.Minute)
		b.flushed(err)
		b.want("no hurry", b.hello(5), "wake in 5ms")
		b.want("the ack is sent again", b.pass(ackDelay), "ack [2]")
		b.want("refused for good", b.flushed(status.New(status.Unimplemented, "")), "")
		b.want("nothing is left", b.pass(time.Second), "")
	}
}

// TestCloseWaitsForAcksOfALostBatch: the peer is looked for, and its own close would wait for them.
func TestCloseWaitsForAcksOfALostBatch(t *testing.T) {
	lost := func() *requestsBench {
		b := ups(t)
		b.recv(1)
		b.answered(1, 1)
		b.want("ack", b.pass(ackDelay), "ack [1]")
		b.want("lost", b.flushed(errLost), "hello in 0s")
		b.do(b.m.close(b.now))
		if b.m.quiet(b.now) {
			t.Error("the close is over, and an acknowledgement is left")
		}
		return b
	}
	b := lost()
	b.want("the peer is there", b.hello(5), "ack [1]")
	b.flushed(nil)
	if !b.m.quiet(b.now) {
		t.Error("the close goes on although all is sent")
	}
	b = lost()
	b.do(b.m.hello(b.now, transport.Peer{}, errLost))
	if !b.m.quiet(b.now) {
		t.Error("the close goes on although the peer is not reached")
	}
	if b = lost(); !b.m.quiet(b.now.Add(closeCall)) {
		t.Error("the close goes on although the peer does not answer")
	}
}

func TestAcksAreNotSentToAnotherProcess(t *testing.T) {
	b := ups(t)
	b.recv(1)
	b.recv(2)
	b.answered(1, 1)
	b.lost(2, 1)
	b.want("restarted", b.hello(6), "end 2: Aborted")
	b.want("nothing to send", b.pass(time.Second), "")
}

// TestBatchesAreBounded in the number of ids.
func TestBatchesAreBounded(t *testing.T) {
	b := ups(t)
	b.m.flushing = true
	const n = maxBatch + 1
	for id := uint64(1); id <= n; id++ {
		b.recv(id)
	}
	for id := uint64(1); id <= n; id++ {
		b.cancel(id)
	}
	b.flushed(nil)
	if len(b.batch.ids) != maxBatch {
		t.Errorf("%d ids in the first, want %d", len(b.batch.ids), maxBatch)
	}
	b.flushed(nil)
	if !slices.Equal(b.batch.ids, []uint64{n}) {
		t.Errorf("%d ids in the second, want 1", len(b.batch.ids))
	}
}
