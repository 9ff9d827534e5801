package roce

import (
	"fmt"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tryst-rdma/tryst/internal/rocewire"
	"github.com/tryst-rdma/tryst/verbs"
)

// longPath is what a stream of WRITEs reached on a path with a long round trip: from its
// beginning, and after the first second.
type longPath struct {
	rate, later         float64 // bytes a second
	resent, resentLater uint64  // packets
	timeouts            uint64
}

// defaultTimeout is the code of 268 ms, the default of rdma.timeout for this provider.
const defaultTimeout = 16

func streamOver(t *testing.T, rtt time.Duration, loss float64, timeout uint8, op verbs.Opcode, size int) (r longPath) {
	t.Helper()
	const depth, lasts = 8, 10 * time.Second
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		f.latency, f.loss, f.buffer = rtt/2, loss, 1<<20
		x, y := f.pair(t, 1<<20)
		joinEnds(x, y, func(p *verbs.Path, _ *verbs.Endpoint) { p.Timeout = timeout })
		begin := time.Now()
		moved, first := 0, 0
		var resent atomic.Uint64
		time.AfterFunc(time.Second, func() { resent.Store(x.counter("resent_pkts")) })
		for range depth {
			x.post(x.to(y, 1, op, 0, size, 0))
		}
		for time.Since(begin) < lasts {
			x.ends(1, verbs.StatusOK)
			if t.Failed() {
				return
			}
			moved += size
			if time.Since(begin) <= time.Second {
				first = moved
			}
			x.post(x.to(y, 1, op, 0, size, 0))
		}
		r.resent, r.timeouts = x.counter("resent_pkts"), x.counter("completer_retry_err")
		r.resentLater = r.resent - resent.Load()
		r.rate = float64(moved) / time.Since(begin).Seconds()
		r.later = float64(moved-first) / (time.Since(begin) - time.Second).Seconds()
		for range depth {
			x.ends(1, verbs.StatusOK)
		}
	})
	return r
}

// eachLongPath runs a test for round trips from firstRTO on, also one that is longer than the
// timeout of the queue pair.
func eachLongPath(t *testing.T, run func(t *testing.T, rtt time.Duration, timeout uint8)) {
	t.Helper()
	for _, c := range []struct {
		rtt     time.Duration
		timeout uint8
	}{{50 * ms, defaultTimeout}, {60 * ms, defaultTimeout}, {100 * ms, testTimeout}, {140 * ms, defaultTimeout}, {200 * ms, defaultTimeout}, {400 * ms, defaultTimeout}, {400 * ms, testTimeout}} {
		t.Run(fmt.Sprintf("%v,Timeout%d", c.rtt, c.timeout), func(t *testing.T) { run(t, c.rtt, c.timeout) })
	}
}

// TestLongRoundTripFillsTheWindow: a path without loss moves a window a round trip, and
// nothing is sent again once the round trip is known.
func TestLongRoundTripFillsTheWindow(t *testing.T) {
	eachLongPath(t, func(t *testing.T, rtt time.Duration, timeout uint8) {
		r := streamOver(t, rtt, 0, timeout, verbs.OpWrite, 256<<10)
		t.Logf("%.2f MB/s, %.2f after the first second; %d packets sent again, %d of them later; %d timeouts", r.rate/1e6, r.later/1e6, r.resent, r.resentLater, r.timeouts)
		if least := maxWindow / rtt.Seconds() / 2; r.later < least {
			t.Errorf("it moves %.2f MB/s, want at least %.2f", r.later/1e6, least/1e6)
		}
		if r.resentLater > 0 {
			t.Errorf("%d packets were sent again after the first second", r.resentLater)
		}
	})
}

// TestLongRoundTripOfSingleMessages: what holds for a stream holds for messages of one
// packet, each of which may have been sent again when it is acknowledged, and for READs.
func TestLongRoundTripOfSingleMessages(t *testing.T) {
	for op, size := range map[verbs.Opcode]int{verbs.OpWrite: 8, verbs.OpRead: 64 << 10} {
		eachLongPath(t, func(t *testing.T, rtt time.Duration, timeout uint8) {
			r := streamOver(t, rtt, 0, timeout, op, size)
			if r.resentLater > 0 {
				t.Errorf("%v: %d packets were sent again after the first second", op, r.resentLater)
			}
		})
	}
}

// TestLongRoundTripWithLoss: with one packet in a thousand lost, it moves at least half of
// the estimate.
func TestLongRoundTripWithLoss(t *testing.T) {
	eachLongPath(t, func(t *testing.T, rtt time.Duration, timeout uint8) {
		const loss = 0.001
		r := streamOver(t, rtt, loss, timeout, verbs.OpWrite, 256<<10)
		least := Throughput(verbs.MTU4096, rtt, loss, 1<<20) / 2
		t.Logf("%.2f MB/s, want at least %.2f; %d packets sent again; %d timeouts", r.rate/1e6, least/1e6, r.resent, r.timeouts)
		if r.rate < least {
			t.Errorf("it moves %.2f MB/s, want at least %.2f", r.rate/1e6, least/1e6)
		}
	})
}

// TestRoundTripThatGrows: if the round trip becomes far longer than the timeout, a stream
// measures it although all of its packets have been sent again, and goes on.
func TestRoundTripThatGrows(t *testing.T) {
	for _, size := range []int{8, 256 << 10} {
		for _, c := range [][2]time.Duration{{ms / 50, 5 * ms}, {ms / 50, 50 * ms}, {ms / 50, 200 * ms}, {60 * ms, 70 * ms}, {60 * ms, 100 * ms}, {60 * ms, 150 * ms}} {
			grown := c[1]
			t.Run(fmt.Sprintf("%d,%v,%v", size, c[0], grown), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := newFabric()
					f.latency, f.buffer = c[0]/2, 1<<20
					x, y := f.pair(t, 1<<20)
					joinEnds(x, y, nil)
					round := func() time.Duration {
						start := time.Now()
						x.post(x.to(y, 1, verbs.OpWrite, 0, size, 0))
						x.ends(1, verbs.StatusOK)
						return time.Since(start)
					}
					for range 100 {
						round()
					}
					f.mu.Lock()
					f.latency = grown / 2
					f.mu.Unlock()
					for range 50 {
						round()
					}
					resent := x.counter("resent_pkts")
					for range 20 {
						if took := round(); took > 4*grown {
							t.Errorf("a message takes %v", took)
						}
					}
					if n := x.counter("resent_pkts") - resent; n > 0 {
						t.Errorf("%d packets are sent again, after 50 messages", n)
					}
				})
			})
		}
	}
}

// TestNewQueuePairKnowsThePath: it uses what others measured, and sends nothing again.
func TestNewQueuePairKnowsThePath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		f.latency = 100 * ms
		list := pairsBetween(t, 2, 4096, newProvider(Options{Senders: 1}, f.host(hostA)), newProvider(Options{}, f.host(hostB)), "roce-eth0",
			netip.MustParseAddr(hostA), netip.MustParseAddr(hostB))
		for i, s := range list {
			before := s.x.counter("resent_pkts")
			for range 2 {
				s.x.post(s.x.to(s.y, 1, verbs.OpWrite, 0, 8, 0))
				s.x.ends(1, verbs.StatusOK)
			}
			if n := s.x.counter("resent_pkts") - before; i > 0 && n > 0 {
				t.Errorf("queue pair %d sends %d packets again", i, n)
			}
		}
	})
}

// TestDeadPeerOnALongPath: the time after which a queue pair fails is that of its timeout
// and retries, however long the round trip is; before that the packet is sent again.
func TestDeadPeerOnALongPath(t *testing.T) {
	for _, known := range []bool{false, true} {
		p := defaultConnection()
		p.timeout = defaultTimeout
		n, a, b := connect(t, p)
		n.delay = 200 * ms
		if known {
			a.post(a.to(b, 1, verbs.OpWrite, 0, 8, 0))
			n.run(10 * time.Second)
			a.post(a.to(b, 2, verbs.OpWrite, 0, 8, 0))
			n.run(10 * time.Second)
		}
		sent := 0
		n.lose = func(int, *rocewire.Header) bool { sent++; return true }
		a.post(a.to(b, 3, verbs.OpWrite, 0, 8, 0))
		n.run(time.Duration(p.retry+1)*verbs.TimeoutDuration(p.timeout) - 1)
		if a.machine.state != verbs.StateRTS || sent < 4 {
			t.Errorf("round trip known %v: before the end in %v, after %d packets", known, a.machine.state, sent)
		}
		if n.run(1); a.machine.state != verbs.StateErr {
			t.Errorf("round trip known %v: it does not fail", known)
		}
	}
}

// TestLongRoundTripToABusyReceiver: while the receiver has no receive, its RNR NAKs are waited
// for as ACKs are.
func TestLongRoundTripToABusyReceiver(t *testing.T) {
	p := defaultConnection()
	p.timeout, p.rnrTimer = testTimeout, 0 // 655 ms, in which the NAKs of repeated packets arrive
	n, a, b := connect(t, p)
	n.delay = 100 * ms
	a.post(a.to(b, 1, verbs.OpSend, 0, 8, 0))
	n.run(time.Second)
	before := a.counts.timeouts.Load()
	n.run(10 * time.Second)
	if again := a.counts.timeouts.Load() - before; again > 0 {
		t.Errorf("%d timers fired after the first second", again)
	}
	b.recv(9, 0, 8)
	n.run(time.Second)
	expectWCs(t, "sent", a.sent, ok(1))
}

// TestTimeoutIsKeptUntilASample: RFC 6298, sections 5.5 to 5.7.
func TestTimeoutIsKeptUntilASample(t *testing.T) {
	p := retransmitTimer{timeout: 300 * ms, retry: 6}
	is := func(when string, want time.Duration) {
		t.Helper()
		if got := p.rto(); got != want {
			t.Errorf("%s the timeout is %v, want %v", when, got, want)
		}
	}
	p.onSend(0, 1, false, false)
	for _, at := range []time.Duration{50 * ms, 150 * ms} {
		if resend, _ := p.check(at); !resend {
			t.Fatalf("the timer does not fire at %v", at)
		}
		p.onRetransmit(at)
		p.onSend(at, 1, true, false)
	}
	is("backed off", 200*ms)
	p.onProgress(180*ms, 1, false)
	is("after progress without a sample", 360*ms)
	p.onSend(180*ms, 2, false, false)
	p.onProgress(280*ms, 2, false)
	is("after a sample", 100*ms+4*50*ms)

	p = retransmitTimer{timeout: 300 * ms, retry: 6, pathRTT: 70 * ms}
	is("where others have measured 70 ms", 210*ms)
	p.pathRTT = ms
	is("where others have measured 1 ms", firstRTO)
	p = retransmitTimer{timeout: 300 * ms, retry: 6, kept: 100 * ms}
	p.onSend(0, 1, false, false)
	p.check(100 * ms)
	p.onRetransmit(100 * ms)
	p.onProgress(900*ms, 1, false)
	is("after long losses", 200*ms)
	p.kept = time.Hour
	is("at most", 525*ms)
}

// TestSpuriousReductionIsUndone: the window is as before when the first sample shows that
// the timer fired early, and not when it shows a loss.
func TestSpuriousReductionIsUndone(t *testing.T) {
	doubtful := []feedback{{timeouts: 1, doubtful: true}, {timeouts: 2, doubtful: true}, {lost: true, doubtful: true}}
	for name, c := range map[string]struct {
		last feedback
		same bool
	}{
		"spurious":            {feedback{rtt: 100 * ms, spurious: true}, true},
		"a loss":              {feedback{rtt: 100 * ms}, false},
		"another loss before": {feedback{lost: true}, false},
	} {
		w := newWindow(0, 1024)
		now := time.Duration(0)
		for _, n := range append(doubtful, c.last) {
			now += time.Second
			w.apply(now, n, true)
		}
		w.apply(now+time.Second, feedback{spurious: c.last.lost}, true)
		if same := w.size == initialWindow && w.ssthresh == maxWindow; same != c.same {
			t.Errorf("%s: the window is %d, up to %d", name, w.size, w.ssthresh)
		}
	}
}
