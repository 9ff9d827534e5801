package tcp

import (
	"errors"
	"net"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/tcp/internal/frame"
)

// TestWhoPollsReadsTheSocket: a poll reads the frame of the peer, and one without a frame waits for
// nothing.
func TestWhoPollsReadsTheSocket(t *testing.T) {
	s := newSide(t, Options{}, 64)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	s.check(err)
	defer l.Close()
	peer, err := net.Dial("tcp", l.Addr().String())
	s.check(err)
	defer peer.Close()
	in, err := l.Accept()
	s.check(err)
	defer in.Close()
	r := &newConn(s.qp).reader // no goroutine reads
	r.init(in)
	if r.raw == nil {
		t.Skip("polls read the socket on Linux only")
	}
	r.reads = true
	if r.poll(); !errors.Is(r.err, errWait) {
		t.Fatalf("a poll without a frame: %v", r.err)
	}
	_, err = peer.Write((&frame.Header{Kind: frame.Ack}).Append(nil))
	s.check(err)
	for end := time.Now().Add(10 * time.Second); errors.Is(r.err, errWait) && time.Now().Before(end); {
		r.poll()
	}
	if !errors.Is(r.err, errGone) { // the queue pair has another connection: it has got the frame
		t.Errorf("a poll with a frame: %v", r.err)
	}
	if r.drive.Lock(); r.box != nil {
		r.r = r.w
		r.give()
	}
	r.drive.Unlock()
}

// TestAcknowledgementNeedsNoOtherPoll: a program polls until it has its message, and never again. The
// sender's request completes all the same.
func TestAcknowledgementNeedsNoOtherPoll(t *testing.T) {
	a, b := pair(t, 64)
	driven := b.qp.recvCQ
	for i := range verbs.WRID(50) {
		b.recv(i, 0, 8)
		a.post(a.send(i, 0, 8))
		var wcs [1]verbs.WC
		for n := 0; n == 0; {
			var err error
			n, err = driven.Poll(wcs[:])
			b.check(err)
		}
		a.expect(i, verbs.StatusOK)
	}
}
