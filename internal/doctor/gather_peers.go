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
// peer, as any client does, and sends packets of full size over it. It does not disturb the peer.
func ReachVerbs(c config.Client, o server.Options) func(context.Context, cluster.Task, string) (string, error) {
	c.Transport = verbstransport.Name
	c.Fallback = "none"                                 // so that the error without a device is reported
	c.Arena, c.ArenaLimit = probeArena, probeArenaLimit // no tensor moves
	return func(ctx context.Context, task cluster.Task, address string) (_ string, err error) {
		cl, err := server.Dial(ctx, c, address, o)
		if err != nil {
			return "", err
		}
		defer func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
			defer cancel()
			err = errors.Join(err, cl.Close(ctx))
		}()
		p, err := cl.Probe(ctx, task)
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("a channel to %v, path MTU %d, and %s in full packets came through", p.GID, int(p.MTU), bytesText(uint64(p.Bytes))), nil //nolint:gosec // some packets
	}
}

// reachPeers reaches all other tasks of the cluster, up to peersAtOnce at a time.
func reachPeers(ctx context.Context, o Options) []Peer {
	if o.Client.Cluster == nil {
		return nil
	}
	var peers []Peer
	var tasks []cluster.Task
	for _, t := range o.Client.Cluster.Tasks() {
		if o.Self != nil && t == *o.Self {
			continue
		}
		address, _ := o.Client.Cluster.Address(t)
		peers, tasks = append(peers, Peer{Task: t.String(), Address: address}), append(tasks, t)
	}
	var wg sync.WaitGroup
	slots := make(chan struct{}, peersAtOnce)
	for i := range peers {
		slots <- struct{}{}
		wg.Go(func() { // owned by reachPeers, which waits for it
			defer func() { <-slots }()
			p := &peers[i]
			p.GRPC = timed(ctx, dialTimeout, func(ctx context.Context) (string, error) { return reachGRPC(ctx, o.Client, p.Address) })
			if o.ReachVerbs != nil && p.GRPC.Err == nil { // the bootstrap needs gRPC
				r := timed(ctx, probeTimeout, func(ctx context.Context) (string, error) { return o.ReachVerbs(ctx, tasks[i], p.Address) })
				p.Verbs = &r
			}
		})
	}
	wg.Wait()
	return peers
}

// timed calls reach with a time limit, and measures its time.
func timed(ctx context.Context, limit time.Duration, reach func(context.Context) (string, error)) Reached {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	start := time.Now()
	text, err := reach(ctx)
	return Reached{Took: time.Since(start), Text: text, Err: err}
}

// reachGRPC requests the health of a peer. A peer without a health service, such as a worker of
// TensorFlow, is reachable, too.
func reachGRPC(ctx context.Context, c config.Client, address string) (string, error) {
	c.Transport = "grpc" // no channel is needed
	cl, err := server.Dial(ctx, c, address, server.Options{})
	if err != nil {
		return "", err
	}
	defer cl.Close(context.WithoutCancel(ctx)) // the result is known
	r, err := healthpb.NewHealthClient(cl.Conn()).Check(ctx, &healthpb.HealthCheckRequest{})
	switch grpcstatus.Code(err) {
	case codes.OK:
		if r.GetStatus() != healthpb.HealthCheckResponse_SERVING {
			return "", fmt.Errorf("its health is %s: it is starting or stopping", r.GetStatus())
		}
		return "it serves", nil
	case codes.Unimplemented:
		return "it has no health service, so it is not a Tryst server (TensorFlow?)", nil
	}
	s := grpcstatus.Convert(err)
	return "", status.New(status.Code(s.Code()), transport.PlainText(s.Message()))
}
