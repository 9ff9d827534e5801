package transporttest

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/transport"
)

// The reference is the smallest transport that keeps the contract: Failover and
// Kept, with calls between goroutines for a wire, whose bytes pass a valve.

// reference is a Cluster.
type reference struct {
	t     testing.TB
	fault fault // what is wrong with it; none for the reference itself
	links map[cluster.Task]*valve

	mu    sync.Mutex // guards nodes
	nodes map[cluster.Task]*refNode
}

func newReference(t testing.TB, tasks []cluster.Task, f fault) *reference {
	c := &reference{t: t, fault: f, links: make(map[cluster.Task]*valve), nodes: make(map[cluster.Task]*refNode)}
	for _, task := range tasks {
		c.links[task] = newValve()
	}
	return c
}

func (c *reference) Link(task cluster.Task) Link { return c.links[task] }

func (c *reference) node(task cluster.Task) *refNode {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nodes[task]
}

// verify finds the process that is at the address of a name.
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
	c        *reference
	self     transport.Asker
	task     cluster.Task
	session  *rendezvous.Session
	alloc    tensor.Allocator
	failover *transport.Failover
	manager  *rendezvous.Manager
	kept     *transport.Kept

	mu    sync.Mutex // guards wires
	wires []*refWire
}

func (c *reference) Start(task cluster.Task, o NodeOptions) Node {
	device := cluster.Device{Task: task, Type: "CPU"}
	n := &refNode{
		c: c, task: task, alloc: o.Allocator,
		self:    transport.Asker{Name: task.String(), Incarnation: o.Incarnation},
		session: &rendezvous.Session{Task: task, Devices: map[cluster.Device]uint64{device: o.Incarnation}},
	}
	n.failover = transport.NewFailover(transport.FailoverOptions{
		Self: n.self, Wire: n.wire, PeerTimeout: c.fault.peerTimeout(o.PeerTimeout),
	})
	n.manager = rendezvous.NewManager(rendezvous.ManagerOptions{Session: n.session, Remoter: c.fault.remoter(n.failover)})
	o.Kept.Addressed, o.Kept.Verify = func(string) bool { return true }, c.verify
	n.kept = transport.NewKept(n.manager, o.Kept)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nodes[task] = n
	return n
}

func (n *refNode) Manager() *rendezvous.Manager { return n.manager }
func (n *refNode) Kept() *transport.Kept        { return n.kept }

func (n *refNode) Stop(ctx context.Context) error {
	if n.c.fault == stopsWithoutAWord {
		n.Kill()
		return nil
	}
	err := n.failover.Close(ctx)
	n.kept.Close() // those who wait hear it
	n.manager.Close()
	n.leave()
	return err
}

func (n *refNode) Kill() {
	n.leave()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = n.failover.Close(ctx) // it cannot say anything any more
	n.kept.Close()
	n.manager.Close()
}

// leave takes the process off the network.
func (n *refNode) leave() {
	n.c.mu.Lock()
	if n.c.nodes[n.task] == n {
		delete(n.c.nodes, n.task)
	}
	n.c.mu.Unlock()
	n.c.links[n.task].CutAfter(0)
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, w := range n.wires {
		w.close()
	}
}

func (n *refNode) wire(task cluster.Task) (transport.Wire, error) {
	v := n.c.links[task]
	if v == nil {
		return nil, status.Errorf(status.NotFound, "the cluster has no task %v", task)
	}
	w := &refWire{from: n, task: task, link: v}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.wires = append(n.wires, w)
	return n.c.fault.wire(w), nil
}

// refWire is a transport.Wire.
type refWire struct {
	from *refNode
	task cluster.Task
	link *valve

	mu     sync.Mutex // guards what follows
	now    *refConn   // nil when there is none
	closed bool
}

// refConn is a connection between two processes.
type refConn struct {
	*lane
	to   *refNode
	down func() // tells the peer that it is gone
}

var errRefused = errors.New("connection refused")

// conn returns the connection, made when there is none.
func (w *refWire) conn() (*refConn, error) {
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
	c := &refConn{to: to, down: to.kept.WireUp(w.from.self)}
	c.lane = w.link.open(func() { w.lost(c) })
	w.now = c
	return c, nil
}

func (w *refWire) lost(c *refConn) {
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

func (w *refWire) close() {
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

// send takes a request to the peer. The flow of an asker that has given up, like
// that of a real one, goes on without it.
func (w *refWire) send(ctx context.Context) (*refConn, error) {
	c, err := w.conn()
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

func (w *refWire) Hello(ctx context.Context) (transport.Peer, error) {
	c, err := w.send(ctx)
	if err != nil {
		return transport.Peer{}, status.Errorf(status.Unavailable, "%w", err)
	}
	return transport.Peer{Tryst: true, Incarnation: c.to.self.Incarnation}, nil
}

func (w *refWire) Finish(ctx context.Context, ids []uint64) error {
	return w.say(ctx, func(to *refNode) { to.kept.Finish(w.from.self, ids) })
}

func (w *refWire) Cancel(ctx context.Context, ids []uint64) error {
	return w.say(ctx, func(to *refNode) { _ = to.kept.Cancel(w.from.self, ids) })
}

func (w *refWire) say(ctx context.Context, what func(to *refNode)) error {
	c, err := w.send(ctx)
	if err != nil {
		return status.Errorf(status.Unavailable, "%w", err)
	}
	what(c.to)
	return nil
}

func (w *refWire) Recv(ctx context.Context, a *transport.Attempt) (rendezvous.Value, error) {
	c, err := w.send(ctx)
	if err != nil {
		return rendezvous.Value{}, &transport.LostError{Err: err}
	}
	if is := c.to.self.Incarnation; is != a.Peer {
		return rendezvous.Value{}, &transport.RestartedError{Err: transport.OtherProcess(a.Peer, is)}
	}
	c.to.kept.Finish(a.Asker, a.Finished)
	if err := c.to.kept.Cancel(a.Asker, a.Cancelled); err != nil {
		return rendezvous.Value{}, err
	}
	if err := c.to.session.CheckSource(a.Key); err != nil {
		return rendezvous.Value{}, err
	}
	var taken atomic.Bool // by the answer, or by the end of the call: the first one
	answers := make(chan transport.Answer, 1)
	call := c.to.kept.Ask(a.Ask, func(ans transport.Answer) {
		if taken.CompareAndSwap(false, true) {
			answers <- ans
		} else {
			outcome{ans.Value, ans.Err}.release() // the table has another reference
		}
	})
	select {
	case ans := <-answers:
		return w.carry(ctx, c, a, ans)
	case <-c.broken:
		err = &transport.LostError{Err: errBroken}
	case <-ctx.Done():
		err = status.From(ctx.Err())
	}
	if !taken.CompareAndSwap(false, true) {
		ans := <-answers // in this moment; the table has another reference
		outcome{ans.Value, ans.Err}.release()
		return rendezvous.Value{}, err
	}
	call.Detach()
	return rendezvous.Value{}, err
}

// piece is how much is carried at a time.
const piece = 16 << 10

// carry brings an answer to the asker, into memory of its own. What an earlier
// attempt has brought is not carried again.
func (w *refWire) carry(ctx context.Context, c *refConn, a *transport.Attempt, ans transport.Answer) (rendezvous.Value, error) {
	defer outcome{ans.Value, ans.Err}.release()
	if _, err := w.flow(ctx, c, 1); err != nil {
		return rendezvous.Value{}, err
	}
	if ans.Err != nil {
		e := status.From(ans.Err)
		cut := status.New(e.Code(), status.ForPeer(e.Message()))
		for k, v := range e.Payloads() {
			cut = cut.WithPayload(k, v)
		}
		return rendezvous.Value{}, cut
	}
	x := ans.Value.Tensor
	v := rendezvous.Value{Dead: ans.Value.Dead}
	if !x.DType().Plain() {
		elems := make([]string, 0, len(x.Elements()))
		for _, e := range x.Elements() {
			for n := len(e); n > 0; {
				k, err := w.flow(ctx, c, min(n, piece))
				if err != nil {
					return rendezvous.Value{}, err
				}
				n -= k
			}
			elems = append(elems, strings.Clone(e))
		}
		var err error
		v.Tensor, err = tensor.FromElements(x.DType(), x.Shape(), elems)
		return v, err
	}
	p := a.Partial
	if p.Buffer == nil {
		b, err := w.from.alloc.Allocate(int(x.Size()))
		if err != nil {
			return rendezvous.Value{}, err
		}
		p.Buffer = b
	}
	src, dst := x.Bytes(), p.Buffer.Bytes()
	if len(src) != len(dst) {
		return rendezvous.Value{}, status.Errorf(status.DataLoss, "the answer is another one than before")
	}
	for p.Bytes < int64(len(src)) {
		k, err := w.flow(ctx, c, min(len(src)-int(p.Bytes), piece))
		if err != nil {
			return rendezvous.Value{}, err
		}
		copy(dst[p.Bytes:][:k], src[p.Bytes:])
		p.Bytes += int64(k)
	}
	var err error
	if v.Tensor, err = tensor.New(x.DType(), x.Shape(), p.Buffer); err == nil {
		p.Buffer = nil // it is the tensor's now
	}
	return v, err
}

// flow waits until some of n bytes may pass to the asker.
func (w *refWire) flow(ctx context.Context, c *refConn, n int) (int, error) {
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
