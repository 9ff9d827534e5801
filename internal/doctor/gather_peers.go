package doctor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/server"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
)

// ReachVerbs returns a function for Options.ReachVerbs that sets up a channel of its own to the
// peer, as any client does, sends packets of full size over it, and measures the path. It does not
// disturb the peer.
func ReachVerbs(c config.Client, o server.Options) func(context.Context, cluster.Task, string) Reached {
	c.Transport = verbstransport.Name
	c.Fallback = "none"                                 // so that the error without a device is reported
	c.Arena, c.ArenaLimit = probeArena, probeArenaLimit // no tensor moves
	return func(ctx context.Context, task cluster.Task, address string) (r Reached) {
		cl, err := server.Dial(ctx, c, address, o)
		if err != nil {
			return Reached{Err: err}
		}
		defer func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
			defer cancel()
			r.Err = errors.Join(r.Err, cl.Close(ctx))
		}()
		if task == (cluster.Task{}) {
			if task, err = cl.Server(ctx); err != nil {
				return Reached{Err: err}
			}
		}
		p, err := cl.Probe(ctx, task)
		if err != nil {
			return Reached{Err: err, WithoutDevice: verbstransport.IsWithoutDevice(task, err)}
		}
		r.Text = fmt.Sprintf("a channel to %v, path MTU %d, and %s in full packets came through", p.GID, int(p.MTU), bytesText(uint64(p.Bytes))) //nolint:gosec // some packets
		if m, err := cl.Measure(ctx, task); err != nil {
			r.Unmeasured = err
		} else {
			r.Path = &m
		}
		return r
	}
}

// peerTarget is a peer to reach.
type peerTarget struct {
	task    cluster.Task // zero if it is not known
	address string
}

// targets returns the server of --from, or all other tasks of the cluster.
func targets(o Options) (list []peerTarget) {
	if o.From != "" {
		address, task, _, err := cluster.ResolveTarget(o.Client.Cluster, o.From)
		if err != nil {
			address = o.From
		}
		return []peerTarget{{task, address}}
	}
	if o.Client.Cluster == nil {
		return nil
	}
	for _, t := range o.Client.Cluster.Tasks() {
		if o.Self == nil || t != *o.Self {
			address, _ := o.Client.Cluster.Address(t)
			list = append(list, peerTarget{t, address})
		}
	}
	return list
}

// reachPeers reaches all targets, up to peersAtOnce at a time.
func reachPeers(ctx context.Context, o Options) []Peer {
	list := targets(o)
	peers := make([]Peer, len(list))
	var wg sync.WaitGroup
	slots := make(chan struct{}, peersAtOnce)
	for i, t := range list {
		peers[i] = Peer{Task: t.address, Address: t.address}
		if t.task != (cluster.Task{}) {
			peers[i].Task = t.task.String()
		}
		slots <- struct{}{}
		wg.Go(func() { // owned by reachPeers, which waits for it
			defer func() { <-slots }()
			p := &peers[i]
			p.GRPC = timed(ctx, dialTimeout+measureTimeout, func(ctx context.Context) Reached { return reachGRPC(ctx, o.Client, p.Address) })
			if o.ReachVerbs != nil && p.GRPC.Err == nil { // the bootstrap needs gRPC
				r := timed(ctx, probeTimeout+measureTimeout, func(ctx context.Context) Reached { return o.ReachVerbs(ctx, t.task, p.Address) })
				p.Verbs = &r
			}
		})
	}
	wg.Wait()
	return peers
}

// timed calls reach with a time limit, and measures its time unless it has measured it.
func timed(ctx context.Context, limit time.Duration, reach func(context.Context) Reached) Reached {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	start := time.Now()
	r := reach(ctx)
	if r.Took == 0 && r.Path == nil {
		r.Took = time.Since(start)
	}
	return r
}

// reachGRPC requests the health of a peer, and measures the connection. A peer without a health
// service, such as a worker of TensorFlow, is reachable, too.
func reachGRPC(ctx context.Context, c config.Client, address string) Reached {
	c.Transport = "grpc" // no channel is needed
	cl, err := server.Dial(ctx, c, address, server.Options{})
	if err != nil {
		return Reached{Err: err}
	}
	defer cl.Close(context.WithoutCancel(ctx)) // the result is known
	asked, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	begin := time.Now()
	answer, err := healthpb.NewHealthClient(cl.Conn()).Check(asked, &healthpb.HealthCheckRequest{})
	r := Reached{Took: time.Since(begin)}
	switch grpcstatus.Code(err) {
	case codes.OK:
		if answer.GetStatus() != healthpb.HealthCheckResponse_SERVING {
			r.Err = fmt.Errorf("its health is %s: it is starting or stopping", answer.GetStatus())
			return r
		}
		r.Text = "it serves"
	case codes.Unimplemented:
		r.Text = "it has no health service, so it is not a Tryst server (TensorFlow?)"
	default:
		s := grpcstatus.Convert(err)
		r.Err = status.New(status.Code(s.Code()), status.Truncate(transport.PlainText(s.Message())))
		return r
	}
	if m, err := cl.MeasureGRPC(ctx); err != nil {
		r.Unmeasured = err
	} else {
		r.Path = &m
	}
	return r
}
