package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/checkpoint"
	"github.com/tryst-rdma/tryst/internal/providers"
	"github.com/tryst-rdma/tryst/server"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
	"github.com/tryst-rdma/tryst/verbs"
)

// ReachVerbs returns a function for Options.ReachVerbs that sets up a channel of its own to the
// peer, as any client with the device of c does, sends packets of full size over it, and measures the
// path. With rate it also pulls some of what the peer publishes. It does not disturb the peer.
func ReachVerbs(c server.Config, o server.Options, rate bool) func(context.Context, cluster.Task, string) Reached {
	c = c.ForClient()
	c.Transport = server.TransportVerbs
	c.Fallback = server.FallbackNone // so that the error without a device is reported
	c.RDMA.Arena, c.RDMA.ArenaLimit = probeArena, probeArenaLimit
	if rate {
		c.RDMA.Arena, c.RDMA.ArenaLimit = rateArena, rateArenaLimit
	}
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
		r.Text = fmt.Sprintf("%s came through a channel", bytesText(uint64(p.Bytes))) //nolint:gosec // some messages
		if s, _ := cl.Verbs(); s.Choice.Type != verbs.GIDTypeProcess {
			r.Text = fmt.Sprintf("a channel to %v, path MTU %d, and %s in full packets came through", p.GID, int(p.MTU), bytesText(uint64(p.Bytes))) //nolint:gosec // some packets
		}
		if r.Path, err = measurePath(ctx, cl, task, rate); err != nil {
			r.Unmeasured = err
		}
		if rate {
			r.Rate, r.NoRate = pullRate(ctx, cl)
		}
		return r
	}
}

// measurePath measures the path to a task; nil with an error. Over TCP and shared memory it times receives
// if receives is set and the server publishes something.
func measurePath(ctx context.Context, cl *server.Client, task cluster.Task, receives bool) (*server.Measured, error) {
	m, err := cl.Measure(ctx, task)
	if err != nil {
		return nil, err
	}
	if p, known := providers.Of(m.Provider); receives && known && !p.RDMA() {
		err = measureReceives(ctx, cl, &m)
	}
	return &m, err
}

// pullRate pulls some of the first publication with content, twice, and returns the bytes a second
// of the second time: the first one reads files and allocates memory.
func pullRate(ctx context.Context, cl *server.Client) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, rateTimeout)
	defer cancel()
	all, err := cl.Puller().List(ctx)
	if err != nil {
		return 0, err
	}
	for _, p := range all {
		m, err := cl.Puller().Describe(ctx, p.Name, "")
		if err != nil {
			return 0, err
		}
		var sum int64
		var names []string
		for _, e := range m.Entries {
			if e.Bytes > 0 && (sum == 0 || sum+e.Bytes <= rateBytes) {
				sum += e.Bytes
				names = append(names, literal(e.Name))
			}
		}
		if sum == 0 {
			continue
		}
		var s checkpoint.Summary
		for range 2 {
			req := checkpoint.PullRequest{Publication: p.Name, Tensors: names, Retry: -1, SkipDigests: true, Measurement: true, Summary: &s}
			for t, err := range cl.Puller().Pull(ctx, req) {
				if err != nil {
					return 0, err
				}
				t.Release()
			}
		}
		return s.BytesPerSecond(), nil
	}
	return 0, errors.New("it publishes nothing that could be pulled")
}

// literal is the pattern that matches only a name (path.Match).
func literal(name string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(name)
}

// peerTarget is a peer to reach.
type peerTarget struct {
	task    cluster.Task // zero if it is not known
	address string
}

// targets returns the server of --from, or all other tasks of the cluster.
func targets(o Options) (list []peerTarget) {
	spec, _ := cluster.ParseLists(o.Client.Cluster) // the settings are valid
	if o.From != "" {
		address, task, _, err := cluster.ResolveTarget(spec, o.From)
		if err != nil {
			address = o.From
		}
		return []peerTarget{{task, address}}
	}
	for _, t := range spec.Tasks() {
		if o.Self == nil || t != *o.Self {
			address, _ := spec.Address(t)
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
			limit := probeTimeout + measureTimeout
			if o.Measure {
				limit += rateTimeout
			}
			p.GRPC = timed(ctx, limit, func(ctx context.Context) Reached { return reachGRPC(ctx, o.Client, p.Address, o.Measure) })
			if o.ReachVerbs != nil && p.GRPC.Err == nil { // the bootstrap needs gRPC
				r := timed(ctx, limit, func(ctx context.Context) Reached { return o.ReachVerbs(ctx, t.task, p.Address) })
				p.Verbs = &r
			}
			for _, s := range o.Fixed {
				if s.Reach != nil && p.GRPC.Err == nil {
					r := timed(ctx, limit, func(ctx context.Context) Reached { return s.Reach(ctx, t.task, p.Address) })
					p.Fixed = append(p.Fixed, FixedReached{s.Provider, r})
				}
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
func reachGRPC(ctx context.Context, c server.Config, address string, rate bool) Reached {
	c = c.ForClient()
	c.Transport = server.TransportGRPC // no channel is needed
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
	if rate {
		r.Rate, r.NoRate = pullRate(ctx, cl)
	}
	return r
}
