package verbstransport_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/discovery"
	"github.com/tryst-rdma/tryst/internal/handshake"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
	"github.com/tryst-rdma/tryst/transport/verbs/internal/progress"
	"github.com/tryst-rdma/tryst/verbs"
)

// stoppable is a device that delivers no events while the process is stopped.
type stoppable struct {
	verbs.Device
	mu   sync.Mutex
	gate chan struct{} // nil while the process runs
}

func (d *stoppable) stop() { d.mu.Lock(); d.gate = make(chan struct{}); d.mu.Unlock() }
func (d *stoppable) cont() { d.mu.Lock(); close(d.gate); d.gate = nil; d.mu.Unlock() }
func (d *stoppable) CreateCQ(c verbs.CQConfig) (verbs.CQ, error) {
	cq, err := d.Device.CreateCQ(c)
	return &stoppableCQ{cq, d}, err
}

// AllocPD returns a domain that unwraps the completion queues of its queue pairs.
func (d *stoppable) AllocPD() (verbs.PD, error) {
	pd, err := d.Device.AllocPD()
	return stoppablePD{pd}, err
}

type stoppablePD struct{ verbs.PD }

func (p stoppablePD) CreateQP(c verbs.QPConfig) (verbs.QP, error) {
	if cq, ok := c.SendCQ.(*stoppableCQ); ok { // both are the same
		c.SendCQ, c.RecvCQ = cq.CQ, cq.CQ
	}
	return p.PD.CreateQP(c)
}

type stoppableCQ struct {
	verbs.CQ
	d *stoppable
}

func (c *stoppableCQ) Wait(ctx context.Context) error {
	err := c.CQ.Wait(ctx)
	c.d.mu.Lock()
	g := c.d.gate
	c.d.mu.Unlock()
	if g != nil {
		select {
		case <-g:
		case <-ctx.Done():
		}
	}
	return err
}

// TestStoppedProcessDoesNotBlameItsPeer: messages that arrived while this process was
// stopped count before a timeout of the peer does.
func TestStoppedProcessDoesNotBlameItsPeer(t *testing.T) {
	var d *stoppable
	s := newStage(t, clusterOptions{
		require: true, path: patient, parallel: true,
		wrap: func(task cluster.Task, dev verbs.Device) verbs.Device {
			if task.Index != 1 {
				return dev
			}
			d = &stoppable{Device: dev}
			return d
		},
		tune: func(task cluster.Task, o *verbstransport.Options) {
			o.Poll, o.Logger = progress.ModeEvent, slog.New(slog.NewTextHandler(t.Output(), nil))
		},
	})
	from, to := s.pair()
	k := from.key(to, "v")
	from.sendsBlob(1, k, 1, mib) // the next receive then has an early destination
	to.recv(1, k).isBlob(1, mib)
	ctx, cancel := context.WithCancel(t.Context())
	r := to.recvCtx(ctx, 2, k)
	from.waiting(1)
	d.stop() // SIGSTOP
	cancel() // CANCEL is posted; CANCELLED arrives soon
	r.fails(status.Cancelled)
	<-time.After(11 * time.Second)
	d.cont() // SIGCONT
	s.both(from, to, "after")
	if n := to.connection(from).Stats.Breaks; n != 0 {
		t.Errorf("%d breaks of a healthy channel: %+v", n, to.connection(from))
	}
}

// nosy calls the transport from its Reply.
type nosy struct {
	t    *testing.T
	to   *verbstransport.RdmaRemoteRendezvous
	done chan struct{}
}

func (n *nosy) Reply(uint64, uint32, transport.Response) {
	defer close(n.done)
	told := make(chan struct{})
	go func() {
		defer close(told)
		n.to.Connections() // takes every peer's lock
	}()
	select {
	case <-told:
	case <-time.After(5 * time.Second):
		n.t.Error("Reply was called with the lock of a peer's record held")
	}
}

// TestRepliesRunOutsideThePeersLock: a Replier is called outside every lock, also when a new
// process of a peer takes the place of the requester.
func TestRepliesRunOutsideThePeersLock(t *testing.T) {
	s := newStage(t, clusterOptions{})
	from := s.start(0)
	n := &nosy{t, from.transport, make(chan struct{})}
	old := transport.Process{Name: s.tasks[1].String(), Incarnation: 42}
	from.kept.Request(n, transport.Request{Requester: old, ID: 1, Attempt: 1, Step: 1, Key: s.keyOf(from.task, from.incarnation, s.tasks[1], "v")})
	s.start(1) // another incarnation: receives of the old process are refused
	s.happens("the receive of the old process is refused", n.done)
}

// slowExchange delays bootstrap calls.
type slowExchange struct {
	entered chan struct{}
	open    chan struct{}
	once    *sync.Once
}

func (e slowExchange) call(_ context.Context, _ *tfpb.GetRemoteAddressRequest, next func() error, _ *tfpb.GetRemoteAddressResponse) error {
	e.once.Do(func() { close(e.entered) })
	<-e.open
	return next()
}

// newAddress is in the line about another address of a port.
const newAddress = "new channels use"

// TestOfferFollowsTheAddress: an offer with an address that is gone is never connected.
func TestOfferFollowsTheAddress(t *testing.T) {
	entered, open := [2]chan struct{}{make(chan struct{}), make(chan struct{})}, make(chan struct{})
	var once [2]sync.Once
	said := &logBuffer{}
	p := newPair(t, clusterOptions{tune: func(task cluster.Task, o *verbstransport.Options) {
		o.Again = discovery.Again
		o.Wrap(slowExchange{entered[task.Index], open, &once[task.Index]}.call)
		if task.Index == 0 {
			o.Logger = slog.New(slog.NewTextHandler(said, nil))
		}
	}})
	<-entered[0]
	<-entered[1]
	nic, a := p.nic(p.to), p.address(p.to)
	other := a.GID
	other[15]++
	nic.SetGID(1, a.Index+4, other)
	nic.SetGID(1, a.Index, verbs.GID{})
	p.until("the new address is noticed", func(verbstransport.Connection) bool { return strings.Contains(said.String(), newAddress) })
	<-time.After(200 * time.Millisecond)
	began := time.Now()
	close(open)
	l := p.until("verbs", isUp)
	took := time.Since(began)
	t.Logf("after %v: generation %d, %d breaks", took, l.Generation, l.Stats.Breaks)
	if l.Stats.Breaks != 0 || took > handshake.HelloWait/2 { // which a channel between wrong addresses would wait for
		t.Errorf("the stale offer was connected: %d breaks, up after %v", l.Stats.Breaks, took)
	}
}

// eventless is a device that delivers no events.
type eventless struct{ verbs.Device }

func (eventless) NextEvent(ctx context.Context) (verbs.AsyncEvent, error) {
	<-ctx.Done()
	return verbs.AsyncEvent{}, ctx.Err()
}

// TestNewAddressIsLoggedWithoutAnEvent: making a channel may reveal a new address before
// the device reports it. Then the change is logged as well, once.
func TestNewAddressIsLoggedWithoutAnEvent(t *testing.T) {
	entered, open := [2]chan struct{}{make(chan struct{}), make(chan struct{})}, make(chan struct{})
	var once [2]sync.Once
	said := &logBuffer{}
	p := newPair(t, clusterOptions{
		wrap: func(_ cluster.Task, d verbs.Device) verbs.Device { return eventless{d} },
		tune: func(task cluster.Task, o *verbstransport.Options) {
			o.Again = discovery.Again
			o.Wrap(slowExchange{entered[task.Index], open, &once[task.Index]}.call)
			if task.Index == 0 {
				o.Logger = slog.New(slog.NewTextHandler(said, nil))
			}
		},
	})
	<-entered[0]
	<-entered[1]
	nic, a := p.nic(p.to), p.address(p.to)
	other := a.GID
	other[15]++
	nic.SetGID(1, a.Index+4, other)
	nic.SetGID(1, a.Index, verbs.GID{})
	close(open)
	p.until("verbs", isUp)
	p.until("the new address is logged", func(verbstransport.Connection) bool { return strings.Contains(said.String(), newAddress) })
	if n := strings.Count(said.String(), newAddress); n != 1 {
		t.Errorf("the new address was logged %d times:\n%s", n, said)
	}
}
