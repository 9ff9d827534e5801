package roce

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
)

func (x *testEnd) onEvent(f func()) {
	x.t.Helper()
	c, ok := x.cq.(verbs.CallbackCQ)
	if !ok {
		x.t.Fatal("the queue cannot call")
	}
	c.OnEvent(f)
}

// replyOnEvent makes y reply to each message in its event handler. It sends the number
// of calls after the last reply.
func replyOnEvent(y, to *testEnd, calls chan<- int) {
	n := 0
	y.onEvent(func() {
		n++
		for {
			var wcs [8]verbs.WC
			got, err := y.cq.Poll(wcs[:])
			if err != nil {
				y.t.Error(err)
			}
			for _, wc := range wcs[:got] {
				if wc.Op != verbs.WCRecv {
					continue
				}
				if _, err := y.qp.PostSend([]verbs.SendWR{y.to(to, wc.ID, verbs.OpSend, 0, 8, 0)}); err != nil {
					y.t.Error(err)
				}
			}
			if got > 0 {
				continue
			}
			break
		}
		if err := y.cq.Arm(false); err != nil {
			y.t.Error(err)
		}
		calls <- n
	})
}

// TestEventOfAPacketIsACall: with a handler, an event caused by a packet is a call, in
// which messages are polled and answered and the queue is armed. Wait does not return
// it.
func TestEventOfAPacketIsACall(t *testing.T) {
	s := nativeStreams(t, 1, 8, New(Options{}), New(Options{}))[0]
	x, y := s.x, s.y
	calls := make(chan int, 100)
	replyOnEvent(y, x, calls)
	if err := y.cq.Arm(false); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		y.recv(verbs.WRID(10+i), 0, 8)
		x.recv(verbs.WRID(20+i), 0, 8)
		x.post(x.to(y, verbs.WRID(30+i), verbs.OpSend, 0, 8, 0))
		for range 2 { // the reply and the completion of the request, in any order
			if wc := x.wait(); wc.Status != verbs.StatusOK || wc.ID != verbs.WRID(20+i) && wc.ID != verbs.WRID(30+i) {
				t.Fatalf("%+v", wc)
			}
		}
	}
	if n := <-calls; n != 1 {
		t.Errorf("the first call is number %d", n)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := y.cq.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Wait ends with %v, for events that were calls", err)
	}
}

// TestOtherEventsWake: an event caused by a post or a change of state ends Wait, since
// the caller of these may hold locks that the handler takes.
func TestOtherEventsWake(t *testing.T) {
	s := nativeStreams(t, 1, 8, New(Options{}), New(Options{}))[0]
	y := s.y
	y.onEvent(func() { t.Error("called") })
	y.recv(1, 0, 8)
	if err := y.cq.Arm(false); err != nil {
		t.Fatal(err)
	}
	if err := y.qp.ToErr(); err != nil {
		t.Fatal(err)
	}
	if err := y.cq.Wait(t.Context()); err != nil {
		t.Error(err)
	}
	y.ends(1, verbs.StatusFlushed)
}

// gate blocks the endpoint in the next event, while messages arrive: inside is closed
// when it is blocked, and closing gate continues it.
func (x *testEnd) gate() (inside <-chan struct{}, gate chan<- struct{}) {
	x.t.Helper()
	in, out := make(chan struct{}), make(chan struct{})
	first := true
	x.onEvent(func() {
		if first {
			first = false
			close(in)
			<-out
		}
	})
	if err := x.cq.Arm(false); err != nil {
		x.t.Fatal(err)
	}
	return in, out
}

// TestWaitingMessagesAreAcknowledgedTogether: packets that have arrived are processed
// before the first of them is acknowledged, and what the handlers post travels with the
// ACK.
func TestWaitingMessagesAreAcknowledgedTogether(t *testing.T) {
	s := nativeStreams(t, 1, 8, New(Options{}), New(Options{}))[0]
	x, y := s.x, s.y
	inside, gate := y.gate()
	const more = 20
	for i := range 1 + more {
		y.recv(verbs.WRID(i), 0, 8)
	}
	x.post(x.to(y, 100, verbs.OpWrite, 0, 8, 0), x.to(y, 100, verbs.OpSend, 0, 8, 0))
	<-inside
	before := sentBy(t, y)
	for range more {
		x.post(x.to(y, 100, verbs.OpSend, 0, 8, 0))
	}
	close(gate)
	for range 2 + more {
		if wc := x.wait(); wc.Status != verbs.StatusOK {
			t.Fatalf("%+v", wc)
		}
	}
	// One packet for those before the gate, and one or a few more if the wake-up was
	// quicker than the posts.
	if n := sentBy(t, y) - before; n > more/2 {
		t.Errorf("%d packets acknowledge %d messages that waited", n, more)
	}
}

// sentBy returns the number of packets that a device has sent.
func sentBy(t *testing.T, x *testEnd) uint64 {
	t.Helper()
	d, ok := x.dev.(verbs.CounterReader)
	if !ok {
		t.Fatal("the device does not count")
	}
	return must(d.Counters(onlyPort))(t)["sent_pkts"]
}

// TestKernelIsAcknowledgedAtOnce: a kernel or NIC gets an ACK for each datagram that
// requests one, even if more datagrams wait.
func TestKernelIsAcknowledgedAtOnce(t *testing.T) {
	for name, roce := range map[string]bool{"a kernel": false, "a device of this kind": true} {
		t.Run(name, func(t *testing.T) {
			s := nativeStreams(t, 1, 8, New(Options{}), New(Options{}))[0]
			x, y := s.x, s.y
			q, st := y.inner()
			inside, gate := y.gate()
			q.mu.Lock()
			q.origin.userSpace = roce
			q.mu.Unlock()
			const more = 20
			for i := range 1 + more {
				y.recv(verbs.WRID(i), 0, 8)
			}
			x.post(x.to(y, 100, verbs.OpSend, 0, 8, 0))
			<-inside
			before := sentBy(t, y)
			for range more {
				x.post(x.to(y, 100, verbs.OpSend, 0, 8, 0))
			}
			receiver, ok := st.receiver.(*socket)
			if !ok {
				t.Fatal("another kind of receiver")
			}
			datagrams := receiver.Stats().Datagrams
			close(gate)
			for range 1 + more {
				if wc := x.wait(); wc.Status != verbs.StatusOK {
					t.Fatalf("%+v", wc)
				}
			}
			took := receiver.Stats().Datagrams - datagrams
			if n := sentBy(t, y) - before; (n >= took) == roce {
				t.Errorf("%d acknowledgements of %d datagrams", n, took)
			}
		})
	}
}

// TestAcknowledgedBeforeTheWindowIsFull: with a small receive buffer, which leaves
// peers a small window, ACKs are sent earlier.
func TestAcknowledgedBeforeTheWindowIsFull(t *testing.T) {
	for _, c := range []struct{ buffer, want int }{
		{4 << 20, maxWindow / 4},
		{260 << 10, 65 << 10},
		{100 << 10, 25 << 10},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFabric()
			f.buffer = c.buffer
			x, _ := f.pair(t, 4096)
			if _, s := x.inner(); s.flushLimit != c.want {
				t.Errorf("with a buffer of %d bytes it flushes after %d, want %d", c.buffer, s.flushLimit, c.want)
			}
		})
	}
}
