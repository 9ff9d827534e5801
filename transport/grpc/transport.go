package grpctransport

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/delivery"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/transport"
)

// Name is the name of this transport.
const Name = "grpc"

// Options configures the receiving side of a process. Self and Conns are needed.
type Options struct {
	// Self is the name and incarnation that this process sends to its peers.
	Self transport.Process
	// Conns has the connections to the peers, the allocator of received tensors and the
	// log of transfers. The caller closes it, after the transport.
	Conns *Conns
	// PeerTimeout is how long a peer may be unreachable before receives from it end with
	// Unavailable; transport.DefaultPeerTimeout when 0.
	PeerTimeout time.Duration
	// Logger logs when a peer is lost and when it is back; nil for no log.
	Logger *slog.Logger
}

// RpcRemoteRendezvous receives from other tasks over gRPC. With rendezvous.BaseRemote,
// whose Remoter it is, it does what TensorFlow's class of this name does; one serves all
// steps of a process. It implements transport.Transport.
//
// Receives from a Tryst peer survive a broken connection (ARCHITECTURE.md section 6). Any
// other peer, such as TensorFlow, gets one request with step, key and a random request id.
type RpcRemoteRendezvous struct {
	opts      Options
	requester *delivery.Requester
	caps      metadata.MD        // header of each request to a Tryst peer
	acks      sync.WaitGroup     // MarkRecvFinished calls to peers that are not Tryst
	base      context.Context    // of those calls
	stop      context.CancelFunc // cancels base; called by Close
}

// New returns the transport of a process. The caller must close it.
func New(o Options) *RpcRemoteRendezvous {
	t := &RpcRemoteRendezvous{opts: o, caps: metadata.Pairs(capsKey, capChunks)}
	t.base, t.stop = context.WithCancel(context.Background())
	t.requester = delivery.NewRequester(delivery.RequesterOptions{
		Self: o.Self, Conn: t.Conn, PeerTimeout: o.PeerTimeout, Logger: o.Logger,
	})
	return t
}

// Name implements transport.Transport.
func (*RpcRemoteRendezvous) Name() string { return Name }

// RecvFromRemoteAsync implements rendezvous.Remoter.
func (t *RpcRemoteRendezvous) RecvFromRemoteAsync(step int64, key rendezvous.Key, args rendezvous.Args, done rendezvous.DoneFunc) rendezvous.Transfer {
	return t.requester.RecvFromRemoteAsync(step, key, args, done)
}

// RecvFrom implements transport.Transport.
func (t *RpcRemoteRendezvous) RecvFrom(task cluster.Task, step int64, key rendezvous.Key, args rendezvous.Args, done rendezvous.DoneFunc) rendezvous.Transfer {
	return t.requester.RecvFrom(task, step, key, args, done)
}

// Leave ends the receives from a task with err, and forgets the task: it has left the cluster.
func (t *RpcRemoteRendezvous) Leave(task cluster.Task, err error) { t.requester.Leave(task, err) }

// Joined is the event that a task has come to the cluster, perhaps again.
func (t *RpcRemoteRendezvous) Joined(task cluster.Task) { t.requester.Joined(task) }

// Close implements transport.Transport.
func (t *RpcRemoteRendezvous) Close(ctx context.Context) error {
	err := t.requester.Close(ctx)
	defer context.AfterFunc(ctx, t.stop)()
	t.acks.Wait()
	t.stop()
	return err
}

// Unreached returns the peers that receives wait for, or have given up.
func (t *RpcRemoteRendezvous) Unreached() []transport.Unreached { return t.requester.Unreached() }

// Waiting returns the receives from peers that have not ended; the longest first, as delivery.Requester.Waiting does.
func (t *RpcRemoteRendezvous) Waiting(most, visits int, skip func(edge string) bool) ([]transport.Waiting, int, bool) {
	return t.requester.Waiting(most, visits, skip)
}

// Conn returns the gRPC connection to a task. A transport with another route uses it as the
// fallback. It may be used until Close.
func (t *RpcRemoteRendezvous) Conn(task cluster.Task) (transport.Conn, error) {
	p, err := t.opts.Conns.peer(task)
	if err != nil {
		return nil, err
	}
	return &conn{transport: t, task: task, worker: p.worker, at: p.channel.at}, nil
}
