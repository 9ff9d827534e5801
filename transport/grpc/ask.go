package grpctransport

import (
	"context"
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/status"
)

// errNotUp is why a task is not asked.
var errNotUp = errors.New("no connection to the task is up")

// Ask makes a call that the process of a task answers at once, whatever its program does: the one by which silence.go probes. It
// makes no connection, since a look at a peer is to change nothing; only one that ends at this very moment may be made again. sent is
// called when the call was sent. It must not block. Ask returns nil when the peer has answered, if only that it has no such call,
// and an error when the connection or ctx has ended: Unavailable, Cancelled or DeadlineExceeded, which a peer may answer, too.
func (c *Conns) Ask(ctx context.Context, task cluster.Task, sent func()) error {
	c.mu.Lock()
	p := c.peers[task]
	c.mu.Unlock()
	if p == nil {
		return errNotUp
	}
	ch, ok := p.channel.now().(*channel)
	if !ok { // with Bounds: a look at them is no use of them
		return errNotUp
	}
	for i, conn := range ch.conns {
		if conn.GetState() == connectivity.Ready {
			ch.answers[i].begin()
			defer ch.answers[i].end()
			return ask(ctx, conn, sent)
		}
	}
	return errNotUp
}

func ask(ctx context.Context, conn *grpc.ClientConn, sent func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := conn.NewStream(ctx, new(grpc.StreamDesc), healthpb.Health_Check_FullMethodName) // waits while the peer allows no more calls
	if err != nil {
		return err
	}
	if err = stream.SendMsg(new(healthpb.HealthCheckRequest)); err == nil {
		sent()
		err = stream.RecvMsg(new(healthpb.HealthCheckResponse))
	}
	switch status.CodeOf(err) {
	case status.Unavailable, status.Cancelled, status.DeadlineExceeded:
		return err
	}
	return nil
}
