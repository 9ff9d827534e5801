// Package peers is the part of a process that reaches its peers over gRPC, and keeps the responses to them.
//
//	Start ─► Serve, with the steps of the process ─► Close
package peers

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/certificates"
	"github.com/tryst-rdma/tryst/internal/delivery"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/transport"
	grpctransport "github.com/tryst-rdma/tryst/transport/grpc"
)

// Part reaches the peers of a process.
type Part struct {
	Settings
	Conns *grpctransport.Conns
	GRPC  *grpctransport.RpcRemoteRendezvous
	// Cache keeps the responses to peers.
	Cache *delivery.ResponseCache
	// Dial has the options of each connection, also to the peers of sessions. DialVerbs connects a queue pair
	// over TCP.
	Dial      grpctransport.DialOptions
	DialVerbs func(ctx context.Context, address string) (net.Conn, error)

	late lateManager
}

// lateManager is a Manager that is set later: the response cache needs it and is built first.
type lateManager struct{ *rendezvous.Manager }

// Settings are what the settings of a process say about its peers.
type Settings struct {
	// Spec is the cluster at the start. Resolve returns the address of a peer that is not in it; nil if there are none.
	Spec    *cluster.Spec
	Resolve func(cluster.Task) (string, bool)

	TLS                             certificates.Files
	KeepaliveTime, KeepaliveTimeout time.Duration
	Connections                     int // to each peer
	PeerTimeout, ReleaseAfter       time.Duration
	Stats                           stats.Handler         // observes the calls; may be nil
	Responses                       delivery.CacheOptions // the limits of the response cache
}

// Options are the arguments of Start.
type Options struct {
	Settings

	Task    cluster.Task
	Process transport.Process
	// Left reports whether the task of a name has left the cluster, and every session: its requests are refused. HasLeft
	// reports whether a task has left the cluster: it has no address.
	Left    func(name string) bool
	HasLeft func(cluster.Task) bool
	// Local is the worker of this process.
	Local     transport.Worker
	Allocator tensor.Allocator
	// Answers bounds what the responses of peers take while they come.
	Answers   tensor.Reserver
	Transfers *transport.Log
	// Connected is called with each connection over TCP, and Disconnected when the last one to a peer has ended.
	Connected    func(net.Conn)
	Disconnected func(cluster.Task)
	Logger       *slog.Logger
}

// Start makes the connections, which are dialed when they are needed.
func Start(o Options) (*Part, error) {
	security, err := certificates.ClientTLS(o.TLS)
	if err != nil {
		return nil, err
	}
	certificates.WarnOutOfDates(o.Logger, o.TLS)
	p := &Part{Settings: o.Settings, Dial: grpctransport.DialOptions{
		Connected: o.Connected, Credentials: certificates.ClientCredentials(security), Connections: o.Connections,
		KeepaliveTime: o.KeepaliveTime, KeepaliveTimeout: o.KeepaliveTimeout,
	}}
	p.DialVerbs = func(ctx context.Context, address string) (net.Conn, error) {
		return p.Dial.ConnectVerbs(ctx, address, security)
	}
	if o.Stats != nil {
		p.Dial.Extra = append(p.Dial.Extra, grpc.WithStatsHandler(o.Stats))
	}
	p.Conns = grpctransport.NewConns(grpctransport.ConnsOptions{
		Self: o.Task, Local: o.Local, Spec: o.Spec, Resolve: o.Resolve, Left: o.HasLeft,
		Allocator: o.Allocator, Log: o.Transfers, Dial: p.Dial, Idle: o.ReleaseAfter, Disconnected: o.Disconnected,
		Responses: o.Answers,
	})
	p.GRPC = grpctransport.New(grpctransport.Options{
		Self: o.Process, Conns: p.Conns, PeerTimeout: o.PeerTimeout, Logger: o.Logger,
	})
	cache := o.Responses
	cache.Left = o.Left
	cache.Addressed, cache.Verify = p.Conns.Addressed, p.Conns.Incarnation
	p.Cache = delivery.NewResponseCache(&p.late, cache)
	return p, nil
}

// Serve has requests of peers answered from the steps of the process.
func (p *Part) Serve(steps *rendezvous.Manager) { p.late.Manager = steps }

// Close ends receives over gRPC with Cancelled, then the connections. Pending acks and cancels are sent to
// peers until ctx ends.
func (p *Part) Close(ctx context.Context) error {
	p.Cache.Close()
	return errors.Join(p.GRPC.Close(ctx), p.Conns.Close())
}
