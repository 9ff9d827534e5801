package delivery

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
)

// memPeer is a producer in memory, with a Conn to it that fails where a test wants it.
type memPeer struct {
	kept  *ResponseCache
	table *table

	mu          sync.Mutex // guards what follows
	incarnation uint64
	plain       bool
	transport   string        // of the arrivals
	down        bool          // hellos are refused
	deaf        bool          // hellos get no answer
	refuses     chan error    // hellos get an answer from here; nil: their own one
	delay       time.Duration // of a request and of an answer, each
	broken      chan struct{} // closed when the connection breaks
	faults      *rand.Rand    // breaks connections at random; nil for none
	fault       func(a *transport.Receive) fault
	attempts    int
	finishes    int
}

type fault uint8

const (
	faultNone     fault = iota
	faultBefore         // the connection breaks before the request was taken
	faultAfter          // it breaks when the answer is on its way
	faultRejected       // every connection breaks under this request
	faultRefused        // the peer refuses the request before it looks for the value
)

// memOptions is what a pair is made of; zero fields are usual.
type memOptions struct {
	kept        CacheOptions
	peerTimeout time.Duration
	ackBytes    int64
	self        transport.Process
	log         *slog.Logger
}

// pair is a consumer and a producer.
type pair struct {
	*Requester
	*memPeer
	*leaks
	t testing.TB
}

// newPair makes a pair that the end of the test closes. In a synctest bubble
// close it before the bubble ends.
func newPair(t testing.TB, o memOptions) *pair {
	p := &pair{t: t, leaks: newLeaks(t), memPeer: &memPeer{incarnation: 5, table: newTable(t), broken: make(chan struct{})}}
	p.kept = NewResponseCache(p.table, o.kept)
	if o.self == (transport.Process{}) {
		o.self = transport.Process{Name: consumer, Incarnation: 7}
	}
	p.Requester = NewRequester(RequesterOptions{
		Self: o.self, PeerTimeout: o.peerTimeout, AckBytes: o.ackBytes, Logger: o.log,
		Conn: func(cluster.Task) (transport.Conn, error) { return p.memPeer, nil },
	})
	return p
}

func (p *pair) close() {
	p.t.Helper()
	if err := p.Close(context.Background()); err != nil {
		p.t.Error(err)
	}
	p.kept.Close()
}

type outcome struct {
	v   rendezvous.Value
	err error
}

// begin begins a receive, which the end of ctx cancels.
func (p *pair) begin(ctx context.Context, k rendezvous.Key) <-chan outcome {
	c := make(chan outcome, 2) // room for one too many, which a test would see
	r := p.RecvFromRemoteAsync(1, k, rendezvous.Args{}, func(v rendezvous.Value, _ rendezvous.Args, err error) {
		c <- outcome{v, err}
	})
	context.AfterFunc(ctx, func() { r.Cancel(status.From(context.Cause(ctx))) })
	return c
}

// wantValue waits for a value and releases it.
func (p *pair) wantValue(c <-chan outcome, want byte) {
	p.t.Helper()
	o := <-c
	if o.err != nil {
		p.t.Errorf("got %v, want value %c", o.err, want)
		return
	}
	if got := o.v.Tensor.Bytes()[0]; got != want {
		p.t.Errorf("got value %c, want %c", got, want)
	}
	o.v.Tensor.Release()
}

func (p *pair) wantError(c <-chan outcome, want status.Code) {
	p.t.Helper()
	o := <-c
	if o.err == nil {
		o.v.Tensor.Release()
	}
	if status.CodeOf(o.err) != want {
		p.t.Errorf("got %v, want %v", o.err, want)
	}
}

func (p *pair) send(k rendezvous.Key, b byte) { p.table.send(p.t, 1, k, p.value(p.t, b, 10)) }

// breakConn ends the connection and all that is on it.
func (m *memPeer) breakConn() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.breakLocked()
}

func (m *memPeer) breakLocked() {
	close(m.broken)
	m.broken = make(chan struct{})
}

func (m *memPeer) set(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
}

func (m *memPeer) Hello(ctx context.Context) (transport.Peer, error) {
	m.mu.Lock()
	refuses, down, deaf, who := m.refuses, m.down, m.deaf, transport.Peer{Tryst: !m.plain, Incarnation: m.incarnation}
	m.mu.Unlock()
	if refuses != nil {
		if err := <-refuses; err != nil {
			return transport.Peer{}, err
		}
	}
	switch {
	case deaf:
		<-ctx.Done()
		return transport.Peer{}, ctx.Err()
	case down:
		return transport.Peer{}, status.New(status.Unavailable, "connection refused")
	case !who.Tryst:
		return transport.Peer{}, nil
	}
	return who, nil
}

var errReset = &transport.LostError{Err: status.New(status.Unavailable, "connection reset")}

// travel waits as long as a message is under way.
func (m *memPeer) travel(ctx context.Context, d time.Duration, broken <-chan struct{}) error {
	if d == 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-broken:
		return errReset
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Begin implements Conn.
func (m *memPeer) Begin(t *transport.Receive) transport.Attempt {
	a := &memAttempt{memPeer: m, t: t}
	a.ctx, a.drop = context.WithCancel(context.Background())
	return a
}

// memAttempt is an attempt that its Wait makes.
type memAttempt struct {
	*memPeer
	t    *transport.Receive
	ctx  context.Context
	drop context.CancelFunc
}

func (*memAttempt) Notify(func()) bool { return false }

func (a *memAttempt) Drop() { a.drop() }

func (a *memAttempt) Wait(ctx context.Context) (rendezvous.Value, error) {
	defer a.drop()
	defer context.AfterFunc(ctx, a.drop)()
	v, err := a.recv(a.ctx, a.t)
	if err != nil && a.ctx.Err() != nil {
		err = &transport.ReceiverError{Err: err}
	}
	return v, err
}

func (m *memPeer) recv(ctx context.Context, a *transport.Receive) (rendezvous.Value, error) {
	m.mu.Lock()
	m.attempts++
	down := m.down
	f := faultNone
	switch {
	case m.fault != nil:
		f = m.fault(a)
	case m.faults != nil && m.faults.IntN(20) == 0:
		f = fault(1 + m.faults.IntN(2)) //nolint:gosec // 1 or 2
	}
	broken, delay, is := m.broken, m.delay, m.incarnation
	m.mu.Unlock()
	if down || f == faultRejected {
		return rendezvous.Value{}, errReset
	}
	if f == faultRefused {
		return rendezvous.Value{}, status.New(status.ResourceExhausted, "too many calls")
	}
	if f == faultBefore {
		m.breakConn()
		return rendezvous.Value{}, errReset
	}
	if err := m.travel(ctx, delay, broken); err != nil {
		return rendezvous.Value{}, err
	}
	if !a.Plain && a.Peer != is {
		return rendezvous.Value{}, &transport.RestartedError{Err: transport.OtherProcess(a.Peer, is)}
	}
	request := a.Request
	if a.Plain {
		request.Requester, request.Attempt = transport.Process{}, 0
	} else {
		m.kept.Ack(request.Requester, a.Acks)
	}
	answers := make(chan transport.Response, 1)
	var once sync.Mutex // guards taken
	taken := false
	take := func() bool {
		once.Lock()
		defer once.Unlock()
		first := !taken
		taken = true
		return first
	}
	to := replier(func(ans transport.Response) {
		if take() {
			answers <- ans
		} else if ans.Err == nil {
			ans.Value.Tensor.Release()
		}
	})
	m.kept.Request(to, request)
	leave := func(err error) (rendezvous.Value, error) {
		if take() {
			m.kept.Detach(to, request.Requester, request.ID, request.Attempt)
		} else if ans := <-answers; ans.Err == nil {
			ans.Value.Tensor.Release() // lost on its way
		}
		return rendezvous.Value{}, err
	}
	select {
	case <-ctx.Done():
		return leave(ctx.Err())
	case <-broken:
		return leave(errReset)
	case ans := <-answers:
		if f == faultAfter {
			m.breakConn()
		}
		err := m.travel(ctx, delay, broken)
		if f == faultAfter {
			err = errReset
		}
		if err != nil {
			if ans.Err == nil {
				ans.Value.Tensor.Release()
			}
			return rendezvous.Value{}, err
		}
		if m.mu.Lock(); m.transport != "" {
			a.Arrival.Transport, a.Arrival.Device = m.transport, "mem0"
		}
		m.mu.Unlock()
		return ans.Value, ans.Err
	}
}

func (m *memPeer) flush(ctx context.Context, take func(transport.Process, []uint64), ids []uint64) error {
	m.mu.Lock()
	m.finishes++
	broken, delay, down := m.broken, m.delay, m.down
	before := m.faults != nil && m.faults.IntN(20) == 0
	after := m.faults != nil && m.faults.IntN(20) == 0
	m.mu.Unlock()
	if down || before {
		return errReset
	}
	if err := m.travel(ctx, delay, broken); err != nil {
		return err
	}
	take(requester7, ids)
	if after {
		return errReset
	}
	return m.travel(ctx, delay, broken)
}

func (m *memPeer) Ack(ctx context.Context, ids []uint64) error {
	return m.flush(ctx, m.kept.Ack, ids)
}

func (m *memPeer) Cancel(ctx context.Context, ids []uint64) error {
	return m.flush(ctx, func(a transport.Process, ids []uint64) { _ = m.kept.Cancel(a, ids) }, ids)
}
