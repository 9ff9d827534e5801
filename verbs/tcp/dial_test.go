package tcp

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
)

// TestDialIsTriedAgain: a peer that cannot be reached for a moment is called once more.
func TestDialIsTriedAgain(t *testing.T) {
	var calls atomic.Int32
	a := newSide(t, Options{Dial: func(ctx context.Context, address string) (net.Conn, error) {
		if calls.Add(1) == 1 {
			return nil, errors.New("no route")
		}
		return new(net.Dialer).DialContext(ctx, "tcp", address)
	}}, 4096)
	b := newSide(t, Options{ListenOn: "127.0.0.1:0"}, 4096)
	connect(a, b)
	a.post(a.write(b, 1, 0, 64))
	a.expect(1, verbs.StatusOK)
	if n := calls.Load(); n != 2 {
		t.Errorf("%d calls", n)
	}
}

// TestUnreachablePeerIsInWords: after both attempts the requests fail, and the reason has the
// address and the error.
func TestUnreachablePeerIsInWords(t *testing.T) {
	noRoute := errors.New("no route")
	a := newSide(t, Options{Dial: func(context.Context, string) (net.Conn, error) { return nil, noRoute }}, 4096)
	b := newSide(t, Options{ListenOn: "127.0.0.1:0"}, 4096)
	connect(a, b)
	a.post(a.write(b, 1, 0, 64))
	a.expect(1, verbs.StatusRetryExceeded)
	if err := a.qp.ConnectionError(); !errors.Is(err, noRoute) {
		t.Errorf("the reason is %v", err)
	}
}

// TestCloseEndsConnecting: neither a call nor a greeting that waits holds Close up.
func TestCloseEndsConnecting(t *testing.T) {
	calling := make(chan struct{})
	dev, err := New(Options{Dial: func(ctx context.Context, _ string) (net.Conn, error) {
		close(calling)
		<-ctx.Done()
		return nil, ctx.Err()
	}}).Open(deviceName)
	if err != nil {
		t.Fatal(err)
	}
	h := offerHandmade(t, 4096)
	b := h.victim
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	pd, err := dev.AllocPD()
	check(err)
	cq, err := dev.CreateCQ(verbs.CQConfig{Size: 4})
	check(err)
	qp, err := pd.CreateQP(verbs.QPConfig{SendCQ: cq, RecvCQ: cq, MaxSend: 1, MaxRecv: 1})
	check(err)
	check(b.path.Init(qp))
	e := b.endpoint()
	check(b.path.Connect(qp, 1, e))
	<-calling
	start := time.Now()
	check(qp.Close())
	check(cq.Close())
	check(pd.Close())
	check(dev.Close())
	// A connection without a greeting: the victim's device closes it at the end of the test,
	// well before GreetingTime.
	c := h.dial()
	for unproven(b.dev) == 0 {
		if time.Since(start) > 10*time.Second {
			t.Fatal("the connection was not accepted")
		}
	}
	b.dev.refuseAll()
	closed(t, c)
	if took := time.Since(start); took >= greetingTime {
		t.Errorf("it took %v", took)
	}
}
