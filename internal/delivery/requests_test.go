package delivery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
)

// requestsBench calls the machine requests and prints its actions, as bench does for responses.
type requestsBench struct {
	t     *testing.T
	m     *requests
	now   time.Time
	batch simAct // the last doAck or doCancel
}

func newRequestsBench(t *testing.T) *requestsBench {
	return &requestsBench{t: t, m: newRequests(producer, transport.DefaultPeerTimeout, DefaultAckBytes), now: t0}
}

// ups is newRequestsBench with the peer reached.
func ups(t *testing.T) *requestsBench {
	b := newRequestsBench(t)
	b.m.conn = connReaching
	b.hello(5)
	return b
}

func (b *requestsBench) do(acts []requestAction) string {
	var out []string
	for _, a := range simActs(acts) {
		s := ""
		switch a.kind {
		case doHello:
			s = fmt.Sprint("hello in ", a.after)
		case doSend:
			s = fmt.Sprintf("send %d.%d", a.id, a.attempt)
			if a.plain {
				s += " plain"
			}
			if a.fallback {
				s += " by the fallback"
			}
			if len(a.ids) > 0 {
				s += fmt.Sprint(" with ", a.ids)
			}
		case doDrop:
			s = fmt.Sprintf("drop %d.%d", a.id, a.attempt)
		case doEnd:
			s = fmt.Sprintf("end %d: %v", a.id, status.CodeOf(a.err))
		case doAck:
			s, b.batch = fmt.Sprint("ack ", a.ids), a
		case doCancel:
			s, b.batch = fmt.Sprint("cancel ", a.ids), a
		case doWake:
			s = fmt.Sprint("wake in ", a.after)
		}
		out = append(out, s)
	}
	return strings.Join(out, ", ")
}

var (
	errLost    = status.New(status.Unavailable, "connection reset")
	errRestart = status.New(status.Aborted, "another process")
)

func (b *requestsBench) recv(id uint64) string { return b.do(b.m.recvID(b.now, id, 5)) }
func (b *requestsBench) hello(inc uint64) string {
	return b.do(b.m.hello(b.now, transport.Peer{Tryst: inc != 0, Incarnation: inc}, nil))
}
func (b *requestsBench) unreached(code status.Code) string {
	return b.do(b.m.hello(b.now, transport.Peer{}, status.New(code, "dial")))
}
func (b *requestsBench) answered(id uint64, size int64) string {
	return b.do(b.m.answeredID(b.now, id, size, nil))
}
func (b *requestsBench) lost(id uint64, attempt uint32) string {
	return b.do(b.m.lostID(b.now, id, attempt, false, errLost))
}
func (b *requestsBench) fallback(id uint64, attempt uint32) string {
	return b.do(b.m.fallbackID(b.now, id, attempt))
}
func (b *requestsBench) restarted(id uint64, attempt uint32) string {
	return b.do(b.m.restartedID(b.now, id, attempt, false, errRestart))
}
func (b *requestsBench) cancel(id uint64) string {
	return b.do(b.m.cancelID(b.now, id, status.New(status.Cancelled, "")))
}
func (b *requestsBench) flushed(err error) string {
	return b.do(b.m.flushed(b.now, b.batch.batch(), err))
}
func (b *requestsBench) pass(d time.Duration) string {
	b.now = b.now.Add(d)
	return b.do(b.m.tick(b.now))
}

func (b *requestsBench) want(what, got, want string) {
	b.t.Helper()
	if got != want {
		b.t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// TestRequestsChart checks each transition of the chart in requests.go.
func TestRequestsChart(t *testing.T) {
	for _, c := range []struct {
		name string
		run  func(b *requestsBench)
	}{
		{"none, reaching, up", func(b *requestsBench) {
			b.want("first", b.recv(1), "hello in 0s")
			b.want("second", b.recv(2), "")
			b.want("reached", b.hello(5), "send 1.1, send 2.1")
			b.want("third", b.recv(3), "send 3.1")
		}},
		{"reaching, not reached", func(b *requestsBench) {
			b.recv(1)
			b.want("1", b.unreached(status.Unavailable), "hello in 20ms")
			b.want("2", b.unreached(status.DeadlineExceeded), "hello in 40ms")
			b.now = b.now.Add(transport.DefaultPeerTimeout - 10*time.Millisecond)
			b.want("no later than the timeout", b.unreached(status.Unavailable), "hello in 10ms")
			b.now = b.now.Add(10 * time.Millisecond)
			b.want("timeout", b.unreached(status.Unavailable), "end 1: Unavailable")
			b.want("next", b.recv(2), "hello in 0s")
		}},
		{"reaching, the peer's own word", func(b *requestsBench) {
			b.recv(1)
			b.want("word", b.unreached(status.PermissionDenied), "end 1: PermissionDenied")
		}},
		{"lost, reached again", func(b *requestsBench) {
			b.recv(1)
			b.hello(5)
			b.recv(2)
			b.now = b.now.Add(time.Minute)
			b.want("lost", b.lost(1, 1), "hello in 0s")
			b.want("with it", b.lost(2, 1), "")
			b.want("reported twice", b.lost(2, 1), "")
			b.want("reached", b.hello(5), "send 1.2, send 2.2")
		}},
		{"lost with an earlier connection", func(b *requestsBench) {
			b.recv(1)
			b.hello(5)
			b.recv(2)
			b.lost(1, 1)
			b.hello(5)
			b.want("late", b.lost(2, 1), "send 2.2")
		}},
		{"lost, another process is there", func(b *requestsBench) {
			b.recv(1)
			b.hello(5)
			b.recv(2)
			b.lost(1, 1)
			b.want("a new receive meanwhile", b.recv(3), "")
			b.want("reached", b.hello(6), "end 1: Aborted, send 3.1")
			b.want("lost late", b.lost(2, 1), "end 2: Aborted")
		}},
		{"lost, but the key names the other process", func(b *requestsBench) {
			b.recv(1)
			b.hello(5)
			b.do(b.m.recvID(b.now, 2, 6))
			b.do(b.m.recvID(b.now, 3, 6))
			b.lost(1, 1)
			b.lost(2, 1)
			b.want("reached", b.hello(6), "end 1: Aborted, send 2.1")
			b.want("lost late", b.lost(3, 1), "send 3.1")
		}},
		{"lost, then a peer that is not Tryst", func(b *requestsBench) {
			b.recv(1)
			b.hello(5)
			b.lost(1, 1)
			b.want("perhaps it was a proxy", b.hello(0), "hello in 40ms")
			b.want("perhaps again", b.hello(0), "hello in 80ms")
			b.want("believed", b.hello(0), "end 1: Aborted")
			b.want("requests without an id", b.recv(2), "send 2.1 plain")
		}},
		{"the peer is another process", func(b *requestsBench) {
			b.recv(1)
			b.hello(5)
			b.now = b.now.Add(time.Minute)
			b.want("nobody took it", b.restarted(1, 1), "hello in 0s")
			b.want("reached", b.hello(6), "send 1.1")
		}},
		{"the peer is another process at a later attempt", func(b *requestsBench) {
			b.recv(1)
			b.hello(5)
			b.lost(1, 1)
			b.hello(5)
			b.now = b.now.Add(time.Minute)
			b.recv(2)
			b.want("lost", b.restarted(1, 2), "end 1: Aborted, hello in 0s")
		}},
		{"the peer is another process, which is known already", func(b *requestsBench) {
			b.recv(1)
			b.hello(5)
			b.recv(2)
			b.lost(1, 1)
			b.hello(6)
			b.want("sent at once", b.restarted(2, 1), "send 2.1")
		}},
		{"cancelled before it was asked", func(b *requestsBench) {
			b.recv(1)
			b.want("cancel", b.cancel(1), "end 1: Cancelled")
			b.want("cancel twice", b.cancel(1), "")
			b.want("nothing to send", b.hello(5), "")
		}},
		{"cancelled while under way", func(b *requestsBench) {
			b.recv(1)
			b.hello(5)
			b.want("cancel", b.cancel(1), "drop 1.1, end 1: Cancelled, cancel [1]")
			b.want("late answer", b.answered(1, 1), "")
			b.want("late loss", b.lost(1, 1), "")
			b.want("taken", b.flushed(nil), "")
		}},
		{"cancelled while it waits to be asked again", func(b *requestsBench) {
			b.recv(1)
			b.recv(2)
			b.hello(5)
			b.lost(1, 1)
			b.want("cancel", b.cancel(1), "end 1: Cancelled")
			b.want("sent when reached", b.hello(5), "cancel [1]")
		}},
		{"given up while an attempt is on an old connection", func(b *requestsBench) {
			b.recv(1)
			b.hello(5)
			b.recv(2)
			b.lost(1, 1)
			b.now = b.now.Add(transport.DefaultPeerTimeout)
			got := strings.Split(b.unreached(status.Unavailable), ", ")
			slices.Sort(got)
			b.want("timeout", strings.Join(got, ", "), "drop 2.1, end 1: Unavailable, end 2: Unavailable, hello in 400ms")
			b.recv(3)
			got = strings.Split(b.hello(5), ", ")
			if got[0] != "send 3.1" || len(b.batch.ids) != 2 || b.batch.kind != doCancel {
				b.t.Errorf("what may be matched over there is not cancelled when it is reached: %q", got)
			}
		}},
		{"given up, and looked for while it may keep what is cancelled", func(b *requestsBench) {
			b.recv(1)
			b.hello(5)
			b.lost(1, 1)
			b.now = b.now.Add(transport.DefaultPeerTimeout)
			b.want("timeout", b.unreached(status.Unavailable), "end 1: Unavailable, hello in 400ms")
			b.now = b.now.Add(expireAfter - transport.DefaultPeerTimeout - time.Second)
			b.want("still", b.unreached(status.Unavailable), "hello in 400ms")
			b.want("reached", b.hello(5), "cancel [1]")
			b.want("taken", b.flushed(nil), "")
		}},
		{"given up, and it keeps nothing any more", func(b *requestsBench) {
			b.recv(1)
			b.hello(5)
			b.lost(1, 1)
			b.now = b.now.Add(transport.DefaultPeerTimeout)
			b.unreached(status.Unavailable)
			b.now = b.now.Add(expireAfter)
			b.want("not any more", b.unreached(status.Unavailable), "")
			b.want("next", b.recv(2), "hello in 0s")
			b.want("the cancel is sent", b.hello(5), "send 2.1, cancel [1]")
		}},
		{"given up, asked meanwhile, and given up again", func(b *requestsBench) {
			b.recv(1)
			b.hello(5)
			b.lost(1, 1)
			b.now = b.now.Add(transport.DefaultPeerTimeout)
			b.unreached(status.Unavailable)
			b.want("asked", b.recv(2), "") // it is being called
			b.now = b.now.Add(time.Second)
			b.want("has its own time", b.unreached(status.Unavailable), "hello in 20ms")
			b.now = b.now.Add(transport.DefaultPeerTimeout)
			b.want("timeout", b.unreached(status.Unavailable), "end 2: Unavailable, hello in 400ms")
			b.want("another process", b.hello(6), "")
		}},
		{"cancel that was not taken by a peer that nobody asks any more", func(b *requestsBench) {
			b.recv(1)
			b.recv(2)
			b.hello(5)
			b.lost(2, 1)
			b.hello(5)
			b.cancel(1)
			b.want("the last receive ends", b.restarted(2, 2), "end 2: Aborted")
			b.want("not taken", b.flushed(errLost), "hello in 400ms")
			b.want("reached", b.hello(5), "cancel [1]")
		}},
		{"closing while the peer is lost", func(b *requestsBench) {
			b.recv(1)
			b.hello(5)
			b.lost(1, 1)
			b.cancel(1)
			b.want("close", b.do(b.m.close(b.now)), "")
			if b.m.quiet(b.now) {
				b.t.Error("quiet before the peer was called")
			}
			if !b.m.quiet(b.now.Add(closeCall)) {
				b.t.Error("it takes too long, and it is not quiet")
			}
			b.unreached(status.Unavailable)
			if !b.m.quiet(b.now) {
				b.t.Error("not quiet although it cannot be reached")
			}
			b.want("reached", b.hello(5), "cancel [1]")
			if b.m.quiet(b.now) {
				b.t.Error("quiet before it was taken")
			}
			b.flushed(nil)
			if !b.m.quiet(b.now) {
				b.t.Error("not quiet")
			}
		}},
		{"closing sends at once", func(b *requestsBench) {
			b.recv(1)
			b.hello(5)
			b.answered(1, 10)
			b.want("close", b.do(b.m.close(b.now)), "ack [1]")
			if b.m.quiet(b.now) {
				b.t.Error("quiet before it was taken")
			}
			b.flushed(nil)
			if !b.m.quiet(b.now) {
				b.t.Error("not quiet")
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(newRequestsBench(t)) })
	}
}

// TestRequestsFallback: a connection with another route returns receives, which are requested
// again by that route. The connection counts as up.
func TestRequestsFallback(t *testing.T) {
	b := ups(t)
	b.recv(1)
	b.recv(2)
	b.want("given back", b.fallback(1, 1), "send 1.2 by the fallback")
	b.want("late word", b.fallback(1, 1), "")
	b.want("cancelled meanwhile", b.do(b.m.fallbackID(b.now, 3, 1)), "")
	if b.m.conn != connUp {
		t.Errorf("the connection is %v", b.m.conn)
	}
	b.want("lost there", b.lost(1, 2), "hello in 0s")
	b.want("given back while looking", b.fallback(2, 1), "")
	b.want("both again", b.hello(5), "send 1.3 by the fallback, send 2.2 by the fallback")
	b.recv(4)
	b.lost(2, 2)
	b.want("another process", b.hello(6), "end 2: Aborted")
	b.want("sent to the earlier process", b.fallback(4, 1), "end 4: Aborted")

	b = ups(t)
	for id := uint64(1); id <= maxResent+2; id++ {
		b.recv(id)
	}
	for id := uint64(1); id <= maxResent+2; id++ {
		b.fallback(id, 1)
	}
	if b.m.resent != maxResent || len(b.m.again) != 2 {
		t.Errorf("%d are asked again, %d wait", b.m.resent, len(b.m.again))
	}
}

// TestRequestsMove: with a connection over a better route a receive is requested again, and chooses
// its route anew. The connection counts as up.
func TestRequestsMove(t *testing.T) {
	b := ups(t)
	b.recv(1)
	moved := b.m.transfers[1]
	b.want("moved", b.do(b.m.move(b.now, moved)), "send 1.2")
	if b.m.conn != connUp || moved.Fallback || moved.losses != (losses{}) {
		t.Errorf("the connection is %v, and the receive %+v", b.m.conn, moved)
	}
	b.recv(2)
	b.lost(2, 1)
	b.want("moved while looking", b.do(b.m.move(b.now, moved)), "")
	b.want("another process", b.hello(6), "end 2: Aborted, end 1: Aborted")
}

// TestUnreachedErrorHasTheReasonWithoutAdvice: what a broken queue pair advises (GID, MTU, firewall)
// is wrong for a peer that does not answer a call either.
func TestUnreachedErrorHasTheReasonWithoutAdvice(t *testing.T) {
	b := ups(t)
	b.recv(1)
	b.do(b.m.lostID(b.now, 1, 1, false, status.New(status.Unavailable, "QP 0x12 to 10.0.0.1: no acknowledgement arrived. Compare the GIDs")))
	b.now = b.now.Add(transport.DefaultPeerTimeout)
	acts := b.m.hello(b.now, transport.Peer{}, status.New(status.Unavailable, "connection refused"))
	const want = "Unavailable: " + producer + " was not reached for 10s: connection refused; before that its connection was lost: QP 0x12 to 10.0.0.1: no acknowledgement arrived"
	for _, a := range acts {
		if a.kind == doEnd {
			b.want("the error", a.err.Error(), want)
			return
		}
	}
	t.Errorf("the receive has not ended: %v", b.do(acts))
}

// TestRequestThatWasNotSentGoesToTheNextProcess: a transfer is lost with the process that it was
// sent to, but not when no attempt has left this process.
func TestRequestThatWasNotSentGoesToTheNextProcess(t *testing.T) {
	unsent := func(b *requestsBench, id uint64, attempt uint32) string {
		return b.do(b.m.unsentID(b.now, id, attempt, errLost))
	}
	b := ups(t)
	b.recv(1)
	b.want("not sent", unsent(b, 1, 1), "hello in 0s")
	b.want("the same process", b.hello(5), "send 1.2")
	b.want("not sent again", unsent(b, 1, 2), "hello in 0s")
	b.want("the next process", b.hello(6), "send 1.1")
	b.want("lost with it", b.lost(1, 1), "hello in 0s")
	b.want("a third process", b.hello(7), "end 1: Aborted")

	b = ups(t)
	b.recv(1)
	b.lost(1, 1)
	b.hello(5)
	b.want("not sent after it was lost", unsent(b, 1, 2), "hello in 0s")
	b.want("the next process", b.hello(6), "end 1: Aborted")

	b = ups(t)
	b.recv(1)
	unsent(b, 1, 1)
	b.hello(5)
	b.want("another process answers what was not sent before", b.restarted(1, 2), "hello in 0s")
	b.want("it is asked", b.hello(6), "send 1.1")
}

// TestAnsweredByAProcessThatIsGone: the process that a transfer was sent to has answered a part of
// the attempt, and another process answers the rest. The transfer ends, also if nothing was lost.
func TestAnsweredByAProcessThatIsGone(t *testing.T) {
	b := ups(t)
	b.recv(1)
	var ended error
	for _, a := range b.m.restartedID(b.now, 1, 1, true, errRestart) {
		if a.kind == doEnd {
			ended = a.err
		}
	}
	if status.CodeOf(ended) != status.Aborted || !errors.Is(ended, transport.ErrProcessGone) {
		t.Errorf("ends with %v, want Aborted with %q", ended, transport.ErrProcessGone)
	}
	b.recv(2)
	b.want("the next one goes to the other process", b.hello(6), "send 2.1")
}

func TestRequestsPlainPeerIsAskedOnce(t *testing.T) {
	b := newRequestsBench(t)
	b.recv(1)
	b.want("hello", b.hello(0), "send 1.1 plain")
	b.recv(2)
	b.recv(3)
	b.want("answered: nothing to send", b.answered(3, 1<<30), "")
	b.want("cancelled: nothing to send", b.cancel(2), "drop 2.1, end 2: Cancelled")
	b.want("lost", b.lost(1, 1), "end 1: Unavailable")
	b.want("next: who is it now?", b.recv(4), "hello in 0s")
	b.want("it is Tryst now", b.hello(5), "send 4.1")
}

// After a break 64 at once are asked again, in order.
func TestRequestsReaskedInOrder(t *testing.T) {
	b := ups(t)
	const n = 200
	for id := uint64(1); id <= n; id++ {
		b.recv(id)
	}
	for id := uint64(1); id <= n; id++ {
		b.lost(id, 1)
	}
	var asked []string
	collect := func(s string) int {
		n := 0
		for w := range strings.SplitSeq(s, ", ") {
			if strings.HasPrefix(w, "send ") {
				asked = append(asked, strings.Fields(w)[1])
				n++
			}
		}
		return n
	}
	if got := collect(b.hello(5)); got != maxResent {
		t.Fatalf("%d sent again at once, want %d", got, maxResent)
	}
	for id := uint64(1); id <= n; id++ {
		want := 0
		if id+maxResent <= n {
			want = 1
		}
		if got := collect(b.answered(id, 1)); got != want {
			t.Fatalf("after answer %d %d are asked, want %d", id, got, want)
		}
	}
	for i, a := range asked {
		if want := fmt.Sprintf("%d.2", i+1); a != want {
			t.Fatalf("place %d was asked %s, want %s", i, a, want)
		}
	}
	if b.m.resent != 0 {
		t.Errorf("%d count as asked again", b.m.resent)
	}
}

// Those 64 may wait for what comes only when others were answered.
func TestRequestsReaskedDoNotHoldUpTheRest(t *testing.T) {
	b := ups(t)
	const n = 1000
	for id := uint64(1); id <= n; id++ {
		b.recv(id)
	}
	for id := uint64(1); id <= n; id++ {
		b.lost(id, 1)
	}
	b.hello(5)
	for want := 2 * maxResent; want < n; want *= 2 {
		if b.pass(widenPause); b.m.resent != want {
			t.Fatalf("%d are asked, want %d", b.m.resent, want)
		}
	}
	b.pass(widenPause)
	if b.m.resent != n || len(b.m.again) != 0 || !b.m.widen.IsZero() {
		t.Fatalf("%d are asked, %d wait", b.m.resent, len(b.m.again))
	}

	// While responses arrive the window does not grow.
	b = ups(t)
	for id := uint64(1); id <= n; id++ {
		b.recv(id)
	}
	for id := uint64(1); id <= n; id++ {
		b.lost(id, 1)
	}
	b.hello(5)
	for id := uint64(1); id <= 20; id++ {
		b.answered(id, 1)
		if b.pass(widenPause); b.m.resent != maxResent {
			t.Fatalf("%d are asked, want %d", b.m.resent, maxResent)
		}
	}
}

// A peer that takes hellos but loses every request is not asked in a hot loop.
func TestRequestsNoHotLoop(t *testing.T) {
	b := newRequestsBench(t)
	b.recv(1)
	b.hello(5)
	pause := helloPause
	for attempt := uint32(1); attempt < 20; attempt++ {
		b.want(fmt.Sprint("attempt ", attempt), b.lost(1, attempt), fmt.Sprint("hello in ", pause))
		pause = min(2*pause, helloPauseMax)
		b.hello(5)
	}
	b.want("answered", b.answered(1, 1), "wake in 5ms")
	b.recv(2)
	b.want("it serves again", b.lost(2, 1), "hello in 0s")

	// The same for a peer that is another process each time.
	b = newRequestsBench(t)
	b.recv(1)
	b.hello(5)
	b.want("restarted", b.restarted(1, 1), "hello in 20ms")
	b.hello(5)
	b.want("restarted", b.restarted(1, 1), "hello in 40ms")

	// And for a peer that answers hellos and confirms no acks: they are sent again, no faster
	// than hellos, until it confirms them.
	b = ups(t)
	b.recv(1)
	b.answered(1, 1)
	b.pass(ackDelay)
	b.want("lost", b.flushed(errLost), "hello in 0s") // the connection has carried an answer
	pause = helloPause
	for range 50 {
		b.hello(5)
		b.pass(ackDelay)
		b.want("lost again", b.flushed(errLost), fmt.Sprint("hello in ", pause-ackDelay)) // the connection lived for ackDelay
		pause = min(2*pause, helloPauseMax)
	}
	b.hello(5)
	b.pass(ackDelay)
	b.flushed(nil)
	if !b.m.quiet(b.now) {
		t.Error("not quiet though the peer took all")
	}
}

// TestRequestsOldConnectionsBreakNothing: the end of a connection counts once, however many
// receives it ends. A batch that fails on an earlier connection does not count.
func TestRequestsOldConnectionsBreakNothing(t *testing.T) {
	b := ups(t)
	b.recv(1)
	b.recv(2)
	b.cancel(2)
	batch := b.batch
	b.lost(1, 1)
	b.hello(5)
	if got := b.do(b.m.flushed(b.now, batch.batch(), errLost)); got != "cancel [2]" || b.m.conn != connUp {
		t.Errorf("%q", got)
	}
}

// TestErrorsNameWhyTheConnectionWasLost: that the peer was not reached afterwards does not
// explain the loss.
func TestErrorsNameWhyTheConnectionWasLost(t *testing.T) {
	const words = "its connection was lost: connection reset"
	ends := func(acts []requestAction) (texts []string) {
		for _, a := range acts {
			if a.kind == doEnd {
				texts = append(texts, a.err.Error())
			}
		}
		return texts
	}
	for name, end := range map[string]func(b *requestsBench) []string{
		"not reached": func(b *requestsBench) []string {
			b.lost(1, 1)
			b.now = b.now.Add(transport.DefaultPeerTimeout)
			return ends(b.m.hello(b.now, transport.Peer{}, status.New(status.Unavailable, "dial")))
		},
		"restarted": func(b *requestsBench) []string {
			b.lost(1, 1)
			return ends(b.m.hello(b.now, transport.Peer{Tryst: true, Incarnation: 6}, nil))
		},
		"restarted, lost late": func(b *requestsBench) []string {
			b.recv(2)
			b.lost(2, 1)
			b.hello(6)
			return ends(b.m.lostID(b.now, 1, 1, false, errLost))
		},
	} {
		b := newRequestsBench(t)
		b.recv(1)
		b.hello(5)
		if got := end(b); len(got) != 1 || !strings.Contains(got[0], words) {
			t.Errorf("%s: %q, want one with %q", name, got, words)
		}
	}
	// What an earlier connection was lost for, before the peer was reached or given up, is
	// another story.
	for name, between := range map[string]func(b *requestsBench){
		"it was up again": func(b *requestsBench) {
			b.hello(5)
			b.answered(1, 1)
			b.m.lostID(b.now, 1, 1, false, errLost) // late, of a receive that has ended
			b.m.conn = connNone                     // as when the connection was closed idle
		},
		"it was given up": func(b *requestsBench) {
			b.now = b.now.Add(transport.DefaultPeerTimeout)
			b.unreached(status.Unavailable)
		},
	} {
		b := newRequestsBench(t)
		b.recv(1)
		b.hello(5)
		b.lost(1, 1)
		between(b)
		b.recv(2)
		b.now = b.now.Add(transport.DefaultPeerTimeout)
		if got := ends(b.m.hello(b.now, transport.Peer{}, status.New(status.Unavailable, "dial"))); len(got) != 1 || strings.Contains(got[0], words) {
			t.Errorf("%s: %q, want one without %q", name, got, words)
		}
	}
}

// A receive that is lost with the same code three times in a row ends with it, and its value
// goes back. A connection that breaks, another code, or a part of the value in between is no
// such row.
func TestRequestsEndsWhatIsLostAlike(t *testing.T) {
	reset, calm := status.New(status.Internal, "reset"), status.New(status.ResourceExhausted, "calm")
	for _, c := range []struct {
		name string
		errs []error
		want string
	}{
		{"alike", []error{reset, reset, reset}, "end 1: Internal"},
		{"two of one, three of another", []error{reset, reset, calm, calm, calm}, "end 1: ResourceExhausted"},
		{"the connection breaks", []error{errLost, errLost, errLost, errLost, errLost}, "hello in 0s"},
		{"ended by gRPC with its connection", []error{context.Canceled, context.Canceled, context.Canceled}, "hello in 0s"},
		{"a break in between", []error{reset, reset, errLost, reset, reset}, "hello in 0s"},
		{"progress in between", []error{reset, reset, nil, reset}, "hello in 0s"},
	} {
		b := ups(t)
		b.recv(1)
		var got string
		attempt := uint32(0)
		for i, err := range c.errs {
			b.now = b.now.Add(time.Minute)
			if err == nil {
				continue
			}
			attempt++
			got = b.do(b.m.lostID(b.now, 1, attempt, i > 0 && c.errs[i-1] == nil, err))
			b.m.conn = connReaching
			if acts := b.hello(5); strings.HasPrefix(got, "end") && acts != "cancel [1]" {
				t.Errorf("%s: got %q, want a cancel", c.name, acts)
			}
		}
		if got, _, _ = strings.Cut(got, ","); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// The peer's own word ends a hello at once, a word from in between when it comes three times.
func TestRequestsHelloIsLost(t *testing.T) {
	for _, known := range []bool{false, true} {
		b := newRequestsBench(t)
		b.recv(1)
		if known {
			b.hello(5)
			b.now = b.now.Add(time.Minute)
			b.lost(1, 1)
		}
		lost := func() string {
			return b.do(b.m.hello(b.now, transport.Peer{}, &transport.LostError{Err: status.New(status.Unauthenticated, "expired")}))
		}
		b.want("once", lost(), "hello in 20ms")
		b.want("twice", lost(), "hello in 40ms")
		b.want("three times", lost(), "end 1: Unauthenticated")
		b.recv(2)
		b.want("anew", lost(), "hello in 20ms")
		b.want("its own word", b.unreached(status.PermissionDenied), "end 2: PermissionDenied")
	}
}

// A batch that is lost three times in a row with the same error is dropped.
func TestBatchLostThreeTimesAlikeIsDropped(t *testing.T) {
	b := ups(t)
	b.recv(1)
	b.want("cancelled", b.cancel(1), "drop 1.1, end 1: Cancelled, cancel [1]")
	for _, want := range []string{"cancel [1]", "cancel [1]", ""} {
		b.now = b.now.Add(time.Minute)
		b.flushed(&transport.LostError{Err: status.New(status.Internal, "reset")})
		b.want("sent", b.hello(5), want)
	}
}

// A peer that has announced a value, and then refuses a part of it, keeps it: an acknowledgement would say that it has come.
func TestRefusedPartIsNoArrival(t *testing.T) {
	b := newRequestsBench(t)
	b.recv(1)
	b.hello(5)
	b.m.transfers[1].Partial.State = "announced"
	got := b.do(b.m.answeredID(b.now, 1, 0, status.New(status.ResourceExhausted, "no memory for the request")))
	b.want("refused", got, "cancel [1]")
}

// What this side cannot take is cancelled, not finished.
func TestRequestsGivesBackWhatItCannotTake(t *testing.T) {
	b := ups(t)
	b.recv(1)
	got := b.do(b.m.answeredID(b.now, 1, 0, &transport.ReceiverError{Err: status.New(status.ResourceExhausted, "no memory")}))
	b.want("no memory", got, "cancel [1]")
}

// TestConnectionsThatBreakAtEachResponse: the peer answers each hello, and each connection breaks before it
// has carried anything. It is not reached, in spite of its answers.
func TestConnectionsThatBreakAtEachResponse(t *testing.T) {
	for _, c := range []struct {
		name    string
		lives   time.Duration // each connection
		between func(b *requestsBench)
		ends    bool
	}{
		{"at once", 100 * time.Millisecond, func(*requestsBench) {}, true},
		{"when a packet was given up", 2 * time.Second, func(*requestsBench) {}, true},
		{"later", briefConn, func(*requestsBench) {}, false},
		{"after a response", 100 * time.Millisecond, func(b *requestsBench) { b.recv(2); b.answered(2, 1) }, false},
		{"after a part of a response", 100 * time.Millisecond, func(b *requestsBench) { b.do(b.m.lostID(b.now, 1, b.m.transfers[1].Attempt, true, errLost)) }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := ups(t)
			b.recv(1)
			b.now = b.now.Add(time.Hour) // the first connection waits for the value
			ended := time.Duration(0)
			for begin := b.now; ended == 0 && b.now.Sub(begin) < 2*time.Minute; {
				if x := b.m.transfers[1]; x.sent {
					b.do(b.m.lostID(b.now, 1, x.Attempt, false, errLost))
				}
				b.now = b.now.Add(time.Second) // the pause before a hello
				if text := b.hello(5); strings.Contains(text, "end 1: Unavailable") {
					ended = b.now.Sub(begin)
					break
				}
				b.now = b.now.Add(c.lives)
				c.between(b)
			}
			if (ended > 0) != c.ends || c.ends && (ended < briefTimeouts*transport.DefaultPeerTimeout || ended > briefTimeouts*transport.DefaultPeerTimeout+briefConn+time.Second) {
				t.Errorf("the receive ended after %v", ended)
			}
		})
	}
}

// TestCancelsReachAPeerOfBriefConnections: it has answered when the receives end, and keeps what it has matched
// until it gets their cancels, however long before the last connection was lost.
func TestCancelsReachAPeerOfBriefConnections(t *testing.T) {
	b := ups(t)
	b.recv(1)
	for range 2 * maxSameLosses {
		b.do(b.m.lostID(b.now, 1, b.m.transfers[1].Attempt, false, errLost))
		b.now = b.now.Add(time.Second)
		b.hello(5)
	}
	b.do(b.m.lostID(b.now, 1, b.m.transfers[1].Attempt, false, errLost))
	b.now = b.now.Add(briefTimeouts*transport.DefaultPeerTimeout + expireAfter)
	b.want("the receive ends, and the peer is sought", b.hello(5), "end 1: Unavailable, hello in 400ms")
	b.want("which is told", b.hello(5), "cancel [1]")
}

// TestARefusalEndsWhatBeganBeforeTheHello: what has begun since asks again, once for all of it.
func TestARefusalEndsWhatBeganBeforeTheHello(t *testing.T) {
	b := newRequestsBench(t)
	b.want("the first receive", b.recv(1), "hello in 0s")
	b.now = b.now.Add(time.Millisecond)
	b.want("the second one", b.recv(2), "")
	b.want("the third one", b.recv(3), "")
	b.want("its context ends", b.cancel(3), "end 3: Cancelled")
	b.want("a refusal", b.unreached(status.Aborted), "end 1: Aborted, hello in 0s")
	b.want("another refusal", b.unreached(status.Aborted), "end 2: Aborted")
	b.want("the next receive", b.recv(4), "hello in 0s")
	b.now = b.now.Add(time.Millisecond)
	b.want("one more", b.recv(5), "")
	b.want("a refusal", b.unreached(status.Aborted), "end 4: Aborted, hello in 0s")
	b.want("the peer has this task now", b.hello(5), "send 5.1")
}
