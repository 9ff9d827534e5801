package tcp

import (
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/internal/rc"
	"github.com/tryst-rdma/tryst/verbs/tcp/internal/frame"
)

// TestRNRRetriesNeedNoOtherTimer: without a timeout of the queue pair nothing else wakes a requester
// that waits for a receive.
func TestRNRRetriesNeedNoOtherTimer(t *testing.T) {
	o := Options{ListenOn: "127.0.0.1:0"}
	a, b := newSide(t, o, 4096), newSide(t, o, 4096)
	a.path.Timeout, a.path.RNRRetry = 0, 2
	connect(a, b)
	a.post(a.send(1, 0, 8))
	a.expect(1, verbs.StatusRNRRetryExceeded)
}

// TestSignsOfLifeDoNotDelayTheProbeAfterAnRNR: on a busy machine the kernel may be seen to take bytes
// only after the time of the RNR. The requester still asks then, and not only when its patience is
// a quarter over.
func TestSignsOfLifeDoNotDelayTheProbeAfterAnRNR(t *testing.T) {
	e := newModel(t, 1, 6).ends[0]
	x := &e.machine
	wr := verbs.SendWR{ID: 0, Op: verbs.OpSend, Signaled: true, SGL: []verbs.SGE{{Addr: e.mr.Addr(), Length: 1000, LKey: e.mr.LKey()}}}
	if _, _, err := x.postSend(0, []verbs.SendWR{wr}); err != nil {
		t.Fatal(err)
	}
	n := x.Acked()
	var h frame.Header
	var s frameContent
	if !x.next(0, true, &h, &s) || h.Kind != frame.Send {
		t.Fatalf("the first frame is %+v", h)
	}
	x.req.written.Store(n + 1)
	for round := range 3 {
		now := time.Duration(round+1) * time.Second
		if _, err := x.receive(now, &frame.Header{Kind: frame.RNR, Number: n, Acked: n, Imm: 1}); err != nil {
			t.Fatal(err)
		}
		delay, _ := rc.RNRDelay(1)
		until := now + delay
		x.req.alive(until + 1)
		if at, ok := x.deadline(); !ok || at > until {
			t.Fatalf("round %d: the deadline is %v, %v; the RNR ends at %v", round, at, ok, until)
		}
		x.expire(until + 1)
		if !x.next(until+1, true, &h, &s) || h.Kind != frame.Probe {
			t.Fatalf("round %d: the next frame is %+v, want a Probe", round, h)
		}
		if at, ok := x.deadline(); !ok || at <= until+1 {
			t.Fatalf("round %d: after the Probe the deadline is %v, %v", round, at, ok)
		}
	}
}

// TestAProcessThatRestedAsksBeforeItFailsAQueuePair: after a stop of this process, what the peer has sent
// meanwhile is still to be read. A queue pair whose own timers come so late asks for a sign of life first, also
// when it had asked before the stop.
func TestAProcessThatRestedAsksBeforeItFailsAQueuePair(t *testing.T) {
	e := newModel(t, 1, 6).ends[0]
	x := &e.machine
	wr := verbs.SendWR{ID: 0, Op: verbs.OpSend, Signaled: true, SGL: []verbs.SGE{{Addr: e.mr.Addr(), Length: 1000, LKey: e.mr.LKey()}}}
	if _, _, err := x.postSend(0, []verbs.SendWR{wr}); err != nil {
		t.Fatal(err)
	}
	var h frame.Header
	var s frameContent
	if !x.next(0, true, &h, &s) || h.Kind != frame.Send {
		t.Fatalf("the first frame is %+v", h)
	}
	limit := x.req.allowed()
	rest := func(now time.Duration) {
		t.Helper()
		x.expire(now)
		if !x.next(now, true, &h, &s) || h.Kind != frame.Probe {
			t.Fatalf("after a rest until %v the state is %v and the next frame %+v, want a Probe", now, x.State(), h)
		}
	}
	now := 10 * limit
	rest(now) // before the first Probe
	now += 10 * limit
	rest(now) // after it
	if _, err := x.receive(now+1, &frame.Header{Kind: frame.Ack, Acked: x.Acked()}); err != nil {
		t.Fatal(err)
	}
	if at, ok := x.deadline(); !ok || at != now+1+limit/probeShare {
		t.Fatalf("after the answer the deadline is %v, %v", at, ok)
	}
	now += 10 * limit
	rest(now)
	at, ok := x.deadline() // a peer that does not answer
	if !ok || at <= now || at > now+limit {
		t.Fatalf("at %v the deadline is %v, %v", now, at, ok)
	}
	x.expire(at - 1)
	if x.State() != verbs.StateRTS {
		t.Fatalf("state %v before the deadline", x.State())
	}
	x.expire(at)
	if x.State() != verbs.StateErr {
		t.Errorf("state %v at the deadline", x.State())
	}
}
