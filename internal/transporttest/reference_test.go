package transporttest

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/delivery"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/transport"
)

// The reference is the smallest transport that conforms to the contract: a Requester and a
// ResponseCache. Its connections are calls between goroutines, whose bytes pass a valve.

// reference is a Cluster.
type reference struct {
	t      testing.TB
	fault  fault // what is wrong with it; none for the reference itself
	valves map[cluster.Task]*valve

	mu    sync.Mutex // guards nodes
	nodes map[cluster.Task]*refNode
}

func newReference(t testing.TB, tasks []cluster.Task, f fault) *reference {
	c := &reference{t: t, fault: f, valves: make(map[cluster.Task]*valve), nodes: make(map[cluster.Task]*refNode)}
	for _, task := range tasks {
		c.valves[task] = newValve()
	}
	return c
}

func (c *reference) Faults(task cluster.Task) Faults { return c.valves[task] }

func (c *reference) node(task cluster.Task) *refNode {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nodes[task]
}

// verify returns the incarnation of the process at the address of a name.
func (c *reference) verify(_ context.Context, name string) (uint64, error) {
	task, err := cluster.ParseTask(name)
	if err != nil {
		return 0, err
	}
	if n := c.node(task); n != nil {
		return n.self.Incarnation, nil
	}
	return 0, errRefused
}

// refNode is a Node.
type refNode struct {
	c         *reference
	self      transport.Process
	task      cluster.Task
	session   *rendezvous.Session
	alloc     tensor.Allocator
	requester *delivery.Requester
	manager   *rendezvous.Manager
	kept      *delivery.ResponseCache

	mu    sync.Mutex // guards conns
	conns []*refConn
}

func (c *reference) Start(task cluster.Task, o NodeOptions) Node {
	device := cluster.Device{Task: task, Type: "CPU"}
	n := &refNode{
		c: c, task: task, alloc: o.Allocator,
		self:    transport.Process{Name: task.String(), Incarnation: o.Incarnation},
		session: &rendezvous.Session{Task: task, Devices: map[cluster.Device]uint64{device: o.Incarnation}},
	}
	n.requester = delivery.NewRequester(delivery.RequesterOptions{
		Self: n.self, Conn: n.conn, PeerTimeout: c.fault.peerTimeout(o.PeerTimeout),
	})
	n.manager = rendezvous.NewManager(rendezvous.ManagerOptions{Session: n.session, Remoter: c.fault.remoter(n.requester)})
	o.Cache.Addressed, o.Cache.Verify = func(string) bool { return true }, c.verify
	n.kept = delivery.NewResponseCache(n.manager, o.Cache)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nodes[task] = n
	return n
}

func (n *refNode) Manager() *rendezvous.Manager   { return n.manager }
func (n *refNode) Cache() *delivery.ResponseCache { return n.kept }

func (n *refNode) Stop(ctx context.Context) error {
	if n.c.fault == stopsWithoutAcks {
		n.Kill()
		return nil
	}
	err := n.requester.Close(ctx)
	n.kept.Close() // those who wait hear it
	n.manager.Close()
	n.leave()
	return err
}

func (n *refNode) Kill() {
	n.leave()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = n.requester.Close(ctx) // it cannot say anything any more
	n.kept.Close()
	n.manager.Close()
}

// leave removes the process from the network.
func (n *refNode) leave() {
	n.c.mu.Lock()
	if n.c.nodes[n.task] == n {
		delete(n.c.nodes, n.task)
	}
	n.c.mu.Unlock()
	n.c.valves[n.task].CutAfter(0)
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, w := range n.conns {
		w.close()
	}
}

func (n *refNode) conn(task cluster.Task) (transport.Conn, error) {
	v := n.c.valves[task]
	if v == nil {
		return nil, status.Errorf(status.NotFound, "the cluster has no task %v", task)
	}
	w := &refConn{from: n, task: task, valve: v}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.conns = append(n.conns, w)
	return n.c.fault.conn(w), nil
}

// refConn is a transport.Conn.
type refConn struct {
	from  *refNode
	task  cluster.Task
	valve *valve

	mu     sync.Mutex // guards the fields below
	now    *refStream // nil when there is none
	closed bool
}

// refStream is a connection between two processes.
type refStream struct {
	*lane
	to   *refNode
	down func() // tells the peer that it is gone
}

var errRefused = errors.New("connection refused")

// connect returns the connection. It makes one if there is none.
func (w *refConn) connect() (*refStream, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.now != nil {
		return w.now, nil
	}
	to := w.from.c.node(w.task)
	if to == nil || w.closed {
		return nil, errRefused
	}
	if err := to.kept.Introduce(context.Background(), w.from.self, ""); err != nil {
		return nil, err
	}
	c := &refStream{to: to, down: to.kept.Connected(w.from.self)}
	c.lane = w.valve.open(func() { w.lost(c) })
	w.now = c
	return c, nil
}

func (w *refConn) lost(c *refStream) {
	w.mu.Lock()
	gone := w.now == c
	if gone {
		w.now = nil
	}
	w.mu.Unlock()
	if gone {
		c.down()
	}
}

func (w *refConn) close() {
	w.mu.Lock()
	w.closed = true
	c := w.now
	w.mu.Unlock()
	if c != nil {
		close(c.broken) // its own end: requests under way are lost with it
		c.close()
		w.lost(c)
	}
}

var errBroken = status.New(status.Unavailable, "connection broken")

// send sends a request to the peer. As on a real connection, its bytes are carried also after
// the requester has dropped the attempt.
func (w *refConn) send(ctx context.Context) (*refStream, error) {
	c, err := w.connect()
	if err != nil {
		return nil, err
	}
	arrived := make(chan bool, 1)
	go func() { arrived <- c.toTask() }()
	select {
	case ok := <-arrived:
		if !ok {
			return nil, errBroken
		}
		return c, nil
	case <-ctx.Done():
		return nil, status.From(ctx.Err())
	}
}

func (w *refConn) Hello(ctx context.Context) (transport.Peer, error) {
	c, err := w.send(ctx)
	if err != nil {
		return transport.Peer{}, status.Errorf(status.Unavailable, "%w", err)
	}
	return transport.Peer{Tryst: true, Incarnation: c.to.self.Incarnation}, nil
}

func (w *refConn) Ack(ctx context.Context, ids []uint64) error {
	return w.say(ctx, func(to *refNode) { to.kept.Ack(w.from.self, ids) })
}

func (w *refConn) Cancel(ctx context.Context, ids []uint64) error {
	return w.say(ctx, func(to *refNode) { _ = to.kept.Cancel(w.from.self, ids) })
}

func (w *refConn) say(ctx context.Context, what func(to *refNode)) error {
	c, err := w.send(ctx)
	if err != nil {
		return status.Errorf(status.Unavailable, "%w", err)
	}
	what(c.to)
	return nil
}

// Begin returns an attempt. Its Wait sends the request.
func (w *refConn) Begin(t *transport.Receive) transport.Attempt { return w.begin(t) }

func (w *refConn) begin(t *transport.Receive) *refAttempt {
	a := &refAttempt{refConn: w, t: t, acks: t.Acks, cancels: t.Cancels}
	a.ctx, a.drop = context.WithCancel(context.Background())
	return a
}

// refAttempt is a transport.Attempt.
type refAttempt struct {
	*refConn
	t             *transport.Receive
	acks, cancels []uint64
	ctx           context.Context // ends with Drop
	drop          context.CancelFunc
}

func (*refAttempt) Notify(func()) bool { return false }

func (a *refAttempt) Drop() { a.drop() }

func (a *refAttempt) Wait(ctx context.Context) (rendezvous.Value, error) {
	defer a.drop()
	defer context.AfterFunc(ctx, a.drop)()
	v, err := a.recv()
	if err != nil && a.ctx.Err() != nil {
		if err = ctx.Err(); err == nil {
			err = a.ctx.Err()
		}
		err = &transport.ReceiverError{Err: status.From(err)}
	}
	a.t.Arrival.Transport = "reference"
	return v, err
}

// refCall is a call at the peer, a transport.Replier.
type refCall struct {
	taken    atomic.Bool // by the response, or by the end of the call: the first one
	response chan transport.Response
}

func (c *refCall) Reply(_ uint64, _ uint32, r transport.Response) {
	if c.taken.CompareAndSwap(false, true) {
		c.response <- r
	} else {
		outcome{r.Value, r.Err}.release() // the cache has another reference
	}
}

// recv makes the attempt. Its error counts only while a.ctx lives.
func (a *refAttempt) recv() (rendezvous.Value, error) {
	ctx, t := a.ctx, a.t
	c, err := a.send(ctx)
	if err != nil {
		return rendezvous.Value{}, &transport.LostError{Err: err}
	}
	if is := c.to.self.Incarnation; is != t.Peer {
		return rendezvous.Value{}, &transport.RestartedError{Err: transport.OtherProcess(t.Peer, is)}
	}
	c.to.kept.Ack(t.Requester, a.acks)
	if err := c.to.kept.Cancel(t.Requester, a.cancels); err != nil {
		return rendezvous.Value{}, err
	}
	if err := c.to.session.CheckSource(t.Key); err != nil {
		return rendezvous.Value{}, err
	}
	call := &refCall{response: make(chan transport.Response, 1)}
	c.to.kept.Request(call, t.Request)
	select {
	case r := <-call.response:
		if a.from.c.fault == acksEarly {
			c.to.kept.Ack(t.Requester, []uint64{t.ID})
		}
		return a.carry(ctx, c, r)
	case <-c.broken:
		err = &transport.LostError{Err: errBroken}
	case <-ctx.Done():
		err = ctx.Err()
	}
	if !call.taken.CompareAndSwap(false, true) {
		r := <-call.response // in this moment; the cache has another reference
		outcome{r.Value, r.Err}.release()
		return rendezvous.Value{}, err
	}
	c.to.kept.Detach(call, t.Requester, t.ID, t.Attempt)
	return rendezvous.Value{}, err
}

// portion is how many bytes are carried at a time.
const portion = 16 << 10

// carry copies a response to the requester, into memory of the requester. It resumes after the
// bytes of earlier attempts.
func (a *refAttempt) carry(ctx context.Context, c *refStream, resp transport.Response) (rendezvous.Value, error) {
	defer outcome{resp.Value, resp.Err}.release()
	if _, err := a.flow(ctx, c, 1); err != nil {
		return rendezvous.Value{}, err
	}
	if resp.Err != nil {
		e := status.From(resp.Err)
		cut := status.New(e.Code(), status.ForPeer(e.Message()))
		for k, v := range e.Payloads() {
			cut = cut.WithPayload(k, v)
		}
		return rendezvous.Value{}, cut
	}
	x := resp.Value.Tensor
	v := rendezvous.Value{Dead: resp.Value.Dead}
	if !x.DType().Plain() {
		elems := make([]string, 0, len(x.Elements()))
		for _, e := range x.Elements() {
			for n := len(e); n > 0; {
				k, err := a.flow(ctx, c, min(n, portion))
				if err != nil {
					return rendezvous.Value{}, err
				}
				n -= k
			}
			elems = append(elems, strings.Clone(e))
		}
		var err error
		if v.Tensor, err = tensor.FromElements(x.DType(), x.Shape(), elems); err == nil {
			v.Tensor, err = a.t.Deliver(v.Tensor, v.Dead)
		}
		return v, err
	}
	p, into := &a.t.Partial, a.t.Into
	if v.Dead {
		into = nil
	}
	if into != nil {
		if err := a.t.CheckInto(x.DType(), x.Shape()); err != nil {
			return rendezvous.Value{}, err
		}
		if p.Buffer == nil {
			p.Buffer = into.Tensor().Buffer().Retain()
		}
	}
	if p.Buffer == nil {
		b, err := a.from.alloc.Allocate(int(x.Size()))
		if err != nil {
			return rendezvous.Value{}, &transport.ReceiverError{Err: err}
		}
		p.Buffer = b
	}
	src, dst := x.Bytes(), p.Buffer.Bytes()
	if len(src) != len(dst) {
		return rendezvous.Value{}, status.Errorf(status.DataLoss, "the response is another one than before")
	}
	for p.Bytes < int64(len(src)) {
		k, err := a.flow(ctx, c, min(len(src)-int(p.Bytes), portion))
		if err != nil {
			return rendezvous.Value{}, err
		}
		copy(dst[p.Bytes:][:k], src[p.Bytes:])
		p.Bytes += int64(k)
	}
	if into != nil {
		v.Tensor, p.Buffer = into.Tensor(), nil
		return v, nil
	}
	var err error
	if v.Tensor, err = tensor.New(x.DType(), x.Shape(), p.Buffer); err == nil {
		p.Buffer = nil // it is the tensor's now
	}
	return v, err
}

// flow waits until some of n bytes may pass to the requester.
func (*refConn) flow(ctx context.Context, c *refStream, n int) (int, error) {
	type result struct {
		k  int
		ok bool
	}
	passed := make(chan result, 1)
	go func() {
		k, ok := c.fromTask(n)
		passed <- result{k, ok}
	}()
	select {
	case r := <-passed:
		if !r.ok {
			return 0, &transport.LostError{Err: errBroken}
		}
		return r.k, nil
	case <-ctx.Done():
		return 0, status.From(ctx.Err())
	}
}
