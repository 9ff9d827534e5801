package verbstransport_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/tryst-rdma/tryst/cluster"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
)

// slowHandshake makes no bootstrap call before gRPC has answered Hello.
type slowHandshake struct {
	once     sync.Once
	answered chan struct{}
}

func (s *slowHandshake) call(ctx context.Context, _ *tfpb.GetRemoteAddressRequest, next func() error, _ *tfpb.GetRemoteAddressResponse) error {
	select {
	case <-s.answered:
	case <-ctx.Done():
		return status.From(ctx.Err())
	}
	return next()
}

// helloConn reports that Hello was answered.
type helloConn struct {
	transport.Conn
	s *slowHandshake
}

func (c helloConn) Hello(ctx context.Context) (transport.Peer, error) {
	p, err := c.Conn.Hello(ctx)
	if err == nil {
		c.s.once.Do(func() { close(c.s.answered) })
	}
	return p, err
}

// slowly makes the handshakes of all processes slow.
func slowly(o *verbstransport.Options) {
	s := &slowHandshake{answered: make(chan struct{})}
	o.Wrap(s.call)
	conn := o.GRPC
	o.GRPC = func(task cluster.Task) (transport.Conn, error) {
		c, err := conn(task)
		return helloConn{c, s}, err
	}
}

// TestFirstValuesTakeTheChannel: two processes that have just started exchange values at once. None
// of them takes gRPC, although that answers before the handshake has begun.
func TestFirstValuesTakeTheChannel(t *testing.T) {
	all := sideBySide()
	for name, o := range map[string]clusterOptions{
		"one device": quick(clusterOptions{}, slowly), "all routes": quick(clusterOptions{fixed: all.fixed}, slowly),
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, o)
			a, b := s.start(0), s.start(1)
			for i := range 3 {
				for _, way := range [][2]*actor{{a, b}, {b, a}} {
					k := way[0].key(way[1], fmt.Sprint("first", i))
					way[0].sendsBlob(1, k, 7, 100)
					way[1].recv(1, k).isBlob(7, 100)
				}
			}
			for _, way := range [][2]*actor{{a, b}, {b, a}} {
				if n := way[0].connection(way[1]).Stats.Without; n != 0 {
					t.Errorf("%d receives of %v took gRPC", n, way[0].task)
				}
			}
		})
	}
}

// TestFirstValueOfAnUnreachablePeer takes gRPC: the wait for the first channel has an end.
func TestFirstValueOfAnUnreachablePeer(t *testing.T) {
	s := newStage(t, quick(clusterOptions{}))
	a, b := s.start(0), s.start(1)
	s.c.fabric.Between(a.nic(), b.nic()).Cut()
	k := a.key(b, "first")
	a.sendsBlob(1, k, 7, 100)
	b.recv(1, k).isBlob(7, 100)
	if n := b.connection(a).Stats.Without; n != 1 {
		t.Errorf("%d receives took gRPC, want 1", n)
	}
}

// brokenHello is a gRPC connection whose Hello waits for the channel that comes up meanwhile, and returns when that has ended.
type brokenHello struct {
	transport.Conn
	begin func()
	ended func()
}

func (c brokenHello) Hello(ctx context.Context) (transport.Peer, error) {
	c.begin()
	<-ctx.Done()
	c.ended()
	return c.Conn.Hello(ctx)
}

// TestHelloWhoseChannelEndsIsLost: a channel that comes up ends Hello over gRPC. If it has gone when Hello looks for it, the peer was
// not reached: nobody has cancelled anything.
func TestHelloWhoseChannelEndsIsLost(t *testing.T) {
	h := &slowHandshake{answered: make(chan struct{})}
	var ended func()
	s := newStage(t, quick(clusterOptions{}, func(o *verbstransport.Options) {
		o.Wrap(h.call)
		conn := o.GRPC
		o.GRPC = func(task cluster.Task) (transport.Conn, error) {
			c, err := conn(task)
			if task.Index != 0 {
				return c, err
			}
			return brokenHello{c, func() { h.once.Do(func() { close(h.answered) }) }, func() { ended() }}, err
		}
	}))
	a, b := s.start(0), s.start(1)
	ended = func() {
		a.stop()
		s.holds(func() bool { return !b.connection(a).Verbs })
	}
	c, err := b.transport.Conn(a.task)
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Hello(t.Context())
	if _, lost := errors.AsType[*transport.LostError](err); !lost || status.CodeOf(err) != status.Unavailable {
		t.Errorf("Hello ended with %v, want that the peer was lost", err)
	}
}
