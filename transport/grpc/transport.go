package grpctransport

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/transport"
	"github.com/tryst-rdma/tryst/transport/internal/delivery"
)

// Name is the name of this transport.
const Name = "grpc"

// Options configures the receiving side of a process. Self and Conns are needed.
type Options struct {
	// Self is this process, as it names itself to its peers.
	Self transport.Process
	// Conns finds the peers; it says where tensors go and who is told of them.
	// It is not closed with the transport.
	Conns *Conns
	// PeerTimeout is how long a peer may be out of reach before receives from
	// it end with Unavailable; transport.DefaultPeerTimeout when 0.
	PeerTimeout time.Duration
	// Logger is told when a peer is lost and found; none when nil.
	Logger *slog.Logger
}

// RpcRemoteRendezvous receives from other tasks over gRPC. Together with
// rendezvous.BaseRemote, whose Remoter it is, it is what TensorFlow calls by
// this name; one serves all steps of a process. It implements
// transport.Transport.
//
// A Tryst peer is asked so that a broken connection loses nothing
// (ARCHITECTURE.md section 6). Any other peer, TensorFlow among them, is asked
// once, with nothing but step, key and a random request id.
type RpcRemoteRendezvous struct {
	opts      Options
	requester *delivery.Requester
	caps      metadata.MD     // header of each request to a Tryst peer
	acks      sync.WaitGroup  // MarkRecvFinished to peers that are not Tryst
	base      context.Context // of these; its end is the end of Close
	stop      context.CancelFunc
}

// New returns the transport of a process. Its Close ends what it has started.
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

// Close implements transport.Transport.
func (t *RpcRemoteRendezvous) Close(ctx context.Context) error {
	err := t.requester.Close(ctx)
	defer context.AfterFunc(ctx, t.stop)()
	t.acks.Wait()
	t.stop()
	return err
}

// Conn returns the connection to a task by gRPC alone, for a transport that has another
// route beside it. It may be used until Close.
func (t *RpcRemoteRendezvous) Conn(task cluster.Task) (delivery.Conn, error) {
	p, err := t.opts.Conns.peer(task)
	if err != nil {
		return nil, err
	}
	return &conn{transport: t, task: task, worker: p.worker, address: p.channel.address}, nil
}
