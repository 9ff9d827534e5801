package delivery

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/status"
)

func TestRequestsFinishedRides(t *testing.T) {
	b := ups(t)
	b.recv(1)
	b.recv(2)
	b.want("answered", b.answered(1, 10), "wake in 5ms")
	b.want("rides", b.recv(3), "ask 3.1 with [1]")
	b.want("nothing is left", b.pass(ackDelay), "")
	b.want("answered", b.answered(3, 10), "wake in 5ms")
	b.want("what rode is not said again", b.pass(ackDelay), "finish [3]")
	b.told(nil)
	b.recv(5)
	b.answered(5, 10)
	b.want("rides", b.recv(3), "ask 3.1 with [5]")
	b.want("refused, perhaps unread; a tick is due", b.do(b.m.answeredID(b.now, 3, 0, status.New(status.Internal, ""))), "")
	b.want("said again", b.pass(ackDelay), "finish [5 3]")
	b.told(nil)
	b.answered(2, 10)
	b.want("rides", b.recv(4), "ask 4.1 with [2]")
	b.now = b.now.Add(time.Minute)
	b.want("lost", b.lost(4, 1), "hello in 0s")
	b.want("rides on the next attempt", b.hello(5), "ask 4.2 with [2]")
}

// TestRequestsFinishedWaits5msAlways, however many ids requests have carried before.
func TestRequestsFinishedWaits5msAlways(t *testing.T) {
	b := ups(t)
	b.recv(1)
	for id := uint64(1); id <= 20; id++ {
		b.want("answered", b.answered(id, 1), "wake in 5ms")
		b.recv(id + 1)
		b.want("carried", b.pass(ackDelay), "")
	}
	b.want("answered", b.answered(21, 1), "wake in 5ms")
	b.want("nothing carried it", b.pass(ackDelay), "finish [21]")
}

func TestRequestsRidersAreBounded(t *testing.T) {
	b := ups(t)
	for id := uint64(1); id <= maxAcksOfRequest+2; id++ {
		b.recv(id)
	}
	for id := uint64(1); id <= maxAcksOfRequest+2; id++ {
		b.answered(id, 1)
	}
	b.recv(1000)
	if n := len(b.m.transfers[1000].Acks); n != maxAcksOfRequest {
		t.Errorf("%d ids ride, want %d", n, maxAcksOfRequest)
	}
	b.want("the rest", b.pass(ackDelay), fmt.Sprint("finish [", maxAcksOfRequest+1, " ", maxAcksOfRequest+2, "]"))
}

func TestRequestsFinishedSaidAlone(t *testing.T) {
	b := ups(t)
	b.recv(1)
	b.recv(2)
	b.recv(3)
	b.want("answered", b.answered(1, 10), "wake in 5ms")
	b.want("one wake is enough", b.answered(2, 10), "")
	b.want("too early", b.pass(ackDelay-1), "wake in 1ns")
	b.want("5 ms", b.pass(1), "finish [1 2]")
	b.want("large, but one at a time", b.answered(3, DefaultAckBytes), "")
	b.want("then the large one soon", b.told(nil), "wake in 200µs")
	b.want("too early", b.pass(ackSoon-1), "wake in 1ns")
	b.want("200 us", b.pass(1), "finish [3]")
	b.want("taken", b.told(nil), "")
}

// TestRequestsMuchKeptIsSaidSoon, whether one answer is large or all together are; a
// request takes even that along.
func TestRequestsMuchKeptIsSaidSoon(t *testing.T) {
	b := ups(t)
	for id := uint64(1); id <= 4; id++ {
		b.recv(id)
	}
	b.want("not yet", b.answered(1, DefaultAckBytes-1), "wake in 5ms")
	b.pass(time.Millisecond)
	b.want("now", b.answered(2, 1), "wake in 200µs")
	b.want("more does not make it later", b.answered(3, DefaultAckBytes), "")
	b.want("all", b.pass(ackSoon), "finish [1 2 3]")
	b.told(nil)
	b.want("large", b.answered(4, DefaultAckBytes), "wake in 200µs")
	b.want("rides", b.recv(5), "ask 5.1 with [4]")
	b.want("nothing is left", b.pass(ackDelay), "")
	b.want("what rode counts no more", b.answered(5, 1), "wake in 5ms")
}

// Ids that came back from a lost request wake the machine too.
func TestRequestsFinishedThatCameBackIsSaid(t *testing.T) {
	b := ups(t)
	for id := uint64(1); id <= 3; id++ {
		b.recv(id)
	}
	b.answered(1, 1)
	b.want("rides", b.recv(4), "ask 4.1 with [1]")
	b.want("cancel", b.cancel(4), "drop 4.1, end 4: Cancelled, cancel [4]")
	b.want("taken, and a tick is due already", b.told(nil), "")
	b.want("said", b.pass(ackDelay), "finish [1]")

	b = ups(t)
	b.recv(1)
	b.recv(2)
	b.answered(1, 1)
	b.recv(3) // 1 rides
	b.pass(ackDelay)
	b.want("no tick is due", b.do(b.m.answeredID(b.now, 3, 0, status.New(status.Internal, ""))), "wake in 5ms")
}

func TestRequestsSaidAgain(t *testing.T) {
	for _, err := range []error{errLost, &LostError{Err: errors.New("reset")}, status.New(status.DeadlineExceeded, "")} {
		b := ups(t)
		b.recv(1)
		b.recv(2)
		b.cancel(1)
		b.now = b.now.Add(time.Minute)
		b.want("not taken", b.told(err), "hello in 0s")
		b.want("cancel is said again", b.hello(5), "cancel [1]")
		b.told(nil)
		b.answered(2, 1)
		b.want("finish", b.pass(ackDelay), "finish [2]")
		b.now = b.now.Add(time.Minute)
		b.told(err)
		b.want("no hurry", b.hello(5), "wake in 5ms")
		b.want("finish is said again", b.pass(ackDelay), "finish [2]")
		b.want("refused for good", b.told(status.New(status.Unimplemented, "")), "")
		b.want("nothing is left", b.pass(time.Second), "")
	}
}

func TestRequestsUnsaidIsForTheProcessThatItMeans(t *testing.T) {
	b := ups(t)
	b.recv(1)
	b.recv(2)
	b.answered(1, 1)
	b.lost(2, 1)
	b.want("restarted", b.hello(6), "end 2: Aborted")
	b.want("nothing to say", b.pass(time.Second), "")
}

// A message has a bounded number of ids.
func TestRequestsSaysInParts(t *testing.T) {
	b := ups(t)
	b.m.flushing = true
	const n = maxBatch + 1
	for id := uint64(1); id <= n; id++ {
		b.recv(id)
	}
	for id := uint64(1); id <= n; id++ {
		b.cancel(id)
	}
	b.told(nil)
	if len(b.say.ids) != maxBatch {
		t.Errorf("%d ids in the first, want %d", len(b.say.ids), maxBatch)
	}
	b.told(nil)
	if !slices.Equal(b.say.ids, []uint64{n}) {
		t.Errorf("%d ids in the second, want 1", len(b.say.ids))
	}
}
